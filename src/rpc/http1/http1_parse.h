/* HTTP/1.1's bytes (RFC 9112): the head of a request, and bodies in chunks. No memory, no sockets. */
#ifndef RPC_HTTP1_HTTP1_PARSE_H
#define RPC_HTTP1_HTTP1_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/chars.h"

/* HEAD: bytes of the longest head. */
enum { HTTP1_HEAD = 8 << 10, HTTP1_MORE = 0, HTTP1_WHOLE = 200 };

struct http1_head {
  struct chars method, target; /* in the bytes of the head */
  size_t size;                 /* of the head, with the empty line */
  int64_t length;              /* of the body; -1: it comes in chunks */
  bool keep;                   /* the connection stays for further requests */
  bool gzip;                   /* the body is compressed */
  bool expects;                /* the client waits for "100 Continue" before it sends the body */
};

/* HTTP1_MORE: it has not all come yet; HTTP1_WHOLE; or the status with which the request is refused. */
int http1_head_read(const char *at, size_t n, struct http1_head *out);

/* A body in chunks, taken apart as it comes. Zeroed is the beginning. */
struct http1_chunks {
  enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER, CHUNK_OVER } state;
  uint64_t left; /* of the chunk */
  int digits;    /* of its size; of a trailer's line: characters */
  int trailers;  /* bytes of them, or of a chunk's extension */
  bool cr;       /* half of a line's end was there */
};
/* Takes up to n bytes: *used of them were taken, of which *data_n from *data on are the body's. HTTP1_MORE, HTTP1_WHOLE
 * at the end of the body, or the status with which it is refused. */
int http1_chunks_read(struct http1_chunks *c, const char *at, size_t n, size_t *used, const char **data,
                      size_t *data_n);

/* The path of a target, without its query and with its escapes (%20) resolved, into out[n]; false: it is no path, or
 * too long. */
bool http1_path(struct chars target, char *out, size_t n);

#endif

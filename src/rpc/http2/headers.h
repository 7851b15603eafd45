/* Header fields, as HTTP/2 (HPACK, RFC 7541) and gRPC have them; nghttp2 packs and unpacks them.
 *
 * A list of fields to be sent lives on the stack of whoever sends it: at most MAX_FIELDS, texts made for it inside.
 * What is received is kept only as far as gRPC has a use for it, and cut where a peer could make us keep more. */
#ifndef RPC_HTTP2_HEADERS_H
#define RPC_HTTP2_HEADERS_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum { MAX_FIELDS = 8 };

struct fields {
  nghttp2_nv at[MAX_FIELDS];
  size_t n;
  char code[16], timeout[32];
  struct text message, details;
};
void fields_release(struct fields *f);
/* name: a literal. value lives until the fields are sent off; n bytes. */
void fields_add(struct fields *f, const char *name, const char *value, size_t n);
/* The fields of a status: code, message, marks. */
void fields_add_status(struct fields *f, shoal_status s);
/* "grpc-timeout" for a deadline; nothing for DEADLINE_NEVER. */
void fields_add_timeout(struct fields *f, int64_t deadline);
/* A deadline from the value of grpc-timeout; DEADLINE_NEVER when it is none. */
int64_t headers_deadline(const uint8_t *value, size_t n);

enum { MAX_PATH = 200 }; /* no method's name is longer */

/* What a peer said of a call, in headers and trailers alike. */
struct headers {
  int http_status; /* 0: not said */
  int status;      /* grpc-status; -1: not said */
  char *path;      /* requests, cut to MAX_PATH; NULL: not said */
  int64_t deadline;
  bool identity, compression; /* the encoding of its messages: none, or one that can be undone */
  bool too_large;
  bool odd_path; /* with bytes that no method's name has */
  struct text message, details;
  size_t bytes; /* taken by all fields, as HTTP/2 counts */
};
void headers_init(struct headers *h);
void headers_release(struct headers *h);
void headers_take(struct headers *h, const uint8_t *name, size_t name_n, const uint8_t *value, size_t value_n);
/* The status that trailers tell: NULL when OK. */
shoal_status headers_status(const struct headers *h);

#endif

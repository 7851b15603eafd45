/* Header fields, as HTTP/2 (HPACK, RFC 7541) and gRPC have them.
 *
 * What is sent is written by hand, always as literals or from the static table: the same fields give the same bytes on
 * any connection, in any order, and a peer's table is never touched. What is received may use all of HPACK; nghttp2
 * decodes it. */
#ifndef RPC_HEADERS_H
#define RPC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Indices of HPACK's static table: whole fields, and names. */
enum { FIELD_POST = 3, FIELD_HTTP = 6, FIELD_HTTPS = 7, FIELD_STATUS_200 = 8 };
enum { NAME_AUTHORITY = 1, NAME_PATH = 4, NAME_CONTENT_TYPE = 31, NAME_USER_AGENT = 58 };

static inline void headers_add_indexed(struct text *t, int index) { text_addc(t, (char)(0x80 | index)); }
/* name: one of the static table's. */
void headers_add_named(struct text *t, int name, const char *value, size_t n);
void headers_add(struct text *t, const char *name, const char *value, size_t n);

/* The trailers of a status: code, message, marks. */
void headers_add_status(struct text *t, shoal_status s);
/* "grpc-timeout" for a deadline; nothing for DEADLINE_NEVER. */
void headers_add_timeout(struct text *t, int64_t deadline);
/* A deadline from the value of grpc-timeout; DEADLINE_NEVER when it is none. */
int64_t headers_deadline(const uint8_t *value, size_t n);

/* What a peer said of a call, in headers and trailers alike. */
struct headers {
  int http_status; /* 0: not said */
  int status;      /* grpc-status; -1: not said */
  char *path;      /* requests; NULL: not said */
  int64_t deadline;
  bool identity, compression; /* the encoding of its messages: none, or one that can be undone */
  bool too_large;
  struct text message, details;
  size_t bytes; /* taken by all fields, as HTTP/2 counts */
};
void headers_init(struct headers *h);
void headers_release(struct headers *h);
void headers_take(struct headers *h, const uint8_t *name, size_t name_n, const uint8_t *value, size_t value_n);
/* The status that trailers tell: NULL when OK. */
shoal_status headers_status(const struct headers *h);

#endif

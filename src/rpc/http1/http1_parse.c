/* See http1_parse.h. What could be read in two ways (two lengths, a length beside chunks, a space before a colon, lines
 * that go on) is refused: there is no second request to be smuggled behind the first. */
#include "rpc/http1/http1_parse.h"

#include <string.h>
#include <strings.h>

enum { BAD = 400, TOO_LARGE = 431, NOT_IMPLEMENTED = 501, NO_VERSION = 505, MOST_TRAILERS = 4096, SIZE_DIGITS = 15 };

/* ---- the head ---- */

static bool is_token(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Up to the end of a line, and beyond it; false: it does not end. */
static bool next_line(const char **at, const char *end, struct chars *line) {
  const char *nl = memchr(*at, '\n', (size_t)(end - *at));
  if (!nl) return false;
  size_t n = (size_t)(nl - *at);
  *line = (struct chars){*at, n && nl[-1] == '\r' ? n - 1 : n};
  *at = nl + 1;
  return true;
}

/* METHOD SP TARGET SP HTTP/1.x */
static int read_request_line(struct chars line, struct http1_head *out) {
  const char *end = line.at + line.n, *sp = memchr(line.at, ' ', line.n);
  const char *second = sp ? memchr(sp + 1, ' ', (size_t)(end - sp - 1)) : NULL;
  if (!second || sp == line.at || sp[1] != '/') return BAD;
  for (const char *p = line.at; p < sp; p++)
    if (!is_token(*p)) return BAD;
  for (const char *p = sp + 1; p < second; p++)
    if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f) return BAD;
  struct chars version = {second + 1, (size_t)(end - second - 1)};
  bool one = slice_is(version, "HTTP/1.1");
  if (!one && !slice_is(version, "HTTP/1.0"))
    return version.n > 5 && !memcmp(version.at, "HTTP/", 5) ? NO_VERSION : BAD;
  out->method = (struct chars){line.at, (size_t)(sp - line.at)};
  out->target = (struct chars){sp + 1, (size_t)(second - sp - 1)};
  out->keep = one;
  return HTTP1_WHOLE;
}

static bool same(struct chars a, const char *b) { return a.n == strlen(b) && !strncasecmp(a.at, b, a.n); }

static struct chars trim(struct chars s) {
  while (s.n && (*s.at == ' ' || *s.at == '\t')) s.at++, s.n--;
  while (s.n && (s.at[s.n - 1] == ' ' || s.at[s.n - 1] == '\t')) s.n--;
  return s;
}

static bool read_length(struct chars value, int64_t *out) {
  int64_t v = 0;
  if (!value.n || value.n > 18) return false;
  for (size_t i = 0; i < value.n; i++) {
    if (value.at[i] < '0' || value.at[i] > '9') return false;
    v = v * 10 + (value.at[i] - '0');
  }
  *out = v;
  return true;
}

/* What fields said so far. */
struct field_notes {
  bool old; /* HTTP/1.0, which has no chunks */
  bool has_length, chunked;
};

static int read_field(struct chars name, struct chars value, struct http1_head *out, struct field_notes *notes) {
  if (same(name, "content-length")) {
    int64_t length;
    if (!read_length(value, &length) || (notes->has_length && length != out->length)) return BAD;
    out->length = length;
    notes->has_length = true;
  } else if (same(name, "transfer-encoding")) {
    if (notes->old) return BAD;
    if (!same(value, "chunked") || notes->chunked) return NOT_IMPLEMENTED;
    notes->chunked = true;
  } else if (same(name, "content-encoding")) {
    if (same(value, "gzip") || same(value, "deflate")) out->gzip = true;
    else if (!same(value, "identity")) return 415;
  } else if (same(name, "connection")) {
    if (same(value, "close")) out->keep = false;
    if (same(value, "keep-alive")) out->keep = true;
  } else if (same(name, "expect")) {
    if (!same(value, "100-continue")) return 417;
    out->expects = true;
  }
  return HTTP1_WHOLE;
}

static int read_fields(const char *at, const char *end, struct http1_head *out) {
  struct field_notes notes = {.old = !out->keep};
  struct chars line;
  while (next_line(&at, end, &line) && line.n) {
    const char *colon = memchr(line.at, ':', line.n);
    if (!colon || colon == line.at || memchr(line.at, 0, line.n) || memchr(line.at, '\r', line.n)) return BAD;
    for (const char *p = line.at; p < colon; p++)
      if (!is_token(*p)) return BAD;
    struct chars name = {line.at, (size_t)(colon - line.at)};
    int code = read_field(name, trim((struct chars){colon + 1, line.n - name.n - 1}), out, &notes);
    if (code != HTTP1_WHOLE) return code;
  }
  if (notes.chunked && notes.has_length) return BAD;
  if (notes.chunked) out->length = -1;
  return HTTP1_WHOLE;
}

/* Bytes of the head, with the empty line; 0: it is not all here. */
static size_t head_size(const char *at, size_t n) {
  for (const char *p = at, *end = at + n; (p = memchr(p, '\n', (size_t)(end - p)));) {
    p++;
    if (p < end && *p == '\n') return (size_t)(p + 1 - at);
    if (p + 1 < end && p[0] == '\r' && p[1] == '\n') return (size_t)(p + 2 - at);
    if (p >= end) break;
  }
  return 0;
}

int http1_head_read(const char *at, size_t n, struct http1_head *out) {
  *out = (struct http1_head){0};
  size_t size = head_size(at, n);
  if (!size) return n >= HTTP1_HEAD ? TOO_LARGE : HTTP1_MORE;
  if (size > HTTP1_HEAD) return TOO_LARGE;
  out->size = size;
  const char *next = at;
  struct chars line;
  if (!next_line(&next, at + size, &line)) return BAD;
  int code = read_request_line(line, out);
  return code == HTTP1_WHOLE ? read_fields(next, at + size, out) : code;
}

/* ---- chunks ---- */

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One byte of what is not data. Lines end with both characters, which stand nowhere else: what ends a line for one
 * reader and not for another hides a request. */
static int chunk_byte(struct http1_chunks *c, char b) {
  if (c->cr != (b == '\n')) return BAD;
  c->cr = b == '\r';
  switch (c->state) {
    case CHUNK_SIZE:
      if (hex(b) >= 0) {
        if (++c->digits > SIZE_DIGITS) return BAD;
        c->left = c->left * 16 + (uint64_t)hex(b);
        return HTTP1_MORE;
      }
      if (!c->digits) return BAD;
      c->state = CHUNK_EXTENSION;
      if (b != '\r' && b != ';' && b != ' ' && b != '\t') return BAD;
      /* fall through */
    case CHUNK_EXTENSION:
      if (++c->trailers > MOST_TRAILERS) return TOO_LARGE;
      if (b != '\n') return HTTP1_MORE;
      c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
      c->digits = c->trailers = 0;
      return HTTP1_MORE;
    case CHUNK_END:
      if (b == '\n') c->state = CHUNK_SIZE;
      return b == '\n' || b == '\r' ? HTTP1_MORE : BAD;
    default: /* CHUNK_TRAILER */
      if (++c->trailers > MOST_TRAILERS) return TOO_LARGE;
      if (b == '\n' && !c->digits) {
        c->state = CHUNK_OVER;
        return HTTP1_WHOLE;
      }
      c->digits = b == '\n' ? 0 : b == '\r' ? c->digits : 1;
      return HTTP1_MORE;
  }
}

int http1_chunks_read(struct http1_chunks *c, const char *at, size_t n, size_t *used, const char **data,
                      size_t *data_n) {
  *data_n = 0;
  *data = at;
  for (*used = 0; *used < n && c->state != CHUNK_OVER;) {
    if (c->state == CHUNK_DATA) {
      *data = at + *used;
      *data_n = c->left < n - *used ? (size_t)c->left : n - *used;
      *used += *data_n;
      c->left -= *data_n;
      if (!c->left) c->state = CHUNK_END;
      return HTTP1_MORE;
    }
    int code = chunk_byte(c, at[(*used)++]);
    if (code != HTTP1_MORE) return code;
  }
  return c->state == CHUNK_OVER ? HTTP1_WHOLE : HTTP1_MORE;
}

/* ---- paths ---- */

bool http1_path(struct chars target, char *out, size_t n) {
  size_t used = 0;
  if (!target.n || *target.at != '/') return false;
  for (size_t i = 0; i < target.n && target.at[i] != '?' && target.at[i] != '#'; i++) {
    char c = target.at[i];
    if (c == '%') {
      if (i + 2 >= target.n || hex(target.at[i + 1]) < 0 || hex(target.at[i + 2]) < 0) return false;
      c = (char)(hex(target.at[i + 1]) * 16 + hex(target.at[i + 2]));
      i += 2;
    }
    if (!c || used + 1 >= n) return false;
    out[used++] = c;
  }
  out[used] = 0;
  return true;
}

/* Header fields; see headers.h. */
#include "rpc/http2/headers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/mem.h"
#include "rpc/rpc_status.h"

enum { MAX_BYTES = 16384, FIELD_OVERHEAD = 32 };

void fields_release(struct fields *f) {
  text_release(&f->message);
  text_release(&f->details);
}

void fields_add(struct fields *f, const char *name, const char *value, size_t n) {
  MUST(f->n < MAX_FIELDS);
  f->at[f->n++] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                               .namelen = strlen(name),
                               .value = (uint8_t *)(uintptr_t)value,
                               .valuelen = n,
                               .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

static void add_percent_encoded(struct text *t, const char *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint8_t b = (uint8_t)s[i];
    if (b >= 0x20 && b <= 0x7e && b != '%') text_addc(t, (char)b);
    else text_addf(t, "%%%02X", b);
  }
}

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void add_base64(struct text *t, const struct text *from) {
  uint32_t bits = 0;
  int n = 0;
  for (size_t i = 0; i < from->n; i++) {
    bits = bits << 8 | (uint8_t)from->at[i];
    for (n += 8; n >= 6; n -= 6) text_addc(t, base64[bits >> (n - 6) & 63]);
  }
  if (n) text_addc(t, base64[bits << (6 - n) & 63]);
}

void fields_add_status(struct fields *f, shoal_status s) {
  if (!s) {
    fields_add(f, "grpc-status", "0", 1);
    return;
  }
  int n = snprintf(f->code, sizeof f->code, "%d", (int)shoal_status_code(s));
  fields_add(f, "grpc-status", f->code, (size_t)n);
  struct text message = {0}, marks = {0};
  rpc_status_text(s, &message);
  rpc_status_payload(s, &marks);
  add_percent_encoded(&f->message, text_cstr(&message), message.n);
  fields_add(f, "grpc-message", text_cstr(&f->message), f->message.n);
  if (marks.n) {
    add_base64(&f->details, &marks);
    fields_add(f, "grpc-status-details-bin", f->details.at, f->details.n);
  }
  text_release(&message);
  text_release(&marks);
}

void fields_add_timeout(struct fields *f, int64_t deadline) {
  if (deadline == DEADLINE_NEVER) return;
  int64_t left = MAX(deadline - clock_ns(), 1000), v = (left + 999) / 1000;
  char unit = 'u';
  if (v > 99999999) {
    v = (v + 999) / 1000;
    unit = 'm';
  }
  if (v > 99999999) {
    v = MIN((v + 999) / 1000, 99999999);
    unit = 'S';
  }
  int n = snprintf(f->timeout, sizeof f->timeout, "%" PRId64 "%c", v, unit);
  fields_add(f, "grpc-timeout", f->timeout, (size_t)n);
}

int64_t headers_deadline(const uint8_t *value, size_t n) {
  static const struct {
    char unit;
    int64_t ns;
  } units[] = {{'H', 3600000000000}, {'M', 60000000000}, {'S', 1000000000}, {'m', 1000000}, {'u', 1000}, {'n', 1}};
  if (n < 2 || n > 9) return DEADLINE_NEVER;
  int64_t v = 0, now = clock_ns(), left;
  for (size_t i = 0; i + 1 < n; i++) {
    if (value[i] < '0' || value[i] > '9') return DEADLINE_NEVER;
    v = v * 10 + (value[i] - '0');
  }
  for (size_t i = 0; i < COUNT_OF(units); i++)
    if (value[n - 1] == (uint8_t)units[i].unit)
      return mul_overflows(v, units[i].ns, &left) || left > DEADLINE_NEVER - 1 - now ? DEADLINE_NEVER : now + left;
  return DEADLINE_NEVER;
}

void headers_init(struct headers *h) {
  *h = (struct headers){.status = -1, .deadline = DEADLINE_NEVER, .identity = true};
}

void headers_release(struct headers *h) {
  block_free(h->path);
  text_release(&h->message);
  text_release(&h->details);
  headers_init(h);
}

static bool is(const uint8_t *s, size_t n, const char *what) { return n == strlen(what) && !memcmp(s, what, n); }

static int digits(const uint8_t *s, size_t n) {
  int v = 0;
  for (size_t i = 0; i < n; i++) {
    if (s[i] < '0' || s[i] > '9' || n > 4) return -1;
    v = v * 10 + (s[i] - '0');
  }
  return n ? v : -1;
}

static int hex(uint8_t c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static void percent_decode(struct text *t, const uint8_t *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    int high = s[i] == '%' && i + 2 < n ? hex(s[i + 1]) : -1, low = high >= 0 ? hex(s[i + 2]) : -1;
    if (low >= 0) i += 2;
    text_addc(t, low >= 0 ? (char)(high << 4 | low) : (char)s[i]);
  }
}

static void decode_base64(struct text *t, const uint8_t *s, size_t n) {
  uint32_t bits = 0;
  int have = 0;
  for (size_t i = 0; i < n; i++) {
    const char *found = s[i] ? strchr(base64, s[i]) : NULL;
    if (!found) return;
    bits = bits << 6 | (uint32_t)(found - base64);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    text_addc(t, (char)(bits >> have));
  }
}

void headers_take(struct headers *h, const uint8_t *name, size_t n, const uint8_t *value, size_t vn) {
  h->bytes += n + vn + FIELD_OVERHEAD;
  if (h->bytes > MAX_BYTES) {
    h->too_large = true;
    return;
  }
  if (is(name, n, ":path")) {
    block_free(h->path);
    h->path = block_strndup((const char *)value, MIN(vn, MAX_PATH));
    h->odd_path = vn > MAX_PATH;
    for (size_t i = 0; i < vn; i++) h->odd_path |= value[i] <= 0x20 || value[i] >= 0x7f;
  } else if (is(name, n, ":status")) {
    h->http_status = digits(value, vn);
  } else if (is(name, n, "grpc-timeout")) {
    h->deadline = headers_deadline(value, vn);
  } else if (is(name, n, "grpc-encoding")) {
    h->identity = is(value, vn, "identity");
    h->compression = is(value, vn, "gzip") || is(value, vn, "deflate");
  } else if (is(name, n, "grpc-status")) {
    h->status = digits(value, vn);
    if (h->status < 0) h->status = SHOAL_UNKNOWN;
  } else if (is(name, n, "grpc-message")) {
    h->message.n = 0;
    percent_decode(&h->message, value, vn);
  } else if (is(name, n, "grpc-status-details-bin")) {
    h->details.n = 0;
    decode_base64(&h->details, value, vn);
  }
}

/* What gRPC makes of an answer by something that is no gRPC server. */
static shoal_status http_error(int status) {
  shoal_code code = status == 400                                       ? SHOAL_INTERNAL
                    : status == 401                                     ? SHOAL_UNAUTHENTICATED
                    : status == 403                                     ? SHOAL_PERMISSION_DENIED
                    : status == 404                                     ? SHOAL_UNIMPLEMENTED
                    : status == 429 || (status >= 502 && status <= 504) ? SHOAL_UNAVAILABLE
                                                                        : SHOAL_UNKNOWN;
  return STATUS(code, "Received http2 header with status: %d", status);
}

shoal_status headers_status(const struct headers *h) {
  if (h->too_large)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "the peer's header fields take more than %d bytes", MAX_BYTES);
  if (h->status >= 0) return rpc_status_from(h->status, &h->message, &h->details);
  if (h->http_status && h->http_status != 200) return http_error(h->http_status);
  return STATUS(SHOAL_UNKNOWN, "the peer ended the call without a status");
}

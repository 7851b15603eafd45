/* Slices of tensors; see slice.h. Keys are in "ordered code": their bytes sort as what they stand for does.
 *
 *   string    bytes with 00 as 00 ff and ff as ff 00, then 00 01
 *   count     number of bytes, then that many, most significant first; 0 is just 00
 *   signed x  for x >= 0 in n bytes, n the least with x < 2^(7n-1): most significant first, with the first n bits
 *             set; negative ones are the complement of that for -x-1 (so -1 is 7f) */
#include "checkpoint/slice.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "proto/types.wire.h"

struct slice slice_whole(int rank) {
  struct slice s = {.rank = rank};
  for (int i = 0; i < rank; i++) s.length[i] = -1;
  return s;
}

/* A decimal number that ends at `end`. */
static bool number(const char *at, const char *end, int64_t *out) {
  if (at == end || end - at > 19) return false;
  uint64_t v = 0;
  for (; at < end; at++) {
    if (*at < '0' || *at > '9') return false;
    v = v * 10 + (uint64_t)(*at - '0');
  }
  if (v > INT64_MAX) return false;
  *out = (int64_t)v;
  return true;
}

static shoal_status parse_slice(const char *text, size_t n, struct slice *out) {
  *out = (struct slice){0};
  const char *end = text + n;
  for (const char *at = text; at <= end;) {
    const char *stop = memchr(at, ':', (size_t)(end - at));
    if (!stop) stop = end;
    if (stop == at) break; /* "" is a slice of a scalar */
    if (out->rank == SHOAL_MAX_RANK)
      return INVALID("A slice of more than %d dimensions: %.*s", SHOAL_MAX_RANK, (int)n, text);
    int i = out->rank++;
    if (stop - at == 1 && *at == '-') {
      out->length[i] = -1;
    } else {
      const char *comma = memchr(at, ',', (size_t)(stop - at));
      if (!comma || !number(at, comma, &out->start[i]) || !number(comma + 1, stop, &out->length[i]))
        return INVALID("Expected a pair of numbers or '-' but got '%.*s': string = %.*s", (int)(stop - at), at, (int)n,
                       text);
      if (out->length[i] <= 0 || out->start[i] > INT64_MAX - out->length[i])
        return INVALID("Expected non-negative start and positive length but got start = %" PRId64 ", length = %" PRId64
                       ": string = %.*s",
                       out->start[i], out->length[i], (int)n, text);
    }
    at = stop + 1;
  }
  return NULL;
}

shoal_status slice_parse(const char *text, size_t n, struct shape *full, struct slice *out, struct shape *part) {
  const char *end = text + n, *last = NULL;
  for (const char *p = text; p < end; p++)
    if (*p == ' ') last = p;
  if (!last) return INVALID("Need least two elements in shape_and_slice specification: %.*s", (int)n, text);
  *full = (struct shape){0};
  for (const char *at = text; at < last;) {
    const char *stop = memchr(at, ' ', (size_t)(last - at));
    if (!stop) stop = last;
    if (full->rank == SHOAL_MAX_RANK || !number(at, stop, &full->dims[full->rank]))
      return INVALID("Non numerical dimension in shape_and_slice: %.*s", (int)n, text);
    full->rank++;
    at = stop + 1;
  }
  int64_t elements;
  TRY(shape_elements(full, &elements));
  TRY(parse_slice(last + 1, (size_t)(end - last - 1), out));
  return slice_shape(out, full, part);
}

void slice_print(const struct slice *s, struct text *out) {
  for (int i = 0; i < s->rank; i++) {
    if (i) text_addc(out, ':');
    if (s->length[i] < 0) text_addc(out, '-');
    else text_addf(out, "%" PRId64 ",%" PRId64, s->start[i], s->length[i]);
  }
}

shoal_status slice_shape(const struct slice *s, const struct shape *full, struct shape *out) {
  struct text t = {0};
  shoal_status e = NULL;
  *out = *full;
  if (s->rank != full->rank) {
    slice_print(s, &t);
    e = INTERNAL("Mismatching ranks: shape = %s, slice = %s", shape_str(full), text_cstr(&t));
  }
  for (int i = 0; !e && i < s->rank; i++) {
    if (s->length[i] < 0) continue;
    if (s->start[i] < 0 || s->start[i] > full->dims[i] || s->length[i] > full->dims[i] - s->start[i]) {
      slice_print(s, &t);
      e = INTERNAL("Extent in dimension %d out of bounds: shape = %s, slice = %s", i, shape_str(full), text_cstr(&t));
    }
    out->dims[i] = s->length[i];
  }
  text_release(&t);
  return e;
}

bool slice_is_whole(const struct slice *s, const struct shape *full) {
  if (s->rank != full->rank) return false;
  for (int i = 0; i < s->rank; i++)
    if (s->length[i] >= 0 && (s->start[i] != 0 || s->length[i] != full->dims[i])) return false;
  return true;
}

static int64_t length_of(const struct slice *s, const struct shape *full, int i) {
  return s->length[i] < 0 ? full->dims[i] : s->length[i];
}

bool slice_meet(const struct slice *a, const struct slice *b, const struct shape *full, struct slice *out) {
  if (a->rank != b->rank || a->rank != full->rank) return false;
  out->rank = a->rank;
  for (int i = 0; i < a->rank; i++) {
    int64_t begin = MAX(a->start[i], b->start[i]);
    int64_t end = MIN(a->start[i] + length_of(a, full, i), b->start[i] + length_of(b, full, i));
    if (end <= begin) return false;
    out->start[i] = begin;
    out->length[i] = end - begin;
  }
  return true;
}

shoal_status slices_check_apart(const char *name, size_t name_n, const struct slice *s, size_t n,
                                const struct shape *full) {
  enum { MOST = 10000 }; /* each is held against all others */
  struct slice both;
  if (n > MOST)
    return STATUS(SHOAL_DATA_LOSS, "Tensor %.*s has %zu slices; at most %d are read", (int)name_n, name, n, MOST);
  for (size_t i = 0; i < n; i++)
    for (size_t k = i + 1; k < n; k++)
      if (slice_meet(&s[i], &s[k], full, &both)) {
        struct text a = {0}, b = {0};
        slice_print(&s[i], &a);
        slice_print(&s[k], &b);
        shoal_status e = INTERNAL("Overlapping slices of tensor %.*s: existing slice = %s, new slice = %s", (int)name_n,
                                  name, text_cstr(&a), text_cstr(&b));
        text_release(&a);
        text_release(&b);
        return e;
      }
  return NULL;
}

void slice_copy(const struct shape *full, const struct slice *from, const struct tensor *src, const struct slice *to,
                struct tensor *dst) {
  struct slice both;
  if (!slice_meet(from, to, full, &both)) return;
  shoal_dtype dtype = (shoal_dtype)src->dtype;
  size_t size = dtype_size(dtype);
  int rank = full->rank, inner = rank - 1;
  int64_t row = rank ? both.length[inner] : 1, at[SHOAL_MAX_RANK] = {0};
  for (;;) {
    int64_t s = 0, d = 0;
    for (int i = 0; i < rank; i++) {
      int64_t coord = both.start[i] + (i < inner ? at[i] : 0);
      s = s * length_of(from, full, i) + coord - from->start[i];
      d = d * length_of(to, full, i) + coord - to->start[i];
    }
    elements_copy(dtype, (char *)dst->data + (size_t)d * size, (const char *)src->data + (size_t)s * size, row);
    int i = inner - 1;
    for (; i >= 0 && ++at[i] == both.length[i]; i--) at[i] = 0;
    if (i < 0) return;
  }
}

void slice_encode(const struct slice *s, struct text *out) {
  for (int i = 0; i < s->rank; i++) {
    size_t extent = begin_TensorSliceProto_extent(out);
    if (s->length[i] >= 0) {
      if (s->start[i]) put_TensorSliceProto_Extent_start(out, s->start[i]);
      put_TensorSliceProto_Extent_length(out, s->length[i]);
    }
    wire_end(out, extent);
  }
}

bool slice_decode(const void *data, size_t n, struct slice *out) {
  *out = (struct slice){0};
  struct wire w = wire_from(data, n);
  struct wire_field f, e;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag != TensorSliceProto_extent) continue;
    if (out->rank == SHOAL_MAX_RANK) return false;
    int i = out->rank++;
    out->length[i] = -1;
    struct wire inside = wire_inside(&f);
    while ((step = wire_next(&inside, &e)) == WIRE_FIELD) {
      if (e.type != WIRE_VARINT) continue;
      if (e.tag == TensorSliceProto_Extent_start) out->start[i] = (int64_t)e.value;
      if (e.tag == TensorSliceProto_Extent_length) out->length[i] = (int64_t)e.value;
    }
    if (step == WIRE_BROKEN || out->start[i] < 0 || out->length[i] < -1) return false;
    if (out->length[i] < 0 ? out->start[i] != 0 : out->start[i] > INT64_MAX - out->length[i]) return false;
  }
  return step == WIRE_END;
}

static void put_string(struct text *out, const char *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    text_addc(out, s[i]);
    if (s[i] == 0) text_addc(out, (char)0xff);
    else if ((unsigned char)s[i] == 0xff) text_addc(out, 0);
  }
  text_add(out, "\0\1", 2);
}

static void put_count(struct text *out, uint64_t v) {
  char b[9];
  int n = 0;
  for (uint64_t x = v; x; x >>= 8) n++;
  b[0] = (char)n;
  for (int i = 0; i < n; i++) b[1 + i] = (char)(v >> (8 * (n - 1 - i)));
  text_add(out, b, (size_t)n + 1);
}

static void put_signed(struct text *out, int64_t x) {
  uint64_t v = (uint64_t)(x < 0 ? ~x : x);
  int n = 1;
  while (n < 10 && v >> (7 * n - 1 < 63 ? 7 * n - 1 : 63)) n++;
  unsigned char b[10] = {0};
  for (int i = 0; i < n && i < 8; i++) b[n - 1 - i] = (unsigned char)(v >> (8 * i));
  for (int bit = 0; bit < n; bit++) b[bit / 8] |= (unsigned char)(0x80 >> (bit % 8));
  for (int i = 0; x < 0 && i < n; i++) b[i] = (unsigned char)~b[i];
  text_add(out, (const char *)b, (size_t)n);
}

void slice_key(const char *name, size_t n, const struct slice *s, struct text *out) {
  put_count(out, 0);
  put_string(out, name, n);
  put_count(out, (uint64_t)s->rank);
  for (int i = 0; i < s->rank; i++) {
    put_signed(out, s->length[i] < 0 ? 0 : s->start[i]);
    put_signed(out, s->length[i]);
  }
}

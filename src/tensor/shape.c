/* Shapes, known and partly known. */
#include "tensor/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct shape shape_unknown_of_rank(int rank) {
  struct shape s = {.rank = rank};
  for (int i = 0; i < rank; i++) s.dims[i] = -1;
  return s;
}

bool shape_known(const struct shape *s) {
  if (s->rank < 0) return false;
  for (int i = 0; i < s->rank; i++)
    if (s->dims[i] < 0) return false;
  return true;
}

bool shape_equal(const struct shape *a, const struct shape *b) {
  return a->rank == b->rank && (a->rank <= 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0);
}

bool shape_compatible(const struct shape *a, const struct shape *b) {
  if (a->rank < 0 || b->rank < 0) return true;
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] >= 0 && b->dims[i] >= 0 && a->dims[i] != b->dims[i]) return false;
  return true;
}

shoal_status shape_elements(const struct shape *s, int64_t *out) {
  *out = -1;
  if (s->rank < 0) return NULL;
  int64_t n = 1;
  bool unknown = false, empty = false;
  for (int i = 0; i < s->rank; i++) {
    int64_t d = s->dims[i];
    if (d < -1) return INVALID("Shape has dimension %" PRId64 "; dimensions must be >= -1 (-1 being unknown)", d);
    if (d == 0) empty = true;
    if (d == -1) unknown = true;
    else if (d > 0 && mul_overflows(n, d, &n))
      return INVALID("Shape %s has more elements than fit in 63 bits", shape_str(s));
  }
  if (!unknown) *out = empty ? 0 : n;
  return NULL;
}

shoal_status shape_merge(const struct shape *a, const struct shape *b, struct shape *out) {
  struct shape r = *a;
  if (a->rank < 0) r = *b;
  else if (b->rank >= 0) {
    if (a->rank != b->rank)
      return INVALID("Shapes must be equal rank, but are %d and %d: %s and %s", a->rank, b->rank, shape_str(a),
                     shape_str(b));
    for (int i = 0; i < a->rank; i++) {
      if (a->dims[i] >= 0 && b->dims[i] >= 0 && a->dims[i] != b->dims[i])
        return INVALID("Dimension %d in both shapes must be equal, but are %" PRId64 " and %" PRId64
                       ". Shapes are %s and %s.",
                       i, a->dims[i], b->dims[i], shape_str(a), shape_str(b));
      if (a->dims[i] < 0) r.dims[i] = b->dims[i];
    }
  }
  *out = r;
  return NULL;
}

shoal_status shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out) {
  if (a->rank < 0 || b->rank < 0) {
    *out = shape_unknown();
    return NULL;
  }
  struct shape r = {.rank = MAX(a->rank, b->rank)};
  for (int i = 1; i <= r.rank; i++) {
    int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1, y = i <= b->rank ? b->dims[b->rank - i] : 1;
    int64_t d;
    if (x == 1) d = y;
    else if (y == 1 || x == y) d = x;
    else if (x < 0) d = y;
    else if (y < 0) d = x;
    else return INVALID("Incompatible shapes: %s vs. %s", shape_str(a), shape_str(b));
    r.dims[r.rank - i] = d;
  }
  *out = r;
  return NULL;
}

void shape_print(const struct shape *s, struct text *out) {
  if (s->rank < 0) {
    text_adds(out, "<unknown>");
    return;
  }
  text_addc(out, '[');
  for (int i = 0; i < s->rank; i++) {
    if (i) text_addc(out, ',');
    if (s->dims[i] == -1) text_addc(out, '?');
    else text_addf(out, "%" PRId64, s->dims[i]);
  }
  text_addc(out, ']');
}

const char *shape_str(const struct shape *s) {
  static _Thread_local char ring[4][SHOAL_MAX_RANK * 21 + 16];
  static _Thread_local unsigned turn;
  char *at = ring[turn++ % 4];
  struct text t = {0};
  shape_print(s, &t);
  snprintf(at, sizeof ring[0], "%s", text_cstr(&t));
  text_release(&t);
  return at;
}

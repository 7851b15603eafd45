#include "collective/parcel.h"

#include <string.h>

#include "base/mem.h"
#include "collective/schedule_build.h"

_Static_assert(sizeof(struct parcel_entry) <= PARCEL_LINE, "an entry has a line");

struct parcel_piece parcel_piece(int64_t n, int rank, int size) {
  if (size == 2) return (struct parcel_piece){0, n};
  struct schedule_span s = span_piece(span_of(BUFFER_OUT, 0, n), rank, size);
  return (struct parcel_piece){s.at, s.n};
}

size_t parcel_head(size_t n) { return PARCEL_LINE * (n + 1); }

size_t parcel_room(int64_t elements, size_t element) {
  size_t bytes = (size_t)elements * element;
  return (bytes + PARCEL_LINE - 1) / PARCEL_LINE * PARCEL_LINE;
}

void parcel_put_count(char *parcel, size_t n) {
  uint32_t count = (uint32_t)n;
  memset(parcel, 0, PARCEL_LINE);
  memcpy(parcel, &count, sizeof count);
}

void parcel_put(char *parcel, size_t i, const struct parcel_entry *e) {
  char *line = parcel + PARCEL_LINE * (i + 1);
  memset(line, 0, PARCEL_LINE);
  memcpy(line, e, sizeof *e);
}

bool parcel_read(struct parcel_reader *r, const void *data, size_t bytes, int from, int to, int size) {
  uint32_t n = 0;
  if (bytes >= PARCEL_LINE) memcpy(&n, data, sizeof n);
  *r = (struct parcel_reader){.data = data, .bytes = bytes, .n = n, .at = parcel_head(n), .from = from, .to = to};
  r->size = size;
  return n > 0 && r->at <= bytes;
}

bool parcel_next(struct parcel_reader *r, struct parcel_entry *e, const char **elements) {
  enum { LARGEST = 16 }; /* of elements */
  if (r->i == r->n) return false;
  memcpy(e, r->data + parcel_head(r->i), sizeof *e);
  if (e->element == 0 || e->element > LARGEST || e->n < 1 || (uint64_t)e->n > r->bytes * (size_t)r->size) return false;
  int64_t n = e->n;
  if (e->stage < PARCEL_ROUND) n = parcel_piece(n, e->stage == PARCEL_SUM ? r->from : r->to, r->size).n;
  size_t room = parcel_room(n, e->element);
  if (room > r->bytes - r->at) return false;
  *elements = r->data + r->at;
  r->at += room;
  r->i++;
  return true;
}

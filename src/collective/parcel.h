/* A parcel: what one rank has for another of several all-reduces, in one message. It says itself of which: the receiver
 * need not have come to them in the same order, or to as many.
 *
 *   bytes     what
 *   0    4    how many entries follow
 *   4   60    none
 *   64  64n   entries: struct parcel_entry and no more
 *        -    for each entry its elements, from a multiple of 64 on
 *
 * How many elements an entry has follows from what it says and from the two ranks: whoever reads it knows. */
#ifndef COLLECTIVE_PARCEL_H
#define COLLECTIVE_PARCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum parcel_stage {
  PARCEL_BROUGHT, /* what the sender brings to the receiver's piece */
  PARCEL_SUM,     /* the sender's piece of the sum */
  PARCEL_ROUND,   /* and the next ones: the sum of 1, 2, 4, ... ranks, the sender among them */
};

struct parcel_entry {
  uint64_t frame, iter;
  int64_t n; /* elements of the whole */
  int32_t instance_key;
  uint32_t element; /* bytes, as it is here */
  uint32_t stage;
};

enum { PARCEL_LINE = 64 };

/* Elements of n that rank `rank` of `size` sums: of two each sums all. */
struct parcel_piece {
  int64_t at, n;
} parcel_piece(int64_t n, int rank, int size);

/* How many bytes a parcel of n entries has before their elements, and how many an entry's elements take. */
size_t parcel_head(size_t n);
size_t parcel_room(int64_t elements, size_t element);

void parcel_put_count(char *parcel, size_t n);
void parcel_put(char *parcel, size_t i, const struct parcel_entry *e);

/* Reading what a stranger may be writing yet: each byte of the head is read once. */
struct parcel_reader {
  const char *data;
  size_t bytes, n, i, at;
  int from, to, size; /* ranks, and of how many */
};
/* False: it cannot be one. */
bool parcel_read(struct parcel_reader *r, const void *data, size_t bytes, int from, int to, int size);
/* The next entry and its elements; false: there is none, or (r->i < r->n) what follows cannot be one. */
bool parcel_next(struct parcel_reader *r, struct parcel_entry *e, const char **elements);

#endif

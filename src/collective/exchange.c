/* Collectives among members of one process: every input is read where it is, and one result serves all where all have
 * the same, so a reduction moves each byte once and a broadcast none.
 *
 * A reduction adds in the order of pairs (schedule.h), which depends neither on who came first nor on the number of
 * threads, so a run can be repeated bit for bit, and among processes it gives the same bits. (TensorFlow's ring begins
 * each piece at another rank; with three members or more its last bits differ from these.) */
#include "collective/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { PIECE = 1 << 13 }; /* elements: a piece of the sum, and of the sums that wait, stays in the cache */

struct reduction {
  struct collective_member *const *members;
  int n;
  struct tensor *sum;
  int64_t from; /* the element of the inputs that the sum begins with */
  size_t element;
};

/* to = the sum of n members from lo on, elements begin .. begin+count; spare: room for such a sum at every level. */
static void sum_pairs(const struct reduction *r, int lo, int n, int64_t begin, int64_t count, char *to, char *spare) {
  const struct collective_arithmetic *a = r->members[0]->arithmetic;
  const char *first = (const char *)r->members[lo]->in->data + (size_t)begin * r->element;
  if (n == 1) {
    if (to != first) memcpy(to, first, (size_t)count * r->element);
    return;
  }
  int h = 1;
  while (h * 2 < n) h *= 2;
  const char *right = (const char *)r->members[lo + h]->in->data + (size_t)begin * r->element;
  if (h > 1) sum_pairs(r, lo, h, begin, count, to, spare);
  if (n - h > 1) {
    sum_pairs(r, lo + h, n - h, begin, count, spare, spare + (size_t)PIECE * r->element);
    right = spare;
  }
  a->merge(a, to, h > 1 ? to : first, right, count);
}

static void reduce_piece(void *arg, int64_t begin, int64_t end) {
  const struct reduction *r = arg;
  const struct collective_arithmetic *a = r->members[0]->arithmetic;
  int levels = 1;
  while (1 << levels < r->n) levels++;
  char *spare = mem_alloc((size_t)levels * PIECE * r->element);
  for (int64_t i = begin; i < end; i += PIECE) {
    int64_t n = MIN(end - i, PIECE);
    char *sum = (char *)r->sum->data + (size_t)i * r->element;
    sum_pairs(r, 0, r->n, r->from + i, n, sum, spare);
    if (a->final) a->final(a, sum, r->n, n);
  }
  free(spare);
}

/* Member i's result is the sum of what begins at `from`. */
static shoal_status reduce(struct collective_member *const *members, int n, int i, int64_t from,
                           struct tensor *result) {
  TRY(members[i]->make(members[i], result));
  struct reduction r = {members, n, result, from, dtype_size((shoal_dtype)result->dtype)};
  pool_for(members[i]->device->intra, result->n, PIECE, reduce_piece, &r);
  return NULL;
}

static void copy(struct tensor *to, int64_t at, const struct tensor *from, int64_t from_at, int64_t n) {
  size_t element = dtype_size((shoal_dtype)to->dtype);
  if (n)
    memcpy((char *)to->data + (size_t)at * element, (const char *)from->data + (size_t)from_at * element,
           (size_t)n * element);
}

static shoal_status gather(struct collective_member *const *members, int n, struct tensor *result) {
  TRY(members[0]->make(members[0], result));
  for (int64_t i = 0, at = 0; i < n; at += members[i++]->in->n) copy(result, at, members[i]->in, 0, members[i]->in->n);
  return NULL;
}

static shoal_status all_to_all(struct collective_member *const *members, int n, int i, struct tensor *result) {
  TRY(members[i]->make(members[i], result));
  int64_t each = result->n / n;
  for (int k = 0; k < n; k++) copy(result, k * each, members[k]->in, i * each, each);
  return NULL;
}

static const struct tensor *source_of(struct collective_member *const *members) {
  while (!(*members)->is_source) members++;
  return (*members)->in;
}

/* What all of them get. */
static shoal_status exchange_shared(struct collective_member *const *members, int n, struct tensor *result) {
  if (members[0]->kind == COLLECTIVE_REDUCE) return reduce(members, n, 0, 0, result);
  if (members[0]->kind == COLLECTIVE_GATHER) return gather(members, n, result);
  tensor_ref(result, source_of(members));
  return NULL;
}

static shoal_status exchange_own(struct collective_member *const *members, int n, struct tensor *results) {
  shoal_status s = NULL;
  for (int i = 0; !s && i < n; i++) {
    if (members[0]->kind == COLLECTIVE_ALL_TO_ALL) s = all_to_all(members, n, i, &results[i]);
    else s = reduce(members, n, i, i * (members[i]->in->n / n), &results[i]);
  }
  for (int i = 0; s && i < n; i++) tensor_release(&results[i]);
  return s;
}

shoal_status exchange_run(struct collective_member *const *members, int n, struct tensor *results) {
  enum collective_kind kind = members[0]->kind;
  if (kind == COLLECTIVE_JOIN) return NULL;
  if (kind == COLLECTIVE_ALL_TO_ALL || kind == COLLECTIVE_REDUCE_SCATTER) return exchange_own(members, n, results);
  TRY(exchange_shared(members, n, &results[0]));
  for (int i = 1; i < n; i++) tensor_ref(&results[i], &results[0]);
  return NULL;
}

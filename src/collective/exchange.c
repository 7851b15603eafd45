/* Collectives among members of one process: every input is read where it is, and one result serves all where all have
 * the same, so a reduction moves each byte once and a broadcast none.
 *
 * A reduction adds in the order of pairs (schedule.h), which depends neither on who came first nor on the number of
 * threads, so a run can be repeated bit for bit, and among processes it gives the same bits. (TensorFlow's ring begins
 * each piece at another rank; with three members or more its last bits differ from these.) */
#include "collective/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/mem.h"
#include "collective/device_exchange.h"
#include "collective/pairs.h"

enum { PIECE = 1 << 13 }; /* elements: a piece of the sum, and of the sums that wait, stays in the cache */

struct reduction {
  struct collective_member *const *members;
  int n;
  struct tensor *sum;
  int64_t from; /* the element of the inputs that the sum begins with */
  size_t element;
};

static void reduce_piece(void *arg, int64_t begin, int64_t end) {
  const struct reduction *r = arg;
  const struct collective_arithmetic *a = r->members[0]->arithmetic;
  size_t step = PIECE * r->element;
  char *spare = r->n > 2 ? block_alloc((size_t)pairs_levels(r->n) * step) : NULL; /* of two there is one sum */
  const char **sources = block_alloc((size_t)r->n * sizeof *sources);
  for (int64_t i = begin; i < end; i += PIECE) {
    int64_t n = MIN(end - i, PIECE);
    char *sum = (char *)r->sum->data + (size_t)i * r->element;
    for (int k = 0; k < r->n; k++)
      sources[k] = (const char *)r->members[k]->in->data + (size_t)(r->from + i) * r->element;
    pairs_sum(a, sources, r->n, r->element, n, sum, spare, step);
    if (a->final) a->final(a, sum, r->n, n);
  }
  block_free(sources);
  block_free(spare);
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
  if (members[0]->on_device) return device_exchange_run(members, n, results);
  if (kind == COLLECTIVE_ALL_TO_ALL || kind == COLLECTIVE_REDUCE_SCATTER) return exchange_own(members, n, results);
  TRY(exchange_shared(members, n, &results[0]));
  for (int i = 1; i < n; i++) tensor_ref(&results[i], &results[0]);
  return NULL;
}

/* Collectives among members of one process: every input is read where it is, and one result serves all, so a reduction
 * moves each byte once and a broadcast none.
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
    sum_pairs(r, 0, r->n, i, n, sum, spare);
    if (a->final) a->final(a, sum, r->n, n);
  }
  free(spare);
}

static shoal_status reduce(struct collective_member *const *members, int n, struct tensor *result) {
  TRY(members[0]->make(members[0], result));
  struct reduction r = {members, n, result, dtype_size((shoal_dtype)result->dtype)};
  pool_for(members[0]->device->intra, result->n, PIECE, reduce_piece, &r);
  return NULL;
}

static shoal_status gather(struct collective_member *const *members, int n, struct tensor *result) {
  TRY(members[0]->make(members[0], result));
  char *to = result->data;
  for (int i = 0; i < n; i++) {
    size_t bytes = (size_t)members[i]->in->n * dtype_size(members[i]->dtype);
    if (bytes) memcpy(to, members[i]->in->data, bytes);
    to += bytes;
  }
  return NULL;
}

shoal_status exchange_run(struct collective_member *const *members, int n, struct tensor *result) {
  switch (members[0]->kind) {
    case COLLECTIVE_REDUCE: return reduce(members, n, result);
    case COLLECTIVE_GATHER: return gather(members, n, result);
    case COLLECTIVE_BROADCAST: break;
  }
  for (int i = 0; i < n; i++)
    if (members[i]->is_source) tensor_ref(result, members[i]->in);
  return NULL;
}

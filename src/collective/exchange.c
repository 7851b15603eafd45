/* Collectives among members of one process: every input is read where it is, and one result serves all, so a reduction
 * moves each byte once and a broadcast none.
 *
 * A reduction adds in order of rank, element by element: ((r0 + r1) + r2) + ... The order depends neither on who came
 * first nor on the number of threads, so a run can be repeated bit for bit. (TensorFlow's ring begins each piece at
 * another rank; with three members or more its last bits differ from these.) */
#include "collective/exchange.h"

#include <string.h>

#include "base/mem.h"

enum { PIECE = 1 << 15 }; /* elements: a piece of the sum stays in the cache while all members' are added */

struct reduction {
  struct collective_member *const *members;
  int n;
  struct tensor *sum;
};

static void reduce_piece(void *arg, int64_t begin, int64_t end) {
  const struct reduction *r = arg;
  const struct collective_arithmetic *a = r->members[0]->arithmetic;
  size_t size = dtype_size((shoal_dtype)r->sum->dtype);
  for (int64_t i = begin; i < end; i += PIECE) {
    int64_t n = MIN(end - i, PIECE);
    char *sum = (char *)r->sum->data + (size_t)i * size;
    const char *first = (const char *)r->members[0]->in->data + (size_t)i * size;
    if (sum != first) memcpy(sum, first, (size_t)n * size);
    for (int m = 1; m < r->n; m++) a->merge(a, sum, (const char *)r->members[m]->in->data + (size_t)i * size, n);
    if (a->final) a->final(a, sum, r->n, n);
  }
}

static shoal_status reduce(struct collective_member *const *members, int n, struct tensor *result) {
  TRY(members[0]->make(members[0], result));
  struct reduction r = {members, n, result};
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

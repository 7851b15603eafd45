/* Values of several soft devices, merged on the stream of one: by the CPU's loops, in the order of pairs.
 *
 * What it reads is held until it is done, since marks of reading are of one stream (soft_memory.c); what it writes has
 * the mark of all work that writes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "collective/pairs.h"
#include "device/soft/soft.h"
#include "ops/control/collective_loops.h"

enum { PIECE = 1 << 13 }; /* elements */

struct soft_merge {
  struct collective_loops loops;
  int n_in, n_out, mean_of;
  int64_t n;
  size_t element;
  struct tensor *in;       /* [n_in] references */
  const char **from;       /* [n_in] */
  char **to;               /* [n_out] */
  struct soft_turn *turns; /* [2 n_in + n_out] */
};

static struct soft_memory *memory_of(const struct tensor *t) {
  return ((struct soft_device *)t->buffer->device->impl)->memory;
}

/* Where a result takes the place of an input, that is read before it is written. */
static void merge(struct soft_merge *m) {
  size_t step = PIECE * m->element;
  char *sum = mem_alloc(step), *spare = mem_alloc((size_t)pairs_levels(m->n_in) * step);
  const char **sources = mem_zalloc((size_t)m->n_in, sizeof *sources);
  const struct collective_arithmetic *a = &m->loops.head;
  for (int64_t i = 0; i < m->n; i += PIECE) {
    int64_t n = MIN(m->n - i, PIECE);
    for (int k = 0; k < m->n_in; k++) sources[k] = m->from[k] + (size_t)i * m->element;
    pairs_sum(a, sources, m->n_in, m->element, n, sum, spare, step);
    if (a->final) a->final(a, sum, m->mean_of, n);
    for (int k = 0; k < m->n_out; k++) memcpy(m->to[k] + (size_t)i * m->element, sum, (size_t)n * m->element);
  }
  free(sources);
  free(spare);
  free(sum);
}

static void release(struct soft_merge *m) {
  for (int k = 0; k < m->n_in; k++) tensor_release(&m->in[k]);
  free(m->in);
  free(m->from);
  free(m->to);
  free(m->turns);
  free(m);
}

static void run(void *arg) {
  struct soft_merge *m = arg;
  int n_turns = 2 * m->n_in + m->n_out;
  for (int i = 0; i < n_turns; i++) soft_turn_begin(&m->turns[i]);
  merge(m);
  for (int i = 0; i < n_turns; i++) soft_turn_end(&m->turns[i]);
  release(m);
}

/* All that is read first: a mark of writing takes the place of the one before. */
static void take_turns(struct soft_merge *m, const struct device_merging *of) {
  struct soft_turn *turn = m->turns;
  for (int k = 0; k < m->n_in; k++) {
    *turn++ = soft_turn_after(of->in[k]);
    *turn++ = soft_turn_after_replays(memory_of(of->in[k]));
  }
  for (int k = 0; k < m->n_out; k++) *turn++ = soft_write(of->out[k]);
}

shoal_status soft_merge(struct device *d, const struct device_merging *of) {
  static const char *const names[] = {
      [DEVICE_ADD] = "Add", [DEVICE_MUL] = "Mul", [DEVICE_MAX] = "Max", [DEVICE_MIN] = "Min"};
  struct collective_loops loops = {0};
  shoal_dtype dtype = (shoal_dtype)of->in[0]->dtype;
  TRY(collective_loops_init(&loops, names[of->merge], of->mean_of ? "Div" : "Id", dtype));
  struct soft_merge *m = mem_zalloc(1, sizeof *m);
  *m = (struct soft_merge){.loops = loops,
                           .n_in = of->n_in,
                           .n_out = of->n_out,
                           .mean_of = of->mean_of,
                           .n = of->in[0]->n,
                           .element = dtype_size(dtype),
                           .in = mem_zalloc((size_t)of->n_in, sizeof *m->in),
                           .from = mem_zalloc((size_t)of->n_in, sizeof *m->from),
                           .to = mem_zalloc((size_t)of->n_out, sizeof *m->to),
                           .turns = mem_zalloc((size_t)(2 * of->n_in + of->n_out), sizeof *m->turns)};
  for (int k = 0; k < m->n_in; k++) {
    tensor_ref(&m->in[k], of->in[k]);
    m->from[k] = soft_data(of->in[k]);
  }
  for (int k = 0; k < m->n_out; k++) m->to[k] = soft_data(of->out[k]);
  take_turns(m, of);
  pool_submit(((struct soft_device *)d->impl)->compute, run, m);
  return NULL;
}

/* Its devices can read each other's memory; what stands for a library is the same sum. */
shoal_status soft_merge_across(struct device *const *d, const struct device_merging *m) { return soft_merge(d[0], m); }

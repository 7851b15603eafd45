/* The straight executor: nodes in a fixed order on the calling thread.
 *
 * The memory of a step (slots and the pointers of all inputs to them) is laid out once and kept for the next step of
 * the same plan. The inner loop costs a call, a few stores, and a release for each value that is used up. */
#include <stdlib.h>
#include <string.h>

#include "base/denormals.h"
#include "base/file_root.h"
#include "base/mem.h"
#include "runtime/outbox.h"
#include "runtime/plan_internal.h"
#include "runtime/step_stats.h"

struct exec {
  struct exec *next;
  struct tensor *slots;
  const struct tensor **in;    /* [total_in] where each input is */
  struct variable **slot_refs; /* [slots]; NULL unless the plan has references */
};

static struct exec *exec_take(struct plan *p) {
  pthread_mutex_lock(&p->lock);
  struct exec *e = p->execs;
  if (e) p->execs = e->next;
  pthread_mutex_unlock(&p->lock);
  if (e) return e;
  int n_slots = p->frames[0].n_slots;
  e = mem_zalloc(1, sizeof *e);
  e->slots = mem_zalloc((size_t)n_slots, sizeof *e->slots);
  e->in = mem_zalloc((size_t)p->total_in, sizeof *e->in);
  for (int i = 0; i < p->total_in; i++) e->in[i] = &e->slots[p->in_slots[i]];
  if (p->has_refs) e->slot_refs = mem_zalloc((size_t)n_slots, sizeof *e->slot_refs);
  for (int i = 0; i < p->n_once_slots; i++) tensor_ref(&e->slots[i], &p->once[i]);
  return e;
}

static void exec_give(struct plan *p, struct exec *e) {
  pthread_mutex_lock(&p->lock);
  e->next = p->execs;
  p->execs = e;
  pthread_mutex_unlock(&p->lock);
}

void straight_free(struct exec *e, const struct plan *p) {
  for (struct exec *next; e; e = next) {
    next = e->next;
    for (int i = 0; i < p->n_once_slots; i++) tensor_release(&e->slots[i]);
    free(e->slots);
    free(e->in);
    free(e->slot_refs);
    free(e);
  }
}

static void slot_clear(struct exec *e, int slot) {
  tensor_release(&e->slots[slot]);
  if (e->slot_refs && e->slot_refs[slot]) {
    variable_unref(e->slot_refs[slot]);
    e->slot_refs[slot] = NULL;
  }
}

/* A node with references: reads through them, and passes them on. */
static shoal_status run_with_refs(const struct plan *p, struct exec *e, const struct plan_node *n,
                                  struct kernel_ctx *ctx) {
  enum { INLINE = 16 };
  const struct tensor *in_space[INLINE];
  struct variable *refs_space[INLINE];
  struct tensor temp_space[INLINE];
  bool big = n->n_in > INLINE;
  const struct tensor **in = big ? mem_alloc((size_t)n->n_in * sizeof *in) : in_space;
  struct variable **refs = big ? mem_alloc((size_t)n->n_in * sizeof *refs) : refs_space;
  struct tensor *temps = big ? mem_zalloc((size_t)n->n_in, sizeof *temps) : temp_space;
  for (int i = 0; i < n->n_in; i++) {
    in[i] = e->in[n->first_in + i];
    temps[i].buffer = NULL;
  }
  shoal_status s = refs_prepare(n, e->slot_refs, p->in_slots + n->first_in, in, refs, temps);
  if (!s) {
    ctx->in = in;
    ctx->refs_in = refs;
    ctx->refs_out = e->slot_refs + n->out_slot;
    s = n->kernel->def->run(ctx);
    if (!s) s = ctx_check_types(ctx);
    ctx->refs_in = NULL;
    ctx->refs_out = NULL;
  }
  for (int i = 0; i < n->n_in; i++) buffer_unref(temps[i].buffer);
  if (big) {
    free(in);
    free(refs);
    free(temps);
  }
  return s;
}

/* Inputs that this node is the last to read: it may take their buffers. */
static uint64_t may_steal(const struct plan *p, const struct plan_node *n) {
  uint64_t bits = 0;
  const uint8_t *last = p->last_use + n->first_in;
  for (int i = 0; i < n->n_in && i < 64; i++) bits |= (uint64_t)(last[i] == USE_LAST) << i;
  return bits;
}

static shoal_status run_node(const struct plan *p, struct exec *e, const struct plan_node *n, struct kernel_ctx *ctx) {
  ctx->kernel = n->kernel;
  ctx->state = n->kernel->state;
  ctx->in = e->in + n->first_in;
  ctx->out = e->slots + n->out_slot;
  ctx->steal = may_steal(p, n);
  if (UNLIKELY(n->flags & NODE_REFS)) return run_with_refs(p, e, n, ctx);
  shoal_status s = n->kernel->def->run(ctx);
  return s ? s : ctx_check_types(ctx);
}

static shoal_status run_traced(const struct plan *p, struct exec *e, const struct plan_node *n,
                               struct kernel_ctx *ctx) {
  int64_t start = wall_nanos();
  shoal_status s = run_node(p, e, n, ctx);
  step_stats_node(ctx->step->stats, p->device->name, n->kernel, start, wall_nanos(), ctx->out);
  return s;
}

void straight_run(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg) {
  struct exec *e = exec_take(p);
  const struct file_roots *before = file_roots_use(p->device->files);
  uint64_t control = denormals_flush();
  struct kernel_ctx ctx = {.step = step};
  shoal_status s = NULL;
  bool meets = step->rendezvous != NULL;
  int i = p->n_once;
  for (int k = 0; UNLIKELY(step->stats != NULL) && k < p->n_once; k++) {
    int64_t now = wall_nanos();
    step_stats_node(step->stats, p->device->name, p->nodes[k].kernel, now, now, p->once + p->nodes[k].out_slot);
  }
  for (; i < p->n_nodes; i++) {
    struct plan_node *n = &p->nodes[i];
    int64_t began = meets ? outbox_before(&n->slow) : 0;
    s = UNLIKELY(step->stats != NULL) ? run_traced(p, e, n, &ctx) : run_node(p, e, n, &ctx);
    if (UNLIKELY(began)) outbox_after(began, &n->slow);
    if (UNLIKELY(s != NULL)) {
      s = ctx_error(&ctx, s);
      break;
    }
    for (int k = 0; k < n->n_in; k++)
      if (p->last_use[n->first_in + k]) slot_clear(e, p->in_slots[n->first_in + k]);
    for (int k = p->first_unused[i]; k < p->first_unused[i + 1]; k++) slot_clear(e, p->unused[k]);
    if (UNLIKELY(step->cancel && cancel_started(step->cancel))) {
      s = cancel_reason(step->cancel);
      break;
    }
  }
  if (s)
    for (int slot = p->n_once_slots; slot < p->frames[0].n_slots; slot++) slot_clear(e, slot);
  exec_give(p, e);
  file_roots_use(before);
  denormals_restore(control);
  done(arg, s);
}

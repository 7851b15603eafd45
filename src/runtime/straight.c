/* The straight executor: segments of nodes (segments.c) in a fixed order.
 *
 * A plan that waits for nothing is one segment: its nodes run one after the other on the calling thread. Otherwise a
 * segment runs on the thread that ended the last thing it waited for, without a lock or a counter for each node; nodes
 * that wait (receives, queues, calls of functions) are started as soon as they can be. When several segments are ready,
 * those with expensive nodes go to other threads.
 *
 * The memory of a step (slots, the pointers of all inputs to them, counters, contexts of asynchronous calls) is laid
 * out once and kept for the next step of the same plan. The inner loop costs a call, a few stores, and a release for
 * each value that is used up.
 *
 * A received value may be dead (a branch not taken on another device); so is then what follows from it. Which nodes are
 * is known when their segment begins, so that steps without dead values pay one look a segment. */
#include <stdlib.h>
#include <string.h>

#include "base/denormals.h"
#include "base/file_root.h"
#include "base/going_on.h"
#include "base/mem.h"
#include "base/outbox.h"
#include "base/together.h"
#include "runtime/plan_internal.h"
#include "runtime/step_stats.h"
#include "tensor/strings.h"

/* An asynchronous node under way. */
struct waiting_call {
  struct kernel_ctx ctx;
  struct exec *exec;
  int segment;
  atomic_int meet;          /* CALL_... */
  const struct tensor **in; /* with references: as refs_prepare() fills them; else NULL */
  struct variable **refs_in;
  struct tensor *temps;
  int64_t start_ns;
  uint64_t strings_lost; /* when it began */
};

/* A segment handed to another thread. */
struct segment_offload {
  struct exec *exec;
  int segment;
};

struct exec {
  struct exec *next;
  struct tensor *slots;
  const struct tensor **in;    /* [total_in] where each input is */
  struct variable **slot_refs; /* [slots]; NULL unless the plan has references */
  struct tensor *wholes;       /* [n_wholes] the memory of each, until its node has taken it: placed_outputs.c */
  /* More than one segment: */
  struct plan *plan;
  struct step *step;
  void (*done)(void *, shoal_status);
  void *arg;
  struct verdict verdict;
  atomic_int outstanding; /* segments that are ready or running */
  atomic_bool any_dead;
  atomic_bool *dead;                /* [nodes] */
  atomic_int *pending;              /* [segments] what each still waits for; as at the start when it is over */
  atomic_int *uses;                 /* [slots] segments that will still read it, where there are several; the same */
  int *after;                       /* [segments] the next in a list of ready ones */
  struct waiting_call *calls;       /* [n_calls] */
  struct segment_offload *offloads; /* [segments] */
};

/* ---- memory ---- */

static void calls_init(struct exec *e, const struct plan *p) {
  for (int s = 0; s < p->n_segments; s++) {
    const struct segment *seg = &p->segments[s];
    e->offloads[s] = (struct segment_offload){e, s};
    if (seg->call < 0) continue;
    const struct plan_node *n = &p->nodes[seg->first];
    struct waiting_call *c = &e->calls[seg->call];
    c->exec = e;
    c->segment = s;
    if (!(n->flags & NODE_REFS)) continue;
    c->in = mem_zalloc((size_t)n->n_in, sizeof *c->in);
    c->refs_in = mem_zalloc((size_t)n->n_in, sizeof *c->refs_in);
    c->temps = mem_zalloc((size_t)n->n_in, sizeof *c->temps);
  }
}

/* The counters as they are before a step. */
static void counters_reset(struct exec *e, const struct plan *p) {
  for (int s = 0; s < p->n_segments; s++)
    atomic_store_explicit(&e->pending[s], p->segments[s].pending, memory_order_relaxed);
  for (int i = 0; i < p->frames[0].n_slots; i++)
    atomic_store_explicit(&e->uses[i], p->readers[i], memory_order_relaxed);
}

static bool is_one_run(const struct plan *p) { return p->n_segments == 0 || (p->n_segments == 1 && p->n_calls == 0); }

static struct exec *exec_new(struct plan *p) {
  size_t n_slots = (size_t)p->frames[0].n_slots;
  struct exec *e = mem_zalloc(1, sizeof *e);
  e->slots = mem_zalloc(n_slots, sizeof *e->slots);
  e->in = mem_zalloc((size_t)p->total_in, sizeof *e->in);
  for (int i = 0; i < p->total_in; i++) e->in[i] = &e->slots[p->in_slots[i]];
  if (p->has_refs) e->slot_refs = mem_zalloc(n_slots, sizeof *e->slot_refs);
  for (int i = 0; i < p->n_once_slots; i++) tensor_ref(&e->slots[i], &p->once[i]);
  if (p->n_wholes) e->wholes = mem_zalloc((size_t)p->n_wholes, sizeof *e->wholes);
  if (is_one_run(p)) return e;
  size_t n_segments = (size_t)p->n_segments;
  pthread_mutex_init(&e->verdict.lock, NULL);
  e->dead = mem_zalloc((size_t)p->n_nodes, sizeof *e->dead);
  e->pending = mem_zalloc(n_segments, sizeof *e->pending);
  e->uses = mem_zalloc(n_slots, sizeof *e->uses);
  e->after = mem_zalloc(n_segments, sizeof *e->after);
  e->calls = mem_zalloc((size_t)p->n_calls, sizeof *e->calls);
  e->offloads = mem_zalloc(n_segments, sizeof *e->offloads);
  calls_init(e, p);
  counters_reset(e, p);
  return e;
}

static struct exec *exec_take(struct plan *p) {
  pthread_mutex_lock(&p->lock);
  struct exec *e = p->execs;
  if (e) p->execs = e->next;
  pthread_mutex_unlock(&p->lock);
  return e ? e : exec_new(p);
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
    for (int i = 0; e->calls && i < p->n_calls; i++) {
      free(e->calls[i].in);
      free(e->calls[i].refs_in);
      free(e->calls[i].temps);
    }
    if (e->pending) pthread_mutex_destroy(&e->verdict.lock);
    free(e->dead);
    free(e->pending);
    free(e->uses);
    free(e->after);
    free(e->calls);
    free(e->offloads);
    free(e->slots);
    free(e->wholes);
    free(e->in);
    free(e->slot_refs);
    free(e);
  }
}

/* For which there is no memory, parts and all are made as others are. */
static void wholes_make(struct exec *e, const struct plan *p) {
  for (int i = 0; i < p->n_wholes; i++) {
    struct shape list = shape_vector(p->wholes[i].n);
    shoal_status_free(tensor_new(&e->wholes[i], p->wholes[i].dtype, &list));
  }
}

/* After a step that did not come so far. */
static void wholes_drop(struct exec *e, const struct plan *p) {
  for (int i = 0; i < p->n_wholes; i++) tensor_release(&e->wholes[i]);
}

static inline void slot_clear(struct exec *e, int slot) {
  tensor_release(&e->slots[slot]);
  if (UNLIKELY(e->slot_refs != NULL) && e->slot_refs[slot]) {
    variable_unref(e->slot_refs[slot]);
    e->slot_refs[slot] = NULL;
  }
}

/* After an error: values that nobody came to read. */
static void slots_clear(struct exec *e, const struct plan *p) {
  for (int slot = p->n_once_slots; slot < p->frames[0].n_slots; slot++) slot_clear(e, slot);
}

/* This segment is through with a slot that others read too: was it the last? */
static bool last_of_all(const struct plan *p, struct exec *e, int slot) {
  int left = atomic_fetch_sub(&e->uses[slot], 1);
  INVARIANT(3, left > 0);
  if (left != 1) return false;
  atomic_store_explicit(&e->uses[slot], p->readers[slot], memory_order_relaxed);
  return true;
}

/* What a node read, and what it made that nobody reads. */
static inline void release_used(const struct plan *p, struct exec *e, int node) {
  const struct plan_node *n = &p->nodes[node];
  for (int k = 0; UNLIKELY(n->flags & NODE_COUNTED) && k < n->n_in; k++) {
    int slot = p->in_slots[n->first_in + k];
    if ((p->last_use[n->first_in + k] & USE_COUNTED) && last_of_all(p, e, slot)) slot_clear(e, slot);
  }
  for (int k = p->first_drop[node]; k < p->first_drop[node + 1]; k++) slot_clear(e, p->drops[k]);
}

/* ---- nodes ---- */

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
    uint64_t lost = strings_lost();
    s = n->kernel->def->run(ctx);
    if (!s) s = strings_kept(lost);
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
static inline uint64_t may_steal(const struct plan *p, const struct exec *e, const struct plan_node *n) {
  uint64_t bits = p->steals[n - p->nodes];
  const uint8_t *use = p->last_use + n->first_in;
  for (int i = 0; UNLIKELY(n->flags & NODE_COUNTED) && i < n->n_in && i < 64; i++)
    if (use[i] == (USE_LAST | USE_COUNTED) && atomic_load(&e->uses[p->in_slots[n->first_in + i]]) == 1)
      bits |= 1ull << i;
  return bits;
}

/* A node whose output has its place. */
static shoal_status run_placed(const struct plan *p, struct exec *e, const struct plan_node *n,
                               struct kernel_ctx *ctx) {
  const struct plan_place *at = place_of(p, (int)(n - p->nodes));
  struct tensor *whole = &e->wholes[at->whole], here = tensor_none();
  if (at->is_whole) {
    tensor_move(&here, whole);
    *whole = tensor_none();
  } else if (tensor_valid(whole)) {
    tensor_ref(&here, whole);
    here.data = (char *)here.data + (size_t)at->first * dtype_size((shoal_dtype)here.dtype);
    here.n = at->n;
  }
  ctx->place = tensor_valid(&here) ? &here : NULL;
  shoal_status s = n->kernel->def->run(ctx);
  if (ctx->place) tensor_release(&here);
  ctx->place = NULL;
  return s;
}

static shoal_status run_node(const struct plan *p, struct exec *e, const struct plan_node *n, struct kernel_ctx *ctx) {
  ctx->kernel = n->kernel;
  ctx->state = n->kernel->state;
  ctx->in = e->in + n->first_in;
  ctx->out = e->slots + n->out_slot;
  ctx->steal = may_steal(p, e, n);
  if (UNLIKELY(n->flags & NODE_REFS)) return run_with_refs(p, e, n, ctx);
  uint64_t lost = strings_lost();
  shoal_status s = UNLIKELY(n->flags & NODE_PLACED) ? run_placed(p, e, n, ctx) : n->kernel->def->run(ctx);
  if (!s) s = strings_kept(lost);
  return s ? s : ctx_check_types(ctx);
}

static shoal_status run_traced(const struct plan *p, struct exec *e, const struct plan_node *n,
                               struct kernel_ctx *ctx) {
  int64_t start = wall_nanos();
  shoal_status s = run_node(p, e, n, ctx);
  step_stats_node(ctx->step->stats, p->device->name, n->kernel, start, wall_nanos(), ctx->out);
  return s;
}

/* A node has no value: neither has what reads it. A node that was passed over takes those along that wait for its end.
 */
static void spread_death(const struct plan *p, struct exec *e, int node, bool passed_over) {
  const struct plan_node *n = &p->nodes[node];
  for (int k = 0; k < n->n_edges; k++) {
    const struct plan_edge *edge = &p->edges[n->first_edge + k];
    if ((edge->out >= 0 || passed_over) && !(p->nodes[edge->dst].flags & NODE_TRIGGER))
      atomic_store_explicit(&e->dead[edge->dst], true, memory_order_relaxed);
  }
  atomic_store(&e->any_dead, true);
}

/* Is the node dead? Then, unless it wants to know of it, it is passed over. */
static bool pass_over(const struct plan *p, struct exec *e, int node, bool *is_dead) {
  *is_dead = atomic_load_explicit(&e->dead[node], memory_order_relaxed);
  if (!*is_dead || (p->nodes[node].flags & NODE_DEAD_OK)) return false;
  spread_death(p, e, node, true);
  release_used(p, e, node);
  return true;
}

/* Kernels lie where they were made, and what a step computes drives them out of the nearest cache. */
static inline void ask_for_next(const struct plan_node *n, int left) {
  if (left < 2) return;
  __builtin_prefetch(n[1].kernel->state);
  if (left < 3) return;
  const char *after = (const char *)n[2].kernel;
  __builtin_prefetch(after);
  __builtin_prefetch(after + sizeof(struct kernel));
}

/* Runs the nodes of a segment. */
static shoal_status run_nodes(struct plan *p, struct exec *e, struct step *step, int first, int n_nodes) {
  struct kernel_ctx ctx = {.step = step};
  struct outbox *const *held = step->rendezvous ? &outbox : NULL;
  bool some_dead = e->dead && atomic_load(&e->any_dead);
  for (int i = first; i < first + n_nodes; i++) {
    struct plan_node *n = &p->nodes[i];
    if (UNLIKELY(some_dead) && pass_over(p, e, i, &ctx.is_dead)) continue;
    if (n->flags & NODE_LONG) ask_for_next(n, first + n_nodes - i);
    int64_t began = held && UNLIKELY(*held != NULL) ? outbox_before(&n->slow) : 0;
    shoal_status s = UNLIKELY(step->stats != NULL) ? run_traced(p, e, n, &ctx) : run_node(p, e, n, &ctx);
    if (UNLIKELY(began)) outbox_after(began, &n->slow);
    if (UNLIKELY(s != NULL)) return ctx_error(&ctx, s);
    release_used(p, e, i);
    step_check_deadline(step);
    if (UNLIKELY(step->cancel && cancel_started(step->cancel))) return cancel_reason(step->cancel);
  }
  return NULL;
}

/* ---- segments ---- */

/* Ready segments that this thread will see to, linked by exec->after: first those to be started, then those to be run.
 */
struct todo {
  int n;
  int first[2], last[2]; /* [1]: asynchronous */
};

static void todo_add(struct exec *e, struct todo *t, int segment) {
  int kind = e->plan->segments[segment].call >= 0;
  e->after[segment] = -1;
  if (t->n && t->first[kind] >= 0) e->after[t->last[kind]] = segment;
  else t->first[kind] = segment;
  if (!t->n) t->first[!kind] = -1;
  t->last[kind] = segment;
  t->n++;
}

static int todo_take(struct exec *e, struct todo *t) {
  int kind = t->first[1] >= 0, segment = t->first[kind];
  t->first[kind] = e->after[segment];
  t->n--;
  return segment;
}

static void finish(struct exec *e) {
  struct plan *p = e->plan;
  void (*done)(void *, shoal_status) = e->done;
  void *arg = e->arg;
  shoal_status s = e->verdict.status;
  if (s) {
    slots_clear(e, p);
    counters_reset(e, p);
  }
  if (atomic_load(&e->any_dead))
    for (int i = 0; i < p->n_nodes; i++) atomic_store_explicit(&e->dead[i], false, memory_order_relaxed);
  wholes_drop(e, p);
  exec_give(p, e);
  done(arg, s);
}

/* A segment is over: adds those that waited for it alone. The exec may be gone afterwards, if nothing was added. */
static void segment_end(struct exec *e, int segment, struct todo *t) {
  const struct plan *p = e->plan;
  const struct segment *seg = &p->segments[segment];
  int more = 0;
  for (int i = 0; i < seg->n_next && !atomic_load(&e->verdict.failed); i++) {
    int next = p->nexts[seg->first_next + i];
    int left = atomic_fetch_sub(&e->pending[next], 1);
    INVARIANT(3, left > 0);
    if (left != 1) continue;
    atomic_store_explicit(&e->pending[next], p->segments[next].pending, memory_order_relaxed);
    todo_add(e, t, next);
    more++;
  }
  int before = atomic_fetch_add(&e->outstanding, more - 1);
  INVARIANT(4, before > 0);
  if (before + more == 1) finish(e);
}

static void run_todo(struct exec *e, struct todo *t);

/* After an asynchronous kernel: errors, and what reference inputs left behind. */
static void call_wrap_up(struct waiting_call *c, shoal_status s) {
  struct exec *e = c->exec;
  const struct plan_node *n = &e->plan->nodes[e->plan->segments[c->segment].first];
  for (int i = 0; c->temps && i < n->n_in; i++) tensor_release(&c->temps[i]);
  if (UNLIKELY(e->step->stats != NULL))
    step_stats_node(e->step->stats, e->plan->device->name, n->kernel, c->start_ns, wall_nanos(), c->ctx.out);
  if (!s) s = ctx_check_types(&c->ctx);
  if (!s) s = missing_output(n, &c->ctx);
  if (!s) s = missing_strings(n, &c->ctx, c->strings_lost);
  if (s) verdict_fail(&e->verdict, e->step, ctx_error(&c->ctx, s));
}

/* It has ended, and whoever started it has left. */
static void call_over(struct waiting_call *c, struct todo *t) {
  struct exec *e = c->exec;
  int node = e->plan->segments[c->segment].first;
  bool skipped = (e->plan->nodes[node].flags & NODE_MAY_SKIP) && !c->ctx.out[0].buffer;
  if (skipped && !(c->ctx.refs_out && c->ctx.refs_out[0])) spread_death(e->plan, e, node, false);
  release_used(e->plan, e, node);
  segment_end(e, c->segment, t);
}

static void call_goes_on(void *arg) {
  struct waiting_call *c = arg;
  struct exec *e = c->exec;
  struct todo t = {0};
  going_on.depth++;
  call_over(c, &t);
  if (t.n) run_todo(e, &t);
  going_on.depth--;
}

/* Does something begin when it goes on that others would wait for? */
static bool leads_to_work(const struct waiting_call *c) {
  enum { MUCH = 1 << 15 };
  const struct exec *e = c->exec;
  const struct plan *p = e->plan;
  const struct segment *seg = &p->segments[c->segment];
  for (int i = 0; i < seg->n_next; i++) {
    const struct segment *next = &p->segments[p->nexts[seg->first_next + i]];
    if (atomic_load_explicit(&e->pending[next - p->segments], memory_order_relaxed) > 1) continue;
    if (next->expensive || next->elements >= MUCH) return true;
  }
  return false;
}

static void call_done(struct kernel_ctx *ctx, shoal_status s) {
  struct waiting_call *c = (struct waiting_call *)ctx;
  INVARIANT(5, atomic_load_explicit(&c->meet, memory_order_relaxed) != CALL_ENDED);
  call_wrap_up(c, s);
  if (atomic_exchange(&c->meet, CALL_ENDED) == CALL_OPEN) return; /* the starter goes on */
  struct step *step = c->exec->step;
  bool crowds = going_on.among_others && step->inter && pool_threads(step->inter) > 1 && leads_to_work(c);
  if (!step->inter || (may_go_on(step->cancel) && !crowds)) call_goes_on(c);
  else pool_submit(step->inter, call_goes_on, c);
}

static void call_start(struct exec *e, int segment, struct todo *t) {
  struct plan *p = e->plan;
  int node = p->segments[segment].first;
  struct plan_node *n = &p->nodes[node];
  struct waiting_call *c = &e->calls[p->segments[segment].call];
  bool is_dead = false;
  if (atomic_load(&e->any_dead) && pass_over(p, e, node, &is_dead)) {
    segment_end(e, segment, t);
    return;
  }
  c->ctx = (struct kernel_ctx){.kernel = n->kernel,
                               .state = n->kernel->state,
                               .step = e->step,
                               .in = e->in + n->first_in,
                               .out = e->slots + n->out_slot,
                               .is_dead = is_dead,
                               .steal = may_steal(p, e, n),
                               .done = call_done};
  c->strings_lost = strings_lost();
  if (UNLIKELY(e->step->stats != NULL)) c->start_ns = wall_nanos();
  atomic_store(&c->meet, CALL_OPEN);
  shoal_status s = NULL;
  if (UNLIKELY(n->flags & NODE_REFS)) {
    c->ctx.in = c->in;
    c->ctx.refs_in = c->refs_in;
    c->ctx.refs_out = e->slot_refs + n->out_slot;
    for (int i = 0; i < n->n_in; i++) {
      c->in[i] = e->in[n->first_in + i];
      c->temps[i] = tensor_none();
    }
    if (!is_dead) s = refs_prepare(n, e->slot_refs, p->in_slots + n->first_in, c->in, c->refs_in, c->temps);
  }
  int64_t began = e->step->rendezvous ? outbox_before(&n->slow) : 0;
  if (s) call_done(&c->ctx, s);
  else n->kernel->def->start(&c->ctx);
  if (UNLIKELY(began)) outbox_after(began, &n->slow);
  int open = CALL_OPEN;
  if (!atomic_compare_exchange_strong(&c->meet, &open, CALL_LEFT)) call_over(c, t);
}

static void run_offloaded(void *arg) {
  struct segment_offload *o = arg;
  struct todo t = {0};
  struct exec *e = o->exec;
  todo_add(e, &t, o->segment);
  run_todo(e, &t);
}

/* Sees to all that is on the list, and to what follows from it. The exec may be gone when it is empty. */
static void run_todo(struct exec *e, struct todo *t) {
  struct plan *p = e->plan;
  struct pool *inter = e->step->inter;
  const struct file_roots *before = file_roots_use(p->device->files);
  uint64_t control = denormals_flush();
  pool_compute(p->device->intra);
  together_open();
  while (t->n) {
    if (t->first[1] < 0) together_begin();
    int segment = todo_take(e, t);
    const struct segment *seg = &p->segments[segment];
    if (atomic_load(&e->verdict.failed)) {
      segment_end(e, segment, t);
    } else if (seg->call >= 0) {
      call_start(e, segment, t);
    } else if (seg->expensive && t->n && inter && pool_threads(inter) > 1) {
      pool_submit(inter, run_offloaded, &e->offloads[segment]);
    } else {
      shoal_status s = run_nodes(p, e, e->step, seg->first, seg->n);
      if (s) verdict_fail(&e->verdict, e->step, s);
      segment_end(e, segment, t);
    }
  }
  together_close();
  pool_rest();
  file_roots_use(before);
  denormals_restore(control);
}

/* ---- steps ---- */

static void trace_once(const struct plan *p, struct step *step) {
  for (int k = 0; k < p->n_once; k++) {
    int64_t now = wall_nanos();
    step_stats_node(step->stats, p->device->name, p->nodes[k].kernel, now, now, p->once + p->nodes[k].out_slot);
  }
}

static void run_one_segment(struct plan *p, struct exec *e, struct step *step, void (*done)(void *, shoal_status),
                            void *arg) {
  const struct file_roots *before = file_roots_use(p->device->files);
  uint64_t control = denormals_flush();
  shoal_status s = run_nodes(p, e, step, p->n_once, p->n_nodes - p->n_once);
  if (s) slots_clear(e, p);
  wholes_drop(e, p);
  exec_give(p, e);
  file_roots_use(before);
  denormals_restore(control);
  done(arg, s);
}

void straight_run(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg) {
  struct exec *e = exec_take(p);
  wholes_make(e, p);
  if (UNLIKELY(step->stats != NULL)) trace_once(p, step);
  if (is_one_run(p)) {
    run_one_segment(p, e, step, done, arg);
    return;
  }
  e->plan = p;
  e->step = step;
  e->done = done;
  e->arg = arg;
  e->verdict.status = NULL;
  atomic_store(&e->verdict.failed, false);
  atomic_store(&e->any_dead, false);
  struct todo t = {0};
  for (int s = 0; s < p->n_segments; s++)
    if (!p->segments[s].pending) todo_add(e, &t, s);
  atomic_store(&e->outstanding, t.n);
  run_todo(e, &t);
}

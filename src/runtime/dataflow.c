/* The dataflow executor: nodes run when their inputs are there.
 *
 * It runs what the straight executor cannot: TensorFlow's v1 control flow. Its rules:
 *
 *   frames      a loop's nodes run in a frame, once for each iteration; frame 0, iteration 0 is the graph itself.
 *               Enter leads into iteration 0 of a child frame (a constant Enter: into all of its iterations),
 *               NextIteration into the next iteration, Exit back to the parent.
 *   deadness    Switch leaves one output without a value; a node with a dead input (or dead control input) does
 *               not run and its outputs are dead. Merge runs as soon as one input is live, and is dead only when
 *               all are. A dead NextIteration goes nowhere; dead Exits are told to the parent when the frame ends.
 *   order       iterations end in order; at most `parallel` are in flight, later ones are held back.
 *
 * One lock a step guards all of this; kernels run outside it. Values live in the slots of an iteration; a slot is
 * released when its last reader is done.
 *
 * Pending counts: an ordinary node waits for all its inputs and control inputs. A Merge starts at
 * 1 + 2 * controls: bit 0 falls with the first live input, each control input takes 2. */
#include <stdlib.h>
#include <string.h>

#include "base/denormals.h"
#include "base/file_root.h"
#include "base/going_on.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"
#include "base/outbox.h"
#include "runtime/plan_internal.h"
#include "runtime/step_stats.h"
#include "tensor/strings.h"

enum slot_state { SLOT_EMPTY, SLOT_LIVE, SLOT_DEAD };

struct running_frame;

struct iter {
  struct running_frame *frame;
  uint64_t n;
  int outstanding; /* lock: nodes ready or running */
  int children;    /* lock: child frames not ended */
  struct running_frame *first_child;
  struct iter *next_free;
  struct tensor *slots;
  uint8_t *state;         /* lock: enum slot_state */
  struct variable **refs; /* NULL unless the plan has references */
  int *uses;              /* lock: readers of each slot still to come */
  int *pending;           /* lock: [nodes] */
  int *dead;              /* lock: [nodes] dead inputs so far */
};

/* A value on its way into iterations: a constant Enter's, or one held back by the bound on iterations. */
struct entering {
  int node; /* the Enter or NextIteration it came through */
  struct tensor value;
  struct variable *ref;
  bool dead;
};

struct running_frame {
  const struct frame_info *info;
  int info_index;
  struct iter *parent; /* NULL: the root */
  struct running_frame *sibling;
  uint64_t id;
  VEC(struct iter *) iters;       /* lock: by number minus first; */
  uint64_t first;                 /* lock: the oldest iteration alive */
  int pending_enters;             /* lock */
  VEC(struct entering) constants; /* lock */
  VEC(struct entering) held;      /* lock: for the next iteration */
  VEC(int) dead_exits;            /* lock: in the newest iteration */
};

struct ready {
  int node;
  struct iter *iter;
};
typedef VEC(struct ready) ready_list;

struct node_call { /* one run of one node */
  struct kernel_ctx ctx;
  struct flow *flow;
  struct ready at;
  uint64_t steal; /* inputs that only this node still reads */
  bool dead;
  atomic_int meet;          /* asynchronous: CALL_... */
  bool ok;                  /* how it ended */
  struct tensor through[1]; /* output of Enter, Exit, NextIteration */
  struct variable *through_ref[1];
  const struct tensor **in;
  struct variable **refs_in;
  struct tensor *temps;
  int cap;
  int64_t start_ns;
  uint64_t strings_lost; /* when it began */
  struct node_call *next;
};

struct flow {
  struct flow *next;
  struct plan *plan;
  struct step *step;
  void (*done)(void *, shoal_status);
  void *arg;
  struct verdict verdict; /* its lock is the one that all that follows is under */
  int outstanding;        /* lock: nodes ready or running in all frames */
  bool over;              /* lock: there were none left */
  struct running_frame *root;
  struct iter **free_iters;     /* lock: by frame_info */
  struct node_call *free_calls; /* lock */
};

/* ---- memory ---- */

static struct iter *iter_new(struct flow *f, struct running_frame *frame, uint64_t n) {
  const struct frame_info *info = frame->info;
  struct iter *it = f->free_iters[frame->info_index];
  if (it) {
    f->free_iters[frame->info_index] = it->next_free;
  } else {
    it = mem_zalloc(1, sizeof *it);
    it->slots = mem_zalloc((size_t)info->n_slots, sizeof *it->slots);
    it->state = mem_zalloc((size_t)info->n_slots, 1);
    it->uses = mem_zalloc((size_t)info->n_slots, sizeof *it->uses);
    it->pending = mem_zalloc((size_t)info->n_nodes, sizeof *it->pending);
    it->dead = mem_zalloc((size_t)info->n_nodes, sizeof *it->dead);
    if (f->plan->has_refs) it->refs = mem_zalloc((size_t)info->n_slots, sizeof *it->refs);
  }
  it->frame = frame;
  it->n = n;
  it->outstanding = it->children = 0;
  it->first_child = NULL;
  memset(it->state, SLOT_EMPTY, (size_t)info->n_slots);
  memset(it->dead, 0, (size_t)info->n_nodes * sizeof *it->dead);
  memcpy(it->uses, info->slot_uses, (size_t)info->n_slots * sizeof *it->uses);
  for (int i = 0; i < info->n_nodes; i++) {
    const struct plan_node *pn = &f->plan->nodes[info->nodes[i]];
    it->pending[i] = pn->flags & NODE_MERGE ? 1 + 2 * pn->n_control : pn->pending;
  }
  return it;
}

static void slot_clear(struct iter *it, int slot) {
  tensor_release(&it->slots[slot]);
  if (it->refs && it->refs[slot]) {
    variable_unref(it->refs[slot]);
    it->refs[slot] = NULL;
  }
}

static void iter_end(struct flow *f, struct iter *it) {
  for (int s = 0; s < it->frame->info->n_slots; s++)
    if (it->slots[s].buffer || (it->refs && it->refs[s])) slot_clear(it, s);
  it->next_free = f->free_iters[it->frame->info_index];
  f->free_iters[it->frame->info_index] = it;
}

static struct running_frame *frame_new(struct flow *f, int info_index, struct iter *parent) {
  struct running_frame *fr = mem_zalloc(1, sizeof *fr);
  fr->info_index = info_index;
  fr->info = &f->plan->frames[info_index];
  fr->parent = parent;
  fr->pending_enters = fr->info->n_enters;
  if (parent) {
    /* TensorFlow's frame id: both ends of a transfer inside a loop compute it. */
    uint64_t name = hash64_stable(fr->info->name, strlen(fr->info->name));
    fr->id = hash64_combine(parent->frame->id, hash64_combine(parent->n, name));
    fr->sibling = parent->first_child;
    parent->first_child = fr;
    parent->children++;
  }
  vec_push(&fr->iters, iter_new(f, fr, 0));
  return fr;
}

static void entering_release(struct entering *e) {
  tensor_release(&e->value);
  if (e->ref) variable_unref(e->ref);
}

static void frame_free(struct flow *f, struct running_frame *fr) {
  for (size_t i = 0; i < fr->iters.n; i++) {
    for (struct running_frame *c = fr->iters.at[i]->first_child, *next; c; c = next) {
      next = c->sibling;
      frame_free(f, c);
    }
    iter_end(f, fr->iters.at[i]);
  }
  for (size_t i = 0; i < fr->constants.n; i++) entering_release(&fr->constants.at[i]);
  for (size_t i = 0; i < fr->held.n; i++) entering_release(&fr->held.at[i]);
  vec_release(&fr->iters);
  vec_release(&fr->constants);
  vec_release(&fr->held);
  vec_release(&fr->dead_exits);
  free(fr);
}

/* ---- propagation: all under the lock ---- */

static void make_ready(struct flow *f, struct iter *it, int node, ready_list *out) {
  INVARIANT(4, !f->over);
  it->outstanding++;
  f->outstanding++;
  vec_push(out, (struct ready){node, it});
}

/* One edge into node `dst` of iteration `it` has been served. */
static void arrive(struct flow *f, struct iter *it, int dst, bool control, bool live, bool from_enter,
                   ready_list *out) {
  const struct plan_node *n = &f->plan->nodes[dst];
  int *pending = &it->pending[n->local], *dead = &it->dead[n->local];
  if (!(n->flags & NODE_MERGE)) {
    if (!live && !(n->flags & NODE_TRIGGER)) ++*dead;
    if (--*pending == 0) make_ready(f, it, dst, out);
    return;
  }
  bool is_dead;
  if (control) {
    *pending -= 2;
    is_dead = *dead == n->n_data;
    if (*pending == 0 || (*pending == 1 && is_dead)) make_ready(f, it, dst, out);
  } else if (live) {
    bool first = *pending & 1, now = *pending == 1;
    *pending &= ~1;
    if (first && now) make_ready(f, it, dst, out);
  } else {
    ++*dead;
    is_dead = *dead == n->n_data || from_enter; /* a loop on the branch not taken */
    if (is_dead) *dead = n->n_data;
    if (*pending == 1 && is_dead) make_ready(f, it, dst, out);
  }
}

/* Tells node's consumers in `it` of its outputs, whose slots are filled; dead: there are none. */
static void tell(struct flow *f, struct iter *it, int node, bool dead, ready_list *out) {
  const struct plan_node *n = &f->plan->nodes[node];
  for (int i = 0; i < n->n_edges; i++) {
    const struct plan_edge *e = &f->plan->edges[n->first_edge + i];
    bool live = !dead && (e->out < 0 || it->state[n->out_slot + e->out] == SLOT_LIVE);
    arrive(f, it, e->dst, e->out < 0, live, n->flags & NODE_ENTER, out);
  }
}

/* Puts a value into an iteration through Enter or NextIteration. */
static void enter_iter(struct flow *f, struct iter *it, const struct entering *e, ready_list *out) {
  const struct plan_node *n = &f->plan->nodes[e->node];
  int slot = n->out_slot;
  if (!e->dead) {
    if (it->uses[slot] > 0) {
      tensor_ref(&it->slots[slot], &e->value);
      if (e->ref) {
        resource_ref(&e->ref->head);
        it->refs[slot] = e->ref;
      }
    }
    it->state[slot] = SLOT_LIVE;
  }
  tell(f, it, e->node, e->dead, out);
}

static struct iter *iter_at(struct running_frame *fr, uint64_t n) {
  return n >= fr->first && n - fr->first < fr->iters.n ? fr->iters.at[n - fr->first] : NULL;
}

static void next_iteration(struct flow *f, struct running_frame *fr, ready_list *out) {
  struct iter *it = iter_new(f, fr, fr->first + fr->iters.n);
  vec_push(&fr->iters, it);
  vec_clear(&fr->dead_exits);
  for (size_t i = 0; i < fr->constants.n; i++) enter_iter(f, it, &fr->constants.at[i], out);
  for (size_t i = 0; i < fr->held.n; i++) {
    enter_iter(f, it, &fr->held.at[i], out);
    entering_release(&fr->held.at[i]);
  }
  vec_clear(&fr->held);
}

static struct running_frame *child_frame(struct flow *f, struct iter *it, int info_index) {
  for (struct running_frame *c = it->first_child; c; c = c->sibling)
    if (c->info_index == info_index) return c;
  return frame_new(f, info_index, it);
}

static void settle(struct flow *f, struct running_frame *fr, ready_list *out);

/* The frame has ended: its dead exits are dead in the parent. */
static void frame_end(struct flow *f, struct running_frame *fr, ready_list *out) {
  struct iter *parent = fr->parent;
  for (size_t i = 0; i < fr->dead_exits.n; i++) tell(f, parent, fr->dead_exits.at[i], true, out);
  struct running_frame **at = &parent->first_child;
  while (*at != fr) at = &(*at)->sibling;
  *at = fr->sibling;
  parent->children--;
  struct running_frame *above = parent->frame;
  frame_free(f, fr);
  settle(f, above, out);
}

/* Ends iterations that are over, oldest first, and the frame with its last one. */
static void settle(struct flow *f, struct running_frame *fr, ready_list *out) {
  if (!fr->parent) return;
  while (fr->iters.n) {
    struct iter *it = fr->iters.at[0];
    if (it->outstanding || it->children) return;
    if (it->n == 0 && fr->pending_enters) return;
    iter_end(f, it);
    memmove(fr->iters.at, fr->iters.at + 1, (fr->iters.n - 1) * sizeof *fr->iters.at);
    fr->iters.n--;
    fr->first++;
    if (fr->held.n) next_iteration(f, fr, out);
  }
  if (!fr->pending_enters) frame_end(f, fr, out);
}

static void leave_enter(struct flow *f, struct iter *it, int node, struct entering *e, ready_list *out) {
  const struct plan_node *n = &f->plan->nodes[node];
  struct running_frame *child = child_frame(f, it, n->out_frame);
  if (n->flags & NODE_ENTER_CONST) {
    for (size_t i = 0; i < child->iters.n; i++) enter_iter(f, child->iters.at[i], e, out);
    vec_push(&child->constants, *e);
  } else {
    struct iter *first = iter_at(child, 0);
    if (first) enter_iter(f, first, e, out);
    entering_release(e);
  }
  child->pending_enters--;
  settle(f, child, out);
}

static void leave_next(struct flow *f, struct iter *it, struct entering *e, ready_list *out) {
  struct running_frame *fr = it->frame;
  struct iter *next = iter_at(fr, it->n + 1);
  if (!e->dead && !next && (int)fr->iters.n >= fr->info->parallel) {
    vec_push(&fr->held, *e);
    return;
  }
  if (!e->dead) {
    if (!next) {
      next_iteration(f, fr, out);
      next = vec_last(&fr->iters);
    }
    enter_iter(f, next, e, out);
  }
  entering_release(e);
}

static void leave_exit(struct flow *f, struct iter *it, int node, struct entering *e, ready_list *out) {
  struct running_frame *fr = it->frame;
  if (!e->dead) enter_iter(f, fr->parent, e, out);
  else if (it->n == fr->first + fr->iters.n - 1) vec_push(&fr->dead_exits, node);
  entering_release(e);
}

/* ---- running nodes ---- */

static void run_all(struct flow *f, ready_list *list);

static struct node_call *call_take(struct flow *f, struct ready r) {
  const struct plan_node *n = &f->plan->nodes[r.node];
  uint64_t steal = 0;
  pthread_mutex_lock(&f->verdict.lock);
  struct node_call *c = f->free_calls;
  if (c) f->free_calls = c->next;
  for (int i = 0; i < n->n_in && i < 64; i++)
    if (r.iter->uses[f->plan->in_slots[n->first_in + i]] == 1) steal |= 1ull << i;
  int dead_inputs = r.iter->dead[n->local];
  pthread_mutex_unlock(&f->verdict.lock);
  if (!c) c = mem_zalloc(1, sizeof *c);
  c->flow = f;
  c->at = r;
  c->steal = steal;
  c->dead = n->flags & NODE_MERGE ? dead_inputs == n->n_data && n->n_data > 0 : dead_inputs > 0;
  if (c->cap < n->n_in || !c->in) {
    c->cap = MAX(n->n_in, 4);
    c->in = mem_realloc(c->in, (size_t)c->cap, sizeof *c->in);
    c->refs_in = mem_realloc(c->refs_in, (size_t)c->cap, sizeof *c->refs_in);
    c->temps = mem_realloc(c->temps, (size_t)c->cap, sizeof *c->temps);
  }
  return c;
}

static void finish_flow(struct flow *f) {
  void (*done)(void *, shoal_status) = f->done;
  void *arg = f->arg;
  struct plan *p = f->plan;
  shoal_status s = f->verdict.status;
  frame_free(f, f->root);
  f->root = NULL;
  pthread_mutex_lock(&p->lock);
  f->next = p->flows;
  p->flows = f;
  pthread_mutex_unlock(&p->lock);
  done(arg, s);
  plan_unref(p);
}

/* Inputs of a node that is through are used up. A Merge is through before all of them are there: the slot of one that
 * still runs is its kernel's, and is looked at when that ends. */
static void release_inputs(struct flow *f, const struct plan_node *n, struct iter *it) {
  for (int i = 0; i < n->n_in; i++) {
    int slot = f->plan->in_slots[n->first_in + i];
    if (--it->uses[slot] == 0 && it->state[slot] == SLOT_LIVE) slot_clear(it, slot);
  }
}

/* The node has run (or was dead): passes on what it made. The call is done with. */
static void complete(struct node_call *c, bool dead, ready_list *out) {
  struct flow *f = c->flow;
  int node = c->at.node;
  struct iter *it = c->at.iter;
  const struct plan_node *n = &f->plan->nodes[node];
  pthread_mutex_lock(&f->verdict.lock);
  c->next = f->free_calls;
  f->free_calls = c;
  release_inputs(f, n, it);
  if (!atomic_load(&f->verdict.failed)) {
    if (n->flags & (NODE_ENTER | NODE_EXIT | NODE_NEXT)) {
      struct entering e = {.node = node, .dead = dead, .ref = c->through_ref[0]};
      if (!dead) tensor_move(&e.value, &c->through[0]);
      if (n->flags & NODE_ENTER) leave_enter(f, it, node, &e, out);
      else if (n->flags & NODE_NEXT) leave_next(f, it, &e, out);
      else leave_exit(f, it, node, &e, out);
    } else {
      for (int i = 0; i < n->n_out; i++) {
        int slot = n->out_slot + i;
        bool live = !dead && (it->slots[slot].buffer || (it->refs && it->refs[slot]));
        it->state[slot] = live ? SLOT_LIVE : SLOT_DEAD;
        if (live && it->uses[slot] == 0) slot_clear(it, slot);
      }
      tell(f, it, node, dead, out);
    }
  } else if (!dead && n->flags & (NODE_ENTER | NODE_EXIT | NODE_NEXT)) {
    tensor_release(&c->through[0]);
    if (c->through_ref[0]) variable_unref(c->through_ref[0]);
  }
  INVARIANT(4, it->outstanding > 0 && f->outstanding > 0);
  it->outstanding--;
  if (!atomic_load(&f->verdict.failed)) settle(f, it->frame, out);
  bool last = f->over = --f->outstanding == 0;
  pthread_mutex_unlock(&f->verdict.lock);
  if (last) finish_flow(f);
}

/* After the kernel: sorts out errors and what reference inputs left behind. */
static bool wrap_up(struct node_call *c, shoal_status s) {
  struct flow *f = c->flow;
  const struct plan_node *n = &f->plan->nodes[c->at.node];
  for (int i = 0; (n->flags & NODE_REFS) && i < n->n_in; i++) tensor_release(&c->temps[i]);
  if (UNLIKELY(f->step->stats != NULL))
    step_stats_node(f->step->stats, f->plan->device->name, n->kernel, c->start_ns, wall_nanos(), c->ctx.out);
  if (!s) s = missing_output(n, &c->ctx);
  if (!s) s = missing_strings(n, &c->ctx, c->strings_lost);
  if (!s) return true;
  for (int i = 0; i < n->n_out; i++) {
    tensor_release(&c->ctx.out[i]);
    if (c->ctx.refs_out && c->ctx.refs_out[i]) {
      variable_unref(c->ctx.refs_out[i]);
      c->ctx.refs_out[i] = NULL;
    }
  }
  verdict_fail(&f->verdict, f->step, ctx_error(&c->ctx, s));
  return false;
}

static void call_goes_on(void *arg) {
  struct node_call *c = arg;
  struct flow *f = c->flow;
  ready_list list = {0};
  going_on.depth++;
  complete(c, !c->ok, &list);
  run_all(f, &list);
  going_on.depth--;
}

static void async_done(struct kernel_ctx *ctx, shoal_status s) {
  struct node_call *c = (struct node_call *)ctx;
  struct flow *f = c->flow;
  INVARIANT(5, atomic_load_explicit(&c->meet, memory_order_relaxed) != CALL_ENDED);
  if (!s) s = ctx_check_types(ctx);
  c->ok = wrap_up(c, s);
  if (atomic_exchange(&c->meet, CALL_ENDED) == CALL_OPEN) return; /* the starter goes on */
  if (!f->step->inter || may_go_on(f->step->cancel)) call_goes_on(c);
  else pool_submit(f->step->inter, call_goes_on, c);
}

/* Prepares a call: inputs, room for outputs. */
static shoal_status prepare(struct node_call *c) {
  struct flow *f = c->flow;
  struct iter *it = c->at.iter;
  const struct plan_node *n = &f->plan->nodes[c->at.node];
  const int *slots = f->plan->in_slots + n->first_in;
  bool through = n->flags & (NODE_ENTER | NODE_EXIT | NODE_NEXT);
  c->through[0] = tensor_none();
  c->through_ref[0] = NULL;
  c->ctx = (struct kernel_ctx){.kernel = n->kernel,
                               .state = n->kernel->state,
                               .step = f->step,
                               .in = c->in,
                               .out = through ? c->through : it->slots + n->out_slot,
                               .frame = it->frame->id,
                               .iter = it->n,
                               .is_dead = c->dead,
                               .steal = c->steal,
                               .done = async_done};
  c->strings_lost = strings_lost();
  if (UNLIKELY(f->step->stats != NULL)) c->start_ns = wall_nanos();
  for (int i = 0; i < n->n_in; i++) c->in[i] = &it->slots[slots[i]];
  if (!(n->flags & NODE_REFS)) return NULL;
  c->ctx.refs_in = c->refs_in;
  c->ctx.refs_out = through ? c->through_ref : it->refs + n->out_slot;
  for (int i = 0; i < n->n_in; i++) c->temps[i].buffer = NULL;
  if (c->dead) return NULL;
  return refs_prepare(n, it->refs, slots, c->in, c->refs_in, c->temps);
}

/* Runs or starts one ready node; what it makes ready is added to out. */
static void run_one(struct flow *f, struct ready r, ready_list *out) {
  struct plan_node *n = &f->plan->nodes[r.node];
  struct node_call *c = call_take(f, r);
  bool skip = c->dead && (!(n->flags & NODE_DEAD_OK) || (n->flags & NODE_MERGE));
  if (skip || atomic_load(&f->verdict.failed)) {
    complete(c, true, out);
    return;
  }
  shoal_status s = prepare(c);
  int64_t began = f->step->rendezvous ? outbox_before(&n->slow) : 0;
  if (s) {
    bool ok = wrap_up(c, s);
    complete(c, !ok, out);
  } else if (n->flags & NODE_ASYNC) {
    atomic_store(&c->meet, CALL_OPEN);
    n->kernel->def->start(&c->ctx);
    if (UNLIKELY(began)) outbox_after(began, &n->slow);
    int open = CALL_OPEN;
    if (!atomic_compare_exchange_strong(&c->meet, &open, CALL_LEFT)) complete(c, !c->ok, out);
  } else {
    s = n->kernel->def->run(&c->ctx);
    if (!s) s = ctx_check_types(&c->ctx);
    if (UNLIKELY(began)) outbox_after(began, &n->slow);
    if (!s && f->step->cancel && UNLIKELY(cancel_started(f->step->cancel))) s = cancel_reason(f->step->cancel);
    bool ok = wrap_up(c, s);
    complete(c, !ok, out);
  }
}

struct node_offload {
  struct flow *flow;
  struct ready ready;
};

static void run_offloaded(void *arg) {
  struct node_offload *o = arg;
  struct flow *f = o->flow;
  ready_list list = {0};
  vec_push(&list, o->ready);
  free(o);
  run_all(f, &list);
}

/* Runs everything on the list and what follows from it. Expensive nodes beyond the first go to other threads. f may be
 * gone when the list is empty. */
static void run_all(struct flow *f, ready_list *list) {
  struct pool *inter = list->n ? f->step->inter : NULL; /* without a node of ours, f may be gone already */
  const struct file_roots *before = file_roots_current();
  if (list->n) file_roots_use(f->plan->device->files);
  uint64_t control = denormals_flush();
  while (list->n) {
    step_check_deadline(f->step);
    struct ready r = vec_pop(list);
    const struct plan_node *n = &f->plan->nodes[r.node];
    if ((n->flags & NODE_EXPENSIVE) && list->n && inter && pool_threads(inter) > 1) {
      struct node_offload *o = mem_alloc(sizeof *o);
      *o = (struct node_offload){f, r};
      pool_submit(inter, run_offloaded, o);
      continue;
    }
    run_one(f, r, list);
  }
  file_roots_use(before);
  denormals_restore(control);
  vec_release(list);
}

static struct flow *flow_take(struct plan *p) {
  pthread_mutex_lock(&p->lock);
  struct flow *f = p->flows;
  if (f) p->flows = f->next;
  pthread_mutex_unlock(&p->lock);
  if (f) return f;
  f = mem_zalloc(1, sizeof *f);
  pthread_mutex_init(&f->verdict.lock, NULL);
  f->free_iters = mem_zalloc((size_t)p->n_frames, sizeof *f->free_iters);
  return f;
}

void dataflow_run(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg) {
  struct flow *f = flow_take(p);
  f->plan = plan_ref(p);
  f->step = step;
  f->done = done;
  f->arg = arg;
  f->verdict.status = NULL;
  atomic_store(&f->verdict.failed, false);
  ready_list list = {0};
  pthread_mutex_lock(&f->verdict.lock);
  f->outstanding = 0;
  f->over = false;
  f->root = frame_new(f, 0, NULL);
  struct iter *it = f->root->iters.at[0];
  for (int i = p->n_nodes - 1; i >= 0; i--)
    if (p->nodes[i].frame == 0 && p->nodes[i].pending == 0) make_ready(f, it, i, &list);
  pthread_mutex_unlock(&f->verdict.lock);
  if (!list.n) finish_flow(f);
  else run_all(f, &list);
  if (!list.n) vec_release(&list);
}

void dataflow_free(struct flow *f, const struct plan *p) {
  for (struct flow *next; f; f = next) {
    next = f->next;
    for (int i = 0; i < p->n_frames; i++) {
      for (struct iter *it = f->free_iters[i], *after; it; it = after) {
        after = it->next_free;
        free(it->slots);
        free(it->state);
        free(it->refs);
        free(it->uses);
        free(it->pending);
        free(it->dead);
        free(it);
      }
    }
    for (struct node_call *c = f->free_calls, *after; c; c = after) {
      after = c->next;
      free(c->in);
      free(c->refs_in);
      free(c->temps);
      free(c);
    }
    free(f->free_iters);
    pthread_mutex_destroy(&f->verdict.lock);
    free(f);
  }
}

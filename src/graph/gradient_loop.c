/* Loops that run backwards.
 *
 * For a forward loop, the gradient is a loop of as many rounds in its own frame. The forward loop gets a counter; the
 * gradient loop counts down from its result:
 *
 *   forward   n = 0;     while (cond)   { ...; n = n + 1; }
 *   backward  k = n;     while (k >= 1) { ...; k = k - 1; }
 *
 * A value of a forward round that the gradient needs is pushed on a stack by the forward loop and popped by the
 * gradient loop, last round first. Pushes stand between the counter's Add and its NextIteration, pops between the
 * countdown's Sub and its NextIteration, so that rounds cannot overtake each other on a stack. Inside a conditional a
 * push happens only where the value exists, and the pop goes through Switches with the same predicates (popped
 * themselves). What does not change in the forward loop needs no stack: it enters the gradient loop as a constant.
 *
 *   forward Exit            ->  Enter
 *   forward Switch (loop)   ->  Merge of that Enter and of the NextIteration of what the body's gradient gives
 *   forward Merge (loop)    ->  Switch on the countdown: round again, or out
 *   forward Enter           ->  Exit; for a constant: a sum over the rounds
 *   forward NextIteration   ->  nothing
 *
 * Gradient functions know none of this: they read forward tensors as ever, and loop_settle() then replaces what they
 * read by what it is in the gradient loop. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gradient_internal.h"

struct grad_loop {
  struct frame *frame;
  struct grad_loop *outer;
  char *name;                     /* of its frame */
  shoal_out count;                /* rounds, in the outer loop */
  struct shoal_node *add, *next;  /* the forward counter's Add and NextIteration */
  struct shoal_node *f_sync;      /* a ControlTrigger before next, for pushes in conditionals; made when needed */
  shoal_out pivot;                /* LoopCond */
  struct shoal_node *body;        /* the countdown's Sub: what everything in a round may wait for */
  struct shoal_node *b_next;      /* its NextIteration */
  struct shoal_node *b_sync;      /* a ControlTrigger before b_next: pops are over; made when needed */
  struct strmap known;            /* "id:index" of an outside value -> what it is in here (shoal_out, allocated) */
  struct strmap merges;           /* "id" of a forward Switch -> the Merge (struct shoal_node *) */
  VEC(struct shoal_node *) exits; /* ready or unused, until all are */
  int exits_pending;
};

/* ---- nodes and their places ---- */

static void put(struct grad_run *r, struct shoal_node *n, struct place p) {
  if (!n) return;
  size_t i = (size_t)n->id - r->first;
  while (r->places.n <= i) vec_push(&r->places, (struct place){0});
  p.set = true;
  r->places.at[i] = p;
}

static struct place place_of(const struct grad_run *r, const struct shoal_node *n) {
  size_t i = (size_t)n->id - r->first;
  return i < r->places.n ? r->places.at[i] : (struct place){0};
}

static struct place in_loop(struct grad_loop *l) { return (struct place){.loop = l}; }
static struct place in_forward(struct frame *f) { return (struct place){.forward = true, .frame = f}; }

static struct shoal_node *make(struct grad_run *r, struct place p, const char *op, const char *name, shoal_out a,
                               shoal_out b) {
  struct build bd = build_begin(r->g, op, name);
  build_in(&bd, a);
  if (b.node) build_in(&bd, b);
  struct shoal_node *n = build_end(&bd);
  put(r, n, p);
  return n;
}

static struct shoal_node *make1(struct grad_run *r, struct place p, const char *op, const char *name, shoal_out a) {
  return make(r, p, op, name, a, (shoal_out){0});
}

static void control(struct shoal_node *n, struct shoal_node *from) {
  if (n && from) graph_add_control(n, from);
}

/* A constant that exists once for each run of `after`. */
static shoal_out make_const(struct grad_run *r, struct place p, int64_t v, struct shoal_node *after) {
  shoal_out c = build_const_int(r->g, SHOAL_INT32, v);
  put(r, c.node, p);
  control(c.node, after);
  return c;
}

static struct shoal_node *make_enter(struct grad_run *r, struct place p, shoal_out x, const char *frame, bool constant,
                                     int64_t parallel, const char *name) {
  struct build b = build_begin(r->g, "Enter", name);
  build_in(&b, x);
  build_attr_string(&b, "frame_name", frame);
  build_attr_bool(&b, "is_constant", constant);
  build_attr_int(&b, "parallel_iterations", parallel);
  struct shoal_node *n = build_end(&b);
  p.constant = constant;
  put(r, n, p);
  return n;
}

/* Merge(x, x); the second input is set later. What is known of its shape is `shape`. */
static struct shoal_node *make_merge(struct grad_run *r, struct place p, shoal_out x, const struct shape *shape) {
  struct shoal_node *n = make(r, p, "Merge", NULL, x, x);
  if (n && n->out_shapes) n->out_shapes[0] = *shape;
  return n;
}

static void close_merge(struct grad_run *r, struct shoal_node *merge, struct shoal_node *next) {
  if (!merge || !next) return;
  shoal_status s = graph_set_input(r->g, merge, 1, node_out(next, 0));
  if (s) graph_fail(r->g, s);
}

/* ---- the two counters ---- */

static shoal_out real_value(struct grad_run *r, struct grad_loop *l, shoal_out v);
static struct shoal_node *sync_back(struct grad_run *r, struct grad_loop *l);

static shoal_out count_forward(struct grad_run *r, struct grad_loop *l) {
  struct frame *f = l->frame;
  struct shape scalar = shape_scalar();
  struct place outside = in_forward(f->parent), inside = in_forward(f);
  shoal_out zero = make_const(r, outside, 0, l->outer ? l->outer->add : NULL);
  if (f->guard || f->parent) control(zero.node, f->enter->in[0].node);
  struct shoal_node *enter = make_enter(r, inside, zero, f->name, false, f->parallel, "f_count");
  struct shoal_node *merge = make_merge(r, inside, node_out(enter, 0), &scalar);
  struct shoal_node *turn = make(r, inside, "Switch", NULL, node_out(merge, 0), node_out(f->loop_cond, 0));
  l->add = make(r, inside, "AddV2", NULL, node_out(turn, 1), make_const(r, inside, 1, merge));
  l->next = make1(r, inside, "NextIteration", NULL, node_out(l->add, 0));
  close_merge(r, merge, l->next);
  outside.guard = f->guard;
  return node_out(make1(r, outside, "Exit", "f_count", node_out(turn, 0)), 0);
}

static void count_back(struct grad_run *r, struct grad_loop *l) {
  struct shape scalar = shape_scalar();
  struct place inside = in_loop(l);
  struct shoal_node *enter = make_enter(r, inside, l->count, l->name, false, l->frame->parallel, "b_count");
  struct shoal_node *merge = make_merge(r, inside, node_out(enter, 0), &scalar);
  shoal_out one = make_const(r, inside, 1, merge);
  struct shoal_node *pred = make(r, inside, "GreaterEqual", NULL, node_out(merge, 0), one);
  l->pivot = node_out(make1(r, inside, "LoopCond", "b_count", node_out(pred, 0)), 0);
  struct shoal_node *turn = make(r, inside, "Switch", NULL, node_out(merge, 0), l->pivot);
  l->body = make(r, inside, "Sub", NULL, node_out(turn, 1), one);
  l->b_next = make1(r, inside, "NextIteration", NULL, node_out(l->body, 0));
  close_merge(r, merge, l->b_next);
  struct shoal_node *last = make1(r, in_loop(l->outer), "Exit", "b_count", node_out(turn, 0));
  if (l->outer) control(sync_back(r, l->outer), last);
}

static struct grad_loop *loop_for(struct grad_run *r, struct frame *f) {
  if (!f || f->back) return f ? f->back : NULL;
  struct grad_loop *l = mem_zalloc(1, sizeof *l);
  l->frame = f;
  l->outer = loop_for(r, f->parent);
  f->back = l;
  if (f->has_stacks || !f->loop_cond) {
    graph_fail(r->g, UNIMPLEMENTED(f->loop_cond ? "Second-order gradient for while loops not supported."
                                                : "gradients: a loop without LoopCond"));
    return l;
  }
  l->exits_pending = (int)f->exits.n;
  l->name = mem_printf("%s_gradients_%zu", f->name, r->g->nodes.n);
  shoal_out total = count_forward(r, l);
  if (graph_error(r->g)) return l;
  l->count = l->outer ? real_value(r, l->outer, total) : total;
  count_back(r, l);
  return l;
}

static struct shoal_node *trigger(struct grad_run *r, struct place p, const char *name, struct shoal_node *before) {
  struct build b = build_begin(r->g, "ControlTrigger", name);
  struct shoal_node *n = build_end(&b);
  put(r, n, p);
  control(before, n);
  return n;
}

static struct shoal_node *sync_forward(struct grad_run *r, struct grad_loop *l) {
  if (!l->f_sync) {
    l->f_sync = trigger(r, in_forward(l->frame), "f_sync", l->next);
    control(l->f_sync, l->add);
  }
  return l->f_sync;
}

static struct shoal_node *sync_back(struct grad_run *r, struct grad_loop *l) {
  if (!l->b_sync) {
    l->b_sync = trigger(r, in_loop(l), "b_sync", l->b_next);
    control(l->b_sync, l->body);
  }
  return l->b_sync;
}

/* ---- values from outside a gradient loop ---- */

static char *key_of(shoal_out v, char *buf, size_t size) {
  snprintf(buf, size, "%d:%d", v.node->id, v.index);
  return buf;
}

/* v, which is in the outer loop (or in none), as a constant of l. */
static shoal_out enter_constant(struct grad_run *r, struct grad_loop *l, shoal_out v) {
  char key[32];
  shoal_out *known = strmap_get(&l->known, key_of(v, key, sizeof key));
  if (known) return *known;
  struct shoal_node *e = make_enter(r, in_loop(l), v, l->name, true, l->frame->parallel, "b_enter");
  if (!e) return (shoal_out){0};
  /* Were the loop in a branch not taken, a live constant would start a frame of its own. */
  if (l->frame->guard) control(e, l->count.node);
  shoal_out *o = mem_alloc(sizeof *o);
  *o = node_out(e, 0);
  strmap_put(&l->known, key, o);
  return *o;
}

/* v of `from` (an outer loop of l, or NULL) as it is in l. */
static shoal_out bring(struct grad_run *r, struct grad_loop *l, struct grad_loop *from, shoal_out v) {
  if (l == from || !v.node) return v;
  if (!l) {
    graph_fail(r->g, UNIMPLEMENTED("gradients: '%s' inside a while loop is needed outside of it", v.node->name));
    return (shoal_out){0};
  }
  return enter_constant(r, l, bring(r, l->outer, from, v));
}

static shoal_out forward_constant(struct grad_run *r, struct frame *f, shoal_out v) {
  if (!f) return v;
  struct shoal_node *e =
      make_enter(r, in_forward(f), forward_constant(r, f->parent, v), f->name, true, f->parallel, "f_acc");
  if (f->guard) control(e, f->enter->in[0].node);
  return node_out(e, 0);
}

/* A stack that the forward loop fills with v. */
static shoal_out push_history(struct grad_run *r, struct grad_loop *l, shoal_out v) {
  struct place outside = in_forward(NULL);
  shoal_out size = make_const(r, outside, -1, NULL);
  struct build b = build_begin(r->g, "StackV2", "f_acc");
  build_in(&b, size);
  build_attr_type(&b, "elem_type", out_type(v));
  struct shoal_node *stack = build_end(&b);
  put(r, stack, outside);
  if (!stack) return (shoal_out){0};
  shoal_out handle = forward_constant(r, l->frame, node_out(stack, 0));
  struct shoal_node *push = make(r, in_forward(l->frame), "StackPushV2", NULL, handle, v);
  control(push, l->add);
  if (flow_guard(r, v)) control(sync_forward(r, l), push);
  else control(l->next, push);
  return node_out(stack, 0);
}

/* x where the guard's side was taken in this round, else dead. */
static shoal_out guarded(struct grad_run *r, struct grad_loop *l, shoal_out x, const struct guard *g) {
  VEC(const struct guard *) chain = {0};
  for (; g; g = g->up) vec_push(&chain, g);
  while (chain.n && !graph_error(r->g)) {
    g = vec_pop(&chain);
    struct build b = build_begin(r->g, g->many ? "_SwitchN" : "Switch", NULL);
    build_in(&b, x);
    build_in(&b, real_value(r, l, g->select));
    if (g->many) build_attr_int(&b, "num_outs", g->ways);
    struct shoal_node *n = build_end(&b);
    put(r, n, in_loop(l));
    x = node_out(n, g->side);
  }
  vec_release(&chain);
  return x;
}

static shoal_out pop_history(struct grad_run *r, struct grad_loop *l, shoal_out stack, shoal_out v) {
  shoal_out handle = guarded(r, l, bring(r, l, NULL, stack), flow_guard(r, v));
  struct build b = build_begin(r->g, "StackPopV2", NULL);
  build_in(&b, handle);
  build_attr_type(&b, "elem_type", out_type(v));
  struct shoal_node *pop = build_end(&b);
  put(r, pop, in_loop(l));
  if (!pop) return (shoal_out){0};
  if (pop->out_shapes) pop->out_shapes[0] = out_shape(v);
  control(pop, l->body);
  control(sync_back(r, l), pop);
  return node_out(pop, 0);
}

/* The Enter that v comes from unchanged, if that is a constant of its loop. */
static struct shoal_node *constant_enter(shoal_out v) {
  struct shoal_node *n = v.node;
  while (op_is(n->op, "Identity") && n->in[0].node) n = n->in[0].node;
  if (!is_enter(n)) return NULL;
  const struct attr *a = node_attr(n, "is_constant");
  return a && a->kind == ATTR_BOOL && a->b ? n : NULL;
}

static shoal_out clone_const(struct grad_run *r, struct grad_loop *l, const struct shoal_node *n) {
  const struct tensor *t;
  shoal_status s = node_get_tensor(n, "value", &t);
  if (s) {
    graph_fail(r->g, s);
    return (shoal_out){0};
  }
  shoal_out c = build_const(r->g, t, NULL);
  put(r, c.node, in_loop(l));
  control(c.node, l->body);
  return c;
}

/* A forward value, in whatever loop, as it is in gradient loop l. */
static shoal_out recall(struct grad_run *r, struct grad_loop *l, shoal_out v) {
  struct grad_loop *at = l;
  for (;;) {
    while (at && flow_frame(r, v.node) != at->frame) at = at->outer;
    if (!at) return bring(r, l, NULL, v);
    struct shoal_node *e = constant_enter(v);
    if (e) {
      v = e->in[0];
      continue;
    }
    if (op_is(v.node->op, "Const")) return bring(r, l, at, clone_const(r, at, v.node));
    shoal_out stack = push_history(r, at, v);
    return stack.node ? bring(r, l, at, pop_history(r, at, stack, v)) : (shoal_out){0};
  }
}

static shoal_out real_value(struct grad_run *r, struct grad_loop *l, shoal_out v) {
  if (!v.node) return v;
  bool ours = (size_t)v.node->id >= r->first;
  struct place p = ours ? place_of(r, v.node) : in_forward(NULL);
  if (ours && !p.forward) return bring(r, l, p.loop, v);
  struct frame *f = flow_frame(r, v.node);
  if (!l) {
    if (f) graph_fail(r->g, UNIMPLEMENTED("gradients: '%s' inside a while loop is needed outside of it", v.node->name));
    return v;
  }
  char key[32];
  shoal_out *known = strmap_get(&l->known, key_of(v, key, sizeof key));
  if (known) return *known;
  shoal_out real = recall(r, l, v);
  if (real.node && !strmap_has(&l->known, key)) {
    shoal_out *o = mem_alloc(sizeof *o);
    *o = real;
    strmap_put(&l->known, key, o);
  }
  return real;
}

void loop_settle(struct grad_run *r, size_t mark, struct grad_loop *l) {
  size_t end = r->g->nodes.n;
  for (size_t id = mark; id < end && !graph_error(r->g); id++) {
    struct shoal_node *n = r->g->nodes.at[id];
    if (n && !place_of(r, n).set) put(r, n, in_loop(l));
    else if (n) r->places.at[id - r->first].set = true;
  }
  for (size_t id = mark; id < end && !graph_error(r->g); id++) {
    struct shoal_node *n = r->g->nodes.at[id];
    if (!n) continue;
    struct place p = place_of(r, n);
    if (p.loop != l || p.forward || p.constant || is_enter(n) || is_exit(n)) continue;
    bool waits = false;
    for (int i = 0; i < n->n_in; i++) {
      n->in[i] = real_value(r, l, n->in[i]);
      if (!n->in[i].node) return;
      waits |= (size_t)n->in[i].node->id < r->first || !place_of(r, n->in[i].node).constant;
    }
    if (l && !waits && !n->control.n) control(n, l->body);
  }
}

/* A gradient that is in l, as a dense tensor. */
static shoal_out dense_in(struct grad_run *r, struct grad_loop *l, struct grad gr) {
  size_t mark = r->g->nodes.n;
  shoal_out dense = grad_densify(r->g, gr);
  loop_settle(r, mark, l);
  return dense;
}

/* ---- the walk's questions ---- */

struct grad_loop *loop_after(const struct grad_run *r, const struct shoal_node *n) {
  struct frame *f = r->frames[n->id];
  return f ? f->back : NULL;
}

struct grad_loop *loop_before(const struct grad_run *r, const struct shoal_node *n) {
  struct frame *f = flow_frame(r, n);
  return f ? f->back : NULL;
}

/* Zeros of v's shape, in the loop that settles what is added. */
static shoal_out zeros_like(struct grad_run *r, shoal_out v, shoal_dtype dtype) {
  if (out_type(v) != SHOAL_RESOURCE) return build_op1(r->g, "ZerosLike", v);
  struct build b = build_begin(r->g, "ReadVariableOp", NULL);
  build_in(&b, v);
  build_attr_type(&b, "dtype", dtype);
  return build_op1(r->g, "ZerosLike", build_end_out(&b));
}

/* Lets all exits of a loop into the gradient, once they are all ready: those without a gradient bring zeros. */
static void release_exits(struct grad_run *r, struct grad_loop *l) {
  bool any = false;
  for (size_t i = 0; i < l->exits.n; i++) any |= grad_any(r, l->exits.at[i]);
  for (size_t i = 0; i < l->exits.n; i++) {
    struct shoal_node *n = l->exits.at[i];
    if (any && !grad_any(r, n) && grad_trainable(n->out_types[0]) && out_type(node_out(n, 0)) != SHOAL_RESOURCE &&
        r->between[n->in[0].node->id]) {
      size_t mark = r->g->nodes.n;
      shoal_out zero = zeros_like(r, node_out(n, 0), SHOAL_DT_INVALID);
      loop_settle(r, mark, l->outer);
      grad_add(r, node_out(n, 0), grad_dense(zero));
    }
    vec_push(&r->queue, n);
  }
}

void loop_exit_ready(struct grad_run *r, struct shoal_node *n) {
  struct grad_loop *l = loop_after(r, n);
  if (!l) return;
  vec_push(&l->exits, n);
  if (--l->exits_pending == 0) release_exits(r, l);
}

shoal_status loops_begin(struct grad_run *r, const shoal_out *ys, int ny) {
  for (size_t id = 0; id < r->first; id++) {
    struct shoal_node *n = r->g->nodes.at[id];
    if (n && r->between[id] && r->frames[id]) loop_for(r, r->frames[id]);
    if (graph_error(r->g)) return status_copy(graph_error(r->g));
  }
  for (size_t i = 0; i < r->all_frames.n; i++) {
    struct frame *f = r->all_frames.at[i];
    if (!f->back) continue;
    /* Exits that no gradient will reach, or that are ys themselves, are ready from the start. */
    for (size_t k = 0; k < f->exits.n; k++)
      if (!r->pending[f->exits.at[k]->id]) loop_exit_ready(r, f->exits.at[k]);
  }
  return NULL;
}

/* ---- gradients of control flow ---- */

/* fn over the parts of a gradient: values, and for slices the rest. */
static struct grad each_part(struct grad_run *r, struct grad gr, shoal_out (*fn)(struct grad_run *, void *, shoal_out),
                             void *arg) {
  struct grad out = {.values = fn(r, arg, gr.values)};
  if (gr.indices.node) out.indices = fn(r, arg, gr.indices);
  if (gr.dense_shape.node) out.dense_shape = fn(r, arg, gr.dense_shape);
  return out;
}

static shoal_out enter_part(struct grad_run *r, void *arg, shoal_out x) {
  struct grad_loop *l = arg;
  return node_out(make_enter(r, in_loop(l), x, l->name, false, l->frame->parallel, "b_exit"), 0);
}

static shoal_out exit_part(struct grad_run *r, void *arg, shoal_out x) {
  struct grad_loop *l = arg;
  return node_out(make1(r, in_loop(l->outer), "Exit", "b_exit", x), 0);
}

struct switching {
  struct grad_loop *l;
  shoal_out pred;
  int side;
};

static shoal_out switch_part(struct grad_run *r, void *arg, shoal_out x) {
  struct switching *w = arg;
  return node_out(make(r, in_loop(w->l), "Switch", NULL, x, w->pred), w->side);
}

/* A loop's Switch: the first visit comes from the exit, the second when the body's gradient is there. */
static void grad_loop_switch(struct grad_run *r, struct grad_ctx *c, struct grad_loop *l) {
  char key[32];
  snprintf(key, sizeof key, "%d", c->node->id);
  struct shoal_node *merge = strmap_get(&l->merges, key);
  if (merge) {
    if (grad_none(c->dy[1]) || merge->in[1].node != merge->in[0].node) return;
    shoal_out back = dense_in(r, l, c->dy[1]);
    struct shoal_node *next = make1(r, in_loop(l), "NextIteration", NULL, back);
    close_merge(r, merge, next);
    return;
  }
  if (grad_none(c->dy[0])) return;
  struct shape shape = out_shape(c->node->in[0]);
  if (out_type(c->node->in[0]) == SHOAL_RESOURCE) shape = shape_unknown();
  merge = make_merge(r, in_loop(l), dense_in(r, l, c->dy[0]), &shape);
  if (!merge) return;
  strmap_put(&l->merges, key, merge);
  grad_set(c, 0, node_out(merge, 0));
}

static void grad_cond_switch(struct grad_run *r, struct grad_ctx *c) {
  int n = c->node->n_out;
  shoal_dtype dtype = SHOAL_DT_INVALID;
  for (int i = 0; i < n; i++)
    if (!grad_none(c->dy[i])) dtype = out_type(c->dy[i].values);
  if (!dtype) return;
  struct build b = build_begin(r->g, "Merge", "cond_grad");
  for (int i = 0; i < n; i++)
    build_in(&b, grad_none(c->dy[i]) ? zeros_like(r, gout(c, i), dtype) : grad_densify(r->g, c->dy[i]));
  grad_set(c, 0, build_end_out(&b));
}

static void grad_cond_merge(struct grad_run *r, struct grad_ctx *c, struct grad_loop *l) {
  if (grad_none(c->dy[0])) return;
  shoal_out index = real_value(r, l, gout(c, 1));
  for (int i = 0; i < c->node->n_in; i++) {
    shoal_out want = build_const_int(r->g, SHOAL_INT32, i);
    put(r, want.node, in_loop(l));
    if (l) control(want.node, l->body);
    struct shoal_node *eq = make(r, in_loop(l), "Equal", NULL, index, want);
    struct switching w = {l, node_out(eq, 0), 1};
    c->dx[i] = each_part(r, c->dy[0], switch_part, &w);
  }
}

static void grad_loop_merge(struct grad_run *r, struct grad_ctx *c, struct grad_loop *l) {
  if (grad_none(c->dy[0])) return;
  struct shoal_node *turn = make(r, in_loop(l), "Switch", NULL, dense_in(r, l, c->dy[0]), l->pivot);
  for (int i = 0; i < c->node->n_in; i++) grad_set(c, i, node_out(turn, is_next(c->node->in[i].node) ? 1 : 0));
}

/* A value that a loop carries round: starts as `from` (in the outer loop), is `fn` of itself every round. */
static shoal_out carry(struct grad_run *r, struct grad_loop *l, shoal_out from, const struct shape *shape,
                       shoal_out (*fn)(struct grad_run *, struct grad_loop *, shoal_out, void *), void *arg) {
  struct shoal_node *enter = make_enter(r, in_loop(l), from, l->name, false, l->frame->parallel, "b_acc");
  struct shoal_node *merge = make_merge(r, in_loop(l), node_out(enter, 0), shape);
  struct shoal_node *turn = make(r, in_loop(l), "Switch", NULL, node_out(merge, 0), l->pivot);
  shoal_out now = fn(r, l, node_out(turn, 1), arg);
  struct shoal_node *next = make1(r, in_loop(l), "NextIteration", NULL, now);
  close_merge(r, merge, next);
  return node_out(make1(r, in_loop(l->outer), "Exit", "b_acc", node_out(turn, 0)), 0);
}

static shoal_out plus(struct grad_run *r, struct grad_loop *l, shoal_out acc, void *arg) {
  if (out_type(acc) == SHOAL_VARIANT) { /* lists of tensors */
    struct build b = build_begin(r->g, "AddN", NULL);
    build_in_list(&b, (shoal_out[]){acc, *(shoal_out *)arg}, 2);
    struct shoal_node *n = build_end(&b);
    put(r, n, in_loop(l));
    return node_out(n, 0);
  }
  return node_out(make(r, in_loop(l), "AddV2", NULL, acc, *(shoal_out *)arg), 0);
}

static shoal_out append(struct grad_run *r, struct grad_loop *l, shoal_out acc, void *arg) {
  shoal_out axis = make_const(r, in_loop(l), 0, l->body);
  struct build b = build_begin(r->g, "ConcatV2", NULL);
  build_in(&b, acc);
  build_in(&b, *(shoal_out *)arg);
  build_in(&b, axis);
  struct shoal_node *n = build_end(&b);
  put(r, n, in_loop(l));
  return node_out(n, 0);
}

/* x[0:0]: no rows, but the right shape of a row. */
static shoal_out no_rows(struct shoal_graph *g, shoal_out x) {
  int64_t zero = 0, one = 1;
  struct build b = build_begin(g, "StridedSlice", NULL);
  build_in(&b, x);
  build_in(&b, build_const_ints(g, SHOAL_INT32, &zero, 1));
  build_in(&b, build_const_ints(g, SHOAL_INT32, &zero, 1));
  build_in(&b, build_const_ints(g, SHOAL_INT32, &one, 1));
  return build_end_out(&b);
}

/* The gradient of a loop's constant is the sum over the rounds; of slices, all of them. */
static struct grad accumulate(struct grad_run *r, struct grad_loop *l, const struct shoal_node *enter, struct grad gr) {
  shoal_out value = enter->in[0];
  struct shape unknown = shape_unknown();
  size_t mark = r->g->nodes.n;
  if (!grad_sparse(gr)) {
    shoal_out zero = zeros_like(r, value, out_type(gr.values));
    loop_settle(r, mark, l->outer);
    struct shape shape = out_type(value) == SHOAL_RESOURCE ? unknown : out_shape(value);
    return grad_dense(carry(r, l, zero, &shape, plus, &gr.values));
  }
  shoal_out read = value;
  if (out_type(value) == SHOAL_RESOURCE) {
    struct build b = build_begin(r->g, "ReadVariableOp", NULL);
    build_in(&b, value);
    build_attr_type(&b, "dtype", out_type(gr.values));
    read = build_end_out(&b);
  }
  shoal_out shape = build_op1(r->g, "Shape", read);
  shoal_out values = no_rows(r->g, read);
  shoal_out indices = build_const_ints(r->g, out_type(gr.indices), NULL, 0);
  loop_settle(r, mark, l->outer);
  return (struct grad){carry(r, l, values, &unknown, append, &gr.values),
                       carry(r, l, indices, &unknown, append, &gr.indices), shape};
}

static bool is_constant(const struct shoal_node *n) {
  const struct attr *a = node_attr(n, "is_constant");
  return a && a->kind == ATTR_BOOL && a->b;
}

bool loop_gradient(struct grad_run *r, struct grad_ctx *c) {
  struct shoal_node *n = c->node;
  struct grad_loop *l = loop_after(r, n);
  if (op_is(n->op, "LoopCond")) return true;
  if (is_switch(n)) {
    if (is_loop_switch(n) && l) grad_loop_switch(r, c, l);
    else grad_cond_switch(r, c);
  } else if (is_merge(n)) {
    if (is_loop_merge(n) && l) grad_loop_merge(r, c, l);
    else grad_cond_merge(r, c, l);
  } else if (is_next(n)) {
    c->dx[0] = c->dy[0];
  } else if (is_exit(n) && l) {
    if (!grad_none(c->dy[0])) c->dx[0] = each_part(r, c->dy[0], enter_part, l);
  } else if (is_enter(n) && l) {
    if (grad_none(c->dy[0])) return true;
    if (is_constant(n)) c->dx[0] = accumulate(r, l, n, c->dy[0]);
    else c->dx[0] = each_part(r, c->dy[0], exit_part, l);
  } else {
    return false;
  }
  return true;
}

/* A variable whose next value does not depend on the one before: its gradient is zero in all rounds but the last. */
void loops_end(struct grad_run *r) {
  for (size_t i = 0; i < r->all_frames.n && !graph_error(r->g); i++) {
    struct grad_loop *l = r->all_frames.at[i]->back;
    void *value;
    for (size_t k = 0; l && strmap_next(&l->merges, &k, NULL, &value);) {
      struct shoal_node *merge = value;
      if (merge->in[1].node != merge->in[0].node) continue;
      struct shoal_node *turn = make(r, in_loop(l), "Switch", NULL, node_out(merge, 0), l->pivot);
      struct shoal_node *zero = make1(r, in_loop(l), "ZerosLike", NULL, node_out(turn, 1));
      close_merge(r, merge, make1(r, in_loop(l), "NextIteration", NULL, node_out(zero, 0)));
    }
  }
}

void loops_release(struct grad_run *r) {
  for (size_t i = 0; i < r->all_frames.n; i++) {
    struct grad_loop *l = r->all_frames.at[i]->back;
    if (!l) continue;
    void *value;
    for (size_t k = 0; strmap_next(&l->known, &k, NULL, &value);) free(value);
    strmap_release(&l->known);
    strmap_release(&l->merges);
    vec_release(&l->exits);
    free(l->name);
    free(l);
  }
}

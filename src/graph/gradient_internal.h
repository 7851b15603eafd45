/* Between gradient.c (the walk back), gradient_call.c (functions with gradients of their own), gradient_flow.c (what
 * loops and conditionals there are) and gradient_loop.c (the loops that run backwards). */
#ifndef GRAPH_GRADIENT_INTERNAL_H
#define GRAPH_GRADIENT_INTERNAL_H

#include "graph/gradient.h"

struct grad_loop;

/* A value exists only where the predicate picked this side: what a Switch puts on its outputs. */
struct guard {
  struct guard *up; /* the conditional around this one, in the same frame; NULL: none */
  shoal_out select; /* the Switch's predicate, or _SwitchN's index */
  bool many;        /* _SwitchN */
  int ways, side, depth;
};

/* One while loop of the forward graph. */
struct frame {
  struct frame *parent;
  const char *name;
  struct shoal_node *enter; /* one of its Enters */
  struct shoal_node *loop_cond;
  VEC(struct shoal_node *) exits;
  int64_t parallel;
  struct guard *guard;    /* of what enters: the conditional, in the parent frame, that the loop is in */
  bool has_stacks;        /* already part of somebody's gradient */
  struct grad_loop *back; /* its gradient loop, once there is one */
};

/* Where a node that gradients added belongs. */
struct place {
  bool set;
  bool forward;           /* added to the forward graph: a counter, a stack, a push */
  bool constant;          /* an Enter that is constant in its loop: live in every round, the dead last one too */
  struct frame *frame;    /* forward: the frame of its outputs; NULL: none */
  struct guard *guard;    /* forward: the conditional around it */
  struct grad_loop *loop; /* otherwise: the gradient loop of its outputs; NULL: none */
};

struct grad_list {
  struct grad *at;
  int n;
};

struct grad_run {
  struct shoal_graph *g;
  size_t first;             /* nodes from this id on are ours */
  bool *between;            /* [first] on a path from some x to some y */
  int *pending;             /* [first] consumers on such paths not yet done */
  struct grad_list **grads; /* [first] by node, then output */
  bool has_flow;            /* there are loops or conditionals; without, nothing of what follows is used */
  struct frame **frames;    /* [first] the loop a node runs in (Enter, Exit: the inner one) */
  struct guard **guards;    /* [first] the conditional a node runs in */
  VEC(struct frame *) all_frames;
  VEC(struct guard *) all_guards;
  VEC(struct place) places; /* by id - first */
  VEC(struct shoal_node *) queue;
  struct recompute *again; /* graph/recompute.h; NULL: nothing is computed again */
};

void grad_add(struct grad_run *r, shoal_out o, struct grad gr);
bool grad_any(const struct grad_run *r, const struct shoal_node *n);
bool grad_trainable(int type);

/* ---- gradient_call.c ---- */
/* The function that is the gradient of the one n calls; NULL: none. */
const char *call_own_gradient(const struct shoal_graph *g, const struct shoal_node *n);
shoal_status call_differentiate(struct grad_ctx *c, const char *own);

/* ---- gradient_flow.c ---- */
shoal_status flow_analyse(struct grad_run *r);
void flow_release(struct grad_run *r);
static inline bool is_switch(const struct shoal_node *n) {
  return op_is(n->op, "Switch") || op_is(n->op, "RefSwitch") || op_is(n->op, "_SwitchN");
}
static inline bool is_merge(const struct shoal_node *n) { return op_is(n->op, "Merge") || op_is(n->op, "RefMerge"); }
static inline bool is_enter(const struct shoal_node *n) { return op_is(n->op, "Enter") || op_is(n->op, "RefEnter"); }
static inline bool is_exit(const struct shoal_node *n) { return op_is(n->op, "Exit") || op_is(n->op, "RefExit"); }
static inline bool is_next(const struct shoal_node *n) {
  return op_is(n->op, "NextIteration") || op_is(n->op, "RefNextIteration");
}
bool is_loop_switch(const struct shoal_node *n);
bool is_loop_merge(const struct shoal_node *n);
/* The frame an output is in, and its conditional there. */
struct frame *flow_frame(const struct grad_run *r, const struct shoal_node *n);
struct guard *flow_guard(const struct grad_run *r, shoal_out o);

/* ---- gradient_loop.c ---- */
/* Makes gradient loops for all loops that gradients pass through, and queues what must start without a gradient. */
shoal_status loops_begin(struct grad_run *r, const shoal_out *ys, int ny);
/* The loop in which the gradients of n's outputs are added up, and the one its gradient function works in. */
struct grad_loop *loop_before(const struct grad_run *r, const struct shoal_node *n);
struct grad_loop *loop_after(const struct grad_run *r, const struct shoal_node *n);
/* Settles the nodes added since `mark` in that loop: forward values they read are fetched from their history. */
void loop_settle(struct grad_run *r, size_t mark, struct grad_loop *l);
/* An Exit is ready; queues all exits of its loop once they all are. */
void loop_exit_ready(struct grad_run *r, struct shoal_node *n);
/* Gradients of control flow ops; false when n is none. */
bool loop_gradient(struct grad_run *r, struct grad_ctx *c);
void loops_end(struct grad_run *r);
void loops_release(struct grad_run *r);

#endif

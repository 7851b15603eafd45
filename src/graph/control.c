/* Loops and conditionals from C functions: shoal/control.h.
 *
 * A function adds the nodes of a condition, a body or a branch as if nothing stood around them. Afterwards every node
 * that came since is looked at once: an input from outside is led in through an Enter (a loop) or a Switch (a branch),
 * one for each outside tensor; a node without inputs gets a control edge from the pivot, so that it runs in the frame,
 * or only when the branch is taken. So model code needs no second set of op wrappers, and constructs nest: the inner
 * one's Enters and Switches are nodes of the outer one's body like any other. Rejected: functions (While, If), for
 * TensorFlow 1's servers cannot run them, and gradients through them would take a second way. */
#include "shoal/control.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/options.h"
#include "graph/builder.h"
#include "graph/given.h"
#include "graph/shape_fn.h"

/* A loop's frame, or one branch of a conditional, while it is built. */
struct region {
  struct shoal_graph *g;
  size_t begin;             /* nodes from this id on are inside */
  struct shoal_node *pivot; /* what nodes without inputs wait for */
  const char *frame;        /* of a loop; NULL: a branch */
  int64_t parallel;
  shoal_out pred; /* of a conditional */
  int side;       /* which output of a Switch on pred */
  struct strmap known;
  VEC(struct shoal_node *) entries; /* run outside: control edges from outside end here */
};

static bool inside(const struct region *r, const struct shoal_node *n) { return (size_t)n->id >= r->begin; }

static bool is_ref(shoal_out o) { return o.node->out_types[o.index] > 100; }

static struct shoal_node *enter(struct region *r, shoal_out x, bool constant) {
  struct build b = build_begin(r->g, constant && is_ref(x) ? "RefEnter" : "Enter", NULL);
  build_in(&b, x);
  build_attr_string(&b, "frame_name", r->frame);
  build_attr_bool(&b, "is_constant", constant);
  build_attr_int(&b, "parallel_iterations", r->parallel);
  struct shoal_node *n = build_end(&b);
  if (n) vec_push(&r->entries, n);
  return n;
}

/* An outside tensor, inside. Handles stay where what they stand for is. */
static shoal_out bring_in(struct region *r, shoal_out x) {
  char key[64];
  snprintf(key, sizeof key, "%d:%d", x.node->id, x.index);
  struct shoal_node *n = strmap_get(&r->known, key);
  if (!n) {
    bool stays = is_ref(x) || out_type(x) == SHOAL_RESOURCE;
    if (stays) graph_push_colocation(r->g, x.node);
    n = r->frame ? enter(r, x, true) : build_op2(r->g, is_ref(x) ? "RefSwitch" : "Switch", x, r->pred).node;
    if (stays) graph_pop_colocation(r->g);
    if (!n) return (shoal_out){0};
    strmap_put(&r->known, key, n);
  }
  return node_out(n, r->frame ? 0 : r->side);
}

static bool makes_variable(const struct shoal_node *n) {
  static const char *const kinds[] = {"VarHandleOp", "VariableV2", "Variable", "TemporaryVariable"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (op_is(n->op, kinds[i])) return true;
  return false;
}

/* Leads everything that nodes first..last take from outside in through the region's border. */
static void close_border(struct region *r, size_t first, size_t last) {
  struct shoal_graph *g = r->g;
  for (size_t id = first; id < last && !graph_error(g); id++) {
    struct shoal_node *n = g->nodes.at[id];
    if (!n) continue;
    if (makes_variable(n)) {
      graph_fail(g,
                 INVALID("variable '%s' is made inside a %s: make it before", n->name, r->frame ? "loop" : "branch"));
      return;
    }
    for (int i = 0; i < n->n_in && !graph_error(g); i++) {
      if (inside(r, n->in[i].node)) continue;
      shoal_status s = graph_set_input(g, n, i, bring_in(r, n->in[i]));
      if (s) graph_fail(g, s);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n->control.n; i++) {
      struct shoal_node *from = n->control.at[i];
      if (inside(r, from)) n->control.at[kept++] = from;
      else
        for (size_t k = 0; k < r->entries.n; k++) graph_add_control(r->entries.at[k], from);
    }
    n->control.n = kept;
    if (!n->n_in && !kept) graph_add_control(n, r->pivot);
  }
}

/* A result of a function: brought in if it is an outside tensor handed through. */
static shoal_out settle(struct region *r, shoal_out x, const char *what, int i) {
  if (!x.node) {
    if (!graph_error(r->g)) graph_fail(r->g, INVALID("result %d of the %s was not set", i, what));
    return x;
  }
  return inside(r, x.node) ? x : bring_in(r, x);
}

static void region_release(struct region *r) {
  strmap_release(&r->known);
  vec_release(&r->entries);
}

static void give_nothing(shoal_out *results, int n) {
  for (int i = 0; i < n; i++) results[i] = (shoal_out){0};
}

/* ---- loops ---- */

static struct shape asked_shape(const shoal_dims *d) {
  struct shape s = shape_unknown();
  if (d->rank < 0 || d->rank > SHOAL_MAX_RANK) return s;
  s.rank = d->rank;
  for (int i = 0; i < d->rank; i++) s.dims[i] = d->at[i] < 0 ? -1 : d->at[i];
  return s;
}

/* Is everything that `narrow` may be also `wide`? */
static bool covers(const struct shape *wide, const struct shape *narrow) {
  if (wide->rank < 0) return true;
  if (wide->rank != narrow->rank) return false;
  for (int i = 0; i < wide->rank; i++)
    if (wide->dims[i] >= 0 && wide->dims[i] != narrow->dims[i]) return false;
  return true;
}

static void check_invariant(struct shoal_graph *g, shoal_out initial, const struct shape *in, shoal_out next) {
  struct shape after = out_shape(next);
  if (graph_error(g) || covers(in, &after)) return;
  struct text a = {0}, b = {0};
  shape_print(in, &a);
  shape_print(&after, &b);
  graph_fail(g,
             INVALID("The shape for %s:%d is not an invariant for the loop. It enters the loop with shape %s, but has "
                     "shape %s after one iteration. Say what holds in every round in shoal_loop_options.shapes.",
                     initial.node->name, initial.index, text_cstr(&a), text_cstr(&b)));
  text_release(&a);
  text_release(&b);
}

static struct shoal_node *merge_of(struct shoal_graph *g, shoal_out x, const struct shape *shape) {
  struct build b = build_begin(g, "Merge", NULL);
  build_in(&b, x);
  build_in(&b, x); /* until the NextIteration is there */
  struct shoal_node *n = build_end(&b);
  if (n) n->out_shapes[0] = *shape;
  return n;
}

struct built_loop {
  struct region r;
  int n;
  struct shoal_node **merges, **switches;
  struct shape *shapes;
  shoal_out *vars, *next;
};

static void begin_loop(struct built_loop *l, const shoal_out *initial, const shoal_dims *shapes) {
  struct shoal_graph *g = l->r.g;
  for (int i = 0; i < l->n && !graph_error(g); i++) {
    if (!initial[i].node) graph_fail(g, INVALID("initial value %d of the loop is not a tensor of any op", i));
    if (graph_error(g)) break;
    struct shape known = out_shape(initial[i]);
    l->shapes[i] = shapes ? asked_shape(&shapes[i]) : known;
    if (!covers(&l->shapes[i], &known))
      graph_fail(g, INVALID("the shape asked for of loop variable %d does not hold of %s", i, initial[i].node->name));
    struct shoal_node *e = enter(&l->r, initial[i], false);
    if (e) l->vars[i] = node_out(e, 0);
  }
  graph_push_control(g, NULL, -1); /* what stands around the loop, its Enters have waited for */
  for (int i = 0; i < l->n && !graph_error(g); i++) {
    l->merges[i] = merge_of(g, l->vars[i], &l->shapes[i]);
    l->vars[i] = node_out(l->merges[i], 0);
  }
}

static void add_condition(struct built_loop *l, shoal_while_cond *cond, void *arg) {
  struct shoal_graph *g = l->r.g;
  l->r.pivot = l->merges[0];
  size_t first = g->nodes.n;
  shoal_out go_on = cond(g, arg, l->vars);
  close_border(&l->r, first, g->nodes.n);
  go_on = settle(&l->r, go_on, "loop's condition", 0);
  shoal_out pred = build_op1(g, "LoopCond", go_on);
  for (int i = 0; i < l->n && !graph_error(g); i++)
    l->switches[i] = build_op2(g, "Switch", node_out(l->merges[i], 0), pred).node;
}

static void add_body(struct built_loop *l, shoal_while_body *body, void *arg, const shoal_out *initial) {
  struct shoal_graph *g = l->r.g;
  for (int i = 0; i < l->n && !graph_error(g); i++) l->vars[i] = build_op1(g, "Identity", node_out(l->switches[i], 1));
  if (graph_error(g)) return;
  l->r.pivot = l->vars[0].node;
  size_t first = g->nodes.n;
  body(g, arg, l->vars, l->next);
  close_border(&l->r, first, g->nodes.n);
  for (int i = 0; i < l->n && !graph_error(g); i++) {
    shoal_out next = settle(&l->r, l->next[i], "loop's body", i);
    if (next.node) check_invariant(g, initial[i], &l->shapes[i], next);
    shoal_out again = build_op1(g, "NextIteration", next);
    if (graph_error(g)) return;
    shoal_status s = graph_set_input(g, l->merges[i], 1, again);
    if (s) graph_fail(g, s);
  }
}

void shoal_while_loop(shoal_graph *g, shoal_while_cond *cond, shoal_while_body *body, void *arg,
                      const shoal_out *initial, int n, const shoal_loop_options *options, shoal_out *results) {
  GRAPH_GIVEN_ARRAY(g, results, n);
  shoal_loop_options o = {0};
  shoal_status e = OPTIONS_TAKE(shoal_loop_options, shapes, &o, options);
  if (e) graph_fail(g, e);
  give_nothing(results, n);
  GRAPH_GIVEN(g, cond);
  GRAPH_GIVEN(g, body);
  GRAPH_GIVEN_ARRAY(g, initial, n);
  if (n < 1) graph_fail(g, INVALID("a loop needs a variable"));
  if (graph_error(g)) return;
  const char *name = o.name ? o.name : "while";
  graph_push_scope(g, name);
  char *frame = graph_scoped_name(g, "while_context");
  struct built_loop l = {.r = {.g = g,
                               .begin = g->nodes.n,
                               .frame = frame,
                               .parallel = o.parallel_iterations > 0 ? o.parallel_iterations : 10},
                         .n = n};
  size_t room = (size_t)n;
  l.merges = mem_zalloc(room, sizeof *l.merges);
  l.switches = mem_zalloc(room, sizeof *l.switches);
  l.shapes = mem_zalloc(room, sizeof *l.shapes);
  l.vars = mem_zalloc(room, sizeof *l.vars);
  l.next = mem_zalloc(room, sizeof *l.next);
  begin_loop(&l, initial, o.shapes);
  if (!graph_error(g)) add_condition(&l, cond, arg);
  if (!graph_error(g)) add_body(&l, body, arg, initial);
  for (int i = 0; i < n && !graph_error(g); i++) results[i] = build_op1(g, "Exit", node_out(l.switches[i], 0));
  graph_pop_control(g);
  graph_pop_scope(g);
  if (graph_error(g)) give_nothing(results, n);
  region_release(&l.r);
  free(l.merges);
  free(l.switches);
  free(l.shapes);
  free(l.vars);
  free(l.next);
  free(frame);
}

/* ---- conditionals ---- */

static void add_branch(struct shoal_graph *g, shoal_out pred, struct shoal_node *turn, int side, shoal_branch *branch,
                       void *arg, int n, shoal_out *results) {
  struct region r = {.g = g, .pred = pred, .side = side};
  r.pivot = build_op1(g, "Identity", node_out(turn, side)).node;
  r.begin = g->nodes.n;
  vec_push(&r.entries, turn);
  if (!graph_error(g)) branch(g, arg, results);
  close_border(&r, r.begin, g->nodes.n);
  for (int i = 0; i < n && !graph_error(g); i++)
    results[i] = settle(&r, results[i], side ? "branch for true" : "branch for false", i);
  region_release(&r);
}

void shoal_cond(shoal_graph *g, shoal_out pred, shoal_branch *then, shoal_branch *otherwise, void *arg, int n,
                shoal_out *results) {
  GRAPH_GIVEN_ARRAY(g, results, n);
  give_nothing(results, n);
  GRAPH_GIVEN(g, then);
  GRAPH_GIVEN(g, otherwise);
  if (n < 1) graph_fail(g, INVALID("a conditional needs a result"));
  if (graph_error(g)) return;
  graph_push_scope(g, "cond");
  shoal_out *sides[2] = {mem_zalloc((size_t)n, sizeof(shoal_out)), mem_zalloc((size_t)n, sizeof(shoal_out))};
  struct shoal_node *turn = build_op2(g, "Switch", pred, pred).node;
  graph_push_control(g, NULL, -1);
  for (int side = 1; side >= 0 && !graph_error(g); side--)
    add_branch(g, pred, turn, side, side ? then : otherwise, arg, n, sides[side]);
  for (int i = 0; i < n && !graph_error(g); i++) {
    shoal_out a = sides[0][i], b = sides[1][i];
    if (out_type(a) != out_type(b)) {
      graph_fail(g, INVALID("result %d of the conditional is %s where pred is true, %s where it is false", i,
                            shoal_dtype_name(out_type(b)), shoal_dtype_name(out_type(a))));
      break;
    }
    struct build m = build_begin(g, "Merge", NULL);
    build_in(&m, a);
    build_in(&m, b);
    results[i] = build_end_out(&m);
  }
  graph_pop_control(g);
  graph_pop_scope(g);
  if (graph_error(g)) give_nothing(results, n);
  free(sides[0]);
  free(sides[1]);
}

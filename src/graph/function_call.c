/* Calls of functions that were defined from C: PartitionedCall, If, Case, While, and gradients of their own.
 *
 * A call gives what the function has captured behind what the program gives. If, Case and While give all of their
 * functions the same inputs: where one of them has captured something, each is wrapped in a function that takes what
 * all of them captured, and hands on its own share. A While hands it from round to round. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "graph/builder.h"
#include "graph/function_define.h"
#include "graph/given.h"

/* ---- checks ---- */

static shoal_status check_function(struct shoal_graph *g, const struct shoal_function *f, const char *what) {
  if (!f) return INVALID("%s: no function is given (NULL)", what);
  if (!f->ended) return INVALID("%s: function '%s' has not ended: it cannot be used", what, f->name);
  if (function_root(f->outer) != function_root(g))
    return INVALID("%s: function '%s' is of another graph", what, f->name);
  return NULL;
}

/* What the program gives fits the inputs that the function names. */
static shoal_status check_inputs(const struct shoal_function *f, const shoal_out *in, int n_in) {
  if ((size_t)n_in != f->inputs.n)
    return INVALID("function '%s' has %zu input%s, and is given %d", f->name, f->inputs.n, f->inputs.n == 1 ? "" : "s",
                   n_in);
  for (int i = 0; i < n_in; i++) {
    if (!in[i].node) return INVALID("input %d of function '%s' is not a tensor of any op", i, f->name);
    shoal_dtype want = out_type(node_out(f->inputs.at[i], 0)), have = out_type(in[i]);
    struct shape wanted = out_shape(node_out(f->inputs.at[i], 0)), given = out_shape(in[i]);
    if (want != have)
      return INVALID("input %d ('%s') of function '%s' is %s, and is given %s", i, f->inputs.at[i]->name, f->name,
                     shoal_dtype_name(want), shoal_dtype_name(have));
    if (!shape_compatible(&wanted, &given))
      return INVALID("input %d ('%s') of function '%s' has shape %s, and is given %s", i, f->inputs.at[i]->name,
                     f->name, shape_str(&wanted), shape_str(&given));
  }
  return NULL;
}

static shoal_status check_outputs(const struct shoal_function *f, const shoal_dtype *types, int n_out) {
  if ((size_t)n_out != f->outputs.n)
    return INVALID("function '%s' has %zu output%s, and %d are asked for", f->name, f->outputs.n,
                   f->outputs.n == 1 ? "" : "s", n_out);
  for (int i = 0; i < n_out; i++)
    if (types[i] != f->types.at[i])
      return INVALID("output %d of function '%s' is %s, not %s", i, f->name, shoal_dtype_name(f->types.at[i]),
                     shoal_dtype_name(types[i]));
  return NULL;
}

/* All of a call's functions are there, of this graph, and have the same inputs and outputs. */
static shoal_status check_call(struct shoal_graph *g, const char *what, const struct shoal_function *const *fs, int n,
                               const shoal_out *in, int n_in, int n_out) {
  for (int i = 0; i < n; i++) {
    TRY(check_function(g, fs[i], what));
    TRY(check_inputs(fs[i], in, n_in));
    TRY(check_outputs(fs[i], fs[0]->types.at, n_out));
  }
  return NULL;
}

/* ---- building ---- */

static void put_types(struct build *b, const char *attr, const shoal_out *outs, int n) {
  struct attr list = attr_list(ATTR_TYPE);
  for (int i = 0; i < n; i++) attr_list_add(&list, attr_type(out_type(outs[i])));
  build_attr(b, attr, list);
}

/* A body begun before f was defined learns of it here. */
static void know(struct shoal_graph *g, const struct shoal_function *f) {
  struct function_body library = {.graph = g};
  if (!graph_function(g, f->name)) function_body_take_library(&library, function_root(g));
}

/* Gives out what n computes; shapes are those that hold of all n_fs functions. */
static void give(struct shoal_node *n, const struct shoal_function *const *fs, int n_fs, shoal_out *out, int n_out) {
  for (int i = 0; i < n_out; i++) out[i] = node_out(n, i);
  for (int i = 0; n && i < n_out; i++) {
    struct shape shape = out_shape(fs[0]->outputs.at[i].from);
    for (int k = 1; k < n_fs; k++) {
      struct shape other = out_shape(fs[k]->outputs.at[i].from);
      if (!shape_equal(&shape, &other)) shape = shape_unknown();
    }
    n->out_shapes[i] = shape;
  }
}

/* A call with all inputs, captures too. */
static struct shoal_node *call_whole(struct shoal_graph *g, const struct shoal_function *f, const shoal_out *in,
                                     int n) {
  know(g, f);
  struct build b = build_begin(g, f->stateful ? "StatefulPartitionedCall" : "PartitionedCall", f->name);
  build_in_list(&b, in, n);
  put_types(&b, "Tin", in, n);
  build_attr_types(&b, "Tout", f->types.at, (int)f->types.n);
  build_attr(&b, "f", attr_func(f->name));
  return build_end(&b);
}

struct outs {
  VEC(shoal_out) v;
};

static void add_outs(struct outs *o, const shoal_out *from, size_t n) {
  for (size_t i = 0; i < n; i++) vec_push(&o->v, from[i]);
}

static struct shoal_node *call(struct shoal_graph *g, const struct shoal_function *f, const shoal_out *in, int n_in,
                               int n_out) {
  if (graph_error(g)) return NULL;
  GRAPH_TRY(g, check_call(g, "shoal_call", &f, 1, in, n_in, n_out), NULL);
  struct outs all = {0};
  add_outs(&all, in, (size_t)n_in);
  add_outs(&all, f->captures_from.at, f->captures_from.n);
  struct shoal_node *n = call_whole(g, f, all.v.at, (int)all.v.n);
  vec_release(&all.v);
  return n;
}

shoal_op *shoal_call(shoal_graph *g, const shoal_function *f, const shoal_out *in, int n_in, shoal_out *out,
                     int n_out) {
  GRAPH_GIVEN_ARRAY(g, in, n_in, NULL);
  GRAPH_GIVEN_ARRAY(g, out, n_out, NULL);
  struct shoal_node *n = call(g, f, in, n_in, n_out);
  give(n, &f, 1, out, n_out);
  return n;
}

/* ---- functions that take each other's captures ---- */

/* f with n_all more inputs, of which f's own captures begin at `first`; they are outputs as well where `hand_on`. */
static const struct shoal_function *wrap(struct shoal_graph *g, const struct shoal_function *f, const shoal_out *all,
                                         size_t n_all, size_t first, bool hand_on) {
  char *base = mem_printf("%s_taking_all", f->name), *name = function_unique_name(g, base);
  shoal_graph *body = shoal_function_begin(g, name);
  free(base);
  free(name);
  struct outs in = {0}, more = {0};
  for (size_t i = 0; i < f->inputs.n + n_all; i++) {
    bool own = i < f->inputs.n;
    shoal_out like = own ? node_out(f->inputs.at[i], 0) : all[i - f->inputs.n];
    struct shape s = out_shape(like);
    shoal_out x = shoal_function_input(body, out_type(like), (shoal_dims){s.rank, s.dims}, like.node->name);
    vec_push(own ? &in.v : &more.v, x);
  }
  add_outs(&in, more.v.at ? more.v.at + first : NULL, f->captures.n);
  struct shoal_node *n = call_whole(body, f, in.v.at, (int)in.v.n);
  shoal_out *out = mem_zalloc(f->outputs.n + 1, sizeof *out);
  if (n) give(n, &f, 1, out, (int)f->outputs.n);
  for (size_t i = 0; i < f->outputs.n; i++) shoal_function_output(body, out[i], f->outputs.at[i].name);
  for (size_t i = 0; hand_on && i < more.v.n; i++) shoal_function_output(body, more.v.at[i], NULL);
  free(out);
  vec_release(&in.v);
  vec_release(&more.v);
  return shoal_function_end(body);
}

/* What If, Case and While call, and what they give behind the program's own inputs. */
struct family {
  VEC(const struct shoal_function *) fs;
  struct outs captures;
  bool stateful;
};

/* handing: which of them hands captures on; -1: none. */
static void gather(struct shoal_graph *g, const struct shoal_function *const *fs, int n, int handing,
                   struct family *to) {
  for (int i = 0; i < n; i++) {
    add_outs(&to->captures, fs[i]->captures_from.at, fs[i]->captures_from.n);
    to->stateful |= fs[i]->stateful;
  }
  size_t first = 0, all = to->captures.v.n;
  for (int i = 0; i < n && !graph_error(g); i++) {
    vec_push(&to->fs, all ? wrap(g, fs[i], to->captures.v.at, all, first, i == handing) : fs[i]);
    first += fs[i]->captures.n;
    if (vec_last(&to->fs)) know(g, vec_last(&to->fs));
  }
}

static void family_release(struct family *f) {
  vec_release(&f->fs);
  vec_release(&f->captures.v);
}

/* The program's inputs, then the captures. */
static void put_inputs(struct build *b, const char *types, const shoal_out *in, int n_in, const struct family *f) {
  struct outs all = {0};
  add_outs(&all, in, (size_t)n_in);
  add_outs(&all, f->captures.v.at, f->captures.v.n);
  build_in_list(b, all.v.at, (int)all.v.n);
  put_types(b, types, all.v.at, (int)all.v.n);
  vec_release(&all.v);
}

static shoal_status check_scalar(shoal_out o, shoal_dtype dtype, const char *what) {
  if (!o.node) return INVALID("%s is not a tensor of any op", what);
  if (out_type(o) != dtype)
    return INVALID("%s is %s, not %s", what, shoal_dtype_name(out_type(o)), shoal_dtype_name(dtype));
  struct shape s = out_shape(o);
  return s.rank > 0 ? INVALID("%s has shape %s, and must be a scalar", what, shape_str(&s)) : NULL;
}

/* ---- If, Case, While ---- */

static struct shoal_node *call_if(struct shoal_graph *g, shoal_out pred, const struct shoal_function *const *fs,
                                  const shoal_out *in, int n_in, int n_out) {
  if (graph_error(g)) return NULL;
  GRAPH_TRY(g, check_call(g, "shoal_call_if", fs, 2, in, n_in, n_out), NULL);
  GRAPH_TRY(g, check_scalar(pred, SHOAL_BOOL, "pred"), NULL);
  struct family f = {0};
  gather(g, fs, 2, -1, &f);
  struct shoal_node *n = NULL;
  if (!graph_error(g)) {
    struct build b = build_begin(g, f.stateful ? "If" : "StatelessIf", "If");
    build_in(&b, pred);
    build_attr_type(&b, "Tcond", SHOAL_BOOL);
    put_inputs(&b, "Tin", in, n_in, &f);
    build_attr_types(&b, "Tout", fs[0]->types.at, n_out);
    build_attr(&b, "then_branch", attr_func(f.fs.at[0]->name));
    build_attr(&b, "else_branch", attr_func(f.fs.at[1]->name));
    n = build_end(&b);
  }
  family_release(&f);
  return n;
}

shoal_op *shoal_call_if(shoal_graph *g, shoal_out pred, const shoal_function *then, const shoal_function *otherwise,
                        const shoal_out *in, int n_in, shoal_out *out, int n_out) {
  GRAPH_GIVEN_ARRAY(g, in, n_in, NULL);
  GRAPH_GIVEN_ARRAY(g, out, n_out, NULL);
  const struct shoal_function *fs[] = {then, otherwise};
  struct shoal_node *n = call_if(g, pred, fs, in, n_in, n_out);
  give(n, fs, 2, out, n_out);
  return n;
}

static struct shoal_node *call_case(struct shoal_graph *g, shoal_out number,
                                    const struct shoal_function *const *branches, int n_branches, const shoal_out *in,
                                    int n_in, int n_out) {
  if (n_branches < 1) graph_fail(g, INVALID("shoal_call_case: there is no branch"));
  if (graph_error(g)) return NULL;
  GRAPH_TRY(g, check_call(g, "shoal_call_case", branches, n_branches, in, n_in, n_out), NULL);
  GRAPH_TRY(g, check_scalar(number, SHOAL_INT32, "number"), NULL);
  struct family f = {0};
  gather(g, branches, n_branches, -1, &f);
  struct shoal_node *n = NULL;
  if (!graph_error(g)) {
    struct build b = build_begin(g, f.stateful ? "Case" : "StatelessCase", "Case");
    struct attr names = attr_list(ATTR_FUNC);
    for (int i = 0; i < n_branches; i++) attr_list_add(&names, attr_func(f.fs.at[i]->name));
    build_in(&b, number);
    put_inputs(&b, "Tin", in, n_in, &f);
    build_attr_types(&b, "Tout", branches[0]->types.at, n_out);
    build_attr(&b, "branches", names);
    n = build_end(&b);
  }
  family_release(&f);
  return n;
}

shoal_op *shoal_call_case(shoal_graph *g, shoal_out number, const shoal_function *const *branches, int n_branches,
                          const shoal_out *in, int n_in, shoal_out *out, int n_out) {
  GRAPH_GIVEN_ARRAY(g, branches, n_branches, NULL);
  GRAPH_GIVEN_ARRAY(g, in, n_in, NULL);
  GRAPH_GIVEN_ARRAY(g, out, n_out, NULL);
  struct shoal_node *n = call_case(g, number, branches, n_branches, in, n_in, n_out);
  give(n, branches, n_branches, out, n_out);
  return n;
}

static shoal_status check_while(struct shoal_graph *g, const struct shoal_function *cond,
                                const struct shoal_function *body, const shoal_out *initial, int n) {
  TRY(check_call(g, "shoal_call_while", &body, 1, initial, n, n));
  TRY(check_call(g, "shoal_call_while", &cond, 1, initial, n, 1));
  TRY(check_scalar(cond->outputs.at[0].from, SHOAL_BOOL, "the result of a loop's condition"));
  for (int i = 0; i < n; i++)
    if (body->types.at[i] != out_type(initial[i]))
      return INVALID("value %d of a loop is %s, and %s after a round of '%s'", i,
                     shoal_dtype_name(out_type(initial[i])), shoal_dtype_name(body->types.at[i]), body->name);
  return NULL;
}

static struct shoal_node *call_while(struct shoal_graph *g, const struct shoal_function *cond,
                                     const struct shoal_function *body, const shoal_out *initial, int n) {
  if (graph_error(g)) return NULL;
  GRAPH_TRY(g, check_while(g, cond, body, initial, n), NULL);
  const struct shoal_function *fs[] = {cond, body};
  struct family f = {0};
  gather(g, fs, 2, 1, &f);
  struct shoal_node *made = NULL;
  if (!graph_error(g)) {
    struct build b = build_begin(g, f.stateful ? "While" : "StatelessWhile", "While");
    put_inputs(&b, "T", initial, n, &f);
    build_attr(&b, "cond", attr_func(f.fs.at[0]->name));
    build_attr(&b, "body", attr_func(f.fs.at[1]->name));
    made = build_end(&b);
  }
  family_release(&f);
  return made;
}

shoal_op *shoal_call_while(shoal_graph *g, const shoal_function *cond, const shoal_function *body,
                           const shoal_out *initial, int n, shoal_out *results) {
  GRAPH_GIVEN_ARRAY(g, initial, n, NULL);
  GRAPH_GIVEN_ARRAY(g, results, n, NULL);
  struct shoal_node *made = call_while(g, cond, body, initial, n);
  for (int i = 0; i < n; i++) results[i] = node_out(made, i);
  return made;
}

/* ---- gradients of their own ---- */

static shoal_status check_gradient(const struct shoal_function *f, const struct shoal_function *gradient) {
  size_t n_in = (size_t)function_n_in(f), n_out = f->outputs.n;
  if (gradient->inputs.n != n_in + n_out || gradient->outputs.n != n_in)
    return INVALID("the gradient of '%s' has %zu inputs and %zu outputs; '%s' has %zu and %zu", f->name, n_in + n_out,
                   n_in, gradient->name, gradient->inputs.n, gradient->outputs.n);
  if (gradient->captures.n)
    return INVALID("function '%s' captures %s: the gradient of a function can only use its inputs", gradient->name,
                   gradient->captures.at[0].from.node->name);
  for (size_t i = 0; i < n_in + n_out; i++) {
    shoal_dtype want = i < n_in ? out_type(node_out(function_in(f, (int)i), 0)) : f->types.at[i - n_in];
    shoal_dtype have = out_type(node_out(gradient->inputs.at[i], 0));
    if (want != have)
      return INVALID("input %zu of '%s', the gradient of '%s', is %s, not %s", i, gradient->name, f->name,
                     shoal_dtype_name(have), shoal_dtype_name(want));
    if (i < n_in && gradient->types.at[i] != want)
      return INVALID("output %zu of '%s', the gradient of '%s', is %s, not %s", i, gradient->name, f->name,
                     shoal_dtype_name(gradient->types.at[i]), shoal_dtype_name(want));
  }
  return NULL;
}

void shoal_function_set_gradient(shoal_graph *g, const shoal_function *f, const shoal_function *gradient) {
  if (graph_error(g)) return;
  GRAPH_TRY(g, check_function(g, f, __func__));
  GRAPH_TRY(g, check_function(g, gradient, __func__));
  GRAPH_TRY(g, check_gradient(f, gradient));
  for (struct shoal_graph *at = g; at; at = at->building ? at->building->outer : NULL)
    free(strmap_put(&at->gradient_functions, f->name, mem_strdup(gradient->name)));
}

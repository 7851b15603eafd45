/* Building graphs from C: the builder's stacks, and the sticky first error.
 *
 * A struct build gathers one node; build_end() completes it from the stacks (scope, device, control dependencies,
 * colocation), adds it and infers its shapes at once, so that a mistake is reported where it was made. */
#include "graph/aside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/device_name.h"
#include "graph/function_define.h"
#include "graph/given.h"
#include "graph/recompute.h"
#include "graph/shape_fn.h"

struct device_level {
  char *device; /* NULL: a function */
  device_fn *fn;
  void *arg;
  void (*release)(void *arg);
};

struct control_level {
  struct shoal_node **nodes;
  int n;
  bool alone; /* levels outside of it do not count */
};

/* Stronger than devices: a node made inside is where the other one is, whatever device scopes stand around. */
struct colocation_level {
  char *loc; /* "loc:@NAME" */
  char *device;
  size_t devices; /* how many device scopes stood outside */
};

struct recompute_span { /* nodes by id: graph/recompute.h */
  size_t from, to;
};

struct graph_builder {
  shoal_status error;
  VEC(char *) scopes; /* each whole: "a/b" */
  VEC(struct device_level) devices;
  VEC(struct control_level) controls;
  VEC(struct colocation_level) colocations;
  VEC(struct recompute_span) again; /* parts that were closed */
  size_t again_from;                /* of the one that is open */
  int again_depth;
  struct strmap scope_names; /* scopes opened so far, for unique names */
  bool has_seed, ref_variables;
  int64_t seed, ops_seeded;
};

static struct graph_builder *builder(struct shoal_graph *g) {
  if (!g->builder) g->builder = mem_zalloc(1, sizeof *g->builder);
  return g->builder;
}

void graph_builder_free(struct graph_builder *b) {
  if (!b) return;
  shoal_status_free(b->error);
  for (size_t i = 0; i < b->scopes.n; i++) free(b->scopes.at[i]);
  for (size_t i = 0; i < b->devices.n; i++) {
    free(b->devices.at[i].device);
    if (b->devices.at[i].release) b->devices.at[i].release(b->devices.at[i].arg);
  }
  for (size_t i = 0; i < b->controls.n; i++) free(b->controls.at[i].nodes);
  for (size_t i = 0; i < b->colocations.n; i++) {
    free(b->colocations.at[i].loc);
    free(b->colocations.at[i].device);
  }
  vec_release(&b->scopes);
  vec_release(&b->devices);
  vec_release(&b->controls);
  vec_release(&b->colocations);
  vec_release(&b->again);
  strmap_release(&b->scope_names);
  free(b);
}

void graph_push_recompute(struct shoal_graph *g) {
  struct graph_builder *b = builder(g);
  if (!b->again_depth++) b->again_from = g->nodes.n;
}

void graph_pop_recompute(struct shoal_graph *g) {
  struct graph_builder *b = builder(g);
  if (!b->again_depth) graph_fail(g, INVALID("what is to be recomputed is closed, but was not opened"));
  else if (!--b->again_depth) vec_push(&b->again, (struct recompute_span){b->again_from, g->nodes.n});
}

bool graph_recompute_part(const struct shoal_graph *g, size_t i, size_t *from, size_t *to) {
  if (!g->builder || i >= g->builder->again.n) return false;
  *from = g->builder->again.at[i].from;
  *to = g->builder->again.at[i].to;
  return true;
}

void graph_fail(struct shoal_graph *g, shoal_status s) {
  struct graph_builder *b = builder(g);
  if (b->error) shoal_status_free(s);
  else b->error = status_kept(s);
}

shoal_status graph_error(const struct shoal_graph *g) { return g->builder ? g->builder->error : NULL; }

/* ---- stacks ---- */

char *graph_scoped_name(struct shoal_graph *g, const char *name) {
  struct graph_builder *b = builder(g);
  return b->scopes.n && *vec_last(&b->scopes) ? mem_printf("%s/%s", vec_last(&b->scopes), name) : mem_strdup(name);
}

void graph_push_scope(struct shoal_graph *g, const char *name) {
  struct graph_builder *b = builder(g);
  if (!name) graph_fail(g, INVALID("a scope without a name (NULL)"));
  char *base = graph_scoped_name(g, name ? name : "");
  char *unique = mem_strdup(base);
  for (int k = 1; strmap_has(&b->scope_names, unique) || strmap_has(&g->by_name, unique); k++) {
    free(unique);
    unique = mem_printf("%s_%d", base, k);
  }
  strmap_put(&b->scope_names, unique, b);
  vec_push(&b->scopes, unique);
  free(base);
}

void graph_push_scope_root(struct shoal_graph *g) { vec_push(&builder(g)->scopes, mem_strdup("")); }

void graph_pop_scope(struct shoal_graph *g) {
  struct graph_builder *b = builder(g);
  if (!b->scopes.n) graph_fail(g, INVALID("a scope is closed that was not opened"));
  else free(vec_pop(&b->scopes));
}

void graph_push_device(struct shoal_graph *g, const char *device) {
  struct device_spec spec;
  shoal_status s = device ? device_spec_parse(device, &spec) : INVALID("a device scope without a device (NULL)");
  if (s) graph_fail(g, s);
  vec_push(&builder(g)->devices, (struct device_level){.device = mem_strdup(device ? device : "")});
}

void graph_push_device_fn(struct shoal_graph *g, device_fn *fn, void *arg, void (*release)(void *)) {
  vec_push(&builder(g)->devices, (struct device_level){.fn = fn, .arg = arg, .release = release});
}

void graph_pop_device(struct shoal_graph *g) {
  struct graph_builder *b = builder(g);
  if (!b->devices.n) {
    graph_fail(g, INVALID("a device scope is closed that was not opened"));
    return;
  }
  struct device_level l = vec_pop(&b->devices);
  free(l.device);
  if (l.release) l.release(l.arg);
}

/* Whether node can be waited for in g; one of another graph is a mistake. */
static bool can_control(struct shoal_graph *g, const struct shoal_node *node) {
  if (!node) return false;
  if (!graph_has(g, node))
    graph_fail(g, INVALID("%s is an op of another graph: it cannot be waited for here", node->name));
  return graph_has(g, node);
}

void graph_push_control(struct shoal_graph *g, struct shoal_node *const *nodes, int n) {
  struct control_level l = {mem_zalloc(n > 0 ? (size_t)n : 1, sizeof *l.nodes), .alone = n < 0};
  for (int i = 0; i < n; i++)
    if (can_control(g, nodes[i])) l.nodes[l.n++] = nodes[i];
  vec_push(&builder(g)->controls, l);
}

void graph_pop_control(struct shoal_graph *g) {
  struct graph_builder *b = builder(g);
  if (!b->controls.n) graph_fail(g, INVALID("a control scope is closed that was not opened"));
  else free(vec_pop(&b->controls).nodes);
}

void graph_push_colocation(struct shoal_graph *g, const struct shoal_node *with) {
  vec_push(&builder(g)->colocations, (struct colocation_level){.loc = mem_printf("loc:@%s", with ? with->name : ""),
                                                               .device = mem_strdup(with ? with->device : ""),
                                                               .devices = builder(g)->devices.n});
}

void graph_pop_colocation(struct shoal_graph *g) {
  struct graph_builder *b = builder(g);
  if (!b->colocations.n) {
    graph_fail(g, INVALID("a colocation scope is closed that was not opened"));
    return;
  }
  struct colocation_level l = vec_pop(&b->colocations);
  free(l.loc);
  free(l.device);
}

/* ---- scopes set aside ---- */

struct graph_aside {
  VEC(char *) scopes;
  VEC(struct device_level) devices;
  VEC(struct control_level) controls;
  VEC(struct colocation_level) colocations;
};

struct graph_depth graph_depth(struct shoal_graph *g) {
  const struct graph_builder *b = builder(g);
  return (struct graph_depth){b->scopes.n, b->devices.n, b->controls.n, b->colocations.n};
}

/* Moves what stands above `depth` from one stack to the end of another. */
#define MOVE(from, to, depth)                                                       \
  do {                                                                              \
    for (size_t i_ = (depth); i_ < (from)->n; i_++) vec_push((to), (from)->at[i_]); \
    (from)->n = (depth) < (from)->n ? (depth) : (from)->n;                          \
  } while (0)

struct graph_aside *graph_set_aside(struct shoal_graph *g, struct graph_depth above) {
  struct graph_builder *b = builder(g);
  struct graph_aside *a = mem_zalloc(1, sizeof *a);
  MOVE(&b->scopes, &a->scopes, above.scopes);
  MOVE(&b->devices, &a->devices, above.devices);
  MOVE(&b->controls, &a->controls, above.controls);
  MOVE(&b->colocations, &a->colocations, above.colocations);
  return a;
}

void graph_put_back(struct shoal_graph *g, struct graph_aside *a) {
  struct graph_builder *b = builder(g);
  MOVE(&a->scopes, &b->scopes, 0);
  MOVE(&a->devices, &b->devices, 0);
  MOVE(&a->controls, &b->controls, 0);
  MOVE(&a->colocations, &b->colocations, 0);
  vec_release(&a->scopes);
  vec_release(&a->devices);
  vec_release(&a->controls);
  vec_release(&a->colocations);
  free(a);
}

void graph_set_ref_variables(struct shoal_graph *g, bool on) { builder(g)->ref_variables = on; }
bool graph_ref_variables(const struct shoal_graph *g) { return g->builder && g->builder->ref_variables; }

void graph_set_seed(struct shoal_graph *g, int64_t seed) {
  builder(g)->has_seed = true;
  builder(g)->seed = seed;
}

void graph_next_seeds(struct shoal_graph *g, int64_t *seed, int64_t *seed2) {
  struct graph_builder *b = builder(g);
  *seed = b->has_seed ? b->seed : 0;
  *seed2 = b->has_seed ? b->ops_seeded++ : 0;
}

void graph_own_seeds(struct shoal_graph *g, int64_t own, int64_t *seed, int64_t *seed2) {
  enum { DEFAULT_GRAPH_SEED = 87654321 }; /* tensorflow/python/framework/random_seed.py */
  struct graph_builder *b = builder(g);
  *seed = b->has_seed ? b->seed : DEFAULT_GRAPH_SEED;
  *seed2 = own;
  if (!*seed && !*seed2) *seed2 = INT32_MAX; /* two zeros would mean none */
}

/* ---- one node ---- */

struct build build_begin(struct shoal_graph *g, const char *op, const char *name) {
  struct build b = {.g = g, .op_name = op, .name = mem_strdup(name ? name : op)};
  b.op = op_find(op);
  if (!b.op && !graph_error(g)) graph_fail(g, NOT_FOUND("Op type not registered '%s'", op));
  return b;
}

void build_in(struct build *b, shoal_out in) {
  const char *op = b->op_name, *name = b->name;
  if (graph_error(b->g)) return;
  in = function_see(b->g, in);
  if (!in.node) graph_fail(b->g, INVALID("input %zu of %s '%s' is not a tensor of any op", b->in.n, op, name));
  else if (!graph_has(b->g, in.node))
    graph_fail(b->g,
               INVALID("input %zu of %s '%s' is %s:%d of another graph", b->in.n, op, name, in.node->name, in.index));
  else if (in.index < 0 || in.index >= in.node->n_out)
    graph_fail(b->g, INVALID("input %zu of %s '%s' is %s:%d, and %s has %d output%s", b->in.n, op, name, in.node->name,
                             in.index, in.node->name, in.node->n_out, in.node->n_out == 1 ? "" : "s"));
  vec_push(&b->in, in);
}

void build_in_list(struct build *b, const shoal_out *in, int n) {
  if (n > 0 && !in) graph_fail(b->g, INVALID("%s '%s': a list of inputs is NULL", b->op_name, b->name));
  for (int i = 0; in && i < n; i++) build_in(b, in[i]);
}

void build_control(struct build *b, struct shoal_node *from) {
  if (can_control(b->g, from)) vec_push(&b->control, from);
}

void build_attr(struct build *b, const char *name, struct attr value) {
  if (b->n_attrs == BUILD_MAX_ATTRS || !name) {
    if (!name) graph_fail(b->g, INVALID("%s '%s': the name of an attribute is NULL", b->op_name, b->name));
    else
      graph_fail(b->g, INVALID("more than %d attributes are given to %s '%s'", BUILD_MAX_ATTRS, b->op_name, b->name));
    attr_release(&value);
    return;
  }
  b->attrs[b->n_attrs++] = (struct named_attr){mem_strdup(name), value};
}

void build_attr_int(struct build *b, const char *name, int64_t v) { build_attr(b, name, attr_int(v)); }
void build_attr_float(struct build *b, const char *name, float v) { build_attr(b, name, attr_float(v)); }
void build_attr_bool(struct build *b, const char *name, bool v) { build_attr(b, name, attr_bool(v)); }
void build_attr_type(struct build *b, const char *name, shoal_dtype v) { build_attr(b, name, attr_type(v)); }
void build_attr_shape(struct build *b, const char *name, const struct shape *v) { build_attr(b, name, attr_shape(v)); }

void build_attr_string(struct build *b, const char *name, const char *v) {
  build_attr(b, name, attr_string(v, strlen(v)));
}

/* A list of n values is there. */
static bool list_given(struct build *b, const char *name, const void *v, int n) {
  if (v || n <= 0) return true;
  graph_fail(b->g, INVALID("%s '%s': attribute %s is NULL", b->op_name, b->name, name ? name : "(NULL)"));
  return false;
}

void build_attr_ints(struct build *b, const char *name, const int64_t *v, int n) {
  if (!list_given(b, name, v, n)) return;
  struct attr list = attr_list(ATTR_INT);
  for (int i = 0; i < n; i++) attr_list_add(&list, attr_int(v[i]));
  build_attr(b, name, list);
}

void build_attr_types(struct build *b, const char *name, const shoal_dtype *v, int n) {
  if (!list_given(b, name, v, n)) return;
  struct attr list = attr_list(ATTR_TYPE);
  for (int i = 0; i < n; i++) attr_list_add(&list, attr_type(v[i]));
  build_attr(b, name, list);
}

void build_device(struct build *b, const char *device) { b->device = device; }

static void build_release(struct build *b) {
  for (int i = 0; i < b->n_attrs; i++) {
    free(b->attrs[i].name);
    attr_release(&b->attrs[i].value);
  }
  vec_release(&b->in);
  vec_release(&b->control);
  free(b->name);
}

/* Adds the parts of text that spec has not yet. */
static void fill_device(struct device_spec *spec, const char *text) {
  struct device_spec outer;
  shoal_status s = device_spec_parse(text, &outer);
  if (s) {
    shoal_status_free(s);
    return;
  }
  device_spec_merge(&outer, spec);
  *spec = outer;
}

/* The device for a node: the stack merged from the inside out, so that functions see what inner scopes asked for. */
static void choose_device(struct graph_builder *gb, const struct shoal_node *n, char *out, size_t size) {
  struct device_spec spec = {0};
  struct colocation_level *with = gb->colocations.n ? &vec_last(&gb->colocations) : NULL;
  size_t outermost = with ? with->devices : 0;
  for (size_t i = gb->devices.n; i-- > outermost;) {
    struct device_level *l = &gb->devices.at[i];
    const char *text = l->fn ? l->fn(l->arg, n, &spec) : l->device;
    if (text && *text) fill_device(&spec, text);
    else if (!l->fn) break; /* "": scopes outside do not count */
  }
  if (with) fill_device(&spec, with->device);
  device_spec_print(&spec, out, size);
}

static void add_colocation(struct graph_builder *gb, struct build *b) {
  if (!gb->colocations.n || named_attr_find(b->attrs, b->n_attrs, "_class")) return;
  const char *loc = vec_last(&gb->colocations).loc;
  if (strlen(loc) <= strlen("loc:@")) return;
  struct attr list = attr_list(ATTR_STRING);
  attr_list_add(&list, attr_string(loc, strlen(loc)));
  build_attr(b, "_class", list);
}

/* Attributes are the op's, or begin with '_'. (GraphDefs may have others: programs newer than we are send them.) */
static shoal_status check_names(const struct build *b) {
  for (int i = 0; i < b->n_attrs; i++) {
    if (b->attrs[i].name[0] == '_' || op_attr_find(b->op, b->attrs[i].name)) continue;
    struct text signature = {0};
    op_print(b->op, &signature);
    shoal_status s = INVALID("NodeDef mentions attr '%s' not in %s", b->attrs[i].name, text_cstr(&signature));
    text_release(&signature);
    return s;
  }
  return NULL;
}

struct shoal_node *build_end(struct build *b) {
  struct shoal_graph *g = b->g;
  struct graph_builder *gb = builder(g);
  if (gb->error || !b->op) {
    build_release(b);
    return NULL;
  }
  char *scoped = graph_scoped_name(g, b->name);
  char *name = graph_unique_name(g, scoped);
  free(scoped);
  struct shoal_node *n = NULL;
  shoal_status s = NULL;
  if (!node_name_valid(name, true)) s = INVALID("'%s' is not a valid node name", name);
  if (!s) s = check_names(b);
  if (!s) {
    add_colocation(gb, b);
    struct named_attr *attrs = mem_zalloc((size_t)b->n_attrs, sizeof *attrs);
    if (b->n_attrs) memcpy(attrs, b->attrs, (size_t)b->n_attrs * sizeof *attrs);
    int n_attrs = b->n_attrs;
    b->n_attrs = 0;
    s = graph_add(g, name, b->op, b->in.at, (int)b->in.n, attrs, n_attrs, &n);
  }
  if (!s) {
    char device[192];
    choose_device(gb, n, device, sizeof device);
    graph_set_device(n, b->device ? b->device : device);
    for (size_t i = 0; i < b->control.n; i++) graph_add_control(n, b->control.at[i]);
    size_t first = gb->controls.n;
    while (first > 0 && !gb->controls.at[--first].alone) continue;
    for (size_t i = first; i < gb->controls.n; i++)
      for (int k = 0; k < gb->controls.at[i].n; k++) graph_add_control(n, gb->controls.at[i].nodes[k]);
    s = node_infer_shapes(n);
  }
  if (s) graph_fail(g, status_prefix(s, "%s '%s': ", b->op_name, name));
  free(name);
  build_release(b);
  return s ? NULL : n;
}

shoal_out build_end_out(struct build *b) { return node_out(build_end(b), 0); }

/* ---- short forms ---- */

shoal_out build_op1(struct shoal_graph *g, const char *op, shoal_out a) {
  struct build b = build_begin(g, op, NULL);
  build_in(&b, a);
  return build_end_out(&b);
}

shoal_out build_op2(struct shoal_graph *g, const char *op, shoal_out a, shoal_out c) {
  struct build b = build_begin(g, op, NULL);
  build_in(&b, a);
  build_in(&b, c);
  return build_end_out(&b);
}

shoal_out build_op3(struct shoal_graph *g, const char *op, shoal_out a, shoal_out c, shoal_out d) {
  struct build b = build_begin(g, op, NULL);
  build_in(&b, a);
  build_in(&b, c);
  build_in(&b, d);
  return build_end_out(&b);
}

shoal_out build_const(struct shoal_graph *g, const struct tensor *t, const char *name) {
  struct build b = build_begin(g, "Const", name);
  build_attr(&b, "value", attr_tensor(t));
  build_attr_type(&b, "dtype", (shoal_dtype)t->dtype);
  return build_end_out(&b);
}

/* Writes v as element i of a numeric tensor; for types without fractions `whole`, where it is given. */
static shoal_status set_number(struct tensor *t, int64_t i, double v, const int64_t *whole) {
  bool fits = v >= -0x1p63 && v < 0x1p63; /* infinities are constants of gradients */
  int64_t exact = whole ? *whole : fits ? (int64_t)v : 0;
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_FLOAT32: T_DATA(t, float)[i] = (float)v; break;
    case SHOAL_FLOAT64: T_DATA(t, double)[i] = v; break;
    case SHOAL_FLOAT16: T_DATA(t, f16)[i] = f16_from_float((float)v); break;
    case SHOAL_BFLOAT16: T_DATA(t, bf16)[i] = bf16_from_float((float)v); break;
    case SHOAL_INT8:
    case SHOAL_UINT8: T_DATA(t, uint8_t)[i] = (uint8_t)exact; break;
    case SHOAL_INT16:
    case SHOAL_UINT16: T_DATA(t, uint16_t)[i] = (uint16_t)exact; break;
    case SHOAL_INT32:
    case SHOAL_UINT32: T_DATA(t, uint32_t)[i] = (uint32_t)exact; break;
    case SHOAL_INT64:
    case SHOAL_UINT64: T_DATA(t, uint64_t)[i] = (uint64_t)exact; break;
    case SHOAL_BOOL: T_DATA(t, bool)[i] = exact != 0; break;
    case SHOAL_COMPLEX64: T_DATA(t, c64)[i] = (float)v; break;
    case SHOAL_COMPLEX128: T_DATA(t, c128)[i] = v; break;
    default: return INVALID("a constant of type %s cannot be made from a number", dtype_tf_name(t->dtype));
  }
  return NULL;
}

static shoal_out const_numbers(struct shoal_graph *g, shoal_dtype dtype, const int64_t *ints, const double *reals,
                               int rank, int n) {
  if (graph_error(g)) return (shoal_out){0};
  struct tensor t;
  shoal_status s = tensor_new_dims(&t, dtype, rank, (int64_t[]){n});
  if (!s) {
    for (int i = 0; i < n && !s; i++)
      s = set_number(&t, i, reals ? reals[i] : (double)ints[i], ints ? &ints[i] : NULL);
    shoal_out o = s ? (shoal_out){0} : build_const(g, &t, NULL);
    tensor_release(&t);
    if (!s) return o;
  }
  graph_fail(g, s);
  return (shoal_out){0};
}

shoal_out build_const_int(struct shoal_graph *g, shoal_dtype dtype, int64_t v) {
  return const_numbers(g, dtype, &v, NULL, 0, 1);
}

shoal_out build_const_ints(struct shoal_graph *g, shoal_dtype dtype, const int64_t *v, int n) {
  return const_numbers(g, dtype, v, NULL, 1, n);
}

shoal_out build_const_float(struct shoal_graph *g, shoal_dtype dtype, double v) {
  return const_numbers(g, dtype, NULL, &v, 0, 1);
}

shoal_out build_cast(struct shoal_graph *g, shoal_out x, shoal_dtype to) {
  if (!x.node || out_type(x) == to) return x;
  struct build b = build_begin(g, "Cast", NULL);
  build_in(&b, x);
  build_attr_type(&b, "DstT", to);
  return build_end_out(&b);
}

struct shape out_shape(shoal_out o) {
  return o.node && o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown();
}

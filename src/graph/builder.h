/* Building graphs from C: names and scopes, devices, control dependencies, and the sticky first error.
 *
 * The wrappers of the public API, gradients, optimizers and rewrites all add nodes through this. After the first
 * mistake nothing is added any more: calls return {NULL, 0} and accept it as input, so code reads straight and
 * checks once, with graph_error(). */
#ifndef GRAPH_BUILDER_H
#define GRAPH_BUILDER_H

#include "base/device_name.h"
#include "graph/graph.h"

enum { BUILD_MAX_ATTRS = 24 };

struct build {
  struct shoal_graph *g;
  const struct op *op;
  const char *op_name;
  char *name;
  VEC(shoal_out) in;
  VEC(struct shoal_node *) control;
  struct named_attr attrs[BUILD_MAX_ATTRS];
  int n_attrs;
  const char *device;
};

/* name: NULL takes the op's name; made unique inside the current scope. */
struct build build_begin(struct shoal_graph *g, const char *op, const char *name);
void build_in(struct build *b, shoal_out in);
void build_in_list(struct build *b, const shoal_out *in, int n);
void build_control(struct build *b, struct shoal_node *from);
void build_attr(struct build *b, const char *name, struct attr value); /* takes over value */
void build_attr_int(struct build *b, const char *name, int64_t v);
void build_attr_float(struct build *b, const char *name, float v);
void build_attr_bool(struct build *b, const char *name, bool v);
void build_attr_type(struct build *b, const char *name, shoal_dtype v);
void build_attr_string(struct build *b, const char *name, const char *v);
void build_attr_shape(struct build *b, const char *name, const struct shape *v);
void build_attr_ints(struct build *b, const char *name, const int64_t *v, int n);
void build_attr_types(struct build *b, const char *name, const shoal_dtype *v, int n);
/* A full device name, or what a device function gives; overrides the device stack. */
void build_device(struct build *b, const char *device);
/* Adds the node; NULL when the graph has an error (this one or an earlier). */
struct shoal_node *build_end(struct build *b);
/* The same, and its output 0. */
shoal_out build_end_out(struct build *b);

/* Short forms for code that builds many nodes. n_in inputs follow. */
shoal_out build_op1(struct shoal_graph *g, const char *op, shoal_out a);
shoal_out build_op2(struct shoal_graph *g, const char *op, shoal_out a, shoal_out b);
shoal_out build_op3(struct shoal_graph *g, const char *op, shoal_out a, shoal_out b, shoal_out c);
shoal_out build_const(struct shoal_graph *g, const struct tensor *t, const char *name); /* shares t's buffer */
shoal_out build_const_int(struct shoal_graph *g, shoal_dtype dtype, int64_t v);
shoal_out build_const_ints(struct shoal_graph *g, shoal_dtype dtype, const int64_t *v, int n);
shoal_out build_const_float(struct shoal_graph *g, shoal_dtype dtype, double v); /* any numeric dtype */
shoal_out build_cast(struct shoal_graph *g, shoal_out x, shoal_dtype to);        /* x itself when it has that type */

static inline shoal_dtype out_type(shoal_out o) {
  return o.node ? dtype_base(o.node->out_types[o.index]) : SHOAL_DT_INVALID;
}
static inline shoal_out node_out(struct shoal_node *n, int i) { return (shoal_out){n, i}; }
/* What is known of an output's shape. */
struct shape out_shape(shoal_out o);

/* The sticky error: kept in the graph, NULL while all is well. Consumes s; only the first is kept. */
void graph_fail(struct shoal_graph *g, shoal_status s);
shoal_status graph_error(const struct shoal_graph *g);

/* Scopes nest; every node made inside gets "scope/" before its name. */
void graph_push_scope(struct shoal_graph *g, const char *name);
void graph_push_scope_root(struct shoal_graph *g); /* names inside stand for themselves, whatever scopes are around */
void graph_pop_scope(struct shoal_graph *g);
char *graph_scoped_name(struct shoal_graph *g, const char *name); /* "scope/name"; the caller frees it */
/* Devices nest and are merged, inner parts win. A function may choose per node (device setters): it sees the node,
 * attributes and all, and what inner scopes asked for; what it returns (or NULL) must live until the next call. */
typedef const char *device_fn(void *arg, const struct shoal_node *n, const struct device_spec *inner);
void graph_push_device(struct shoal_graph *g, const char *device);
void graph_push_device_fn(struct shoal_graph *g, device_fn *fn, void *arg, void (*release)(void *arg));
void graph_pop_device(struct shoal_graph *g);
/* Every node made inside runs after these. n < 0: levels outside do not count in here. */
void graph_push_control(struct shoal_graph *g, struct shoal_node *const *nodes, int n);
void graph_pop_control(struct shoal_graph *g);
/* Every node made inside gets _class ["loc:@NAME"] and the device of that node; device scopes outside do not count. */
void graph_push_colocation(struct shoal_graph *g, const struct shoal_node *with);
void graph_pop_colocation(struct shoal_graph *g);

/* Which kind of variable models make (train/variables.c). */
void graph_set_ref_variables(struct shoal_graph *g, bool on);
bool graph_ref_variables(const struct shoal_graph *g);

/* Seeds for random ops that give none, by TensorFlow's rule: (graph seed, how many ops drew one before). */
void graph_set_seed(struct shoal_graph *g, int64_t seed);
void graph_next_seeds(struct shoal_graph *g, int64_t *seed, int64_t *seed2);
/* And for those that give one: (graph seed or TensorFlow's default, own). */
void graph_own_seeds(struct shoal_graph *g, int64_t own, int64_t *seed, int64_t *seed2);
void graph_builder_free(struct graph_builder *b);

#endif

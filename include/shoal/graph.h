/* Graphs: what is to be computed. Built through this API (and the op wrappers of shoal/ops.h, which are generated
 * from the op table), or imported from a TensorFlow GraphDef.
 *
 * Building keeps the first error and goes on doing nothing: model code reads straight, and is checked once with
 * shoal_graph_error(). A graph is built by one thread. */
#ifndef SHOAL_GRAPH_H
#define SHOAL_GRAPH_H

#include <shoal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_graph shoal_graph;
typedef struct shoal_node shoal_op;

/* One output of an op: a tensor that the graph computes. node NULL: none (after an error). */
typedef struct shoal_out {
  struct shoal_node *node;
  int index;
} shoal_out;

/* A shape that is asked for; rank -1: unknown; a dimension of -1: unknown. SHOAL_SHAPE(-1, 784), SHOAL_SCALAR. */
typedef struct shoal_dims {
  int rank;
  const int64_t *at;
} shoal_dims;
#ifdef __cplusplus
#define SHOAL_SHAPE(...) (shoal_cpp::shape(__VA_ARGS__))
#define SHOAL_SCALAR (shoal_dims())
#else
#define SHOAL_SHAPE(...) \
  ((shoal_dims){(int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__}})
#define SHOAL_SCALAR ((shoal_dims){0, NULL})
#endif

/* Bytes with an owner: freed with shoal_bytes_free. */
typedef struct shoal_bytes {
  void *data;
  size_t size;
} shoal_bytes;
SHOAL_API void shoal_bytes_free(shoal_bytes *b);

SHOAL_API shoal_graph *shoal_graph_new(void);
SHOAL_API void shoal_graph_free(shoal_graph *g);

/* The first mistake made while building, or NULL. The graph keeps it. */
SHOAL_API shoal_status shoal_graph_error(const shoal_graph *g);
/* Prints it to standard error, with its place; returns 1 if there is one, else 0: `return shoal_report(g);` */
SHOAL_API int shoal_report(const shoal_graph *g);

/* Adds all nodes and functions of a serialized GraphDef (binary; or text format). prefix (or NULL) is put before the
 * names. On error the graph is unchanged. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_graph_import(shoal_graph *g, const void *data, size_t size,
                                                           const char *prefix);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_graph_import_text(shoal_graph *g, const char *text, size_t size,
                                                                const char *prefix);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_graph_export(const shoal_graph *g, shoal_bytes *out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_graph_export_text(const shoal_graph *g, shoal_bytes *out);

/* By name; NULL when there is none. */
SHOAL_API shoal_op *shoal_graph_op(const shoal_graph *g, const char *name);
/* "name:index", or "name" for output 0. */
SHOAL_API shoal_out shoal_graph_out(const shoal_graph *g, const char *name);
SHOAL_API const char *shoal_op_name(const shoal_op *op);
SHOAL_API const char *shoal_op_type(const shoal_op *op);
SHOAL_API int shoal_op_outputs(const shoal_op *op);
SHOAL_API shoal_dtype shoal_out_dtype(shoal_out o);
/* Rank as far as known, -1 when unknown; dims (room for SHOAL_MAX_RANK; -1 unknown). */
SHOAL_API int shoal_out_shape(shoal_out o, int64_t *dims);

/* Scopes for names, devices (a name, or a function), control dependencies, colocation: each push has its pop.
 * shoal_push_control with n < 0: control scopes outside do not count in this one. Nodes made in a colocation scope are
 * where the other one is: device scopes outside do not count. */
SHOAL_API void shoal_push_scope(shoal_graph *g, const char *name);
SHOAL_API void shoal_pop_scope(shoal_graph *g);
SHOAL_API void shoal_push_device(shoal_graph *g, const char *device);
SHOAL_API void shoal_pop_device(shoal_graph *g);
/* A function chooses for every node made inside: it sees the op, its type and attributes (shoal/op.h), and what scopes
 * inside this one ask for ("": nothing), which wins where both name a part. What it returns (NULL: it has no wish) must
 * live until its next call. */
typedef const char *shoal_device_fn(void *arg, const shoal_op *op, const char *inner);
SHOAL_API void shoal_push_device_fn(shoal_graph *g, shoal_device_fn *fn, void *arg);
SHOAL_API void shoal_push_control(shoal_graph *g, shoal_op *const *ops, int n);
SHOAL_API void shoal_pop_control(shoal_graph *g);
SHOAL_API void shoal_push_colocation(shoal_graph *g, const shoal_op *with);
SHOAL_API void shoal_pop_colocation(shoal_graph *g);

/* Seeds random ops that give none of their own, as tf.set_random_seed does. */
SHOAL_API void shoal_set_random_seed(shoal_graph *g, int64_t seed);

/* Gradients. dxs[i].values.node is NULL where x does not influence y. A sparse gradient has indices. */
typedef struct shoal_gradient {
  shoal_out values, indices, dense_shape;
} shoal_gradient;
SHOAL_API void shoal_gradients(shoal_graph *g, const shoal_out *ys, int n_ys, const shoal_out *xs, int n_xs,
                               const shoal_out *dys, shoal_gradient *dxs);

/* Any op by name: the way to ops without a wrapper. Attributes are set one by one; end adds the node. */
typedef struct shoal_builder shoal_builder;
SHOAL_API shoal_builder *shoal_build(shoal_graph *g, const char *op, const char *name);
SHOAL_API void shoal_build_input(shoal_builder *b, shoal_out in);
SHOAL_API void shoal_build_inputs(shoal_builder *b, const shoal_out *in, int n);
SHOAL_API void shoal_build_control(shoal_builder *b, shoal_op *from);
SHOAL_API void shoal_build_device(shoal_builder *b, const char *device);
SHOAL_API void shoal_build_int(shoal_builder *b, const char *attr, int64_t v);
SHOAL_API void shoal_build_float(shoal_builder *b, const char *attr, float v);
SHOAL_API void shoal_build_bool(shoal_builder *b, const char *attr, bool v);
SHOAL_API void shoal_build_type(shoal_builder *b, const char *attr, shoal_dtype v);
SHOAL_API void shoal_build_string(shoal_builder *b, const char *attr, const char *v);
SHOAL_API void shoal_build_shape(shoal_builder *b, const char *attr, int rank, const int64_t *dims);
SHOAL_API void shoal_build_tensor(shoal_builder *b, const char *attr, const shoal_tensor *v);
SHOAL_API void shoal_build_func(shoal_builder *b, const char *attr, const char *function);
SHOAL_API void shoal_build_ints(shoal_builder *b, const char *attr, const int64_t *v, int n);
SHOAL_API void shoal_build_floats(shoal_builder *b, const char *attr, const float *v, int n);
SHOAL_API void shoal_build_types(shoal_builder *b, const char *attr, const shoal_dtype *v, int n);
SHOAL_API void shoal_build_strings(shoal_builder *b, const char *attr, const char *const *v, int n);
/* Frees b. NULL after an error, which the graph keeps. */
SHOAL_API shoal_op *shoal_build_end(shoal_builder *b);
SHOAL_API shoal_out shoal_build_end_out(shoal_builder *b);

#ifdef __cplusplus
}

/* How SHOAL_SHAPE is made: dimensions of any integer types, with the room for them. `auto s = SHOAL_SHAPE(2, 3);` keeps
 * them. */
namespace shoal_cpp {
template <int N>
struct dims {
  int64_t at[N ? N : 1];
  operator shoal_dims() const {
    shoal_dims d = {N, at};
    return d;
  }
};
template <class... T>
inline dims<sizeof...(T)> shape(T... v) {
  return {{static_cast<int64_t>(v)...}};
}
}  // namespace shoal_cpp
#endif
#endif

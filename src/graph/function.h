/* Functions: the library that a graph carries, and bodies made into graphs.
 *
 * A function_def is immutable and shared by reference count: between graphs, and by the nodes that call it (a node
 * whose op is the function's name has `sig` as its op). Its bytes are kept as they came, so a library goes out as
 * it came in. */
#ifndef GRAPH_FUNCTION_H
#define GRAPH_FUNCTION_H

#include <stdatomic.h>

#include "base/ref.h"
#include "graph/graph.h"
#include "graph/node_def.h"

struct control_ret {
  struct chars name, node;
};

struct arg_attrs {
  uint32_t arg;
  struct named_attr *attrs;
  int n;
};

struct function_def {
  struct ref refs;
  char *name;
  struct op_row row;      /* what sig points to */
  struct op *sig;         /* the signature as an op */
  struct node_def *nodes; /* the body; slices point into bytes */
  int n_nodes;
  struct chars *rets; /* [sig->n_out] "node:out:0", or an argument's name */
  struct control_ret *control_rets;
  int n_control_rets;
  struct arg_attrs *arg_attrs;
  int n_arg_attrs;
  struct named_attr *attrs; /* of the function itself */
  int n_attrs;
  char *bytes; /* the serialized FunctionDef */
  size_t size;
};

shoal_status function_def_decode(const void *data, size_t size, size_t *budget, struct function_def **out);
struct function_def *function_def_ref(struct function_def *f);
void function_def_unref(struct function_def *f);

/* An op by name, for a graph that arrives: of the registry, or a function of g's library; NULL when neither. */
const struct op *graph_op(const struct shoal_graph *g, const char *name);
struct function_def *graph_function(const struct shoal_graph *g, const char *name);
/* Adds a definition (its reference is taken over). The same again is fine; another of that name is an error. */
shoal_status graph_add_function(struct shoal_graph *g, struct function_def *f);

/* Nodes of a body after instantiation. */
struct function_body {
  struct shoal_graph *graph;    /* with _Arg and _Retval nodes; without functions */
  struct shoal_node **args;     /* [n_args]; one for each tensor, lists expanded */
  struct shoal_node **rets;     /* [n_rets] _Retval nodes */
  struct shoal_node **controls; /* [n_controls] nodes that must run even if nothing is fetched from them */
  int n_args, n_rets, n_controls;
};
/* The body of f with its attributes set (attrs; those the signature has and that are absent take their defaults),
 * as a graph of its own, without the library: its calls find their functions where f was found, or after
 * function_body_take_library(). Nested function calls are left as they are. */
shoal_status function_instantiate(const struct shoal_graph *library, const struct function_def *f,
                                  const struct named_attr *attrs, int n_attrs, struct function_body *out);
/* The body gets the library too: for those who lower it on its own. */
void function_body_take_library(struct function_body *b, const struct shoal_graph *library);
void function_body_release(struct function_body *b);

#endif

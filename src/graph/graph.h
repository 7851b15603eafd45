/* Graphs: nodes, edges, attributes and a library of functions.
 *
 * A node's inputs are its data edges; control inputs stand apart. Nodes are owned by the graph and live as long
 * as it does; a removed node leaves a NULL in nodes. A graph is not locked: it is built by one thread, and read
 * by many once built. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/effort.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "graph/attr.h"
#include "graph/op.h"
#include "shoal/graph.h"

/* shoal_out (shoal/graph.h): output `index` of `node`, what an edge comes from. */

struct shoal_node {
  int id; /* its place in graph->nodes */
  char *name;
  const struct op *op;
  char *device;             /* as asked for; "" for anywhere */
  char *assigned;           /* full device name given by placement; NULL before */
  struct named_attr *attrs; /* all of the op's, defaults filled in, then any others */
  int n_attrs;
  int n_in, n_out;
  shoal_out *in;
  uint8_t *in_types, *out_types; /* base dtype, + 100 for references */
  VEC(struct shoal_node *) control;
  struct shape *out_shapes;   /* [n_out] as inferred; NULL before shape inference */
  VEC(char *) original_names; /* experimental_debug_info.original_node_names */
  VEC(char *) original_funcs;
  void *full_type; /* bytes of experimental_type, length-prefixed (size_t); NULL: none */
};

/* One function of the library: a signature and a body of NodeDefs over named arguments. */
struct function_def;

struct shoal_graph {
  VEC(struct shoal_node *) nodes; /* by id; NULL where removed */
  struct strmap by_name;          /* name -> struct shoal_node * */
  int n_nodes;                    /* without the removed ones */
  struct strmap name_counts;      /* base -> the last number graph_unique_name put behind it: where to go on looking */
  struct strmap functions;        /* name -> struct function_def * (graph/function.h) */
  struct strmap gradient_functions; /* function name -> char * (GradientDef) */
  int producer, min_consumer;
  VEC(int) bad_consumers;
  struct effort *effort; /* each new node is taken from it while somebody has set it; NULL: as many as one likes */
  struct shoal_function *defined;  /* functions begun here from C (graph/function_define.h); freed with the graph */
  struct shoal_function *building; /* of which this is the body; NULL: of none */
  struct graph_builder *builder;   /* name scopes, devices, sticky error: graph/builder.h; NULL until used */
};

struct shoal_graph *graph_new(void);
void graph_free(struct shoal_graph *g);

/* Adds a node whose inputs are all given. attrs (n of them; taken over, array included) are checked against the op
 * and completed: defaults filled in, type and number attributes inferred from the inputs where absent. The
 * error names node, op and attribute. name must be new and well-formed. inputs with node NULL are edges to be
 * filled in later with graph_set_input (loops); their types come from attributes. */
shoal_status graph_add(struct shoal_graph *g, const char *name, const struct op *op, const shoal_out *in, int n_in,
                       struct named_attr *attrs, int n_attrs, struct shoal_node **out);
/* Fills in an input left open; checks the type. */
shoal_status graph_set_input(struct shoal_graph *g, struct shoal_node *n, int i, shoal_out from);
void graph_add_control(struct shoal_node *n, struct shoal_node *from); /* once only, never to itself */
/* The same for many, in time that grows as their number does. */
void graph_add_controls(struct shoal_node *n, struct shoal_node *const *from, size_t count);
void graph_set_device(struct shoal_node *n, const char *device);
/* Removes a node; nothing may refer to it any more. */
void graph_remove(struct shoal_graph *g, struct shoal_node *n);
struct shoal_node *graph_find(const struct shoal_graph *g, const char *name);
/* A name that no node has yet: base, base_1, ... The caller frees it. */
char *graph_unique_name(struct shoal_graph *g, const char *base);
/* A deep copy; the functions too. map (optional, [g->nodes.n]) gets each node's copy by id. */
struct shoal_graph *graph_copy(const struct shoal_graph *g, struct shoal_node **map);
/* Copies the nodes and functions of `from` that g does not have, by name. */
shoal_status graph_add_new(struct shoal_graph *g, const struct shoal_graph *from);
/* Is [A-Za-z0-9.][A-Za-z0-9_>./\\-]* (leading _ only when internal). */
bool node_name_valid(const char *name, bool internal);

/* Nodes in an order in which inputs come first (NextIteration's edge to Merge does not count). An error names a
 * node on a cycle. order has room for g->n_nodes. */
shoal_status graph_topological_order(const struct shoal_graph *g, struct shoal_node **order);

/* Who consumes what: built once for a pass over an unchanging graph. */
struct consumer {
  struct shoal_node *node;
  int input; /* -1: control edge */
  int index; /* which output is consumed; -1: control edge */
};
struct consumers {
  int *first; /* [nodes.n + 1] into at */
  struct consumer *at;
};
void consumers_init(struct consumers *c, const struct shoal_graph *g);
void consumers_release(struct consumers *c);
struct consumer_range {
  const struct consumer *at, *end;
};
static inline struct consumer_range consumers_of(const struct consumers *c, const struct shoal_node *n) {
  return (struct consumer_range){c->at + c->first[n->id], c->at + c->first[n->id + 1]};
}
/* The outer loop runs once: it is there to have evaluated list and node_ once. */
#define FOR_CONSUMERS(c, list, node_)                                                           \
  for (struct consumer_range c##_all = consumers_of((list), (node_)); c##_all.at < c##_all.end; \
       c##_all.at = c##_all.end)                                                                \
    for (const struct consumer *c = c##_all.at; c < c##_all.end; c++)

/* Attributes; the errors name node and attribute. */
struct attr *node_attr(const struct shoal_node *n, const char *name);          /* NULL: absent */
void node_set_attr(struct shoal_node *n, const char *name, struct attr value); /* takes over value */
shoal_status node_get_int(const struct shoal_node *n, const char *name, int64_t *out);
shoal_status node_get_float(const struct shoal_node *n, const char *name, float *out);
shoal_status node_get_bool(const struct shoal_node *n, const char *name, bool *out);
shoal_status node_get_type(const struct shoal_node *n, const char *name, shoal_dtype *out);
shoal_status node_get_string(const struct shoal_node *n, const char *name, const char **out); /* up to the first NUL */
shoal_status node_get_shape(const struct shoal_node *n, const char *name, struct shape *out);
shoal_status node_get_tensor(const struct shoal_node *n, const char *name, const struct tensor **out);
shoal_status node_get_func(const struct shoal_node *n, const char *name, const struct func_attr **out);
/* A list attribute of the kind asked for (an empty untyped list fits any). */
shoal_status node_get_list(const struct shoal_node *n, const char *name, enum attr_kind of, const struct attr **out);
/* The ints of a list(int), at most max. */
shoal_status node_get_ints(const struct shoal_node *n, const char *name, int64_t *out, int max, int *count);

/* Where op's input (or output) argument arg begins among the node's inputs, and how many it has. */
void node_in_range(const struct shoal_node *n, const char *arg, int *first, int *count);

/* " [[{{node NAME}}]]" at the end, as TensorFlow marks errors of a node. */
shoal_status node_error(const struct shoal_node *n, shoal_status s);

#endif

/* Functions that are defined from C (shoal/function.h): between what builds them, what writes them as FunctionDefs and
 * what calls them.
 *
 * A shoal_function is on the list of the graph it was begun in, which frees it with its body. The body is a graph whose
 * `building` points back here; inputs and captures are Placeholders in it, which have shapes of their own. */
#ifndef GRAPH_FUNCTION_DEFINE_H
#define GRAPH_FUNCTION_DEFINE_H

#include "graph/function.h"
#include "shoal/function.h"

struct function_capture {
  shoal_out from; /* of the graph around */
  struct shoal_node *as;
};

struct function_output {
  shoal_out from;
  char *name; /* as asked for, until the function ends; then as its signature has it */
};

struct shoal_function {
  struct shoal_function *next; /* in outer's list */
  struct shoal_graph *outer, *body;
  char *name;
  bool ended, stateful;
  VEC(struct shoal_node *) inputs;
  VEC(struct function_capture) captures;
  VEC(struct function_output) outputs;
  VEC(struct named_attr) attrs;
  VEC(shoal_out) captures_from;     /* [captures.n] for those who ask */
  VEC(shoal_dtype) types;           /* [outputs.n] */
  VEC(shoal_dims) shapes;           /* [outputs.n] */
  VEC(struct shoal_node *) effects; /* nodes that run in every call */
};

static inline int function_n_in(const struct shoal_function *f) { return (int)(f->inputs.n + f->captures.n); }
/* Input i, captures last. */
static inline struct shoal_node *function_in(const struct shoal_function *f, int i) {
  return (size_t)i < f->inputs.n ? f->inputs.at[i] : f->captures.at[(size_t)i - f->inputs.n].as;
}
/* The graph that nothing stands around. */
struct shoal_graph *function_root(struct shoal_graph *g);
/* A tensor of a graph around g as g sees it: captured. Any other is returned as it is. */
shoal_out function_see(struct shoal_graph *g, shoal_out o);
void function_list_free(struct shoal_function *f);

/* A name that no function and no op has: base, base_1, ... The caller frees it. */
char *function_unique_name(struct shoal_graph *g, const char *base);

/* Appends the FunctionDef of one that is whole. */
shoal_status function_encode(const struct shoal_function *f, struct text *out);
/* Appends "node:output:0", or the input's name: how inputs are written inside a FunctionDef. */
void function_put_source(shoal_out from, struct text *out);
/* "node:output:0", whatever the node is. */
void function_put_output(shoal_out from, struct text *out);

#endif

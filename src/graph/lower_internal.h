/* Between lower.c and lower_control.c. */
#ifndef GRAPH_LOWER_INTERNAL_H
#define GRAPH_LOWER_INTERNAL_H

#include "graph/function.h"
#include "graph/graph.h"
#include "graph/lower.h"

/* What a node has become. */
struct lowered {
  bool is;
  shoal_out *outs;
  struct shoal_node *done; /* runs when all of it has run; NULL: nothing to wait for */
};

/* One call on the way from the top to a node. */
struct link {
  const char *function;
  int up; /* the link outside; -1: none */
};

struct lowering {
  struct shoal_graph *g;
  bool portable;   /* graph_try_lower_portable() */
  bool has_frames; /* there were loops before, whose frames inlined constants must join */
  int chain;       /* the link that nodes added now belong to */
  size_t most;     /* nodes there may be */
  VEC(struct link) links;
  VEC(int) chains;           /* by node id; -1: none */
  VEC(struct lowered) notes; /* by node id */
  struct strmap bodies;      /* function -> struct function_body *, of those without attributes */
  struct function_body last; /* of another */
};

/* Adds a node named "NEAR/SUFFIX" on near's device. attrs are taken over. */
shoal_status lower_add(struct lowering *lo, const struct shoal_node *near, const char *suffix, const char *op,
                       const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs, struct shoal_node **out);
struct named_attr *lower_attr(const char *name, struct attr value);
void lower_chain(struct lowering *lo, const struct shoal_node *n, int chain);
/* Inlines f's body. suffix: the branch or part of a loop it is, or NULL for a call, whose results are there only when
 * its effects are done (a branch whose results are read in part is computed in part). start: what source nodes of the
 * body wait for. constant ([n_in], or NULL): arguments that are constants of a loop's frame. *outs is allocated
 * ([n_out]). */
shoal_status lower_inline(struct lowering *lo, const struct shoal_node *caller, const char *suffix,
                          const struct func_attr *f, const shoal_out *inputs, int n_in, int n_out,
                          struct shoal_node *start, const bool *constant, shoal_out **outs, struct shoal_node **done);
/* n turns into its results. outs is taken over. */
shoal_status lower_replace(struct lowering *lo, struct shoal_node *n, shoal_out *outs, struct shoal_node *done);

/* Ops in whose place the functions are put that their attributes name. */
bool lower_is_call_op(const char *op);
bool lower_is_control(const char *op);
/* RESOURCE_EXHAUSTED, naming the function, when as much as can be told beforehand is too much. */
shoal_status lower_check_size(const struct shoal_graph *g);

shoal_status lower_if(struct lowering *lo, struct shoal_node *n);
shoal_status lower_case(struct lowering *lo, struct shoal_node *n);
shoal_status lower_while(struct lowering *lo, struct shoal_node *n);

#endif

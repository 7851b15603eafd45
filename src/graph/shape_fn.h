/* Shape functions: each op's row may have one. It sees what is known of the inputs and says what it can of the
 * outputs; anything it does not set stays unknown. The common ones are here; a family's own are in its file. */
#ifndef GRAPH_SHAPE_FN_H
#define GRAPH_SHAPE_FN_H

#include "graph/graph.h"

struct shape_ctx {
  const struct shoal_node *node;
  const struct shape *in;             /* [n_in] */
  const struct tensor *const *values; /* [n_in] the input's value where it is constant, else NULL */
  struct shape *out;                  /* [n_out] unknown to begin with */
  /* Shapes behind resource handles (variables): input's and output's; rank -1 when unknown. */
  const struct shape *handle_in;
  struct shape *handle_out;
};

/* Infers the shapes of one node's outputs from those of its inputs (out_shapes of their nodes). */
shoal_status node_infer_shapes(struct shoal_node *n);
/* All nodes of the graph, loops included (merges widen until nothing changes). */
shoal_status graph_infer_shapes(struct shoal_graph *g);

/* Checks an input's rank, when known, and gives the shape with that rank. */
shoal_status shape_in_rank(struct shape_ctx *c, int i, int rank, struct shape *out);
shoal_status shape_in_rank_at_least(struct shape_ctx *c, int i, int rank, struct shape *out);
/* The value of input i as a shape: fully or partly known, or unknown (of a known rank where the input's
 * length is known). */
shoal_status shape_in_value(struct shape_ctx *c, int i, struct shape *out);
/* The value of an integer scalar input; false when it is not constant. */
bool shape_in_int(struct shape_ctx *c, int i, int64_t *out);

/* Ready-made functions. */
shoal_status shape_unchanged(struct shape_ctx *c);        /* every output has input 0's shape */
shoal_status shape_scalar_out(struct shape_ctx *c);       /* every output is a scalar */
shoal_status shape_unknown_out(struct shape_ctx *c);      /* nothing is known */
shoal_status shape_broadcast_binary(struct shape_ctx *c); /* inputs 0 and 1 broadcast */
shoal_status shape_reduction(struct shape_ctx *c);        /* input 0 reduced over input 1, attr keep_dims */
shoal_status shape_merge_all(struct shape_ctx *c);        /* all inputs and outputs of one shape */
shoal_status shape_explicit(struct shape_ctx *c);         /* output 0 as the attr "shape" says */
shoal_status shape_no_outputs(struct shape_ctx *c);

#endif

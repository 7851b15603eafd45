/* Reverse-mode gradients on graphs: graph_gradients() walks back from ys to xs and calls each op's gradient
 * function, which adds nodes to the same graph. */
#ifndef GRAPH_GRADIENT_H
#define GRAPH_GRADIENT_H

#include "graph/builder.h"

/* The gradient with respect to one tensor: dense (values only), or IndexedSlices: rows `indices` of a tensor of
 * shape dense_shape. No gradient: all zero. */
struct grad {
  shoal_out values;
  shoal_out indices;     /* node NULL: dense */
  shoal_out dense_shape; /* with indices; node NULL: unknown */
};

static inline bool grad_none(struct grad g) { return !g.values.node; }
static inline bool grad_sparse(struct grad g) { return g.indices.node != NULL; }
static inline struct grad grad_dense(shoal_out o) { return (struct grad){.values = o}; }

/* What an op's gradient function sees and sets. */
struct grad_ctx {
  struct shoal_graph *g;
  struct shoal_node *node; /* the forward op */
  struct grad *dy;         /* [n_out] gradients of the outputs; none where nothing flows back */
  struct grad *dx;         /* [n_in] to be set; what is left alone is "no gradient" */
};

/* The forward node's input and output, by index. */
static inline shoal_out gin(const struct grad_ctx *c, int i) { return c->node->in[i]; }
static inline shoal_out gout(const struct grad_ctx *c, int i) { return node_out(c->node, i); }
/* dy[i] as a dense tensor: slices are added up, and zeros stand in for none. */
shoal_out grad_dy(struct grad_ctx *c, int i);
/* Sets dx[i]; a {NULL,0} out leaves it unset. */
void grad_set(struct grad_ctx *c, int i, shoal_out dx);
void grad_set_slices(struct grad_ctx *c, int i, shoal_out values, shoal_out indices, shoal_out dense_shape);
/* Sums dx over the dimensions that broadcasting added, so that it has like's shape. */
shoal_out grad_unbroadcast(struct shoal_graph *g, shoal_out dx, shoal_out like, shoal_out other, int which);
/* Slices to a dense tensor (UnsortedSegmentSum). */
shoal_out grad_densify(struct shoal_graph *g, struct grad gr);
/* For ops whose output has no gradient at all. */
shoal_status grad_stop(struct grad_ctx *c);
/* dx[0] = dy[0]. */
shoal_status grad_pass(struct grad_ctx *c);

/* d(sum of ys)/dxs. dys (optional, [ny]; entries with node NULL mean ones) weigh the ys; nothing flows through
 * stop (n_stop). Results that do not exist are "none". Nodes go under the scope "gradients"; each is placed with
 * its forward op when colocate. Loops and conditionals of both generations are supported. */
shoal_status graph_gradients(struct shoal_graph *g, const shoal_out *ys, int ny, const struct grad *dys,
                             const shoal_out *xs, int nx, const shoal_out *stop, int n_stop, bool colocate,
                             struct grad *dxs);

#endif

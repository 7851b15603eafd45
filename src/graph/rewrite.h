/* Rewrites: a pruned, placed graph made cheaper before it is compiled. None changes a result beyond rounding; each can
 * be switched off by name.
 *
 * Adding one: a file with its function, and a row in rewrite.c's table. */
#ifndef GRAPH_REWRITE_H
#define GRAPH_REWRITE_H

#include "graph/graph.h"

struct rewrite_options {
  const char *off; /* names of rewrites not to do, comma-separated; "all"; NULL: do all */
  /* Runs a stateless node whose inputs are all known, on the host. Fails where it cannot (that is no error). NULL: no
   * constant folding. */
  shoal_status (*evaluate)(void *arg, const struct shoal_node *n, const struct tensor *const *in, struct tensor *out);
  void *arg;
  /* Is output i of the node made of elements i of its inputs (equal in shape, or scalars)? NULL: no such fusion. */
  bool (*elementwise)(const struct shoal_node *n);
  /* Does the node's device have a kernel for it? Asked of nodes that rewrites make. NULL: yes. */
  bool (*has_kernel)(const struct shoal_node *n);
  bool own_ops; /* the graph stays in this process: ops that TensorFlow does not know may stand in it */
  /* Is the node's device of the host's type? Asked by rewrites that are for others. NULL: yes. */
  bool (*of_host)(const struct shoal_node *n);
};

shoal_status graph_rewrite(struct shoal_graph *g, const struct rewrite_options *o);

/* ---- for rewrites ---- */

struct rewriting {
  struct shoal_graph *g;
  const struct rewrite_options *o;
  struct consumers users; /* of the graph as it was when the rewrite began: of nodes with numbers below `known` */
  int known;
};

void rewrite_fold(struct rewriting *r);
void rewrite_merge(struct rewriting *r);
void rewrite_skip_unread(struct rewriting *r);
void rewrite_fuse_layers(struct rewriting *r);
void rewrite_fuse_pool(struct rewriting *r);
void rewrite_fuse_bias(struct rewriting *r);
void rewrite_fuse_norm(struct rewriting *r);
void rewrite_norm_averages(struct rewriting *r);
void rewrite_fuse_elementwise(struct rewriting *r);
void rewrite_fuse_softmax(struct rewriting *r);
void rewrite_fuse_gelu(struct rewriting *r);
void rewrite_fuse_gelu_grad(struct rewriting *r);
void rewrite_fuse_residual(struct rewriting *r);
void rewrite_fuse_dense(struct rewriting *r);
void rewrite_join_updates(struct rewriting *r);
void rewrite_join_gradients(struct rewriting *r);
void rewrite_sweep_updates(struct rewriting *r);
void rewrite_read_together(struct rewriting *r);

/* No state, no effect, no loop: may be computed once, elsewhere, or not at all. */
bool node_is_pure(const struct shoal_node *n);
/* Output 0's one data consumer, when there is exactly one and no control consumer; else NULL, as for nodes that the
 * rewrite has made itself. */
struct shoal_node *rewrite_only_consumer(const struct rewriting *r, const struct shoal_node *n);
/* All that read `from` read `to` instead. */
void rewrite_redirect(struct rewriting *r, shoal_out from, shoal_out to);
/* Control edges from `from` come from `to` instead. */
void rewrite_redirect_control(struct rewriting *r, struct shoal_node *from, struct shoal_node *to);
/* A node like `like`: its device, its colocation; name from base. attrs: on the heap, taken over. NULL: it could not be
 * made (never mind). */
struct shoal_node *rewrite_add(struct rewriting *r, const struct shoal_node *like, const char *base, const char *op,
                               const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs);
/* Updates of variables that may become one node: of one op, on one device, with the same attributes; and none of them
 * comes after another, nor before one of `gone`, which have become another one. */
typedef VEC(struct shoal_node *) rewrite_nodes;
bool rewrite_alike(const struct shoal_node *a, const struct shoal_node *b);
bool rewrite_chained(struct rewriting *r, const rewrite_nodes *members, const rewrite_nodes *gone);
/* What waited for a member waits for `one`, which waits for what the member did. */
void rewrite_takes_over(struct rewriting *r, struct shoal_node *one, struct shoal_node *member);
/* n stands for this node of the user's too (or NULL: for nothing more): an error in it is told under such a name. */
void rewrite_stands_for(struct shoal_node *n, const struct shoal_node *part);

#endif

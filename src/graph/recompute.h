/* Values that are computed again for the gradients, instead of being kept from the first time (tf.recompute_grad).
 *
 * What a program builds between graph_push_recompute and graph_pop_recompute is a part. When gradients go back through
 * it, they read copies of its nodes, which are made of what came into the part: so all that is inside may go as soon as
 * the nodes behind it were computed, and a model needs room for its parts' ends and for the inside of one part at a
 * time. The price is that part's arithmetic once more.
 *
 * The copies must not run before the way back has come to the part, nor may one who looks for equal nodes find them:
 * they read what comes in through an IdentityN, beside the first gradient to arrive. What has state stays as it is, a
 * draw of random numbers above all, and so does what is made of variables alone, and what the nodes behind the part
 * read, which is there anyway. It is a matter of graphs: TensorFlow's servers run them too. */
#ifndef GRAPH_RECOMPUTE_H
#define GRAPH_RECOMPUTE_H

#include "graph/builder.h"

/* Parts do not nest: what is opened inside one belongs to it. */
void graph_push_recompute(struct shoal_graph *g);
void graph_pop_recompute(struct shoal_graph *g);
/* Nodes from..to-1, by id, of part i; false: there are not so many. */
bool graph_recompute_part(const struct shoal_graph *g, size_t i, size_t *from, size_t *to);

/* ---- for gradients ---- */

struct recompute;
/* Nodes from `first` on are the gradients'. NULL: the graph has no parts. */
struct recompute *recompute_new(struct shoal_graph *g, size_t first);
/* Nodes from id `made` on are the gradient of n, and dy is that of one of its outputs. */
void recompute_note(struct recompute *c, const struct shoal_node *n, size_t made, shoal_out dy);
/* Gradients read copies. */
void recompute_apply(struct recompute *c);
void recompute_free(struct recompute *c);

#endif

/* Sums over all copies of a model, for who builds one copy and does not know how copies meet: layers, and gradients of
 * such sums, which are sums again. Whoever builds the copies (strategy/) says how. A graph is built by one thread at a
 * time, so the copy that is being built is known to the thread. */
#ifndef GRAPH_ACROSS_H
#define GRAPH_ACROSS_H

#include "graph/builder.h"

/* So many that draw random numbers a copy has: layers, and seeds of the step. */
struct draws {
  int layers, seeds;
};

struct across {
  struct shoal_graph *g;
  int copy; /* its number among all, those of other processes as well */
  struct draws draws;
  /* The sum of what all copies bring, which all get. Each must come here, in the same order. */
  shoal_out (*sum)(struct across *a, shoal_out value);
  /* Is a condition true in all copies? The same rule. */
  shoal_out (*all)(struct across *a, shoal_out is);
};

/* NULL: there is one copy. */
struct across *across_on(const struct shoal_graph *g);
void across_begin(struct across *a);
void across_end(void);
/* What is drawn goes by how many there were before in the copy, and by the copy's number: not by where it stands in its
 * graph, which depends on how copies meet and how many of them are here. To be added to a seed; each is another. */
int64_t across_layer(struct across *a);
int64_t across_seed(struct across *a);

/* Marks a collective op that is a sum, or a mean, over all copies: it has a gradient. */
#define ACROSS_ATTR "_across"

#endif

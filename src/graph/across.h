/* Sums over all copies of a model, for who builds one copy and does not know how copies meet: layers, and gradients of
 * such sums, which are sums again. Whoever builds the copies (strategy/) says how. A graph is built by one thread at a
 * time, so the copy that is being built is known to the thread. */
#ifndef GRAPH_ACROSS_H
#define GRAPH_ACROSS_H

#include "graph/builder.h"

struct across {
  struct shoal_graph *g;
  /* The sum of what all copies bring, which all get. Each must come here, in the same order. */
  shoal_out (*sum)(struct across *a, shoal_out value);
  /* Is a condition true in all copies? The same rule. */
  shoal_out (*all)(struct across *a, shoal_out is);
};

/* NULL: there is one copy. */
struct across *across_on(const struct shoal_graph *g);
void across_begin(struct across *a);
void across_end(void);

/* Marks a collective op that is a sum, or a mean, over all copies: it has a gradient. */
#define ACROSS_ATTR "_across"

#endif

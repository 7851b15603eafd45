/* As base/given.h, in functions that build graphs: the graph keeps the error, and what stands behind is returned. */
#ifndef GRAPH_GIVEN_H
#define GRAPH_GIVEN_H

#include "base/given.h"
#include "graph/builder.h"
#include "graph/graph.h"

/* Is it a node of this graph, not of another? */
static inline bool graph_has(const struct shoal_graph *g, const struct shoal_node *n) {
  return (size_t)n->id < g->nodes.n && g->nodes.at[n->id] == n;
}

#define GRAPH_TRY(g, expr, ...)   \
  do {                            \
    shoal_status try_s_ = (expr); \
    if (try_s_) {                 \
      graph_fail(g, try_s_);      \
      return __VA_ARGS__;         \
    }                             \
  } while (0)
#define GRAPH_GIVEN(g, arg, ...) GRAPH_TRY(g, (arg) ? NULL : INVALID("%s: %s is NULL", __func__, #arg), __VA_ARGS__)
#define GRAPH_GIVEN_ARRAY(g, array, n, ...) GRAPH_TRY(g, given_array(__func__, #array, array, n), __VA_ARGS__)
#define GRAPH_GIVEN_NAMES(g, array, n, ...) GRAPH_TRY(g, given_names(__func__, #array, array, n), __VA_ARGS__)

#endif

/* A GraphDef with a function library from anyone: lowering it gives plain nodes or a named error, and so does asking
 * for gradients of its last tensor with respect to its first. */
#include <stdint.h>
#include <stdlib.h>

#include "graph/gradient.h"
#include "graph/import.h"
#include "graph/lower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(shoal_status s) {
  if (s && shoal_status_message(s)[0] == 0) abort();
  shoal_status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct shoal_graph *g = graph_new();
  struct import_options options = {.internal = true, .max_nodes = 1000};
  shoal_status s = graph_import(g, data, size, &options, NULL);
  if (!s) s = graph_lower(g);
  if (!s && graph_needs_lowering(g)) abort();
  shoal_out x = {0}, y = {0};
  for (size_t i = 0; !s && i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n || !n->n_out) continue;
    if (!x.node) x = node_out(n, 0);
    y = node_out(n, 0);
  }
  if (!s && y.node) {
    struct grad dx;
    s = graph_gradients(g, &y, 1, NULL, &x, 1, NULL, 0, true, &dx);
  }
  check(s);
  graph_free(g);
  return 0;
}

#include "graph/across.h"

static _Thread_local struct across *on;

struct across *across_on(const struct shoal_graph *g) {
  return on && on->g == g ? on : NULL;
}

/* Seeds of the step are the numbers around a multiple of the graph's seed: above it those of the graph, below it those
 * of copies. Layers, and copies, are as far apart as to be in nobody's way. */
enum { LAYER_BITS = 20, COPY_BITS = 44 };
static int64_t of_copy(const struct across *a) { return (int64_t)a->copy << COPY_BITS; }
int64_t across_layer(struct across *a) { return of_copy(a) + ((int64_t)++a->draws.layers << LAYER_BITS); }
int64_t across_seed(struct across *a) { return of_copy(a) - ++a->draws.seeds; }

void across_begin(struct across *a) { on = a; }
void across_end(void) { on = NULL; }

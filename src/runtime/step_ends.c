/* Ends of steps that go where they are used; see step_ends.h. */
#include "runtime/step_ends.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool has_own_memory(struct plan_places *p, const char *device) {
  int i = p->place_of(p->arg, device);
  return i >= 0 && !p->devices[i]->type->host;
}

static void move_end(struct shoal_node *end, const char *device) {
  char *to = mem_strdup(device);
  free(end->assigned);
  end->assigned = to;
  graph_set_device(end, to);
}

/* The device of all that read a feed, by its node; "": there are several. */
static void find_readers(const struct shoal_graph *g, const char **readers) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    for (int k = 0; n && k < n->n_in + (int)n->control.n; k++) {
      const struct shoal_node *from = k < n->n_in ? n->in[k].node : n->control.at[k - n->n_in];
      const char **to = from ? &readers[from->id] : NULL;
      if (to) *to = !*to || !strcmp(*to, n->assigned) ? n->assigned : "";
    }
  }
}

void step_ends_follow(struct plan_places *p, struct shoal_graph *g) {
  bool any = false;
  for (int i = 0; i < p->n_devices; i++) any |= !p->devices[i]->type->host;
  if (!any) return;
  const char **readers = mem_zalloc(g->nodes.n, sizeof *readers);
  find_readers(g, readers);
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    bool arg = n && op_is(n->op, "_Arg"), ret = n && op_is(n->op, "_Retval");
    const char *to = arg ? readers[i] : ret ? n->in[0].node->assigned : NULL;
    if (to && has_own_memory(p, to)) move_end(n, to);
  }
  free(readers);
}

/* Frames of loops, from Enter and Exit along the topological order. */
#include "graph/frames.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool is_either(const struct shoal_node *n, const char *name) {
  const char *op = n->op->name;
  return !strcmp(op, name) || (op[0] == 'R' && op[1] == 'e' && op[2] == 'f' && !strcmp(op + 3, name));
}

bool node_is_enter(const struct shoal_node *n) { return is_either(n, "Enter"); }
bool node_is_exit(const struct shoal_node *n) { return is_either(n, "Exit"); }
bool node_is_merge(const struct shoal_node *n) { return is_either(n, "Merge"); }
bool node_is_switch(const struct shoal_node *n) { return is_either(n, "Switch") || op_is(n->op, "_SwitchN"); }
bool node_is_next_iteration(const struct shoal_node *n) { return is_either(n, "NextIteration"); }

static int enter(struct frames *f, struct strmap *ids, int parent, const struct shoal_node *n) {
  const struct attr *name = node_attr(n, "frame_name"), *parallel = node_attr(n, "parallel_iterations");
  char *key = mem_printf("%d;%s", parent, name && name->kind == ATTR_STRING ? name->s.data : "");
  int id = (int)(intptr_t)strmap_get(ids, key);
  if (!id) {
    id = (int)f->at.n;
    strmap_put(ids, key, (void *)(intptr_t)id);
    int64_t most = parallel && parallel->kind == ATTR_INT ? parallel->i : 10;
    vec_push(&f->at, (struct frame_def){.name = mem_strdup(strchr(key, ';') + 1),
                                        .parent = parent,
                                        .parallel_iterations = (int)MAX(1, MIN(most, 1 << 20))});
  }
  free(key);
  f->at.at[id].n_enters++;
  return id;
}

static shoal_status assign(struct frames *f, struct strmap *ids, const struct shoal_node *n, const bool *seen) {
  int frame = -1;
  for (int k = 0; k < n->n_in + (int)n->control.n; k++) {
    const struct shoal_node *from = k < n->n_in ? n->in[k].node : n->control.at[k - n->n_in];
    if (!from || !seen[from->id]) continue; /* the way round a loop */
    int theirs = f->output_in[from->id];
    if (frame >= 0 && theirs != frame)
      return INVALID(
          "Invalid graph: {{node %s}} has inputs from different frames. The input {{node %s}} is in frame "
          "'%s', another in frame '%s'.",
          n->name, from->name, f->at.at[theirs].name, f->at.at[frame].name);
    frame = theirs;
  }
  if (frame < 0) frame = 0;
  f->runs_in[n->id] = f->output_in[n->id] = frame;
  if (node_is_enter(n)) {
    f->output_in[n->id] = enter(f, ids, frame, n);
  } else if (node_is_exit(n)) {
    if (f->at.at[frame].parent < 0)
      return INVALID("Invalid graph: {{node %s}} leaves a loop that it is not in", n->name);
    f->output_in[n->id] = f->at.at[frame].parent;
  }
  return NULL;
}

shoal_status frames_init(struct frames *f, const struct shoal_graph *g, struct shoal_node *const *order) {
  *f = (struct frames){0};
  f->runs_in = mem_zalloc(g->nodes.n, sizeof *f->runs_in);
  f->output_in = mem_zalloc(g->nodes.n, sizeof *f->output_in);
  vec_push(&f->at, (struct frame_def){.name = mem_strdup(""), .parent = -1, .parallel_iterations = 1});
  bool *seen = mem_zalloc(g->nodes.n, sizeof *seen);
  struct strmap ids = {0};
  shoal_status s = NULL;
  for (int i = 0; i < g->n_nodes && !s; i++) {
    s = assign(f, &ids, order[i], seen);
    seen[order[i]->id] = true;
  }
  strmap_release(&ids);
  free(seen);
  if (s) frames_release(f);
  return s;
}

void frames_release(struct frames *f) {
  for (size_t i = 0; i < f->at.n; i++) free(f->at.at[i].name);
  vec_release(&f->at);
  free(f->runs_in);
  free(f->output_in);
  f->runs_in = f->output_in = NULL;
}

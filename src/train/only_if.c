/* Updates that happen only in some steps: see the header. */
#include "train/only_if.h"

struct only_if only_if_begin(struct shoal_graph *g, shoal_out happens) {
  struct only_if w = {.g = g, .choice = build_op2(g, "Switch", happens, happens).node};
  struct shoal_node *pivot = build_op1(g, "Identity", node_out(w.choice, 1)).node;
  graph_push_control(g, &pivot, 1);
  return w;
}

struct shoal_node *only_if_end(struct only_if *w, struct shoal_node *done) {
  graph_push_control(w->g, &done, 1);
  shoal_out yes = build_op1(w->g, "Identity", node_out(w->choice, 1));
  graph_pop_control(w->g);
  graph_pop_control(w->g);
  struct build b = build_begin(w->g, "Merge", NULL);
  build_in(&b, node_out(w->choice, 0));
  build_in(&b, yes);
  return build_end(&b);
}

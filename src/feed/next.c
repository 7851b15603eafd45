/* Iterators in the graph: the next element as outputs, begun by the session, with a place in checkpoints.
 *
 * The op that begins an iterator has a mark, by which training sessions find it. A
 * saved place is a number of elements (train/input.c says why), which is added to in the step that takes one: outputs
 * are there only when both are done. A run that goes on skips so many; sources that can do that without reading do. */
#include "base/options.h"
#include "feed/order.h"
#include "graph/given.h"
#include "train/train_session.h"

/* An attribute of the op that begins an iterator: whose place it begins behind. */
#define PLACE_OF "_place_of"

/* The iterator, and the op that begins it. */
static struct shoal_node *build_iterator(shoal_graph *g, shoal_out from, const struct feed_element *e,
                                         shoal_out *iterator) {
  struct build i = build_begin(g, "IteratorV2", "iterator");
  build_attr_string(&i, "shared_name", "");
  build_attr_string(&i, "container", "");
  *iterator = dataset_end(&i, e);
  struct build make = build_begin(g, "MakeIterator", NULL);
  build_in(&make, from);
  build_in(&make, *iterator);
  struct shoal_node *begin = build_end(&make);
  if (begin) node_set_attr(begin, LOCAL_INIT_MARK, attr_bool(true));
  return begin;
}

/* Two iterators that count in one place would both skip too much. */
static shoal_status claim(const char *caller, const shoal_graph *g, int worker) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct attr *a = g->nodes.at[i] ? node_attr(g->nodes.at[i], PLACE_OF) : NULL;
    if (a && a->kind == ATTR_INT && a->i == worker)
      return INVALID("%s: the place of worker %d is that of another iterator", caller, worker);
  }
  return NULL;
}

/* The element, once the place behind it is noted. */
static void note(shoal_graph *g, shoal_input in, struct shoal_node *next, shoal_out *out, int n) {
  if (graph_error(g)) return;
  graph_add_control(in.advance, next);
  graph_push_control(g, &in.advance, 1);
  for (int i = 0; i < n; i++) out[i] = build_op1(g, "Identity", out[i]);
  graph_pop_control(g);
}

static shoal_status check(const char *caller, shoal_out d, const shoal_out *out, int n, struct feed_element *e) {
  TRY(given_array(caller, "out", out, n));
  TRY(element_of(caller, d, e));
  return n == e->n ? NULL
                   : INVALID("%s: an element of '%s' has %d components, and there are %d places for it", caller,
                             d.node->name, e->n, n);
}

shoal_op *shoal_dataset_next(shoal_graph *g, shoal_out d, shoal_out *out, int n, const shoal_next_options *options) {
  shoal_next_options o = {0};
  struct feed_element e;
  shoal_input in = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_next_options, worker, &o, options), NULL);
  GRAPH_TRY(g, check(__func__, d, out, n, &e), NULL);
  if (o.saved) GRAPH_TRY(g, claim(__func__, g, o.worker), NULL);
  if (o.saved) in = shoal_input_position(g, o.worker);
  graph_push_scope(g, "next");
  if (o.saved) d = feed_skip(g, d, &e, in.position);
  shoal_out iterator;
  struct shoal_node *begin = build_iterator(g, d, &e, &iterator);
  if (begin && o.saved) node_set_attr(begin, PLACE_OF, attr_int(o.worker));
  struct build b = build_begin(g, "IteratorGetNext", NULL);
  build_in(&b, iterator);
  struct shoal_node *next = dataset_end(&b, &e).node;
  for (int i = 0; i < n; i++) out[i] = node_out(next, i);
  if (o.saved) note(g, in, next, out, n);
  graph_pop_scope(g);
  return begin;
}

/* The graph of shared work: three variables and what changes them.
 *
 *   work_next      how many items were handed out. CountUpTo adds to it and gives what it was, in one go: two workers
 *                  never get the same number
 *   work_owners    of each item: WORK_NOBODY, a worker, WORK_DONE
 *   work_used      of each item: how many elements were trained on
 *
 * The last two are made longer where a run goes on with more items than its checkpoint has, so their length is not part
 * of the graph.
 *
 * All of them are ops that TensorFlow's servers have. A queue of numbers was rejected: what was taken out of it and not
 * yet noted anywhere would be lost with the worker that took it, and checkpoints do not hold queues. */
#include "feed/order.h"
#include "feed/work.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/variables.h"

/* of: one number, or a row of numbers that may become longer. */
static shoal_var zeros(shoal_graph *g, const char *name, shoal_dims of) {
  bool refs = graph_ref_variables(g); /* ours alone: no program of TensorFlow 1 has it */
  graph_set_ref_variables(g, false);
  shoal_out initial = shoal_init_zeros(g, SHOAL_INT64, of);
  shoal_var v = of.rank ? variable_growing(g, name, initial) : shoal_variable_untrained(g, name, initial);
  graph_set_ref_variables(g, refs);
  return v;
}

static shoal_op *lengthen(shoal_graph *g, shoal_var v, shoal_out by) {
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, (const shoal_out[]){v.value, by}, 2);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  return shoal_variable_assign(g, v, build_end_out(&b));
}

static struct shoal_node *scatter(shoal_graph *g, const char *op, shoal_var v, shoal_out item, int64_t value) {
  if (graph_error(g)) return NULL;
  graph_push_colocation(g, v.handle.node);
  struct build b = build_begin(g, op, NULL);
  build_in(&b, v.handle);
  build_in(&b, item);
  build_in(&b, build_const_int(g, SHOAL_INT64, value));
  struct shoal_node *n = build_end(&b);
  graph_pop_colocation(g);
  return n;
}

static void build_variables(shoal_graph *g, const shoal_work_options *o, struct work_graph *w) {
  shoal_var next = zeros(g, "work_next", SHOAL_SCALAR);
  shoal_var owners = zeros(g, "work_owners", (shoal_dims){1, &o->items});
  shoal_var used = zeros(g, "work_used", (shoal_dims){1, &o->items});
  struct build count = build_begin(g, "ResourceCountUpTo", NULL);
  build_in(&count, next.handle);
  build_attr_int(&count, "limit", o->items);
  build_attr_type(&count, "T", SHOAL_INT64);
  w->ticket = build_end_out(&count);
  w->own = scatter(g, "ResourceScatterUpdate", owners, w->item, o->worker + 1);
  w->done = scatter(g, "ResourceScatterUpdate", owners, w->item, WORK_DONE);
  w->advance = scatter(g, "ResourceScatterAdd", used, w->item, 1);
  w->items[0] = (struct work_items){owners.value, lengthen(g, owners, w->more)};
  w->items[1] = (struct work_items){used.value, lengthen(g, used, w->more)};
}

static void build_iterator(shoal_graph *g, shoal_out d, const struct feed_element *e, struct work_graph *w) {
  struct build i = build_begin(g, "IteratorV2", "work_iterator");
  build_attr_string(&i, "shared_name", "");
  build_attr_string(&i, "container", "");
  shoal_out iterator = dataset_end(&i, e);
  struct build begin = build_begin(g, "MakeIterator", NULL);
  build_in(&begin, feed_skip(g, d, e, w->skip));
  build_in(&begin, iterator);
  w->begin = build_end(&begin);
  struct build next = build_begin(g, "IteratorGetNext", NULL);
  build_in(&next, iterator);
  w->next = dataset_end(&next, e).node;
}

static shoal_status check(const shoal_work_options *o) {
  if (o->items < 1) return INVALID("shoal_work_new: %lld items", (long long)o->items);
  if (o->worker < 0) return INVALID("shoal_work_new: worker %d", o->worker);
  if (!(o->lease_secs >= 0)) return INVALID("shoal_work_new: a lease of %g seconds", o->lease_secs);
  return o->dataset ? NULL : INVALID("shoal_work_new: dataset is NULL");
}

shoal_status work_graph_build(shoal_graph *g, const shoal_work_options *o, int n, struct work_graph *w) {
  struct feed_element e;
  TRY(check(o));
  w->item = shoal_placeholder(g, SHOAL_INT64, SHOAL_SCALAR, "work_item");
  w->skip = shoal_placeholder(g, SHOAL_INT64, SHOAL_SCALAR, "work_skip");
  w->more = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "work_more");
  shoal_out d = o->dataset(g, w->item, o->arg);
  if (graph_error(g)) return NULL;
  TRY(element_of("shoal_work_new", d, &e));
  if (n != e.n)
    return INVALID("shoal_work_new: an element of '%s' has %d components, and there are %d places for it", d.node->name,
                   e.n, n);
  build_variables(g, o, w);
  build_iterator(g, d, &e, w);
  w->n = n;
  for (int i = 0; i < n; i++)
    w->in[i] = shoal_placeholder(g, e.types[i], (shoal_dims){e.shapes[i].rank, e.shapes[i].dims}, "work");
  return NULL;
}

/* Do all tasks run the same program? Collectives know each other by numbers, so tasks whose programs differ would meet
 * in the wrong ones, or wait for each other in vain. So before anything is trained, in the step that initialises local
 * variables, all come to one collective whose value has no elements, and whose shape is what a strategy is made of. The
 * leader of a group compares shapes before anything is sent, and tells all members of a difference, with both shapes;
 * the name of the op says what their dimensions are. (The numbers themselves, summed and compared, were tried first:
 * steps of programs that differ do not meet.) What else that step has of collectives comes after it: a task that was
 * told ends, and another that still waited for it elsewhere would see one that is lost, before it was told.
 *
 * Variables are made until the graph is whole: the shape is a constant that is set anew with each of them. How many
 * collectives there are is not compared: one that is built and not run is no mistake. */
#include <string.h>

#include "base/fingerprint.h"
#include "strategy/strategy.h"

enum { FACTS = 7 };
static const char facts_named[] =
    "the_tasks_differ_in/none.replicas.replicas_of_a_task.shard_state.gradients.bucket_kib.initial_values";

void agree_on_initial(struct shoal_strategy *s, shoal_out value, struct shoal_node *op) {
  struct shape shape = out_shape(value);
  uint64_t h = fingerprint_cat64(s->initial_hash, (uint64_t)out_type(value));
  h = fingerprint_cat64(h, (uint64_t)shape.rank);
  for (int i = 0; i < shape.rank; i++) h = fingerprint_cat64(h, (uint64_t)shape.dims[i]);
  s->initial_hash = h;
  if (op) vec_push(&s->after_it, op);
}

static void set_facts(const struct shoal_strategy *s, struct shoal_node *constant) {
  const int64_t facts[FACTS] = {0,
                                s->replicas,
                                s->local,
                                strategy_shards(s),
                                s->gradients,
                                s->bucket_bytes >> 10,
                                (int64_t)(s->initial_hash >> 33)};
  struct tensor t;
  struct shape shape = {.rank = 1, .dims = {FACTS}};
  shoal_status e = tensor_new(&t, SHOAL_INT64, &shape);
  if (!e) {
    memcpy(T_DATA(&t, int64_t), facts, sizeof facts);
    node_set_attr(constant, "value", attr_tensor(&t));
    tensor_release(&t);
  }
  shoal_status_free(e); /* then nothing is compared */
}

/* A value of that shape, which is not known before the graph is whole. */
static shoal_out shaped(struct shoal_graph *g, shoal_out facts) {
  return build_op2(g, "Reshape", build_const_ints(g, SHOAL_INT32, NULL, 0), build_op1(g, "Identity", facts));
}

static void make(struct shoal_graph *g, struct shoal_strategy *s) {
  const int64_t none[FACTS] = {0};
  graph_push_scope_root(g);
  graph_push_scope(g, facts_named);
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  shoal_out facts = build_const_ints(g, SHOAL_INT64, none, FACTS);
  struct shoal_node *met = reduce_member(g, s, GROUP_FIRSTS, AGREE_KEY, SHOAL_REDUCE_MAX, shaped(g, facts)).node;
  graph_push_control(g, &met, met ? 1 : 0);
  shoal_out yes = build_op1(g, "Identity", build_const_int(g, SHOAL_BOOL, 1));
  graph_pop_control(g);
  variable_make(g, "not", yes, VARIABLE_LOCAL);
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  graph_pop_scope(g);
  s->facts = facts.node;
  s->compared = met;
}

static void compare(struct shoal_graph *g, struct shoal_strategy *s) {
  if (s->facts_of != g) make(g, s);
  s->facts_of = g;
  if (s->facts) set_facts(s, s->facts);
  for (size_t i = 0; s->compared && i < s->after_it.n; i++) graph_add_control(s->after_it.at[i], s->compared);
}

void agree(struct shoal_graph *g, struct shoal_strategy *s) {
  if (strategy_meets(s) && !s->tensorflow && !graph_error(g)) compare(g, s);
  vec_clear(&s->after_it);
}

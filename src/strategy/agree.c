/* Do all tasks run the same program? Collectives know each other by numbers, so tasks whose programs differ would meet
 * in the wrong ones, or wait for each other in vain. So before anything is trained, in the step that initialises local
 * variables, all come to one collective whose value has no elements, and whose shape is what a strategy is made of. The
 * leader of a group compares shapes before anything is sent, and tells all members of a difference, with both shapes;
 * the name of the op says what their dimensions are. (The numbers themselves, summed and compared, were tried first:
 * steps of programs that differ do not meet.) What else that step has of collectives comes after it: a task that was
 * told ends, and another that still waited for it elsewhere would see one that is lost, before it was told.
 *
 * Variables are made until the graph is whole: the shape is a constant that is set anew with each of them. How many
 * collectives there are is not compared: one that is built and not run is no mistake.
 *
 * Of a training session more is compared, by numbers that go around in a step of their own, once the model is there:
 * all do the same from there on, or wait for each other in vain, or change their weights by other rules. What a replica
 * computes its gradients from is not compared: they are summed, and all replicas have the same sum. What applies them
 * is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "strategy/strategy.h"

enum { FACTS = 7 };
static const char facts_named[] =
    "the_tasks_differ_in/none.replicas.replicas_of_a_task.shard_state.gradients.bucket_kib.initial_values";
/* The same for people. */
static const char *const facts_told[FACTS] = {
    NULL,
    "the number of replicas",
    "task_devices, the replicas of each task",
    "shard_state",
    "gradients, the way they are reduced",
    "bucket_kib",
    "the model, the types and shapes of its variables",
};

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

/* ---- what sessions do ---- */

enum { SESSION_FACTS = 6 };

static const struct {
  const char *name;
  bool fingerprint; /* the number says nothing to people */
} session_facts[SESSION_FACTS] = {
    {"messages, the type that gradients travel as", true},
    {"the optimizer: which it is, its numbers, or its learning rate", true},
    {"the number of batches that gradients are accumulated over", false},
    {"the number of hooks that feed all tasks' batches (shoal_strategy_input_hook, shoal_strategy_dataset_hook)",
     false},
    {"steps_per_execution", false},
    {"stop_at_step", false},
};

void agree_on_applied(struct shoal_strategy *s, const struct variable_maker *m) {
  if (m->applied) s->applied_hash = fingerprint_cat64(s->applied_hash, m->applied);
  s->accumulated += m->accumulated;
}

/* The largest of all tasks' facts, and of the same below zero: the least. */
struct poll agree_build_session(struct shoal_graph *g, struct shoal_strategy *s) {
  struct poll p;
  graph_push_scope(g, "sessions_alike");
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  p.fed = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(2 * SESSION_FACTS), "facts");
  p.most = reduce_member(g, s, GROUP_FIRSTS, ALIKE_KEY, SHOAL_REDUCE_MAX, p.fed);
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  return p;
}

static shoal_status compare_all(const int64_t *own, const int64_t *most) {
  for (int i = 0; i < SESSION_FACTS; i++) {
    int64_t largest = most[i], least = -most[SESSION_FACTS + i];
    if (largest == least) continue;
    if (session_facts[i].fingerprint) return INVALID("the tasks' programs differ in %s", session_facts[i].name);
    return INVALID("the tasks' programs differ in %s: %" PRId64 " in this one, %" PRId64 " in another",
                   session_facts[i].name, own[i], own[i] == least ? largest : least);
  }
  return NULL;
}

shoal_status agree_on_session(const struct shoal_strategy *s, const struct poll *p, shoal_session *session) {
  int64_t facts[2 * SESSION_FACTS] = {s->messages,         (int64_t)(s->applied_hash >> 1),
                                      s->accumulated,      s->feeds,
                                      s->rules.steps_each, MAX(s->rules.stop_at_step, (int64_t)0)};
  const int64_t dims[] = {2 * SESSION_FACTS};
  shoal_tensor *t, *most = NULL;
  for (int i = 0; i < SESSION_FACTS; i++) facts[SESSION_FACTS + i] = -facts[i];
  TRY(shoal_tensor_from(SHOAL_INT64, 1, dims, facts, sizeof facts, &t));
  shoal_status e = shoal_session_step(session, SHOAL_FEED(p->fed, t), SHOAL_FETCH(p->most, &most), NULL);
  if (!e) e = compare_all(facts, shoal_tensor_const_data(most));
  /* All have heard the same, and nobody leaves before all have: who had not would take that one for lost. */
  if (most && e) shoal_status_free(shoal_session_step(session, SHOAL_FEED(p->fed, t), SHOAL_NO_FETCHES, p->most.node));
  shoal_tensor_unref(most);
  shoal_tensor_unref(t);
  return e;
}

/* ---- telling people ---- */

/* The numbers of the shape behind some words. */
static bool read_shape(const char *message, const char *words, int64_t out[FACTS]) {
  const char *at = strstr(message, words);
  if (!at) return false;
  at += strlen(words);
  for (int i = 0; i < FACTS; i++) {
    char *end;
    if (*at++ != (i ? ',' : '[')) return false;
    out[i] = strtoll(at, &end, 10);
    if (end == at) return false;
    at = end;
  }
  return *at == ']';
}

shoal_status agree_explain(shoal_status e) {
  const char *message = shoal_status_message(e);
  int64_t one[FACTS], other[FACTS];
  if (!strstr(message, facts_named) || !read_shape(message, " expected shape ", one) ||
      !read_shape(message, " group expected shape ", other))
    return e;
  int i = 1;
  while (i < FACTS - 1 && one[i] == other[i]) i++;
  shoal_status told = i == FACTS - 1
                          ? INVALID("the tasks' programs differ in %s\n%s", facts_told[i], message)
                          : INVALID("the tasks' programs differ in %s: %" PRId64 " in one, %" PRId64 " in another\n%s",
                                    facts_told[i], one[i], other[i], message);
  shoal_status_free(e);
  return told;
}

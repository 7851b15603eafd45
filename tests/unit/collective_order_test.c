/* The order in which a graph comes to its collectives: each says what it holds back, and to find that costs little,
 * whatever the graph. */
#include "unit.h"

#include "base/clock.h"
#include "cluster/collectives.h"
#include "graph/attr.h"
#include "graph/graph.h"
#include "shoal/shoal.h"

static void add_collective(struct text *t, int i, const char *after) {
  text_addf(t,
            "node { name: 'c%d' op: 'CollectiveReduce' device: '/job:worker/task:0/cpu:0' input: 'x' %s "
            "attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'merge_op' value { s: 'Add' } } "
            "attr { key: 'final_op' value { s: 'Id' } } attr { key: 'group_size' value { i: 2 } } "
            "attr { key: 'group_key' value { i: 1 } } attr { key: 'instance_key' value { i: %d } } "
            "attr { key: 'subdiv_offsets' value { list { i: 0 } } } }\n",
            i, after, i);
}

/* Each input `of`, with a number behind it. */
static void add_sum(struct text *t, const char *name, const char *of, bool numbered, int n) {
  text_addf(t,
            "node { name: '%s' op: 'AddN' attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'N' value { i: %d } }",
            name, n);
  for (int i = 0; i < n; i++)
    if (numbered) text_addf(t, " input: '%s%d'", of, i);
    else text_addf(t, " input: '%s'", of);
  text_adds(t, " }\n");
}

static struct shoal_graph *imported(struct text *t) {
  struct shoal_graph *g = shoal_graph_new();
  ASSERT_OK(shoal_graph_import_text(g, text_cstr(t), t->n, NULL));
  text_release(t);
  return g;
}

static struct text beginning(void) {
  struct text t = {0};
  text_adds(&t, "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }\n");
  return t;
}

static const struct attr *held_by(const struct shoal_graph *g, const char *name) {
  return node_attr(graph_find(g, name), HOLDS_BACK_ATTR);
}

static void what_comes_after_is_held_back(void **state) {
  struct text t = beginning();
  add_collective(&t, 3, "");
  add_collective(&t, 2, "input: '^c3'");
  add_collective(&t, 1, "input: '^c2'");
  struct shoal_graph *g = imported(&t);
  collective_order(g);
  const struct attr *held = held_by(g, "c3");
  assert_non_null(held);
  assert_int_equal(held->list.n, 2);
  for (int i = 0; i < 2; i++) assert_true(held->list.at[i].i == orders_key(1, i + 1)); /* sorted */
  assert_int_equal(held_by(g, "c2")->list.n, 1);
  assert_null(held_by(g, "c1"));
  shoal_graph_free(g);
}

/* Thousands of collectives with hundreds of thousands of edges behind each: few of these are walked. */
static void edges_are_counted(void **state) {
  enum { COLLECTIVES = 20000, EDGES = 200000 };
  struct text t = beginning();
  for (int i = 0; i < COLLECTIVES; i++) add_collective(&t, i, "");
  add_sum(&t, "all", "c", true, COLLECTIVES);
  add_sum(&t, "many", "all", false, EDGES);
  struct shoal_graph *g = imported(&t);
  int64_t began = clock_ns();
  collective_order(g);
  assert_true(clock_ns() - began < 1500000000);
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(what_comes_after_is_held_back), cmocka_unit_test(edges_are_counted))

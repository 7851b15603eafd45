/* GraphDef in and out: what is taken, what is refused and how, and that nothing is lost. */
#include "unit.h"

#include "base/wire.h"
#include "graph/function.h"
#include "graph/import.h"
#include "proto/graph.wire.h"
#include "proto/types.wire.h"
#include "shoal/graph.h"

#define X "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } } "
#define IDENTITY(name, in) \
  "node { name: '" name "' op: 'Identity' input: '" in "' attr { key: 'T' value { type: DT_FLOAT } } } "

static shoal_status take(struct shoal_graph *g, const char *text, const char *prefix) {
  return shoal_graph_import_text(g, text, strlen(text), prefix);
}

static void refuse(const char *text, shoal_code code, const char *why) {
  struct shoal_graph *g = graph_new();
  ASSERT_FAILS(take(g, text, NULL), code, why);
  assert_int_equal(g->n_nodes, 0);
  assert_int_equal(g->nodes.n, 0);
  graph_free(g);
}

static void bad_graphs_are_named(void **state) {
  refuse("node { name: 'a' op: 'Nonesuch' }", SHOAL_NOT_FOUND,
         "Op type not registered 'Nonesuch' in binary running on ");
  refuse("node { name: 'a' op: 'Identity' }", SHOAL_INVALID_ARGUMENT,
         "NodeDef missing attr 'T' from Op<name=Identity;");
  refuse("node { name: 'a' op: 'Enter' }", SHOAL_INVALID_ARGUMENT, "NodeDef missing attrs 'T', 'frame_name' from");
  refuse("node { name: 'a' op: 'NoOp' } node { name: 'a' op: 'NoOp' }", SHOAL_INVALID_ARGUMENT,
         "Node 'a' is not unique");
  refuse(IDENTITY("a", "b"), SHOAL_INVALID_ARGUMENT, "Node 'a': Unknown input node 'b'");
  refuse("node { name: 'a b' op: 'NoOp' }", SHOAL_INVALID_ARGUMENT, "Illegal op name 'a b'");
  refuse("node { name: '_a' op: 'NoOp' }", SHOAL_INVALID_ARGUMENT, "Illegal op name '_a'");
  refuse("node { name: '' op: 'NoOp' }", SHOAL_INVALID_ARGUMENT, "Illegal op name ''");
  refuse("node { name: 'a\\000b' op: 'NoOp' }", SHOAL_INVALID_ARGUMENT, "");
  refuse("node { name: 'a' op: '' }", SHOAL_INVALID_ARGUMENT, "Node 'a' does not specify an operation");
  refuse(X IDENTITY("a", "x:1"), SHOAL_INVALID_ARGUMENT, "Connecting to invalid output 1 of source node x which has 1");
  refuse(X IDENTITY("a", "x:99999999999999999999"), SHOAL_INVALID_ARGUMENT, "Connecting to invalid output");
  refuse("node { name: 'i' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT32 } } } " IDENTITY("a", "i"),
         SHOAL_INVALID_ARGUMENT, "Input 0 of node a was passed int32 from i:0 incompatible with expected float.");
  refuse(X "node { name: 'a' op: 'Identity' input: '^x' input: 'x' attr { key: 'T' value { type: DT_FLOAT } } }",
         SHOAL_INVALID_ARGUMENT, "Control dependencies must come after regular dependencies");
  refuse("node { name: 'a' op: 'Placeholder' attr { key: 'dtype' value { i: 3 } } }", SHOAL_INVALID_ARGUMENT,
         "AttrValue had value with type 'int' when 'type' expected");
  refuse("node { name: 'a' op: 'Placeholder' attr { key: 'dtype' value { placeholder: 'T' } } }",
         SHOAL_INVALID_ARGUMENT, "placeholder");
  refuse("versions { producer: 1645 min_consumer: 1646 }", SHOAL_INVALID_ARGUMENT,
         "GraphDef min consumer version 1646 above current version 1645");
  refuse("versions { producer: 1645 bad_consumers: 1645 }", SHOAL_INVALID_ARGUMENT,
         "GraphDef disallows consumer version 1645.");
}

/* A message of a megabyte must not cost the square of what it holds. */
static void long_lists_are_bounded(void **state) {
  struct shoal_graph *g = graph_new();
  struct text def = {0};
  size_t at = begin_GraphDef_versions(&def);
  for (uint64_t i = 0; i < 200000; i++) put_VersionDef_bad_consumers(&def, i + 10000);
  wire_end(&def, at);
  ASSERT_FAILS(graph_import(g, def.at, def.n, NULL, NULL), SHOAL_INVALID_ARGUMENT, "200000 bad consumers");
  def.n = 0;
  char name[32];
  at = begin_GraphDef_node(&def);
  put_NodeDef_name(&def, "a");
  put_NodeDef_op(&def, "NoOp");
  for (int i = 0; i < 100000; i++) {
    size_t attr = begin_NodeDef_attr(&def);
    snprintf(name, sizeof name, "_%d", i);
    put_NodeDef_AttrEntry_key(&def, name);
    wire_end(&def, attr);
  }
  wire_end(&def, at);
  ASSERT_FAILS(graph_import(g, def.at, def.n, NULL, NULL), SHOAL_INVALID_ARGUMENT, "at most 1000 attributes");
  def.n = 0;
  enum { MANY = 50000 }; /* edges of control: twice each, and counted once */
  for (int i = 0; i <= MANY; i++) {
    at = begin_GraphDef_node(&def);
    snprintf(name, sizeof name, "n%d", i);
    put_NodeDef_name(&def, name);
    put_NodeDef_op(&def, "NoOp");
    for (int k = 0; i == MANY && k < 2 * MANY; k++) {
      snprintf(name, sizeof name, "^n%d", k % MANY);
      put_NodeDef_input(&def, name);
    }
    wire_end(&def, at);
  }
  ASSERT_OK(graph_import(g, def.at, def.n, NULL, NULL));
  assert_int_equal(g->nodes.at[MANY]->control.n, MANY);
  text_release(&def);
  graph_free(g);
}

static void cycles_pass_through_next_iteration_only(void **state) {
  refuse(IDENTITY("a", "b") IDENTITY("b", "a"), SHOAL_INVALID_ARGUMENT, "cycle");
  refuse("node { name: 'a' op: 'NoOp' input: '^a' }", SHOAL_INVALID_ARGUMENT, "itself");
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g,
                 X "node { name: 'm' op: 'Merge' input: 'x' input: 'n' attr { key: 'T' value { type: DT_FLOAT } }"
                   " attr { key: 'N' value { i: 2 } } }"
                   "node { name: 'n' op: 'NextIteration' input: 'm' attr { key: 'T' value { type: DT_FLOAT } } }",
                 NULL));
  assert_ptr_equal(graph_find(g, "m")->in[1].node, graph_find(g, "n"));
  graph_free(g);
}

static void values_are_checked_before_memory_is_taken(void **state) {
#define CONST(tensor)                                                            \
  "node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } " \
  "attr { key: 'value' value { tensor { dtype: DT_FLOAT " tensor " } } } }"
  refuse(CONST("tensor_shape { dim { size: 100000000000 } } float_val: 1"), SHOAL_RESOURCE_EXHAUSTED, "repeats");
  refuse(CONST("tensor_shape { dim { size: 9223372036854775807 } dim { size: 9223372036854775807 } }"),
         SHOAL_INVALID_ARGUMENT, "63 bits");
  refuse(CONST("tensor_shape { dim { size: -2 } }"), SHOAL_INVALID_ARGUMENT, "dimension");
  refuse(CONST("tensor_shape { dim { size: -1 } }"), SHOAL_INVALID_ARGUMENT, "not fully defined");
  refuse(CONST("tensor_shape { dim { size: 2 } } tensor_content: 'abc'"), SHOAL_INVALID_ARGUMENT, "3 bytes of content");
}

static void nodes_may_come_in_any_order_and_refer_to_older_ones(void **state) {
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, IDENTITY("b", "a") IDENTITY("a", "x") X, NULL));
  ASSERT_OK(take(g, IDENTITY("c", "b"), NULL));
  assert_ptr_equal(graph_find(g, "c")->in[0].node, graph_find(g, "b"));
  ASSERT_FAILS(take(g, IDENTITY("d", "c") IDENTITY("b", "x"), NULL), SHOAL_INVALID_ARGUMENT, "already exists");
  assert_null(graph_find(g, "d"));
  assert_int_equal(g->n_nodes, 4);
  graph_free(g);
}

static void a_prefix_goes_before_names_inputs_and_colocations(void **state) {
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g,
                 X "node { name: 'a' op: 'Identity' input: 'x' input: '^x' attr { key: 'T' value { type: DT_FLOAT } } "
                   "attr { key: '_class' value { list { s: 'loc:@x' } } } }",
                 "tower"));
  struct shoal_node *a = graph_find(g, "tower/a");
  assert_non_null(a);
  assert_ptr_equal(a->in[0].node, graph_find(g, "tower/x"));
  assert_int_equal(a->control.n, 1);
  assert_string_equal(node_attr(a, "_class")->list.at[0].s.data, "loc:@tower/x");
  graph_free(g);
}

static void nothing_is_lost_on_the_way_through(void **state) {
  const char *text =
      "node { name: 'x' op: 'Placeholder' device: '/job:ps/task:1' attr { key: 'dtype' value { type: DT_FLOAT } } "
      "attr { key: 'shape' value { shape { dim { size: -1 } dim { size: 3 } } } } "
      "attr { key: '_s' value { s: 'a\\000b' } } attr { key: '_f' value { f: -1.5 } } attr { key: '_i' value { i: -7 } "
      "} "
      "attr { key: '_l' value { list { i: 1 i: 2 } } } attr { key: '_e' value { list {} } } attr { key: '_n' value {} "
      "} "
      "attr { key: '_fn' value { func { name: 'f' attr { key: 'T' value { type: DT_INT8 } } } } } "
      "experimental_debug_info { original_node_names: 'was' } experimental_type { type_id: TFT_TENSOR } } "
      "node { name: 'c' op: 'Const' input: '^x' attr { key: 'dtype' value { type: DT_STRING } } "
      "attr { key: 'value' value { tensor { dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: 'p' "
      "string_val: '\\001q' } } } } versions { producer: 27 min_consumer: 12 bad_consumers: 3 }";
  struct shoal_graph *g = graph_new(), *h = graph_new();
  ASSERT_OK(take(g, text, NULL));
  shoal_bytes one, two;
  ASSERT_OK(shoal_graph_export_text(g, &one));
  ASSERT_OK(shoal_graph_import_text(h, one.data, one.size, NULL));
  ASSERT_OK(shoal_graph_export_text(h, &two));
  assert_int_equal(one.size, two.size);
  assert_memory_equal(one.data, two.data, one.size);
  for (const char *const *p =
           (const char *const[]){"/job:ps/task:1", "size: -1", "s: \"a\\000b\"", "f: -1.5", "i: -7", "name: \"f\"",
                                 "original_node_names: \"was\"", "TFT_TENSOR", "\"^x\"", "\"\\001q\"", "producer: 27",
                                 "min_consumer: 12", "bad_consumers: 3", 0};
       *p; p++)
    if (!strstr(one.data, *p)) fail_msg("%s is lost in:\n%s", *p, (char *)one.data);
  shoal_bytes_free(&one);
  shoal_bytes_free(&two);
  graph_free(g);
  graph_free(h);
}

static void cut_bytes_are_refused(void **state) {
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, X IDENTITY("a", "x") "versions { producer: 1645 }", NULL));
  struct text whole = {0};
  ASSERT_OK(graph_export(g, NULL, &whole));
  graph_free(g);
  int taken = 0;
  for (size_t n = 0; n <= whole.n; n++) {
    g = graph_new();
    shoal_status s = shoal_graph_import(g, whole.at, n, NULL);
    taken += !s;
    if (s) assert_int_equal(g->n_nodes, 0);
    shoal_status_free(s);
    graph_free(g);
  }
  assert_in_range(taken, 2, 4); /* nothing at all, one node, two, and the whole: every other cut is inside a field */
  text_release(&whole);
}

static void attributes_do_not_nest_for_ever(void **state) {
  struct text inner = {0};
  for (int i = 0; i < 300; i++) { /* AttrValue{func{attr{value ...}}}, from the inside out */
    struct text value = {0}, entry = {0}, func = {0};
    put_NodeDef_AttrEntry_value_n(&value, inner.at, inner.n);
    put_NameAttrList_attr_n(&entry, value.at, value.n);
    put_AttrValue_func_n(&func, entry.at, entry.n);
    text_release(&inner);
    inner = func;
    text_release(&value);
    text_release(&entry);
  }
  struct text node = {0}, graph = {0}, attr = {0};
  put_NodeDef_name(&node, "a");
  put_NodeDef_op(&node, "NoOp");
  put_NodeDef_AttrEntry_key(&attr, "deep");
  put_NodeDef_AttrEntry_value_n(&attr, inner.at, inner.n);
  put_NodeDef_attr_n(&node, attr.at, attr.n);
  put_GraphDef_node_n(&graph, node.at, node.n);
  struct shoal_graph *g = graph_new();
  ASSERT_FAILS(shoal_graph_import(g, graph.at, graph.n, NULL), SHOAL_INVALID_ARGUMENT, "nested");
  graph_free(g);
  text_release(&inner);
  text_release(&node);
  text_release(&graph);
  text_release(&attr);
}

RUN_TESTS(cmocka_unit_test(bad_graphs_are_named), cmocka_unit_test(cycles_pass_through_next_iteration_only),
          cmocka_unit_test(values_are_checked_before_memory_is_taken),
          cmocka_unit_test(nodes_may_come_in_any_order_and_refer_to_older_ones),
          cmocka_unit_test(a_prefix_goes_before_names_inputs_and_colocations),
          cmocka_unit_test(nothing_is_lost_on_the_way_through), cmocka_unit_test(cut_bytes_are_refused),
          cmocka_unit_test(attributes_do_not_nest_for_ever), cmocka_unit_test(long_lists_are_bounded))

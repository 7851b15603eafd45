/* Protocol buffers as text. */
#include "unit.h"

#include "base/wire.h"
#include "graph/text_format.h"
#include "proto/event.pb-c.h"
#include "proto/graph.pb-c.h"
#include "proto/graph.wire.h"
#include "proto/proto_check.h"

static void refuse(const ProtobufCMessageDescriptor *d, const char *text, const char *why) {
  void *m;
  ASSERT_FAILS(text_format_parse(d, text, strlen(text), &m), SHOAL_INVALID_ARGUMENT, why);
  assert_null(m);
}

static void errors_have_a_place(void **state) {
  const ProtobufCMessageDescriptor *d = &tensorflow__graph_def__descriptor;
  refuse(d, "node {\n  nam: 'x'\n}", "2:3: Message type \"tensorflow.NodeDef\" has no field named \"nam\".");
  refuse(d, "node { name: 3 }", "1:14: Expected string.");
  refuse(d, "node { name 'x' }", "1:13: Expected \":\".");
  refuse(d, "node {", "missing '}'");
  refuse(d, "node { name: 'x' name: 'y' }", "Non-repeated field \"name\" is specified multiple times.");
  refuse(d, "node { attr { value { i: 1 f: 2 } } }", "oneof");
  refuse(d, "node { name: 'x", "Unexpected end of string");
  refuse(d, "node { name: 'x\n' }", "cannot cross line boundaries");
  refuse(d, "node { name: '\\q' }", "Invalid escape");
  refuse(d, "versions { producer: 2147483648 }", "Integer out of range");
  refuse(d, "versions { producer: 1.5 }", "Expected integer");
  refuse(d, "node { attr { value { type: DT_NONE } } }", "Unknown enumeration value of \"DT_NONE\"");
  refuse(d, "}", "1:1: Expected identifier");
}

static void nesting_is_bounded(void **state) {
  char deep[20000] = "";
  const char *open = "node { attr { value { func { ";
  strcat(deep, open);
  for (int i = 0; i < 400; i++) strcat(deep, "attr { value { func { ");
  refuse(&tensorflow__graph_def__descriptor, deep, "too deep");
}

static void all_ways_of_writing_are_read(void **state) {
  const char *text = "# a comment\nname: \"a\" 'b' \"\\x41\\101\\n\\u00e9\";\ninput: [\"x\", 'y'], op: 'z'";
  Tensorflow__NodeDef *n;
  ASSERT_OK(text_format_parse(&tensorflow__node_def__descriptor, text, strlen(text), &n));
  assert_string_equal(n->name, "abAA\n\xc3\xa9");
  assert_int_equal(n->n_input, 2);
  assert_string_equal(n->input[1], "y");
  struct text out = {0};
  text_format_print(n, &out);
  assert_string_equal(text_cstr(&out), "name: \"abAA\\n\\303\\251\"\nop: \"z\"\ninput: \"x\"\ninput: \"y\"\n");
  proto_free(n);

  const char *numbers = "bucket: 1.5e3f\nbucket: -inf min: 0x10";
  Tensorflow__HistogramProto *h;
  ASSERT_OK(text_format_parse(&tensorflow__histogram_proto__descriptor, numbers, strlen(numbers), &h));
  assert_int_equal(h->n_bucket, 2);
  assert_true(h->bucket[0] == 1500 && h->bucket[1] < -1e308);
  assert_true(h->min == 16);
  out.n = 0;
  text_format_print(h, &out);
  assert_string_equal(text_cstr(&out), "min: 16\nbucket: 1500\nbucket: -inf\n");
  text_release(&out);
  proto_free(h);
}

static void depth_and_size_are_checked_before_unpacking(void **state) {
  struct text deep = {0}; /* FullTypeDef nests in itself */
  for (int i = 0; i < 150; i++) {
    struct text around = {0};
    put_FullTypeDef_args_n(&around, deep.at, deep.n);
    text_release(&deep);
    deep = around;
  }
  void *m;
  ASSERT_FAILS(proto_unpack(&tensorflow__full_type_def__descriptor, deep.at, deep.n, &m), SHOAL_INVALID_ARGUMENT,
               "nested too deeply");
  struct proto_limits small = {.max_size = 10};
  ASSERT_FAILS(proto_unpack_within(&tensorflow__full_type_def__descriptor, deep.at, deep.n, &small, &m),
               SHOAL_INVALID_ARGUMENT, "over the limit of 10");
  text_release(&deep);
  static uint8_t many[4000]; /* 2000 empty nodes */
  for (size_t i = 0; i < sizeof many; i += 2) many[i] = 0x0a;
  struct proto_limits poor = {.max_overhead = 10000};
  ASSERT_FAILS(proto_unpack_within(&tensorflow__graph_def__descriptor, many, sizeof many, &poor, &m),
               SHOAL_INVALID_ARGUMENT, "more elements");
  ASSERT_FAILS(proto_unpack(&tensorflow__graph_def__descriptor, "\x08\x01", 2, &m), SHOAL_INVALID_ARGUMENT,
               "another type");
  ASSERT_FAILS(proto_unpack(&tensorflow__graph_def__descriptor, "\x0a\x7f", 2, &m), SHOAL_INVALID_ARGUMENT,
               "malformed");
}

RUN_TESTS(cmocka_unit_test(errors_have_a_place), cmocka_unit_test(nesting_is_bounded),
          cmocka_unit_test(all_ways_of_writing_are_read), cmocka_unit_test(depth_and_size_are_checked_before_unpacking))

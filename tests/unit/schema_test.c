/* What tools/gen_wire.c makes of src/proto: fields put by name are found by name, and only there. */
#include "unit.h"

#include "proto/graph.wire.h"
#include "proto/step_stats.wire.h"
#include "proto/types.wire.h"

static void names_are_tags(void **state) {
  assert_int_equal(NodeDef_name, 1 << 3 | WIRE_BYTES);
  assert_int_equal(VersionDef_producer, 1 << 3 | WIRE_VARINT);
  assert_int_equal(DeviceAttributes_incarnation, 6 << 3 | WIRE_FIXED64);
  assert_int_equal(AttrValue_f, 4 << 3 | WIRE_FIXED32);
  assert_int_equal(AttrValue_ListValue_f_packed, 4 << 3 | WIRE_BYTES);
  assert_int_equal(FunctionDef_ArgAttrEntry_key, 1 << 3 | WIRE_VARINT); /* map<uint32, ArgAttrs> arg_attr */
  assert_int_equal(AttrValue_type, 6 << 3 | WIRE_VARINT);               /* an enumeration of another file */
  assert_int_equal(DataType_DT_FLOAT_REF, 101);
}

/* A request without fields has no bytes, and no place where they would be. */
static void nothing_is_a_message(void **state) {
  struct wire none = wire_from(NULL, 0), found;
  struct wire_field f;
  assert_int_equal(wire_left(&none), 0);
  assert_false(find_NodeDef_name(none, &found));
  assert_int_equal(wire_next(&none, &f), WIRE_END);
}

static void what_is_put_is_found(void **state) {
  struct text t = {0};
  put_NodeDef_name(&t, "x");
  put_NodeDef_input_n(&t, "ab", 1);
  size_t attr = begin_NodeDef_attr(&t);
  put_NodeDef_AttrEntry_key(&t, "shape");
  size_t value = begin_NodeDef_AttrEntry_value(&t);
  put_AttrValue_i(&t, -2);
  wire_end(&t, value);
  wire_end(&t, attr);
  assert_int_equal(t.n, 3 + 3 + 2 + 7 + 2 + 11);

  struct wire all = wire_from(t.at, t.n), found;
  struct wire_field f;
  assert_true(find_NodeDef_input(all, &found) && wire_left(&found) == 1 && *found.at == 'a');
  assert_false(find_NodeDef_device(all, &found));
  assert_true(find_NodeDef_attr(all, &found) && find_NodeDef_AttrEntry_value(found, &found));
  assert_int_equal(wire_next(&found, &f), WIRE_FIELD);
  assert_int_equal(f.tag, AttrValue_i);
  assert_int_equal((int64_t)f.value, -2);
  text_release(&t);
}

static void a_field_of_another_type_is_unknown(void **state) {
  struct text t = {0};
  struct wire found;
  wire_add_uint(&t, wire_tag(wire_tag_number(NodeDef_name), WIRE_VARINT), 7);
  struct wire w = wire_from(t.at, t.n);
  struct wire_field f;
  assert_false(find_NodeDef_name(w, &found));
  assert_int_equal(wire_next(&w, &f), WIRE_FIELD);
  assert_int_equal(f.number, wire_tag_number(NodeDef_name));
  assert_int_not_equal(f.tag, NodeDef_name);
  text_release(&t);
}

static void lists_are_packed_or_not(void **state) {
  struct text t = {0};
  put_VersionDef_bad_consumers(&t, 300);
  size_t list = begin_VersionDef_bad_consumers_packed(&t);
  wire_put_varint(&t, 1);
  wire_put_varint(&t, 2);
  wire_end(&t, list);
  struct wire w = wire_from(t.at, t.n);
  struct wire_field f;
  assert_int_equal(wire_next(&w, &f), WIRE_FIELD);
  assert_int_equal(f.tag, VersionDef_bad_consumers);
  assert_int_equal(f.value, 300);
  assert_int_equal(wire_next(&w, &f), WIRE_FIELD);
  assert_int_equal(f.tag, VersionDef_bad_consumers_packed);
  assert_int_equal(f.size, 2);
  assert_int_equal(wire_next(&w, &f), WIRE_END);
  text_release(&t);
}

RUN_TESTS(cmocka_unit_test(names_are_tags), cmocka_unit_test(nothing_is_a_message),
          cmocka_unit_test(what_is_put_is_found), cmocka_unit_test(a_field_of_another_type_is_unknown),
          cmocka_unit_test(lists_are_packed_or_not))

/* What functions take and give, in the words of Python's: nested structures of TensorSpecs, and an inspect.FullArgSpec.
 */
#include "proto/saved_object.wire.h"
#include "saved_model/objects.h"
#include "tensor/tensor_proto.h"

void spec_put_none(struct text *t) { put_StructuredValue_none_value_n(t, "", 0); }

void spec_put_tensor(struct text *t, const char *name, shoal_out of) {
  struct shape shape = {0};
  shape.rank = shoal_out_shape(of, shape.dims);
  size_t spec = begin_StructuredValue_tensor_spec_value(t);
  put_TensorSpecProto_name(t, name);
  size_t at = begin_TensorSpecProto_shape(t);
  shape_proto_encode(&shape, t);
  wire_end(t, at);
  put_TensorSpecProto_dtype(t, (int)shoal_out_dtype(of));
  wire_end(t, spec);
}

static void put_tuple(struct text *t, const struct spec_value *v, int n) {
  size_t tuple = begin_StructuredValue_tuple_value(t);
  for (int i = 0; i < n; i++) {
    size_t at = begin_TupleValue_values(t);
    spec_put_tensor(t, v[i].key, v[i].tensor);
    wire_end(t, at);
  }
  wire_end(t, tuple);
}

void spec_put_dict(struct text *t, const struct spec_value *v, int n) {
  size_t dict = begin_StructuredValue_dict_value(t);
  for (int i = 0; i < n; i++) {
    size_t entry = begin_DictValue_fields(t);
    put_DictValue_FieldsEntry_key(t, v[i].key);
    size_t at = begin_DictValue_FieldsEntry_value(t);
    spec_put_tensor(t, v[i].key, v[i].tensor);
    wire_end(t, at);
    wire_end(t, entry);
  }
  wire_end(t, dict);
}

void spec_put_inputs(struct text *t, const struct spec_value *v, int n, bool by_key) {
  size_t both = begin_StructuredValue_tuple_value(t), at = begin_TupleValue_values(t);
  put_tuple(t, v, by_key ? 0 : n);
  wire_end(t, at);
  at = begin_TupleValue_values(t);
  spec_put_dict(t, v, by_key ? n : 0);
  wire_end(t, at);
  wire_end(t, both);
}

static void put_keys(struct text *t, const struct spec_value *v, int n) {
  size_t list = begin_StructuredValue_list_value(t);
  for (int i = 0; i < n; i++) {
    size_t at = begin_ListValue_values(t);
    put_StructuredValue_string_value(t, v[i].key);
    wire_end(t, at);
  }
  wire_end(t, list);
}

/* FullArgSpec(args, varargs, varkw, defaults, kwonlyargs, kwonlydefaults, annotations) */
static void put_arg_spec(struct text *t, const struct spec_value *v, int n, bool by_key) {
  static const char *const fields[] = {"args",       "varargs",        "varkw",      "defaults",
                                       "kwonlyargs", "kwonlydefaults", "annotations"};
  enum { ARGS = 0, KEYWORDS = 4, ANNOTATIONS = 6 };
  size_t tuple = begin_StructuredValue_named_tuple_value(t);
  put_NamedTupleValue_name(t, "FullArgSpec");
  for (int i = 0; i < (int)COUNT_OF(fields); i++) {
    size_t pair = begin_NamedTupleValue_values(t);
    put_PairValue_key(t, fields[i]);
    size_t at = begin_PairValue_value(t);
    if (i == ARGS || i == KEYWORDS) put_keys(t, v, (i == KEYWORDS) == by_key ? n : 0);
    else if (i == ANNOTATIONS) spec_put_dict(t, NULL, 0);
    else spec_put_none(t);
    wire_end(t, at);
    wire_end(t, pair);
  }
  wire_end(t, tuple);
}

void spec_put_function(struct text *t, const struct spec_value *v, int n, bool by_key) {
  size_t at = begin_FunctionSpec_fullargspec(t);
  put_arg_spec(t, v, n, by_key);
  wire_end(t, at);
  at = begin_FunctionSpec_input_signature(t);
  if (by_key) spec_put_none(t);
  else put_tuple(t, v, n);
  wire_end(t, at);
}

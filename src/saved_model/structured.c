/* What a function takes, as Python prints it; see structured.h.
 *
 *   x: TensorSpec(shape=(None, 2), dtype=tf.float32, name='x')
 *   DType: bool
 *   Value: True
 *
 * The file is a stranger's: what is nested deeper than MOST_DEEP is "...", and names are shown as text for people is.
 */
#include "saved_model/structured.h"

#include <inttypes.h>
#include <string.h>

#include "proto/saved_object.wire.h"
#include "tensor/numpy_text.h"
#include "tensor/tensor_proto.h"

enum { MOST_DEEP = 50 };

/* The one field of a StructuredValue; none: None. */
static struct wire_field kind_of(struct wire w) {
  struct wire_field f, last = {.tag = StructuredValue_none_value};
  while (wire_next(&w, &f) == WIRE_FIELD) last = f;
  return last;
}

/* ---- items ---- */

static int by_key(const void *a, const void *b) {
  struct wire x = ((const struct structured_item *)a)->key, y = ((const struct structured_item *)b)->key;
  size_t n = MIN(wire_left(&x), wire_left(&y));
  int order = n ? memcmp(x.at, y.at, n) : 0;
  return order ? order : (wire_left(&x) > wire_left(&y)) - (wire_left(&x) < wire_left(&y));
}

/* tag: of the items, which are pairs, or values themselves. */
static structured_list read_items(struct wire w, uint32_t tag, bool pairs) {
  structured_list out = {0};
  struct wire_field f;
  while (wire_next(&w, &f) == WIRE_FIELD) {
    if (f.tag != tag) continue;
    struct structured_item i = {wire_from("", 0), pairs ? wire_from("", 0) : wire_inside(&f)};
    if (pairs) {
      find_PairValue_key(wire_inside(&f), &i.key);
      find_PairValue_value(wire_inside(&f), &i.value);
    }
    vec_push(&out, i);
  }
  return out;
}

structured_list structured_items(struct wire value) {
  struct wire_field f = kind_of(value);
  structured_list out = {0};
  switch (f.tag) {
    case StructuredValue_list_value: return read_items(wire_inside(&f), ListValue_values, false);
    case StructuredValue_tuple_value: return read_items(wire_inside(&f), TupleValue_values, false);
    case StructuredValue_named_tuple_value: return read_items(wire_inside(&f), NamedTupleValue_values, true);
    case StructuredValue_dict_value: /* an entry of a map has the fields of a pair */
      out = read_items(wire_inside(&f), DictValue_fields, true);
      if (out.n) qsort(out.at, out.n, sizeof *out.at, by_key);
  }
  return out;
}

/* ---- values ---- */

static void add_name(struct text *out, struct wire name) {
  text_add_shown(out, (const char *)name.at, wire_left(&name), false);
}

static void add_quoted(struct text *out, struct wire name) {
  const char *quote = wire_left(&name) && memchr(name.at, '\'', wire_left(&name)) ? "\"" : "'";
  text_adds(out, quote);
  add_name(out, name);
  text_adds(out, quote);
}

/* "(None, 2)", "(2,)"; inside TensorShape(): "[None, 2]". */
static void add_shape(struct text *out, struct wire w, bool named) {
  struct shape shape;
  shoal_status s = shape_proto_decode(w.at, wire_left(&w), &shape);
  if (s || shape.rank < 0) {
    shoal_status_free(s);
    text_adds(out, named ? "TensorShape(None)" : "<unknown>");
    return;
  }
  text_adds(out, named ? "TensorShape([" : "(");
  for (int i = 0; i < shape.rank; i++) {
    if (i) text_adds(out, ", ");
    if (shape.dims[i] < 0) text_adds(out, "None");
    else text_addf(out, "%" PRId64, shape.dims[i]);
  }
  text_adds(out, named ? "])" : shape.rank == 1 ? ",)" : ")");
}

static const char *type_name(uint64_t type) {
  const char *name = type < 256 ? shoal_dtype_name((shoal_dtype)type) : NULL;
  return name ? name : "invalid";
}

static void add_tensor_spec(struct text *out, struct wire w, const char *class) {
  struct wire name = wire_from("", 0), shape = name;
  struct wire_field f;
  uint64_t dtype = 0;
  find_TensorSpecProto_name(w, &name);
  find_TensorSpecProto_shape(w, &shape);
  while (wire_next(&w, &f) == WIRE_FIELD)
    if (f.tag == TensorSpecProto_dtype) dtype = f.value;
  text_addf(out, "%s(shape=", class);
  add_shape(out, shape, false);
  text_addf(out, ", dtype=tf.%s, name=", type_name(dtype));
  if (wire_left(&name)) add_quoted(out, name);
  else text_adds(out, "None");
  text_adds(out, ")");
}

static void add_float(struct text *out, double v) {
  struct tensor t = {.dtype = SHOAL_FLOAT64, .n = 1, .data = &v};
  numpy_print(&t, out);
}

static int64_t signed_value(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }

static void add_value(struct text *out, struct wire value, int depth);

/* "(a, b)", "(a,)", "[a, b]", "{'k': a}", "Name(k=a)" */
static void add_items(struct text *out, struct wire value, const struct wire_field *f, int depth) {
  structured_list items = structured_items(value);
  bool dict = f->tag == StructuredValue_dict_value, named = f->tag == StructuredValue_named_tuple_value;
  struct wire name = wire_from("", 0);
  if (named && find_NamedTupleValue_name(wire_inside(f), &name)) add_name(out, name);
  text_adds(out, dict ? "{" : f->tag == StructuredValue_list_value ? "[" : "(");
  for (size_t i = 0; i < items.n; i++) {
    if (i) text_adds(out, ", ");
    if (dict) add_quoted(out, items.at[i].key);
    if (named) add_name(out, items.at[i].key);
    if (dict || named) text_adds(out, dict ? ": " : "=");
    add_value(out, items.at[i].value, depth + 1);
  }
  if (f->tag == StructuredValue_tuple_value && items.n == 1) text_adds(out, ",");
  text_adds(out, dict ? "}" : f->tag == StructuredValue_list_value ? "]" : ")");
  vec_release(&items);
}

static void add_spec_class(struct text *out, struct wire w) {
  static const char *const names[] = {
      [TypeSpecProto_TypeSpecClass_SPARSE_TENSOR_SPEC] = "SparseTensorSpec",
      [TypeSpecProto_TypeSpecClass_INDEXED_SLICES_SPEC] = "IndexedSlicesSpec",
      [TypeSpecProto_TypeSpecClass_RAGGED_TENSOR_SPEC] = "RaggedTensorSpec",
      [TypeSpecProto_TypeSpecClass_TENSOR_ARRAY_SPEC] = "TensorArraySpec",
      [TypeSpecProto_TypeSpecClass_DATA_DATASET_SPEC] = "DatasetSpec",
      [TypeSpecProto_TypeSpecClass_DATA_ITERATOR_SPEC] = "IteratorSpec",
      [TypeSpecProto_TypeSpecClass_OPTIONAL_SPEC] = "OptionalSpec",
      [TypeSpecProto_TypeSpecClass_PER_REPLICA_SPEC] = "PerReplicaSpec",
      [TypeSpecProto_TypeSpecClass_VARIABLE_SPEC] = "VariableSpec",
      [TypeSpecProto_TypeSpecClass_ROW_PARTITION_SPEC] = "RowPartitionSpec",
  };
  struct wire name = wire_from("", 0);
  struct wire_field f;
  uint64_t class = 0;
  find_TypeSpecProto_type_spec_class_name(w, &name);
  while (wire_next(&w, &f) == WIRE_FIELD)
    if (f.tag == TypeSpecProto_type_spec_class) class = f.value;
  if (class < COUNT_OF(names) && names[class]) text_adds(out, names[class]);
  else add_name(out, name);
}

static void add_type_spec(struct text *out, struct wire w, int depth) {
  struct wire state = wire_from("", 0);
  add_spec_class(out, w);
  find_TypeSpecProto_type_state(w, &state);
  add_value(out, state, depth + 1);
}

static void add_value(struct text *out, struct wire value, int depth) {
  struct wire_field f = kind_of(value);
  if (depth > MOST_DEEP) {
    text_adds(out, "...");
    return;
  }
  switch (f.tag) {
    case StructuredValue_none_value: text_adds(out, "None"); break;
    case StructuredValue_float64_value: add_float(out, wire_double(&f)); break;
    case StructuredValue_int64_value: text_addf(out, "%" PRId64, signed_value(f.value)); break;
    case StructuredValue_string_value: add_quoted(out, wire_inside(&f)); break;
    case StructuredValue_bool_value: text_adds(out, f.value ? "True" : "False"); break;
    case StructuredValue_tensor_shape_value: add_shape(out, wire_inside(&f), true); break;
    case StructuredValue_tensor_dtype_value: text_addf(out, "tf.%s", type_name(f.value)); break;
    case StructuredValue_tensor_spec_value: add_tensor_spec(out, wire_inside(&f), "TensorSpec"); break;
    case StructuredValue_bounded_tensor_spec_value: add_tensor_spec(out, wire_inside(&f), "BoundedTensorSpec"); break;
    case StructuredValue_type_spec_value: add_type_spec(out, wire_inside(&f), depth); break;
    case StructuredValue_list_value:
    case StructuredValue_tuple_value:
    case StructuredValue_dict_value:
    case StructuredValue_named_tuple_value: add_items(out, value, &f, depth); break;
    default: text_adds(out, "<tensor>");
  }
}

/* ---- arguments ---- */

static void add_class(struct text *out, const struct wire_field *f) {
  struct wire name = wire_from("", 0);
  switch (f->tag) {
    case StructuredValue_none_value: text_adds(out, "NoneType"); break;
    case StructuredValue_float64_value: text_adds(out, "float"); break;
    case StructuredValue_int64_value: text_adds(out, "int"); break;
    case StructuredValue_bool_value: text_adds(out, "bool"); break;
    case StructuredValue_tensor_dtype_value: text_adds(out, "DType"); break;
    case StructuredValue_tensor_shape_value: text_adds(out, "TensorShape"); break;
    case StructuredValue_type_spec_value: add_spec_class(out, wire_inside(f)); break;
    case StructuredValue_list_value: text_adds(out, "list"); break;
    case StructuredValue_tuple_value: text_adds(out, "tuple"); break;
    case StructuredValue_dict_value: text_adds(out, "dict"); break;
    case StructuredValue_named_tuple_value:
      find_NamedTupleValue_name(wire_inside(f), &name);
      add_name(out, name);
      break;
    default: text_adds(out, "Tensor");
  }
}

/* With what saved_model_cli takes back from a terminal: the last comma. */
static void add_listed(struct text *out, struct wire value, bool dict) {
  structured_list items = structured_items(value);
  text_adds(out, dict ? "{" : "[");
  for (size_t i = 0; i < items.n; i++) {
    if (dict) {
      add_quoted(out, items.at[i].key);
      text_adds(out, ": ");
    }
    add_value(out, items.at[i].value, 0);
    text_adds(out, ", ");
  }
  text_adds(out, dict ? "\b\b}" : "\b\b]");
  vec_release(&items);
}

static void add_argument(struct text *out, struct wire value, const struct wire_field *f, int indent) {
  text_addf(out, "DType: ");
  add_class(out, f);
  text_addf(out, "\n%*sValue: ", indent, "");
  switch (f->tag) {
    case StructuredValue_list_value:
    case StructuredValue_tuple_value:
    case StructuredValue_named_tuple_value: add_listed(out, value, false); break;
    case StructuredValue_dict_value: add_listed(out, value, true); break;
    case StructuredValue_tensor_dtype_value: text_addf(out, "<dtype: '%s'>", type_name(f->value)); break;
    default: add_value(out, value, 0);
  }
}

void structured_add(struct text *out, struct wire value, int indent) {
  struct wire_field f = kind_of(value);
  struct wire name = wire_from("", 0);
  text_addf(out, "%*s", indent, "");
  if (f.tag == StructuredValue_string_value) {
    add_name(out, wire_inside(&f));
  } else if (f.tag == StructuredValue_tensor_spec_value) {
    find_TensorSpecProto_name(wire_inside(&f), &name);
    if (wire_left(&name)) add_name(out, name);
    else text_adds(out, "None");
    text_adds(out, ": ");
    add_value(out, value, 0);
  } else {
    add_argument(out, value, &f, indent);
  }
  text_addc(out, '\n');
}

/* Tensors as messages: every encoding in, and what must not be believed. */
#include "unit.h"

#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "tensor/tensor_proto.h"

/* A TensorProto of a type and shape, to be filled in by hand. */
static struct text begin(int dtype, int rank, const int64_t *dims) {
  struct text t = {0};
  struct shape s = {.rank = rank};
  for (int i = 0; i < rank; i++) s.dims[i] = dims[i];
  put_TensorProto_dtype(&t, dtype);
  size_t at = begin_TensorProto_tensor_shape(&t);
  shape_proto_encode(&s, &t);
  wire_end(&t, at);
  return t;
}

static void refuse(struct text t, shoal_code code, const char *why) {
  struct tensor out;
  ASSERT_FAILS(tensor_proto_decode(t.at, t.n, &out), code, why);
  text_release(&t);
}

static void take(struct text t, const float *want, int n) {
  struct tensor out;
  ASSERT_OK(tensor_proto_decode(t.at, t.n, &out));
  assert_int_equal(out.n, n);
  assert_memory_equal(out.data, want, (size_t)n * sizeof *want);
  tensor_release(&out);
  text_release(&t);
}

static void the_last_value_repeats(void **state) {
  int64_t four = 4, two = 2;
  struct text t = begin(SHOAL_FLOAT32, 1, &four);
  put_TensorProto_float_val(&t, 1);
  put_TensorProto_float_val_packed_n(&t, (float[]){2, 3}, 8); /* packed and not, in one message */
  take(t, (float[]){1, 2, 3, 3}, 4);
  take(begin(SHOAL_FLOAT32, 1, &four), (float[]){0, 0, 0, 0}, 4);
  t = begin(SHOAL_FLOAT32, 1, &two);
  put_TensorProto_float_val_packed_n(&t, (float[]){1, 2, 3}, 12); /* more than the shape: ignored */
  take(t, (float[]){1, 2}, 2);
}

static void content_wins_and_must_fit(void **state) {
  int64_t two = 2;
  struct text t = begin(SHOAL_FLOAT32, 1, &two);
  put_TensorProto_float_val(&t, 9);
  put_TensorProto_tensor_content_n(&t, (float[]){1, 2}, 8);
  take(t, (float[]){1, 2}, 2);
  t = begin(SHOAL_FLOAT32, 1, &two);
  put_TensorProto_tensor_content_n(&t, (float[]){1, 2, 3}, 12);
  refuse(t, SHOAL_INVALID_ARGUMENT, "12 bytes of content");
}

static void truth_is_zero_or_one(void **state) {
  int64_t three = 3;
  struct text t = begin(SHOAL_BOOL, 1, &three);
  put_TensorProto_tensor_content_n(&t, "\x00\x02\xff", 3);
  struct tensor out;
  ASSERT_OK(tensor_proto_decode(t.at, t.n, &out));
  assert_memory_equal(out.data, "\x00\x01\x01", 3);
  tensor_release(&out);
  text_release(&t);
}

static void repeated_strings_have_a_price(void **state) {
  char *megabyte = calloc(1, 1 << 20);
  int64_t many = 1 << 20, few = 3;
  struct text t = begin(SHOAL_STRING, 1, &many); /* a terabyte in all */
  put_TensorProto_string_val_n(&t, megabyte, 1 << 20);
  refuse(t, SHOAL_RESOURCE_EXHAUSTED, "repeats a string of 1048576 bytes");
  t = begin(SHOAL_STRING, 1, &few);
  put_TensorProto_string_val_n(&t, megabyte, 1 << 20);
  struct tensor out;
  ASSERT_OK(tensor_proto_decode(t.at, t.n, &out));
  assert_int_equal(T_DATA(&out, struct str)[2].size, 1 << 20);
  tensor_release(&out);
  text_release(&t);
  free(megabyte);
}

static void shapes_are_not_believed(void **state) {
  int64_t huge = 1ll << 40, most[2] = {INT64_MAX, INT64_MAX}, minus = -1;
  refuse(begin(SHOAL_FLOAT32, 1, &huge), SHOAL_RESOURCE_EXHAUSTED, "more than is allowed");
  refuse(begin(SHOAL_STRING, 1, &huge), SHOAL_RESOURCE_EXHAUSTED, "more than is allowed");
  refuse(begin(SHOAL_FLOAT32, 2, most), SHOAL_INVALID_ARGUMENT, "63 bits");
  refuse(begin(SHOAL_FLOAT32, 1, &minus), SHOAL_INVALID_ARGUMENT, "not fully defined");
  refuse(begin(99, 0, NULL), SHOAL_INVALID_ARGUMENT, "unsupported type 99");
  refuse(begin(101, 0, NULL), SHOAL_INVALID_ARGUMENT, "unsupported type 101");
  struct text t = begin(SHOAL_STRING, 1, &huge);
  put_TensorProto_tensor_content_n(&t, "\x01\x01zz", 4);
  refuse(t, SHOAL_INVALID_ARGUMENT, "lengths");
  struct text deep = {0};
  for (int i = 0; i < 17; i++) put_TensorShapeProto_dim_n(&deep, "\x08\x01", 2);
  struct text shape = {0};
  put_TensorProto_dtype(&shape, SHOAL_FLOAT32);
  put_TensorProto_tensor_shape_n(&shape, deep.at, deep.n);
  refuse(shape, SHOAL_INVALID_ARGUMENT, "more than 16 dimensions");
  text_release(&deep);
}

static void strings_go_both_ways(void **state) {
  struct tensor s, back;
  ASSERT_OK(tensor_new_dims(&s, SHOAL_STRING, 1, (int64_t[]){3}));
  str_set(&T_DATA(&s, struct str)[0], "a\0b", 3);
  str_set(&T_DATA(&s, struct str)[2], "a string that is longer than what fits inside", 45);
  for (int compact = 0; compact < 2; compact++) {
    struct text t = {0};
    ASSERT_OK(compact ? tensor_proto_compact(&s, &t) : tensor_proto_encode(&s, &t));
    ASSERT_OK(tensor_proto_decode(t.at, t.n, &back));
    for (int i = 0; i < 3; i++) {
      const struct str *x = &T_DATA(&s, struct str)[i], *y = &T_DATA(&back, struct str)[i];
      assert_int_equal(x->size, y->size);
      assert_memory_equal(str_data(x), str_data(y), x->size);
    }
    tensor_release(&back);
    text_release(&t);
  }
  tensor_release(&s);
}

static void handles_go_both_ways(void **state) {
  struct tensor h, back;
  ASSERT_OK(tensor_new_scalar(&h, SHOAL_RESOURCE));
  *T_DATA(&h, struct resource_handle *) = resource_handle_new("/cpu:0", "box", "v", "N10tensorflow3VarE");
  struct text t = {0};
  ASSERT_OK(tensor_proto_encode(&h, &t));
  ASSERT_OK(tensor_proto_decode(t.at, t.n, &back));
  const struct resource_handle *a = *T_DATA(&h, struct resource_handle *),
                               *b = *T_DATA(&back, struct resource_handle *);
  assert_string_equal(b->device, "/cpu:0");
  assert_string_equal(b->name, "v");
  assert_true(a->hash_code == b->hash_code);
  tensor_release(&h);
  tensor_release(&back);
  text_release(&t);
}

static void unknown_variants_pass_through(void **state) {
  struct text inner = begin(SHOAL_FLOAT32, 0, NULL), variant = {0}, t = begin(SHOAL_VARIANT, 0, NULL), again = {0};
  put_TensorProto_float_val(&inner, 7);
  put_VariantTensorDataProto_type_name(&variant, "somebody::Else");
  put_VariantTensorDataProto_metadata_n(&variant, "\x00meta", 5);
  put_VariantTensorDataProto_tensors_n(&variant, inner.at, inner.n);
  put_TensorProto_variant_val_n(&t, variant.at, variant.n);
  struct tensor v, back;
  ASSERT_OK(tensor_proto_decode(t.at, t.n, &v));
  ASSERT_OK(tensor_proto_encode(&v, &again));
  ASSERT_OK(tensor_proto_decode(again.at, again.n, &back));
  assert_non_null(*T_DATA(&back, struct variant *));
  struct wire w;
  assert_true(find_TensorProto_variant_val(wire_from(again.at, again.n), &w));
  assert_true(find_VariantTensorDataProto_type_name(w, &w) && wire_left(&w) == 14 &&
              !memcmp(w.at, "somebody::Else", 14));
  tensor_release(&v);
  tensor_release(&back);
  text_release(&inner);
  text_release(&variant);
  text_release(&t);
  text_release(&again);
}

static void variants_do_not_nest_for_ever(void **state) {
  struct text t = begin(SHOAL_VARIANT, 0, NULL);
  for (int i = 0; i < 100; i++) {
    struct text variant = {0}, outer = begin(SHOAL_VARIANT, 0, NULL);
    put_VariantTensorDataProto_type_name(&variant, "x");
    put_VariantTensorDataProto_tensors_n(&variant, t.at, t.n);
    put_TensorProto_variant_val_n(&outer, variant.at, variant.n);
    text_release(&variant);
    text_release(&t);
    t = outer;
  }
  refuse(t, SHOAL_INVALID_ARGUMENT, "nested more than");
}

static void headers_frame_the_tensors_own_bytes(void **state) {
  struct tensor x, back;
  ASSERT_OK(tensor_new_dims(&x, SHOAL_FLOAT32, 1, (int64_t[]){3}));
  memcpy(x.data, (float[]){1, 2, 3}, 12);
  struct text t = {0};
  tensor_proto_header(&x, &t);
  assert_memory_equal(t.at, "\x08\x01\x12\x04\x12\x02\x08\x03\x22\x0c", 10);
  assert_int_equal(t.n, 10);
  text_add(&t, x.data, 12);
  ASSERT_OK(tensor_proto_decode(t.at, t.n, &back));
  assert_memory_equal(back.data, x.data, 12);
  tensor_release(&x);
  tensor_release(&back);
  text_release(&t);
}

RUN_TESTS(cmocka_unit_test(the_last_value_repeats), cmocka_unit_test(content_wins_and_must_fit),
          cmocka_unit_test(truth_is_zero_or_one), cmocka_unit_test(shapes_are_not_believed),
          cmocka_unit_test(strings_go_both_ways), cmocka_unit_test(repeated_strings_have_a_price),
          cmocka_unit_test(handles_go_both_ways), cmocka_unit_test(unknown_variants_pass_through),
          cmocka_unit_test(variants_do_not_nest_for_ever), cmocka_unit_test(headers_frame_the_tensors_own_bytes))

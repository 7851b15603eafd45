/* Shapes, buffers, tensors and their public handles. */
#include "unit.h"

#include <pthread.h>

#include "shoal/tensor.h"
#include "tensor/tensor.h"

static void sizes_are_checked_before_memory_is_taken(void **state) {
  shoal_tensor *t;
  uint64_t before = buffer_system_allocs();
  ASSERT_FAILS(shoal_tensor_new(SHOAL_FLOAT32, 1, (const int64_t[]){-1}, &t), SHOAL_INVALID_ARGUMENT, "");
  ASSERT_FAILS(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){INT64_MAX, 2}, &t), SHOAL_INVALID_ARGUMENT, "");
  ASSERT_FAILS(shoal_tensor_new(SHOAL_FLOAT64, 1, (const int64_t[]){INT64_MAX / 4}, &t), SHOAL_RESOURCE_EXHAUSTED, "");
  ASSERT_FAILS(shoal_tensor_new(SHOAL_FLOAT32, 17, (const int64_t[17]){0}, &t), SHOAL_INVALID_ARGUMENT, "");
  ASSERT_FAILS(shoal_tensor_new((shoal_dtype)99, 0, NULL, &t), SHOAL_INVALID_ARGUMENT, "");
  assert_int_equal(buffer_system_allocs(), before);
  float x = 1;
  ASSERT_FAILS(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){2}, &x, sizeof x, &t), SHOAL_INVALID_ARGUMENT, "");
}

static void a_zero_dimension_hides_no_overflow(void **state) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 3, (const int64_t[]){3, 0, 5}, &t));
  assert_int_equal(shoal_tensor_elements(t), 0);
  assert_int_equal(shoal_tensor_bytes(t), 0);
  shoal_tensor_unref(t);
}

static void handles_hold_values(void **state) {
  const float v[6] = {1, 2, 3, 4, 5, 6};
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 2, (const int64_t[]){2, 3}, v, sizeof v, &t));
  assert_int_equal(shoal_tensor_rank(t), 2);
  assert_int_equal(shoal_tensor_dim(t, 1), 3);
  assert_int_equal(shoal_tensor_dtype(t), SHOAL_FLOAT32);
  assert_memory_equal(shoal_tensor_const_data(t), v, sizeof v);
  assert_int_equal((uintptr_t)shoal_tensor_const_data(t) % 64, 0);
  shoal_tensor_ref(t);
  shoal_tensor_unref(t);
  shoal_tensor_unref(t);
}

static void strings_of_every_length(void **state) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_STRING, 1, (const int64_t[]){40}, &t));
  char text[40];
  memset(text, 'x', sizeof text);
  text[3] = 0; /* strings may hold zero bytes */
  for (int i = 0; i < 40; i++) ASSERT_OK(shoal_tensor_set_string(t, i, text, (size_t)i));
  for (int i = 39; i >= 0; i--) ASSERT_OK(shoal_tensor_set_string(t, i, text, (size_t)(39 - i)));
  for (int i = 0; i < 40; i++) {
    size_t n;
    const char *s = shoal_tensor_string(t, i, &n);
    assert_int_equal(n, 39 - i);
    assert_memory_equal(s, text, n);
  }
  ASSERT_FAILS(shoal_tensor_set_string(t, 40, "", 0), SHOAL_INVALID_ARGUMENT, "");
  shoal_tensor_unref(t);
}

static void views_share_and_copies_do_not(void **state) {
  struct tensor a, rows, b, copy;
  ASSERT_OK(tensor_new_dims(&a, SHOAL_INT32, 2, (const int64_t[]){4, 3}));
  for (int i = 0; i < 12; i++) T_DATA(&a, int32_t)[i] = i;
  assert_true(tensor_writable(&a));
  tensor_rows(&rows, &a, 1, 3);
  assert_false(tensor_writable(&a));
  assert_int_equal(rows.dims[0], 2);
  assert_int_equal(T_DATA(&rows, int32_t)[0], 3);
  struct shape six_two = shape_matrix(6, 2), bad = shape_matrix(5, 2);
  ASSERT_OK(tensor_reshape(&b, &a, &six_two));
  assert_ptr_equal(a.data, b.data);
  struct tensor none;
  shoal_status s = tensor_reshape(&none, &a, &bad);
  assert_non_null(s);
  shoal_status_free(s);
  ASSERT_OK(tensor_copy(&copy, &rows));
  assert_true(tensor_writable(&copy));
  T_DATA(&copy, int32_t)[0] = 99;
  assert_int_equal(T_DATA(&a, int32_t)[3], 3);
  tensor_release(&rows);
  tensor_release(&b);
  assert_true(tensor_writable(&a));
  tensor_release(&a);
  tensor_release(&copy);
}

static void broadcasting(void **state) {
  struct shape a = {3, {4, 1, 3}}, b = {2, {2, 1}}, out, c = {1, {5}};
  ASSERT_OK(shape_broadcast(&a, &b, &out));
  assert_string_equal(shape_str(&out), "[4,2,3]");
  shoal_status s = shape_broadcast(&a, &c, &out);
  assert_non_null(s);
  shoal_status_free(s);
  struct shape unknown = shape_unknown();
  ASSERT_OK(shape_broadcast(&a, &unknown, &out));
  assert_int_equal(out.rank, -1);
}

static void *churn(void *arg) {
  unsigned seed = (unsigned)(uintptr_t)arg;
  struct buffer *kept[32] = {0};
  for (int i = 0; i < 20000; i++) {
    seed = seed * 1103515245 + 12345;
    int k = seed >> 16 & 31;
    buffer_unref(kept[k]);
    kept[k] = NULL;
    size_t size = (size_t)1 << (seed >> 24 & 15);
    if (buffer_new(size + (seed & 7), &kept[k])) abort();
    memset(kept[k]->data, k, kept[k]->size);
  }
  for (int k = 0; k < 32; k++) buffer_unref(kept[k]);
  return NULL;
}

static void buffers_from_many_threads(void **state) {
  size_t before = buffer_bytes_in_use();
  pthread_t t[4];
  for (uintptr_t i = 0; i < 4; i++) pthread_create(&t[i], NULL, churn, (void *)(i + 1));
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  assert_int_equal(buffer_bytes_in_use(), before);
  buffer_trim();
}

static void freed_buffers_are_used_again(void **state) {
  static const size_t sizes[] = {1, 64, 1000, 4096, 100000, 3 << 20};
  for (int round = 0; round < 3; round++) {
    uint64_t before = buffer_system_allocs();
    for (int i = 0; i < 6; i++) {
      struct buffer *b;
      ASSERT_OK(buffer_new(sizes[i], &b));
      assert_int_equal((uintptr_t)b->data % 64, 0);
      buffer_unref(b);
    }
    if (round) assert_int_equal(buffer_system_allocs(), before);
  }
}

static int released;
static void on_release(struct buffer *b) {
  released++;
  assert_ptr_equal(b->owner, &released);
}

static void foreign_memory_goes_back_to_its_owner(void **state) {
  static float memory[4];
  struct buffer *b = buffer_wrap(memory, sizeof memory, NULL, on_release, &released);
  buffer_ref(b);
  buffer_unref(b);
  assert_int_equal(released, 0);
  buffer_unref(b);
  assert_int_equal(released, 1);
}

static void dtype_names(void **state) {
  assert_string_equal(shoal_dtype_name(SHOAL_FLOAT32), "float32");
  assert_string_equal(shoal_dtype_name((shoal_dtype)(SHOAL_FLOAT32 + 100)), "float32_ref");
  assert_null(shoal_dtype_name((shoal_dtype)77));
  assert_int_equal(shoal_dtype_size(SHOAL_COMPLEX128), 16);
  assert_int_equal(shoal_dtype_size(SHOAL_STRING), 0);
}

RUN_TESTS(cmocka_unit_test(sizes_are_checked_before_memory_is_taken),
          cmocka_unit_test(a_zero_dimension_hides_no_overflow), cmocka_unit_test(handles_hold_values),
          cmocka_unit_test(strings_of_every_length), cmocka_unit_test(views_share_and_copies_do_not),
          cmocka_unit_test(broadcasting), cmocka_unit_test(buffers_from_many_threads),
          cmocka_unit_test(freed_buffers_are_used_again), cmocka_unit_test(foreign_memory_goes_back_to_its_owner),
          cmocka_unit_test(dtype_names))

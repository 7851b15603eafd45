/* Checkpoints and pictures made to do harm: their checksums are right, what they say is not. (Damage by chance is in
 * files_test.c, and tests/fuzz/bundle_fuzz.c looks for more.) */
#include <unistd.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "checkpoint/bundle.h"
#include "checkpoint/slices_v1.h"
#include "checkpoint/table.h"
#include "folder.h"
#include "ops/image/image_format.h"
#include "proto/checkpoint.wire.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "unit.h"

/* ---- tables ---- */

static void put32(struct text *t, uint32_t v) {
  for (int i = 0; i < 4; i++) text_addc(t, (char)(v >> (8 * i)));
}

static void put_entry(struct text *block, size_t shared, const char *rest, size_t n, const char *value,
                      size_t value_n) {
  wire_put_varint(block, shared);
  wire_put_varint(block, n);
  wire_put_varint(block, value_n);
  text_add(block, rest, n);
  text_add(block, value, value_n);
}

/* Appends a block with one restart; its handle goes to out. */
static void put_block(struct text *file, struct text *block, struct text *handle) {
  put32(block, 0);
  put32(block, 1);
  wire_put_varint(handle, file->n);
  wire_put_varint(handle, block->n);
  text_addc(block, 0);
  uint32_t crc = crc32c_mask(crc32c(block->at, block->n));
  put32(block, crc);
  text_add(file, block->at, block->n);
  text_release(block);
}

/* A table of one block and an index. */
static void write_table(const char *path, struct text *block, struct text *index, const char *last_key) {
  struct text file = {0}, at = {0}, index_at = {0};
  put_block(&file, block, &at);
  put_entry(index, 0, last_key, strlen(last_key), at.at, at.n);
  put_block(&file, index, &index_at);
  struct text footer = {0};
  text_add(&footer, "\0\0", 2);
  text_add(&footer, index_at.at, index_at.n);
  while (footer.n < 40) text_addc(&footer, 0);
  put32(&footer, 0x8b80fb57u);
  put32(&footer, 0xdb477524u);
  text_add(&file, footer.at, footer.n);
  ASSERT_OK(file_write(path, file.at, file.n));
  text_release(&file);
  text_release(&at);
  text_release(&index_at);
  text_release(&footer);
}

enum { LONG = 1 << 20, MANY = 200000 };

/* A key of a megabyte, and 200,000 that repeat it with a byte more: 200 GB of keys in a file of a few megabytes. */
static void put_repeats(struct text *block) {
  char *key = mem_alloc(LONG);
  memset(key, 'a', LONG);
  put_entry(block, 0, key, LONG, "\1\1", 2);
  for (uint32_t i = 1; i < MANY; i++) {
    char last[4] = {(char)(i >> 24), (char)(i >> 16), (char)(i >> 8), (char)i};
    put_entry(block, LONG, last, 4, "\1\1", 2);
  }
  free(key);
}

static void test_keys_that_repeat(void **state) {
  char *prefix = in_dir("repeats"), *path = bundle_index_path(prefix);
  struct text block = {0}, index = {0};
  put_entry(&block, 0, "", 0, "\x08\x01", 2); /* a header: one shard */
  put_repeats(&block);
  write_table(path, &block, &index, "b");
  struct bundle b;
  ASSERT_FAILS(bundle_open(&b, prefix), SHOAL_DATA_LOSS, "keys repeat");
  block = index = (struct text){0};
  put_entry(&block, 0, "", 0, "\x08\x01", 2);
  put_repeats(&index);
  write_table(path, &block, &index, "b");
  struct table t;
  ASSERT_FAILS(table_open(&t, path), SHOAL_DATA_LOSS, "keys repeat");
  free(path);
  free(prefix);
}

/* ---- slices ---- */

static void put_slice(struct text *t, uint32_t tag, int64_t start, int64_t length) {
  size_t slice = wire_open(t, tag), extent = begin_TensorSliceProto_extent(t);
  if (start) put_TensorSliceProto_Extent_start(t, start);
  if (length >= 0) put_TensorSliceProto_Extent_length(t, length);
  wire_end(t, extent);
  wire_end(t, slice);
}

static void put_shape(struct text *t, int64_t dim) {
  size_t shape = begin_SavedSliceMeta_shape(t), d = begin_TensorShapeProto_dim(t);
  put_TensorShapeProto_Dim_size(t, dim);
  wire_end(t, d);
  wire_end(t, shape);
}

/* The same half twice is not the whole: what lies between would be what memory held before. */
static void test_bundle_overlap(void **state) {
  char *prefix = in_dir("overlap");
  struct bundle_writer w;
  struct tensor half, back;
  struct shape full = {.rank = 1, .dims = {8}};
  struct slice first = {.rank = 1, .start = {0}, .length = {4}};
  ASSERT_OK(tensor_new_dims(&half, SHOAL_FLOAT32, 1, (int64_t[]){4}));
  memset(half.data, 0, 16);
  ASSERT_OK(bundle_writer_open(&w, prefix));
  ASSERT_OK(bundle_writer_add(&w, "another", 7, &half)); /* so that there are bytes enough */
  ASSERT_OK(bundle_writer_add_slice(&w, "v", 1, &full, &first, &half));
  ASSERT_OK(bundle_writer_finish(&w));
  struct bundle b;
  ASSERT_OK(bundle_open(&b, prefix));
  ASSERT_FAILS(bundle_read(&b, "v", 1, &back), SHOAL_INVALID_ARGUMENT, "sufficient slices");
  for (size_t i = 0; i < b.items.n; i++)
    if (b.items.at[i].key_n == 1) put_slice(&b.items.at[i].value, BundleEntryProto_slices, 0, 4);
  ASSERT_FAILS(bundle_read(&b, "v", 1, &back), SHOAL_INTERNAL, "Overlapping slices of tensor v");
  bundle_close(&b);
  tensor_release(&half);
  free(prefix);
}

/* A key without an end, as strings of tensors are, in the words about an entry that its file is too short for. */
static void test_bundle_key_in_words(void **state) {
  char *prefix = in_dir("short"), *data = mem_printf("%s.data-00000-of-00001", prefix), *key = mem_alloc(40);
  struct bundle_writer w;
  struct tensor t;
  memset(key, 'k', 40);
  ASSERT_OK(tensor_new_dims(&t, SHOAL_FLOAT32, 1, (int64_t[]){4}));
  memset(t.data, 0, 16);
  ASSERT_OK(bundle_writer_open(&w, prefix));
  ASSERT_OK(bundle_writer_add(&w, key, 20, &t));
  ASSERT_OK(bundle_writer_finish(&w));
  assert_int_equal(truncate(data, 8), 0);
  tensor_release(&t);
  struct bundle b;
  ASSERT_OK(bundle_open(&b, prefix));
  ASSERT_FAILS(bundle_read(&b, key, 20, &t), SHOAL_OUT_OF_RANGE, "key kkkkkkkkkkkkkkkkkkkk of checkpoint");
  bundle_close(&b);
  free(key);
  free(data);
  free(prefix);
}

/* The index of a bundle is in memory as long as the bundle is open, and in the account. */
static void test_index_is_counted(void **state) {
  enum { KEYS = 64, LENGTH = 64 << 10 };
  char *prefix = in_dir("counted"), *key = mem_zalloc(LENGTH, 1);
  memset(key, 'k', LENGTH);
  struct tensor x;
  ASSERT_OK(tensor_new_scalar(&x, SHOAL_FLOAT32));
  struct bundle_writer w;
  ASSERT_OK(bundle_writer_open(&w, prefix));
  for (int i = 0; i < KEYS; i++) {
    key[0] = (char)('0' + i);
    ASSERT_OK(bundle_writer_add(&w, key, LENGTH, &x));
  }
  ASSERT_OK(bundle_writer_finish(&w));
  struct bundle b;
  size_t before = buffer_bytes_in_use();
  ASSERT_OK(bundle_open(&b, prefix));
  assert_true(buffer_bytes_in_use() >= before + (size_t)KEYS * LENGTH / 2); /* a thread tells of it now and then */
  bundle_close(&b);
  assert_true(buffer_bytes_in_use() < before + (size_t)KEYS * LENGTH / 2);
  tensor_release(&x);
  free(key);
  free(prefix);
}

static size_t most_in_use; /* of memory, when something was renamed */
static int renamed;
static void on_change(const char *what, const char *path) {
  if (strcmp(what, "rename")) return;
  most_in_use = MAX(most_in_use, buffer_bytes_in_use());
  renamed++;
}

/* So is what a merge keeps of the indices; until it renames the first file it can be cancelled, and nothing is lost. */
static void test_merge_is_counted(void **state) {
  enum { KEYS = 64, LENGTH = 64 << 10 };
  char *prefix = in_dir("part"), *merged = in_dir("merged"), *key = mem_zalloc(LENGTH, 1);
  memset(key, 'k', LENGTH);
  struct tensor x;
  ASSERT_OK(tensor_new_scalar(&x, SHOAL_FLOAT32));
  struct bundle_writer w;
  ASSERT_OK(bundle_writer_open(&w, prefix));
  for (int i = 0; i < KEYS; i++) {
    key[0] = (char)('0' + i);
    ASSERT_OK(bundle_writer_add(&w, key, LENGTH, &x));
  }
  ASSERT_OK(bundle_writer_finish(&w));
  struct cancel cancel;
  cancel_init(&cancel);
  cancel_start(&cancel, STATUS(SHOAL_CANCELLED, "not wanted"));
  size_t before = buffer_bytes_in_use();
  file_fault = on_change;
  ASSERT_FAILS(bundle_merge((const char *[]){prefix}, 1, merged, false, &cancel), SHOAL_CANCELLED, "not wanted");
  assert_int_equal(renamed, 0);
  cancel_release(&cancel);
  cancel_init(&cancel);
  ASSERT_OK(bundle_merge((const char *[]){prefix}, 1, merged, false, &cancel));
  file_fault = NULL;
  assert_true(renamed > 0 && most_in_use >= before + (size_t)KEYS * LENGTH / 2);
  assert_true(buffer_bytes_in_use() < before + (size_t)KEYS * LENGTH / 2);
  struct bundle b;
  ASSERT_OK(bundle_open(&b, merged));
  assert_int_equal(b.items.n, KEYS);
  bundle_close(&b);
  cancel_release(&cancel);
  tensor_release(&x);
  free(key);
  free(merged);
  free(prefix);
}

static void test_slice_messages(void **state) {
  struct text t = {0};
  struct slice s;
  put_slice(&t, BundleEntryProto_slices, 1, -1); /* a whole dimension has no start */
  struct wire inside;
  assert_true(find_BundleEntryProto_slices(wire_from(t.at, t.n), &inside));
  assert_false(slice_decode(inside.at, wire_left(&inside), &s));
  text_release(&t);
}

/* ---- the first format ---- */

/* One float tensor "v" of that shape in slices of 4 from the starts given; each has the same message of values. */
static char *write_v1(const char *name, int64_t dim, int n, const int64_t *starts, const struct text *values) {
  char *path = in_dir(name);
  struct table_writer w;
  struct text meta = {0}, key = {0}, value = {0};
  size_t list = begin_SavedTensorSlices_meta(&meta), tensor = begin_SavedTensorSliceMeta_tensor(&meta);
  put_SavedSliceMeta_name(&meta, "v");
  put_shape(&meta, dim);
  put_SavedSliceMeta_type(&meta, SHOAL_FLOAT32);
  for (int i = 0; i < n; i++) put_slice(&meta, SavedSliceMeta_slice, starts[i], 4);
  wire_end(&meta, tensor);
  wire_end(&meta, list);
  ASSERT_OK(table_writer_open(&w, path));
  ASSERT_OK(table_writer_add(&w, "", 0, meta.at, meta.n));
  for (int i = 0; i < n; i++) {
    if (i && starts[i] == starts[i - 1]) continue;
    struct slice s = {.rank = 1, .start = {starts[i]}, .length = {4}};
    key.n = value.n = 0;
    slice_key("v", 1, &s, &key);
    size_t saved = begin_SavedTensorSlices_data(&value);
    put_SavedSlice_data_n(&value, values->at, values->n);
    wire_end(&value, saved);
    ASSERT_OK(table_writer_add(&w, key.at, key.n, value.at, value.n));
  }
  ASSERT_OK(table_writer_finish(&w));
  text_release(&meta);
  text_release(&key);
  text_release(&value);
  return path;
}

static shoal_status read_v1(char *path) {
  struct v1_reader r;
  struct tensor t;
  shoal_status s = v1_open(&r, path);
  if (!s) {
    struct slice all = slice_whole(1);
    s = v1_read(&r, v1_find(&r, "v", 1), &all, &t);
    if (!s) tensor_release(&t);
    v1_close(&r);
  }
  free(path);
  return s;
}

static void test_v1(void **state) {
  struct text values = {0};
  put_TensorProto_float_val_packed_n(&values, "0123456789abcdef", 16);
  ASSERT_OK(read_v1(write_v1("sound", 8, 2, (int64_t[]){0, 4}, &values)));
  ASSERT_FAILS(read_v1(write_v1("twice", 8, 2, (int64_t[]){0, 0}, &values)), SHOAL_INTERNAL, "Overlapping slices");
  ASSERT_FAILS(read_v1(write_v1("huge", (int64_t)1 << 40, 1, (int64_t[]){0}, &values)), SHOAL_INVALID_ARGUMENT,
               "not all of tensor v");
  /* The values bring a type, or a shape, of their own. */
  struct text typed = {0}, shaped = {0};
  put_TensorProto_dtype(&typed, SHOAL_COMPLEX128);
  ASSERT_FAILS(read_v1(write_v1("typed", 8, 2, (int64_t[]){0, 4}, &typed)), SHOAL_DATA_LOSS, "another shape or type");
  ASSERT_FAILS(read_v1(write_v1("typed1", 4, 1, (int64_t[]){0}, &typed)), SHOAL_DATA_LOSS, "another shape or type");
  put_shape(&shaped, 1);
  ASSERT_FAILS(read_v1(write_v1("shaped", 8, 2, (int64_t[]){0, 4}, &shaped)), SHOAL_DATA_LOSS, "another shape or type");
  text_release(&values);
  text_release(&typed);
  text_release(&shaped);
}

/* ---- pictures ---- */

static shoal_status never(void *arg, int64_t height, int64_t width, int64_t channels, void **pixels) {
  print_error("memory is asked for: %lld by %lld\n", (long long)height, (long long)width);
  fail();
  return NULL;
}

/* Two frames of one row and one column make 3 GB of pixels between them. */
static void test_gif_of_thin_frames(void **state) {
  static const unsigned char gif[] =
      "GIF89a\0\0\0\0\x80\0\0" /* two colours: */
      "\1\2\3\4\5\6"
      "\x2c\0\0\0\0\x30\x75\1\0\0" /* 30,000 by 1 */
      "\2\1\x05\0"
      "\x2c\0\0\0\0\1\0\x30\x75\0" /* 1 by 30,000 */
      "\2\1\x05\0"
      "\x3b";
  int count;
  ASSERT_FAILS(gif_decode(gif, sizeof gif - 1, false, &count, never, NULL), SHOAL_INVALID_ARGUMENT, "too large");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_keys_that_repeat),
      cmocka_unit_test(test_bundle_overlap),
      cmocka_unit_test(test_bundle_key_in_words),
      cmocka_unit_test(test_index_is_counted),
      cmocka_unit_test(test_merge_is_counted),
      cmocka_unit_test(test_slice_messages),
      cmocka_unit_test(test_v1),
      cmocka_unit_test(test_gif_of_thin_frames),
  };
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

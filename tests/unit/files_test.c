/* Files and what is in them: checksums, atomic writes, records, tables, checkpoints, the state file, event files. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/wire.h"
#include "checkpoint/bundle.h"
#include "checkpoint/slices_v1.h"
#include "checkpoint/state.h"
#include "checkpoint/table.h"
#include "data/record.h"
#include "data/event_writer.h"
#include "folder.h"
#include "unit.h"

static void test_crc(void **state) {
  assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
  assert_int_equal(crc32c("", 0), 0);
  unsigned char zeros[32] = {0};
  assert_int_equal(crc32c(zeros, 32), 0x8a9136aau);
  for (size_t cut = 0; cut <= 9; cut++)
    assert_int_equal(crc32c_extend(crc32c("123456789", cut), &"123456789"[cut], 9 - cut), 0xe3069283u);
  assert_int_equal(crc32c_unmask(crc32c_mask(0x12345678u)), 0x12345678u);
  for (size_t cut = 0; cut <= 9; cut++)
    assert_int_equal(crc32c_join(crc32c("123456789", cut), crc32c(&"123456789"[cut], 9 - cut), 9 - cut), 0xe3069283u);
}

/* Tensors that are read in parts on several threads: whole, the checksum checked over all of it. */
static void test_large_tensors(void **state) {
  enum { SMALL = 1000, LARGE = (9 << 20) + 12345 };
  char *prefix = in_dir("large_tensors"), *data = bundle_data_path(prefix, 0, 1), *bytes;
  struct tensor a, b, got;
  struct bundle_writer w;
  struct pool *pool = pool_new(3, "test");
  ASSERT_OK(tensor_new_dims(&a, SHOAL_UINT8, 1, (const int64_t[]){SMALL}));
  ASSERT_OK(tensor_new_dims(&b, SHOAL_UINT8, 1, (const int64_t[]){LARGE}));
  memset(a.data, 7, SMALL);
  for (size_t i = 0; i < LARGE; i++) ((char *)b.data)[i] = (char)(i * 2654435761u >> 13);
  ASSERT_OK(bundle_writer_open(&w, prefix));
  ASSERT_OK(bundle_writer_add(&w, "a", 1, &a));
  ASSERT_OK(bundle_writer_add(&w, "b", 1, &b));
  ASSERT_OK(bundle_writer_finish(&w));
  for (int threads = 0; threads < 2; threads++) {
    struct bundle all;
    ASSERT_OK(bundle_open(&all, prefix));
    all.pool = threads ? pool : NULL;
    ASSERT_OK(bundle_read(&all, "b", 1, &got));
    assert_memory_equal(got.data, b.data, LARGE);
    tensor_release(&got);
    bundle_close(&all);
  }
  size_t n;
  ASSERT_OK(file_read(data, 0, &bytes, &n));
  bytes[n - 1] ^= 1;
  ASSERT_OK(file_write(data, bytes, n));
  struct bundle all;
  ASSERT_OK(bundle_open(&all, prefix));
  all.pool = pool;
  ASSERT_FAILS(bundle_read(&all, "b", 1, &got), SHOAL_DATA_LOSS, "Checksum does not match");
  bundle_close(&all);
  free(bytes);
  ASSERT_OK(file_remove(data));
  char *index = bundle_index_path(prefix);
  ASSERT_OK(file_remove(index));
  tensor_release(&a);
  tensor_release(&b);
  pool_free(pool);
  free(index);
  free(data);
  free(prefix);
}

static void test_wire(void **state) {
  struct text t = {0};
  wire_add_uint(&t, wire_tag(1, WIRE_VARINT), 300);
  wire_add_str(&t, wire_tag(2, WIRE_BYTES), "abc");
  wire_add_double(&t, wire_tag(3, WIRE_FIXED64), 1.5);
  struct wire w = wire_from(t.at, t.n);
  struct wire_field f;
  assert_int_equal(wire_next(&w, &f), WIRE_FIELD);
  assert_int_equal(f.value, 300);
  assert_int_equal(wire_next(&w, &f), WIRE_FIELD);
  assert_memory_equal(f.data, "abc", 3);
  assert_int_equal(wire_next(&w, &f), WIRE_FIELD);
  assert_true(wire_double(&f) == 1.5);
  assert_int_equal(wire_next(&w, &f), WIRE_END);
  for (size_t n = 1; n < t.n; n++) { /* cut anywhere, it ends or is broken; never past its bounds */
    w = wire_from(t.at, n);
    enum wire_step step;
    while ((step = wire_next(&w, &f)) == WIRE_FIELD) continue;
    assert_true(step == WIRE_END || step == WIRE_BROKEN);
  }
  text_release(&t);
}

static int count_files(void) {
  struct path_list l = {0};
  ASSERT_OK(directory_list(folder, &l));
  int n = (int)l.paths.n;
  path_list_release(&l);
  return n;
}

static void test_atomic_write(void **state) {
  char *path = in_dir("atomic"), *data;
  size_t n;
  ASSERT_OK(file_write(path, "old", 3));
  struct file_writer w;
  ASSERT_OK(file_writer_open(&w, path));
  ASSERT_OK(file_writer_add(&w, "new", 3));
  ASSERT_OK(file_read(path, 0, &data, &n)); /* not yet */
  assert_string_equal(data, "old");
  free(data);
  file_writer_abort(&w);
  assert_int_equal(count_files(), 1); /* no temporary is left */
  ASSERT_OK(file_write(path, "newer", 5));
  ASSERT_OK(file_read(path, 5, &data, &n));
  assert_int_equal(n, 5);
  free(data);
  ASSERT_FAILS(file_read(path, 4, &data, &n), SHOAL_RESOURCE_EXHAUSTED, "larger than");
  ASSERT_FAILS(file_read("/nonexistent/x", 0, &data, &n), SHOAL_NOT_FOUND, "/nonexistent/x; No such file");
  ASSERT_FAILS(file_write("/nonexistent/x", "", 0), SHOAL_NOT_FOUND, "No such file");
  ASSERT_FAILS(file_read("s3://b/x", 0, &data, &n), SHOAL_UNIMPLEMENTED, "scheme 's3'");
  ASSERT_OK(file_remove(path));
  free(path);
}

static void holds(const char *path, const char *text, bool link) {
  char *got;
  size_t n;
  struct stat st;
  ASSERT_OK(file_read(path, 0, &got, &n));
  assert_int_equal(n, strlen(text));
  assert_memory_equal(got, text, n);
  free(got);
  assert_int_equal(lstat(path, &st), 0);
  assert_int_equal(S_ISLNK(st.st_mode), link);
}

/* A link stays; what it leads to is replaced as a whole, or made. */
static void test_links(void **state) {
  char *below = in_dir("links/below"), *file = in_dir("links/below/file"), *link = in_dir("links/link"),
       *far = in_dir("links/far"), *dangling = in_dir("links/dangling"), *made = in_dir("links/below/made"),
       *no_folder = in_dir("links/no_folder"), *loop = in_dir("links/loop");
  ASSERT_OK(directory_make(below));
  ASSERT_OK(file_write(file, "old", 3));
  assert_int_equal(symlink("below/../below/file", link), 0);
  assert_int_equal(symlink(link, far), 0); /* absolute, to a link */
  assert_int_equal(symlink("below/made", dangling), 0);
  assert_int_equal(symlink("absent/file", no_folder), 0);
  assert_int_equal(symlink("loop", loop), 0);
  struct file_writer w;
  ASSERT_OK(file_writer_open(&w, far));
  ASSERT_OK(file_writer_add(&w, "half", 4));
  holds(file, "old", false);
  file_writer_abort(&w);
  ASSERT_OK(file_write(far, "new", 3));
  holds(far, "new", true);
  holds(link, "new", true);
  holds(file, "new", false);
  ASSERT_OK(file_write(dangling, "here", 4));
  holds(dangling, "here", true);
  holds(made, "here", false);
  ASSERT_FAILS(file_write(no_folder, "x", 1), SHOAL_NOT_FOUND, "links/absent/file");
  ASSERT_FAILS(file_write(loop, "x", 1), SHOAL_UNKNOWN, "links/loop");
  struct path_list left = {0};
  ASSERT_OK(directory_list(below, &left));
  assert_int_equal(left.paths.n, 2); /* and no temporaries */
  path_list_release(&left);
  free(below), free(file), free(link), free(far), free(dangling), free(made), free(no_folder), free(loop);
}

/* Files that outgrow the buffers, in pieces of sizes that fit nowhere, on a disk and in memory; abandoned, and cut off
 * by a limit in the middle, as by a full disk. */
static void test_large_files(void **state) {
  enum { BUFFER = 1 << 18, PIECE = 4 << 20 };
  static const size_t sizes[] = {BUFFER, BUFFER + 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 4096, 3 * PIECE + 777};
  size_t most = sizes[COUNT_OF(sizes) - 1], n;
  char *all = mem_alloc(most), *data, *on_disk = in_dir("large"), in_memory[] = "/dev/shm/shoal_files_test.large";
  for (size_t i = 0; i < most; i++) all[i] = (char)(i * 2654435761u >> 13);
  const char *paths[] = {on_disk, in_memory};
  struct file_writer w;
  for (size_t k = 0; k < COUNT_OF(paths) * COUNT_OF(sizes); k++) {
    const char *path = paths[k / COUNT_OF(sizes)];
    size_t size = sizes[k % COUNT_OF(sizes)], piece = 17;
    ASSERT_OK(file_writer_open(&w, path));
    for (size_t at = 0, part; at < size; at += part, piece = piece * 7 % 1000003) {
      part = MIN(piece, size - at);
      ASSERT_OK(file_writer_add(&w, all + at, part));
    }
    ASSERT_OK(file_writer_commit(&w));
    ASSERT_OK(file_read(path, 0, &data, &n));
    assert_int_equal(n, size);
    assert_memory_equal(data, all, n);
    free(data);
    ASSERT_OK(file_remove(path));
  }
  ASSERT_OK(file_writer_open(&w, on_disk));
  ASSERT_OK(file_writer_add(&w, all, most));
  file_writer_abort(&w);

  struct rlimit before, tight;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  tight = before;
  tight.rlim_cur = PIECE + PIECE / 2;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
  ASSERT_FAILS(file_write(on_disk, all, most), SHOAL_UNKNOWN, "large; File too large");
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(count_files(), 0);
  free(on_disk);
  free(all);
}

static void test_records(void **state) {
  for (int c = RECORD_PLAIN; c <= RECORD_ZLIB; c++) {
    char *path = in_dir("records");
    struct record_writer w;
    ASSERT_OK(record_writer_open(&w, path, (enum record_compression)c));
    char *big = mem_zalloc(1, 3 << 20);
    for (size_t i = 0; i < 3 << 20; i++) big[i] = (char)(i * 2654435761u >> 13);
    ASSERT_OK(record_write(&w, "one", 3));
    ASSERT_OK(record_write(&w, "", 0));
    ASSERT_OK(record_write(&w, big, 3 << 20));
    ASSERT_OK(record_writer_close(&w));
    struct record_reader r;
    struct text t = {0};
    ASSERT_OK(record_reader_open(&r, path, (enum record_compression)c));
    ASSERT_OK(record_read(&r, &t));
    assert_int_equal(t.n, 3);
    ASSERT_OK(record_read(&r, &t));
    assert_int_equal(t.n, 0);
    ASSERT_OK(record_read(&r, &t));
    assert_int_equal(t.n, 3 << 20);
    assert_memory_equal(t.at, big, 3 << 20);
    ASSERT_FAILS(record_read(&r, &t), SHOAL_OUT_OF_RANGE, "eof");
    record_reader_close(&r);
    text_release(&t);
    free(big);
    ASSERT_OK(file_remove(path));
    free(path);
  }
}

static void test_damaged_records(void **state) {
  char *path = in_dir("damaged"), *data;
  struct record_writer w;
  ASSERT_OK(record_writer_open(&w, path, RECORD_PLAIN));
  ASSERT_OK(record_write(&w, "hello", 5));
  ASSERT_OK(record_writer_close(&w));
  size_t n;
  ASSERT_OK(file_read(path, 0, &data, &n));
  struct record_reader r;
  struct text t = {0};
  for (size_t i = 0; i < n; i++) { /* any byte wrong, and any cut, is told */
    data[i] ^= 1;
    ASSERT_OK(file_write(path, data, n));
    ASSERT_OK(record_reader_open(&r, path, RECORD_PLAIN));
    ASSERT_FAILS(record_read(&r, &t), SHOAL_DATA_LOSS, "record at 0");
    record_reader_close(&r);
    data[i] ^= 1;
    ASSERT_OK(file_write(path, data, i));
    ASSERT_OK(record_reader_open(&r, path, RECORD_PLAIN));
    ASSERT_FAILS(record_read(&r, &t), i ? SHOAL_DATA_LOSS : SHOAL_OUT_OF_RANGE, i ? "truncated record at 0" : "eof");
    record_reader_close(&r);
  }
  text_release(&t);
  free(data);
  free(path);
}

static shoal_status count_entry(void *arg, const char *key, size_t key_n, const char *value, size_t n) {
  ++*(int *)arg;
  return NULL;
}

static void test_table(void **state) {
  enum { N = 5000 };
  char *path = in_dir("table"), key[64], value[256];
  struct table_writer w;
  ASSERT_OK(table_writer_open(&w, path));
  for (int i = 0; i < N; i++) {
    int k = snprintf(key, sizeof key, "prefix/%08d", i), v = snprintf(value, sizeof value, "%0*d", i % 200 + 1, i);
    ASSERT_OK(table_writer_add(&w, key, (size_t)k, value, (size_t)v));
  }
  ASSERT_OK(table_writer_finish(&w));
  struct table t;
  ASSERT_OK(table_open(&t, path));
  assert_true(t.blocks.n > 1);
  int n = 0;
  ASSERT_OK(table_each(&t, count_entry, &n));
  assert_int_equal(n, N);
  char *found;
  size_t size;
  for (int i = 0; i < N; i += 37) {
    int k = snprintf(key, sizeof key, "prefix/%08d", i);
    ASSERT_OK(table_find(&t, key, (size_t)k, &found, &size));
    assert_non_null(found);
    size_t digits = MIN(size, (size_t)8);
    char number[9] = {0};
    memcpy(number, found + size - digits, digits);
    assert_int_equal(atoi(number), i);
    free(found);
  }
  ASSERT_OK(table_find(&t, "prefix/x", 8, &found, &size));
  assert_null(found);
  table_close(&t);
  free(path);
}

/* A byte of the index or of the data flipped: values come back right, or an error; never something else. */
static void test_damaged_bundle(void **state) {
  char *prefix = in_dir("bundle");
  struct bundle_writer w;
  struct tensor x, s, back;
  ASSERT_OK(tensor_new_dims(&x, SHOAL_FLOAT32, 2, (int64_t[]){3, 4}));
  for (int i = 0; i < 12; i++) T_DATA(&x, float)[i] = (float)i;
  ASSERT_OK(tensor_new_dims(&s, SHOAL_STRING, 1, (int64_t[]){2}));
  str_set(&T_DATA(&s, struct str)[1], "a string of some length", 23);
  ASSERT_OK(bundle_writer_open(&w, prefix));
  ASSERT_OK(bundle_writer_add(&w, "x", 1, &x));
  ASSERT_OK(bundle_writer_add(&w, "s", 1, &s));
  ASSERT_FAILS(bundle_writer_add(&w, "x", 1, &x), SHOAL_INVALID_ARGUMENT, "Adding duplicate key: x");
  ASSERT_OK(bundle_writer_finish(&w));
  char *paths[] = {bundle_index_path(prefix), bundle_data_path(prefix, 0, 1)};
  for (int f = 0; f < 2; f++) {
    char *data;
    size_t n;
    ASSERT_OK(file_read(paths[f], 0, &data, &n));
    for (size_t i = 0; i < n; i++) {
      data[i] ^= 0x10;
      ASSERT_OK(file_write(paths[f], data, n));
      data[i] ^= 0x10;
      struct bundle b;
      shoal_status e = bundle_open(&b, prefix);
      if (!e) {
        e = bundle_read(&b, "x", 1, &back);
        if (!e) {
          assert_memory_equal(back.data, x.data, 48);
          tensor_release(&back);
        }
        bundle_close(&b);
      }
      shoal_status_free(e);
    }
    ASSERT_OK(file_write(paths[f], data, n));
    free(data);
    free(paths[f]);
  }
  tensor_release(&x);
  tensor_release(&s);
  free(prefix);
}

static void test_slices(void **state) {
  struct shape full, part;
  struct slice s;
  ASSERT_OK(slice_parse("11 4 4,4:-", 10, &full, &s, &part));
  assert_int_equal(full.rank, 2);
  assert_int_equal(part.dims[0], 4);
  assert_int_equal(part.dims[1], 4);
  s.length[1] = 4;
  struct text key = {0};
  slice_key("p", 1, &s, &key);
  assert_int_equal(key.n, 10);
  assert_memory_equal(key.at, "\0p\0\1\1\2\x84\x84\x80\x84", 10);
  text_release(&key);
  ASSERT_FAILS(slice_parse("11 4", 4, &full, &s, &part), SHOAL_INVALID_ARGUMENT, "Expected a pair of numbers or '-'");
  ASSERT_FAILS(slice_parse("3 2,2", 5, &full, &s, &part), SHOAL_INTERNAL, "out of bounds");
  ASSERT_FAILS(slice_parse("x 0,1", 5, &full, &s, &part), SHOAL_INVALID_ARGUMENT, "Non numerical dimension");
}

/* Second names for tensors, and for parts of one, in the index of a merged checkpoint. */
static void test_aliases(void **state) {
  char *from = in_dir("parts"), *to = in_dir("named");
  const char *specs[] = {"4 2 0,1:-", "4 2 1,3:-"};
  struct tensor t[3], got;
  struct bundle_writer w;
  ASSERT_OK(bundle_writer_open(&w, from));
  for (int i = 0; i < 3; i++) {
    struct shape full, part = {.rank = 1, .dims = {5}};
    struct slice slice;
    if (i < 2) ASSERT_OK(slice_parse(specs[i], strlen(specs[i]), &full, &slice, &part));
    ASSERT_OK(tensor_new(&t[i], SHOAL_FLOAT32, &part));
    for (int64_t k = 0; k < t[i].n; k++) ((float *)t[i].data)[k] = (float)(10 * i + k);
    if (i < 2) ASSERT_OK(bundle_writer_add_slice(&w, "x", 1, &full, &slice, &t[i]));
    else ASSERT_OK(bundle_writer_add(&w, "y", 1, &t[i]));
  }
  ASSERT_OK(bundle_writer_finish(&w));
  const struct bundle_alias wrong = {"x", "4 2 0,2:-", "a"};
  ASSERT_FAILS(bundle_merge_named((const char *[]){from}, 1, to, false, NULL, &wrong, 1), SHOAL_NOT_FOUND, "'x'");
  const struct bundle_alias also[] = {{"x", specs[0], "a/0"}, {"x", specs[1], "a/1"}, {"y", "", "a/2"}};
  ASSERT_OK(bundle_merge_named((const char *[]){from}, 1, to, false, NULL, also, 3));
  struct bundle b;
  ASSERT_OK(bundle_open(&b, to));
  for (int i = 0; i < 3; i++) {
    ASSERT_OK(bundle_read(&b, also[i].alias, 3, &got));
    assert_int_equal(got.n, t[i].n);
    assert_memory_equal(got.data, t[i].data, (size_t)t[i].n * sizeof(float));
    tensor_release(&got);
  }
  ASSERT_OK(bundle_read(&b, "x", 1, &got));
  assert_int_equal(got.n, 8);
  tensor_release(&got);
  bundle_close(&b);
  for (int i = 0; i < 3; i++) tensor_release(&t[i]);
  free(from);
  free(to);
}

static void test_state_file(void **state) {
  struct checkpoint_state s = {.latest = mem_strdup("m-2")}, back;
  vec_push(&s.all, mem_strdup("m-1"));
  vec_push(&s.all, mem_strdup("/abs/with \"quote\"\n"));
  vec_push(&s.timestamps, 1700000000.123456);
  ASSERT_OK(checkpoint_state_write(folder, NULL, &s));
  ASSERT_OK(checkpoint_state_read(folder, NULL, &back));
  char *latest = in_dir("m-2");
  assert_string_equal(back.latest, latest);
  assert_string_equal(back.all.at[1], "/abs/with \"quote\"\n");
  assert_true(back.timestamps.at[0] == 1700000000.123456);
  assert_null(checkpoint_latest(folder)); /* named, but not there */
  free(latest);
  checkpoint_state_release(&s);
  checkpoint_state_release(&back);
  char *path = in_dir("checkpoint");
  ASSERT_OK(file_write(path, "model_checkpoint_path: \"", 24));
  ASSERT_FAILS(checkpoint_state_read(folder, NULL, &back), SHOAL_DATA_LOSS, "no checkpoint state file");
  free(path);
}

static void test_events(void **state) {
  char *logs = in_dir("logs/deep");
  struct shoal_events *w;
  ASSERT_OK(event_writer_new(logs, ".v2", 10, 100000, &w));
  assert_null(event_writer_path(w));
  ASSERT_OK(event_write_scalar(w, 7, "loss", 0.5f));
  char *path = mem_strdup(event_writer_path(w));
  ASSERT_OK(event_writer_close(w));
  ASSERT_FAILS(event_write_scalar(w, 8, "loss", 0.5f), SHOAL_FAILED_PRECONDITION, "closed");
  event_writer_free(w);
  struct record_reader r;
  struct text t = {0};
  ASSERT_OK(record_reader_open(&r, path, RECORD_PLAIN));
  ASSERT_OK(record_read(&r, &t));
  assert_non_null(memmem(t.at, t.n, "brain.Event:2", 13));
  ASSERT_OK(record_read(&r, &t));
  assert_non_null(memmem(t.at, t.n, "\x0a\x04loss\x15\0\0\0\x3f", 11));
  ASSERT_FAILS(record_read(&r, &t), SHOAL_OUT_OF_RANGE, "");
  record_reader_close(&r);
  text_release(&t);
  free(path);
  free(logs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc),
      cmocka_unit_test(test_large_tensors),
      cmocka_unit_test(test_wire),
      cmocka_unit_test(test_atomic_write),
      cmocka_unit_test(test_large_files),
      cmocka_unit_test(test_records),
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_damaged_records),
      cmocka_unit_test(test_damaged_bundle),
      cmocka_unit_test(test_slices),
      cmocka_unit_test(test_aliases),
      cmocka_unit_test(test_state_file),
      cmocka_unit_test(test_events),
      cmocka_unit_test(test_links),
  };
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

/* Memory: what a process may use, growing arrays, and what happens when there is no more.
 *
 * As SQLite's tests do: each call is made again and again, and the first, second, third ... attempt to get memory in it
 * fails, until none does. Under each the call answers RESOURCE_EXHAUSTED or has done without; the sanitizers' build
 * finds what is lost on the way. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/vec.h"
#include "base/wire.h"
#include "checkpoint/bundle.h"
#include "checkpoint/slices_v1.h"
#include "checkpoint/table.h"
#include "data/record.h"
#include "folder.h"
#include "graph/import.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "shoal/shoal.h"
#include "tensor/tensor_proto.h"

/* ---- what a process may use ---- */

static void put_file(const char *path, const char *text) {
  char *at = in_dir(path);
  for (char *slash = at + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(at, 0700);
    *slash = '/';
  }
  FILE *f = fopen(at, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  free(at);
}

/* The least of the limits on the way from a process's group up to the root, in either version of control groups. */
static void limits_of_groups(void **state) {
  put_file("v2/memory.max", "max\n");
  put_file("v2/outer/memory.max", "3000000\n");
  put_file("v2/outer/inner/memory.max", "5000000\n");
  put_file("v2/outer/inner/tight/memory.max", "1000000\n");
  char *v2 = in_dir("v2");
  assert_int_equal(machine_group_limit("0::/outer/inner\n", v2, MACHINE_MEMORY), 3000000);
  assert_int_equal(machine_group_limit("0::/outer/inner/tight", v2, MACHINE_MEMORY), 1000000);
  assert_int_equal(machine_group_limit("0::/outer/inner/tight/without", v2, MACHINE_MEMORY), 1000000);
  assert_true(machine_group_limit("0::/\n", v2, MACHINE_MEMORY) == SIZE_MAX);
  assert_true(machine_group_limit("0::/elsewhere\n", v2, MACHINE_MEMORY) == SIZE_MAX);
  assert_true(machine_group_limit("", v2, MACHINE_MEMORY) == SIZE_MAX);
  assert_true(machine_group_limit("no colons\n:\n::\n\n", v2, MACHINE_MEMORY) == SIZE_MAX);
  put_file("v2/memory.max", "900000\n"); /* a container's own group is its root, whatever the path says */
  assert_int_equal(machine_group_limit("0::/docker/0123\n", v2, MACHINE_MEMORY), 900000);
  put_file("v2/cpu.max", "max 100000\n");
  put_file("v2/outer/cpu.max", "200000 100000\n");
  assert_int_equal(machine_group_limit("0::/outer/inner\n", v2, MACHINE_CORES), 200000);
  assert_true(machine_group_limit("0::/\n", v2, MACHINE_CORES) == SIZE_MAX);
  free(v2);
  put_file("v1/memory/slurm/memory.limit_in_bytes", "7000000\n");
  put_file("v1/memory/memory.limit_in_bytes", "9223372036854771712\n");
  char *v1 = in_dir("v1");
  assert_int_equal(machine_group_limit("5:cpu:/slurm\n4:hugetlb,memory:/slurm/job\n0::/slurm\n", v1, MACHINE_MEMORY),
                   7000000);
  assert_true(machine_group_limit("4:memory:/other\n", v1, MACHINE_MEMORY) == 9223372036854771712u);
  assert_true(machine_group_limit("4:memory2:/slurm\n", v1, MACHINE_MEMORY) == SIZE_MAX);
  put_file("v1/cpu/slurm/cpu.cfs_quota_us", "350000\n");
  put_file("v1/cpu/cpu.cfs_quota_us", "-1\n");
  assert_int_equal(machine_group_limit("5:cpu,cpuacct:/slurm\n4:memory:/\n", v1, MACHINE_CORES), 350000);
  assert_true(machine_group_limit("5:cpu:/\n4:memory:/slurm\n", v1, MACHINE_CORES) == SIZE_MAX);
  free(v1);
  assert_true(machine_memory() > 0 && machine_memory() == machine_memory());
}

/* ---- arrays ---- */

static int calls;
typedef VEC(int) ints;
static ints *counted(ints *v) {
  calls++;
  return v;
}

static void arguments_are_evaluated_once(void **state) {
  ints v = {0};
  int next = 0;
  for (int i = 0; i < 20; i++) vec_push(counted(&v), next++);
  assert_int_equal(calls, 20);
  assert_int_equal(v.n, 20);
  for (int i = 0; i < 20; i++) assert_int_equal(v.at[i], i);
  vec_last(counted(&v)) = 77;
  assert_int_equal(vec_pop(counted(&v)), 77);
  vec_reserve(counted(&v), (size_t)(100 + next++));
  assert_true(v.cap >= 120 && next == 21);
  vec_release(counted(&v));
  assert_int_equal(calls, 24);
}

/* ---- no memory ---- */

/* Calls fn until no attempt in it fails any more; how often one did. The last call must do well. */
static int fail_each(shoal_status (*fn)(void *), void *arg) {
  int failed = 0;
  for (long k = 1;; k++) {
    assert_true(k < 100000);
    mem_fail_at(k);
    shoal_status s = fn(arg);
    bool hit = mem_fail_at(0);
    if (!hit) {
      ASSERT_OK(s);
      return failed;
    }
    failed++;
    if (s && shoal_status_code(s) != SHOAL_RESOURCE_EXHAUSTED)
      print_error("attempt %ld: %s\n", k, shoal_status_message(s));
    assert_true(!s || shoal_status_code(s) == SHOAL_RESOURCE_EXHAUSTED);
    assert_true(!s || strstr(shoal_status_message(s), "OOM") || strstr(shoal_status_message(s), "memory"));
    shoal_status_free(s);
  }
}

#define LONG "a text that is too long to be kept inside of a string"

static void put_tensor_head(struct text *out, shoal_dtype type, int64_t n) {
  put_TensorProto_dtype(out, type);
  struct shape shape = {.rank = 1, .dims = {n}};
  size_t at = begin_TensorProto_tensor_shape(out);
  shape_proto_encode(&shape, out);
  wire_end(out, at);
}

static shoal_status decode_tensor(void *arg) {
  const struct text *bytes = arg;
  struct tensor t;
  TRY(tensor_proto_decode(bytes->at, bytes->n, &t));
  tensor_release(&t);
  return NULL;
}

static void tensors(void **state) {
  struct text numbers = {0}, strings = {0}, handles = {0}, variants = {0}, inner = {0}, handle = {0};
  put_tensor_head(&numbers, SHOAL_FLOAT32, 4);
  put_TensorProto_tensor_content_n(&numbers, "0123456789abcdef", 16);
  put_tensor_head(&strings, SHOAL_STRING, 5); /* the last is repeated */
  for (int i = 0; i < 3; i++) put_TensorProto_string_val(&strings, LONG);
  put_ResourceHandleProto_device(&handle, "/device:CPU:0");
  put_ResourceHandleProto_container(&handle, "container");
  put_ResourceHandleProto_name(&handle, "name");
  put_tensor_head(&handles, SHOAL_RESOURCE, 1);
  put_TensorProto_resource_handle_val_n(&handles, handle.at, handle.n);
  put_VariantTensorDataProto_type_name(&inner, "somebody::Else");
  put_VariantTensorDataProto_metadata(&inner, LONG);
  put_VariantTensorDataProto_tensors_n(&inner, strings.at, strings.n);
  put_VariantTensorDataProto_tensors_n(&inner, numbers.at, numbers.n);
  put_tensor_head(&variants, SHOAL_VARIANT, 1);
  put_TensorProto_variant_val_n(&variants, inner.at, inner.n);
  assert_true(fail_each(decode_tensor, &numbers) == 1);
  assert_true(fail_each(decode_tensor, &strings) == 6);
  assert_true(fail_each(decode_tensor, &handles) == 4);
  assert_true(fail_each(decode_tensor, &variants) >= 10);
  struct text *all[] = {&numbers, &strings, &handles, &variants, &inner, &handle};
  for (size_t i = 0; i < COUNT_OF(all); i++) text_release(all[i]);
}

static shoal_status import(void *arg) {
  const struct text *bytes = arg;
  struct shoal_graph *g = graph_new();
  shoal_status s = graph_import(g, bytes->at, bytes->n, NULL, NULL);
  assert_true(!s || (g->n_nodes == 0 && g->nodes.n == 0)); /* all or nothing */
  graph_free(g);
  return s;
}

static void graphs(void **state) {
  static const char text[] =
      "node { name: 'c' op: 'Const' device: '/device:CPU:0' attr { key: 'dtype' value { type: DT_STRING } } "
      "attr { key: 'value' value { tensor { dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: '" LONG
      "' } } } attr { key: '_note' value { s: '" LONG
      "' } } attr { key: '_class' value { list { s: 'loc:@c' } } } "
      "experimental_debug_info { original_node_names: 'a' original_func_names: 'f' } } "
      "node { name: 'i' op: 'Identity' input: 'c' attr { key: 'T' value { type: DT_STRING } } } "
      "node { name: 'p' op: 'PartitionedCall' input: 'i' attr { key: 'Tin' value { list { type: DT_STRING } } } "
      "attr { key: 'Tout' value { list { type: DT_STRING } } } attr { key: 'f' value { func { name: 'called' attr { "
      "key: 'T' value { type: DT_STRING } } } } } }"
      "library { function { signature { name: 'called' attr { name: 'T' type: 'type' } "
      "input_arg { name: 'a' type_attr: 'T' } output_arg { name: 'r' type_attr: 'T' } } ret { key: 'r' value: 'a' } } "
      "gradient { function_name: 'called' gradient_func: 'called' } }";
  struct shoal_graph *g = graph_new();
  struct text bytes = {0};
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(graph_export(g, &(struct export_options){0}, &bytes));
  graph_free(g);
  assert_true(fail_each(import, &bytes) >= 27); /* seven of them the library's */
  text_release(&bytes);
}

static char *prefix; /* of a checkpoint with numbers and strings */

static shoal_status read_checkpoint(void *arg) {
  struct bundle b;
  TRY(bundle_open(&b, prefix));
  shoal_status s = NULL;
  for (const char *key = "ns"; *key && !s; key++) {
    struct tensor t;
    s = bundle_read(&b, key, 1, &t);
    if (!s) tensor_release(&t);
  }
  bundle_close(&b);
  return s;
}

static shoal_status write_checkpoint(void *arg) {
  const struct tensor *t = arg;
  struct bundle_writer w;
  TRY(bundle_writer_open(&w, prefix));
  shoal_status s = bundle_writer_add(&w, "n", 1, &t[0]);
  if (!s) s = bundle_writer_add(&w, "s", 1, &t[1]);
  if (!s) return bundle_writer_finish(&w);
  bundle_writer_abort(&w);
  return s;
}

static shoal_status find_in_table(void *arg) {
  struct table t;
  char *value = NULL;
  size_t n;
  TRY(table_open(&t, arg));
  shoal_status s = table_find(&t, "s", 1, &value, &n);
  free(value);
  table_close(&t);
  return s;
}

static void checkpoints(void **state) {
  struct tensor t[2];
  int64_t n = 3;
  ASSERT_OK(tensor_new_dims(&t[0], SHOAL_FLOAT32, 1, &n));
  ASSERT_OK(tensor_new_dims(&t[1], SHOAL_STRING, 1, &n));
  tensor_zero(&t[0]);
  for (int i = 0; i < 3; i++) str_set(&T_DATA(&t[1], struct str)[i], LONG, strlen(LONG));
  prefix = in_dir("ckpt");
  fail_each(write_checkpoint, t);
  assert_true(fail_each(read_checkpoint, NULL) >= 12);
  char *index = bundle_index_path(prefix);
  assert_true(fail_each(find_in_table, index) >= 5);
  free(index);
  free(prefix);
  tensor_release(&t[0]);
  tensor_release(&t[1]);
}

static shoal_status read_records(void *arg) {
  struct record_reader r;
  struct text record = {0};
  TRY(record_reader_open(&r, arg, RECORD_PLAIN));
  shoal_status s = record_read(&r, &record);
  if (!s) s = record_read(&r, &record);
  record_reader_close(&r);
  text_release(&record);
  return s;
}

static shoal_status read_whole(void *arg) {
  char *data;
  size_t n;
  TRY(file_read(arg, 0, &data, &n));
  free(data);
  return NULL;
}

static void files(void **state) {
  char *path = in_dir("records");
  struct record_writer w;
  ASSERT_OK(record_writer_open(&w, path, RECORD_PLAIN));
  ASSERT_OK(record_write(&w, LONG, strlen(LONG)));
  ASSERT_OK(record_write(&w, LONG LONG LONG, 3 * strlen(LONG)));
  ASSERT_OK(record_writer_close(&w));
  assert_int_equal(fail_each(read_records, path), 2);
  assert_int_equal(fail_each(read_whole, path), 1);
  free(path);
}

/* A step whose tensors, and whose examples, find no memory: it says so, and the next one runs. */
static shoal_status run_step(void *arg) {
  const char *target = "parse";
  return shoal_session_run(arg, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL);
}

static void steps(void **state) {
  static const char text[] =
      "node { name: 'serialized' op: 'PlaceholderWithDefault' input: 'none' attr { key: 'dtype' value { type: "
      "DT_STRING } } attr { key: 'shape' value { shape { } } } } "
      "node { name: 'none' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value { "
      "tensor { dtype: DT_STRING tensor_shape { } string_val: '' } } } } "
      "node { name: 'dflt' op: 'Const' attr { key: 'dtype' value { type: DT_INT64 } } attr { key: 'value' value { "
      "tensor { dtype: DT_INT64 tensor_shape { } int64_val: 7 } } } } "
      "node { name: 'parse' op: 'ParseSingleExample' input: 'serialized' input: 'dflt' attr { key: 'num_sparse' value "
      "{ i: 1 } } attr { key: 'sparse_keys' value { list { s: 'v' } } } attr { key: 'dense_keys' value { list { s: 'k' "
      "} } } attr { key: 'sparse_types' value { list { type: DT_FLOAT } } } attr { key: 'Tdense' value { list { type: "
      "DT_INT64 } } } attr { key: 'dense_shapes' value { list { shape { } } } } }";
  struct shoal_graph *g = graph_new();
  shoal_session *s;
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  assert_true(fail_each(run_step, s) >= 4);
  ASSERT_OK(run_step(s));
  ASSERT_OK(shoal_session_close(s));
  graph_free(g);
}

/* Strings that kernels make find no memory: the step says so, or has them all. */
static shoal_status run_strings(void *arg) {
  const char *fetch = "both:0";
  shoal_tensor *out;
  TRY(shoal_session_run(arg, NULL, NULL, NULL, 0, &fetch, &out, 1, NULL, 0, NULL));
  for (int64_t i = 0; i < 3; i++) {
    size_t size;
    shoal_tensor_string(out, i, &size);
    assert_int_equal(size, 2 * ((strlen(LONG) * 4 + 2) / 3));
  }
  shoal_tensor_unref(out);
  return NULL;
}

static void strings_of_kernels(void **state) {
  static const char text[] =
      "node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value { "
      "tensor { dtype: DT_STRING tensor_shape { } string_val: '" LONG
      "' } } } }"
      "node { name: 'p' op: 'PlaceholderWithDefault' input: 'c' attr { key: 'dtype' value { type: DT_STRING } } attr { "
      "key: 'shape' value { shape { } } } } "
      "node { name: 'n' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor "
      "{ dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 3 } } } } "
      "node { name: 'fill' op: 'Fill' input: 'n' input: 'p' attr { key: 'T' value { type: DT_STRING } } } "
      "node { name: 'coded' op: 'EncodeBase64' input: 'fill' } "
      "node { name: 'both' op: 'Add' input: 'coded' input: 'coded' attr { key: 'T' value { type: DT_STRING } } }";
  struct shoal_graph *g = graph_new();
  shoal_session *s;
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  assert_true(fail_each(run_strings, s) >= 9);
  ASSERT_OK(run_strings(s));
  ASSERT_OK(shoal_session_close(s));
  graph_free(g);
}

/* What a few bytes ask for is bounded, too. */
static void strings_that_multiply(void **state) {
  enum { N = 4000 };
  char many[N + 1] = {0};
  memset(many, 'a', N);
  struct shoal_graph *g = graph_new();
  shoal_out in = shoal_constant_string(g, many);
  shoal_builder *b = shoal_build(g, "RegexReplace", NULL);
  shoal_build_input(b, in);
  shoal_build_input(b, shoal_constant_string(g, "a"));
  shoal_build_input(b, in);
  const char *target = shoal_op_name(shoal_build_end(b));
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.rewrites_off = "all"}, &s));
  buffer_set_limit(1 << 20);
  ASSERT_FAILS(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL), SHOAL_RESOURCE_EXHAUSTED,
               "a string, and more");
  buffer_set_limit(0);
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL));
  ASSERT_OK(shoal_session_close(s));
  graph_free(g);
}

/* They are in the account of all tensors' memory, and under the bound of one. */
static void strings_are_counted(void **state) {
  enum { MANY = 1 << 20 };
  char *bytes = calloc(1, MANY);
  shoal_tensor *t;
  size_t before = buffer_bytes_in_use();
  ASSERT_OK(shoal_tensor_from_string(bytes, MANY, &t));
  assert_true(buffer_bytes_in_use() > before + MANY / 2); /* a thread may owe the account a little */
  shoal_tensor_unref(t);
  assert_true(buffer_bytes_in_use() < before + MANY / 2);
  buffer_set_limit(MANY - 1);
  ASSERT_FAILS(shoal_tensor_from_string(bytes, MANY, &t), SHOAL_RESOURCE_EXHAUSTED, "a string");
  struct text proto = {0};
  put_tensor_head(&proto, SHOAL_STRING, 1);
  put_TensorProto_string_val_n(&proto, bytes, MANY);
  ASSERT_FAILS(decode_tensor(&proto), SHOAL_RESOURCE_EXHAUSTED, "");
  buffer_set_limit(0);
  ASSERT_OK(decode_tensor(&proto));
  text_release(&proto);
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(limits_of_groups),
                                     cmocka_unit_test(arguments_are_evaluated_once),
                                     cmocka_unit_test(tensors),
                                     cmocka_unit_test(graphs),
                                     cmocka_unit_test(checkpoints),
                                     cmocka_unit_test(files),
                                     cmocka_unit_test(steps),
                                     cmocka_unit_test(strings_of_kernels),
                                     cmocka_unit_test(strings_that_multiply),
                                     cmocka_unit_test(strings_are_counted)};
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

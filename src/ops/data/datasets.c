/* Ops that make datasets: each checks its inputs and describes a sequence; nothing is read before an iterator walks it
 * (ops/data/iterators.c). The datasets themselves are in src/data. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/data/dataset_state.h"

#define STATE const struct dataset_state *s = ctx->state

/* Inputs as an array of tensors. */
static struct tensor *gather_inputs(const struct kernel_ctx *ctx, int first, int n) {
  struct tensor *t = mem_zalloc((size_t)n, sizeof *t);
  for (int i = 0; i < n; i++) tensor_move(&t[i], ctx_in(ctx, first + i));
  return t;
}

static shoal_status tensor_run(struct kernel_ctx *ctx) {
  struct tensor *t = gather_inputs(ctx, 0, ctx->kernel->n_in);
  struct dataset *d = dataset_of_tensors(t, ctx->kernel->n_in);
  free(t);
  return dataset_give(ctx, d);
}

static shoal_status slices_run(struct kernel_ctx *ctx) {
  struct tensor *t = gather_inputs(ctx, 0, ctx->kernel->n_in);
  struct dataset *d = NULL;
  shoal_status bad = dataset_of_slices(t, ctx->kernel->n_in, &d);
  free(t);
  TRY(bad);
  return dataset_give(ctx, d);
}

static shoal_status range_run(struct kernel_ctx *ctx) {
  STATE;
  int64_t start, stop, step;
  TRY(dataset_in_int(ctx, 0, "start", &start));
  TRY(dataset_in_int(ctx, 1, "stop", &stop));
  TRY(dataset_in_int(ctx, 2, "step", &step));
  if (step == 0) return INVALID("step must be a non-zero integer.");
  return dataset_give(ctx, dataset_range(start, stop, step, s->spec.n ? s->spec.types[0] : SHOAL_INT64));
}

static shoal_status counted(struct kernel_ctx *ctx, struct dataset *(*make)(struct dataset *in, int64_t count)) {
  struct dataset *in;
  int64_t count;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "count", &count));
  return dataset_give(ctx, make(in, count));
}

static shoal_status take_run(struct kernel_ctx *ctx) { return counted(ctx, dataset_take); }
static shoal_status repeat_run(struct kernel_ctx *ctx) { return counted(ctx, dataset_repeat); }

static shoal_status skip_run(struct kernel_ctx *ctx) {
  STATE;
  struct dataset *in;
  int64_t count;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "count", &count));
  return dataset_give(ctx, dataset_skip(in, count, s->flag));
}

static shoal_status shard_run(struct kernel_ctx *ctx) {
  STATE;
  struct dataset *in;
  int64_t shards, index;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "num_shards", &shards));
  TRY(dataset_in_int(ctx, 2, "index", &index));
  if (shards < 1 && shards != SHARD_HINT)
    return INVALID("Number of shards must be greater than zero (currently num_shards = %" PRId64 ").", shards);
  if (shards != SHARD_HINT && (index < 0 || index >= shards))
    return INVALID("Index must be between 0 and %" PRId64 " (currently index = %" PRId64 ").", shards - 1, index);
  return dataset_give(ctx, dataset_shard(in, shards, index, s->flag));
}

static shoal_status concatenate_run(struct kernel_ctx *ctx) {
  struct dataset *a, *b, *d;
  TRY(dataset_in(ctx, 0, &a));
  TRY(dataset_in(ctx, 1, &b));
  TRY(dataset_concatenate(a, b, &d));
  return dataset_give(ctx, d);
}

static shoal_status zip_run(struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in;
  struct dataset **in = mem_zalloc((size_t)n, sizeof *in);
  shoal_status bad = NULL;
  int64_t components = 0;
  for (int i = 0; i < n && !bad; i++) {
    bad = dataset_in(ctx, i, &in[i]);
    if (!bad && (components += in[i]->n) > DATASET_MAX_COMPONENTS)
      bad = INVALID("Elements of more than %d components are not supported", DATASET_MAX_COMPONENTS);
  }
  struct dataset *d = bad ? NULL : dataset_zip(in, n);
  free(in);
  TRY(bad);
  return dataset_give(ctx, d);
}

/* ---- batches ---- */

static shoal_status batch_args(struct kernel_ctx *ctx, int at, int drop_at, int64_t *size, bool *drop) {
  TRY(dataset_in_int(ctx, at, "batch_size", size));
  if (*size < 1) return INVALID("Batch size must be greater than zero.");
  *drop = false;
  return drop_at < 0 ? NULL : dataset_in_bool(ctx, drop_at, "drop_remainder", drop);
}

static shoal_status batch_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t size;
  bool drop;
  TRY(dataset_in(ctx, 0, &in));
  TRY(batch_args(ctx, 1, ctx->kernel->n_in - 1 > 1 ? ctx->kernel->n_in - 1 : -1, &size, &drop));
  return dataset_give(ctx, dataset_batch(in, size, drop));
}

static shoal_status padded_run(struct kernel_ctx *ctx) {
  struct dataset *in, *d;
  int64_t size;
  bool drop;
  TRY(dataset_in(ctx, 0, &in));
  int n = in->n;
  bool v2 = ctx->kernel->n_in == 3 + 2 * n;
  if (!v2 && ctx->kernel->n_in != 2 + 2 * n)
    return INVALID("Number of padded shapes must match the %d components in the input dataset's elements", n);
  TRY(batch_args(ctx, 1, v2 ? ctx->kernel->n_in - 1 : -1, &size, &drop));
  struct shape *shapes = mem_zalloc((size_t)n, sizeof *shapes);
  struct tensor *values = gather_inputs(ctx, 2 + n, n);
  shoal_status bad = NULL;
  for (int i = 0; i < n && !bad; i++) {
    if (ctx_in(ctx, 2 + i)->rank != 1) bad = INVALID("All padded shapes must be vectors");
    if (!bad) bad = tensor_get_shape(ctx_in(ctx, 2 + i), true, &shapes[i]);
  }
  if (!bad) bad = dataset_padded_batch(in, size, drop, shapes, values, &d);
  free(shapes);
  free(values);
  TRY(bad);
  return dataset_give(ctx, d);
}

static shoal_status unbatch_run(struct kernel_ctx *ctx) {
  struct dataset *in, *d;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_unbatch(in, &d));
  return dataset_give(ctx, d);
}

static shoal_status window_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t size, shift, stride;
  bool drop;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "size", &size));
  TRY(dataset_in_int(ctx, 2, "shift", &shift));
  TRY(dataset_in_int(ctx, 3, "stride", &stride));
  TRY(dataset_in_bool(ctx, 4, "drop_remainder", &drop));
  if (size < 1) return INVALID("Window size must be greater than zero.");
  if (shift < 1) return INVALID("Window shift must be greater than zero.");
  if (stride < 1) return INVALID("Window stride must be greater than zero.");
  return dataset_give(ctx, dataset_window(in, size, shift, stride, drop));
}

/* ---- order and time ---- */

static const struct resource_type seed_type;

struct seed_resource {
  struct resource head;
  struct seed_generator *g;
};

static void seed_resource_free(struct resource *r) {
  seed_generator_unref(((struct seed_resource *)r)->g);
  free(r);
}

static const struct resource_type seed_type = {"N10tensorflow4data20SeedGeneratorManagerE", "seeds",
                                               seed_resource_free};

/* Stands where a resource is asked for and none is meant. */
static shoal_status dummy_run(struct kernel_ctx *ctx) {
  struct tensor t;
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, "", "_none", &seed_type, &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status delete_run(struct kernel_ctx *ctx) {
  return resource_destroy(ctx->kernel->resources, ctx_in(ctx, 0), true);
}

/* AnonymousSeedGenerator, AnonymousRandomSeedGenerator: seeds as a resource. */
static shoal_status seeds_run(struct kernel_ctx *ctx) {
  int64_t seed = 0, seed2 = 0;
  bool reshuffle = true;
  TRY(dataset_in_int(ctx, 0, "seed", &seed));
  TRY(dataset_in_int(ctx, 1, "seed2", &seed2));
  if (ctx->kernel->n_in >= 3) TRY(dataset_in_bool(ctx, 2, "reshuffle", &reshuffle));
  static atomic_int_fast64_t next;
  char name[64];
  snprintf(name, sizeof name, "_seeds_%lld", (long long)atomic_fetch_add(&next, 1));
  struct seed_resource *r = mem_zalloc(1, sizeof *r);
  resource_init(&r->head, &seed_type);
  r->g = seed_generator_new(seed, seed2, reshuffle);
  shoal_status bad = resource_add(ctx->kernel->resources, "", name, &r->head);
  if (bad) resource_unref(&r->head);
  TRY(bad);
  struct tensor t;
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, "", name, &seed_type, &t));
  ctx_set(ctx, 0, &t);
  struct tensor *mark; /* the deleter: its place is all there is to it */
  return ctx_out_dims(ctx, 1, 0, NULL, &mark);
}

/* The generator behind a handle, a new reference; NULL for a dummy: then the op's own seeds count. */
static struct seed_generator *seeds_of(const struct kernel_ctx *ctx, int i) {
  struct resource *r = NULL;
  shoal_status_free(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, i), &seed_type, &r));
  struct seed_generator *g = r ? seed_generator_ref(((struct seed_resource *)r)->g) : NULL;
  resource_unref(r);
  return g;
}

static shoal_status shuffle_with(struct kernel_ctx *ctx, int seed_at, int count_at, int generator_at) {
  STATE;
  struct dataset *in;
  int64_t buffer, seed = 0, seed2 = 0, count = 1;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "buffer_size", &buffer));
  if (buffer < 1) return INVALID("buffer_size must be greater than zero.");
  if (count_at >= 0) TRY(dataset_in_int(ctx, count_at, "count", &count));
  struct seed_generator *g = generator_at >= 0 ? seeds_of(ctx, generator_at) : NULL;
  if (!g) {
    if (seed_at >= 0) {
      TRY(dataset_in_int(ctx, seed_at, "seed", &seed));
      TRY(dataset_in_int(ctx, seed_at + 1, "seed2", &seed2));
    }
    g = seed_generator_new(seed, seed2, s->flag);
  }
  struct dataset *d = dataset_shuffle(in, buffer, g, count, generator_at < 0);
  seed_generator_unref(g);
  return dataset_give(ctx, d);
}

static shoal_status shuffle_run(struct kernel_ctx *ctx) { return shuffle_with(ctx, 2, -1, -1); }
static shoal_status shuffle2_run(struct kernel_ctx *ctx) { return shuffle_with(ctx, -1, -1, 2); }
static shoal_status shuffle3_run(struct kernel_ctx *ctx) { return shuffle_with(ctx, 2, -1, 4); }
static shoal_status shuffle_repeat_run(struct kernel_ctx *ctx) {
  return shuffle_with(ctx, 2, 4, ctx->kernel->n_in > 5 ? 5 : -1);
}

static shoal_status random_run(struct kernel_ctx *ctx) {
  STATE;
  int64_t seed, seed2;
  TRY(dataset_in_int(ctx, 0, "seed", &seed));
  TRY(dataset_in_int(ctx, 1, "seed2", &seed2));
  struct seed_generator *g = ctx->kernel->n_in > 2 ? seeds_of(ctx, 2) : NULL;
  if (!g) g = seed_generator_new(seed, seed2, s->flag);
  struct dataset *d = dataset_random(g);
  seed_generator_unref(g);
  return dataset_give(ctx, d);
}

static shoal_status prefetch_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t buffer;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "buffer_size", &buffer));
  if (buffer < -1) return INVALID("buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning");
  return dataset_give(ctx, dataset_prefetch(in, buffer));
}

static shoal_status cache_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  char *file;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_string(ctx, 1, "filename", &file));
  struct dataset *d = *file ? dataset_file_cache(in, file) : dataset_cache(in);
  free(file);
  return dataset_give(ctx, d);
}

/* Models, optimizations: they change how TensorFlow runs a pipeline, never what it gives. */
static shoal_status pass_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  return ctx_forward(ctx, 0, 0, NULL);
}

/* ---- functions ---- */

static shoal_status parallel_arg(struct kernel_ctx *ctx, int i, int64_t *out) {
  TRY(dataset_in_int(ctx, i, "num_parallel_calls", out));
  if (*out < 1 && *out != -1) return INVALID("num_parallel_calls must be greater than zero.");
  if (*out == -1) *out = cpu_count();
  *out = MIN(*out, 1024);
  return NULL;
}

static shoal_status map_with(struct kernel_ctx *ctx, int64_t parallel, struct dataset **out) {
  STATE;
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  if (function_rets(s->f) != s->spec.n)
    return INVALID("The function returns %d values, output_types has %d", function_rets(s->f), s->spec.n);
  struct captured f = dataset_captured(ctx);
  *out = dataset_map(in, &f, &s->spec, parallel, s->flag);
  return NULL;
}

static shoal_status map_run(struct kernel_ctx *ctx) {
  struct dataset *d;
  TRY(map_with(ctx, 1, &d));
  return dataset_give(ctx, d);
}

static shoal_status parallel_map_run(struct kernel_ctx *ctx) {
  struct dataset *d;
  int64_t parallel;
  TRY(parallel_arg(ctx, ctx->kernel->n_in - 1, &parallel));
  TRY(map_with(ctx, parallel, &d));
  return dataset_give(ctx, d);
}

static shoal_status map_and_batch_run(struct kernel_ctx *ctx) {
  STATE;
  struct dataset *in, *d;
  int64_t size, parallel;
  bool drop;
  int n = ctx->kernel->n_in;
  TRY(batch_args(ctx, n - 3, n - 1, &size, &drop));
  TRY(parallel_arg(ctx, n - 2, &parallel));
  TRY(dataset_in(ctx, 0, &in));
  struct shape *element = mem_zalloc((size_t)s->spec.n, sizeof *element); /* the attribute has the batch's */
  for (int i = 0; i < s->spec.n; i++) {
    const struct shape *b = &s->spec.shapes[i];
    element[i] = *b;
    for (int k = 1; k < b->rank; k++) element[i].dims[k - 1] = b->dims[k];
    element[i].rank = b->rank > 0 ? b->rank - 1 : -1;
  }
  struct element_spec spec = {s->spec.n, s->spec.types, element};
  struct captured f = dataset_captured(ctx);
  d = dataset_map(in, &f, &spec, parallel, false);
  free(element);
  struct dataset *batch = dataset_batch(d, size, drop);
  dataset_unref(d);
  return dataset_give(ctx, batch);
}

static shoal_status filter_with(struct kernel_ctx *ctx, bool stop) {
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  struct captured f = dataset_captured(ctx);
  return dataset_give(ctx, dataset_filter(in, &f, stop));
}

static shoal_status filter_run(struct kernel_ctx *ctx) { return filter_with(ctx, false); }
static shoal_status take_while_run(struct kernel_ctx *ctx) { return filter_with(ctx, true); }

static shoal_status check_makes_dataset(const struct dataset_state *s) {
  if (function_rets(s->f) == 1 && function_ret_type(s->f, 0) == SHOAL_VARIANT) return NULL;
  return INVALID("The function must return one dataset");
}

static shoal_status flat_map_run(struct kernel_ctx *ctx) {
  STATE;
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  TRY(check_makes_dataset(s));
  struct captured f = dataset_captured(ctx);
  return dataset_give(ctx, dataset_flat_map(in, &f, &s->spec));
}

static shoal_status interleave_with(struct kernel_ctx *ctx, bool parallel_arg_last, bool ahead) {
  STATE;
  struct dataset *in;
  int64_t cycle, block, parallel = 1;
  TRY(dataset_in(ctx, 0, &in));
  TRY(check_makes_dataset(s));
  int at = s->first_captured + s->n_captured;
  TRY(dataset_in_int(ctx, at, "cycle_length", &cycle));
  TRY(dataset_in_int(ctx, at + 1, "block_length", &block));
  if (parallel_arg_last) TRY(parallel_arg(ctx, ctx->kernel->n_in - 1, &parallel));
  if (cycle == -1) cycle = cpu_count();
  if (cycle < 1) return INVALID("cycle_length must be greater than zero.");
  if (block < 1) return INVALID("block_length must be greater than zero.");
  if (cycle > 1 << 16) return INVALID("cycle_length %" PRId64 " is not supported (at most %d)", cycle, 1 << 16);
  struct captured f = dataset_captured(ctx);
  return dataset_give(ctx, dataset_interleave(in, &f, &s->spec, cycle, block, ahead || parallel > 1));
}

static shoal_status interleave_run(struct kernel_ctx *ctx) { return interleave_with(ctx, false, false); }
static shoal_status legacy_interleave_run(struct kernel_ctx *ctx) { return interleave_with(ctx, false, true); }
static shoal_status parallel_interleave_run(struct kernel_ctx *ctx) { return interleave_with(ctx, true, false); }

static shoal_status scan_run(struct kernel_ctx *ctx) {
  STATE;
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  struct captured f = dataset_captured(ctx);
  struct tensor *state = gather_inputs(ctx, s->first_state, s->n_state);
  struct dataset *d = dataset_scan(in, &f, state, s->n_state, &s->spec);
  free(state);
  return dataset_give(ctx, d);
}

/* ---- files ---- */

static shoal_status records_with(struct kernel_ctx *ctx, enum record_kind kind, int compression_at) {
  struct record_options o = {.kind = kind};
  char *compression = NULL;
  if (kind == RECORDS_FIXED) {
    TRY(dataset_in_int(ctx, 1, "header_bytes", &o.header));
    TRY(dataset_in_int(ctx, 2, "record_bytes", &o.record));
    TRY(dataset_in_int(ctx, 3, "footer_bytes", &o.footer));
  }
  if (compression_at >= 0) TRY(dataset_in_string(ctx, compression_at, "compression_type", &compression));
  o.compression = compression ? compression : "";
  if (kind == RECORDS_TFRECORD && ctx->kernel->n_in > 3) o.offsets = ctx_in(ctx, 3);
  struct dataset *d;
  shoal_status bad = dataset_records(ctx_in(ctx, 0), &o, &d);
  free(compression);
  TRY(bad);
  return dataset_give(ctx, d);
}

static shoal_status lines_run(struct kernel_ctx *ctx) { return records_with(ctx, RECORDS_LINES, 1); }
static shoal_status tfrecord_run(struct kernel_ctx *ctx) { return records_with(ctx, RECORDS_TFRECORD, 1); }
static shoal_status fixed_run(struct kernel_ctx *ctx) {
  return records_with(ctx, RECORDS_FIXED, ctx->kernel->n_in > 5 ? 5 : -1);
}

/* ---- asked of a dataset ---- */

static shoal_status cardinality_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  struct tensor *n;
  TRY(dataset_in(ctx, 0, &in));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &n));
  *T_DATA(n, int64_t) = dataset_size(in);
  return NULL;
}

#define MAKES(run_) DATASET_KERNELS(.run = run_)
#define SPEC DATASET_SPEC
#define META "; metadata: string = ''"
#define FUNCTION "f: func; Targuments: list(type) >= 0; "
#define OTHER "input_dataset: variant, other_arguments: Targuments"
#define DATASET(name, in, attrs, flags, run) DATASET_ROW(name, in, attrs, flags, MAKES(run))

static const struct op_row rows[] = {
    DATASET("TensorDataset", "components: Toutput_types",
            "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1" META, OP_STATEFUL, tensor_run),
    DATASET("TensorSliceDataset", "components: Toutput_types",
            "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; is_files: bool = false" META
            "; replicate_on_split: bool = false",
            OP_STATEFUL, slices_run),
    DATASET("RangeDataset", "start: int64, stop: int64, step: int64", SPEC META "; replicate_on_split: bool = false",
            OP_STATEFUL, range_run),
    DATASET("TakeDataset", "input_dataset: variant, count: int64", SPEC META, 0, take_run),
    DATASET("SkipDataset", "input_dataset: variant, count: int64", SPEC META, 0, skip_run),
    DATASET("RepeatDataset", "input_dataset: variant, count: int64", SPEC META, 0, repeat_run),
    DATASET("ShardDataset", "input_dataset: variant, num_shards: int64, index: int64",
            "require_non_empty: bool = false; " SPEC META, 0, shard_run),
    DATASET("ConcatenateDataset", "input_dataset: variant, another_dataset: variant", SPEC META, 0, concatenate_run),
    DATASET("ZipDataset", "input_datasets: N * variant", SPEC "; N: int >= 1" META, 0, zip_run),
    DATASET("BatchDataset", "input_dataset: variant, batch_size: int64", SPEC META, 0, batch_run),
    DATASET("BatchDatasetV2", "input_dataset: variant, batch_size: int64, drop_remainder: bool",
            "parallel_copy: bool = false; " SPEC META, 0, batch_run),
    DATASET("ParallelBatchDataset",
            "input_dataset: variant, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
            "parallel_copy: bool = false; " SPEC "; deterministic: string = 'default'" META, 0, batch_run),
    DATASET("PaddedBatchDataset",
            "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: Toutput_types",
            "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; N: int >= 1" META, 0, padded_run),
    DATASET("PaddedBatchDatasetV2",
            "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: Toutput_types, "
            "drop_remainder: bool",
            "parallel_copy: bool = false; Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; "
            "N: int >= 1" META,
            0, padded_run),
    DATASET("UnbatchDataset", "input_dataset: variant", SPEC META, 0, unbatch_run),
    DATASET("ExperimentalUnbatchDataset", "input_dataset: variant", SPEC, 0, unbatch_run),
    DATASET("WindowDataset", "input_dataset: variant, size: int64, shift: int64, stride: int64, drop_remainder: bool",
            SPEC META, 0, window_run),
    DATASET("ShuffleDataset", "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64",
            "reshuffle_each_iteration: bool = true; " SPEC META, 0, shuffle_run),
    DATASET("ShuffleDatasetV2", "input_dataset: variant, buffer_size: int64, seed_generator: resource", SPEC META,
            OP_STATEFUL, shuffle2_run),
    DATASET("ShuffleDatasetV3",
            "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, seed_generator: resource",
            "reshuffle_each_iteration: bool = true; " SPEC META, OP_STATEFUL, shuffle3_run),
    DATASET("ShuffleAndRepeatDataset",
            "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: int64",
            SPEC "; reshuffle_each_iteration: bool = true" META, 0, shuffle_repeat_run),
    DATASET("ShuffleAndRepeatDatasetV2",
            "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: int64, "
            "seed_generator: resource",
            "reshuffle_each_iteration: bool = true; " SPEC META, OP_STATEFUL, shuffle_repeat_run),
    DATASET("RandomDataset", "seed: int64, seed2: int64", SPEC META, OP_STATEFUL, random_run),
    DATASET("RandomDatasetV2", "seed: int64, seed2: int64, seed_generator: resource",
            "rerandomize_each_iteration: bool = false; " SPEC META, OP_STATEFUL, random_run),
    DATASET("ExperimentalRandomDataset", "seed: int64, seed2: int64", SPEC, OP_STATEFUL, random_run),
    DATASET("PrefetchDataset", "input_dataset: variant, buffer_size: int64",
            SPEC "; slack_period: int = 0; legacy_autotune: bool = true; buffer_size_min: int = 0" META, 0,
            prefetch_run),
    DATASET("CacheDataset", "input_dataset: variant, filename: string", SPEC META, 0, cache_run),
    DATASET("CacheDatasetV2", "input_dataset: variant, filename: string, cache: resource", SPEC META, OP_STATEFUL,
            cache_run),
    DATASET("ModelDataset", "input_dataset: variant",
            "algorithm: int = 0; cpu_budget: int = 0; ram_budget: int = 0; " SPEC, 0, pass_run),
    DATASET("OptimizeDataset", "input_dataset: variant, optimizations: string",
            SPEC "; optimization_configs: list(string) = []", 0, pass_run),
    DATASET("OptimizeDatasetV2",
            "input_dataset: variant, optimizations_enabled: string, optimizations_disabled: string, "
            "optimizations_default: string",
            SPEC "; optimization_configs: list(string) = []", 0, pass_run),
    DATASET("FinalizeDataset", "input_dataset: variant", "has_captured_ref: bool = false; " SPEC, 0, pass_run),
    DATASET("RewriteDataset", "input_dataset: variant, rewrite_name: string", SPEC, 0, pass_run),
    DATASET("PrivateThreadPoolDataset", "input_dataset: variant, num_threads: int64", SPEC, 0, pass_run),
    DATASET("MaxIntraOpParallelismDataset", "input_dataset: variant, max_intra_op_parallelism: int64", SPEC, 0,
            pass_run),
    DATASET("MapDataset", OTHER,
            FUNCTION SPEC "; use_inter_op_parallelism: bool = true; preserve_cardinality: bool = false" META, 0,
            map_run),
    DATASET("ParallelMapDataset", OTHER ", num_parallel_calls: int32",
            FUNCTION SPEC "; use_inter_op_parallelism: bool = true; sloppy: bool = false; "
                          "preserve_cardinality: bool = false" META,
            0, parallel_map_run),
    DATASET("ParallelMapDatasetV2", OTHER ", num_parallel_calls: int64",
            FUNCTION SPEC "; use_inter_op_parallelism: bool = true; deterministic: string = 'default'; "
                          "preserve_cardinality: bool = false" META,
            0, parallel_map_run),
    DATASET("MapAndBatchDataset", OTHER ", batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
            FUNCTION SPEC "; preserve_cardinality: bool = false" META, 0, map_and_batch_run),
    DATASET("ExperimentalMapAndBatchDataset",
            OTHER ", batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
            FUNCTION SPEC "; preserve_cardinality: bool = false", 0, map_and_batch_run),
    DATASET("FilterDataset", OTHER, "predicate: func; Targuments: list(type) >= 0; " SPEC META, 0, filter_run),
    DATASET("ParallelFilterDataset", OTHER ", num_parallel_calls: int64",
            "predicate: func; deterministic: string = 'default'; Targuments: list(type) >= 0; " SPEC META, 0,
            filter_run),
    DATASET("TakeWhileDataset", OTHER, "predicate: func; Targuments: list(type) >= 0; " SPEC META, 0, take_while_run),
    DATASET("ExperimentalTakeWhileDataset", OTHER, "predicate: func; Targuments: list(type) >= 0; " SPEC, 0,
            take_while_run),
    DATASET("FlatMapDataset", OTHER, FUNCTION SPEC META, 0, flat_map_run),
    DATASET("InterleaveDataset", OTHER ", cycle_length: int64, block_length: int64", FUNCTION SPEC META, 0,
            interleave_run),
    DATASET("ParallelInterleaveDataset",
            OTHER ", cycle_length: int64, block_length: int64, sloppy: bool, buffer_output_elements: int64, "
                  "prefetch_input_elements: int64",
            FUNCTION SPEC META, 0, legacy_interleave_run),
    DATASET("LegacyParallelInterleaveDatasetV2",
            OTHER ", cycle_length: int64, block_length: int64, buffer_output_elements: int64, "
                  "prefetch_input_elements: int64",
            "f: func; deterministic: string = 'default'; Targuments: list(type) >= 0; " SPEC META, 0,
            legacy_interleave_run),
    DATASET("ExperimentalParallelInterleaveDataset",
            OTHER ", cycle_length: int64, block_length: int64, sloppy: bool, buffer_output_elements: int64, "
                  "prefetch_input_elements: int64",
            FUNCTION SPEC, 0, legacy_interleave_run),
    DATASET("ParallelInterleaveDatasetV2",
            OTHER ", cycle_length: int64, block_length: int64, num_parallel_calls: int64",
            FUNCTION SPEC "; sloppy: bool = false" META, 0, parallel_interleave_run),
    DATASET("ParallelInterleaveDatasetV3",
            OTHER ", cycle_length: int64, block_length: int64, num_parallel_calls: int64",
            "f: func; deterministic: string = 'default'; Targuments: list(type) >= 0; " SPEC META, 0,
            parallel_interleave_run),
    DATASET("ParallelInterleaveDatasetV4",
            OTHER ", cycle_length: int64, block_length: int64, buffer_output_elements: int64, "
                  "prefetch_input_elements: int64, num_parallel_calls: int64",
            "f: func; deterministic: string = 'default'; Targuments: list(type) >= 0; " SPEC META, 0,
            parallel_interleave_run),
    DATASET("ScanDataset", "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
            "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; " SPEC
            "; preserve_cardinality: bool = false; use_default_device: bool = true" META,
            0, scan_run),
    DATASET("ExperimentalScanDataset", "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
            "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; " SPEC
            "; preserve_cardinality: bool = false",
            0, scan_run),
    DATASET("TextLineDataset", "filenames: string, compression_type: string, buffer_size: int64",
            "metadata: string = ''", OP_STATEFUL, lines_run),
    DATASET("TFRecordDataset", "filenames: string, compression_type: string, buffer_size: int64",
            "metadata: string = ''", OP_STATEFUL, tfrecord_run),
    DATASET("TFRecordDatasetV2", "filenames: string, compression_type: string, buffer_size: int64, byte_offsets: int64",
            "metadata: string = ''", OP_STATEFUL, tfrecord_run),
    DATASET("FixedLengthRecordDataset",
            "filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: int64, buffer_size: int64",
            "metadata: string = ''", OP_STATEFUL, fixed_run),
    DATASET("FixedLengthRecordDatasetV2",
            "filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: int64, buffer_size: int64, "
            "compression_type: string",
            "metadata: string = ''", OP_STATEFUL, fixed_run),
    {.name = "DatasetCardinality",
     .in = "input_dataset: variant",
     .out = "cardinality: int64",
     .attrs = "cardinality_options: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = MAKES(cardinality_run)},
    {.name = "ExperimentalDatasetCardinality",
     .in = "input_dataset: variant",
     .out = "cardinality: int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = MAKES(cardinality_run)},
    {.name = "AnonymousSeedGenerator",
     .in = "seed: int64, seed2: int64, reshuffle: bool",
     .out = "handle: resource, deleter: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = MAKES(seeds_run)},
    {.name = "AnonymousRandomSeedGenerator",
     .in = "seed: int64, seed2: int64",
     .out = "handle: resource, deleter: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = MAKES(seeds_run)},
    {.name = "DummySeedGenerator",
     .out = "handle: resource",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = MAKES(dummy_run)},
    {.name = "DummyMemoryCache",
     .out = "handle: resource",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = MAKES(dummy_run)},
    {.name = "DeleteSeedGenerator",
     .in = "handle: resource, deleter: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = MAKES(delete_run)},
    {.name = "DeleteRandomSeedGenerator",
     .in = "handle: resource, deleter: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = MAKES(delete_run)},
};
OP_FAMILY(datasets, rows);

/* Ops of datasets that cut, gather or choose anew: for replicas, as sparse tensors, at random. The datasets are in
 * src/data (dataset_rebatch.c, dataset_elements.c, dataset_pass.c). */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "data/dataset_rows.h"
#include "graph/shape_fn.h"
#include "ops/data/dataset_state.h"

static bool is_old(const struct kernel_ctx *ctx) { return str_starts(ctx->kernel->op->name, "Experimental"); }

static shoal_status rebatch_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t replicas;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "num_replicas", &replicas));
  if (replicas < 1) return INVALID("num_replicas must be greater than zero.");
  return dataset_give(ctx, dataset_rebatch(in, replicas));
}

static shoal_status rebatch_sizes_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  bool drop;
  const struct tensor *sizes = ctx_in(ctx, 1);
  TRY(dataset_in(ctx, 0, &in));
  if (sizes->rank > 1) return INVALID("`batch_sizes` must be a scalar or a vector.");
  TRY(dataset_in_bool(ctx, 2, "drop_remainder", &drop));
  if (!sizes->n) return INVALID("`batch_sizes` must not be empty.");
  bool any = false;
  for (int64_t i = 0; i < sizes->n; i++) {
    int64_t size = T_DATA(sizes, const int64_t)[i];
    if (size < 0) return INVALID("Batch sizes must not be negative, got %" PRId64, size);
    any |= size > 0;
  }
  if (!any) return INVALID("One of the batch sizes must be greater than zero: nothing else would ever end.");
  return dataset_give(ctx, dataset_rebatch_sizes(in, sizes->data, sizes->n, drop));
}

static shoal_status sliding_run(struct kernel_ctx *ctx) {
  const struct dataset_state *s = ctx->state;
  struct dataset *in;
  int64_t size, shift, stride;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "window_size", &size));
  TRY(dataset_in_int(ctx, 2, "window_shift", &shift));
  TRY(dataset_in_int(ctx, 3, "window_stride", &stride));
  if (size < 1) return INVALID("Window size must be greater than zero.");
  if (shift < 1) return INVALID("Window shift must be greater than zero.");
  if (stride < 1) return INVALID("window_stride must be greater than zero.");
  return dataset_give(ctx, dataset_sliding(in, size, shift, stride, s->flag || is_old(ctx)));
}

static shoal_status sparse_batch_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t size;
  struct shape row;
  TRY(dataset_in(ctx, 0, &in));
  if (in->n != 1) return INVALID("DenseToSparseBatchDataset only supports inputs with a single component.");
  TRY(dataset_in_int(ctx, 1, "batch_size", &size));
  if (size < 1) return INVALID("Batch size must be greater than zero.");
  if (ctx_in(ctx, 2)->rank != 1) return INVALID("row_shape must be a vector");
  TRY(tensor_get_shape(ctx_in(ctx, 2), true, &row));
  return dataset_give(ctx, dataset_sparse_batch(in, size, &row));
}

static shoal_status sparse_slices_run(struct kernel_ctx *ctx) {
  struct dataset *d;
  TRY(dataset_sparse_slices(ctx_in(ctx, 0), ctx_in(ctx, 1), ctx_in(ctx, 2), &d));
  return dataset_give(ctx, d);
}

/* ListDataset, WindowOp: the components of all elements, one after another. */
static shoal_status list_run(struct kernel_ctx *ctx) {
  const struct dataset_state *s = ctx->state;
  int n = ctx->kernel->n_in, width = s->spec.n;
  if (!width || n % width) return INVALID("%d tensors are no whole number of elements of %d components", n, width);
  for (int i = 0; i < n; i++)
    if (ctx_in_type(ctx, i) != s->spec.types[i % width])
      return INVALID("Tensor %d is of type %s, output_types says %s", i, dtype_tf_name(ctx_in_type(ctx, i)),
                     dtype_tf_name(s->spec.types[i % width]));
  struct dataset *d = elements_new(width, s->spec.types, s->spec.shapes);
  for (int i = 0; i < n; i++) {
    struct tensor t;
    tensor_ref(&t, ctx_in(ctx, i));
    elements_add(d, &t);
  }
  return dataset_give(ctx, d);
}

static shoal_status sampling_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t seed, seed2;
  TRY(dataset_in(ctx, 0, &in));
  if (ctx_in(ctx, 1)->rank) return INVALID("rate must be a scalar");
  TRY(dataset_in_int(ctx, 2, "seed", &seed));
  TRY(dataset_in_int(ctx, 3, "seed2", &seed2));
  return dataset_give(ctx, dataset_sampling(in, *T_DATA(ctx_in(ctx, 1), const float), seed, seed2));
}

static shoal_status sleep_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t micros;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "sleep_microseconds", &micros));
  if (micros < 0) return INVALID("`sleep_microseconds` must be >= 0");
  return dataset_give(ctx, dataset_sleep(in, micros));
}

/* ---- the fastest of several that give the same: any ---- */

static shoal_status fastest_run(struct kernel_ctx *ctx) {
  struct dataset *first, *d;
  TRY(dataset_in(ctx, 0, &first));
  for (int i = 1; i < ctx->kernel->n_in; i++) {
    TRY(dataset_in(ctx, i, &d));
    bool fits = d->n == first->n;
    for (int k = 0; fits && k < d->n; k++)
      fits = d->types[k] == first->types[k] && shape_compatible(&d->shapes[k], &first->shapes[k]);
    if (!fits) return INVALID("Input datasets to ChooseFastest must have the same output types and shapes");
  }
  return dataset_give(ctx, dataset_ref(first));
}

#define MAKES(run_) DATASET_KERNELS(.run = run_)
#define SPEC DATASET_SPEC
#define DATASET(name, in, attrs, flags, run) DATASET_ROW(name, in, attrs, flags, MAKES(run))

static const struct op_row rows[] = {
    DATASET("RebatchDataset", "input_dataset: variant, num_replicas: int64", SPEC "; use_fallback: bool = true", 0,
            rebatch_run),
    DATASET("ExperimentalRebatchDataset", "input_dataset: variant, num_replicas: int64",
            SPEC "; use_fallback: bool = true", 0, rebatch_run),
    DATASET("RebatchDatasetV2", "input_dataset: variant, batch_sizes: int64, drop_remainder: bool", SPEC, 0,
            rebatch_sizes_run),
    DATASET("SlidingWindowDataset",
            "input_dataset: variant, window_size: int64, window_shift: int64, window_stride: int64",
            "drop_remainder: bool = true; " SPEC, 0, sliding_run),
    DATASET("ExperimentalSlidingWindowDataset",
            "input_dataset: variant, window_size: int64, window_shift: int64, window_stride: int64", SPEC, 0,
            sliding_run),
    DATASET("DenseToSparseBatchDataset", "input_dataset: variant, batch_size: int64, row_shape: int64", SPEC, 0,
            sparse_batch_run),
    DATASET("ExperimentalDenseToSparseBatchDataset", "input_dataset: variant, batch_size: int64, row_shape: int64",
            SPEC, 0, sparse_batch_run),
    DATASET("SparseTensorSliceDataset", "indices: int64, values: Tvalues, dense_shape: int64", "Tvalues: type",
            OP_STATEFUL, sparse_slices_run),
    DATASET("ListDataset", "tensors: Tinput_types", "Tinput_types: list(type) >= 1; " SPEC "; metadata: string = ''",
            OP_STATEFUL, list_run),
    DATASET("WindowOp", "inputs: Tinputs", SPEC "; Tinputs: list(type) >= 1", 0, list_run),
    DATASET("SamplingDataset", "input_dataset: variant, rate: float, seed: int64, seed2: int64", SPEC, 0, sampling_run),
    DATASET("SleepDataset", "input_dataset: variant, sleep_microseconds: int64", SPEC, 0, sleep_run),
    DATASET("ExperimentalSleepDataset", "input_dataset: variant, sleep_microseconds: int64", SPEC, 0, sleep_run),
    DATASET("ChooseFastestDataset", "input_datasets: N * variant", "N: int >= 2; num_experiments: int; " SPEC, 0,
            fastest_run),
    DATASET("ExperimentalChooseFastestDataset", "input_datasets: N * variant",
            "N: int >= 2; num_experiments: int; " SPEC, 0, fastest_run),
};
OP_FAMILY(datasets_cut, rows);

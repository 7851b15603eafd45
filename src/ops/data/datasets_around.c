/* Ops around datasets: options that travel with them, promises about the pipeline, pools and caches that TensorFlow
 * shares between them, wrapping, and what can be asked of a dataset without walking it.
 *
 * Thread pools, latencies and produced bytes change how TensorFlow runs or observes a pipeline, never what it gives:
 * such datasets are their inputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "ops/data/dataset_state.h"
#include "ops/state/state.h"
#include "tensor/tensor_variant.h"

static shoal_status pass_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  return dataset_give(ctx, dataset_ref(in));
}

/* ---- options ---- */

struct options_state {
  struct dataset_state s;
  char *options;
  size_t n;
};

static shoal_status options_init(struct kernel_init *ki, void *state) {
  struct options_state *s = state;
  const struct attr *a = node_attr(ki->node, "serialized_options");
  TRY(dataset_state_init(ki, &s->s));
  if (!a || a->kind != ATTR_STRING) return INVALID("serialized_options is not a string");
  s->n = a->s.n;
  s->options = mem_alloc(MAX(s->n, 1));
  memcpy(s->options, a->s.data, s->n);
  return NULL;
}

static void options_release(void *state) {
  free(((struct options_state *)state)->options);
  dataset_state_release(state);
}

static shoal_status options_run(struct kernel_ctx *ctx) {
  const struct options_state *s = ctx->state;
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  return dataset_give(ctx, dataset_options(in, s->options, s->n));
}

static shoal_status get_options_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  struct tensor *out;
  TRY(dataset_in(ctx, 0, &in));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  struct text t = {0};
  dataset_get_options(in, &t);
  str_set(out->data, text_cstr(&t), t.n);
  text_release(&t);
  return NULL;
}

/* ---- promises ---- */

/* The dataset that is promised about, and the names of the transformations around it. */
static shoal_status promise_in(struct kernel_ctx *ctx, struct dataset **in, const struct tensor **names) {
  const struct tensor *t = *names = ctx_in(ctx, 1);
  TRY(dataset_in(ctx, 0, in));
  if (t->rank != 1) return INVALID("`transformations` must be a vector.");
  if (t->n > DATASET_MAX_DEPTH) return INVALID("`transformations` has too many elements");
  return NULL;
}

static shoal_status assert_next_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  const struct tensor *t;
  TRY(promise_in(ctx, &in, &t));
  char **names = mem_zalloc((size_t)t->n, sizeof *names);
  for (int64_t i = 0; i < t->n; i++) {
    const struct str *s = &T_DATA(t, const struct str)[i];
    names[i] = mem_strndup(str_data(s), s->size);
  }
  return dataset_give(ctx, dataset_assert_next(in, names, (int)t->n));
}

/* A transformation is a NameAttrList in text format: name: "BatchDataset", and values that its attributes must have. */
static shoal_status transformation_name(const struct str *s, char **out) {
  static const char key[] = "name: \"";
  const char *text = str_data(s), *end = text + s->size, *name = text + sizeof key - 1;
  const char *quote = s->size >= sizeof key ? memchr(name, '"', (size_t)(end - name)) : NULL;
  if (!quote || memcmp(text, key, sizeof key - 1))
    return INVALID("Could not parse the transformation: %.*s", (int)MIN(s->size, 200), text);
  for (const char *c = quote + 1; c < end; c++)
    if (*c != ' ' && *c != '\n') return UNIMPLEMENTED("Attributes of previous transformations are not compared");
  *out = mem_strndup(name, (size_t)(quote - name));
  return NULL;
}

static shoal_status assert_previous_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  const struct tensor *t;
  TRY(promise_in(ctx, &in, &t));
  char **names = mem_zalloc((size_t)t->n, sizeof *names);
  shoal_status bad = NULL;
  for (int64_t i = 0; i < t->n && !bad; i++) bad = transformation_name(&T_DATA(t, const struct str)[i], &names[i]);
  if (!bad) bad = dataset_check_previous(in, (const char *const *)names, (int)t->n);
  for (int64_t i = 0; i < t->n; i++) free(names[i]);
  free(names);
  TRY(bad);
  return dataset_give(ctx, dataset_ref(in));
}

/* ---- resources that have nothing in them: threads and memory are the dataset's own ---- */

static void bare_free(struct resource *r) { free(r); }

static const struct resource_type pool_type = {"N10tensorflow4data12_GLOBAL__N_118ThreadPoolResourceE", "thread pool",
                                               bare_free};
static const struct resource_type cache_type = {"N10tensorflow4data18MemoryCacheManagerE", "cache", bare_free};

static shoal_status bare_new(const struct resource_type *type, struct resource **out) {
  *out = mem_zalloc(1, sizeof **out);
  resource_init(*out, type);
  return NULL;
}

static shoal_status make_pool(void *arg, struct resource **out) { return bare_new(&pool_type, out); }

static shoal_status pool_handle_run(struct kernel_ctx *ctx) {
  const struct resource_name *name = ctx->state;
  struct resource *r;
  struct tensor t;
  TRY(resource_find_or_make(ctx->kernel->resources, name->container, &pool_type, name->name, make_pool, NULL, &r));
  resource_unref(r);
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, name->container, name->name, &pool_type,
                             &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status name_init(struct kernel_init *ki, void *state) { return resource_name_init(state, ki); }
static void name_release(void *state) { resource_name_release(state); }

static shoal_status pooled_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 1), &pool_type, &r));
  resource_unref(r);
  return pass_run(ctx);
}

static shoal_status cache_handle_run(struct kernel_ctx *ctx) {
  struct resource *r;
  struct tensor t, *mark;
  TRY(bare_new(&cache_type, &r));
  TRY(resource_handle_anonymous(ctx->kernel->resources, ctx->kernel->device->name, "AnonymousMemoryCache", &cache_type,
                                r, &t));
  ctx_set(ctx, 0, &t);
  return ctx_out_dims(ctx, 1, 0, NULL, &mark);
}

static shoal_status delete_run(struct kernel_ctx *ctx) {
  return resource_destroy(ctx->kernel->resources, ctx_in(ctx, 0), true);
}

/* ---- wrapping: for a variant that must cross devices as a whole ---- */

static shoal_status wrap_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  struct tensor *out;
  if (ctx_in(ctx, 0)->dtype != SHOAL_VARIANT || ctx_in(ctx, 0)->rank != 0)
    return INVALID("Dataset tensor must be a scalar of dtype DT_VARIANT.");
  TRY(dataset_in(ctx, 0, &in));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, struct variant *) = tensor_variant_new(ctx_in(ctx, 0));
  return NULL;
}

static shoal_status unwrap_run(struct kernel_ctx *ctx) {
  const struct tensor *in = ctx_in(ctx, 0);
  struct tensor t;
  if (in->rank != 0) return INVALID("Dataset tensor must be a scalar of dtype DT_VARIANT.");
  if (!tensor_variant_get(*T_DATA(in, struct variant *const), &t))
    return INVALID("Tensor must be a WrappedDataset variant object.");
  ctx_set(ctx, 0, &t);
  return NULL;
}

/* ---- the size of batches ---- */

static int64_t batch_size_of(const struct dataset *d) {
  static const char *const several[] = {"ConcatenateDataset", "ZipDataset", NULL};
  static const char *const same[] = {"AssertCardinalityDataset",
                                     "CacheDataset",
                                     "FilterDataset",
                                     "ModelDataset",
                                     "OptimizeDataset",
                                     "OptionsDataset",
                                     "ParseExampleDataset",
                                     "PrefetchDataset",
                                     "RepeatDataset",
                                     "ShardDataset",
                                     "ShuffleDataset",
                                     "ShuffleAndRepeatDataset",
                                     "SkipDataset",
                                     "TakeDataset",
                                     NULL};
  for (; dataset_batch_rows(d) < 0; d = d->inputs[0]) {
    if (!d->op || !d->n_inputs) return -1;
    if (dataset_op_is(d->op, same)) continue;
    if (!dataset_op_is(d->op, several)) return -1;
    for (int i = 1; i < d->n_inputs; i++)
      if (batch_size_of(d->inputs[i]) != batch_size_of(d->inputs[i - 1])) return -1;
  }
  return dataset_batch_rows(d);
}

static shoal_status batch_size_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  struct tensor *out;
  TRY(dataset_in(ctx, 0, &in));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, int64_t) = batch_size_of(in);
  return NULL;
}

#define SPEC DATASET_SPEC
#define KERNELS(run_) DATASET_KERNELS(.run = run_)
#define DATASET(name, in, attrs, flags, run) DATASET_ROW(name, in, attrs, flags, KERNELS(run))
static const struct kernel_def options_kernels[] = {{.device = "CPU",
                                                     .state_size = sizeof(struct options_state),
                                                     .init = options_init,
                                                     .release = options_release,
                                                     .run = options_run},
                                                    {0}};
static const struct kernel_def pool_handle_kernels[] = {{.device = "CPU",
                                                         .state_size = sizeof(struct resource_name),
                                                         .init = name_init,
                                                         .release = name_release,
                                                         .run = pool_handle_run},
                                                        {0}};

static const struct op_row rows[] = {
    DATASET_ROW("OptionsDataset", "input_dataset: variant",
                "serialized_options: string; " SPEC "; metadata: string = ''", 0, options_kernels),
    DATASET("AssertNextDataset", "input_dataset: variant, transformations: string", SPEC, 0, assert_next_run),
    DATASET("ExperimentalAssertNextDataset", "input_dataset: variant, transformations: string", SPEC, 0,
            assert_next_run),
    DATASET("AssertPrevDataset", "input_dataset: variant, transformations: string", SPEC, 0, assert_previous_run),
    DATASET("ThreadPoolDataset", "input_dataset: variant, thread_pool: resource", SPEC, OP_STATEFUL, pooled_run),
    DATASET("ExperimentalThreadPoolDataset", "input_dataset: variant, thread_pool: resource", SPEC, OP_STATEFUL,
            pooled_run),
    DATASET("LatencyStatsDataset", "input_dataset: variant, tag: string", SPEC, 0, pass_run),
    DATASET("ExperimentalLatencyStatsDataset", "input_dataset: variant, tag: string", SPEC, 0, pass_run),
    DATASET("BytesProducedStatsDataset", "input_dataset: variant, tag: string", SPEC, 0, pass_run),
    DATASET("ExperimentalBytesProducedStatsDataset", "input_dataset: variant, tag: string", SPEC, 0, pass_run),
    {.name = "GetOptions",
     .shape = shape_scalar_out,
     .in = "input_dataset: variant",
     .out = "serialized_options: string",
     .flags = OP_NO_GRADIENT,
     .kernels = KERNELS(get_options_run)},
    {.name = "ComputeBatchSize",
     .shape = shape_scalar_out,
     .in = "input_dataset: variant",
     .out = "batch_size: int64",
     .flags = OP_NO_GRADIENT,
     .kernels = KERNELS(batch_size_run)},
    {.name = "ThreadPoolHandle",
     .out = "handle: resource",
     .attrs = "num_threads: int; max_intra_op_parallelism: int = 1; display_name: string; container: string = ''; "
              "shared_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = pool_handle_kernels},
    {.name = "ExperimentalThreadPoolHandle",
     .out = "handle: resource",
     .attrs = "num_threads: int; max_intra_op_parallelism: int = 1; display_name: string; container: string = ''; "
              "shared_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = pool_handle_kernels},
    {.name = "AnonymousMemoryCache",
     .out = "handle: resource, deleter: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = KERNELS(cache_handle_run)},
    {.name = "DeleteMemoryCache",
     .in = "handle: resource, deleter: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = KERNELS(delete_run)},
    {.name = "WrapDatasetVariant",
     .shape = shape_scalar_out,
     .in = "input_handle: variant",
     .out = "output_handle: variant",
     .flags = OP_NO_GRADIENT,
     .kernels = KERNELS(wrap_run)},
    {.name = "UnwrapDatasetVariant",
     .shape = shape_scalar_out,
     .in = "input_handle: variant",
     .out = "output_handle: variant",
     .flags = OP_NO_GRADIENT,
     .kernels = KERNELS(unwrap_run)},
};
OP_FAMILY(datasets_around, rows);

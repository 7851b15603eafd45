/* Ops of tf.data.experimental that group, choose or check elements; the datasets are in src/data/dataset_group.c. Each
 * has two names: TensorFlow 1.15 puts "Experimental" before them. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/data/dataset_state.h"

/* ---- by key: several functions, each with what it captured ---- */

enum { MAX_FUNCTIONS = 4 };

struct keyed_state {
  struct dataset_state s;
  struct function *f[MAX_FUNCTIONS];
  int first[MAX_FUNCTIONS], n[MAX_FUNCTIONS]; /* captured values among the inputs */
  int n_f;
};

static const char *const window_functions[] = {"key_func", "reduce_func", "window_size_func", NULL};
static const char *const reducer_functions[] = {"key_func", "init_func", "reduce_func", "finalize_func", NULL};

static const char *const generator_functions[] = {"init_func", "next_func", "finalize_func", NULL};

/* suffix: of the inputs that a function captured. */
static shoal_status functions_init(struct kernel_init *ki, struct keyed_state *st, const char *const *names,
                                   const char *suffix) {
  TRY(dataset_state_init(ki, &st->s));
  for (; names[st->n_f]; st->n_f++) {
    const struct func_attr *attr;
    char *arguments = mem_printf("%s%s", names[st->n_f], suffix);
    node_in_range(ki->node, arguments, &st->first[st->n_f], &st->n[st->n_f]);
    free(arguments);
    TRY(node_get_func(ki->node, names[st->n_f], &attr));
    TRY(function_get(ki, attr, &st->f[st->n_f]));
  }
  return NULL;
}

static shoal_status windows_init(struct kernel_init *ki, void *state) {
  return functions_init(ki, state, window_functions, "_other_arguments");
}
static shoal_status reducer_init(struct kernel_init *ki, void *state) {
  return functions_init(ki, state, reducer_functions, "_other_arguments");
}
static shoal_status generator_init(struct kernel_init *ki, void *state) {
  return functions_init(ki, state, generator_functions, "_other_args");
}
static void keyed_release(void *state) { dataset_state_release(&((struct keyed_state *)state)->s); }

static void capture(const struct kernel_ctx *ctx, struct captured *f) {
  const struct keyed_state *st = ctx->state;
  for (int i = 0; i < st->n_f; i++) captured_init(&f[i], st->f[i], st->s.functions, ctx->in + st->first[i], st->n[i]);
}

static shoal_status check_rets(const struct keyed_state *st, int i, const char *const *names, shoal_dtype type) {
  if (function_rets(st->f[i]) == 1 && function_ret_type(st->f[i], 0) == type) return NULL;
  return INVALID("`%s` must return one %s", names[i], type == SHOAL_VARIANT ? "dataset" : "scalar int64");
}

static shoal_status windows_run(struct kernel_ctx *ctx) {
  const struct keyed_state *st = ctx->state;
  struct dataset *in;
  struct captured f[MAX_FUNCTIONS];
  TRY(dataset_in(ctx, 0, &in));
  TRY(check_rets(st, 0, window_functions, SHOAL_INT64));
  TRY(check_rets(st, 1, window_functions, SHOAL_VARIANT));
  TRY(check_rets(st, 2, window_functions, SHOAL_INT64));
  capture(ctx, f);
  return dataset_give(ctx, dataset_group_by_window(in, f, &st->s.spec));
}

static shoal_status reducer_run(struct kernel_ctx *ctx) {
  const struct keyed_state *st = ctx->state;
  struct dataset *in, *d;
  struct captured f[MAX_FUNCTIONS];
  TRY(dataset_in(ctx, 0, &in));
  TRY(check_rets(st, 0, reducer_functions, SHOAL_INT64));
  capture(ctx, f);
  TRY(dataset_group_by_reducer(in, f, &st->s.spec, &d));
  return dataset_give(ctx, d);
}

static shoal_status generator_run(struct kernel_ctx *ctx) {
  const struct keyed_state *st = ctx->state;
  struct captured f[MAX_FUNCTIONS];
  if (function_rets(st->f[1]) != st->s.spec.n)
    return INVALID("`next_func` returns %d values, output_types has %d", function_rets(st->f[1]), st->s.spec.n);
  capture(ctx, f);
  return dataset_give(ctx, dataset_generator(f, &st->s.spec));
}

/* ---- the others ---- */

static shoal_status unique_run(struct kernel_ctx *ctx) {
  struct dataset *in, *d;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_unique(in, &d));
  return dataset_give(ctx, d);
}

static shoal_status ignore_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  return dataset_give(ctx, dataset_ignore_errors(in));
}

static shoal_status assert_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  int64_t count;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "cardinality", &count));
  return dataset_give(ctx, dataset_assert_size(in, count));
}

/* What changes how a pipeline runs, not what it gives. */
static shoal_status pass_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  TRY(dataset_in(ctx, 0, &in));
  return dataset_give(ctx, dataset_ref(in));
}

static shoal_status directed_run(struct kernel_ctx *ctx) {
  const struct dataset_state *s = ctx->state;
  int n = ctx->kernel->n_in;
  struct dataset **in = mem_zalloc((size_t)n, sizeof *in), *d = NULL;
  shoal_status bad = NULL;
  for (int i = 0; i < n && !bad; i++) bad = dataset_in(ctx, i, &in[i]);
  if (!bad) bad = dataset_directed(in, n, s->flag, &d);
  free(in);
  TRY(bad);
  return dataset_give(ctx, d);
}

/* Files in order of name, each once: all are found when the op runs. */
static shoal_status matching_run(struct kernel_ctx *ctx) {
  const struct tensor *patterns = ctx_in(ctx, 0);
  if (patterns->rank > 1) return INVALID("patterns must be a scalar or a vector.");
  struct path_list found = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; i < patterns->n && !s; i++) {
    if (cancel_started(ctx->step->cancel)) s = cancel_reason(ctx->step->cancel);
    if (s) break;
    const struct str *p = &T_DATA(patterns, const struct str)[i];
    char *pattern = mem_strndup(str_data(p), p->size);
    size_t before = found.paths.n;
    s = file_glob(pattern, &found);
    if (!s && found.paths.n == before) s = NOT_FOUND("Could not find matching files for pattern %s", pattern);
    free(pattern);
  }
  struct tensor names;
  int64_t n = (int64_t)found.paths.n;
  path_list_sort(&found);
  if (!s) s = tensor_new_dims(&names, SHOAL_STRING, 1, &n);
  struct dataset *d = NULL;
  if (!s) {
    for (int64_t i = 0; i < n; i++)
      str_set(&T_DATA(&names, struct str)[i], found.paths.at[i], strlen(found.paths.at[i]));
    s = dataset_of_slices(&names, 1, &d);
    tensor_release(&names);
  }
  path_list_release(&found);
  TRY(s);
  return dataset_give(ctx, d);
}

#define KERNEL(id, state, init_, release_, run_) \
  static const struct kernel_def id[] = {        \
      {.device = "CPU", .state_size = sizeof(state), .init = init_, .release = release_, .run = run_}, {0}}
#define PLAIN(id, run_) KERNEL(id, struct dataset_state, dataset_state_init, dataset_state_release, run_)
KERNEL(windows_kernels, struct keyed_state, windows_init, keyed_release, windows_run);
KERNEL(reducer_kernels, struct keyed_state, reducer_init, keyed_release, reducer_run);
KERNEL(generator_kernels, struct keyed_state, generator_init, keyed_release, generator_run);
PLAIN(unique_kernels, unique_run);
PLAIN(ignore_kernels, ignore_run);
PLAIN(assert_kernels, assert_run);
PLAIN(pass_kernels, pass_run);
PLAIN(directed_kernels, directed_run);
PLAIN(matching_kernels, matching_run);

#define SPEC "output_types: list(type) >= 1; output_shapes: list(shape) >= 1"
#define META "; metadata: string = ''"
#define DATASET(name_, in_, attrs_, flags_, kernels_)                                                                \
  {                                                                                                                  \
    .name = name_, .in = in_, .out = "handle: variant", .attrs = attrs_, .flags = flags_, .shape = shape_scalar_out, \
    .kernels = kernels_                                                                                              \
  }
#define BOTH(name_, in_, attrs_, more, flags_, kernels_) \
  DATASET(name_, in_, attrs_ more, flags_, kernels_), DATASET("Experimental" name_, in_, attrs_, flags_, kernels_)

#define WINDOWS_IN                                                                                             \
  "input_dataset: variant, key_func_other_arguments: Tkey_func_other_arguments, reduce_func_other_arguments: " \
  "Treduce_func_other_arguments, window_size_func_other_arguments: Twindow_size_func_other_arguments"
#define WINDOWS_ATTRS                                                                                       \
  "key_func: func; reduce_func: func; window_size_func: func; Tkey_func_other_arguments: list(type) >= 0; " \
  "Treduce_func_other_arguments: list(type) >= 0; Twindow_size_func_other_arguments: list(type) >= 0; " SPEC
#define REDUCER_IN                                                                                           \
  "input_dataset: variant, key_func_other_arguments: Tkey_func_other_arguments, init_func_other_arguments: " \
  "Tinit_func_other_arguments, reduce_func_other_arguments: Treduce_func_other_arguments, "                  \
  "finalize_func_other_arguments: Tfinalize_func_other_arguments"
#define REDUCER_ATTRS                                                                                             \
  "key_func: func; init_func: func; reduce_func: func; finalize_func: func; Tkey_func_other_arguments: "          \
  "list(type) >= 0; Tinit_func_other_arguments: list(type) >= 0; Treduce_func_other_arguments: list(type) >= 0; " \
  "Tfinalize_func_other_arguments: list(type) >= 0; " SPEC

static const struct op_row rows[] = {
    DATASET("GeneratorDataset",
            "init_func_other_args: Tinit_func_args, next_func_other_args: Tnext_func_args, "
            "finalize_func_other_args: Tfinalize_func_args",
            "init_func: func; next_func: func; finalize_func: func; Tinit_func_args: list(type) >= 0; "
            "Tnext_func_args: list(type) >= 0; Tfinalize_func_args: list(type) >= 0; " SPEC META,
            OP_STATEFUL, generator_kernels),
    BOTH("GroupByWindowDataset", WINDOWS_IN, WINDOWS_ATTRS, META, 0, windows_kernels),
    BOTH("GroupByReducerDataset", REDUCER_IN, REDUCER_ATTRS, "", OP_STATEFUL, reducer_kernels),
    BOTH("UniqueDataset", "input_dataset: variant", SPEC, META, 0, unique_kernels),
    BOTH("IgnoreErrorsDataset", "input_dataset: variant", SPEC "; log_warning: bool = false", "", 0, ignore_kernels),
    BOTH("DirectedInterleaveDataset", "selector_input_dataset: variant, data_input_datasets: N * variant",
         SPEC "; N: int >= 1", "; stop_on_empty_dataset: bool = false", 0, directed_kernels),
    DATASET("AssertCardinalityDataset", "input_dataset: variant, cardinality: int64", SPEC, 0, assert_kernels),
    BOTH("NonSerializableDataset", "input_dataset: variant", SPEC, "", 0, pass_kernels),
    DATASET("ExperimentalMaxIntraOpParallelismDataset", "input_dataset: variant, max_intra_op_parallelism: int64", SPEC,
            0, pass_kernels),
    DATASET("ExperimentalPrivateThreadPoolDataset", "input_dataset: variant, num_threads: int64", SPEC, 0,
            pass_kernels),
    BOTH("MatchingFilesDataset", "patterns: string", "", "", OP_STATEFUL, matching_kernels),
};
OP_FAMILY(datasets_grouped, rows);

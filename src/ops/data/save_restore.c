/* Saving tensors to files and restoring them: SaveV2, RestoreV2 and MergeV2Checkpoints over tensor bundles, and the
 * ops of the first format (Save, SaveSlices, Restore, RestoreSlice). RestoreV2 reads either: what has no index file
 * is taken for the first format. The formats themselves are in src/checkpoint. */
#include <inttypes.h>
#include <string.h>

#include "checkpoint/bundle.h"
#include "checkpoint/slices_v1.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"

/* ---- inputs ---- */

static shoal_status check_inputs(struct kernel_ctx *ctx, bool save) {
  enum { FIXED = 3 };
  const struct tensor *prefix = ctx_in(ctx, 0), *names = ctx_in(ctx, 1), *slices = ctx_in(ctx, 2);
  if (prefix->n != 1) return INVALID("Input prefix should have a single element, got %" PRId64 " instead.", prefix->n);
  if (names->rank != 1 || slices->rank != 1) {
    struct shape a = tensor_shape(names), b = tensor_shape(slices);
    return INVALID("Input tensor_names and shape_and_slices should be an 1-D tensors, got %s and %s instead.",
                   shape_str(&a), shape_str(&b));
  }
  if (names->n != slices->n)
    return INVALID("tensor_names and shape_and_slices have different number of elements: %" PRId64 " vs. %" PRId64,
                   names->n, slices->n);
  if (save && ctx->kernel->n_in - FIXED != names->n)
    return INVALID("Got %" PRId64 " tensor names but %d tensors.", names->n, ctx->kernel->n_in - FIXED);
  if (!save && ctx->kernel->n_out != names->n)
    return INVALID("Got %" PRId64 " tensor names, but %d expected dtypes.", names->n, ctx->kernel->n_out);
  return NULL;
}

/* The slice a spec asks for of a tensor to save. */
static shoal_status parse_for_save(const struct str *spec, const struct tensor *t, struct shape *full,
                                   struct slice *slice) {
  struct shape part, shape = tensor_shape(t);
  TRY(slice_parse(str_data(spec), spec->size, full, slice, &part));
  if (!shape_equal(&part, &shape))
    return INVALID(
        "Slice in shape_and_slice specification does not match the shape of the tensor to  save: %.*s, "
        "tensor: %s",
        (int)spec->size, str_data(spec), shape_str(&shape));
  return NULL;
}

/* ---- V2 ---- */

static shoal_status add_one(struct bundle_writer *w, const struct str *name, const struct str *spec,
                            const struct tensor *t) {
  if (!spec->size) return bundle_writer_add(w, str_data(name), name->size, t);
  struct shape full;
  struct slice slice;
  TRY(parse_for_save(spec, t, &full, &slice));
  return bundle_writer_add_slice(w, str_data(name), name->size, &full, &slice, t);
}

static shoal_status run_save_v2(struct kernel_ctx *ctx) {
  TRY(check_inputs(ctx, true));
  const struct tensor *names = ctx_in(ctx, 1), *slices = ctx_in(ctx, 2);
  char *prefix = string_dup(ctx_in(ctx, 0), 0);
  struct bundle_writer w;
  shoal_status s = bundle_writer_open(&w, prefix);
  free(prefix);
  TRY(s);
  for (int64_t i = 0; !s && i < names->n; i++)
    s = add_one(&w, string_at(names, i), string_at(slices, i), ctx_in(ctx, 3 + (int)i));
  if (!s) return bundle_writer_finish(&w);
  bundle_writer_abort(&w);
  return s;
}

/* All mismatches in one message, as they are found best together. */
static shoal_status check_types(struct kernel_ctx *ctx, struct bundle *b) {
  const struct tensor *names = ctx_in(ctx, 1);
  struct text wrong = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < names->n; i++) {
    const struct str *name = string_at(names, i);
    struct bundle_entry e;
    s = bundle_find(b, str_data(name), name->size, &e);
    if (s) break;
    shoal_dtype want = ctx_out_type(ctx, (int)i);
    if (want != e.dtype)
      text_addf(&wrong, "%stensor_name = %.*s; expected dtype %s does not equal original dtype %s", wrong.n ? "\n" : "",
                (int)name->size, str_data(name), dtype_tf_name(want), dtype_tf_name(e.dtype));
    bundle_entry_release(&e);
  }
  if (!s && wrong.n) s = INVALID("%s", text_cstr(&wrong));
  text_release(&wrong);
  return s;
}

static shoal_status restore_one(struct kernel_ctx *ctx, struct bundle *b, int i) {
  const struct str *name = string_at(ctx_in(ctx, 1), i), *spec = string_at(ctx_in(ctx, 2), i);
  struct tensor t;
  if (!spec->size) {
    TRY(bundle_read(b, str_data(name), name->size, &t));
  } else {
    struct bundle_entry e;
    struct shape full, part, stored;
    struct slice slice;
    TRY(bundle_find(b, str_data(name), name->size, &e));
    stored = e.shape;
    bundle_entry_release(&e);
    TRY(slice_parse(str_data(spec), spec->size, &full, &slice, &part));
    if (!shape_equal(&full, &stored))
      return INVALID(
          "tensor_name = %.*s; shape in shape_and_slice spec %s does not match the shape stored in "
          "checkpoint: %s",
          (int)name->size, str_data(name), shape_str(&full), shape_str(&stored));
    TRY(bundle_read_slice(b, str_data(name), name->size, &slice, &t));
  }
  ctx_set(ctx, i, &t);
  return NULL;
}

/* ---- the first format ---- */

/* restore_from fills output `out` with the tensor named by element `out` of input 1. */
static shoal_status restore_from(struct kernel_ctx *ctx, struct v1_reader *r, const char *pattern, int out,
                                 bool sliced) {
  const struct str *name = string_at(ctx_in(ctx, 1), out);
  const struct v1_tensor *info = v1_find(r, str_data(name), name->size);
  if (!info)
    return NOT_FOUND("Tensor name \"%.*s\" not found in checkpoint files %s", (int)name->size, str_data(name), pattern);
  shoal_dtype want = ctx_out_type(ctx, out);
  if (info->dtype != want)
    return INVALID("Expected to restore a tensor of type %s, got a tensor of type %s instead: tensor_name = %s",
                   dtype_tf_name(want), dtype_tf_name(info->dtype), info->name);
  struct slice slice = slice_whole(info->shape.rank);
  if (sliced) {
    const struct str *spec = string_at(ctx_in(ctx, 2), out);
    struct shape full, part;
    if (spec->size) {
      TRY(slice_parse(str_data(spec), spec->size, &full, &slice, &part));
      if (!shape_equal(&full, &info->shape))
        return INVALID(
            "Shape in shape_and_slice spec does not match the shape in the save file: %s, save file shape: "
            "%s",
            shape_str(&full), shape_str(&info->shape));
    }
  }
  struct tensor t;
  TRY(v1_read(r, info, &slice, &t));
  ctx_set(ctx, out, &t);
  return NULL;
}

static shoal_status restore_all_v1(struct kernel_ctx *ctx, const char *pattern, bool sliced) {
  struct v1_reader r;
  TRY(v1_open(&r, pattern));
  shoal_status s = NULL;
  for (int i = 0; !s && i < ctx->kernel->n_out; i++) s = restore_from(ctx, &r, pattern, i, sliced);
  v1_close(&r);
  return s;
}

static shoal_status run_restore_v2(struct kernel_ctx *ctx) {
  TRY(check_inputs(ctx, false));
  char *prefix = string_dup(ctx_in(ctx, 0), 0), *index = bundle_index_path(prefix);
  shoal_status s = NULL;
  if (!file_exists(index)) {
    s = restore_all_v1(ctx, prefix, true);
  } else {
    struct bundle b;
    s = bundle_open(&b, prefix);
    if (!s) {
      s = check_types(ctx, &b);
      b.pool = ctx_pool(ctx);
      for (int i = 0; !s && i < ctx->kernel->n_out; i++) s = restore_one(ctx, &b, i);
      bundle_close(&b);
    }
  }
  free(prefix);
  free(index);
  return s;
}

static shoal_status restore_v1(struct kernel_ctx *ctx, bool sliced) {
  const struct tensor *pattern = ctx_in(ctx, 0), *name = ctx_in(ctx, 1);
  if (pattern->n != 1)
    return INVALID("Input 0 (file_pattern) must be a string scalar; got a tensor of %" PRId64 " elements", pattern->n);
  if (name->n < 1) return INVALID("Input 1 (file_pattern) must be a have at least 1 elements");
  if (sliced && ctx_in(ctx, 2)->n < 1) return INVALID("Input 2 (shape_and_slice) must have at least 1 element");
  char *p = string_dup(pattern, 0);
  shoal_status s = restore_all_v1(ctx, p, sliced);
  free(p);
  return s;
}
static shoal_status run_restore(struct kernel_ctx *ctx) { return restore_v1(ctx, false); }
static shoal_status run_restore_slice(struct kernel_ctx *ctx) { return restore_v1(ctx, true); }

static shoal_status add_v1(struct v1_writer *w, struct kernel_ctx *ctx, int64_t i, int fixed) {
  const struct str *name = string_at(ctx_in(ctx, 1), i);
  const struct tensor *t = ctx_in(ctx, fixed + (int)i);
  struct shape full = tensor_shape(t);
  struct slice slice = slice_whole(full.rank);
  if (fixed == 3 && string_at(ctx_in(ctx, 2), i)->size)
    TRY(parse_for_save(string_at(ctx_in(ctx, 2), i), t, &full, &slice));
  return v1_writer_add(w, str_data(name), name->size, &full, &slice, t);
}

static shoal_status save_v1(struct kernel_ctx *ctx, bool sliced) {
  const struct tensor *filename = ctx_in(ctx, 0), *names = ctx_in(ctx, 1);
  int fixed = sliced ? 3 : 2;
  if (filename->n != 1)
    return INVALID("Input 0 (filename) must be a string scalar; got a tensor of %" PRId64 "elements", filename->n);
  if (sliced && ctx_in(ctx, 2)->n != names->n)
    return INVALID("Expected %" PRId64 " elements for the tensor shapes and slices but got %" PRId64, names->n,
                   ctx_in(ctx, 2)->n);
  if (ctx->kernel->n_in != names->n + fixed)
    return INVALID("Expected totally %" PRId64
                   " inputs as input #1 (which is a string tensor of saved names) contains "
                   "%" PRId64 " names, but received %d inputs",
                   names->n + fixed, names->n, ctx->kernel->n_in);
  struct v1_writer w = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < names->n; i++) s = add_v1(&w, ctx, i, fixed);
  if (s) {
    v1_writer_abort(&w);
    return s;
  }
  char *path = string_dup(filename, 0);
  s = v1_writer_finish(&w, path);
  free(path);
  return s;
}
static shoal_status run_save(struct kernel_ctx *ctx) { return save_v1(ctx, false); }
static shoal_status run_save_slices(struct kernel_ctx *ctx) { return save_v1(ctx, true); }

/* ---- merging and names ---- */

struct merge_state {
  bool delete_old_dirs, allow_missing;
};

static shoal_status init_merge(struct kernel_init *ki, void *state) {
  struct merge_state *m = state;
  TRY(node_get_bool(ki->node, "delete_old_dirs", &m->delete_old_dirs));
  return node_get_bool(ki->node, "allow_missing_files", &m->allow_missing);
}

static shoal_status run_merge(struct kernel_ctx *ctx) {
  const struct merge_state *m = ctx->state;
  const struct tensor *prefixes = ctx_in(ctx, 0), *to = ctx_in(ctx, 1);
  struct shape shape;
  if (prefixes->rank != 1) {
    shape = tensor_shape(prefixes);
    return INVALID("Input checkpoint_prefixes should be an 1-D tensor, got %s instead.", shape_str(&shape));
  }
  if (to->rank != 0) {
    shape = tensor_shape(to);
    return INVALID("Input destination_prefix should be a scalar tensor, got %s instead.", shape_str(&shape));
  }
  if (prefixes->n > INT32_MAX) return INVALID("Too many prefixes: %" PRId64, prefixes->n);
  int n = (int)prefixes->n;
  char **from = mem_zalloc((size_t)n + 1, sizeof *from), *merged = string_dup(to, 0);
  for (int i = 0; i < n; i++) from[i] = string_dup(prefixes, i);
  shoal_status s = bundle_merge((const char *const *)from, n, merged, m->allow_missing, ctx->step->cancel);
  char *merged_dir = path_directory(merged);
  for (int i = 0; i < n; i++) {
    char *dir = path_directory(from[i]);
    /* Shards of one save share a directory: it goes with the first, and is not there for the others. */
    if (!s && m->delete_old_dirs && strcmp(dir, merged_dir) != 0) shoal_status_free(directory_remove(dir));
    free(dir);
    free(from[i]);
  }
  free(from);
  free(merged);
  free(merged_dir);
  return s;
}

static shoal_status put_string(struct kernel_ctx *ctx, char *text) {
  struct tensor *out;
  shoal_status s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (!s) str_set(out->data, text, strlen(text));
  free(text);
  return s;
}

static shoal_status run_sharded_filename(struct kernel_ctx *ctx) {
  for (int i = 0; i < 3; i++) TRY(ctx_check_scalar(ctx, i, (const char *[]){"basename", "shard", "num_shards"}[i]));
  const struct str *base = string_at(ctx_in(ctx, 0), 0);
  return put_string(ctx, mem_printf("%.*s-%05d-of-%05d", (int)base->size, str_data(base),
                                    (int)*T_DATA(ctx_in(ctx, 1), int32_t), (int)*T_DATA(ctx_in(ctx, 2), int32_t)));
}

static shoal_status run_sharded_filespec(struct kernel_ctx *ctx) {
  for (int i = 0; i < 2; i++) TRY(ctx_check_scalar(ctx, i, (const char *[]){"basename", "num_shards"}[i]));
  const struct str *base = string_at(ctx_in(ctx, 0), 0);
  return put_string(ctx, mem_printf("%.*s-?"
                                    "????"
                                    "-of-%05d",
                                    (int)base->size, str_data(base), (int)*T_DATA(ctx_in(ctx, 1), int32_t)));
}

/* ---- shapes ---- */

/* What the constant slice specs say of the outputs. */
static shoal_status shape_restore(struct shape_ctx *c) {
  if (c->node->n_in < 3 || !c->values[2]) return NULL;
  const struct tensor *specs = c->values[2];
  if (specs->dtype != SHOAL_STRING || specs->n < c->node->n_out) return NULL;
  for (int i = 0; i < c->node->n_out; i++) {
    const struct str *spec = string_at(specs, i);
    struct shape full, part;
    struct slice slice;
    if (!spec->size) continue;
    TRY(slice_parse(str_data(spec), spec->size, &full, &slice, &part));
    c->out[i] = part;
  }
  return NULL;
}

/* ---- rows ---- */

#define RUN(fn)                                                    \
  (const struct kernel_def[]) {                                    \
    {.device = "CPU", .flags = KERNEL_EXPENSIVE, .run = fn}, { 0 } \
  }
#define CHEAP(fn)                                              \
  (const struct kernel_def[]) {                                \
    {.device = "CPU", .flags = KERNEL_CHEAP, .run = fn}, { 0 } \
  }
#define EFFECT (OP_STATEFUL | OP_NO_GRADIENT)

static const struct op_row rows[] = {
    {.name = "SaveV2",
     .in = "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes",
     .attrs = "dtypes: list(type) >= 1",
     .flags = EFFECT,
     .kernels = RUN(run_save_v2)},
    {.name = "RestoreV2",
     .in = "prefix: string, tensor_names: string, shape_and_slices: string",
     .out = "tensors: dtypes",
     .attrs = "dtypes: list(type) >= 1",
     .flags = EFFECT,
     .shape = shape_restore,
     .kernels = RUN(run_restore_v2)},
    {.name = "MergeV2Checkpoints",
     .in = "checkpoint_prefixes: string, destination_prefix: string",
     .attrs = "delete_old_dirs: bool = true; allow_missing_files: bool = false",
     .flags = EFFECT,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .flags = KERNEL_EXPENSIVE,
                                             .state_size = sizeof(struct merge_state),
                                             .init = init_merge,
                                             .run = run_merge},
                                            {0}}},
    {.name = "ShardedFilename",
     .in = "basename: string, shard: int32, num_shards: int32",
     .out = "filename: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = CHEAP(run_sharded_filename)},
    {.name = "ShardedFilespec",
     .in = "basename: string, num_shards: int32",
     .out = "filename: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = CHEAP(run_sharded_filespec)},
    {.name = "Save",
     .in = "filename: string, tensor_names: string, data: T",
     .attrs = "T: list(type) >= 1",
     .flags = EFFECT,
     .kernels = RUN(run_save)},
    {.name = "SaveSlices",
     .in = "filename: string, tensor_names: string, shapes_and_slices: string, data: T",
     .attrs = "T: list(type) >= 1",
     .flags = EFFECT,
     .kernels = RUN(run_save_slices)},
    {.name = "Restore",
     .in = "file_pattern: string, tensor_name: string",
     .out = "tensor: dt",
     .attrs = "dt: type; preferred_shard: int = -1",
     .flags = EFFECT,
     .kernels = RUN(run_restore)},
    {.name = "RestoreSlice",
     .in = "file_pattern: string, tensor_name: string, shape_and_slice: string",
     .out = "tensor: dt",
     .attrs = "dt: type; preferred_shard: int = -1",
     .flags = EFFECT,
     .shape = shape_restore,
     .kernels = RUN(run_restore_slice)},
};
OP_FAMILY(save_restore, rows);

/* Reading and writing whole files, and finding files by pattern. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"

static shoal_status check_scalar(const struct tensor *t, const char *what) {
  if (t->rank == 0) return NULL;
  struct shape s = tensor_shape(t);
  return INVALID("%s tensor must be scalar, but had shape: %s", what, shape_str(&s));
}

static shoal_status run_read(struct kernel_ctx *ctx) {
  TRY(check_scalar(ctx_in(ctx, 0), "Input filename"));
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  char *path = string_dup(ctx_in(ctx, 0), 0), *data;
  size_t n;
  shoal_status s = file_read(path, 0, &data, &n);
  free(path);
  TRY(s);
  bool fits = str_try_set(out->data, data, n);
  free(data);
  return fits ? NULL : NO_MEMORY(n, "a file");
}

static shoal_status run_write(struct kernel_ctx *ctx) {
  TRY(check_scalar(ctx_in(ctx, 0), "Input filename"));
  TRY(check_scalar(ctx_in(ctx, 1), "Contents"));
  char *path = string_dup(ctx_in(ctx, 0), 0), *dir = path_directory(path);
  const struct str *contents = string_at(ctx_in(ctx, 1), 0);
  shoal_status s = *dir ? directory_make(dir) : NULL;
  if (!s) s = file_write(path, str_data(contents), contents->size);
  free(path);
  free(dir);
  return s;
}

static shoal_status run_matching(struct kernel_ctx *ctx) {
  const struct tensor *patterns = ctx_in(ctx, 0);
  if (patterns->rank > 1) {
    struct shape s = tensor_shape(patterns);
    return INVALID("Input patterns tensor must be scalar or vector, but had shape: %s", shape_str(&s));
  }
  struct path_list found = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < patterns->n; i++) {
    if (cancel_started(ctx->step->cancel)) s = cancel_reason(ctx->step->cancel);
    if (s) break;
    char *pattern = string_dup(patterns, i);
    s = file_glob(pattern, &found);
    free(pattern);
  }
  int64_t n = (int64_t)found.paths.n;
  struct tensor *out;
  if (!s) s = ctx_out_dims(ctx, 0, 1, &n, &out);
  if (!s) path_list_sort(&found);
  for (int64_t i = 0; !s && i < n; i++)
    str_set(&T_DATA(out, struct str)[i], found.paths.at[i], strlen(found.paths.at[i]));
  path_list_release(&found);
  return s;
}

static shoal_status shape_matching(struct shape_ctx *c) {
  c->out[0] = shape_vector(-1);
  return NULL;
}

#define RUN(fn)                                                    \
  (const struct kernel_def[]) {                                    \
    {.device = "CPU", .flags = KERNEL_EXPENSIVE, .run = fn}, { 0 } \
  }

static const struct op_row rows[] = {
    {.name = "ReadFile",
     .in = "filename: string",
     .out = "contents: string",
     .flags = OP_LOCAL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_read)},
    {.name = "WriteFile",
     .in = "filename: string, contents: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = RUN(run_write)},
    {.name = "MatchingFiles",
     .in = "pattern: string",
     .out = "filenames: string",
     .flags = OP_LOCAL | OP_NO_GRADIENT,
     .shape = shape_matching,
     .kernels = RUN(run_matching)},
};
OP_FAMILY(files, rows);

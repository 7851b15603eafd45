/* Warm starts from checkpoints with another vocabulary: GenerateVocabRemapping finds, for each entry of a new list of
 * words, its place in the old one; LoadAndRemapMatrix reads a matrix in that order of rows and columns and fills what
 * is new from given values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/strmap.h"
#include "checkpoint/bundle.h"
#include "ops/array/array_util.h"

/* ---- GenerateVocabRemapping ---- */

struct vocab_state {
  int64_t offset, count, old_size;
};

static shoal_status vocab_init(struct kernel_init *ki, void *state) {
  struct vocab_state *st = state;
  TRY(node_get_int(ki->node, "new_vocab_offset", &st->offset));
  TRY(node_get_int(ki->node, "num_new_vocab", &st->count));
  return node_get_int(ki->node, "old_vocab_size", &st->old_size);
}

struct vocabulary {
  char *data;
  VEC(const char *) at; /* NUL-terminated, inside data */
};

static void release_lines(struct vocabulary *l) {
  free(l->data);
  l->data = NULL;
  vec_release(&l->at);
}

/* The lines of a file, at most `limit` (negative: all, and then none may be missing). */
static shoal_status read_lines(const struct kernel_ctx *ctx, int input, const char *what, int64_t limit,
                               struct vocabulary *out) {
  const struct tensor *name = ctx_in(ctx, input);
  *out = (struct vocabulary){0};
  if (name->rank) return INVALID("%s should be a single string, but got %s", what, tensor_shape_str(name));
  const struct str *text = T_DATA(name, const struct str);
  if (!text->size) return INVALID("%s filename cannot be empty.", input ? "old vocab" : "new vocab");
  char *path = mem_strndup(str_data(text), text->size);
  size_t size = 0;
  shoal_status s = file_read(path, 0, &out->data, &size);
  for (size_t at = 0; !s && at < size && (limit < 0 || (int64_t)out->at.n < limit);) {
    char *line = out->data + at, *end = memchr(line, '\n', size - at);
    size_t n = end ? (size_t)(end - line) : size - at, kept = 0;
    at += n + 1;
    for (size_t i = 0; i < n; i++) /* carriage returns do not count */
      if (line[i] != '\r') line[kept++] = line[i];
    line[kept] = 0; /* file_read leaves room behind the last */
    if (!kept) s = INVALID("Invalid content in %s: empty line found at position %zu.", path, at);
    else vec_push(&out->at, (const char *)line);
  }
  if (!s && limit >= 0 && (int64_t)out->at.n != limit)
    s = INVALID("Invalid vocab_size in %s: expected %" PRId64 " but got %zu", path, limit, out->at.n);
  free(path);
  if (s) release_lines(out);
  return s;
}

static shoal_status vocab_run(struct kernel_ctx *ctx) {
  const struct vocab_state *st = ctx->state;
  struct vocabulary fresh, old = {0};
  struct strmap place = {0}; /* old word -> its line in old.at */
  shoal_status s = NULL;
  TRY(read_lines(ctx, 0, "new_vocab_file", -1, &fresh));
  if (st->count > (int64_t)fresh.at.n || st->offset > (int64_t)fresh.at.n - st->count) {
    s = INVALID("lookup table size must be larger than last new vocab entry's line");
    goto done;
  }
  TRY_GOTO(s, read_lines(ctx, 1, "old_vocab_file", st->old_size, &old), done);
  for (size_t i = 0; i < old.at.n; i++)
    if (strmap_put(&place, old.at.at[i], &old.at.at[i])) {
      s = STATUS(SHOAL_FAILED_PRECONDITION, "HashTable has different value for same key. Key %s has two lines",
                 old.at.at[i]);
      goto done;
    }
  struct shape vector = shape_vector(st->count), scalar = shape_scalar();
  struct tensor *remapping, *present;
  TRY_GOTO(s, ctx_out(ctx, 0, &vector, &remapping), done);
  TRY_GOTO(s, ctx_out(ctx, 1, &scalar, &present), done);
  int32_t found = 0;
  for (int64_t i = 0; i < st->count; i++) {
    const char **at = strmap_get(&place, fresh.at.at[st->offset + i]);
    T_DATA(remapping, int64_t)[i] = at ? at - old.at.at : -1;
    found += at != NULL;
  }
  *T_DATA(present, int32_t) = found;
done:
  strmap_release(&place);
  release_lines(&fresh);
  release_lines(&old);
  return s;
}

static shoal_status vocab_shape(struct shape_ctx *c) {
  int64_t n;
  TRY(node_get_int(c->node, "num_new_vocab", &n));
  c->out[0] = shape_vector(n);
  c->out[1] = shape_scalar();
  return NULL;
}

/* ---- LoadAndRemapMatrix ---- */

struct matrix_state {
  int64_t rows, cols, at_once; /* at_once: old rows in memory, <= 0: all */
};

static shoal_status matrix_init(struct kernel_init *ki, void *state) {
  struct matrix_state *st = state;
  TRY(node_get_int(ki->node, "num_rows", &st->rows));
  TRY(node_get_int(ki->node, "num_cols", &st->cols));
  return node_get_int(ki->node, "max_rows_in_memory", &st->at_once);
}

/* No old row or column may be asked for twice: TensorFlow holds it for a mistake. */
static shoal_status check_once(const struct tensor *map) {
  struct strmap seen = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; i < map->n && !s; i++) {
    int64_t old = T_DATA(map, const int64_t)[i];
    char key[24];
    if (old < 0) continue;
    snprintf(key, sizeof key, "%" PRId64, old);
    void *before = strmap_put(&seen, key, (char *)map->data + i);
    if (before) {
      int64_t first = (char *)before - (char *)map->data;
      s = UNIMPLEMENTED("Old ID %" PRId64 " is mapped to both new ID %" PRId64 " and %" PRId64
                        ", which is not supported.",
                        old, first, i);
    }
  }
  strmap_release(&seen);
  return s;
}

/* Rows [first, last] of the old matrix, as far as they are wanted, to their new places. */
static shoal_status load_rows(struct bundle *b, const struct str *name, int64_t first, int64_t last,
                              const struct tensor *row_map, const struct tensor *col_map, struct tensor *y) {
  struct slice part = slice_whole(2);
  part.start[0] = first;
  part.length[0] = last - first + 1;
  struct tensor old;
  TRY(bundle_read_slice(b, str_data(name), name->size, &part, &old));
  int64_t rows = y->dims[0], cols = y->dims[1], old_cols = old.dims[1];
  shoal_status s = NULL;
  for (int64_t j = 0; j < col_map->n && !s; j++)
    if (T_DATA(col_map, const int64_t)[j] >= old_cols)
      s = INVALID("Column %" PRId64 " is asked for of a matrix with %" PRId64, T_DATA(col_map, const int64_t)[j],
                  old_cols);
  for (int64_t i = 0; i < rows && !s; i++) {
    int64_t from = T_DATA(row_map, const int64_t)[i];
    if (from < first || from > last) continue;
    const float *in = T_DATA(&old, const float) + (from - first) * old_cols;
    float *out = T_DATA(y, float) + i * cols;
    if (!col_map->n) {
      memcpy(out, in, (size_t)cols * sizeof *out);
      continue;
    }
    for (int64_t j = 0; j < cols; j++) {
      int64_t col = T_DATA(col_map, const int64_t)[j];
      if (col >= 0) out[j] = in[col];
    }
  }
  tensor_release(&old);
  return s;
}

static shoal_status load_matrix(const struct matrix_state *st, struct bundle *b, const struct kernel_ctx *ctx,
                                struct tensor *y) {
  const struct str *name = T_DATA(ctx_in(ctx, 1), const struct str);
  const struct tensor *row_map = ctx_in(ctx, 2), *col_map = ctx_in(ctx, 3);
  struct bundle_entry e;
  TRY(bundle_find(b, str_data(name), name->size, &e));
  shoal_dtype dtype = e.dtype;
  struct shape shape = e.shape;
  bundle_entry_release(&e);
  int n = (int)MIN(name->size, 200);
  if (dtype != SHOAL_FLOAT32)
    return INVALID("Tensor %.*s has invalid type %s instead of expected type float", n, str_data(name),
                   dtype_tf_name(dtype));
  if (shape.rank != 2)
    return INVALID("Tensor %.*s has shape %s of invalid rank %d instead of expected shape of rank 2.", n,
                   str_data(name), shape_str(&shape), shape.rank);
  if (!col_map->n && shape.dims[1] != st->cols)
    return INVALID("Tensor %.*s has shape %s, where the size of its 2nd dimension is %" PRId64
                   " instead of being equal to num_cols=%" PRId64,
                   n, str_data(name), shape_str(&shape), shape.dims[1], st->cols);
  int64_t first = -1, last = -1;
  for (int64_t i = 0; i < row_map->n; i++) {
    int64_t r = T_DATA(row_map, const int64_t)[i];
    if (r < 0) continue;
    if (first < 0 || r < first) first = r;
    last = MAX(last, r);
  }
  if (last >= shape.dims[0])
    return INVALID("Row %" PRId64 " is asked for of tensor %.*s with shape %s", last, n, str_data(name),
                   shape_str(&shape));
  for (int64_t at = first; first >= 0 && at <= last;) {
    int64_t to = st->at_once <= 0 ? last : MIN(last, at + st->at_once - 1);
    TRY(load_rows(b, name, at, to, row_map, col_map, y));
    at = to + 1;
  }
  return NULL;
}

/* What no old row or column gives comes from the initializing values, in order. */
static shoal_status fill_rest(const struct kernel_ctx *ctx, struct tensor *y) {
  const struct tensor *row_map = ctx_in(ctx, 2), *col_map = ctx_in(ctx, 3), *values = ctx_in(ctx, 4);
  int64_t used = 0, cols = y->dims[1];
  for (int64_t i = 0; i < y->dims[0]; i++)
    for (int64_t j = 0; j < cols; j++) {
      bool has_row = T_DATA(row_map, const int64_t)[i] >= 0;
      if (has_row && (!col_map->n || T_DATA(col_map, const int64_t)[j] >= 0)) continue;
      if (used == values->n)
        return INVALID("initializing_values contained %" PRId64 " elements, but more missing values remain.",
                       values->n);
      T_DATA(y, float)[i * cols + j] = T_DATA(values, const float)[used++];
    }
  if (used != values->n)
    return INVALID("initializing_values contained %" PRId64 " elements, but only %" PRId64
                   " elements were used to fill in missing values.",
                   values->n, used);
  return NULL;
}

static shoal_status matrix_run(struct kernel_ctx *ctx) {
  const struct matrix_state *st = ctx->state;
  const struct tensor *row_map = ctx_in(ctx, 2), *col_map = ctx_in(ctx, 3);
  if (row_map->rank != 1 || row_map->n != st->rows)
    return INVALID("Size of row_remapping is %" PRId64 " instead of being equal to num_rows=%" PRId64, row_map->n,
                   st->rows);
  TRY(check_once(row_map));
  if (col_map->rank != 1 || (col_map->n && col_map->n != st->cols))
    return INVALID("Provided col_remapping, but its size is %" PRId64 " instead of being equal to num_cols=%" PRId64,
                   col_map->n, st->cols);
  TRY(check_once(col_map));
  for (int i = 0; i < 2; i++)
    if (ctx_in(ctx, i)->n != 1)
      return INVALID("The %s tensor must have exactly one element", i ? "old_tensor_name" : "ckpt_path");
  struct shape s = shape_matrix(st->rows, st->cols);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  const struct str *text = T_DATA(ctx_in(ctx, 0), const struct str);
  char *path = mem_strndup(str_data(text), text->size);
  struct bundle b;
  shoal_status status = bundle_open(&b, path);
  free(path);
  if (status) return status;
  status = load_matrix(st, &b, ctx, y);
  bundle_close(&b);
  return status ? status : fill_rest(ctx, y);
}

static shoal_status matrix_shape(struct shape_ctx *c) {
  int64_t rows, cols;
  TRY(node_get_int(c->node, "num_rows", &rows));
  TRY(node_get_int(c->node, "num_cols", &cols));
  c->out[0] = shape_matrix(rows, cols);
  return NULL;
}

static const struct kernel_def vocab_kernels[] = {{.device = "CPU",
                                                   .flags = KERNEL_EXPENSIVE,
                                                   .state_size = sizeof(struct vocab_state),
                                                   .init = vocab_init,
                                                   .run = vocab_run},
                                                  {0}};
static const struct kernel_def matrix_kernels[] = {{.device = "CPU",
                                                    .flags = KERNEL_EXPENSIVE,
                                                    .state_size = sizeof(struct matrix_state),
                                                    .init = matrix_init,
                                                    .run = matrix_run},
                                                   {0}};

static const struct op_row rows[] = {
    {.name = "GenerateVocabRemapping",
     .in = "new_vocab_file: string, old_vocab_file: string",
     .out = "remapping: int64, num_present: int32",
     .attrs = "new_vocab_offset: int >= 0; num_new_vocab: int >= 0; old_vocab_size: int >= -1 = -1",
     .flags = OP_NO_GRADIENT,
     .shape = vocab_shape,
     .kernels = vocab_kernels},
    {.name = "LoadAndRemapMatrix",
     .in = "ckpt_path: string, old_tensor_name: string, row_remapping: int64, col_remapping: int64, "
           "initializing_values: float",
     .out = "output_matrix: float",
     .attrs = "num_rows: int >= 0; num_cols: int >= 1; max_rows_in_memory: int = -1",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = matrix_shape,
     .kernels = matrix_kernels},
};
OP_FAMILY(remap, rows);

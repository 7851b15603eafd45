/* IsotonicRegression: the nearest sequence (by squares) that never rises, of each row, and which elements share a
 * value.
 *
 * Neighbouring segments whose means rise are merged until none do (pool adjacent violators), in the type of the output:
 * half and bfloat16 round after each sum, as TensorFlow's. */
#include "ops/array/array_util.h"

struct pooled_run {
  int64_t begin, end;
  double sum, mean;
};

struct isotonic_work {
  const struct tensor *x;
  struct tensor *y, *segments;
  struct pooled_run *room; /* [elements]: a row has that many segments at most */
  int64_t width;
};

static void solve_rows(void *arg, int64_t begin, int64_t end) {
  const struct isotonic_work *w = arg;
  shoal_dtype t = (shoal_dtype)w->y->dtype;
  for (int64_t r = begin; r < end; r++) {
    struct pooled_run *s = w->room + r * w->width;
    int64_t n = 0;
    for (int64_t i = 0; i < w->width; i++) {
      double v = real_rounded(t, real_at(w->x, r * w->width + i));
      s[n++] = (struct pooled_run){i, i + 1, v, v};
      for (; n > 1 && s[n - 1].mean > s[n - 2].mean; n--) {
        s[n - 2].end = s[n - 1].end;
        s[n - 2].sum = real_rounded(t, s[n - 2].sum + s[n - 1].sum);
        s[n - 2].mean = real_rounded(t, s[n - 2].sum / real_rounded(t, (double)(s[n - 2].end - s[n - 2].begin)));
      }
    }
    for (int64_t k = 0; k < n; k++)
      for (int64_t i = s[k].begin; i < s[k].end; i++) {
        real_put(w->y, r * w->width + i, s[k].mean);
        T_DATA(w->segments, int32_t)[r * w->width + i] = (int32_t)k;
      }
  }
}

static shoal_status run(struct kernel_ctx *ctx) {
  struct isotonic_work w = {.x = ctx_in(ctx, 0)};
  struct shape s = tensor_shape(w.x);
  w.width = s.rank ? s.dims[s.rank - 1] : 1;
  int64_t rows = w.width ? w.x->n / w.width : 0;
  if (rows > INT32_MAX || w.width > INT32_MAX) return INVALID("Tensor too large");
  TRY(ctx_out(ctx, 0, &s, &w.y));
  TRY(ctx_out(ctx, 1, &s, &w.segments));
  if (!w.x->n) return NULL;
  w.room = mem_try_zalloc((size_t)w.x->n, sizeof *w.room);
  if (!w.room) return NO_MEMORY((size_t)w.x->n * sizeof *w.room, "segments");
  pool_for(ctx_pool(ctx), rows, MAX(1, 4096 / w.width), solve_rows, &w);
  free(w.room);
  return NULL;
}

static shoal_status shape(struct shape_ctx *c) {
  c->out[0] = c->out[1] = c->in[0];
  return NULL;
}

/* Which types go together is TensorFlow's choice. */
#define FROM(types_, to) \
  { .device = "CPU", .type_attr = "T", .types = types_, .type_attr2 = "output_dtype", .types2 = DT(to), .run = run }
static const struct kernel_def kernels[] = {FROM(DT(FLOAT32) | DT(INT8) | DT(INT16), FLOAT32),
                                            FROM(DT(FLOAT64) | DT(INT32) | DT(INT64), FLOAT64),
                                            FROM(DT(FLOAT16), FLOAT16),
                                            FROM(DT(BFLOAT16), BFLOAT16),
                                            {0}};

static const struct op_row rows[] = {
    {.name = "IsotonicRegression",
     .in = "input: T",
     .out = "output: output_dtype, segments: int32",
     .attrs = "T: {realnumbertype}; output_dtype: {half, bfloat16, float, double} = float",
     .shape = shape,
     .kernels = kernels},
};
OP_FAMILY(isotonic, rows);

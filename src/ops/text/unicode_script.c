/* UnicodeScript: which script a code point belongs to, by ICU's numbers. The table has a word for each run of code
 * points of one script (start << 8 | script), some 1,600 of them, and was read off TensorFlow itself: what is in it
 * is the version of Unicode that TensorFlow's ICU has, not that of the machine. */
#include "base/mem.h"
#include "graph/shape_fn.h"
#include "runtime/kernel.h"

static const uint32_t runs[] = {
#include "ops/text/unicode_scripts.inc"
};

enum { LAST_CODE_POINT = 0x10ffff, NO_SCRIPT = -1 };

static int32_t script_of(int32_t code) {
  if (code < 0 || code > LAST_CODE_POINT) return NO_SCRIPT;
  size_t low = 0, high = COUNT_OF(runs); /* runs[low] starts at or before code, runs[high] after it */
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (runs[middle] >> 8 <= (uint32_t)code) low = middle;
    else high = middle;
  }
  return (int32_t)(runs[low] & 0xff);
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct tensor *codes = ctx_in(ctx, 0);
  struct tensor *out;
  TRY(ctx_out_like(ctx, 0, 0, &out));
  for (int64_t i = 0; i < codes->n; i++) T_DATA(out, int32_t)[i] = script_of(T_DATA(codes, const int32_t)[i]);
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "UnicodeScript",
     .in = "input: int32",
     .out = "output: int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run}, {0}}},
};
OP_FAMILY(unicode_script, rows);

/* An op that calls a function of this process's program: elements of datasets that it makes (feed/callback.c).
 * TensorFlow has none that could: its PyFunc is Python's. */
#include <stdlib.h>

#include "data/callback.h"
#include "ops/data/dataset_state.h"

struct callback_state {
  struct dataset_state s;
  struct callback is;
};

static shoal_status callback_init(struct kernel_init *ki, void *state) {
  struct callback_state *c = state;
  int64_t number;
  TRY(dataset_state_init(ki, &c->s));
  TRY(node_get_int(ki->node, "number", &number));
  return callback_find(number, &c->is);
}

static shoal_status check(const struct kernel_ctx *ctx, int i, const shoal_tensor *given) {
  const struct callback_state *c = ctx->state;
  if (!given) return INVALID("the dataset's function left component %d empty", i);
  struct shape shape = tensor_shape(&given->t);
  if (given->t.dtype != c->s.spec.types[i] || !shape_compatible(&shape, &c->s.spec.shapes[i]))
    return INVALID("the dataset's function gave %s%s as component %d, which is to be %s%s",
                   shoal_dtype_name(given->t.dtype), shape_str(&shape), i, shoal_dtype_name(c->s.spec.types[i]),
                   shape_str(&c->s.spec.shapes[i]));
  return NULL;
}

static shoal_status callback_run(struct kernel_ctx *ctx) {
  const struct callback_state *c = ctx->state;
  int64_t position;
  TRY(dataset_in_int(ctx, 0, "position", &position));
  int n = ctx->kernel->n_out;
  shoal_tensor **values = mem_zalloc((size_t)n, sizeof *values);
  shoal_status s = c->is.fill(c->is.arg, position, values);
  for (int i = 0; i < n && !s; i++) {
    s = check(ctx, i, values[i]);
    if (!s) tensor_ref(&ctx->out[i], &values[i]->t);
  }
  for (int i = 0; i < n; i++) shoal_tensor_unref(values[i]);
  free(values);
  return s;
}

static const struct op_row rows[] = {
    {.name = "_Callback",
     .in = "position: int64",
     .out = "components: output_types",
     .attrs = "number: int; " DATASET_SPEC,
     .flags = OP_LOCAL | OP_NO_GRADIENT,
     .shape = dataset_element_shape,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .state_size = sizeof(struct callback_state),
                                             .init = callback_init,
                                             .release = dataset_state_release,
                                             .run = callback_run},
                                            {0}}},
};
OP_FAMILY(callback, rows);

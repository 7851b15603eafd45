/* What kernels that make datasets share. */
#include "ops/data/dataset_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset_graph.h"

static shoal_status read_spec(const struct shoal_node *n, struct element_spec *spec) {
  const char *name = node_attr(n, "output_types") ? "output_types" : "Toutput_types";
  if (!node_attr(n, name) || !node_attr(n, "output_shapes")) return NULL;
  const struct attr *types, *shapes;
  TRY(node_get_list(n, name, ATTR_TYPE, &types));
  TRY(node_get_list(n, "output_shapes", ATTR_SHAPE, &shapes));
  if (types->list.n != shapes->list.n)
    return INVALID("output_types has %zu elements, output_shapes %zu", types->list.n, shapes->list.n);
  shoal_dtype *t = mem_zalloc(types->list.n, sizeof *t);
  struct shape *s = mem_zalloc(shapes->list.n, sizeof *s);
  for (size_t i = 0; i < types->list.n; i++) {
    t[i] = (shoal_dtype)types->list.at[i].type;
    s[i] = *shapes->list.at[i].shape;
  }
  *spec = (struct element_spec){(int)types->list.n, t, s};
  return NULL;
}

shoal_status dataset_state_init(struct kernel_init *ki, void *state) {
  struct dataset_state *s = state;
  TRY(read_spec(ki->node, &s->spec));
  s->functions = ki->functions;
  s->origin = dataset_origin_new(ki->node);
  const char *f = node_attr(ki->node, "f") ? "f" : node_attr(ki->node, "predicate") ? "predicate" : NULL;
  if (f) {
    const struct func_attr *attr;
    TRY(node_get_func(ki->node, f, &attr));
    TRY(function_get(ki, attr, &s->f));
    node_in_range(ki->node, "other_arguments", &s->first_captured, &s->n_captured);
    node_in_range(ki->node, "initial_state", &s->first_state, &s->n_state);
  }
  static const char *const flags[] = {"reshuffle_each_iteration", "require_non_empty", "sloppy",
                                      "stop_on_empty_dataset",    "drop_remainder",    "rerandomize_each_iteration",
                                      DATASET_SKIP_UNMADE};
  for (size_t i = 0; i < COUNT_OF(flags); i++)
    if (node_attr(ki->node, flags[i])) TRY(node_get_bool(ki->node, flags[i], &s->flag));
  const struct attr *order = node_attr(ki->node, "deterministic"); /* "true", "false", "default": true */
  if (order && order->kind == ATTR_STRING && !strcmp(order->s.data, "false")) s->flag = true;
  if (node_attr(ki->node, "preserve_cardinality"))
    TRY(node_get_bool(ki->node, "preserve_cardinality", &s->preserve_cardinality));
  return NULL;
}

void dataset_state_release(void *state) {
  struct dataset_state *s = state;
  free((void *)(uintptr_t)s->spec.types);
  free((void *)(uintptr_t)s->spec.shapes);
  dataset_origin_unref(s->origin);
}

shoal_status dataset_give(struct kernel_ctx *ctx, struct dataset *d) {
  struct tensor t;
  if (!d->op) { /* fresh: what only passes on its input gives what others may look at */
    shoal_status bad = dataset_bound(d, ctx->in, ctx->kernel->n_in);
    if (bad) dataset_unref(d);
    TRY(bad);
    d->op = ctx->kernel->op->name;
    const struct dataset_state *s = ctx->state;
    dataset_set_origin(d, s->origin, s->functions, ctx->in, ctx->kernel->n_in);
  }
  TRY(dataset_to_tensor(d, &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

shoal_status dataset_in(const struct kernel_ctx *ctx, int i, struct dataset **out) {
  return dataset_from_tensor(ctx_in(ctx, i), out);
}

shoal_status dataset_in_int(const struct kernel_ctx *ctx, int i, const char *name, int64_t *out) {
  if (ctx_in(ctx, i)->rank != 0) return INVALID("%s must be a scalar", name);
  return tensor_get_int(ctx_in(ctx, i), name, out);
}

shoal_status dataset_in_bool(const struct kernel_ctx *ctx, int i, const char *name, bool *out) {
  if (ctx_in(ctx, i)->rank != 0) return INVALID("%s must be a scalar", name);
  *out = *T_DATA(ctx_in(ctx, i), const bool);
  return NULL;
}

shoal_status dataset_in_string(const struct kernel_ctx *ctx, int i, const char *name, char **out) {
  if (ctx_in(ctx, i)->rank != 0) return INVALID("%s must be a scalar", name);
  const struct str *s = ctx_in(ctx, i)->data;
  *out = mem_strndup(str_data(s), s->size);
  return NULL;
}

struct captured dataset_captured(const struct kernel_ctx *ctx) {
  const struct dataset_state *s = ctx->state;
  struct captured c;
  captured_init(&c, s->f, s->functions, ctx->in + s->first_captured, s->n_captured);
  c.must_not_end = s->preserve_cardinality;
  return c;
}

shoal_status dataset_element_shape(struct shape_ctx *c) {
  const struct attr *shapes;
  TRY(node_get_list(c->node, "output_shapes", ATTR_SHAPE, &shapes));
  for (size_t i = 0; i < shapes->list.n && (int)i < c->node->n_out; i++) c->out[i] = *shapes->list.at[i].shape;
  return NULL;
}

bool dataset_op_is(const char *op, const char *const *list) {
  size_t n = strlen(op), digits = 0;
  while (digits < n && op[n - 1 - digits] >= '0' && op[n - 1 - digits] <= '9') digits++;
  if (digits && digits < n && op[n - 1 - digits] == 'V') n -= digits + 1;
  for (; *list; list++)
    if (strlen(*list) == n && !memcmp(op, *list, n)) return true;
  return false;
}

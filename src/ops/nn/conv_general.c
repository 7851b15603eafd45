/* Conv: a convolution whose number of spatial dimensions, two or three, follows from the input's rank, with any number
 * of batch dimensions before them. */
#include <stdlib.h>

#include "math/conv.h"
#include "ops/nn/window.h"

enum { MOST = 2 * SHOAL_MAX_RANK };

struct general_state {
  int64_t batch_dims, groups;
  bool channels_first;
  enum window_padding padding;
  int64_t strides[MOST], dilations[MOST], explicit[MOST];
  int n_strides, n_dilations, n_explicit;
};

static shoal_status read_list(const struct shoal_node *n, const char *name, int64_t *out, int *count) {
  const struct attr *list;
  TRY(node_get_list(n, name, ATTR_INT, &list));
  if (list->list.n > MOST) return INVALID("Conv: %s has %zu elements", name, list->list.n);
  return node_get_ints(n, name, out, MOST, count);
}

static shoal_status read_state(const struct shoal_node *n, struct general_state *st) {
  const char *text;
  TRY(node_get_int(n, "batch_dims", &st->batch_dims));
  TRY(node_get_int(n, "groups", &st->groups));
  TRY(node_get_string(n, "data_format", &text));
  st->channels_first = str_equal(text, "CHANNELS_FIRST");
  TRY(node_get_string(n, "padding", &text));
  st->padding = str_equal(text, "SAME") ? PADDING_SAME : str_equal(text, "VALID") ? PADDING_VALID : PADDING_EXPLICIT;
  TRY(read_list(n, "strides", st->strides, &st->n_strides));
  TRY(read_list(n, "dilations", st->dilations, &st->n_dilations));
  return read_list(n, "explicit_paddings", st->explicit, &st->n_explicit);
}

static shoal_status init(struct kernel_init *ki, void *state) { return read_state(ki->node, state); }

/* A list over batch, space and depth; only space may be other than 1. Empty: 1 throughout. */
static shoal_status spread(const char *what, const int64_t *v, int n, const struct window *w, int64_t *out) {
  if (n != w->spatial + 2) return INVALID("Sliding window %s field must specify %d dimensions", what, w->spatial + 2);
  if (v[0] != 1 || v[n - 1] != 1)
    return INVALID("Current implementation does not yet support %s in the batch and depth dimensions.", what);
  for (int d = window_first(w); d < 3; d++) {
    out[d] = v[window_at(w, d)];
    if (out[d] <= 0 || out[d] > INT32_MAX) return INVALID("Spatial %s should be larger than 0.", what);
  }
  return NULL;
}

/* The window for an input of that rank. */
static shoal_status window_of(const struct general_state *st, int rank, struct window *w) {
  if (st->batch_dims < 0) return INVALID("batch_dims must not be negative: %" PRId64, st->batch_dims);
  int64_t spatial = rank - 1 - st->batch_dims;
  if (spatial != 2 && spatial != 3)
    return INVALID("The input must have 2 or 3 spatial dimensions but got %" PRId64, spatial);
  if (st->channels_first)
    return UNIMPLEMENTED(
        "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was given the "
        "format: NCHW");
  *w = (struct window){.spatial = (int)spatial, .padding = st->padding};
  for (int d = 0; d < 3; d++) w->size[d] = w->stride[d] = w->dilation[d] = 1;
  TRY(spread("strides", st->strides, st->n_strides, w, w->stride));
  if (st->n_dilations) TRY(spread("dilations", st->dilations, st->n_dilations, w, w->dilation));
  if (st->padding != PADDING_EXPLICIT) {
    if (st->n_explicit)
      return INVALID("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT");
    return NULL;
  }
  if (spatial == 3) return INVALID("Explicit padding is not supported with 3 spatial dimensions");
  if (st->n_explicit != 8)
    return INVALID("explicit_paddings attribute must contain 8 values, but got: %d", st->n_explicit);
  for (int i = 0; i < 8; i++) {
    if (st->explicit[i] < 0) return INVALID("All elements of explicit_paddings must be nonnegative");
    if (st->explicit[i] > INT32_MAX) return INVALID("explicit_paddings is too large: %" PRId64, st->explicit[i]);
    if ((i < 2 || i > 5) && st->explicit[i])
      return INVALID("Nonzero explicit padding in the batch or depth dimensions is not supported");
  }
  for (int d = 1; d < 3; d++) {
    w->pad_before[d] = st->explicit[2 * d];
    w->pad_after[d] = st->explicit[2 * d + 1];
  }
  return NULL;
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct general_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *f = ctx_in(ctx, 1);
  struct window w;
  TRY(window_of(st, x->rank, &w));
  int lead = x->rank - 1 - w.spatial; /* batch dimensions, as many as there are */
  if (st->groups != 1) return UNIMPLEMENTED("Grouped/Depthwise Convolutions are not supported yet.");
  if (f->rank != w.spatial + 2) return INVALID("filter must be %d-dimensional: %s", w.spatial + 2, tensor_shape_str(f));
  if (x->dims[x->rank - 1] != f->dims[w.spatial])
    return INVALID("Input depth must be equal to filter depth: %" PRId64 " vs %" PRId64, x->dims[x->rank - 1],
                   f->dims[w.spatial]);
  if (!f->n) return INVALID("filter must not have zero elements (i.e. all dimensions must be non-zero)");
  struct shape s = tensor_shape(x);
  struct conv c = {.batch = dims_product(x->dims, 0, lead), .ci = x->dims[x->rank - 1], .groups = 1};
  c.co = s.dims[s.rank - 1] = f->dims[w.spatial + 1];
  for (int d = 0; d < 3; d++) {
    int64_t after;
    c.in[d] = c.out[d] = c.filter[d] = 1;
    c.stride[d] = w.stride[d];
    c.dilation[d] = w.dilation[d];
    if (d < window_first(&w)) continue;
    int at = d - window_first(&w);
    c.in[d] = x->dims[lead + at];
    c.filter[d] = f->dims[at];
    TRY(window_out(&w, d, c.in[d], c.filter[d], &c.out[d], &c.pad[d], &after));
    s.dims[lead + at] = c.out[d];
  }
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &s, &out));
  if (!out->n) return NULL;
  return conv_forward(ctx_pool(ctx), &c, ctx_out_type(ctx, 0), x->data, f->data, out->data, NULL);
}

static shoal_status shape(struct shape_ctx *c) {
  struct general_state st;
  struct window w;
  TRY(read_state(c->node, &st));
  struct shape x = c->in[0], f = c->in[1];
  if (x.rank < 0 || f.rank < 0 || st.channels_first) return NULL;
  TRY(window_of(&st, x.rank, &w));
  if (f.rank != w.spatial + 2) return INVALID("Shape must be rank %d but is rank %d", w.spatial + 2, f.rank);
  for (int d = window_first(&w); d < 3; d++) {
    int64_t before, after, *size = &x.dims[x.rank - 1 - w.spatial + d - window_first(&w)];
    TRY(window_out(&w, d, *size, f.dims[d - window_first(&w)], size, &before, &after));
  }
  x.dims[x.rank - 1] = f.dims[f.rank - 1];
  c->out[0] = x;
  return NULL;
}

static const struct kernel_def kernels[] = {{.device = "CPU",
                                             .type_attr = "T",
                                             .types = DT_FLOATING | DT(INT32),
                                             .flags = KERNEL_EXPENSIVE,
                                             .init = init,
                                             .run = run,
                                             .state_size = sizeof(struct general_state)},
                                            {0}};

static const struct op_row rows[] = {
    {.name = "Conv",
     .in = "input: T, filter: T",
     .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double, int32}; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; "
              "explicit_paddings: list(int) = []; data_format: {'CHANNELS_FIRST', 'CHANNELS_LAST'} = 'CHANNELS_LAST'; "
              "dilations: list(int) = []; batch_dims: int = 1; groups: int = 1",
     .shape = shape,
     .kernels = kernels},
};
OP_FAMILY(conv_general, rows);

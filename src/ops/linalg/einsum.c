/* ops/linalg: products of matrices and tensors, and linear algebra on the last two dimensions. */

/* Einsum of one or two tensors, as a batch of matrix products.
 *
 * Labels fall into classes: batch (in both and in the output), contracted (in both, not in the output), free (in one
 * and in the output), summed (in one alone). Summed labels go first. If what is left of a tensor can be walked with
 * one stride along its free labels and one along the contracted ones, the product reads it where it is, otherwise
 * it is copied into that order; the same holds for writing the output. Repeated labels are strides along a diagonal. */
#include <stdlib.h>
#include <string.h>

#include "math/gemm.h"
#include "ops/linalg/einsum_parse.h"

static shoal_status einsum_init(struct kernel_init *ki, void *state) {
  const char *text;
  TRY(node_get_string(ki->node, "equation", &text));
  return equation_parse(text, ki->node->n_in, state);
}

/* ---- strided sums: copies, diagonals and reductions ---- */

struct einsum_walk {
  int n;
  int64_t dim[MAX_AXES], from[MAX_AXES], to[MAX_AXES];
};

static void walk_add(struct einsum_walk *w, int64_t dim, int64_t from, int64_t to) {
  if (dim == 1) return;
  w->dim[w->n] = dim;
  w->from[w->n] = from;
  w->to[w->n++] = to;
}

#define ADD_UP(type, LOAD, STORE)                                                           \
  {                                                                                         \
    const type *x = (const type *)from + at_from;                                           \
    type *y = (type *)to + at_to;                                                           \
    if (sum)                                                                                \
      for (int64_t i = 0; i < n; i++) y[i * st] = STORE(LOAD(y[i * st]) + LOAD(x[i * sf])); \
    else                                                                                    \
      for (int64_t i = 0; i < n; i++) y[i * st] = x[i * sf];                                \
    break;                                                                                  \
  }
#define PLAIN(v) (v)

/* Walks all axes, the last in a loop of its own; sum adds into what is there. */
static void walk_run(const struct einsum_walk *w, shoal_dtype type, const void *from, void *to, bool sum) {
  int64_t at[MAX_AXES] = {0}, at_from = 0, at_to = 0;
  int last = w->n - 1;
  int64_t n = w->n ? w->dim[last] : 1, sf = w->n ? w->from[last] : 0, st = w->n ? w->to[last] : 0;
  for (int i = 0; i < w->n; i++)
    if (!w->dim[i]) return;
  for (;;) {
    switch (type) {
      case SHOAL_FLOAT32: ADD_UP(float, PLAIN, PLAIN)
      case SHOAL_FLOAT64: ADD_UP(double, PLAIN, PLAIN)
      case SHOAL_INT32: ADD_UP(uint32_t, PLAIN, PLAIN)
      case SHOAL_INT64: ADD_UP(uint64_t, PLAIN, PLAIN)
      case SHOAL_COMPLEX64: ADD_UP(c64, PLAIN, PLAIN)
      case SHOAL_COMPLEX128: ADD_UP(c128, PLAIN, PLAIN)
      case SHOAL_FLOAT16: ADD_UP(f16, f16_to_float, f16_from_float)
      default: ADD_UP(bf16, bf16_to_float, bf16_from_float)
    }
    int d = last - 1;
    for (; d >= 0; d--) {
      at_from += w->from[d];
      at_to += w->to[d];
      if (++at[d] < w->dim[d]) break;
      at_from -= w->from[d] * w->dim[d];
      at_to -= w->to[d] * w->dim[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

/* Sums of half and bfloat16 are kept in float. */
static shoal_status sum_into(const struct einsum_walk *w, shoal_dtype type, const struct tensor *x, struct tensor *y) {
  shoal_dtype acc = gemm_acc_type(type);
  if (type != SHOAL_FLOAT16 && type != SHOAL_BFLOAT16) {
    walk_run(w, type, x->data, y->data, true);
    return NULL;
  }
  struct tensor wide_x = {0}, wide_y = {0};
  struct shape sx = shape_vector(x->n), sy = shape_vector(y->n);
  shoal_status s;
  TRY_GOTO(s, tensor_new(&wide_x, acc, &sx), done);
  TRY_GOTO(s, tensor_new(&wide_y, acc, &sy), done);
  tensor_zero(&wide_y);
  nn_to_float(type, x->data, wide_x.data, x->n);
  walk_run(w, acc, wide_x.data, wide_y.data, true);
  nn_from_float(type, wide_y.data, y->data, y->n);
done:
  tensor_release(&wide_x);
  tensor_release(&wide_y);
  return s;
}

static shoal_status run_unary(const struct bound *b, shoal_dtype type, const struct tensor *x, struct tensor *y) {
  struct einsum_walk kept = {0};
  bool reduces = false;
  for (int i = 0; i < b->n; i++) {
    walk_add(&kept, b->axis[i].dim, b->axis[i].stride[0], b->axis[i].out_stride);
    reduces |= !b->axis[i].in_out && b->axis[i].dim != 1;
  }
  if (reduces || b->repeats) tensor_zero(y);
  if (!y->n) return NULL;
  if (reduces) return sum_into(&kept, type, x, y);
  walk_run(&kept, type, x->data, y->data, false);
  return NULL;
}

/* ---- products ---- */

struct axis_group {
  int n;
  int axis[MAX_AXES];
  int64_t size;
};

static void group_add(struct axis_group *g, int axis, int64_t dim) {
  g->axis[g->n++] = axis;
  g->size *= dim;
}

/* One stride for all axes of a group, or -1. which: 0, 1 an input, 2 the output. */
static int64_t stride_of(const struct bound *b, const struct axis_group *g, int which) {
  int64_t stride = -1, next = 0;
  for (int i = g->n - 1; i >= 0; i--) {
    const struct axis *a = &b->axis[g->axis[i]];
    int64_t s = which == 2 ? a->out_stride : a->stride[which];
    if (a->dim == 1) continue;
    if (stride < 0) stride = s;
    else if (s != next) return -1;
    next = s * a->dim;
  }
  return stride < 0 ? 1 : stride; /* nothing to step along: any stride will do */
}

/* Operand `which` with its summed labels gone, copied to the order [batch, rows, columns] when `order` is given. */
static shoal_status settle(struct bound *b, int which, shoal_dtype type, const struct tensor *x,
                           const struct axis_group *batch, const struct axis_group *rows, const struct axis_group *cols,
                           bool copy, struct tensor *out) {
  struct einsum_walk w = {0};
  int64_t step = 1, strides[MAX_AXES] = {0};
  bool sums = false;
  const struct axis_group *order[3] = {batch, rows, cols};
  for (int g = 2; g >= 0; g--)
    for (int i = order[g]->n - 1; i >= 0; i--) {
      int k = order[g]->axis[i];
      if (!b->axis[k].in[which]) continue;
      strides[k] = step;
      step *= b->axis[k].dim;
    }
  for (int i = 0; i < b->n; i++) {
    const struct axis *a = &b->axis[i];
    if (!a->in[which]) continue;
    walk_add(&w, a->dim, a->stride[which], strides[i]);
    sums |= !a->in_out && !a->in[1 - which];
  }
  if (!sums && !copy) {
    tensor_ref(out, x);
    return NULL;
  }
  struct shape s = shape_vector(step);
  TRY(tensor_new(out, type, &s));
  if (sums) {
    tensor_zero(out);
    TRY(sum_into(&w, type, x, out));
  } else {
    walk_run(&w, type, x->data, out->data, false);
  }
  for (int i = 0; i < b->n; i++) b->axis[i].stride[which] = strides[i];
  return NULL;
}

/* What an operand needs to be read in place: rows and columns with one stride each, one of them 1. */
static bool readable(const struct bound *b, int which, const struct axis_group *free_,
                     const struct axis_group *contract) {
  int64_t f = stride_of(b, free_, which), c = stride_of(b, contract, which);
  return f >= 0 && c >= 0 && (f == 1 || c == 1);
}

static struct gemm_operand operand(const struct bound *b, int which, shoal_dtype type, const struct axis_group *rows,
                                   const struct axis_group *cols, const void *data) {
  int64_t r = stride_of(b, rows, which), c = stride_of(b, cols, which);
  bool trans = c != 1 || (r == 1 && rows->size > 1 && cols->size <= 1);
  return (struct gemm_operand){.data = data, .type = type, .ld = trans ? c : r, .trans = trans};
}

/* The products of all batches: pointers first, then one call. */
static shoal_status multiply(struct pool *pool, const struct bound *b, struct gemm *g, const struct axis_group *batch,
                             const void *a, const void *b_data, void *c, const int64_t *c_strides) {
  size_t es = dtype_size(g->type);
  struct buffer *room;
  TRY(buffer_new((size_t)batch->size * 3 * sizeof(void *), &room));
  const void **pa = room->data, **pb = pa + batch->size;
  void **pc = (void **)(pb + batch->size);
  for (int64_t i = 0; i < batch->size; i++) {
    int64_t rest = i, oa = 0, ob = 0, oc = 0;
    for (int d = batch->n - 1; d >= 0; d--) {
      const struct axis *x = &b->axis[batch->axis[d]];
      int64_t at = rest % x->dim;
      rest /= x->dim;
      oa += at * x->stride[0];
      ob += at * x->stride[1];
      oc += at * c_strides[d];
    }
    pa[i] = (const char *)a + (size_t)oa * es;
    pb[i] = (const char *)b_data + (size_t)ob * es;
    pc[i] = (char *)c + (size_t)oc * es;
  }
  shoal_status s = gemm_batch(pool, g, batch->size, pa, pb, pc);
  buffer_unref(room);
  return s;
}

static int by_out_stride(const struct bound *b, int x, int y) {
  return b->axis[x].out_stride > b->axis[y].out_stride ? -1 : 1;
}

static void sort_group(const struct bound *b, struct axis_group *g) { /* as the output has them */
  for (int i = 1; i < g->n; i++)
    for (int k = i; k > 0 && by_out_stride(b, g->axis[k], g->axis[k - 1]) < 0; k--) {
      int t = g->axis[k];
      g->axis[k] = g->axis[k - 1];
      g->axis[k - 1] = t;
    }
}

static shoal_status run_binary(struct kernel_ctx *ctx, struct bound *b, shoal_dtype type, struct tensor *y) {
  struct axis_group batch = {.size = 1}, rows = {.size = 1}, cols = {.size = 1}, contract = {.size = 1};
  for (int i = 0; i < b->n; i++) {
    const struct axis *a = &b->axis[i];
    if (a->in[0] && a->in[1]) group_add(a->in_out ? &batch : &contract, i, a->dim);
    else if (a->in_out && a->dim != 1) group_add(a->in[0] ? &rows : &cols, i, a->dim);
  }
  if (b->repeats) tensor_zero(y);
  if (!y->n) return NULL;
  sort_group(b, &batch);
  sort_group(b, &rows);
  sort_group(b, &cols);
  struct tensor in[2] = {{0}, {0}}, work = {0};
  shoal_status s = NULL;
  for (int i = 0; i < 2; i++)
    TRY_GOTO(s, settle(b, i, type, ctx_in(ctx, i), &batch, i ? &contract : &rows, i ? &cols : &contract, false, &in[i]),
             done);
  for (int i = 0; i < 2; i++) {
    if (readable(b, i, i ? &cols : &rows, &contract)) continue;
    struct tensor before = in[i];
    in[i] = tensor_none();
    s = settle(b, i, type, &before, &batch, i ? &contract : &rows, i ? &cols : &contract, true, &in[i]);
    tensor_release(&before);
    if (s) goto done;
  }
  /* C's rows and columns where the output has them, transposed if the rows lie contiguous, or apart. */
  int64_t c_row = stride_of(b, &rows, 2), c_col = stride_of(b, &cols, 2), strides[MAX_AXES];
  bool direct = c_row >= 0 && c_col >= 0 && (c_col == 1 || c_row == 1), flip = direct && c_col != 1;
  void *c = y->data;
  int64_t ldc = flip ? c_col : c_row;
  for (int i = 0; i < batch.n; i++) strides[i] = b->axis[batch.axis[i]].out_stride;
  if (!direct) {
    struct shape room = shape_vector(batch.size * rows.size * cols.size);
    TRY_GOTO(s, tensor_new(&work, type, &room), done);
    c = work.data;
    ldc = cols.size;
    int64_t step = rows.size * cols.size;
    for (int i = batch.n - 1; i >= 0; i--) {
      strides[i] = step;
      step *= b->axis[batch.axis[i]].dim;
    }
  }
  struct gemm g = {.m = rows.size, .n = cols.size, .k = contract.size, .type = type, .ldc = MAX(ldc, 1)};
  g.a = operand(b, 0, type, &rows, &contract, NULL);
  g.b = operand(b, 1, type, &contract, &cols, NULL);
  if (flip) {
    struct gemm_operand a = g.b, bb = g.a;
    a.trans = !a.trans;
    bb.trans = !bb.trans;
    g = (struct gemm){
        .m = cols.size, .n = rows.size, .k = contract.size, .type = type, .ldc = MAX(ldc, 1), .a = a, .b = bb};
    struct bound other = *b; /* the pointers of the operands trade places too */
    for (int i = 0; i < b->n; i++) {
      other.axis[i].stride[0] = b->axis[i].stride[1];
      other.axis[i].stride[1] = b->axis[i].stride[0];
    }
    TRY_GOTO(s, multiply(ctx_pool(ctx), &other, &g, &batch, in[1].data, in[0].data, c, strides), done);
  } else {
    TRY_GOTO(s, multiply(ctx_pool(ctx), b, &g, &batch, in[0].data, in[1].data, c, strides), done);
  }
  if (!direct) {
    struct einsum_walk w = {0};
    const struct axis_group *order[3] = {&batch, &rows, &cols};
    int64_t step = work.n;
    for (int k = 0; k < 3; k++)
      for (int i = 0; i < order[k]->n; i++) {
        const struct axis *a = &b->axis[order[k]->axis[i]];
        step /= a->dim;
        walk_add(&w, a->dim, step, a->out_stride);
      }
    walk_run(&w, type, work.data, y->data, false);
  }
done:
  tensor_release(&in[0]);
  tensor_release(&in[1]);
  tensor_release(&work);
  return s;
}

static shoal_status einsum_run(struct kernel_ctx *ctx) {
  const struct equation *e = ctx->state;
  struct shape in[2];
  for (int i = 0; i < e->n_in; i++) in[i] = tensor_shape(ctx_in(ctx, i));
  struct bound b;
  TRY(equation_bind(e, in, &b));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &b.out, &y));
  shoal_dtype type = ctx_in_type(ctx, 0);
  return e->n_in == 1 ? run_unary(&b, type, ctx_in(ctx, 0), y) : run_binary(ctx, &b, type, y);
}

static const struct kernel_def einsum_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT_FLOATING | DT_COMPLEX | DT(INT32) | DT(INT64),
                                                    .state_size = sizeof(struct equation),
                                                    .init = einsum_init,
                                                    .run = einsum_run},
                                                   {0}};

static shoal_status einsum_shape(struct shape_ctx *c) {
  const char *text;
  struct equation e;
  struct bound b;
  TRY(node_get_string(c->node, "equation", &text));
  TRY(equation_parse(text, c->node->n_in, &e));
  for (int i = 0; i < e.n_in; i++)
    if (c->in[i].rank < 0) return NULL;
  TRY(equation_bind(&e, c->in, &b));
  c->out[0] = b.out;
  return NULL;
}

/* ---- gradient ---- */

static shoal_out einsum_node(struct shoal_graph *g, const char *equation, const shoal_out *in, int n) {
  struct build b = build_begin(g, "Einsum", NULL);
  build_in_list(&b, in, n);
  build_attr_string(&b, "equation", equation);
  return build_end_out(&b);
}

/* dx from a gradient that has every label of x but those only x has (summed ones, to be put back by broadcasting), and
 * the output's broadcasting dimensions, of which those that x has not are added up. */
static shoal_out fit(struct shoal_graph *g, shoal_out dx, shoal_out x, const struct subscripts *sx, const bool *summed,
                     bool wide) {
  bool any = false;
  int pos = sx->ellipsis < 0 ? (wide ? 0 : sx->n) : sx->ellipsis; /* labels before the ellipsis */
  for (int i = 0; i < pos; i++)
    if (summed[i]) dx = array_expand(g, dx, i), any = true;
  for (int i = sx->n - 1; i >= pos; i--)
    if (summed[i]) dx = array_expand(g, dx, i - sx->n), any = true;
  shoal_out shape = array_shape(g, x, SHOAL_INT32);
  if (wide) {
    shoal_out full = array_shape(g, dx, SHOAL_INT32);
    int after = sx->n - pos, end = after ? -after : INT32_MAX, none = sx->ellipsis < 0;
    struct build n = build_begin(g, "BroadcastGradientArgs", NULL);
    build_in(&n, none ? array_part(g, shape, 0, 0) : array_part(g, shape, pos, end));
    build_in(&n, array_part(g, full, pos, end));
    struct shoal_node *args = build_end(&n);
    if (!args) return dx;
    shoal_out axes = build_op2(g, "AddV2", node_out(args, 0), build_const_int(g, SHOAL_INT32, pos));
    dx = array_sum(g, dx, axes, any);
    if (!any) dx = array_reshape(g, dx, shape);
  }
  return any ? build_op2(g, "BroadcastTo", dx, shape) : dx;
}

/* "from->to" of one tensor. */
static shoal_out rearrange(struct shoal_graph *g, shoal_out x, const struct subscripts *from,
                           const struct subscripts *to) {
  struct text t = {0};
  subscripts_print(from, false, &t);
  text_adds(&t, "->");
  subscripts_print(to, false, &t);
  shoal_out y = einsum_node(g, text_cstr(&t), &x, 1);
  text_release(&t);
  return y;
}

/* Each label once. */
static struct subscripts without_repeats(const struct subscripts *s) {
  struct subscripts u = {.ellipsis = -1};
  for (int i = 0; i <= s->n; i++) {
    if (i == s->ellipsis) u.ellipsis = u.n;
    if (i < s->n && !memchr(u.label, s->label[i], (size_t)u.n)) u.label[u.n++] = s->label[i];
  }
  return u;
}

static shoal_out grad_of(struct grad_ctx *c, const struct equation *e, int which) {
  struct shoal_graph *g = c->g;
  const struct subscripts *given = &e->in[which], *other = e->n_in == 2 ? &e->in[1 - which] : NULL;
  struct subscripts sx = without_repeats(given), left = {.ellipsis = -1};
  bool repeats = sx.n != given->n, summed[SHOAL_MAX_RANK], wide = e->out.ellipsis >= 0;
  for (int i = 0; i <= sx.n; i++) {
    if (i == sx.ellipsis) left.ellipsis = left.n;
    if (i == sx.n) break;
    summed[i] = !memchr(e->out.label, sx.label[i], (size_t)e->out.n) &&
                !(other && memchr(other->label, sx.label[i], (size_t)other->n));
    if (!summed[i]) left.label[left.n++] = sx.label[i];
  }
  struct text t = {0};
  shoal_out in[2] = {grad_dy(c, 0)}, x = gin(c, which);
  subscripts_print(&e->out, false, &t);
  if (other) {
    shoal_out y = gin(c, 1 - which);
    in[1] = dtype_complex(out_type(y)) ? build_op1(g, "Conj", y) : y;
    text_addc(&t, ',');
    subscripts_print(other, false, &t);
  }
  text_adds(&t, "->");
  subscripts_print(&left, wide, &t);
  shoal_out dx = einsum_node(g, text_cstr(&t), in, e->n_in);
  text_release(&t);
  if (!repeats) return fit(g, dx, x, &sx, summed, wide);
  /* On the diagonal the gradient is what it is for the diagonal alone; elsewhere zero. */
  dx = fit(g, dx, rearrange(g, x, given, &sx), &sx, summed, wide);
  return rearrange(g, dx, &sx, given);
}

static shoal_status einsum_grad(struct grad_ctx *c) {
  const char *text;
  struct equation e;
  TRY(node_get_string(c->node, "equation", &text));
  TRY(equation_parse(text, c->node->n_in, &e));
  for (int i = 0; i < e.n_in; i++) grad_set(c, i, grad_of(c, &e, i));
  return NULL;
}

static const struct op_row rows[] = {
    {"Einsum", .in = "inputs: N * T", .out = "output: T", .attrs = "equation: string; N: int >= 1; T: type",
     .shape = einsum_shape, .grad = einsum_grad, .kernels = einsum_kernels},
};
OP_FAMILY(einsum, rows);

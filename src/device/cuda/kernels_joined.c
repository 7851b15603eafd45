/* Updates of many variables, and the norm of many gradients, in a few launches: joined.cu. What a kernel can be given
 * has room for so many of them (ITEMS); more take another launch.
 *
 * All variables are locked at once, in the order of their addresses, as every update locks its own. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/state/joined.h"
#include "ops/state/state.h"
#include "runtime/variable_copy.h"
#include "runtime/variable_notes.h"

enum { ITEMS = 72, VARS = 3, SCALARS = 8, PIECE = 4096, SQUARE_ITEMS = 144, SQUARE_PIECE = 16384, SUM_THREADS = 1024 };
enum { PACK = 16 }; /* bytes: four elements of the widest type */

struct cuda_joined_item { /* these as joined.cu has them */
  void *x[VARS];
  const void *g;
  int64_t n;
  uint32_t first;
  uint8_t kind, packed, shrinks;
};
struct cuda_joined_memory {
  struct cuda_joined_item item[ITEMS];
  const void *scalars[SCALARS], *scale, *shrink;
  int32_t n_items, n_scalars;
  bool nesterov;
};
struct cuda_square_item {
  const void *g;
  int64_t n;
  uint32_t first;
  uint8_t kind, packed;
};
struct cuda_square_memory {
  struct cuda_square_item item[SQUARE_ITEMS];
  int32_t n_items;
};

static uint8_t kind_of(const struct tensor *g) {
  return g->dtype == SHOAL_BFLOAT16 ? 1 : g->dtype == SHOAL_FLOAT16 ? 2 : 0;
}

static uint32_t pieces(int64_t n, int64_t each) { return (uint32_t)((n + each - 1) / each); }

/* ---- updates ---- */

struct cuda_joined {
  struct joined_layout at;
  CUfunction f;
  bool nesterov;
};

static const struct {
  const char *op, *name;
  int n_vars;
} rules[] = {{"ResourceApplyGradientDescent", "joined_gradient_descent", 1},
             {"ResourceApplyMomentum", "joined_momentum", 2},
             {"ResourceApplyKerasMomentum", "joined_keras_momentum", 2},
             {"ResourceApplyAdam", "joined_adam", 3}};

static const char *rule_of(const char *op) {
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (!strcmp(rules[i].op, op)) return rules[i].name;
  return NULL;
}

static bool are_floats(const struct shoal_node *n) {
  for (int i = 0; i < n->n_in; i++)
    if (!((DT(RESOURCE) | DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16)) >> dtype_base(n->in_types[i]) & 1)) return false;
  return true;
}

static bool joined_fits(const struct shoal_node *n) {
  const char *op;
  shoal_status s = node_get_string(n, "op", &op);
  bool good = !s && rule_of(op) && are_floats(n);
  shoal_status_free(s);
  return good;
}

static shoal_status joined_init(struct kernel_init *ki, void *state) {
  struct cuda_joined *st = state;
  TRY(joined_layout_find(ki->node, &st->at));
  if (node_attr(ki->node, "use_nesterov")) TRY(node_get_bool(ki->node, "use_nesterov", &st->nesterov));
  return cuda_function(cuda_of(ki->device), "joined", rule_of(st->at.op->name), 0, 0, &st->f);
}

static void joined_release(void *state) { joined_layout_release(&((struct cuda_joined *)state)->at); }

/* All variables of the node, and the same in the order of their addresses, each once. */
struct cuda_many {
  struct variable **v, **order; /* [n] a reference each; [locked] */
  int n, locked;
};

static int by_address(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (struct variable *const *)a, y = (uintptr_t) * (struct variable *const *)b;
  return (x > y) - (x < y);
}

static void many_release(struct cuda_many *m) {
  for (int i = 0; i < m->locked; i++) pthread_rwlock_unlock(&m->order[i]->lock);
  for (int i = 0; i < m->n; i++) variable_unref(m->v[i]);
  free(m->v);
  free(m->order);
}

static shoal_status many_find(struct kernel_ctx *ctx, const struct joined_layout *at, struct cuda_many *m) {
  size_t all = (size_t)at->count * (size_t)at->n_vars;
  *m = (struct cuda_many){mem_zalloc(all, sizeof *m->v), mem_zalloc(all, sizeof *m->order), 0, 0};
  for (size_t i = 0; i < all; i++) {
    struct resource *r;
    size_t in = i / (size_t)at->n_vars * (size_t)(at->n_vars + 1) + i % (size_t)at->n_vars;
    TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, (int)in), &variable_type, &r));
    m->v[m->n++] = (struct variable *)r;
  }
  return NULL;
}

static void many_lock(struct cuda_many *m) {
  memcpy(m->order, m->v, (size_t)m->n * sizeof(*m->v));
  qsort(m->order, (size_t)m->n, sizeof *m->order, by_address);
  for (int i = 0; i < m->n; i++) {
    if (m->locked && m->order[m->locked - 1] == m->order[i]) continue;
    m->order[m->locked++] = m->order[i];
    pthread_rwlock_wrlock(&m->order[m->locked - 1]->lock);
    variable_note(m->order[m->locked - 1], true);
  }
}

static shoal_status check(const struct variable *v, const struct tensor *grad, bool fits) {
  if (!tensor_valid(&v->value))
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  if (v->value.dtype != SHOAL_FLOAT32) return INVALID("DType of variable handle and value does not match.");
  if (fits ? v->value.n == grad->n : tensor_same_shape(&v->value, grad)) return NULL;
  return INVALID("Cannot update variable with shape %s using a Tensor with shape %s, shapes must be equal.",
                 tensor_shape_str(&v->value), tensor_shape_str(grad));
}

/* Update number m, from block `first` on. */
static shoal_status fill(struct kernel_ctx *ctx, const struct cuda_many *all, int m, uint32_t first,
                         struct cuda_joined_item *out) {
  const struct cuda_joined *st = ctx->state;
  const struct tensor *grad = ctx_in(ctx, m * (st->at.n_vars + 1) + st->at.n_vars);
  uintptr_t bits = (uintptr_t)grad->data;
  bool fits = st->at.how[m] & JOINED_FITS;
  *out = (struct cuda_joined_item){
      .g = grad->data, .n = grad->n, .first = first, .kind = kind_of(grad), .shrinks = st->at.how[m] & JOINED_SHRINKS};
  for (int i = 0; i < st->at.n_vars; i++) {
    struct variable *v = all->v[m * st->at.n_vars + i];
    TRY(check(v, grad, fits));
    TRY(variable_make_writable_in(v, ctx->kernel->device));
    out->x[i] = v->value.data;
    bits |= (uintptr_t)v->value.data;
  }
  out->packed = bits % PACK == 0;
  return NULL;
}

static shoal_status find_scalars(struct kernel_ctx *ctx, struct cuda_joined_memory *m) {
  const struct cuda_joined *st = ctx->state;
  const struct joined_layout *at = &st->at;
  int first = at->count * (at->n_vars + 1), all = at->n_scalars + at->scaled + at->shrunk;
  for (int k = 0; k < all; k++)
    if (ctx_in(ctx, first + k)->rank) return INVALID("%s is not a scalar", tensor_shape_str(ctx_in(ctx, first + k)));
  m->nesterov = st->nesterov;
  m->n_scalars = MIN(at->n_scalars, SCALARS);
  for (int k = 0; k < m->n_scalars; k++) m->scalars[k] = ctx_in(ctx, first + k)->data;
  if (at->scaled) m->scale = ctx_in(ctx, first + at->n_scalars)->data;
  if (at->shrunk) m->shrink = ctx_in(ctx, first + at->n_scalars + at->scaled)->data;
  return NULL;
}

/* With the device's lock held. */
static shoal_status queue(struct kernel_ctx *ctx, const struct cuda_many *all, CUfunction f, unsigned blocks,
                          struct cuda_joined_memory *m) {
  struct cuda_device *c = cuda_ctx(ctx);
  for (int i = 0; i < all->n; i++) TRY(cuda_use(c, &all->v[i]->value));
  for (int i = 0; i < ctx->kernel->n_in; i++) TRY(cuda_use(c, ctx_in(ctx, i)));
  return cuda_launch(c, f, blocks, 1, CUDA_BLOCK, (void *[]){m});
}

static shoal_status launch(struct kernel_ctx *ctx, const struct cuda_many *all, unsigned blocks,
                           struct cuda_joined_memory *m) {
  const struct cuda_joined *st = ctx->state;
  if (!blocks) return NULL;
  cuda_lock(cuda_ctx(ctx));
  shoal_status s = queue(ctx, all, st->f, blocks, m);
  cuda_unlock(cuda_ctx(ctx));
  return s;
}

static shoal_status update_locked(struct kernel_ctx *ctx, const struct cuda_many *all) {
  const struct cuda_joined *st = ctx->state;
  struct cuda_joined_memory m = {.n_items = 0};
  uint32_t blocks = 0;
  TRY(find_scalars(ctx, &m));
  for (int i = 0; i < st->at.count; i++) {
    TRY(fill(ctx, all, i, blocks, &m.item[m.n_items]));
    blocks += pieces(m.item[m.n_items].n, PIECE);
    if (m.item[m.n_items].n) m.n_items++;
    if (m.n_items < ITEMS && i + 1 < st->at.count) continue;
    TRY(launch(ctx, all, blocks, &m));
    m.n_items = 0;
    blocks = 0;
  }
  return NULL;
}

static shoal_status joined_run(struct kernel_ctx *ctx) {
  const struct cuda_joined *st = ctx->state;
  struct cuda_many all;
  shoal_status s = many_find(ctx, &st->at, &all);
  if (!s) {
    many_lock(&all);
    s = update_locked(ctx, &all);
  }
  many_release(&all);
  return s;
}

/* ---- norms ---- */

struct cuda_squares {
  CUfunction squares, sum;
};

static shoal_status squares_init(struct kernel_init *ki, void *state) {
  struct cuda_squares *st = state;
  TRY(cuda_function(cuda_of(ki->device), "joined", "joined_squares", 0, 0, &st->squares));
  return cuda_function(cuda_of(ki->device), "joined", "joined_sum", 0, 0, &st->sum);
}

static int64_t all_pieces(const struct kernel_ctx *ctx) {
  int64_t n = 0;
  for (int i = 0; i < ctx->kernel->n_in; i++) n += pieces(ctx_in(ctx, i)->n, SQUARE_PIECE);
  return n;
}

static shoal_status square_all(struct kernel_ctx *ctx, CUfunction f, float *parts) {
  struct cuda_square_memory m = {.n_items = 0};
  uint32_t blocks = 0;
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    const struct tensor *g = ctx_in(ctx, i);
    if (g->n)
      m.item[m.n_items++] = (struct cuda_square_item){
          .g = g->data, .n = g->n, .first = blocks, .kind = kind_of(g), .packed = (uintptr_t)g->data % PACK == 0};
    blocks += pieces(g->n, SQUARE_PIECE);
    if (m.n_items < SQUARE_ITEMS && i + 1 < ctx->kernel->n_in) continue;
    if (blocks) TRY(cuda_run(ctx, f, blocks, 1, CUDA_BLOCK, (void *[]){&m, &parts}));
    parts += blocks;
    m.n_items = 0;
    blocks = 0;
  }
  return NULL;
}

static shoal_status squares_run(struct kernel_ctx *ctx) {
  const struct cuda_squares *st = ctx->state;
  struct tensor *y, parts;
  int64_t n = all_pieces(ctx);
  struct shape shape = shape_vector(MAX(n, 1));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  TRY(cuda_temp(ctx, SHOAL_FLOAT32, &shape, &parts));
  shoal_status s = square_all(ctx, st->squares, parts.data);
  if (!s) s = cuda_run(ctx, st->sum, 1, 1, SUM_THREADS, (void *[]){&parts.data, &n, &y->data});
  tensor_release(&parts);
  return s;
}

static const struct kernel_def joined[] = {{.device = "GPU",
                                            .fits = joined_fits,
                                            .flags = KERNEL_REPLAYS,
                                            .state_size = sizeof(struct cuda_joined),
                                            .init = joined_init,
                                            .release = joined_release,
                                            .run = joined_run},
                                           {0}};
static const struct kernel_def squares[] = {{.device = "GPU",
                                             .fits = are_floats,
                                             .state_size = sizeof(struct cuda_squares),
                                             .init = squares_init,
                                             .run = squares_run},
                                            {0}};

const struct device_kernels cuda_joined_kernels[] = {{"_JoinedUpdates", joined}, {"_L2Losses", squares}, {0}};

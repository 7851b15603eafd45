/* Small dense layers on a card: small.cu. Their products, of which the rewrite fuse_dense makes one launch for the
 * gradients of all layers, and the last layer of a classifier with its losses and its way back. */
#include <string.h>

#include "device/cuda/cuda_kernel.h"
#include "device/cuda/cuda_small.h"
#include "ops/nn/small_dense.h"

enum { TILE_ROWS = 16, TILE_COLUMNS = 8, TILE_K = 8, FEWEST_WARPS = 4, MOST_WARPS = 16, WARP = 32 };
enum { ROWS = 4, MOST_CLASSES = 16, MOST_WEIGHTS = 8192 }; /* of a classifier; as small.cu has them */
#define MOST_WORK ((int64_t)16 << 20)                      /* multiplications of a product */
#define MOST_STEP ((int64_t)1 << 30)

struct cuda_small_products { /* as small.cu has it */
  struct cuda_small_product item[CUDA_SMALL_PRODUCTS];
  int32_t n_items;
};

static unsigned tiles(const struct cuda_small_product *p, int columns) {
  int32_t rows = p->m + (p->sums != NULL);
  return (unsigned)(((rows + TILE_ROWS - 1) / TILE_ROWS) * ((p->n + columns - 1) / columns));
}

/* Each warp sums a few eighths. */
static unsigned threads(int64_t k) {
  int64_t eighths = (k + TILE_K - 1) / TILE_K, each = 4;
  return (unsigned)(MAX(FEWEST_WARPS, MIN(MOST_WARPS, (eighths + each - 1) / each)) * WARP);
}

/* ---- a product by itself: one of the ways that cuda_blas.c tries ---- */

bool cuda_small_fits(const struct cuda_product *p) {
  return p->dtype == SHOAL_FLOAT32 && p->batch == 1 && !p->onto && p->epilogue != CUDA_GELU_BACK && p->m > 0 &&
         p->n > 0 && p->k > 0 && MAX(p->m, MAX(p->n, p->k)) <= MOST_WORK && p->m * p->n <= MOST_WORK / p->k;
}

static struct cuda_small_product small_of(const struct cuda_product *p, const void *a, const void *b, void *out) {
  return (struct cuda_small_product){.a = a,
                                     .b = b,
                                     .out = out,
                                     .m = (int32_t)p->m,
                                     .n = (int32_t)p->n,
                                     .k = (int32_t)p->k,
                                     .a_row = (int32_t)(p->trans_a ? 1 : p->k),
                                     .a_col = (int32_t)(p->trans_a ? p->m : 1),
                                     .b_row = (int32_t)(p->trans_b ? 1 : p->n),
                                     .b_col = (int32_t)(p->trans_b ? p->k : 1)};
}

int cuda_small_multiply(struct cuda_device *c, const struct cuda_product *p, const void *a, const void *b,
                        const void *more, void *out) {
  struct cuda_small_products m = {.item = {small_of(p, a, b, out)}, .n_items = 1};
  if (p->epilogue != CUDA_PLAIN_PRODUCT) m.item[0].bias = more;
  m.item[0].relu = p->epilogue == CUDA_WITH_BIAS_RELU;
  return c->api->launch(c->small, tiles(&m.item[0], TILE_COLUMNS), 1, 1, threads(p->k), 1, 1, 0,
                        c->streams[CUDA_COMPUTE].stream, (void *[]){&m}, NULL);
}

/* ---- _DenseGrads ---- */

static bool grads_fit(const struct shoal_node *n) { return n->n_in / 2 <= CUDA_SMALL_PRODUCTS; }

static shoal_status grads_init(struct kernel_init *ki, void *state) {
  return cuda_function(cuda_of(ki->device), "small", "small_products_16", 0, 0, &((struct cuda_fn *)state)->f);
}

static struct cuda_small_product pair_of(const struct dense_pair *p) {
  const struct cuda_product of = {.trans_a = true, .m = p->m, .n = p->n, .k = p->rows};
  struct cuda_small_product out = small_of(&of, p->x->data, p->g->data, p->product->data);
  out.sums = p->sums->data;
  return out;
}

static shoal_status grads_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  struct cuda_small_products m = {.n_items = 0};
  struct device *d = ctx->kernel->device;
  unsigned blocks = 0;
  int64_t k = 0;
  for (int i = 0; i < ctx->kernel->n_in / 2; i++) {
    struct dense_pair p;
    TRY(dense_pair_begin(ctx, i, &p));
    if (MAX(p.rows, MAX(p.m, p.n)) > INT32_MAX / TILE_ROWS || MAX(p.product->n, MAX(p.x->n, p.g->n)) > MOST_STEP)
      return UNIMPLEMENTED("a product of %lld by %lld by %lld in this kernel", (long long)p.m, (long long)p.rows,
                           (long long)p.n);
    if (!p.rows && p.product->n) d->type->ops->zero(d, p.product);
    if (!p.rows && p.sums->n) d->type->ops->zero(d, p.sums);
    if (!p.rows || !p.n) continue;
    struct cuda_small_product *item = &m.item[m.n_items++];
    *item = pair_of(&p);
    item->first = blocks;
    blocks += tiles(item, 2 * TILE_COLUMNS);
    k = MAX(k, p.rows);
  }
  return blocks ? cuda_run(ctx, st->f, blocks, 1, threads(k), (void *[]){&m}) : NULL;
}

/* ---- _DenseCrossEntropy ---- */

struct cuda_classifier { /* as small.cu has it */
  const void *x, *w, *bias, *each, *labels;
  void *loss, *grad, *back, *mean, *done;
  int32_t rows, width, classes;
  uint32_t relu;
};

struct cuda_classifier_state {
  CUfunction f;
  struct tensor done; /* counts blocks: 0 between launches, which follow one another on the stream */
  bool relu;
};

static bool classifier_fits(const struct shoal_node *n) {
  int64_t width = 0, classes = 0;
  shoal_status s = node_get_int(n, "width", &width);
  if (!s) s = node_get_int(n, "classes", &classes);
  shoal_status_free(s);
  return width > 0 && classes > 0 && classes <= MOST_CLASSES && width <= MOST_WEIGHTS / classes;
}

static shoal_status classifier_init(struct kernel_init *ki, void *state) {
  struct cuda_classifier_state *st = state;
  struct device *d = ki->device;
  struct shape one = shape_vector(1);
  st->done = tensor_none();
  TRY(node_get_bool(ki->node, "relu", &st->relu));
  TRY(cuda_function(cuda_of(d), "small", "small_classifier", dtype_base(ki->kernel->in_types[3]), 0, &st->f));
  TRY(device_tensor_new(d, ki->node->name, SHOAL_INT32, &one, &st->done));
  d->type->ops->zero(d, &st->done);
  return NULL;
}

static void classifier_release(void *state) { tensor_release(&((struct cuda_classifier_state *)state)->done); }

static shoal_status classifier_run(struct kernel_ctx *ctx) {
  const struct cuda_classifier_state *st = ctx->state;
  struct dense_classifier c;
  TRY(dense_classifier_begin(ctx, &c));
  if (c.classes > MOST_CLASSES || c.width > MOST_WEIGHTS / c.classes || c.rows > INT32_MAX / 2)
    return UNIMPLEMENTED("a classifier of %s on a card", tensor_shape_str(c.w));
  struct cuda_classifier m = {.x = c.x->data,
                              .w = c.w->data,
                              .bias = c.bias->data,
                              .each = c.each->data,
                              .labels = c.labels->data,
                              .loss = c.loss->data,
                              .grad = c.grad->data,
                              .back = c.back->data,
                              .mean = c.mean->data,
                              .done = st->done.data,
                              .rows = (int32_t)c.rows,
                              .width = (int32_t)c.width,
                              .classes = (int32_t)c.classes,
                              .relu = st->relu};
  return cuda_run(ctx, st->f, (unsigned)MAX(1, (c.rows + ROWS - 1) / ROWS), 1, ROWS * WARP, (void *[]){&m});
}

static const struct kernel_def grads[] = {
    {.device = "GPU", .fits = grads_fit, .state_size = sizeof(struct cuda_fn), .init = grads_init, .run = grads_run},
    {0}};
static const struct kernel_def classifier[] = {{.device = "GPU",
                                                .type_attr = "Tlabels",
                                                .types = DT(INT32) | DT(INT64),
                                                .fits = classifier_fits,
                                                .state_size = sizeof(struct cuda_classifier_state),
                                                .init = classifier_init,
                                                .release = classifier_release,
                                                .run = classifier_run},
                                               {0}};

const struct device_kernels cuda_small_kernels[] = {{"_DenseCrossEntropy", classifier}, {"_DenseGrads", grads}, {0}};

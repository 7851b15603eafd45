/* NonMaxSuppression in all its versions: the best boxes, without those that overlap a better one too much.
 *
 * Candidates wait in a heap, the best on top. Each is compared with what was chosen since it was last looked at; with
 * soft suppression it goes back with a lower score instead of being dropped. CombinedNonMaxSuppression does so for each
 * class of each image and keeps the best of all classes. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "ops/image/image.h"

struct nms_state {
  float iou;
  bool has_iou, pad, overlaps;
};

static shoal_status nms_init(struct kernel_init *ki, void *state) {
  struct nms_state *st = state;
  st->has_iou = node_attr(ki->node, "iou_threshold") != NULL;
  st->overlaps = op_is(ki->node->op, "NonMaxSuppressionWithOverlaps");
  if (st->has_iou) TRY(node_get_float(ki->node, "iou_threshold", &st->iou));
  return node_attr(ki->node, "pad_to_max_output_size") ? node_get_bool(ki->node, "pad_to_max_output_size", &st->pad)
                                                       : NULL;
}

struct candidate {
  float score;
  int32_t box;
  int64_t seen; /* selected boxes it was compared with */
};

static bool before(const struct candidate *a, const struct candidate *b) {
  return a->score > b->score || (a->score == b->score && a->box < b->box);
}

/* A binary heap with the best candidate at 0. */
static void heap_down(struct candidate *h, int64_t n, int64_t i) {
  for (;;) {
    int64_t best = i, l = 2 * i + 1, r = l + 1;
    if (l < n && before(&h[l], &h[best])) best = l;
    if (r < n && before(&h[r], &h[best])) best = r;
    if (best == i) return;
    struct candidate t = h[i];
    h[i] = h[best];
    h[best] = t;
    i = best;
  }
}

static float overlap(const float *a, const float *b) {
  float ay0 = fminf(a[0], a[2]), ax0 = fminf(a[1], a[3]), ay1 = fmaxf(a[0], a[2]), ax1 = fmaxf(a[1], a[3]);
  float by0 = fminf(b[0], b[2]), bx0 = fminf(b[1], b[3]), by1 = fmaxf(b[0], b[2]), bx1 = fmaxf(b[1], b[3]);
  float area_a = (ay1 - ay0) * (ax1 - ax0), area_b = (by1 - by0) * (bx1 - bx0);
  if (area_a <= 0 || area_b <= 0) return 0;
  float h = fmaxf(fminf(ay1, by1) - fmaxf(ay0, by0), 0), w = fmaxf(fminf(ax1, bx1) - fmaxf(ax0, bx0), 0);
  return h * w / (area_a + area_b - h * w);
}

static float scalar_of(const struct tensor *t) {
  return t->dtype == SHOAL_FLOAT16 ? f16_to_float(*T_DATA(t, const f16)) : *T_DATA(t, const float);
}

struct nms {
  const struct nms_state *st;
  const float *boxes;
  int64_t n, most, stride; /* stride: floats from one box to the next */
  float iou, score, sigma;
  struct candidate *heap;
  struct candidate *chosen;
  int64_t n_chosen;
  const struct cancel
      *cancel; /* each box is compared with all that were chosen: a step that has ended goes no further */
};

/* The heap's first heap_n, in no order yet. */
static void nms_select(struct nms *m, int64_t heap_n) {
  for (int64_t i = heap_n / 2; i-- > 0;) heap_down(m->heap, heap_n, i);
  bool soft = m->sigma > 0;
  float scale = soft ? -0.5f / m->sigma : 0;
  while (m->n_chosen < m->most && heap_n > 0 && !(m->cancel && cancel_started(m->cancel))) {
    struct candidate c = m->heap[0];
    float start = c.score;
    bool out = false;
    for (int64_t j = m->n_chosen - 1; j >= c.seen && !out; j--) {
      int64_t other = m->chosen[j].box;
      float o = m->st->overlaps ? m->boxes[c.box * m->n + other]
                                : overlap(m->boxes + m->stride * c.box, m->boxes + m->stride * other);
      if (soft) c.score *= expf(scale * o * o);
      else if (o > m->iou) out = true;
      if (c.score <= m->score) break;
    }
    c.seen = m->n_chosen;
    if (!out && c.score == start) m->chosen[m->n_chosen++] = c;
    if (!out && c.score != start && c.score > m->score) m->heap[0] = c; /* back with its lower score */
    else m->heap[0] = m->heap[--heap_n];
    heap_down(m->heap, heap_n, 0);
  }
}

static shoal_status nms_put(struct kernel_ctx *ctx, const struct nms *m) {
  int64_t n = m->st->pad ? m->most : m->n_chosen;
  bool scores = ctx->kernel->n_out == 3;
  struct tensor *y, *v;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &y));
  for (int64_t i = 0; i < n; i++) T_DATA(y, int32_t)[i] = i < m->n_chosen ? m->chosen[i].box : 0;
  if (scores) {
    TRY(ctx_out_dims(ctx, 1, 1, &n, &v));
    for (int64_t i = 0; i < n; i++) {
      float s = i < m->n_chosen ? m->chosen[i].score : 0;
      if (v->dtype == SHOAL_FLOAT16) T_DATA(v, f16)[i] = f16_from_float(s);
      else T_DATA(v, float)[i] = s;
    }
  }
  if (ctx->kernel->n_out == 1) return NULL;
  TRY(ctx_out_dims(ctx, ctx->kernel->n_out - 1, 0, NULL, &y));
  *T_DATA(y, int32_t) = (int32_t)m->n_chosen;
  return NULL;
}

static shoal_status nms_run(struct kernel_ctx *ctx) {
  const struct nms_state *st = ctx->state;
  const struct tensor *boxes = ctx_in(ctx, 0), *scores = ctx_in(ctx, 1), *most = ctx_in(ctx, 2);
  if (most->rank) return INVALID("max_output_size must be 0-D, got shape %s", tensor_shape_str(most));
  if (boxes->rank != 2)
    return INVALID("%s must be 2-D%s", st->overlaps ? "overlaps" : "boxes", tensor_shape_str(boxes));
  int64_t n = boxes->dims[0];
  if (st->overlaps ? boxes->dims[1] != n : boxes->dims[1] != 4)
    return INVALID("%s", st->overlaps ? "overlaps must be square" : "boxes must have 4 columns");
  if (scores->rank != 1) return INVALID("scores must be 1-D%s", tensor_shape_str(scores));
  if (scores->n != n)
    return INVALID("scores has incompatible shape (Dimensions must be equal, but are %" PRId64 " and %" PRId64 ")", n,
                   scores->n);
  for (int i = 3; i < ctx->kernel->n_in; i++)
    if (ctx_in(ctx, i)->rank) return INVALID("thresholds must be 0-D, got shape %s", tensor_shape_str(ctx_in(ctx, i)));
  struct nms m = {.st = st, .n = n, .stride = 4, .most = int_at(most, 0), .iou = st->iou, .score = -FLT_MAX};
  m.cancel = ctx->step->cancel;
  if (m.most < 0) return INVALID("output size must be non-negative");
  if (!st->pad) m.most = MIN(m.most, n);
  if (!st->has_iou) m.iou = scalar_of(ctx_in(ctx, 3));
  if (ctx->kernel->n_in > 4) m.score = scalar_of(ctx_in(ctx, 4));
  if (ctx->kernel->n_in > 5) m.sigma = scalar_of(ctx_in(ctx, 5));
  if (!st->overlaps && !(m.iou >= 0 && m.iou <= 1)) return INVALID("iou_threshold must be in [0, 1]");
  if (!(m.sigma >= 0)) return INVALID("soft_nms_sigma_val must be >= 0");
  struct tensor fb, fs;
  TRY(image_floats(boxes, &fb));
  shoal_status bad = image_floats(scores, &fs);
  if (bad) {
    tensor_release(&fb);
    return bad;
  }
  m.boxes = fb.data;
  m.heap = malloc(2 * sizeof *m.heap * (size_t)(n + 1));
  if (!m.heap) bad = STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory for %" PRId64 " boxes", n);
  if (!bad) {
    m.chosen = m.heap + n + 1;
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++)
      if (T_DATA(&fs, const float)[i] > m.score)
        m.heap[k++] = (struct candidate){T_DATA(&fs, const float)[i], (int32_t)i, 0};
    nms_select(&m, k);
    bad = nms_put(ctx, &m);
  }
  free(m.heap);
  tensor_release(&fb);
  tensor_release(&fs);
  return bad;
}

static shoal_status nms_shape(struct shape_ctx *c) {
  bool pad = false;
  int64_t n = -1;
  if (node_attr(c->node, "pad_to_max_output_size")) TRY(node_get_bool(c->node, "pad_to_max_output_size", &pad));
  if (pad) shape_in_int(c, 2, &n);
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = shape_vector(n);
  if (c->node->n_out > 1) c->out[c->node->n_out - 1] = shape_scalar();
  return NULL;
}

static const struct kernel_def nms_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct nms_state), .init = nms_init, .run = nms_run}, {0}};

/* ---- CombinedNonMaxSuppression: all classes of a batch ---- */

struct combined_state {
  bool pad_per_class, clip;
};

static shoal_status combined_init(struct kernel_init *ki, void *state) {
  struct combined_state *st = state;
  TRY(node_get_bool(ki->node, "pad_per_class", &st->pad_per_class));
  return node_get_bool(ki->node, "clip_boxes", &st->clip);
}

/* A box that was chosen in its class. */
struct found {
  float score;
  int32_t class;
  const float *box;
};

/* The better first; of equal ones that of the earlier class. */
static int by_score(const void *x, const void *y) {
  const struct found *a = x, *b = y;
  if (a->score != b->score) return a->score > b->score ? -1 : 1;
  return a->class != b->class ? (a->class < b->class ? -1 : 1) : a->box < b->box ? -1 : a->box > b->box;
}

struct combined {
  const struct combined_state *st;
  int64_t boxes, classes, q, per_class, total;
  float iou, score;
};

static shoal_status combined_check(const struct kernel_ctx *ctx, struct combined *c) {
  const struct tensor *boxes = ctx_in(ctx, 0), *scores = ctx_in(ctx, 1);
  if (boxes->rank != 4) return INVALID("boxes must be 4-D%s", tensor_shape_str(boxes));
  if (scores->rank != 3) return INVALID("scores must be 3-D%s", tensor_shape_str(scores));
  for (int i = 2; i < 6; i++)
    if (ctx_in(ctx, i)->rank) return INVALID("input %d must be 0-D, got shape %s", i, tensor_shape_str(ctx_in(ctx, i)));
  *c = (struct combined){.st = ctx->state, .boxes = boxes->dims[1], .classes = scores->dims[2], .q = boxes->dims[2]};
  c->per_class = int_at(ctx_in(ctx, 2), 0);
  c->total = int_at(ctx_in(ctx, 3), 0);
  c->iou = scalar_of(ctx_in(ctx, 4));
  c->score = scalar_of(ctx_in(ctx, 5));
  if (c->per_class <= 0) return INVALID("max_size_per_class must be positive");
  if (c->total <= 0) return INVALID("max_total_size must be > 0");
  if (!(c->iou >= 0 && c->iou <= 1)) return INVALID("iou_threshold must be in [0, 1]");
  if (boxes->dims[0] != scores->dims[0] || c->boxes != scores->dims[1])
    return INVALID("boxes and scores must have as many images and boxes: %s and %s", tensor_shape_str(boxes),
                   tensor_shape_str(scores));
  if (boxes->dims[3] != 4) return INVALID("boxes must have 4 columns");
  if (c->q != 1 && c->q != c->classes) return INVALID("third dimension of boxes must be either 1 or num classes");
  return NULL;
}

/* What is chosen of one class of an image: appended to *to. */
static struct found *choose(const struct combined *c, struct nms *m, const float *boxes, const float *scores,
                            int64_t class, struct found *to) {
  int64_t n = 0;
  for (int64_t i = 0; i < c->boxes; i++)
    if (scores[i * c->classes + class] > c->score)
      m->heap[n++] = (struct candidate){scores[i * c->classes + class], (int32_t)i, 0};
  m->boxes = boxes + (c->q > 1 ? 4 * class : 0);
  m->n_chosen = 0;
  nms_select(m, n);
  for (int64_t i = 0; i < m->n_chosen; i++)
    *to++ = (struct found){m->chosen[i].score, (int32_t) class, m->boxes + m->stride * m->chosen[i].box};
  return to;
}

static shoal_status combined_run(struct kernel_ctx *ctx) {
  struct combined c;
  TRY(combined_check(ctx, &c));
  const struct tensor *boxes = ctx_in(ctx, 0), *scores = ctx_in(ctx, 1);
  int64_t images = boxes->dims[0], most = MIN(c.per_class, c.boxes), room, all, width = c.total;
  if (mul_overflows(most, c.classes, &room) || room > INT32_MAX)
    return INVALID("size_per_class * num_classes causes overflow");
  if (c.st->pad_per_class && !mul_overflows(c.per_class, c.classes, &all)) width = MIN(c.total, all);
  struct tensor *out[4];
  TRY(ctx_out_dims(ctx, 0, 3, (int64_t[]){images, width, 4}, &out[0]));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){images, width}, &out[1]));
  TRY(ctx_out_dims(ctx, 2, 2, (int64_t[]){images, width}, &out[2]));
  TRY(ctx_out_dims(ctx, 3, 1, &images, &out[3]));
  for (int i = 0; i < 3; i++) tensor_zero(out[i]);
  struct nms_state hard = {0};
  struct nms m = {.st = &hard, .n = c.boxes, .most = most, .stride = 4 * c.q, .iou = c.iou, .score = c.score};
  m.cancel = ctx->step->cancel;
  m.heap = mem_try_zalloc(2 * (size_t)(c.boxes + 1), sizeof *m.heap);
  struct found *found = mem_try_zalloc((size_t)room + 1, sizeof *found);
  bool memory = m.heap && found;
  for (int64_t i = 0; memory && i < images; i++) {
    m.chosen = m.heap + c.boxes + 1;
    struct found *end = found;
    for (int64_t k = 0; k < c.classes; k++)
      end = choose(&c, &m, T_DATA(boxes, const float) + i * c.boxes * c.q * 4,
                   T_DATA(scores, const float) + i * c.boxes * c.classes, k, end);
    qsort(found, (size_t)(end - found), sizeof *found, by_score);
    int64_t n = MIN(width, end - found);
    T_DATA(out[3], int32_t)[i] = (int32_t)n;
    for (int64_t k = 0; k < n; k++) {
      for (int e = 0; e < 4; e++) T_DATA(out[0], float)
      [(i * width + k) * 4 + e] = c.st->clip ? fmaxf(fminf(found[k].box[e], 1), 0) : found[k].box[e];
      T_DATA(out[1], float)[i * width + k] = found[k].score;
      T_DATA(out[2], float)[i * width + k] = (float)found[k].class;
    }
  }
  free(m.heap);
  free(found);
  return memory ? NULL : NO_MEMORY((size_t)(room + c.boxes) * sizeof *found, "candidates");
}

static shoal_status combined_shape(struct shape_ctx *c) {
  struct shape boxes, scores;
  bool pad;
  int64_t per_class, total;
  TRY(shape_in_rank(c, 0, 4, &boxes));
  TRY(shape_in_rank(c, 1, 3, &scores));
  TRY(node_get_bool(c->node, "pad_per_class", &pad));
  if (!shape_in_int(c, 3, &total)) total = -1;
  if (pad && !(shape_in_int(c, 2, &per_class) && scores.dims[2] >= 0)) total = -1;
  else if (pad && total >= 0 && !mul_overflows(per_class, scores.dims[2], &per_class)) total = MIN(total, per_class);
  c->out[0] = (struct shape){.rank = 3, .dims = {boxes.dims[0], MAX(total, -1), 4}};
  c->out[1] = c->out[2] = shape_matrix(boxes.dims[0], MAX(total, -1));
  c->out[3] = shape_vector(boxes.dims[0]);
  return NULL;
}

static const struct kernel_def combined_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct combined_state), .init = combined_init, .run = combined_run}, {0}};

static const struct op_row rows[] = {
    {.name = "NonMaxSuppression",
     .in = "boxes: float, scores: float, max_output_size: int32",
     .out = "selected_indices: int32",
     .attrs = "iou_threshold: float = 0.5",
     .flags = OP_NO_GRADIENT,
     .shape = nms_shape,
     .kernels = nms_kernels},
    {.name = "NonMaxSuppressionV2",
     .in = "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold",
     .out = "selected_indices: int32",
     .attrs = "T: {half, float} = float; T_threshold: {half, float} = float",
     .flags = OP_NO_GRADIENT,
     .shape = nms_shape,
     .kernels = nms_kernels},
    {.name = "NonMaxSuppressionV3",
     .in = "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold",
     .out = "selected_indices: int32",
     .attrs = "T: {half, float} = float; T_threshold: {half, float} = float",
     .flags = OP_NO_GRADIENT,
     .shape = nms_shape,
     .kernels = nms_kernels},
    {.name = "NonMaxSuppressionV4",
     .in = "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold",
     .out = "selected_indices: int32, valid_outputs: int32",
     .attrs = "T: {half, float} = float; T_threshold: {half, float} = float; pad_to_max_output_size: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = nms_shape,
     .kernels = nms_kernels},
    {.name = "NonMaxSuppressionV5",
     .in = "boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, soft_nms_sigma: T",
     .out = "selected_indices: int32, selected_scores: T, valid_outputs: int32",
     .attrs = "T: {half, float} = float; pad_to_max_output_size: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = nms_shape,
     .kernels = nms_kernels},
    {.name = "NonMaxSuppressionWithOverlaps",
     .in = "overlaps: float, scores: float, max_output_size: int32, overlap_threshold: float, score_threshold: "
           "float",
     .out = "selected_indices: int32",
     .flags = OP_NO_GRADIENT,
     .shape = nms_shape,
     .kernels = nms_kernels},
    {.name = "CombinedNonMaxSuppression",
     .in =
         "boxes: float, scores: float, max_output_size_per_class: int32, max_total_size: int32, iou_threshold: float, "
         "score_threshold: float",
     .out = "nmsed_boxes: float, nmsed_scores: float, nmsed_classes: float, valid_detections: int32",
     .attrs = "pad_per_class: bool = false; clip_boxes: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = combined_shape,
     .kernels = combined_kernels},
};
OP_FAMILY(image_nms, rows);

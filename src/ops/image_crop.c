/* CropAndResize and its gradients; NonMaxSuppression in all its versions. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/image.h"

/* ---- CropAndResize ---- */

struct crop_state {
  bool nearest;
  float outside;
};

static shoal_status crop_init(struct kernel_init *ki, void *state) {
  struct crop_state *st = state;
  const char *method;
  TRY(node_get_string(ki->node, "method", &method));
  st->nearest = str_equal(method, "nearest");
  return node_attr(ki->node, "extrapolation_value") ? node_get_float(ki->node, "extrapolation_value", &st->outside)
                                                    : NULL;
}

static shoal_status check_boxes(const struct tensor *boxes, const struct tensor *index, int64_t batch) {
  if (boxes->rank == 0 && index->rank == 0) return NULL;
  if (boxes->n == 0 && index->n == 0) return NULL;
  if (boxes->rank != 2) return INVALID("boxes must be 2-D%s", tensor_shape_str(boxes));
  if (boxes->dims[1] != 4) return INVALID("boxes must have 4 columns");
  if (index->rank != 1) return INVALID("box_index must be 1-D%s", tensor_shape_str(index));
  if (index->n != boxes->dims[0]) return INVALID("box_index has incompatible shape");
  for (int64_t i = 0; i < index->n; i++)
    if (int_at(index, i) < 0 || int_at(index, i) >= batch)
      return STATUS(SHOAL_OUT_OF_RANGE, "box_index has values outside [0, batch_size)");
  return NULL;
}

/* Where output line i of n lies in an image dimension of `size`, for a box from a to b. */
static float crop_place(float a, float b, int64_t size, int64_t n, int64_t i) {
  float last = (float)(size - 1);
  return n > 1 ? a * last + (float)i * ((b - a) * last / (float)(n - 1)) : 0.5f * (a + b) * last;
}

static shoal_status crop_run(struct kernel_ctx *ctx) {
  const struct crop_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *boxes = ctx_in(ctx, 1), *index = ctx_in(ctx, 2), *size = ctx_in(ctx, 3);
  if (x->rank != 4) return INVALID("input image must be 4-D%s", tensor_shape_str(x));
  if (x->dims[1] <= 0 || x->dims[2] <= 0) return INVALID("image dimensions must be positive");
  TRY(check_boxes(boxes, index, x->dims[0]));
  if (size->rank != 1) return INVALID("crop_size must be 1-D%s", tensor_shape_str(size));
  if (size->n != 2) return INVALID("crop_size must have two elements%s", tensor_shape_str(size));
  int64_t ch = int_at(size, 0), cw = int_at(size, 1), depth = x->dims[3], h = x->dims[1], w = x->dims[2];
  if (ch <= 0 || cw <= 0) return INVALID("crop dimensions must be positive");
  struct shape s = {.rank = 4, .dims = {boxes->n / 4, ch, cw, depth}};
  struct tensor *y, pixels;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(image_floats(x, &pixels));
  float *to = y->data;
  for (int64_t b = 0; b < s.dims[0]; b++) {
    const float *box = T_DATA(boxes, const float) + 4 * b;
    const float *image = T_DATA(&pixels, const float) + int_at(index, b) * h * w * depth;
    for (int64_t r = 0; r < ch; r++) {
      float py = crop_place(box[0], box[2], h, ch, r);
      for (int64_t c = 0; c < cw; c++, to += depth) {
        float px = crop_place(box[1], box[3], w, cw, c);
        if (!(py >= 0 && py <= (float)(h - 1) && px >= 0 && px <= (float)(w - 1))) {
          for (int64_t k = 0; k < depth; k++) to[k] = st->outside;
          continue;
        }
        if (st->nearest) {
          memcpy(to, image + ((int64_t)roundf(py) * w + (int64_t)roundf(px)) * depth, (size_t)depth * sizeof *to);
          continue;
        }
        int64_t top = (int64_t)floorf(py), bottom = (int64_t)ceilf(py), left = (int64_t)floorf(px),
                right = (int64_t)ceilf(px);
        float ly = py - (float)top, lx = px - (float)left;
        for (int64_t k = 0; k < depth; k++) {
          float tl = image[(top * w + left) * depth + k], tr = image[(top * w + right) * depth + k];
          float bl = image[(bottom * w + left) * depth + k], br = image[(bottom * w + right) * depth + k];
          float t = tl + (tr - tl) * lx, u = bl + (br - bl) * lx;
          to[k] = t + (u - t) * ly;
        }
      }
    }
  }
  tensor_release(&pixels);
  return NULL;
}

static shoal_status crop_shape(struct shape_ctx *c) {
  struct shape x, boxes;
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, 1, 2, &boxes));
  const struct tensor *v = c->values[3];
  c->out[0] = (struct shape){.rank = 4,
                             .dims = {boxes.rank == 2 ? boxes.dims[0] : -1, v && v->n == 2 ? MAX(-1, int_at(v, 0)) : -1,
                                      v && v->n == 2 ? MAX(-1, int_at(v, 1)) : -1, x.rank == 4 ? x.dims[3] : -1}};
  return NULL;
}

/* One walk for both gradients: of the image (dx) or of the boxes (db). */
static void crop_back(const struct crop_state *st, const struct tensor *dy, const float *image,
                      const struct tensor *boxes, const struct tensor *index, int64_t h, int64_t w, float *dx,
                      float *db) {
  int64_t ch = dy->dims[1], cw = dy->dims[2], depth = dy->dims[3];
  const float *g = dy->data;
  for (int64_t b = 0; b < dy->dims[0]; b++) {
    const float *box = T_DATA(boxes, const float) + 4 * b;
    int64_t base = int_at(index, b) * h * w * depth;
    float hr = ch > 1 ? (float)(h - 1) / (float)(ch - 1) : 0, wr = cw > 1 ? (float)(w - 1) / (float)(cw - 1) : 0;
    for (int64_t r = 0; r < ch; r++) {
      float py = crop_place(box[0], box[2], h, ch, r);
      for (int64_t c = 0; c < cw; c++, g += depth) {
        float px = crop_place(box[1], box[3], w, cw, c);
        if (!(py >= 0 && py <= (float)(h - 1) && px >= 0 && px <= (float)(w - 1))) continue;
        int64_t top = (int64_t)floorf(py), bottom = (int64_t)ceilf(py), left = (int64_t)floorf(px),
                right = (int64_t)ceilf(px);
        float ly = py - (float)top, lx = px - (float)left;
        if (dx && st->nearest) {
          int64_t at = base + ((int64_t)roundf(py) * w + (int64_t)roundf(px)) * depth;
          for (int64_t k = 0; k < depth; k++) dx[at + k] += g[k];
          continue;
        }
        for (int64_t k = 0; k < depth; k++) {
          int64_t tl = base + (top * w + left) * depth + k, tr = base + (top * w + right) * depth + k;
          int64_t bl = base + (bottom * w + left) * depth + k, br = base + (bottom * w + right) * depth + k;
          if (dx) {
            float up = (1 - ly) * g[k], down = ly * g[k];
            dx[tl] += (1 - lx) * up;
            dx[tr] += lx * up;
            dx[bl] += (1 - lx) * down;
            dx[br] += lx * down;
            continue;
          }
          float gy = g[k] * ((1 - lx) * (image[bl] - image[tl]) + lx * (image[br] - image[tr]));
          float gx = g[k] * ((1 - ly) * (image[tr] - image[tl]) + ly * (image[br] - image[bl]));
          float *to = db + 4 * b;
          if (ch > 1) {
            to[0] += gy * ((float)(h - 1) - (float)r * hr);
            to[2] += gy * (float)r * hr;
          } else {
            to[0] += gy * 0.5f * (float)(h - 1);
            to[2] += gy * 0.5f * (float)(h - 1);
          }
          if (cw > 1) {
            to[1] += gx * ((float)(w - 1) - (float)c * wr);
            to[3] += gx * (float)c * wr;
          } else {
            to[1] += gx * 0.5f * (float)(w - 1);
            to[3] += gx * 0.5f * (float)(w - 1);
          }
        }
      }
    }
  }
}

static shoal_status crop_image_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *boxes = ctx_in(ctx, 1), *index = ctx_in(ctx, 2), *size = ctx_in(ctx, 3);
  if (dy->rank != 4) return INVALID("grads image must be 4-D%s", tensor_shape_str(dy));
  struct shape s;
  if (size->rank != 1) return INVALID("image_size must be 1-D%s", tensor_shape_str(size));
  if (size->n != 4) return INVALID("image_size must have 4 elements%s", tensor_shape_str(size));
  TRY(tensor_get_shape(size, false, &s));
  if (s.dims[1] <= 0 || s.dims[2] <= 0) return INVALID("image dimensions must be positive");
  if (s.dims[3] != dy->dims[3]) return INVALID("image_size and grads are incompatible");
  TRY(check_boxes(boxes, index, s.dims[0]));
  if (boxes->n / 4 != dy->dims[0]) return INVALID("boxes and grads have incompatible shape");
  struct tensor *dx, sums;
  TRY(ctx_out(ctx, 0, &s, &dx));
  TRY(tensor_new(&sums, SHOAL_FLOAT32, &s));
  tensor_zero(&sums);
  if (dy->n) crop_back(ctx->state, dy, NULL, boxes, index, s.dims[1], s.dims[2], sums.data, NULL);
  image_store(sums.data, dx);
  tensor_release(&sums);
  return NULL;
}

static shoal_status crop_boxes_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *x = ctx_in(ctx, 1), *boxes = ctx_in(ctx, 2), *index = ctx_in(ctx, 3);
  if (dy->rank != 4) return INVALID("grads image must be 4-D%s", tensor_shape_str(dy));
  if (x->rank != 4) return INVALID("input image must be 4-D%s", tensor_shape_str(x));
  if (x->dims[3] != dy->dims[3]) return INVALID("image, grads depth differ");
  TRY(check_boxes(boxes, index, x->dims[0]));
  if (boxes->n / 4 != dy->dims[0]) return INVALID("boxes and grads have incompatible shape");
  struct shape s = shape_matrix(dy->dims[0], 4);
  struct tensor *db, pixels;
  TRY(ctx_out(ctx, 0, &s, &db));
  tensor_zero(db);
  TRY(image_floats(x, &pixels));
  if (dy->n && x->n) crop_back(ctx->state, dy, pixels.data, boxes, index, x->dims[1], x->dims[2], NULL, db->data);
  tensor_release(&pixels);
  return NULL;
}

static shoal_status crop_grad(struct grad_ctx *c) {
  struct graph *g = c->g;
  const char *method;
  TRY(node_get_string(c->node, "method", &method));
  struct out dy = grad_dy(c, 0), x = gin(c, 0);
  if (dtype_floating(out_type(x)) && out_type(x) != SHOAL_BFLOAT16) {
    struct build b = build_begin(g, "CropAndResizeGradImage", NULL);
    build_in(&b, dy);
    build_in(&b, gin(c, 1));
    build_in(&b, gin(c, 2));
    build_in(&b, array_shape(g, x, SHOAL_INT32));
    build_attr_type(&b, "T", out_type(x));
    build_attr_string(&b, "method", method);
    grad_set(c, 0, build_end_out(&b));
  }
  struct build b = build_begin(g, "CropAndResizeGradBoxes", NULL);
  build_in(&b, dy);
  build_in(&b, x);
  build_in(&b, gin(c, 1));
  build_in(&b, gin(c, 2));
  grad_set(c, 1, build_end_out(&b));
  return NULL;
}

static shoal_status crop_image_shape(struct shape_ctx *c) { return shape_in_value(c, 3, &c->out[0]); }

static shoal_status crop_boxes_shape(struct shape_ctx *c) {
  c->out[0] = shape_matrix(c->in[2].rank == 2 ? c->in[2].dims[0] : -1, 4);
  return NULL;
}

#define CROP_KERNELS(name, mask)                                                               \
  static const struct kernel_def name##_kernels[] = {{.device = "CPU",                         \
                                                      .type_attr = "T",                        \
                                                      .types = mask,                           \
                                                      .state_size = sizeof(struct crop_state), \
                                                      .init = crop_init,                       \
                                                      .run = name##_run},                      \
                                                     {0}}
#define CROP_TYPES (DT_SIGNED | DT(UINT8) | DT(UINT16) | DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64))
CROP_KERNELS(crop, CROP_TYPES);
CROP_KERNELS(crop_image, DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64));
CROP_KERNELS(crop_boxes, CROP_TYPES);

/* ---- NonMaxSuppression ---- */

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

static float overlap(const float *boxes, int64_t i, int64_t j) {
  const float *a = boxes + 4 * i, *b = boxes + 4 * j;
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
  int64_t n, most;
  float iou, score, sigma;
  struct candidate *heap;
  struct candidate *chosen;
  int64_t n_chosen;
};

static void nms_select(struct nms *m, int64_t heap_n) {
  bool soft = m->sigma > 0;
  float scale = soft ? -0.5f / m->sigma : 0;
  while (m->n_chosen < m->most && heap_n > 0) {
    struct candidate c = m->heap[0];
    float start = c.score;
    bool out = false;
    for (int64_t j = m->n_chosen - 1; j >= c.seen && !out; j--) {
      int64_t other = m->chosen[j].box;
      float o = m->st->overlaps ? m->boxes[c.box * m->n + other] : overlap(m->boxes, c.box, other);
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
  struct nms m = {.st = st, .n = n, .most = int_at(most, 0), .iou = st->iou, .score = -FLT_MAX};
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
    for (int64_t i = k / 2; i-- > 0;) heap_down(m.heap, k, i);
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

static const struct op_row rows[] = {
    {.name = "CropAndResize",
     .in = "image: T, boxes: float, box_ind: int32, crop_size: int32",
     .out = "crops: float",
     .attrs = "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}; method: {'bilinear', 'nearest'} = "
              "'bilinear'; extrapolation_value: float = 0",
     .shape = crop_shape,
     .grad = crop_grad,
     .kernels = crop_kernels},
    {.name = "CropAndResizeGradImage",
     .in = "grads: float, boxes: float, box_ind: int32, image_size: int32",
     .out = "output: T",
     .attrs = "T: {float, half, double}; method: {'bilinear', 'nearest'} = 'bilinear'",
     .shape = crop_image_shape,
     .kernels = crop_image_kernels},
    {.name = "CropAndResizeGradBoxes",
     .in = "grads: float, image: T, boxes: float, box_ind: int32",
     .out = "output: float",
     .attrs = "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}; method: {'bilinear'} = 'bilinear'",
     .shape = crop_boxes_shape,
     .kernels = crop_boxes_kernels},
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
};
OP_FAMILY(image_crop, rows);

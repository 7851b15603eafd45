/* CropAndResize and its gradients. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/image/image.h"

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
  struct shoal_graph *g = c->g;
  const char *method;
  TRY(node_get_string(c->node, "method", &method));
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0);
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
};
OP_FAMILY(image_crop, rows);

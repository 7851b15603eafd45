/* Boxes on images: drawing them, and sampling a crop that covers enough of one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/image/image.h"
#include "ops/random/random_fill.h"

/* ---- DrawBoundingBoxes ---- */

/* One pixel in the image's type. */
static void paint(struct tensor *y, int64_t at, const float *color, int64_t depth) {
  if (y->dtype == SHOAL_FLOAT32) memcpy(T_DATA(y, float) + at * depth, color, (size_t)depth * sizeof *color);
  else
    for (int64_t c = 0; c < depth; c++) T_DATA(y, f16)[at * depth + c] = f16_from_float(color[c]);
}

/* A fraction of the last pixel's number; what is not a number in reach is far outside. */
static int64_t to_pixel(float at, int64_t size) {
  float v = at * (float)(size - 1);
  if (!(v > -1e15f)) return (int64_t)-1e15;
  return v < 1e15f ? (int64_t)v : (int64_t)1e15;
}

static void draw(struct tensor *y, int64_t batch, const float *box, const float *color) {
  int64_t height = y->dims[1], width = y->dims[2], depth = y->dims[3], image = batch * height * width;
  int64_t top = to_pixel(box[0], height), left = to_pixel(box[1], width);
  int64_t bottom = to_pixel(box[2], height), right = to_pixel(box[3], width);
  if (top > bottom || left > right || top >= height || bottom < 0 || left >= width || right < 0) return;
  int64_t r0 = MAX(top, 0), r1 = MIN(bottom, height - 1), c0 = MAX(left, 0), c1 = MIN(right, width - 1);
  for (int64_t c = c0; c <= c1; c++) {
    if (top >= 0) paint(y, image + top * width + c, color, depth);
    if (bottom < height) paint(y, image + bottom * width + c, color, depth);
  }
  for (int64_t r = r0; r <= r1; r++) {
    if (left >= 0) paint(y, image + r * width + left, color, depth);
    if (right < width) paint(y, image + r * width + right, color, depth);
  }
}

static shoal_status draw_run(struct kernel_ctx *ctx) {
  static const float usual[][4] = {{1, 1, 0, 1},       {0, 0, 1, 1},       {1, 0, 0, 1},    {0, 1, 0, 1},
                                   {0.5f, 0, 0.5f, 1}, {0.5f, 0.5f, 0, 1}, {0.5f, 0, 0, 1}, {0, 0, 0.5f, 1},
                                   {0, 1, 1, 1},       {1, 0, 1, 1}};
  const struct tensor *x = ctx_in(ctx, 0), *boxes = ctx_in(ctx, 1);
  const struct tensor *colors = ctx->kernel->n_in > 2 ? ctx_in(ctx, 2) : NULL;
  if (x->rank != 4) return INVALID("The rank of the images should be 4");
  if (boxes->rank != 3) return INVALID("The rank of the boxes tensor should be 3");
  if (x->dims[0] != boxes->dims[0]) return INVALID("The batch sizes should be the same");
  int64_t depth = x->dims[3], n_boxes = boxes->dims[1];
  if (depth != 4 && depth != 1 && depth != 3)
    return INVALID("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)");
  if (boxes->dims[2] != 4)
    return INVALID("The size of the third dimension of the box must be 4. Received: %" PRId64, boxes->dims[2]);
  if (colors && colors->rank != 2) return INVALID("colors must be a 2-D matrix%s", tensor_shape_str(colors));
  if (colors && colors->dims[1] < depth)
    return INVALID("colors must have equal or more channels than the image provided: %s", tensor_shape_str(colors));
  if (colors && !colors->n) colors = NULL;
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (y->data != x->data) memcpy(y->data, x->data, tensor_bytes(x));
  if (!x->n) return NULL;
  for (int64_t b = 0; b < x->dims[0]; b++)
    for (int64_t i = 0; i < n_boxes; i++) {
      float color[4];
      if (colors)
        memcpy(color, T_DATA(colors, const float) + i % colors->dims[0] * colors->dims[1],
               (size_t)depth * sizeof *color);
      else memcpy(color, usual[(size_t)i % COUNT_OF(usual)], sizeof color);
      if (!colors && depth == 1) color[0] = 1;
      draw(y, b, T_DATA(boxes, const float) + (b * n_boxes + i) * 4, color);
    }
  return NULL;
}

/* ---- SampleDistortedBoundingBox ---- */

struct sample_state {
  struct random_state random; /* not of the stateless op */
  float covered, ratio[2], area[2];
  int64_t attempts;
  bool whole_image, stateless;
};

static shoal_status read_pair(const struct shoal_node *n, const char *name, const char *what, float out[2]) {
  const struct attr *list;
  TRY(node_get_list(n, name, ATTR_FLOAT, &list));
  if (list->list.n != 2) return INVALID("%s field must specify 2 dimensions", what);
  for (int i = 0; i < 2; i++) out[i] = list->list.at[i].f;
  if (!(out[0] > 0) || !(out[1] > 0))
    return INVALID("%s must be non-negative: [%g, %g]", what, (double)out[0], (double)out[1]);
  return NULL;
}

static shoal_status sample_init(struct kernel_init *ki, void *state) {
  struct sample_state *st = state;
  const struct shoal_node *n = ki->node;
  st->stateless = op_is(n->op, "StatelessSampleDistortedBoundingBox");
  if (!st->stateless) TRY(random_state_init(ki, &st->random));
  if (node_attr(n, "min_object_covered")) {
    TRY(node_get_float(n, "min_object_covered", &st->covered));
    if (!(st->covered >= 0)) return INVALID("Min object covered must be non-negative: %g", (double)st->covered);
  }
  TRY(node_get_bool(n, "use_image_if_no_bounding_boxes", &st->whole_image));
  TRY(read_pair(n, "aspect_ratio_range", "Aspect ratio range", st->ratio));
  TRY(read_pair(n, "area_range", "Area range", st->area));
  if (!(st->area[0] <= 1) || !(st->area[1] <= 1))
    return INVALID("Area range must be less then or equal to 1.0: [%g, %g]", (double)st->area[0], (double)st->area[1]);
  TRY(node_get_int(n, "max_attempts", &st->attempts));
  if (st->attempts <= 0 || st->attempts > INT32_MAX)
    return INVALID("Max attempts must be non-negative: %" PRId64, st->attempts);
  return NULL;
}

static void sample_release(void *state) {
  struct sample_state *st = state;
  if (!st->stateless) random_state_release(&st->random);
}

struct box {
  int x0, y0, x1, y1;
};

static float box_area(const struct box *b) { return (float)((int64_t)(b->x1 - b->x0) * (b->y1 - b->y0)); }

static bool covers(const struct box *crop, float share, const struct box *boxes, int64_t n) {
  if (box_area(crop) < 1) return false;
  for (int64_t i = 0; i < n; i++) {
    const struct box *b = &boxes[i];
    float area = box_area(b);
    if (area < 1) continue;
    struct box both = {MAX(crop->x0, b->x0), MAX(crop->y0, b->y0), MIN(crop->x1, b->x1), MIN(crop->y1, b->y1)};
    if (both.x0 > both.x1 || both.y0 > both.y1) both = (struct box){0, 0, 0, 0};
    if (box_area(&both) / area >= share) return true;
  }
  return false;
}

static int width_of(int height, float ratio) { return (int)lrintf((float)height * ratio); }

/* A crop of a given ratio of sides, its height drawn evenly from what the areas allow, anywhere in the image. */
static bool draw_crop(const struct sample_state *st, int width, int height, float ratio, struct philox_stream *r,
                      struct box *out) {
  if (width <= 0 || height <= 0 || st->area[0] > st->area[1]) return false;
  float least = st->area[0] * (float)width * (float)height, most = st->area[1] * (float)width * (float)height;
  int h = (int)lrintf(sqrtf(least / ratio)), h_max = (int)lrintf(sqrtf(most / ratio));
  if (lrintf((float)h_max * ratio) > width) {
    const float eps = 0.0000001f;
    h_max = (int)(((double)width + 0.5 - (double)eps) / (double)ratio);
  }
  h_max = MIN(h_max, height);
  h = MIN(h, h_max);
  if (h < h_max) h += (int)philox_below32(r, (uint32_t)(h_max - h + 1));
  int w = width_of(h, ratio);
  /* Rounding must not fail a crop that is one row off. */
  if ((float)((int64_t)w * h) < least) w = width_of(++h, ratio);
  if ((float)((int64_t)w * h) > most) w = width_of(--h, ratio);
  float area = (float)((int64_t)w * h);
  if (area < least || area > most || w > width || h > height || w <= 0 || h <= 0) return false;
  int y = h < height ? (int)philox_below32(r, (uint32_t)(height - h)) : 0;
  int x = w < width ? (int)philox_below32(r, (uint32_t)(width - w)) : 0;
  *out = (struct box){x, y, x + w, y + h};
  return true;
}

static shoal_status read_boxes(const struct sample_state *st, const struct tensor *in, int width, int height,
                               struct box **out, int64_t *n) {
  if (in->rank != 3)
    return INVALID("input boxes must be 3-dimensional [batch, num_boxes, coords]: %s", tensor_shape_str(in));
  if (in->dims[2] != 4) return INVALID("bounding boxes must have shape [4] or [*, 4], got %s", tensor_shape_str(in));
  if (!in->n && !st->whole_image)
    return INVALID(
        "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to "
        "not provide any bounding boxes.");
  const float *v = in->data;
  for (int64_t i = 0; i < in->n; i++)
    if (!(v[i] >= 0 && v[i] <= 1))
      return INVALID("All bounding box coordinates must be in [0.0, 1.0]: %g", (double)v[i]);
  *n = MAX(in->n / 4, 1);
  *out = mem_zalloc((size_t)*n, sizeof **out);
  (*out)[0] = (struct box){0, 0, width, height};
  float w = (float)width, h = (float)height;
  for (int64_t i = 0; i < in->n / 4; i++, v += 4)
    (*out)[i] = (struct box){(int)(v[1] * w), (int)(v[0] * h), (int)(v[3] * w), (int)(v[2] * h)};
  return NULL;
}

static void put_sizes(struct tensor *t, int64_t a, int64_t b, int64_t c) {
  int64_t v[3] = {a, b, c};
  for (int i = 0; i < 3; i++) switch (dtype_size((shoal_dtype)t->dtype)) {
      case 1: T_DATA(t, int8_t)[i] = (int8_t)v[i]; break;
      case 2: T_DATA(t, int16_t)[i] = (int16_t)v[i]; break;
      default: int_put(t, i, v[i]);
    }
}

static shoal_status sample_run(struct kernel_ctx *ctx) {
  struct sample_state *st = ctx->state;
  const struct tensor *size = ctx_in(ctx, 0);
  if (size->rank != 1) return INVALID("image_size must be 1-dimensional%s", tensor_shape_str(size));
  if (size->n != 3) return INVALID("image_size must contain 3 elements%s", tensor_shape_str(size));
  int64_t height = int_at(size, 0), width = int_at(size, 1);
  if (height < 0 || height >= INT32_MAX) return INVALID("image height cannot be >= int32 max");
  if (width < 0 || width >= INT32_MAX) return INVALID("image width cannot be >= int32 max");
  float share = st->covered;
  if (ctx->kernel->n_in > 2) {
    const struct tensor *c = ctx_in(ctx, 2);
    if (c->rank) return INVALID("min_object_covered must be 0-D, got shape %s", tensor_shape_str(c));
    share = *T_DATA(c, const float);
    if (!(share >= 0)) return INVALID("Min object covered must be non-negative: %g", (double)share);
  }
  struct philox p;
  if (st->stateless) TRY(random_from_seed_tensor(ctx_in(ctx, 3), &p));
  struct box *boxes, crop = {0, 0, (int)width, (int)height};
  int64_t n;
  TRY(read_boxes(st, ctx_in(ctx, 1), (int)width, (int)height, &boxes, &n));
  if (!st->stateless) p = random_reserve(&st->random, (uint64_t)st->attempts); /* four numbers an attempt */
  struct philox_stream r = philox_stream(p);
  for (int64_t i = 0; i < st->attempts; i++) {
    float ratio = philox_stream_float(&r) * (st->ratio[1] - st->ratio[0]) + st->ratio[0];
    struct box b;
    if (!draw_crop(st, (int)width, (int)height, ratio, &r, &b) || !covers(&b, share, boxes, n)) continue;
    crop = b;
    break;
  }
  free(boxes);
  struct shape three = shape_vector(3);
  struct tensor *begin, *extent, *out;
  TRY(ctx_out(ctx, 0, &three, &begin));
  TRY(ctx_out(ctx, 1, &three, &extent));
  TRY(ctx_out_dims(ctx, 2, 3, (int64_t[]){1, 1, 4}, &out));
  put_sizes(begin, crop.y0, crop.x0, 0);
  put_sizes(extent, crop.y1 - crop.y0, crop.x1 - crop.x0, -1);
  float w = (float)width, h = (float)height, *v = out->data;
  v[0] = (float)crop.y0 / h, v[1] = (float)crop.x0 / w, v[2] = (float)crop.y1 / h, v[3] = (float)crop.x1 / w;
  return NULL;
}

static shoal_status sample_shape(struct shape_ctx *c) {
  struct shape boxes;
  TRY(shape_in_rank(c, 1, 3, &boxes));
  c->out[0] = c->out[1] = shape_vector(3);
  c->out[2] = (struct shape){.rank = 3, .dims = {1, 1, 4}};
  return NULL;
}

static const struct kernel_def draw_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT(FLOAT32) | DT(FLOAT16), .run = draw_run}, {0}};
static const struct kernel_def sample_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT(UINT8) | DT_SIGNED,
                                                    .state_size = sizeof(struct sample_state),
                                                    .init = sample_init,
                                                    .release = sample_release,
                                                    .run = sample_run},
                                                   {0}};

#define SEEDS "seed: int = 0; seed2: int = 0; "
#define SAMPLE_TYPE "T: {uint8, int8, int16, int32, int64}; "
#define RANGES                                                                                                     \
  "aspect_ratio_range: list(float) = [0.75, 1.33]; area_range: list(float) = [0.05, 1]; max_attempts: int = 100; " \
  "use_image_if_no_bounding_boxes: bool = false"

static const struct op_row rows[] = {
    {.name = "DrawBoundingBoxes",
     .in = "images: T, boxes: float",
     .out = "output: T",
     .attrs = "T: {float, half} = float",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = draw_kernels},
    {.name = "DrawBoundingBoxesV2",
     .in = "images: T, boxes: float, colors: float",
     .out = "output: T",
     .attrs = "T: {float, half} = float",
     .shape = shape_unchanged,
     .kernels = draw_kernels},
    {.name = "SampleDistortedBoundingBox",
     .in = "image_size: T, bounding_boxes: float",
     .out = "begin: T, size: T, bboxes: float",
     .attrs = SAMPLE_TYPE SEEDS "min_object_covered: float = 0.1; " RANGES,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = sample_shape,
     .kernels = sample_kernels},
    {.name = "SampleDistortedBoundingBoxV2",
     .in = "image_size: T, bounding_boxes: float, min_object_covered: float",
     .out = "begin: T, size: T, bboxes: float",
     .attrs = SAMPLE_TYPE SEEDS RANGES,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = sample_shape,
     .kernels = sample_kernels},
    {.name = "StatelessSampleDistortedBoundingBox",
     .in = "image_size: T, bounding_boxes: float, min_object_covered: float, seed: Tseed",
     .out = "begin: T, size: T, bboxes: float",
     .attrs = SAMPLE_TYPE "Tseed: {int32, int64}; " RANGES,
     .shape = sample_shape,
     .kernels = sample_kernels},
};
OP_FAMILY(image_boxes, rows);

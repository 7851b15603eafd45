/* Ops that make Summary messages, as strings for whoever writes them to an event file. */
#include <inttypes.h>
#include <string.h>

#include "base/strmap.h"
#include "base/wire.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/data/summary_build.h"
#include "ops/text/string_in.h"
#include "proto/event.wire.h"

/* Output 0 takes the message over. */
static shoal_status finish(struct kernel_ctx *ctx, shoal_status s, struct text *message) {
  struct tensor *out;
  if (!s) s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (!s) str_set(out->data, message->at, message->n);
  text_release(message);
  return s;
}

static bool is_scalar(const struct tensor *t) { return t->rank == 0; }

static shoal_status run_scalar(struct kernel_ctx *ctx) {
  const struct tensor *tags = ctx_in(ctx, 0), *values = ctx_in(ctx, 1);
  if (!tensor_same_shape(tags, values) && !(is_scalar(tags) && is_scalar(values))) {
    struct shape a = tensor_shape(tags), b = tensor_shape(values);
    if (tags->n != 1) return INVALID("tags and values are not the same shape: %s != %s", shape_str(&a), shape_str(&b));
    const struct str *tag = string_at(tags, 0);
    return INVALID("tags and values are not the same shape: %s != %s (tag '%.*s')", shape_str(&a), shape_str(&b),
                   (int)tag->size, str_data(tag));
  }
  struct text t = {0};
  for (int64_t i = 0; i < tags->n; i++) summary_add_scalar(&t, string_at(tags, i), (float)real_at(values, i));
  return finish(ctx, NULL, &t);
}

static shoal_status run_histogram(struct kernel_ctx *ctx) {
  if (!is_scalar(ctx_in(ctx, 0))) return INVALID("tags must be scalar");
  struct text t = {0};
  shoal_status s = summary_add_histogram(&t, string_at(ctx_in(ctx, 0), 0), ctx_in(ctx, 1), ctx->kernel->name);
  return finish(ctx, s, &t);
}

struct image_state {
  int64_t max_images;
  struct tensor bad_color;
};

static shoal_status init_image(struct kernel_init *ki, void *state) {
  struct image_state *s = state;
  const struct tensor *bad;
  TRY(node_get_int(ki->node, "max_images", &s->max_images));
  if (s->max_images >= (int64_t)1 << 31) return INVALID("max_images must be < 2^31");
  TRY(node_get_tensor(ki->node, "bad_color", &bad));
  if (bad->dtype != SHOAL_UINT8) return INVALID("bad_color must be uint8, got %s", dtype_tf_name(bad->dtype));
  if (bad->rank != 1) {
    struct shape shape = tensor_shape(bad);
    return INVALID("bad_color must be a vector, got shape %s", shape_str(&shape));
  }
  tensor_ref(&s->bad_color, bad);
  return NULL;
}

static void release_image(void *state) { tensor_release(&((struct image_state *)state)->bad_color); }

static shoal_status run_image(struct kernel_ctx *ctx) {
  const struct image_state *st = ctx->state;
  if (!is_scalar(ctx_in(ctx, 0))) return INVALID("Tags must be a scalar");
  struct text t = {0};
  shoal_status s = summary_add_images(&t, string_at(ctx_in(ctx, 0), 0), ctx_in(ctx, 1), st->max_images, &st->bad_color);
  return finish(ctx, s, &t);
}

struct audio_state {
  int64_t max_outputs;
  float sample_rate; /* of the attribute; 0 when it is an input */
};

static shoal_status init_audio(struct kernel_init *ki, void *state) {
  struct audio_state *s = state;
  TRY(node_get_int(ki->node, "max_outputs", &s->max_outputs));
  if (s->max_outputs <= 0) return INVALID("max_outputs must be > 0");
  return node_attr(ki->node, "sample_rate") ? node_get_float(ki->node, "sample_rate", &s->sample_rate) : NULL;
}

static shoal_status run_audio(struct kernel_ctx *ctx) {
  const struct audio_state *st = ctx->state;
  if (!is_scalar(ctx_in(ctx, 0))) return INVALID("Tag must be a scalar");
  float rate = st->sample_rate;
  if (ctx->kernel->n_in > 2) {
    TRY(ctx_check_scalar(ctx, 2, "sample_rate"));
    rate = *T_DATA(ctx_in(ctx, 2), float);
  }
  struct text t = {0};
  shoal_status s = summary_add_audio(&t, string_at(ctx_in(ctx, 0), 0), ctx_in(ctx, 1), st->max_outputs, rate);
  return finish(ctx, s, &t);
}

static shoal_status run_tensor(struct kernel_ctx *ctx) {
  struct text t = {0};
  return finish(ctx, summary_add_tensor(&t, NULL, ctx_in(ctx, 0), ctx->kernel->name, NULL), &t);
}

static shoal_status run_tensor_v2(struct kernel_ctx *ctx) {
  if (!is_scalar(ctx_in(ctx, 0))) return INVALID("tag must be scalar");
  TRY(ctx_check_scalar(ctx, 2, "serialized_summary_metadata"));
  struct text t = {0};
  shoal_status s =
      summary_add_tensor(&t, string_at(ctx_in(ctx, 0), 0), ctx_in(ctx, 1), NULL, string_at(ctx_in(ctx, 2), 0));
  return finish(ctx, s, &t);
}

/* ---- MergeSummary: the values of all, whose tags must differ ---- */

static shoal_status check_tag(struct strmap *seen, struct wire value) {
  struct wire_field f;
  enum wire_step step;
  const char *tag = NULL;
  size_t n = 0;
  while ((step = wire_next(&value, &f)) == WIRE_FIELD)
    if (f.tag == Summary_Value_tag) {
      tag = (const char *)f.data;
      n = f.size;
    }
  if (step == WIRE_BROKEN) return INVALID("Could not parse one of the summary inputs");
  if (!n) return NULL;
  char *key = mem_strndup(tag, n);
  shoal_status s = NULL;
  if (strmap_put(seen, key, seen)) s = INVALID("Duplicate tag %s found in summary inputs", key);
  free(key);
  return s;
}

static shoal_status merge_one(struct text *out, struct strmap *seen, const struct str *summary) {
  struct wire w = wire_from(str_data(summary), summary->size);
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag != Summary_value) continue;
    TRY(check_tag(seen, wire_inside(&f)));
    put_Summary_value_n(out, f.data, f.size);
  }
  return step == WIRE_BROKEN ? INVALID("Could not parse one of the summary inputs") : NULL;
}

static shoal_status run_merge(struct kernel_ctx *ctx) {
  struct text t = {0};
  struct strmap seen = {0};
  shoal_status s = NULL;
  for (int i = 0; !s && i < ctx->kernel->n_in; i++)
    for (int64_t k = 0; !s && k < ctx_in(ctx, i)->n; k++) s = merge_one(&t, &seen, string_at(ctx_in(ctx, i), k));
  strmap_release(&seen);
  return finish(ctx, s, &t);
}

/* ---- rows ---- */

#define RUN(fn)                         \
  (const struct kernel_def[]) {         \
    {.device = "CPU", .run = fn}, { 0 } \
  }
#define STATE(type, init_, release_, fn) \
  (const struct kernel_def[]) {          \
    {.device = "CPU",                    \
     .flags = KERNEL_EXPENSIVE,          \
     .state_size = sizeof(type),         \
     .init = init_,                      \
     .release = release_,                \
     .run = fn},                         \
    {                                    \
      0                                  \
    }                                    \
  }

static const struct op_row rows[] = {
    {.name = "ScalarSummary",
     .in = "tags: string, values: T",
     .out = "summary: string",
     .attrs = "T: {realnumbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_scalar)},
    {.name = "HistogramSummary",
     .in = "tag: string, values: T",
     .out = "summary: string",
     .attrs = "T: {realnumbertype} = float",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_histogram)},
    {.name = "ImageSummary",
     .in = "tag: string, tensor: T",
     .out = "summary: string",
     .attrs = "max_images: int >= 1 = 3; T: {uint8, float, half, double} = float; "
              "bad_color: tensor = {uint8 [255, 0, 0, 255]}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = STATE(struct image_state, init_image, release_image, run_image)},
    {.name = "AudioSummary",
     .in = "tag: string, tensor: float",
     .out = "summary: string",
     .attrs = "sample_rate: float; max_outputs: int >= 1 = 3",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = STATE(struct audio_state, init_audio, NULL, run_audio)},
    {.name = "AudioSummaryV2",
     .in = "tag: string, tensor: float, sample_rate: float",
     .out = "summary: string",
     .attrs = "max_outputs: int >= 1 = 3",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = STATE(struct audio_state, init_audio, NULL, run_audio)},
    {.name = "MergeSummary",
     .in = "inputs: N * string",
     .out = "summary: string",
     .attrs = "N: int >= 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_merge)},
    {.name = "TensorSummary",
     .in = "tensor: T",
     .out = "summary: string",
     .attrs = "T: type; description: string = ''; labels: list(string) = []; display_name: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_tensor)},
    {.name = "TensorSummaryV2",
     .in = "tag: string, tensor: T, serialized_summary_metadata: string",
     .out = "summary: string",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_tensor_v2)},
};
OP_FAMILY(summaries, rows);

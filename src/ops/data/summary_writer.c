/* Ops that write event files from inside a graph: a writer is a resource, which CreateSummaryFileWriter opens and the
 * Write ops append to. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/wire.h"
#include "graph/shape_fn.h"
#include "ops/state/state.h"
#include "ops/text/string_in.h"
#include "ops/array/array_util.h"
#include "ops/data/summary_build.h"
#include "data/event_writer.h"

struct writer {
  struct resource head;
  struct shoal_events *events;
};

static void writer_free(struct resource *r) {
  struct writer *w = (struct writer *)r;
  event_writer_free(w->events);
  free(w);
}

static const struct resource_type writer_type = {"N10tensorflow22SummaryWriterInterfaceE", "summary writer",
                                                 writer_free};

/* ---- the handle ---- */

struct writer_state {
  struct resource_name name;
};

static shoal_status init_handle(struct kernel_init *ki, void *state) {
  return resource_name_init(&((struct writer_state *)state)->name, ki);
}

static void release_handle(void *state) { resource_name_release(&((struct writer_state *)state)->name); }

static shoal_status run_handle(struct kernel_ctx *ctx) {
  const struct writer_state *s = ctx->state;
  struct tensor t;
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, s->name.container, s->name.name,
                             &writer_type, &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

/* ---- opening, flushing, closing ---- */

struct opening {
  char *dir, *suffix;
  int max_queue, flush_ms;
};

static shoal_status open_writer(void *arg, struct resource **out) {
  const struct opening *o = arg;
  struct shoal_events *events;
  TRY(event_writer_new(o->dir, o->suffix, o->max_queue, o->flush_ms, &events));
  shoal_status s = event_writer_flush(events); /* the file is there from now on */
  if (s) {
    event_writer_free(events);
    return status_prefix(s, "Could not initialize events writer. ");
  }
  struct writer *w = mem_zalloc(1, sizeof *w);
  resource_init(&w->head, &writer_type);
  w->events = events;
  *out = &w->head;
  return NULL;
}

static shoal_status run_create(struct kernel_ctx *ctx) {
  static const char *const names[] = {"", "logdir", "max_queue", "flush_millis", "filename_suffix"};
  for (int i = 1; i < 5; i++)
    if (ctx_in(ctx, i)->rank != 0) return INVALID("%s must be a scalar", names[i]);
  struct opening o = {string_dup(ctx_in(ctx, 1), 0), string_dup(ctx_in(ctx, 4), 0), *T_DATA(ctx_in(ctx, 2), int32_t),
                      *T_DATA(ctx_in(ctx, 3), int32_t)};
  struct resource *r;
  shoal_status s =
      resource_from_handle_or_make(ctx->kernel->resources, ctx_in(ctx, 0), &writer_type, open_writer, &o, &r);
  if (!s) resource_unref(r);
  free(o.dir);
  free(o.suffix);
  return s;
}

static shoal_status find(struct kernel_ctx *ctx, struct writer **out) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &writer_type, &r));
  *out = (struct writer *)r;
  return NULL;
}

static shoal_status run_flush(struct kernel_ctx *ctx) {
  struct writer *w;
  TRY(find(ctx, &w));
  shoal_status s = event_writer_flush(w->events);
  resource_unref(&w->head);
  return s;
}

static shoal_status run_close(struct kernel_ctx *ctx) {
  return resource_destroy(ctx->kernel->resources, ctx_in(ctx, 0), false);
}

/* ---- writing ---- */

/* What each Write op puts into the Summary of its event. */
typedef shoal_status fill_fn(struct kernel_ctx *ctx, struct text *summary);

static shoal_status write_event(struct kernel_ctx *ctx, fill_fn *fill) {
  struct writer *w;
  TRY(ctx_check_scalar(ctx, 1, "step"));
  TRY(find(ctx, &w));
  struct text summary = {0};
  shoal_status s = fill(ctx, &summary);
  if (!s) s = event_write_summary(w->events, *T_DATA(ctx_in(ctx, 1), int64_t), summary.at, summary.n);
  text_release(&summary);
  resource_unref(&w->head);
  return s;
}

static shoal_status fill_scalar(struct kernel_ctx *ctx, struct text *summary) {
  TRY(ctx_check_scalar(ctx, 2, "tag"));
  TRY(ctx_check_scalar(ctx, 3, "value"));
  summary_add_scalar(summary, string_at(ctx_in(ctx, 2), 0), (float)real_at(ctx_in(ctx, 3), 0));
  return NULL;
}

static shoal_status fill_histogram(struct kernel_ctx *ctx, struct text *summary) {
  TRY(ctx_check_scalar(ctx, 2, "tag"));
  const struct str *tag = string_at(ctx_in(ctx, 2), 0);
  char *name = string_dup(ctx_in(ctx, 2), 0);
  shoal_status s = summary_add_histogram(summary, tag, ctx_in(ctx, 3), name);
  free(name);
  return s;
}

struct limit_state {
  int64_t most;
};

static shoal_status init_images(struct kernel_init *ki, void *state) {
  struct limit_state *s = state;
  TRY(node_get_int(ki->node, "max_images", &s->most));
  return s->most < (int64_t)1 << 31 ? NULL : INVALID("max_images must be < 2^31");
}

static shoal_status init_audio(struct kernel_init *ki, void *state) {
  struct limit_state *s = state;
  TRY(node_get_int(ki->node, "max_outputs", &s->most));
  return s->most > 0 ? NULL : INVALID("max_outputs must be > 0");
}

static shoal_status fill_images(struct kernel_ctx *ctx, struct text *summary) {
  const struct limit_state *s = ctx->state;
  TRY(ctx_check_scalar(ctx, 2, "tag"));
  return summary_add_images(summary, string_at(ctx_in(ctx, 2), 0), ctx_in(ctx, 3), s->most, ctx_in(ctx, 4));
}

static shoal_status fill_audio(struct kernel_ctx *ctx, struct text *summary) {
  const struct limit_state *s = ctx->state;
  TRY(ctx_check_scalar(ctx, 2, "tag"));
  TRY(ctx_check_scalar(ctx, 4, "sample_rate"));
  return summary_add_audio(summary, string_at(ctx_in(ctx, 2), 0), ctx_in(ctx, 3), s->most,
                           *T_DATA(ctx_in(ctx, 4), float));
}

static shoal_status fill_tensor(struct kernel_ctx *ctx, struct text *summary) {
  TRY(ctx_check_scalar(ctx, 3, "tag"));
  TRY(ctx_check_scalar(ctx, 4, "summary_metadata"));
  const struct str *metadata = string_at(ctx_in(ctx, 4), 0);
  return summary_add_tensor(summary, string_at(ctx_in(ctx, 3), 0), ctx_in(ctx, 2), NULL,
                            metadata->size ? metadata : NULL);
}

/* Serialized summaries one after another are one summary with the values of all. */
static shoal_status fill_raw(struct kernel_ctx *ctx, struct text *summary) {
  const struct tensor *t = ctx_in(ctx, 2);
  for (int64_t i = 0; i < t->n; i++) {
    const struct str *s = string_at(t, i);
    struct wire w = wire_from(str_data(s), s->size);
    struct wire_field f;
    enum wire_step step;
    while ((step = wire_next(&w, &f)) == WIRE_FIELD) continue;
    if (step == WIRE_BROKEN)
      return STATUS(SHOAL_DATA_LOSS, "Bad tf.compat.v1.Summary binary proto tensor string at index %" PRId64, i);
    text_add(summary, str_data(s), s->size);
  }
  return NULL;
}

static shoal_status run_scalar(struct kernel_ctx *ctx) { return write_event(ctx, fill_scalar); }
static shoal_status run_histogram(struct kernel_ctx *ctx) { return write_event(ctx, fill_histogram); }
static shoal_status run_images(struct kernel_ctx *ctx) { return write_event(ctx, fill_images); }
static shoal_status run_audio(struct kernel_ctx *ctx) { return write_event(ctx, fill_audio); }
static shoal_status run_tensor(struct kernel_ctx *ctx) { return write_event(ctx, fill_tensor); }
static shoal_status run_raw(struct kernel_ctx *ctx) { return write_event(ctx, fill_raw); }

static shoal_status run_graph(struct kernel_ctx *ctx) {
  struct writer *w;
  TRY(ctx_check_scalar(ctx, 1, "step"));
  TRY(ctx_check_scalar(ctx, 2, "tensor"));
  TRY(find(ctx, &w));
  const struct str *graph = string_at(ctx_in(ctx, 2), 0);
  shoal_status s = event_write_graph(w->events, *T_DATA(ctx_in(ctx, 1), int64_t), str_data(graph), graph->size);
  resource_unref(&w->head);
  return s;
}

static shoal_status run_import(struct kernel_ctx *ctx) {
  struct writer *w;
  TRY(ctx_check_scalar(ctx, 1, "event"));
  const struct str *event = string_at(ctx_in(ctx, 1), 0);
  struct wire m = wire_from(str_data(event), event->size);
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&m, &f)) == WIRE_FIELD) continue;
  if (step == WIRE_BROKEN) return STATUS(SHOAL_DATA_LOSS, "Bad tf.Event binary proto tensor string");
  TRY(find(ctx, &w));
  shoal_status s = event_write(w->events, str_data(event), event->size);
  resource_unref(&w->head);
  return s;
}

/* ---- rows ---- */

#define RUN(fn)                                                    \
  (const struct kernel_def[]) {                                    \
    {.device = "CPU", .flags = KERNEL_EXPENSIVE, .run = fn}, { 0 } \
  }
#define LIMITED(init_, fn)                                                                                            \
  (const struct kernel_def[]) {                                                                                       \
    {.device = "CPU", .flags = KERNEL_EXPENSIVE, .state_size = sizeof(struct limit_state), .init = init_, .run = fn}, \
    {                                                                                                                 \
      0                                                                                                               \
    }                                                                                                                 \
  }
#define EFFECT (OP_STATEFUL | OP_NO_GRADIENT)

static const struct op_row rows[] = {
    {.name = "SummaryWriter",
     .out = "writer: resource",
     .attrs = "shared_name: string = ''; container: string = ''",
     .flags = EFFECT,
     .shape = shape_scalar_out,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .flags = KERNEL_CHEAP,
                                             .state_size = sizeof(struct writer_state),
                                             .init = init_handle,
                                             .release = release_handle,
                                             .run = run_handle},
                                            {0}}},
    {.name = "CreateSummaryFileWriter",
     .in = "writer: resource, logdir: string, max_queue: int32, flush_millis: int32, filename_suffix: string",
     .flags = EFFECT,
     .kernels = RUN(run_create)},
    {.name = "FlushSummaryWriter", .in = "writer: resource", .flags = EFFECT, .kernels = RUN(run_flush)},
    {.name = "CloseSummaryWriter", .in = "writer: resource", .flags = EFFECT, .kernels = RUN(run_close)},
    {.name = "WriteSummary",
     .in = "writer: resource, step: int64, tensor: T, tag: string, summary_metadata: string",
     .attrs = "T: type",
     .flags = EFFECT,
     .kernels = RUN(run_tensor)},
    {.name = "WriteRawProtoSummary",
     .in = "writer: resource, step: int64, tensor: string",
     .flags = EFFECT,
     .kernels = RUN(run_raw)},
    {.name = "ImportEvent", .in = "writer: resource, event: string", .flags = EFFECT, .kernels = RUN(run_import)},
    {.name = "WriteScalarSummary",
     .in = "writer: resource, step: int64, tag: string, value: T",
     .attrs = "T: {realnumbertype}",
     .flags = EFFECT,
     .kernels = RUN(run_scalar)},
    {.name = "WriteHistogramSummary",
     .in = "writer: resource, step: int64, tag: string, values: T",
     .attrs = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, bool} "
              "= float",
     .flags = EFFECT,
     .kernels = RUN(run_histogram)},
    {.name = "WriteImageSummary",
     .in = "writer: resource, step: int64, tag: string, tensor: T, bad_color: uint8",
     .attrs = "max_images: int >= 1 = 3; T: {uint8, double, float, half} = float",
     .flags = EFFECT,
     .kernels = LIMITED(init_images, run_images)},
    {.name = "WriteAudioSummary",
     .in = "writer: resource, step: int64, tag: string, tensor: float, sample_rate: float",
     .attrs = "max_outputs: int >= 1 = 3",
     .flags = EFFECT,
     .kernels = LIMITED(init_audio, run_audio)},
    {.name = "WriteGraphSummary",
     .in = "writer: resource, step: int64, tensor: string",
     .flags = EFFECT,
     .kernels = RUN(run_graph)},
};
OP_FAMILY(summary_writer, rows);

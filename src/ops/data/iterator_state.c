/* The state of an iterator as a value: saved into a checkpoint, and given back to an iterator over the same dataset.
 *
 * The state is the number of elements that were asked for, whether any of them failed, and the seeds of the dataset's
 * shuffles when the iterator was made. Restoring begins anew with those seeds and passes by as many elements; datasets
 * that can pass by without making them do (data/dataset.h: skip). TensorFlow writes the buffers and places of each
 * dataset instead, which restores sooner, but makes states of shuffles as large as their buffers, and needs two
 * functions of every dataset there is.
 *
 *   variant "tensorflow::Iterator", metadata: a SavedIterator (src/proto/shoal.proto) */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/wire.h"
#include "ops/data/iterator.h"
#include "proto/shoal.wire.h"
#include "tensor/tensor_proto.h"

enum { VERSION = 1 };

struct saved_iterator {
  struct variant head;
  int64_t asked;
  bool failed;
  struct text seeds;
};

static void saved_free(struct variant *v) {
  text_release(&((struct saved_iterator *)v)->seeds);
  free(v);
}

static shoal_status saved_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct saved_iterator *s = (const struct saved_iterator *)v;
  put_SavedIterator_version(metadata, VERSION);
  put_SavedIterator_asked(metadata, s->asked);
  put_SavedIterator_failed(metadata, s->failed);
  put_SavedIterator_seeds_n(metadata, s->seeds.at, s->seeds.n);
  *tensors = NULL;
  *n = 0;
  return NULL;
}

static shoal_status saved_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                 struct variant **out);

static const struct variant_type saved_type = {
    .name = "tensorflow::Iterator", .free = saved_free, .encode = saved_encode, .decode = saved_decode};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&saved_type); }

static struct saved_iterator *saved_new(void) {
  struct saved_iterator *s = mem_zalloc(1, sizeof *s);
  variant_init(&s->head, &saved_type);
  return s;
}

static shoal_status saved_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                 struct variant **out) {
  struct saved_iterator *s = saved_new();
  struct wire w = wire_from(metadata, size);
  struct wire_field f;
  enum wire_step step;
  uint64_t version = 0;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == SavedIterator_version) version = f.value;
    if (f.tag == SavedIterator_asked) s->asked = (int64_t)f.value;
    if (f.tag == SavedIterator_failed) s->failed = f.value != 0;
    if (f.tag == SavedIterator_seeds) text_add(&s->seeds, (const char *)f.data, f.size);
  }
  *out = &s->head;
  if (step == WIRE_END && version == VERSION && s->asked >= 0) return NULL;
  variant_unref(&s->head);
  return UNIMPLEMENTED("The state of an iterator was not saved by Shoal, or by a later version of it");
}

/* ---- on the iterator's line ---- */

struct iterator_errand {
  struct kernel_ctx *ctx;
  struct iterator *it;          /* a reference */
  struct saved_iterator *state; /* to restore; a reference */
};

static void finish(struct iterator_errand *e, shoal_status s) {
  struct kernel_ctx *ctx = e->ctx;
  struct resource *r = &e->it->head;
  if (e->state) variant_unref(&e->state->head);
  free(e);
  resource_unref(r); /* before the step ends, as in iterators.c */
  ctx_done(ctx, s);
}

static shoal_status save(struct iterator_errand *e) {
  if (!e->it->at)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "Save() failed because the iterator has not been initialized. Ensure that you have run the "
                  "initializer operation for this iterator before saving it.");
  struct tensor *out;
  TRY(ctx_out_dims(e->ctx, 0, 0, NULL, &out));
  struct saved_iterator *s = saved_new();
  s->asked = e->it->asked;
  s->failed = e->it->failed;
  text_add(&s->seeds, text_cstr(&e->it->seeds), e->it->seeds.n);
  *T_DATA(out, struct variant *) = &s->head;
  return NULL;
}

/* Errors come again where they came before: then every element is made, so that what fails is what failed. */
static shoal_status pass_by(struct iterator *it, const struct saved_iterator *to, struct cancel *cancel) {
  struct data_ctx ctx = {.cancel = cancel};
  int n = it->at->of->n;
  struct tensor *t = mem_zalloc((size_t)MAX(n, 1), sizeof *t);
  for (bool end = false; it->asked < to->asked && !end && !data_ended(&ctx); it->asked++) {
    shoal_status s = to->failed ? iterator_next(it->at, &ctx, t, &end) : iterator_skip(it->at, &ctx, &end);
    if (!s && !end) tensors_release(t, n);
    shoal_status_free(s);
  }
  free(t);
  it->failed = to->failed;
  return data_ended(&ctx) ? data_why_ended(&ctx) : NULL;
}

static shoal_status restore(struct iterator_errand *e) {
  if (!e->it->at)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "Restore() failed because the iterator has not been initialized. Ensure that you have run the "
                  "initializer operation for this iterator before restoring it.");
  struct dataset *d = dataset_ref(e->it->at->of);
  shoal_status s = dataset_seeds_load(d, text_cstr(&e->state->seeds), e->state->seeds.n);
  if (!s) s = iterator_begin(e->it, d);
  dataset_unref(d);
  TRY(s);
  return pass_by(e->it, e->state, e->ctx->step->cancel);
}

static void save_on_line(void *arg) { finish(arg, save(arg)); }
static void restore_on_line(void *arg) { finish(arg, restore(arg)); }

static void start(struct kernel_ctx *ctx, struct saved_iterator *state, void (*fn)(void *)) {
  struct resource *r;
  shoal_status s = resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &iterator_type, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct iterator_errand *e = mem_zalloc(1, sizeof *e);
  *e = (struct iterator_errand){ctx, (struct iterator *)r, state};
  if (state) variant_ref(&state->head);
  s = task_line_add(e->it->line, fn, e);
  if (s) finish(e, s);
}

static void serialize_start(struct kernel_ctx *ctx) { start(ctx, NULL, save_on_line); }

static void deserialize_start(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 1);
  struct variant *v = t->rank == 0 ? *T_DATA(t, struct variant *const) : NULL;
  if (v && v->type == &saved_type) start(ctx, (struct saved_iterator *)v, restore_on_line);
  else ctx_done(ctx, INVALID("DeserializeIterator requires the state of an iterator"));
}

static const struct op_row rows[] = {
    {.name = "SerializeIterator",
     .in = "resource_handle: resource",
     .out = "serialized: variant",
     .attrs = "external_state_policy: int = 0",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.start = serialize_start)},
    {.name = "DeserializeIterator",
     .in = "resource_handle: resource, serialized: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.start = deserialize_start)},
};
OP_FAMILY(iterator_state, rows);

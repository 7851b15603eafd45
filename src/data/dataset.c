/* What all datasets and iterators share. */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/cond.h"
#include "base/mem.h"
#include "base/stop.h"
#include "data/dataset_graph.h"
#include "tensor/strings.h"

static void dataset_free(struct variant *v) {
  struct dataset *d = (struct dataset *)v;
  struct dataset *final = atomic_load(&d->final);
  if (final != d) dataset_unref(final);
  if (d->type->release) d->type->release(d);
  for (int i = 0; i < d->n_inputs; i++) dataset_unref(d->inputs[i]);
  tensors_release(d->args, d->n_args);
  free(d->args);
  dataset_origin_unref(d->origin);
  function_runtime_unref(d->functions);
  free(d->inputs);
  free(d->types);
  free(d->shapes);
  free(d);
}

const struct variant_type dataset_variant = {.name = "tensorflow::DatasetVariantWrapper", .free = dataset_free};

struct dataset *dataset_ref(struct dataset *d) {
  return (struct dataset *)variant_ref(&d->head);
}

void dataset_unref(struct dataset *d) { variant_unref(d ? &d->head : NULL); }

shoal_status dataset_from_tensor(const struct tensor *t, struct dataset **out) {
  if (t->dtype != SHOAL_VARIANT || t->rank != 0) return INVALID("Dataset tensor must be a scalar of dtype DT_VARIANT.");
  struct variant *v = *T_DATA(t, struct variant *const);
  if (!v || v->type != &dataset_variant) return INVALID("Tensor must be a Dataset object.");
  *out = (struct dataset *)v;
  return NULL;
}

shoal_status dataset_to_tensor(struct dataset *d, struct tensor *out) {
  shoal_status s = tensor_new_scalar(out, SHOAL_VARIANT);
  if (s) dataset_unref(d);
  else *T_DATA(out, struct variant *) = &d->head;
  return s;
}

int64_t dataset_size(const struct dataset *d) {
  struct dataset *memo = (struct dataset *)(uintptr_t)d;
  int64_t n = atomic_load_explicit(&memo->asked, memory_order_relaxed);
  if (n != SIZE_NOT_ASKED) return n;
  n = d->type->size ? d->type->size(d) : d->n_inputs ? dataset_size(d->inputs[0]) : SIZE_UNKNOWN;
  atomic_store_explicit(&memo->asked, n, memory_order_relaxed);
  return n;
}

int64_t size_add(int64_t a, int64_t b) {
  int64_t all;
  if (a == SIZE_INFINITE || b == SIZE_INFINITE) return SIZE_INFINITE;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &all) ? SIZE_UNKNOWN : all;
}

int64_t size_times(int64_t a, int64_t b) {
  int64_t all;
  if (a == 0 || b == 0) return 0;
  if (a == SIZE_INFINITE || b == SIZE_INFINITE) return SIZE_INFINITE;
  return a < 0 || b < 0 || mul_overflows(a, b, &all) ? SIZE_UNKNOWN : all;
}

static void count_in(struct dataset *d, const struct dataset *input) {
  d->depth = MAX(d->depth, input->depth + 1);
  d->parts = MIN(d->parts + input->parts, 2 * DATASET_MAX_PARTS);
  d->own_seeds |= input->own_seeds;
}

shoal_status dataset_bound(struct dataset *d, const struct tensor *const *inputs, int n) {
  int parts = d->parts;
  d->parts = 1;
  for (int i = 0; i < n; i++)
    for (int64_t k = 0; inputs[i]->dtype == SHOAL_VARIANT && k < inputs[i]->n; k++) {
      const struct variant *v = T_DATA(inputs[i], struct variant *const)[k];
      if (v && v->type == &dataset_variant) count_in(d, (const struct dataset *)v);
    }
  d->parts = MAX(d->parts, parts);
  if (d->depth > DATASET_MAX_DEPTH)
    return INVALID("A dataset of more than %d transformations one upon another is not supported", DATASET_MAX_DEPTH);
  if (d->parts > DATASET_MAX_PARTS)
    return INVALID("A dataset made of more than %d others is not supported", DATASET_MAX_PARTS);
  if (d->n > DATASET_MAX_COMPONENTS)
    return INVALID("A dataset of elements of %d components is not supported (at most %d)", d->n,
                   DATASET_MAX_COMPONENTS);
  return NULL;
}

shoal_status iterator_begin_later(struct data_iterator *it) { return NULL; }

static shoal_status begin_input(struct data_iterator *it) {
  struct data_iterator *in;
  return it->of->n_inputs ? iterator_input(it, &in) : NULL;
}

shoal_status dataset_iterate(struct dataset *d, struct data_iterator **out) {
  TRY(d->type->iterate(d, out));
  if ((*out)->of != d) return NULL; /* the input's, which has begun */
  shoal_status s = ((*out)->type->begin ? (*out)->type->begin : begin_input)(*out);
  if (!s) return NULL;
  iterator_free(*out);
  *out = NULL;
  return s;
}

bool data_ended(const struct data_ctx *ctx) { return cancel_started(ctx->cancel) || stop_hurried(); }

shoal_status data_why_ended(const struct data_ctx *ctx) {
  return cancel_started(ctx->cancel) ? cancel_reason(ctx->cancel) : stop_why();
}

shoal_status iterator_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  *end = false;
  if (data_ended(ctx)) return data_why_ended(ctx);
  uint64_t lost = strings_lost();
  shoal_status s = it->type->next(it, ctx, out, end);
  if (s) *end = false; /* whatever ended on the way */
  if (LIKELY(s || *end || strings_lost() == lost)) return s;
  bool strings = false;
  for (int i = 0; i < it->of->n; i++) strings = strings || out[i].dtype == SHOAL_STRING;
  if (!strings) return NULL; /* they were others' */
  tensors_release(out, it->of->n);
  return strings_kept(lost);
}

static shoal_status make_and_drop(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  struct tensor *t = mem_zalloc((size_t)MAX(it->of->n, 1), sizeof *t);
  shoal_status s = it->type->next(it, ctx, t, end);
  tensors_release(t, it->of->n);
  free(t);
  return s;
}

shoal_status iterator_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  *end = false;
  if (data_ended(ctx)) return data_why_ended(ctx);
  shoal_status s = (it->type->skip ? it->type->skip : make_and_drop)(it, ctx, end);
  if (s) *end = false;
  return s;
}

void iterator_free(struct data_iterator *it) {
  if (!it) return;
  if (it->type->release) it->type->release(it);
  iterator_free(it->in);
  dataset_unref(it->of);
  free(it);
}

shoal_status iterator_input(struct data_iterator *it, struct data_iterator **in) {
  if (!it->in) {
    TRY(dataset_iterate(it->of->inputs[0], &it->in));
    it->in->user = it;
  }
  *in = it->in;
  return NULL;
}

void tensors_release(struct tensor *t, int n) {
  for (int i = 0; i < n; i++) tensor_release(&t[i]);
}

void data_wait(pthread_cond_t *change, pthread_mutex_t *lock) {
  enum { POLL_MS = 50 };
  cond_wait_until(change, lock, clock_ns() + POLL_MS * 1000000);
}

struct dataset *dataset_new(size_t size, const struct dataset_type *type, int n, const shoal_dtype *types,
                            const struct shape *shapes, struct dataset *const *inputs, int n_inputs) {
  struct dataset *d = mem_zalloc(1, size);
  variant_init(&d->head, &dataset_variant);
  d->type = type;
  d->n = n;
  d->types = mem_zalloc((size_t)n, sizeof *d->types);
  d->shapes = mem_zalloc((size_t)n, sizeof *d->shapes);
  if (n) memcpy(d->types, types, (size_t)n * sizeof *types);
  if (n) memcpy(d->shapes, shapes, (size_t)n * sizeof *shapes);
  d->inputs = mem_zalloc((size_t)n_inputs, sizeof *d->inputs);
  d->n_inputs = n_inputs;
  d->depth = d->parts = 1;
  atomic_init(&d->asked, SIZE_NOT_ASKED);
  atomic_init(&d->final, NULL);
  for (int i = 0; i < n_inputs; i++) {
    d->inputs[i] = dataset_ref(inputs[i]);
    count_in(d, inputs[i]);
  }
  return d;
}

void dataset_widen(struct dataset *d, const struct dataset *other) {
  for (int i = 0; i < d->n; i++) {
    struct shape *s = &d->shapes[i];
    const struct shape *t = &other->shapes[i];
    if (s->rank != t->rank) *s = shape_unknown();
    for (int k = 0; k < s->rank; k++)
      if (s->dims[k] != t->dims[k]) s->dims[k] = -1;
  }
}

struct data_iterator *iterator_new(const struct data_iterator_type *type, struct dataset *of) {
  struct data_iterator *it = mem_zalloc(1, type->size);
  it->type = type;
  it->of = dataset_ref(of);
  return it;
}

void captured_init(struct captured *c, struct function *f, struct function_runtime *runtime,
                   const struct tensor *const *args, int n) {
  *c = (struct captured){.f = f, .runtime = function_runtime_ref(runtime), .n = n};
  c->args = mem_zalloc((size_t)n, sizeof *c->args);
  for (int i = 0; i < n; i++) tensor_ref(&c->args[i], args[i]);
}

void captured_release(struct captured *c) {
  tensors_release(c->args, c->n);
  free(c->args);
  function_runtime_unref(c->runtime);
  *c = (struct captured){0};
}

shoal_status captured_call(const struct captured *c, struct data_ctx *ctx, const struct tensor *in, int n_in,
                           struct tensor *rets, int n_rets) {
  enum { INLINE = 8 };
  struct tensor space[INLINE];
  int n = n_in + c->n;
  struct tensor *args = n > INLINE ? mem_alloc((size_t)n * sizeof *args) : space;
  for (int i = 0; i < n_in; i++) tensor_move(&args[i], &in[i]);
  for (int i = 0; i < c->n; i++) tensor_move(&args[n_in + i], &c->args[i]);
  struct step step = {.cancel = ctx->cancel,
                      .step_resources = resource_mgr_new("function"),
                      .deadline = DEADLINE_NEVER,
                      .session = "",
                      .depth = 1};
  shoal_status s = function_call_sync(c->f, &step, args, n, rets, n_rets);
  resource_mgr_unref(step.step_resources);
  if (args != space) free(args);
  return s;
}

/* Ops that walk a dataset themselves, from its first element on: a single element, one by its number, a reduction, all
 * into a file or a table. Each walk has a thread for as long as it takes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/data_thread.h"
#include "data/record.h"
#include "ops/data/dataset_state.h"
#include "ops/state/lookup.h"

struct dataset_walk {
  struct kernel_ctx *ctx;
  struct dataset *d; /* a reference */
  shoal_status (*walk)(struct dataset_walk *p, struct tensor *out);
};

static shoal_status single(struct dataset_walk *p, struct tensor *out) {
  struct data_iterator *it;
  struct data_ctx dc = {.cancel = p->ctx->step->cancel};
  bool end = false, more = false;
  if (p->d->n != p->ctx->kernel->n_out) return INVALID("The dataset's elements have %d components", p->d->n);
  TRY(dataset_iterate(p->d, &it));
  struct tensor *extra = mem_zalloc((size_t)MAX(p->d->n, 1), sizeof *extra);
  shoal_status s = iterator_next(it, &dc, out, &end);
  if (!s && end) s = INVALID("Dataset was empty.");
  if (!s) s = iterator_next(it, &dc, extra, &more);
  if (!s && !more) s = INVALID("Dataset had more than one element.");
  tensors_release(extra, p->d->n);
  free(extra);
  iterator_free(it);
  return s;
}

static shoal_status reduce(struct dataset_walk *p, struct tensor *out) {
  const struct dataset_state *st = p->ctx->state;
  int n_state = st->n_state, n = p->d->n;
  if (function_rets(st->f) != n_state || p->ctx->kernel->n_out != n_state)
    return INVALID("The function returns %d values, the state has %d", function_rets(st->f), n_state);
  struct data_iterator *it;
  TRY(dataset_iterate(p->d, &it));
  struct data_ctx dc = {.cancel = p->ctx->step->cancel};
  struct captured f = dataset_captured(p->ctx);
  struct tensor *args = mem_zalloc((size_t)(n_state + n), sizeof *args);
  shoal_status s = NULL;
  for (int i = 0; i < n_state; i++) tensor_ref(&out[i], ctx_in(p->ctx, st->first_state + i));
  for (bool end = false; !s;) {
    s = iterator_next(it, &dc, args + n_state, &end);
    if (s || end) break;
    for (int i = 0; i < n_state; i++) {
      tensor_move(&args[i], &out[i]);
      out[i] = tensor_none();
    }
    s = captured_call(&f, &dc, args, n_state + n, out, n_state);
    tensors_release(args, n_state + n);
  }
  free(args);
  captured_release(&f);
  iterator_free(it);
  return s;
}

/* The element of that number. Walking there is as right as TensorFlow's way, which some datasets alone know. */
static shoal_status at_index(struct dataset_walk *p, struct tensor *out) {
  int64_t index, size = dataset_size(p->d);
  if (p->d->n != p->ctx->kernel->n_out) return INVALID("The dataset's elements have %d components", p->d->n);
  TRY(dataset_in_int(p->ctx, 1, "index", &index));
  if (size < 0)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "Dataset of type %s has %s cardinality, which does not support random access.", p->d->type->name,
                  size == SIZE_INFINITE ? "infinite" : "unknown");
  if (index < 0 || index >= size)
    return STATUS(SHOAL_OUT_OF_RANGE, "Index out of range [0, %" PRId64 "):%" PRId64, size, index);
  struct data_iterator *it;
  struct data_ctx dc = {.cancel = p->ctx->step->cancel};
  bool end = false;
  TRY(dataset_iterate(p->d, &it));
  shoal_status s = iterator_next(it, &dc, out, &end);
  for (int64_t i = 0; i < index && !s && !end; i++) {
    tensors_release(out, p->d->n);
    s = iterator_next(it, &dc, out, &end);
  }
  if (!s && end) s = STATUS(SHOAL_OUT_OF_RANGE, "The dataset ends before element %" PRId64, index);
  iterator_free(it);
  return s;
}

static shoal_status to_records(struct dataset_walk *p, struct tensor *out) {
  if (p->d->n != 1 || p->d->types[0] != SHOAL_STRING)
    return INVALID("The dataset's elements must be single strings to be written as records");
  char *path, *name;
  enum record_compression compression;
  TRY(dataset_in_string(p->ctx, 2, "compression_type", &name));
  shoal_status s = record_compression_parse(name, &compression);
  free(name);
  TRY(s);
  TRY(dataset_in_string(p->ctx, 1, "filename", &path));
  struct record_writer w;
  struct data_iterator *it;
  struct data_ctx dc = {.cancel = p->ctx->step->cancel};
  s = dataset_iterate(p->d, &it);
  if (!s) {
    s = record_writer_open(&w, path, compression);
    if (!s) {
      for (bool end = false; !s;) {
        s = iterator_next(it, &dc, out, &end);
        if (s || end) break;
        if (out[0].rank) s = INVALID("Elements written as records must be scalars");
        const struct str *text = out[0].data;
        if (!s) s = record_write(&w, str_data(text), text->size);
        tensor_release(&out[0]);
      }
      shoal_status closed = record_writer_close(&w);
      if (s) shoal_status_free(closed);
      else s = closed;
    }
    iterator_free(it);
  }
  free(path);
  return s;
}

/* Keys and values, one pair an element. */
static shoal_status fill_table(struct dataset_walk *p, struct lookup_table *t, struct tensor *out) {
  if (t->kind != TABLE_FIXED) return INVALID("Table is not initializable");
  if (p->d->n != 2 || p->d->types[0] != t->key_dtype || p->d->types[1] != t->value_dtype)
    return INVALID("Dataset elements must be a key of type %s and a value of type %s", dtype_tf_name(t->key_dtype),
                   dtype_tf_name(t->value_dtype));
  struct data_iterator *it;
  struct data_ctx dc = {.cancel = p->ctx->step->cancel};
  TRY(dataset_iterate(p->d, &it));
  shoal_status s = NULL;
  pthread_rwlock_rdlock(&t->lock);
  bool again = t->initialized;
  pthread_rwlock_unlock(&t->lock);
  int64_t seen = 0;
  for (bool end = false; !s; seen++) { /* the dataset's functions may look into tables: no lock while they run */
    s = iterator_next(it, &dc, out, &end);
    if (s || end) break;
    if (out[0].rank || out[1].rank) s = INVALID("Dataset elements must be pairs of scalars");
    pthread_rwlock_wrlock(&t->lock);
    if (!s && !again) s = lookup_put_once(t, out[0].data, out[1].data);
    pthread_rwlock_unlock(&t->lock);
    tensors_release(out, 2);
  }
  pthread_rwlock_wrlock(&t->lock);
  if (!s && again && seen != t->n)
    s = STATUS(SHOAL_FAILED_PRECONDITION, "Table was already initialized with different data.");
  if (!s) t->initialized = true;
  else if (!again) lookup_clear(t);
  pthread_rwlock_unlock(&t->lock);
  iterator_free(it);
  return s;
}

static shoal_status to_table(struct dataset_walk *p, struct tensor *out) {
  struct resource *r;
  TRY(state_from_handle(p->ctx, 0, &lookup_type, &r));
  shoal_status s = fill_table(p, (struct lookup_table *)r, out);
  resource_unref(r);
  return s;
}

static void run_pass(void *arg) {
  struct dataset_walk *p = arg;
  struct kernel_ctx *ctx = p->ctx;
  int n = ctx->kernel->n_out;
  struct tensor *out = mem_zalloc((size_t)MAX(n, p->d->n) + 1, sizeof *out);
  shoal_status s = p->walk(p, out);
  for (int i = 0; !s && i < n; i++) ctx_set(ctx, i, &out[i]);
  tensors_release(out, n);
  free(out);
  dataset_unref(p->d);
  free(p);
  ctx_done(ctx, s);
}

/* p has its dataset. */
static void begin(struct dataset_walk *p) {
  struct kernel_ctx *ctx = p->ctx;
  shoal_status s = data_thread_start(run_pass, p);
  if (!s) return;
  dataset_unref(p->d);
  free(p);
  ctx_done(ctx, s);
}

static void start(struct kernel_ctx *ctx, int input, shoal_status (*walk)(struct dataset_walk *p, struct tensor *out)) {
  struct dataset *d;
  shoal_status s = dataset_from_tensor(ctx_in(ctx, input), &d);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct dataset_walk *p = mem_zalloc(1, sizeof *p);
  *p = (struct dataset_walk){ctx, dataset_ref(d), walk};
  begin(p);
}

static void single_start(struct kernel_ctx *ctx) { start(ctx, 0, single); }

static void begin_final(void *arg, struct dataset *d) {
  struct dataset_walk *p = arg;
  p->d = d;
  begin(p);
}

/* Of these ops it is the one that TensorFlow rewrites pipelines for. */
static void reduce_start(struct kernel_ctx *ctx) {
  struct dataset *d;
  shoal_status s = dataset_from_tensor(ctx_in(ctx, 0), &d);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct dataset_walk *p = mem_zalloc(1, sizeof *p);
  *p = (struct dataset_walk){ctx, NULL, reduce};
  dataset_final(ctx, d, begin_final, p);
}

static void at_index_start(struct kernel_ctx *ctx) { start(ctx, 0, at_index); }
static void to_records_start(struct kernel_ctx *ctx) { start(ctx, 0, to_records); }
static void to_table_start(struct kernel_ctx *ctx) { start(ctx, 1, to_table); }

#define WALKS(start_) DATASET_KERNELS(.start = start_)
#define SPEC DATASET_SPEC
#define FLAGS (OP_STATEFUL | OP_NO_GRADIENT)

static const struct op_row rows[] = {
    {.name = "DatasetToSingleElement",
     .in = "dataset: variant",
     .out = "components: output_types",
     .attrs = SPEC "; metadata: string = ''",
     .flags = FLAGS,
     .shape = dataset_element_shape,
     .kernels = WALKS(single_start)},
    {.name = "ReduceDataset",
     .in = "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
     .out = "components: output_types",
     .attrs = "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; " SPEC
              "; use_inter_op_parallelism: bool = true; metadata: string = ''",
     .flags = FLAGS,
     .shape = dataset_element_shape,
     .kernels = WALKS(reduce_start)},
    {.name = "GetElementAtIndex",
     .shape = dataset_element_shape,
     .in = "dataset: variant, index: int64",
     .out = "components: output_types",
     .attrs = SPEC,
     .flags = OP_NO_GRADIENT,
     .kernels = WALKS(at_index_start)},
    {.name = "DatasetToTFRecord",
     .in = "input_dataset: variant, filename: string, compression_type: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = WALKS(to_records_start)},
    {.name = "ExperimentalDatasetToTFRecord",
     .in = "input_dataset: variant, filename: string, compression_type: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = WALKS(to_records_start)},
    {.name = "InitializeTableFromDataset",
     .in = "table_handle: resource, dataset: variant",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = WALKS(to_table_start)},
};
OP_FAMILY(dataset_walks, rows);

/* Datasets that save their elements, load them, or do the one the first time and the other afterwards: Dataset.save(),
 * load() and snapshot(). The files are data/snapshot.h's. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/snapshot.h"

struct saved_dataset {
  struct dataset head;
  bool reads, writes;
  char *folder, *hash; /* hash: NULL where there is none */
  enum record_compression compression;
  struct captured reader, shard;
  int64_t n_elements; /* loading */
};

struct saved_iter {
  struct data_iterator head;
  enum { UNDECIDED, READING, WRITING, OVER } state;
  struct data_iterator *stored; /* READING */
  struct snapshot_writer *writer;
};

static const struct saved_dataset *saved(const struct saved_iter *it) {
  return (const struct saved_dataset *)it->head.of;
}

/* What the reader makes of the shards. */
static shoal_status begin_reading(struct saved_iter *it, struct data_ctx *ctx, const struct snapshot_metadata *m) {
  const struct saved_dataset *d = saved(it);
  struct element_spec spec = {d->head.n, d->head.types, d->head.shapes};
  char *run = mem_printf("%s/%s", d->folder, m->run_id);
  struct dataset *shards, *made;
  struct tensor in = tensor_none(), out = tensor_none();
  shoal_status s = dataset_snapshot_shards(run, d->compression, &spec, &shards);
  if (!s && m->n_elements > 0 && !dataset_size(shards)) {
    s = STATUS(SHOAL_DATA_LOSS,
               "%s: the files of %" PRId64 " elements that %s/snapshot.metadata tells of are not there", run,
               m->n_elements, d->folder);
    dataset_unref(shards);
  }
  free(run);
  if (!s) s = dataset_to_tensor(shards, &in);
  if (!s) s = captured_call(&d->reader, ctx, &in, 1, &out, 1);
  if (!s) s = dataset_from_tensor(&out, &made);
  if (!s && made->n != d->head.n)
    s = INVALID("The dataset of `reader_func` has %d components, %d are expected", made->n, d->head.n);
  for (int i = 0; !s && i < made->n; i++)
    if (made->types[i] != d->head.types[i])
      s = INVALID("Data type mismatch at component %d: expected %s but got %s.", i, dtype_tf_name(d->head.types[i]),
                  dtype_tf_name(made->types[i]));
  if (!s) s = dataset_iterate(made, &it->stored);
  tensor_release(&in);
  tensor_release(&out);
  if (!s) it->state = READING;
  return s;
}

static shoal_status begin(struct saved_iter *it, struct data_ctx *ctx) {
  const struct saved_dataset *d = saved(it);
  struct snapshot_metadata m = {0};
  bool there = false;
  if (d->reads) TRY(snapshot_read_metadata(d->folder, &m, &there));
  shoal_status s;
  if (there && m.finalized) s = begin_reading(it, ctx, &m);
  else if (there && !d->writes)
    s = STATUS(SHOAL_DATA_LOSS, "%s: who saved it did not come to the end; it is to be saved again", d->folder);
  else if (!d->writes) s = NOT_FOUND("%s/snapshot.metadata; No such file or directory", d->folder);
  else {
    s = snapshot_writer_new(d->folder, d->hash, d->compression, &d->head, &it->writer);
    if (!s) it->state = WRITING;
  }
  free(m.run_id);
  return s;
}

static shoal_status shard_of(const struct saved_dataset *d, struct data_ctx *ctx, const struct tensor *element,
                             int64_t *out) {
  *out = 0;
  if (!d->shard.f) return NULL;
  struct tensor t = tensor_none();
  if (function_rets(d->shard.f) != 1) return INVALID("`shard_func` must return a scalar int64.");
  TRY(captured_call(&d->shard, ctx, element, d->head.n, &t, 1));
  shoal_status s = NULL;
  if (t.dtype != SHOAL_INT64 || t.n != 1) s = INVALID("`shard_func` must return a scalar int64.");
  else *out = *T_DATA(&t, const int64_t);
  tensor_release(&t);
  return s;
}

static shoal_status write_next(struct saved_iter *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct saved_dataset *d = saved(it);
  struct data_iterator *in;
  int64_t shard = 0;
  TRY(iterator_input(&it->head, &in));
  TRY(iterator_next(in, ctx, out, end));
  shoal_status s = *end ? snapshot_writer_finish(it->writer) : shard_of(d, ctx, out, &shard);
  if (!s && !*end) s = snapshot_write(it->writer, shard, out);
  if (s && !*end) tensors_release(out, d->head.n);
  if (s || *end) it->state = OVER;
  return s;
}

static shoal_status next(struct data_iterator *self, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct saved_iter *it = (struct saved_iter *)self;
  if (it->state == UNDECIDED) TRY(begin(it, ctx));
  if (it->state == READING) return iterator_next(it->stored, ctx, out, end);
  if (it->state == WRITING) return write_next(it, ctx, out, end);
  *end = true;
  return NULL;
}

static void iter_free(struct data_iterator *self) {
  struct saved_iter *it = (struct saved_iter *)self;
  iterator_free(it->stored);
  snapshot_writer_free(it->writer);
}

static const struct data_iterator_type iter_type = {sizeof(struct saved_iter), next, iter_free,
                                                    .begin = iterator_begin_later};

static shoal_status iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&iter_type, d);
  return NULL;
}

static int64_t size(const struct dataset *d) {
  return d->n_inputs ? dataset_size(d->inputs[0]) : ((const struct saved_dataset *)d)->n_elements;
}

static void release(struct dataset *head) {
  struct saved_dataset *d = (struct saved_dataset *)head;
  free(d->folder);
  free(d->hash);
  if (d->reader.f) captured_release(&d->reader);
  if (d->shard.f) captured_release(&d->shard);
}

static const struct dataset_type saving_type = {"Save", iterate, size, release};
static const struct dataset_type loading_type = {"Load", iterate, size, release};
static const struct dataset_type snapshot_type = {"Snapshot", iterate, size, release};

static struct saved_dataset *saved_new(const struct dataset_type *type, struct dataset *in,
                                       const struct element_spec *spec, const char *folder, int compression) {
  struct saved_dataset *d =
      (struct saved_dataset *)dataset_new(sizeof *d, type, spec->n, spec->types, spec->shapes, &in, in ? 1 : 0);
  d->folder = mem_strdup(folder);
  d->compression = (enum record_compression)compression;
  return d;
}

static void take(struct captured *to, struct captured *from) {
  if (!from) return;
  *to = *from;
  *from = (struct captured){0};
}

struct dataset *dataset_saving(struct dataset *in, const char *folder, int compression, struct captured *shard) {
  struct element_spec spec = {in->n, in->types, in->shapes};
  struct saved_dataset *d = saved_new(&saving_type, in, &spec, folder, compression);
  d->writes = true;
  take(&d->shard, shard);
  return &d->head;
}

shoal_status dataset_loading(const char *folder, int compression, struct captured *reader,
                             const struct element_spec *spec, struct dataset **out) {
  struct snapshot_metadata m;
  bool there;
  TRY(snapshot_read_metadata(folder, &m, &there));
  free(m.run_id);
  if (!there) return NOT_FOUND("%s/snapshot.metadata; No such file or directory", folder);
  struct saved_dataset *d = saved_new(&loading_type, NULL, spec, folder, compression);
  d->reads = true;
  d->n_elements = m.n_elements >= 0 ? m.n_elements : SIZE_UNKNOWN;
  take(&d->reader, reader);
  *out = &d->head;
  return NULL;
}

struct dataset *dataset_snapshot(struct dataset *in, const char *folder, const char *hash, int compression,
                                 struct captured *reader, struct captured *shard) {
  struct element_spec spec = {in->n, in->types, in->shapes};
  struct saved_dataset *d = saved_new(&snapshot_type, in, &spec, folder, compression);
  d->reads = d->writes = true;
  d->hash = mem_strdup(hash);
  take(&d->reader, reader);
  take(&d->shard, shard);
  return &d->head;
}

/* Snapshots of datasets: reading; see snapshot.h. Files are hostile: what a record holds must have the type and shape
 * that the dataset says. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset_rows.h"
#include "data/snapshot.h"
#include "tensor/strings.h"
#include "tensor/tensor_proto.h"

struct stored_dataset {
  struct dataset head;
  char *path;
  bool is_folder; /* the files in it, in order of their names */
  enum record_compression compression;
  int64_t first; /* elements to pass by */
};

struct stored_iter {
  struct data_iterator head;
  struct path_list files; /* names, or the one path */
  bool listed, open;
  size_t at; /* the next file */
  int64_t passed;
  struct record_reader reader;
  struct text record; /* reused */
};

static void close_file(struct stored_iter *it) {
  if (it->open) record_reader_close(&it->reader);
  it->open = false;
}

static shoal_status list_files(struct stored_iter *it, const struct stored_dataset *d) {
  if (!d->is_folder) {
    vec_push(&it->files.paths, mem_strdup(d->path));
    return NULL;
  }
  struct path_list names = {0};
  shoal_status s = directory_list(d->path, &names);
  for (size_t i = 0; !s && i < names.paths.n; i++)
    if (str_ends(names.paths.at[i], ".snapshot"))
      vec_push(&it->files.paths, mem_printf("%s/%s", d->path, names.paths.at[i]));
  path_list_release(&names);
  return s;
}

/* The next record; *end when no file has one. */
static shoal_status next_record(struct stored_iter *it, const struct stored_dataset *d, bool *end) {
  for (;;) {
    if (!it->open) {
      *end = it->at >= it->files.paths.n;
      if (*end) return NULL;
      TRY(record_reader_open(&it->reader, it->files.paths.at[it->at], d->compression));
      it->at++;
      it->open = true;
    }
    shoal_status s = record_read(&it->reader, &it->record);
    if (shoal_status_code(s) != SHOAL_OUT_OF_RANGE) return s;
    shoal_status_free(s);
    close_file(it);
  }
}

static shoal_status decode(const struct stored_dataset *d, const struct text *record, int i, struct tensor *out) {
  TRY(tensor_proto_decode(record->at, record->n, out));
  struct shape shape = tensor_shape(out);
  if (out->dtype == d->head.types[i] && shape_compatible(&shape, &d->head.shapes[i])) return NULL;
  shoal_status s = INVALID("%s: component %d is %s of shape %s, not %s of shape %s", d->path, i,
                           dtype_tf_name((shoal_dtype)out->dtype), shape_str(&shape), dtype_tf_name(d->head.types[i]),
                           shape_str(&d->head.shapes[i]));
  tensor_release(out);
  return s;
}

static shoal_status next_element(struct stored_iter *it, const struct stored_dataset *d, struct tensor *out,
                                 bool *end) {
  for (int i = 0; i < d->head.n; i++) {
    shoal_status s = next_record(it, d, end);
    if (!s && *end && i) s = STATUS(SHOAL_DATA_LOSS, "%s ends within an element", d->path);
    if (!s && *end) return NULL;
    if (!s) s = decode(d, &it->record, i, &out[i]);
    if (s) {
      tensors_release(out, i);
      return s;
    }
  }
  return NULL;
}

static shoal_status stored_next(struct data_iterator *self, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct stored_iter *it = (struct stored_iter *)self;
  const struct stored_dataset *d = (const struct stored_dataset *)self->of;
  if (!it->listed) TRY(list_files(it, d));
  it->listed = true;
  for (; it->passed < d->first; it->passed++) {
    if (data_ended(ctx)) return data_why_ended(ctx);
    TRY(next_element(it, d, out, end));
    if (*end) return NULL;
    tensors_release(out, d->head.n);
  }
  return next_element(it, d, out, end);
}

static void stored_iter_free(struct data_iterator *self) {
  struct stored_iter *it = (struct stored_iter *)self;
  close_file(it);
  path_list_release(&it->files);
  counted_text_release(&it->record);
}

static const struct data_iterator_type stored_iter_type = {sizeof(struct stored_iter), stored_next, stored_iter_free};

static shoal_status stored_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&stored_iter_type, d);
  return NULL;
}

static int64_t stored_size(const struct dataset *d) { return SIZE_UNKNOWN; }
static void stored_free(struct dataset *d) { free(((struct stored_dataset *)d)->path); }

static const struct dataset_type stored_type = {"SnapshotReader", stored_iterate, stored_size, stored_free};

static struct stored_dataset *stored_new(const char *path, enum record_compression c, const struct element_spec *spec) {
  struct stored_dataset *d =
      (struct stored_dataset *)dataset_new(sizeof *d, &stored_type, spec->n, spec->types, spec->shapes, NULL, 0);
  d->path = mem_strdup(path);
  d->compression = c;
  return d;
}

struct dataset *dataset_snapshot_file(const char *path, enum record_compression c, const struct element_spec *spec) {
  return &stored_new(path, c, spec)->head;
}

struct dataset *dataset_snapshot_shard(const char *folder, enum record_compression c, const struct element_spec *spec,
                                       int64_t first) {
  struct stored_dataset *d = stored_new(folder, c, spec);
  d->is_folder = true;
  d->first = first;
  return &d->head;
}

shoal_status dataset_snapshot_shards(const char *run_folder, enum record_compression c, const struct element_spec *spec,
                                     struct dataset **out) {
  struct path_list names = {0};
  if (file_is_directory(run_folder)) TRY(directory_list(run_folder, &names)); /* of no elements there is none */
  shoal_dtype type = SHOAL_VARIANT;
  struct shape scalar = shape_scalar();
  struct dataset *all = elements_new(1, &type, &scalar);
  shoal_status s = NULL;
  for (size_t i = 0; !s && i < names.paths.n; i++) {
    if (!str_ends(names.paths.at[i], ".shard")) continue;
    char *folder = mem_printf("%s/%s", run_folder, names.paths.at[i]);
    struct tensor t;
    s = dataset_to_tensor(dataset_snapshot_shard(folder, c, spec, 0), &t);
    if (!s) elements_add(all, &t);
    free(folder);
  }
  path_list_release(&names);
  if (s) dataset_unref(all);
  else *out = all;
  return s;
}

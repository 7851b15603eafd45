/* Snapshots of datasets: writing and metadata; see snapshot.h. */
#include "data/snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/wire.h"
#include "proto/snapshot.wire.h"
#include "tensor/tensor_proto.h"

/* Each shard has a file open while its elements come: a function that names ever new ones must not take them all. */
enum { VERSION = 2, MAX_SHARDS = 512, MAX_METADATA = 1 << 20 };

struct snapshot_shard {
  int64_t number;
  struct record_writer file;
};

struct snapshot_writer {
  char *folder, *run_id, *hash;
  enum record_compression compression;
  int n;              /* components of an element */
  shoal_dtype *types; /* [n] */
  int64_t written;
  struct text record; /* reused */
  VEC(struct snapshot_shard) shards;
};

shoal_status snapshot_compression_parse(const char *name, enum record_compression *out) {
  if (!str_equal(name, "SNAPPY")) return record_compression_parse(name, out);
  *out = RECORD_SNAPPY;
  return NULL;
}

/* ---- metadata ---- */

shoal_status snapshot_read_metadata(const char *folder, struct snapshot_metadata *out, bool *there) {
  char *path = mem_printf("%s/snapshot.metadata", folder), *data = NULL;
  size_t n = 0;
  *out = (struct snapshot_metadata){0};
  *there = file_exists(path);
  shoal_status s = *there ? file_read(path, MAX_METADATA, &data, &n) : NULL;
  struct wire w = wire_from(data, n);
  struct wire_field f;
  enum wire_step step = WIRE_END;
  while (!s && data && (step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == SnapshotMetadataRecord_run_id) {
      free(out->run_id);
      out->run_id = mem_strndup((const char *)f.data, f.size);
    }
    if (f.tag == SnapshotMetadataRecord_version) out->version = (int64_t)f.value;
    if (f.tag == SnapshotMetadataRecord_num_elements) out->n_elements = (int64_t)f.value;
    if (f.tag == SnapshotMetadataRecord_finalized) out->finalized = f.value != 0;
  }
  bool sound = step == WIRE_END && out->run_id && !strchr(out->run_id, '/') && !str_equal(out->run_id, "..");
  if (!s && *there && !sound) s = STATUS(SHOAL_DATA_LOSS, "%s: no metadata of a snapshot", path);
  if (s) free(out->run_id), out->run_id = NULL;
  free(data);
  free(path);
  return s;
}

static shoal_status write_metadata(const struct snapshot_writer *w, bool finalized) {
  struct text t = {0}, types = {0};
  if (w->hash) put_SnapshotMetadataRecord_graph_hash(&t, w->hash);
  put_SnapshotMetadataRecord_run_id(&t, w->run_id);
  put_SnapshotMetadataRecord_creation_timestamp(&t, wall_micros());
  put_SnapshotMetadataRecord_version(&t, VERSION);
  for (int i = 0; i < w->n; i++) wire_put_varint(&types, (uint64_t)w->types[i]);
  put_SnapshotMetadataRecord_dtype_packed_n(&t, types.at, types.n);
  if (finalized) {
    if (w->written) put_SnapshotMetadataRecord_num_elements(&t, w->written);
    put_SnapshotMetadataRecord_finalized(&t, true);
  }
  char *path = mem_printf("%s/snapshot.metadata", w->folder);
  shoal_status s = file_write(path, t.at, t.n);
  free(path);
  text_release(&t);
  text_release(&types);
  return s;
}

/* ---- writing ---- */

shoal_status snapshot_writer_new(const char *folder, const char *hash, enum record_compression c,
                                 const struct dataset *elements, struct snapshot_writer **out) {
  struct snapshot_writer *w = mem_zalloc(1, sizeof *w);
  w->folder = mem_strdup(folder);
  uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id) id = (uint64_t)wall_micros();
  w->run_id = mem_printf("%" PRIu64, id);
  w->hash = hash ? mem_strdup(hash) : NULL;
  w->compression = c;
  w->n = elements->n;
  w->types = mem_zalloc((size_t)w->n, sizeof *w->types);
  for (int i = 0; i < w->n; i++) w->types[i] = elements->types[i];
  char *run = mem_printf("%s/%s", folder, w->run_id);
  shoal_status s = directory_make(run);
  free(run);
  if (!s) s = write_metadata(w, false);
  if (s) snapshot_writer_free(w);
  else *out = w;
  return s;
}

static shoal_status find_shard(struct snapshot_writer *w, int64_t number, struct snapshot_shard **out) {
  for (size_t i = 0; i < w->shards.n; i++)
    if (w->shards.at[i].number == number) {
      *out = &w->shards.at[i];
      return NULL;
    }
  if (w->shards.n >= MAX_SHARDS)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "More than %d shards of a snapshot are not supported", MAX_SHARDS);
  char *folder = mem_printf("%s/%s/%08" PRIu64 ".shard", w->folder, w->run_id, (uint64_t)number);
  char *path = mem_printf("%s/%08d.snapshot", folder, 0);
  struct snapshot_shard shard = {.number = number};
  shoal_status s = directory_make(folder);
  if (!s) s = record_writer_open(&shard.file, path, w->compression);
  free(folder);
  free(path);
  TRY(s);
  vec_push(&w->shards, shard);
  *out = &vec_last(&w->shards);
  return NULL;
}

shoal_status snapshot_write(struct snapshot_writer *w, int64_t number, const struct tensor *element) {
  struct snapshot_shard *shard;
  TRY(find_shard(w, number, &shard));
  for (int i = 0; i < w->n; i++) {
    vec_clear(&w->record);
    TRY(tensor_proto_encode(&element[i], &w->record));
    TRY(record_write(&shard->file, w->record.at, w->record.n));
  }
  w->written++;
  return NULL;
}

static shoal_status close_shards(struct snapshot_writer *w) {
  shoal_status s = NULL;
  for (size_t i = 0; i < w->shards.n; i++) status_merge(&s, record_writer_close(&w->shards.at[i].file));
  vec_clear(&w->shards);
  return s;
}

shoal_status snapshot_writer_finish(struct snapshot_writer *w) {
  TRY(close_shards(w));
  return write_metadata(w, true);
}

void snapshot_writer_free(struct snapshot_writer *w) {
  if (!w) return;
  shoal_status_free(close_shards(w));
  vec_release(&w->shards);
  text_release(&w->record);
  free(w->types);
  free(w->folder);
  free(w->run_id);
  free(w->hash);
  free(w);
}

/* Elements of datasets in files, as Dataset.save() and Dataset.snapshot() have them: TensorFlow's format, so that
 * either reads what the other wrote.
 *
 *   FOLDER/snapshot.metadata                        SnapshotMetadataRecord: 1 graph_hash, 2 run_id, 3 time in
 * microseconds, 4 version (2), 5 dtypes, 6 number of elements, 1000 finalized
 *   FOLDER/RUN/NNNNNNNN.shard/NNNNNNNN.snapshot     TFRecords, plain or packed: a TensorProto for each component of
 * each element; the first number is what shard_func said, the second counts the files of a shard
 *
 * The metadata is replaced when all is written: what it names is complete. */
#ifndef DATA_SNAPSHOT_H
#define DATA_SNAPSHOT_H

#include "data/dataset.h"
#include "data/record.h"

/* "SNAPPY", or what record_compression_parse knows. */
shoal_status snapshot_compression_parse(const char *name, enum record_compression *out);

struct snapshot_metadata {
  char *run_id; /* the caller frees it */
  int64_t version, n_elements;
  bool finalized;
};
/* *there is false when the folder has none. */
shoal_status snapshot_read_metadata(const char *folder, struct snapshot_metadata *out, bool *there);

/* One run of writing; used by one thread at a time. */
struct snapshot_writer;
/* Takes a folder of its own in FOLDER and says so in the metadata, not finalized. hash: of the pipeline, NULL: none. */
shoal_status snapshot_writer_new(const char *folder, const char *hash, enum record_compression c,
                                 const struct dataset *elements, struct snapshot_writer **out);
shoal_status snapshot_write(struct snapshot_writer *w, int64_t shard, const struct tensor *element);
/* Closes the files and finalizes the metadata; w is to be freed still. */
shoal_status snapshot_writer_finish(struct snapshot_writer *w);
void snapshot_writer_free(struct snapshot_writer *w);

/* The elements of one file, and of one shard's folder from number `first` on. */
struct dataset *dataset_snapshot_file(const char *path, enum record_compression c, const struct element_spec *spec);
struct dataset *dataset_snapshot_shard(const char *folder, enum record_compression c, const struct element_spec *spec,
                                       int64_t first);
/* A dataset whose elements are the datasets of the shards of a run, in order. */
shoal_status dataset_snapshot_shards(const char *run_folder, enum record_compression c, const struct element_spec *spec,
                                     struct dataset **out);

#endif

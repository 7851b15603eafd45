/* Checkpoints of TensorFlow's first format: one sorted string table that holds everything. The entry with the empty
 * key is a SavedTensorSlices with what there is (names, shapes, types, slices); every slice has an entry of its own
 * under its key (checkpoint/slice.h) with the values in a TensorProto that has neither type nor shape. */
#ifndef CHECKPOINT_SLICES_V1_H
#define CHECKPOINT_SLICES_V1_H

#include "base/strmap.h"
#include "checkpoint/slice.h"
#include "checkpoint/table.h"

/* ---- reading: all files that match a pattern, as one ---- */
struct v1_tensor {
  char *name;
  struct shape shape;
  shoal_dtype dtype;
  VEC(struct slice) slices;
  VEC(int) files; /* where slice i is */
};
struct v1_reader {
  struct strmap by_name; /* name -> struct v1_tensor * */
  VEC(struct table) files;
};
shoal_status v1_open(struct v1_reader *r, const char *pattern);
void v1_close(struct v1_reader *r);
const struct v1_tensor *v1_find(const struct v1_reader *r, const char *name, size_t n); /* NULL: none */
shoal_status v1_read(const struct v1_reader *r, const struct v1_tensor *t, const struct slice *want,
                     struct tensor *out);

/* ---- writing ---- */
struct v1_writer {
  VEC(struct v1_item *) items;
  struct strmap by_name;
  VEC(struct v1_tensor *) tensors;
};
shoal_status v1_writer_add(struct v1_writer *w, const char *name, size_t n, const struct shape *full,
                           const struct slice *s, const struct tensor *t);
/* Writes the file at once; frees w, also on an error. */
shoal_status v1_writer_finish(struct v1_writer *w, const char *path);
void v1_writer_abort(struct v1_writer *w);

#endif

/* Slices: the part of a tensor that a partitioned variable keeps in one place, its text in graphs, its message and
 * its key in checkpoints.
 *
 * Text, as SaveV2 and RestoreV2 take it: "" for a whole tensor, else "11 4 4,4:-", the full shape's dimensions and
 * for each dimension "start,length" or "-" for all of it. */
#ifndef CHECKPOINT_SLICE_H
#define CHECKPOINT_SLICE_H

#include "base/text.h"
#include "base/wire.h"
#include "tensor/tensor.h"

struct slice {
  int rank;
  int64_t start[SHOAL_MAX_RANK];
  int64_t length[SHOAL_MAX_RANK]; /* -1: the whole dimension */
};

struct slice slice_whole(int rank);
/* The text of a shape and a slice of it; *part is the slice's shape. */
shoal_status slice_parse(const char *text, size_t n, struct shape *full, struct slice *out, struct shape *part);
/* The shape of the slice of a tensor of shape full; an error when it does not fit. */
shoal_status slice_shape(const struct slice *s, const struct shape *full, struct shape *out);
/* Does it take in all of a tensor of that shape? */
bool slice_is_whole(const struct slice *s, const struct shape *full);
/* "4,4:-" */
void slice_print(const struct slice *s, struct text *out);

/* An error when two of these slices have elements in common, as only a damaged checkpoint has: the elements that none
 * of them has would not be missed. */
shoal_status slices_check_apart(const char *name, size_t name_n, const struct slice *s, size_t n,
                                const struct shape *full);
/* The common part of two slices of one shape, with every length known; false when there is none. */
bool slice_meet(const struct slice *a, const struct slice *b, const struct shape *full, struct slice *out);
/* Copies the elements that slices `from` and `to` of a tensor of shape full have in common between tensors that
 * hold just those slices. */
void slice_copy(const struct shape *full, const struct slice *from, const struct tensor *src, const struct slice *to,
                struct tensor *dst);

/* TensorSliceProto. */
void slice_encode(const struct slice *s, struct text *out);
bool slice_decode(const void *data, size_t n, struct slice *out);
/* The key of one slice in a checkpoint: sorted by name, then by place. */
void slice_key(const char *name, size_t n, const struct slice *s, struct text *out);

#endif

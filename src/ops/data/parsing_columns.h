/* What the ops that parse Examples share: columns (a feature to find and the form it takes in the output), a batch of
 * scanned messages, and the making of output tensors column by column. */
#ifndef OPS_DATA_PARSING_COLUMNS_H
#define OPS_DATA_PARSING_COLUMNS_H

#include "data/example.h"
#include "ops/text/string_in.h"

struct column {
  char *key;                 /* owned */
  shoal_dtype dtype;         /* int64, float32 or string */
  shoal_dtype splits;        /* ragged: int32 or int64 */
  struct shape shape;        /* dense: of one example; the first dimension may be -1 (as long as the longest, padded) */
  int64_t stride;            /* elements of a row: all, or those past the first dimension when that is -1 */
  const struct tensor *dflt; /* dense: for examples without the feature, or for padding; no elements: required */
  bool missing_ok;           /* feature lists: absent is empty */
};

struct columns {
  VEC(struct column) at;
  struct feature_index index;
};
/* Adds a column under key; the shape (dense only) is checked. */
shoal_status columns_add(struct columns *c, const char *key, size_t n, shoal_dtype dtype, const struct shape *shape,
                         const struct tensor *dflt);
void columns_release(struct columns *c);

/* A batch of examples, scanned: slot of column c of example i is slots[i * columns + c]. */
struct example_batch {
  const struct columns *columns;
  struct feature_slot *slots;
  int64_t n;
  bool scalar;                /* one example: outputs have no batch dimension */
  const struct tensor *names; /* strings, or NULL */
};

/* Finds the columns in n examples; b->slots is to be freed, whatever comes of it. */
shoal_status batch_scan(struct pool *pool, const struct tensor *serialized, struct example_batch *b);

/* Tensors (empty before) from column c. Errors name the example and the key. */
shoal_status column_dense(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *out);
shoal_status column_sparse(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *indices,
                           struct tensor *values, struct tensor *shape);
shoal_status column_ragged(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *values,
                           struct tensor *splits);
/* Is a dense column's default one that it can have? */
shoal_status column_check_default(const struct column *c);

/* The same where slots hold feature lists: a dimension of steps stands after that of the batch. */
shoal_status column_list_dense(struct kernel_ctx *ctx, int out, int lengths, const struct example_batch *b, size_t c);
shoal_status column_list_sparse(struct kernel_ctx *ctx, int indices, int values, int shape,
                                const struct example_batch *b, size_t c);
shoal_status column_list_ragged(struct kernel_ctx *ctx, int values, int outer, int inner, const struct example_batch *b,
                                size_t c);

/* "<unknown>" when the op was given none. Not terminated: %.*s */
const char *batch_name(const struct example_batch *b, int64_t i, int *n);
/* Element i of a splits tensor of either type. */
void set_split(struct tensor *t, int64_t i, int64_t v);

#endif

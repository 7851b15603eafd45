/* One use of columns in a graph: what was made of each column is made once, whoever asks for it. */
#ifndef COLUMNS_TRANSFORM_H
#define COLUMNS_TRANSFORM_H

#include "columns/column.h"

/* Ids as a sparse tensor, [batch, places] or [batch, time, places]; weights.node NULL: all count the same. */
struct column_ids {
  shoal_out indices, values, dense_shape, weights;
  bool sequence; /* of rank 3 */
};

struct transform {
  struct shoal_graph *g;
  const char *caller;
  const shoal_named_feature *features;
  int n;
  VEC(struct made_ids {
    const struct shoal_column *of;
    struct column_ids ids;
  })
  made;
  VEC(struct made_table {
    const char *name;
    shoal_partitioned table;
  })
  tables;                               /* shared ones */
  const shoal_partitioner *partitioner; /* NULL: variables are whole */
};

void transform_release(struct transform *t);
/* Of a column that gives ids. */
struct column_ids transform_ids(struct transform *t, const struct shoal_column *c);
/* Of a numeric or a bucketized column: [batch, elements], float32; the second as ranges' numbers, int32. */
shoal_out transform_numeric(struct transform *t, const struct shoal_column *c);
shoal_out transform_buckets(struct transform *t, const struct shoal_column *c);
/* A feature by its name; the graph gets the error where there is none. */
shoal_named_feature transform_feature(struct transform *t, const char *key);

/* ids[batch, places] into rows of a table, combined; [batch, dimension], or [batch, time, dimension]. */
shoal_out ids_lookup(struct shoal_graph *g, const shoal_partitioned *table, struct column_ids ids, const char *combiner,
                     double max_norm);
/* How often each id is there (or the sum of its weights): [batch, buckets], or [batch, time, buckets]. */
shoal_out ids_count(struct shoal_graph *g, struct column_ids ids, int64_t buckets);
/* How many places of time each row has, in groups of so many places: int64 [batch]. */
shoal_out ids_lengths(struct shoal_graph *g, shoal_out indices, shoal_out dense_shape, int64_t group);

/* Column i of a matrix, as a vector; the first so many elements of a vector; several vectors one after another. */
shoal_out column_at(struct shoal_graph *g, shoal_out matrix, int i);
shoal_out vector_part(struct shoal_graph *g, shoal_out v, int64_t begin, int64_t size);
shoal_out vectors_joined(struct shoal_graph *g, const shoal_out *v, int n, int axis);
shoal_out shape_as_int64(struct shoal_graph *g, shoal_out x);
shoal_out reshaped(struct shoal_graph *g, shoal_out x, const int64_t *dims, int n);
/* The elements of a vector multiplied: [1]. */
shoal_out vector_product(struct shoal_graph *g, shoal_out v);
/* Ids in another shape: that of two vectors, one after the other. */
struct column_ids ids_reshaped(struct shoal_graph *g, struct column_ids ids, shoal_out first, shoal_out then);

#endif

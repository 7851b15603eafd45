/* What a feature column is. All of it is said when it is made, nothing in it changes; what graphs are made of it is in
 * transform.c and layers.c. */
#ifndef COLUMNS_COLUMN_H
#define COLUMNS_COLUMN_H

#include "base/vec.h"
#include "graph/builder.h"
#include "shoal/columns.h"

enum column_kind {
  COLUMN_NUMERIC,
  COLUMN_SEQUENCE_NUMERIC,
  COLUMN_BUCKETIZED,
  COLUMN_VOCABULARY,
  COLUMN_HASHED,
  COLUMN_IDENTITY,
  COLUMN_CROSSED,
  COLUMN_FEATURE,
  COLUMN_WEIGHTED,
  COLUMN_SEQUENCE,
  COLUMN_INDICATOR,
  COLUMN_EMBEDDING,
};

struct shoal_column {
  shoal_columns *set;
  enum column_kind kind;
  char *name;
  char *key;                      /* the feature it is of; of a weighted column, that of the weights. NULL: none */
  shoal_dtype dtype;              /* that feature's, in Examples */
  const struct shoal_column **of; /* [n_of] the columns it is made of */
  int n_of;
  int64_t buckets; /* of categories: how many ids there are */
  /* numeric */
  int64_t dims[SHOAL_MAX_RANK];
  int rank;
  int64_t elements;
  bool has_default;
  double default_value;
  shoal_normalizer *normalizer;
  void *arg;
  /* bucketized */
  float *bounds;
  int n_bounds;
  /* vocabulary: words, or numbers, or a file's path */
  char **words;
  int64_t *numbers;
  char *path;
  int64_t n_words, oov_buckets;
  int64_t default_id; /* identity too; -1: none */
  uint64_t hash_key;  /* crossed */
  /* embedding */
  int64_t dimension;
  const char *combiner;
  double max_norm, stddev;
  bool untrained;
  char *table; /* the shared one's name; NULL: its own */
};

struct shoal_columns {
  VEC(struct shoal_column *) all;
  shoal_status error;
};

/* Those that give ids. */
static inline bool column_is_category(const struct shoal_column *c) {
  return c->kind >= COLUMN_BUCKETIZED && c->kind <= COLUMN_SEQUENCE && c->kind != COLUMN_FEATURE;
}
static inline bool column_is_sequence(const struct shoal_column *c) {
  return c->kind == COLUMN_SEQUENCE || c->kind == COLUMN_SEQUENCE_NUMERIC ||
         (c->kind >= COLUMN_INDICATOR && c->of[0]->kind == COLUMN_SEQUENCE);
}
/* "a numeric column" and so on. */
const char *column_kind_name(const struct shoal_column *c);
/* A combiner of this name (NULL: the usual one, the mean), as a text that stays; NULL: none is known by it. */
const char *column_combiner(const char *name);

/* The mistake of a column's set, or one of the array itself. */
shoal_status columns_check(const char *caller, const struct shoal_column *const *columns, int n);
/* The columns in the order of their names, for the caller to free. Two of one name are an error. */
shoal_status columns_sorted(const char *caller, const struct shoal_column *const *columns, int n,
                            const struct shoal_column ***out);

#endif

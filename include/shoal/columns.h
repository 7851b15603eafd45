/* Feature columns: what a model is told of a table's columns, and how it makes numbers of them. As tf.feature_column
 * has them: the same values for the same input, and the same names of variables.
 *
 *   shoal_columns *c = shoal_columns_new();
 *   const shoal_column *age = shoal_column_numeric(c, "age", NULL);
 *   const shoal_column *job =
 *       shoal_column_vocabulary(c, "job", SHOAL_OPTIONS(shoal_vocabulary, .words = jobs, .n = 3));
 *   const shoal_column *deep[] = {
 *       age, shoal_column_embedding(c, job, SHOAL_OPTIONS(shoal_embedding_options, .dimension = 8))};
 *   shoal_out x = shoal_input_layer(g, features, 2, deep, 2, NULL);
 *
 * Columns belong to their set, which keeps the first mistake, as graphs do: whoever uses columns of a set with a
 * mistake gets it. docs/estimators.md tells the rest. */
#ifndef SHOAL_COLUMNS_H
#define SHOAL_COLUMNS_H

#include <shoal/dataset.h>
#include <shoal/replicate.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_columns shoal_columns;
typedef struct shoal_column shoal_column;

SHOAL_API shoal_columns *shoal_columns_new(void);
/* With all of its columns; graphs made of them need them no longer. */
SHOAL_API void shoal_columns_free(shoal_columns *c);
/* The first mistake, or NULL; the set keeps it. */
SHOAL_API shoal_status shoal_columns_error(const shoal_columns *c);
/* What a column is called: "age", "age_bucketized", "age_bucketized_X_job", "job_embedding". */
SHOAL_API const char *shoal_column_name(const shoal_column *column);

/* ---- numbers ---- */

typedef shoal_out shoal_normalizer(shoal_graph *g, shoal_out x, void *arg);
/* Zero-filled is the default. */
typedef struct shoal_numeric_options {
  size_t size;                  /* shoal/options.h */
  shoal_dims shape;             /* of one example; rank 0: one number */
  shoal_dtype dtype;            /* in Examples; 0: SHOAL_FLOAT32 */
  double default_value;         /* for Examples without it, where has_default says so; sequences: behind their ends */
  bool has_default;             /* else each Example must have it */
  shoal_normalizer *normalizer; /* what is done to it first; NULL: nothing */
  void *arg;
} shoal_numeric_options;
SHOAL_API const shoal_column *shoal_column_numeric(shoal_columns *c, const char *key,
                                                   const shoal_numeric_options *options);
/* In which of n + 1 ranges the numbers of a numeric column of rank 0 or 1 are: bounds[n] rise, and belong to the range
 * above. */
SHOAL_API const shoal_column *shoal_column_bucketized(shoal_columns *c, const shoal_column *numeric,
                                                      const float *bounds, int n);

/* ---- categories: what makes ids of words or numbers ---- */

/* Those of a list or a file, each once; a word's id is its place there. */
typedef struct shoal_vocabulary {
  size_t size;              /* shoal/options.h */
  const char *const *words; /* [n] or */
  const int64_t *numbers;   /* [n] or */
  const char *path;         /* a file with one on each line. It is opened now, and whenever tables are initialized */
  int64_t n;                /* of a file: how many of its lines; 0: all */
  int64_t oov_buckets;      /* all others are hashed to so many more ids; */
  int64_t default_id;       /* or, where has_default_id says so, have this one; else they are left out */
  bool has_default_id;
  bool integers; /* of a file: the feature is int64 */
} shoal_vocabulary;
SHOAL_API const shoal_column *shoal_column_vocabulary(shoal_columns *c, const char *key, const shoal_vocabulary *v);
/* By hashing. dtype: SHOAL_STRING or SHOAL_INT64. */
SHOAL_API const shoal_column *shoal_column_hashed(shoal_columns *c, const char *key, int64_t buckets,
                                                  shoal_dtype dtype);
/* Integers that are ids. One outside of 0 to buckets - 1 has the id default_id; default_id below 0: such ones stay as
 * they are: an indicator has no place for them, and to a table of weights or rows they are an error of the step. */
SHOAL_API const shoal_column *shoal_column_identity(shoal_columns *c, const char *key, int64_t buckets,
                                                    int64_t default_id);
/* Combinations of several, hashed: bucketized columns, categories (no hashed ones), and features as they are. hash_key
 * 0: TensorFlow's. */
SHOAL_API const shoal_column *shoal_column_crossed(shoal_columns *c, const shoal_column *const *of, int n,
                                                   int64_t buckets, uint64_t hash_key);
/* A feature (strings or integers) as it is; for shoal_column_crossed alone. */
SHOAL_API const shoal_column *shoal_column_feature(shoal_columns *c, const char *key, shoal_dtype dtype);
/* Categories of which each has a weight in another feature. dtype 0: SHOAL_FLOAT32. */
SHOAL_API const shoal_column *shoal_column_weighted(shoal_columns *c, const shoal_column *category, const char *weights,
                                                    shoal_dtype dtype);

/* ---- numbers made of categories ---- */

/* How often each id is there. */
SHOAL_API const shoal_column *shoal_column_indicator(shoal_columns *c, const shoal_column *category);
typedef struct shoal_embedding_options {
  size_t size; /* shoal/options.h */
  int64_t dimension;
  const char *combiner; /* of several ids: "mean" (NULL), "sqrtn", "sum" */
  double max_norm;      /* rows are scaled to at most this; 0: as they are */
  double stddev;        /* they begin as a truncated normal with this deviation; 0: 1 / sqrt(dimension) */
  bool untrained;
  const char *shared_name; /* shoal_column_shared_embeddings: of the table; NULL: made of the columns' names */
} shoal_embedding_options;
/* The mean of the rows of its ids in a table that is learned. */
SHOAL_API const shoal_column *shoal_column_embedding(shoal_columns *c, const shoal_column *category,
                                                     const shoal_embedding_options *options);
/* n columns with one table. All categories have as many ids. */
SHOAL_API void shoal_column_shared_embeddings(shoal_columns *c, const shoal_column *const *categories, int n,
                                              const shoal_embedding_options *options, const shoal_column **out);

/* ---- sequences ---- */

/* A category of which each place is a step of time, for embedding and indicator columns. */
SHOAL_API const shoal_column *shoal_column_sequence(shoal_columns *c, const shoal_column *category);
SHOAL_API const shoal_column *shoal_column_sequence_numeric(shoal_columns *c, const char *key,
                                                            const shoal_numeric_options *options);

/* ---- use ---- */

/* A feature of a batch: dense, [batch] or [batch, ...]; or sparse, where indices and dense_shape are there. */
typedef struct shoal_named_feature {
  const char *name;
  shoal_out values, indices, dense_shape;
} shoal_named_feature;

typedef struct shoal_column_layer_options {
  size_t size;       /* shoal/options.h */
  const char *scope; /* of its variables; NULL: "input_layer", "linear_model", "sequence_input_layer" */
  const shoal_partitioner *partitioner; /* tables and weights are made in parts; NULL: whole */
  int64_t units;                        /* shoal_linear_model: numbers for each example; 0: 1 */
  const char *combiner;                 /* shoal_linear_model: of several ids; NULL: "sum" */
} shoal_column_layer_options;
/* The columns (numeric, bucketized, indicator, embedding) side by side, in the order of their names: [batch, width]. */
SHOAL_API shoal_out shoal_input_layer(shoal_graph *g, const shoal_named_feature *features, int n,
                                      const shoal_column *const *columns, int n_columns,
                                      const shoal_column_layer_options *options);
/* The sum of a weight for each id, of numbers times weights, and of a bias: [batch, units]. */
SHOAL_API shoal_out shoal_linear_model(shoal_graph *g, const shoal_named_feature *features, int n,
                                       const shoal_column *const *columns, int n_columns,
                                       const shoal_column_layer_options *options);
/* Columns of sequences: [batch, time, width], and *lengths (int64 [batch]), or NULL. */
SHOAL_API shoal_out shoal_sequence_input_layer(shoal_graph *g, const shoal_named_feature *features, int n,
                                               const shoal_column *const *columns, int n_columns,
                                               const shoal_column_layer_options *options, shoal_out *lengths);

/* What Examples must have for these columns: features in the order of their names, each once, at most max; returns how
 * many there are, 0 where the graph has an error. Names live as long as the columns. */
SHOAL_API int shoal_columns_parse_spec(shoal_graph *g, const shoal_column *const *columns, int n, shoal_feature *out,
                                       int max);
/* The components of such features, as shoal_parse_example_features and datasets give them, under their names: out[n].
 * Returns how many components were used. */
SHOAL_API int shoal_features_of(shoal_graph *g, const shoal_feature *features, int n, const shoal_out *components,
                                shoal_named_feature *out);

#ifdef __cplusplus
}
#endif
#endif

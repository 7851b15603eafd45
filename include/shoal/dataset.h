/* Datasets: where the elements of a training come from, what is done to them, and in which order they come. As tf.data
 * has them, and made of its ops: a graph with datasets runs on TensorFlow's servers too.
 *
 *   shoal_out d = shoal_dataset_tfrecord(g, shoal_matching(g, "data/train-*.tfrecord"), NULL);
 *   d = shoal_dataset_shuffle(g, d, 10000, 42, NULL);
 *   d = shoal_dataset_parse_example(g, d, features, 2, NULL);
 *   d = shoal_dataset_batch(g, d, 64, true);
 *   d = shoal_dataset_prefetch(g, d, 2);
 *   shoal_out in[2];
 *   shoal_dataset_next(g, d, in, 2, SHOAL_OPTIONS(shoal_next_options, .saved = true, .worker = task));
 *
 * A dataset is an output of the graph like any other; an element of it is a tuple of tensors, its components. in[0] and
 * in[1] are another element's in every step. docs/datasets.md tells the rest. */
#ifndef SHOAL_DATASET_H
#define SHOAL_DATASET_H

#include <shoal/function.h>
#include <shoal/input.h>
#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_MAX_COMPONENTS 64
/* For what is done by several threads, or kept ahead: as many as there are processors. */
#define SHOAL_AUTO (-1)
/* As a seed: another order in every run. */
#define SHOAL_ANY_SEED INT64_MIN

/* ---- sources ---- */

/* One element, of these components. */
SHOAL_API shoal_out shoal_dataset_from_tensors(shoal_graph *g, const shoal_out *components, int n);
/* An element for each row: all components have as many. */
SHOAL_API shoal_out shoal_dataset_tensor_slices(shoal_graph *g, const shoal_out *components, int n);
/* int64 scalars from start to below stop (above, where step is negative). */
SHOAL_API shoal_out shoal_dataset_range(shoal_graph *g, int64_t start, int64_t stop, int64_t step);
/* Elements that the program makes: fill(arg, position, values) gives that of each position, from 0 on, and
 * OUT_OF_RANGE ends them. It is called in this process alone, by one thread at a time for each iterator; elements that
 * are skipped are never asked for. types, shapes: [n]. */
SHOAL_API shoal_out shoal_dataset_from_callback(shoal_graph *g, shoal_input_fill *fill, void *arg,
                                                const shoal_dtype *types, const shoal_dims *shapes, int n);
/* The rows of IDX files (MNIST's format, plain or gzipped), a component for each file. Headers are read now. */
SHOAL_API shoal_out shoal_dataset_idx(shoal_graph *g, const char *const *paths, int n);

/* The names of the files that match a pattern, sorted: a vector. When it runs there must be some. */
SHOAL_API shoal_out shoal_matching(shoal_graph *g, const char *pattern);
/* The same as a dataset, shuffled by seed as tf.data.Dataset.list_files does; SHOAL_IN_ORDER: sorted. */
#define SHOAL_IN_ORDER (INT64_MIN + 1)
SHOAL_API shoal_out shoal_dataset_files(shoal_graph *g, const char *pattern, int64_t seed);

typedef struct shoal_file_options {
  size_t size;             /* shoal/options.h */
  const char *compression; /* "GZIP", "ZLIB"; NULL: none */
  int64_t buffer;          /* bytes read at a time; 0: the default. TensorFlow heeds it, Shoal has its own */
} shoal_file_options;
/* files: a string or a vector of them, one file after the other. Elements are strings: lines without their ends;
 * records. */
SHOAL_API shoal_out shoal_dataset_text_lines(shoal_graph *g, shoal_out files, const shoal_file_options *options);
SHOAL_API shoal_out shoal_dataset_tfrecord(shoal_graph *g, shoal_out files, const shoal_file_options *options);

typedef struct shoal_csv_options {
  size_t size; /* shoal/options.h */
  const char *compression;
  bool header;           /* the first line of each file is none of them */
  bool no_quotes;        /* " is a character like others */
  const char *delimiter; /* NULL: "," */
  const char *na_value;  /* beside nothing, what stands for a missing value */
  const int64_t *select; /* which columns, from 0, in rising order; NULL: all */
  int n_select;
} shoal_csv_options;
/* A component for each column: what stands there where it is missing says of which type it is. */
SHOAL_API shoal_out shoal_dataset_csv(shoal_graph *g, shoal_out files, const shoal_out *defaults, int n,
                                      const shoal_csv_options *options);
/* As a default: a column that must not be missing. */
SHOAL_API shoal_out shoal_csv_required(shoal_graph *g, shoal_dtype dtype);

/* ---- Examples ---- */

typedef enum shoal_feature_kind {
  SHOAL_FEATURE_FIXED,  /* one component of that shape; its first dimension may be -1: padded with the default */
  SHOAL_FEATURE_RAGGED, /* two: all values, and where each example's begin and the last one's end (int64) */
  SHOAL_FEATURE_SPARSE, /* three: indices, values, dense shape */
} shoal_feature_kind;

typedef struct shoal_feature {
  const char *name;
  shoal_dtype dtype; /* SHOAL_FLOAT32, SHOAL_INT64, SHOAL_STRING */
  shoal_feature_kind kind;
  shoal_dims shape;        /* fixed alone. (In C++ `auto s = SHOAL_SHAPE(784)` keeps one as long as a table needs it) */
  shoal_out default_value; /* fixed: for examples without it; node NULL: each must have it */
} shoal_feature;

/* Serialized tf.Examples, a string or a vector of them, as the components of these features in their order; returns how
 * many. out: room for SHOAL_MAX_COMPONENTS. */
SHOAL_API int shoal_parse_example_features(shoal_graph *g, shoal_out serialized, const shoal_feature *features, int n,
                                           shoal_out *out);
typedef struct shoal_map_options {
  size_t size;      /* shoal/options.h */
  int64_t parallel; /* calls at a time; SHOAL_AUTO: as many as processors; 0: one after another */
  bool unordered;   /* elements may come in the order in which they are ready: none waits for a slow one. A saved place
                     * is a number of elements: of which, is not sure then */
} shoal_map_options;
/* The same for each element of a dataset of strings, or of batches of them, which is faster. */
SHOAL_API shoal_out shoal_dataset_parse_example(shoal_graph *g, shoal_out d, const shoal_feature *features, int n,
                                                const shoal_map_options *options);

/* ---- functions of elements ---- */

/* The body of a function of an element of d: in[n] are its components. To be ended by shoal_function_end:
 *
 *   shoal_out x[2];
 *   shoal_graph *f = shoal_dataset_function(g, d, NULL, x, 2);
 *   shoal_function_output(f, shoal_cast(f, x[0], SHOAL_FLOAT32), NULL);
 *   shoal_function_output(f, x[1], NULL);
 *   d = shoal_dataset_map(g, d, shoal_function_end(f), NULL);
 */
SHOAL_API shoal_graph *shoal_dataset_function(shoal_graph *g, shoal_out d, const char *name, shoal_out *in, int n);
/* f's outputs are the new element. */
SHOAL_API shoal_out shoal_dataset_map(shoal_graph *g, shoal_out d, const shoal_function *f,
                                      const shoal_map_options *options);
/* Those for which f says true. */
SHOAL_API shoal_out shoal_dataset_filter(shoal_graph *g, shoal_out d, const shoal_function *f);
/* f makes a dataset of each element: all of them one after the other; or from several in turn. */
SHOAL_API shoal_out shoal_dataset_flat_map(shoal_graph *g, shoal_out d, const shoal_function *f);
typedef struct shoal_interleave_options {
  size_t size;      /* shoal/options.h */
  int64_t cycle;    /* datasets in turn; 0: as many as processors */
  int64_t block;    /* elements from each at a time; 0: one */
  int64_t parallel; /* as in shoal_map_options */
  bool unordered;
} shoal_interleave_options;
SHOAL_API shoal_out shoal_dataset_interleave(shoal_graph *g, shoal_out d, const shoal_function *f,
                                             const shoal_interleave_options *options);

/* ---- batches ---- */

/* So many elements as one, with a dimension more; the last may be smaller, or is left out. */
SHOAL_API shoal_out shoal_dataset_batch(shoal_graph *g, shoal_out d, int64_t rows, bool drop_remainder);
typedef struct shoal_padded_options {
  size_t size;              /* shoal/options.h */
  const shoal_dims *shapes; /* [components] that each is padded to; -1: as the largest of the batch. NULL: all so */
  const shoal_out *values;  /* [components] to pad with, scalars; NULL, or node NULL: zero, or "" */
  bool drop_remainder;
} shoal_padded_options;
SHOAL_API shoal_out shoal_dataset_padded_batch(shoal_graph *g, shoal_out d, int64_t rows,
                                               const shoal_padded_options *options);
/* Components with dimensions become two: all rows, and where each element's begin and the last one's end. */
SHOAL_API shoal_out shoal_dataset_ragged_batch(shoal_graph *g, shoal_out d, int64_t rows, bool drop_remainder);
/* An element for each row. */
SHOAL_API shoal_out shoal_dataset_unbatch(shoal_graph *g, shoal_out d);

/* ---- order and number ---- */

typedef struct shoal_shuffle_options {
  size_t size;       /* shoal/options.h */
  bool no_reshuffle; /* the same order in every repetition */
} shoal_shuffle_options;
/* Draws from a buffer of so many elements. The order for a seed is TensorFlow's. */
SHOAL_API shoal_out shoal_dataset_shuffle(shoal_graph *g, shoal_out d, int64_t buffer, int64_t seed,
                                          const shoal_shuffle_options *options);
SHOAL_API shoal_out shoal_dataset_repeat(shoal_graph *g, shoal_out d, int64_t times); /* below 0: for ever */
SHOAL_API shoal_out shoal_dataset_take(shoal_graph *g, shoal_out d, int64_t n);       /* below 0: all */
/* Without the first n. They are not made where that can be helped: no function is called for them. */
SHOAL_API shoal_out shoal_dataset_skip(shoal_graph *g, shoal_out d, int64_t n);
/* Element index, and each shards-th after it. */
SHOAL_API shoal_out shoal_dataset_shard(shoal_graph *g, shoal_out d, int64_t shards, int64_t index);
SHOAL_API shoal_out shoal_dataset_concatenate(shoal_graph *g, shoal_out a, shoal_out b);
/* Components of all, side by side, as long as the shortest has some. */
SHOAL_API shoal_out shoal_dataset_zip(shoal_graph *g, const shoal_out *datasets, int n);
/* Before each element its number, from start on. */
SHOAL_API shoal_out shoal_dataset_enumerate(shoal_graph *g, shoal_out d, int64_t start);
/* Keeps so many elements ready, made by a thread of its own. */
SHOAL_API shoal_out shoal_dataset_prefetch(shoal_graph *g, shoal_out d, int64_t elements);
/* What the first walk to the end gave, for all others: in memory (path NULL), or in files of that prefix. */
SHOAL_API shoal_out shoal_dataset_cache(shoal_graph *g, shoal_out d, const char *path);

/* ---- in files ---- */

typedef struct shoal_saved_options {
  size_t size;             /* shoal/options.h */
  const char *compression; /* "GZIP", "SNAPPY"; NULL: none */
} shoal_saved_options;
/* An op that writes all elements of d to files in a folder, as tf.data.Dataset.save does. */
SHOAL_API shoal_op *shoal_dataset_save(shoal_graph *g, shoal_out d, const char *path,
                                       const shoal_saved_options *options);
/* What was saved there, by Shoal or TensorFlow, with the same compression; types and shapes of the n components are
 * those it was saved with. The folder is to be there when the iterator begins. */
SHOAL_API shoal_out shoal_dataset_load(shoal_graph *g, const char *path, const shoal_dtype *types,
                                       const shoal_dims *shapes, int n, const shoal_saved_options *options);
/* What the first walk to the end gave, for all others, of later programs too that make the same dataset: in a folder of
 * its own in this one. */
SHOAL_API shoal_out shoal_dataset_snapshot(shoal_graph *g, shoal_out d, const char *path,
                                           const shoal_saved_options *options);

/* ---- datasets of datasets ---- */

typedef struct shoal_window_options {
  size_t size;    /* shoal/options.h */
  int64_t shift;  /* from one window to the next; 0: as many as it has */
  int64_t stride; /* between the elements of one; 0: 1 */
  bool drop_remainder;
} shoal_window_options;
/* Windows of so many elements: each component is a dataset of them. In shoal_dataset_function's body they can be used
 * as datasets; shoal_dataset_flat_map makes elements of them again. */
SHOAL_API shoal_out shoal_dataset_window(shoal_graph *g, shoal_out d, int64_t elements,
                                         const shoal_window_options *options);
/* The body of a function of a window of d: its key (int64) and, as a dataset, its elements. */
SHOAL_API shoal_graph *shoal_dataset_window_function(shoal_graph *g, shoal_out d, const char *name, shoal_out *key,
                                                     shoal_out *window);
/* key(element) says an int64; each time there are so many of one key, or at the end, reduce(key, window) makes a
 * dataset of them. */
SHOAL_API shoal_out shoal_dataset_group_by_window(shoal_graph *g, shoal_out d, const shoal_function *key,
                                                  const shoal_function *reduce, int64_t elements);
typedef struct shoal_length_options {
  size_t size;           /* shoal/options.h */
  const int64_t *bounds; /* [n_bounds] rising: bucket i has lengths below bounds[i], the last one the others */
  int n_bounds;
  const int64_t *rows;      /* [n_bounds + 1] of a batch in each bucket */
  int component;            /* whose first dimension is the length */
  const shoal_dims *shapes; /* as in shoal_padded_options */
  const shoal_out *values;
  bool drop_remainder;
} shoal_length_options;
/* Padded batches of elements that are about as long: tf.data's bucket_by_sequence_length. */
SHOAL_API shoal_out shoal_dataset_group_by_length(shoal_graph *g, shoal_out d, const shoal_length_options *options);

/* ---- walking ---- */

/* How many components d's elements have; types[] (room for SHOAL_MAX_COMPONENTS) may be NULL. 0: d is no dataset. */
SHOAL_API int shoal_dataset_components(shoal_out d, shoal_dtype *types);

typedef struct shoal_next_options {
  size_t size; /* shoal/options.h */
  bool saved;  /* how many elements were taken is kept in checkpoints, and a run that goes on begins behind them */
  int worker;  /* whose place that is (shoal/input.h) */
} shoal_next_options;
/* out[n]: the components of the next element, in every step that uses one of them; behind the last OUT_OF_RANGE, which
 * ends a training session. Training sessions begin the iterator by themselves (unless a scaffold has a local_init_op,
 * which is to run it then), other sessions by the op returned. */
SHOAL_API shoal_op *shoal_dataset_next(shoal_graph *g, shoal_out d, shoal_out *out, int n,
                                       const shoal_next_options *options);

/* The elements themselves, one after the other, for programs that want no graph. g must outlive it. */
typedef struct shoal_elements shoal_elements;
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_elements_open(shoal_graph *g, shoal_out d,
                                                            const shoal_session_options *options, shoal_elements **out);
/* values: room for as many as there are components, new references. OUT_OF_RANGE behind the last. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_elements_next(shoal_elements *e, shoal_tensor **values);
/* From the first one again. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_elements_rewind(shoal_elements *e);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_elements_close(shoal_elements *e);

#ifdef __cplusplus
}
#endif
#endif

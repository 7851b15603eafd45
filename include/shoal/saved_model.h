/* SavedModels: a graph with its variables, the files it needs, and the questions it answers (signatures), in a folder.
 * TensorFlow's, of either generation, are read by what both have: the graph, the saver, the op that initializes. Those
 * written here are read by tf.saved_model.load, the loaders of version 1, TensorFlow Serving and saved_model_cli.
 *
 *   shoal_saved_model *m;
 *   shoal_saved_model_load("exported/1", NULL, NULL, &m);
 *   shoal_tensor *answers[1];
 *   shoal_saved_model_run(m, "serving_default", (const char *[]){"images"}, &images, 1,
 *                         (const char *[]){"classes"}, answers, 1);
 */
#ifndef SHOAL_SAVED_MODEL_H
#define SHOAL_SAVED_MODEL_H

#include <shoal/saver.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_saved_model shoal_saved_model;

/* An input or an output of a signature. */
typedef struct shoal_signature_value {
  const char *key; /* "images" */
  const char
      *tensor; /* "x:0"; NULL: it is sparse, or made of several tensors, and cannot be fed or fetched by its key */
  shoal_dtype dtype;
  int rank; /* -1: unknown; a dimension of -1: unknown */
  const int64_t *dims;
  shoal_tensor *default_value; /* of an input that may be left out; NULL: it must be given */
} shoal_signature_value;

/* What a model may be asked. Inputs and outputs are in the order of their keys. */
typedef struct shoal_signature {
  const char *key, *method; /* "serving_default", "tensorflow/serving/predict" */
  const shoal_signature_value *const *inputs;
  int n_inputs;
  const shoal_signature_value *const *outputs;
  int n_outputs;
} shoal_signature;

/* Reads the graph of DIR that has these tags, all of them and no others ("serve,gpu"; NULL: "serve"), opens a session
 * on it, restores its variables and initializes its tables. options may be NULL. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saved_model_load(const char *dir, const char *tags,
                                                               const shoal_session_options *options,
                                                               shoal_saved_model **out);
/* Closes its session, too. m may be NULL. */
SHOAL_API void shoal_saved_model_free(shoal_saved_model *m);

/* They stay the model's. */
SHOAL_API shoal_graph *shoal_saved_model_graph(const shoal_saved_model *m);
SHOAL_API shoal_session *shoal_saved_model_session(const shoal_saved_model *m);
/* By number, in the order of their keys, NULL behind the last; by key, NULL when there is none. They stay the model's.
 */
SHOAL_API const shoal_signature *shoal_saved_model_signature_at(const shoal_saved_model *m, int i);
SHOAL_API const shoal_signature *shoal_saved_model_signature(const shoal_saved_model *m, const char *key);

/* Asks a signature (NULL: "serving_default"): values for its inputs by key, in any order, at least for those without a
 * default; outputs by key, for which the caller then has references. A wrong key, dtype or shape is an error that names
 * it. Of many threads at once, too. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saved_model_run(const shoal_saved_model *m, const char *signature,
                                                              const char *const *keys, shoal_tensor *const *values,
                                                              int n, const char *const *output_keys,
                                                              shoal_tensor **outputs, int n_outputs);

/* What a signature (NULL: "serving_default") needs, as a graph that stands alone: calls inlined, the variables'
 * values as constants, datasets with their functions, the rest left out; inputs and outputs have the names they had.
 * For shoal_graph_export(), and for shoal_graph_free() when it is done with. What sets variables, or uses tables,
 * cannot be frozen, and is named. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saved_model_freeze(const shoal_saved_model *m, const char *signature,
                                                                 shoal_graph **out);

/* ---- writing ---- */

typedef struct shoal_export_value {
  const char *key;
  shoal_out tensor;
} shoal_export_value;

typedef struct shoal_export_signature {
  const char *key;    /* NULL: "serving_default" */
  const char *method; /* NULL: "tensorflow/serving/predict" */
  const shoal_export_value *inputs, *outputs;
  int n_inputs, n_outputs;
} shoal_export_signature;

/* A file that the model needs: copied into the folder, and fed as its path there whenever the model is loaded. */
typedef struct shoal_export_asset {
  const char *path;
  shoal_out tensor; /* the string that holds the path */
} shoal_export_asset;

/* Zero-filled is the default. */
typedef struct shoal_export_options {
  size_t size;      /* shoal/options.h */
  const char *tags; /* "serve" */
  const shoal_export_signature *signatures;
  int n_signatures;
  size_t signature_size; /* of each element; 0: as version 0.2 has them */
  const shoal_export_asset *assets;
  int n_assets;
  size_t asset_size;       /* likewise */
  const shoal_op *main_op; /* run when the model is loaded, behind the variables: what initializes tables */
  shoal_saver *saver; /* of the variables to save; NULL: all of the graph, to which a saver is then added, if any */
} shoal_export_options;

/* Writes a SavedModel with the variables' values of a session as the folder DIR, which must not be there yet, or be
 * empty: it appears whole or not at all. tf.saved_model.load finds variables and functions in it, where all variables
 * are resources, main_op fills tables alone and inputs have keys that Python can call parameters by; else what it makes
 * of a model of version 1. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saved_model_save(shoal_graph *g, shoal_session *s, const char *dir,
                                                               const shoal_export_options *options);

#ifdef __cplusplus
}
#endif
#endif

/* A loaded SavedModel, for those who make something of it. */
#ifndef SAVED_MODEL_MODEL_H
#define SAVED_MODEL_MODEL_H

#include "saved_model/meta.h"

struct shoal_saved_model {
  struct meta_file file;
  const struct meta_model *meta;
  char *dir;
  shoal_graph *graph;
  shoal_session *session;
};

/* NULL: "serving_default". The error names those that are near. */
shoal_status model_signature(const shoal_saved_model *m, const char *key, const shoal_signature **out);

/* As shoal_saved_model_run, for a signature of the model and with options (NULL: none). */
shoal_status saved_model_ask(const shoal_saved_model *m, const shoal_signature *s, const shoal_run_options *options,
                             const char *const *keys, shoal_tensor *const *values, int n,
                             const char *const *output_keys, shoal_tensor **outputs, int n_outputs);

#endif

/* The objects of a SavedModel, as TensorFlow 2 finds them: variables, tables, files and signatures as functions. */
#ifndef SAVED_MODEL_OBJECTS_H
#define SAVED_MODEL_OBJECTS_H

#include "base/text.h"
#include "graph/graph.h"
#include "shoal/saved_model.h"
#include "train/pieces.h"

struct object_source {
  struct shoal_graph *graph;
  const struct saved_value *values; /* the variables, as the model's checkpoint has them */
  int n_values;
  const shoal_export_signature *signatures;
  int n_signatures;
  const shoal_export_asset *assets;
  int n_assets;
  const shoal_op *main_op; /* NULL: none */
};

struct object_result {
  struct text graph;      /* SavedObjectGraph */
  struct text checkpoint; /* TrackableObjectGraph: where the variables are in the checkpoint */
};

/* The name of the checkpoint's entry. */
extern const char OBJECTS_KEY[];
/* What value i is called there as an object's; for the caller to free. */
char *objects_value_key(int i);

/* Adds the functions to `into`, a copy of the source's graph. UNIMPLEMENTED says what has no form as an object. */
shoal_status objects_make(const struct object_source *o, struct shoal_graph *into, struct object_result *out);
void object_result_release(struct object_result *r);

/* What functions take and give, as SavedObjectGraph says it (object_spec.c). */
struct spec_value {
  const char *key;
  shoal_out tensor;
};
/* Appends the body of a StructuredValue: ((specs), {}) or ((), {key: spec}). */
void spec_put_inputs(struct text *t, const struct spec_value *v, int n, bool by_key);
/* {key: spec} */
void spec_put_dict(struct text *t, const struct spec_value *v, int n);
void spec_put_tensor(struct text *t, const char *name, shoal_out of);
void spec_put_none(struct text *t);
/* Appends the body of a FunctionSpec: a function of those arguments, by place or by key alone. */
void spec_put_function(struct text *t, const struct spec_value *v, int n, bool by_key);

#endif

/* What a SavedModel's file says of its graph's ops and of its objects' functions, without loading anything. */
#ifndef SAVED_MODEL_OUTLINE_H
#define SAVED_MODEL_OUTLINE_H

#include "saved_model/meta.h"

/* A function that the loaded object has under this name. */
struct outline_function {
  char *name;
  VEC(struct wire) forms; /* StructuredValues in the file: what each form of it takes, ((...), {...}) */
};

struct outline {
  VEC(char *) ops;                        /* of the graph and of what it calls, each once, by name */
  VEC(struct outline_function) functions; /* of the root, by name */
};

/* To be released after an error, too. */
shoal_status outline_read(struct outline *o, const struct meta_model *m);
void outline_release(struct outline *o);

#endif

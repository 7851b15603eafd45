/* StructuredValues, which say what a function takes, in the words that Python has for them. */
#ifndef SAVED_MODEL_STRUCTURED_H
#define SAVED_MODEL_STRUCTURED_H

#include "base/text.h"
#include "base/vec.h"
#include "base/wire.h"

struct structured_item {
  struct wire key, value; /* the key of a dictionary's or a named tuple's, else empty */
};
typedef VEC(struct structured_item) structured_list;

/* Those of a list, a tuple or a dictionary, the last by their keys; none of anything else. */
structured_list structured_items(struct wire value);

/* Appends an argument as saved_model_cli prints it: lines, each after so many spaces. */
void structured_add(struct text *out, struct wire value, int indent);

#endif

/* What a SavedModel's file says of itself: its meta graphs, read in place. */
#ifndef SAVED_MODEL_META_H
#define SAVED_MODEL_META_H

#include "base/vec.h"
#include "base/wire.h"
#include "shoal/saved_model.h"

/* What signatures that are asked with Examples say of themselves. */
#define METHOD_CLASSIFY "tensorflow/serving/classify"
#define METHOD_REGRESS "tensorflow/serving/regress"

struct meta_asset {
  char *tensor, *filename;
};

/* One graph of a SavedModel. Its strings are its own; the messages point into the file. */
struct meta_model {
  VEC(char *) tags;
  struct wire message; /* the MetaGraphDef */
  size_t repeated;     /* bytes left for defaults, while it is read */
  struct wire graph_def;
  char *filename_tensor, *restore_op; /* of the saver; NULL: there is none */
  char *init_op;                      /* NULL: none */
  VEC(struct meta_asset) assets;
  VEC(shoal_signature) signatures; /* in the order of their keys */
  bool has_objects;                /* it was made by TensorFlow 2 */
  struct wire objects;             /* a SavedObjectGraph */
};

/* All of them. */
struct meta_file {
  char *data;
  size_t size;
  VEC(struct meta_model) models;
};

/* The folder without slashes at its end; for the caller to free. */
char *meta_folder(const char *dir);
/* DIR/saved_model.pb, or saved_model.pbtxt. To be released after an error, too. */
shoal_status meta_file_read(struct meta_file *f, const char *dir);
void meta_file_release(struct meta_file *f);
/* The one with exactly these tags, of a list with commas. */
shoal_status meta_file_find(const struct meta_file *f, const char *dir, const char *tags,
                            const struct meta_model **out);
/* "serve, gpu" */
void meta_tags_print(const struct meta_model *m, struct text *out);

const shoal_signature *meta_signature(const struct meta_model *m, const char *key);

#endif

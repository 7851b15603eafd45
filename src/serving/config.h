/* Which models a server has: TensorFlow Serving's ModelServerConfig, as text in a file or as a message in a request. */
#ifndef SERVING_CONFIG_H
#define SERVING_CONFIG_H

#include "base/status.h"
#include "base/vec.h"
#include "base/wire.h"

/* Which of the versions in a model's folder are served. */
enum version_policy { VERSIONS_LATEST, VERSIONS_ALL, VERSIONS_SPECIFIC };

struct version_label {
  char *name;
  int64_t version;
};

struct model_config {
  char *name, *base_path;
  enum version_policy policy;
  int64_t latest;        /* VERSIONS_LATEST: so many */
  VEC(int64_t) versions; /* VERSIONS_SPECIFIC: these */
  VEC(struct version_label) labels;
};

struct models_config {
  VEC(struct model_config) models;
  size_t bytes; /* that reading it has taken, about */
};

/* All of these are to be released after an error, too. */
/* One model, its newest version. */
void models_config_one(struct models_config *c, const char *name, const char *base_path);
/* A ModelServerConfig's bytes; INVALID_ARGUMENT names what is wrong with which model. */
shoal_status models_config_read(struct models_config *c, struct wire w);
shoal_status models_config_read_file(struct models_config *c, const char *path);
void models_config_release(struct models_config *c);
void model_config_release(struct model_config *m);

#endif

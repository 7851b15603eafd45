/* Which model, version and signature a request means: a ModelSpec, or a path of REST. Points into the request. */
#ifndef SERVING_SPEC_H
#define SERVING_SPEC_H

#include "base/wire.h"
#include "graph/node_def.h"

struct model_spec {
  struct chars name, label, signature; /* at NULL: not given */
  bool has_version;
  int64_t version;
};

/* INVALID_ARGUMENT when it does not parse, or names no model. */
shoal_status model_spec_read(struct wire w, struct model_spec *out);
/* The model that answered: its name, version and signature. */
void model_spec_put(struct text *t, const char *name, int64_t version, const char *signature);

#endif

/* One version of a model, loaded: what requests ask. Whoever asks holds a reference, so that a version that is dropped
 * goes after its last request. */
#ifndef SERVING_SERVABLE_H
#define SERVING_SERVABLE_H

#include <stdatomic.h>

#include "base/ref.h"
#include "graph/node_def.h"
#include "shoal/saved_model.h"

struct servable {
  struct ref refs;
  char *name; /* the model's */
  int64_t version;
  shoal_saved_model *model;
  struct batcher *batcher; /* NULL: each request is run for itself */
};

shoal_status servable_load(const char *name, int64_t version, const char *dir, const shoal_session_options *options,
                           struct servable **out);
static inline struct servable *servable_ref(struct servable *s) {
  ref_take(&s->refs);
  return s;
}
/* NULL is fine. */
void servable_unref(struct servable *s);

/* The signature of that name, of "serving_default" where it is empty; NULL: there is none. */
const shoal_signature *servable_signature(const struct servable *s, struct chars name);
/* Values for all of a signature's inputs, outputs by key; until a deadline of clock_ns(). */
shoal_status servable_ask(const struct servable *s, const shoal_signature *sig, int64_t deadline,
                          const char *const *keys, shoal_tensor *const *values, int n, const char *const *output_keys,
                          shoal_tensor **outputs, int n_outputs);

#endif

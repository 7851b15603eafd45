/* See servable.h. */
#include "serving/servable.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "saved_model/model.h"
#include "serving/batch.h"

shoal_status servable_load(const char *name, int64_t version, const char *dir, const shoal_session_options *options,
                           struct servable **out) {
  shoal_saved_model *model;
  TRY(shoal_saved_model_load(dir, NULL, options, &model));
  struct servable *s = mem_zalloc(1, sizeof *s);
  ref_init(&s->refs, 1);
  s->name = mem_strdup(name);
  s->version = version;
  s->model = model;
  *out = s;
  return NULL;
}

void servable_unref(struct servable *s) {
  if (!s || !ref_drop(&s->refs)) return;
  shoal_saved_model_free(s->model);
  batcher_free(s->batcher);
  free(s->name);
  free(s);
}

const shoal_signature *servable_signature(const struct servable *s, struct chars name) {
  if (!name.n) return shoal_saved_model_signature(s->model, "serving_default");
  const shoal_signature *sig;
  for (int i = 0; (sig = shoal_saved_model_signature_at(s->model, i)); i++)
    if (slice_is(name, sig->key)) return sig;
  return NULL;
}

shoal_status servable_ask(const struct servable *s, const shoal_signature *sig, int64_t deadline,
                          const char *const *keys, shoal_tensor *const *values, int n, const char *const *output_keys,
                          shoal_tensor **outputs, int n_outputs) {
  shoal_run_options o = {.size = sizeof o, .inter_op_thread_pool = 0};
  if (deadline != DEADLINE_NEVER) {
    int64_t left = (deadline - clock_ns()) / 1000000;
    if (left <= 0) return STATUS(SHOAL_DEADLINE_EXCEEDED, "the request's deadline has passed");
    o.timeout_ms = left;
  }
  return saved_model_ask(s->model, sig, &o, keys, values, n, output_keys, outputs, n_outputs);
}

/* See query.h. The words of errors are TensorFlow Serving's. */
#include "serving/query.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/run_cancel.h"
#include "serving/batch.h"
#include "tensor/tensor.h"

shoal_status query_open(struct query *q, struct servable *servable, struct chars signature) {
  *q = (struct query){.servable = servable, .deadline = INT64_MAX};
  q->signature = servable_signature(servable, signature);
  if (!q->signature)
    return STATUS(SHOAL_FAILED_PRECONDITION, "Serving signature key \"%s\" not found.",
                  signature.n ? SLICE_CSTR(signature) : "serving_default");
  size_t in = (size_t)q->signature->n_inputs, out = (size_t)q->signature->n_outputs;
  q->keys = mem_zalloc(in + 1, sizeof *q->keys);
  q->values = mem_zalloc(in + 1, sizeof *q->values);
  q->outputs = mem_zalloc(out + 1, sizeof *q->outputs);
  q->answers = mem_zalloc(out + 1, sizeof *q->answers);
  for (size_t i = 0; i < in; i++) q->keys[i] = q->signature->inputs[i]->key;
  return NULL;
}

shoal_status query_find(struct query *q, struct catalog *c, const struct model_spec *spec) {
  struct servable *found;
  *q = (struct query){0};
  TRY(catalog_find(c, spec, &found));
  return query_open(q, found, spec->signature);
}

void query_release(struct query *q) {
  for (int i = 0; q->values && i < q->signature->n_inputs; i++) shoal_tensor_unref(q->values[i]);
  for (int i = 0; i < q->n_outputs; i++) shoal_tensor_unref(q->answers[i]);
  free((void *)q->keys);
  free(q->values);
  free((void *)q->outputs);
  free(q->answers);
  servable_unref(q->servable);
}

int query_input(const struct query *q, struct chars key) {
  for (int i = 0; i < q->signature->n_inputs; i++)
    if (slice_is(key, q->keys[i])) return i;
  return -1;
}

void query_give(struct query *q, int input, shoal_tensor *value) {
  shoal_tensor_unref(q->values[input]);
  q->values[input] = value;
}

/* "a,b", of keys in their order. */
static void add_keys(struct text *t, const shoal_signature_value *const *at, int n) {
  for (int i = 0; i < n; i++) text_addf(t, "%s%s", i ? "," : "", at[i]->key);
}

shoal_status query_want(struct query *q, struct chars key) {
  const shoal_signature *s = q->signature;
  for (int i = 0; i < q->n_outputs; i++)
    if (slice_is(key, q->outputs[i])) return INVALID("duplicate output tensor alias: %s", q->outputs[i]);
  for (int i = 0; i < s->n_outputs; i++)
    if (slice_is(key, s->outputs[i]->key)) {
      q->outputs[q->n_outputs++] = s->outputs[i]->key;
      return NULL;
    }
  struct text keys = {0};
  add_keys(&keys, s->outputs, s->n_outputs);
  shoal_status e = INVALID("output tensor alias not found in signature: %s Outputs expected to be in the set {%s}.",
                           SLICE_CSTR(key), text_cstr(&keys));
  text_release(&keys);
  return e;
}

void query_want_all(struct query *q) {
  q->n_outputs = q->signature->n_outputs;
  for (int i = 0; i < q->n_outputs; i++) q->outputs[i] = q->signature->outputs[i]->key;
}

/* One is missing, where others have defaults. */
static shoal_status no_default(const struct query *q, const shoal_signature_value *lacking) {
  struct text have = {0}, defaults = {0};
  for (int i = 0; i < q->signature->n_inputs; i++) {
    if (q->values[i]) text_addf(&have, "%s%s", have.n ? "," : "", q->keys[i]);
    if (q->signature->inputs[i]->default_value) text_addf(&defaults, "%s%s", defaults.n ? "," : "", q->keys[i]);
  }
  shoal_status s = INVALID(
      "Signature input alias: %s(feed name: %s) not found in request and no default value provided. Inputs expected to "
      "be in the request {%s}, or default input alias set: %s",
      lacking->key, lacking->tensor ? lacking->tensor : "", text_cstr(&have), text_cstr(&defaults));
  text_release(&have);
  text_release(&defaults);
  return s;
}

static bool has_defaults(const shoal_signature *s) {
  for (int i = 0; i < s->n_inputs; i++)
    if (s->inputs[i]->default_value) return true;
  return false;
}

/* What was left out and may be. */
static shoal_status take_defaults(struct query *q) {
  const shoal_signature *s = q->signature;
  for (int i = 0; i < s->n_inputs; i++)
    if (!q->values[i] && !s->inputs[i]->default_value) return no_default(q, s->inputs[i]);
  for (int i = 0; i < s->n_inputs; i++)
    if (!q->values[i]) q->values[i] = shoal_tensor_ref(s->inputs[i]->default_value);
  return NULL;
}

/* Inputs that were not given, where all must be; NULL: all were. */
static shoal_status check_inputs(const struct query *q) {
  struct text want = {0}, have = {0}, missing = {0};
  int n = 0;
  for (int i = 0; i < q->signature->n_inputs; i++) {
    struct text *to = q->values[i] ? &have : &missing;
    text_addf(to, "%s%s", to->n ? "," : "", q->keys[i]);
    n += q->values[i] != NULL;
  }
  add_keys(&want, q->signature->inputs, q->signature->n_inputs);
  shoal_status s = n == q->signature->n_inputs
                       ? NULL
                       : INVALID(
                             "input size does not match signature: %d!=%d len({%s}) != len({%s}). Sent extra: {}. "
                             "Missing but required: {%s}.",
                             n, q->signature->n_inputs, text_cstr(&have), text_cstr(&want), text_cstr(&missing));
  text_release(&want);
  text_release(&have);
  text_release(&missing);
  return s;
}

static shoal_status run_alone(struct query *q) {
  run_cancel_set(q->cancel);
  shoal_status s = servable_ask(q->servable, q->signature, q->deadline, q->keys, q->values, q->signature->n_inputs,
                                q->outputs, q->answers, q->n_outputs);
  run_cancel_set(NULL);
  return q->cancel ? run_cancel_outcome(q->cancel, s) : s;
}

/* With its strings. */
static size_t size_of(const struct tensor *t) {
  size_t all = tensor_bytes(t);
  for (int64_t i = 0; t->dtype == SHOAL_STRING && i < t->n; i++) all += T_DATA(t, struct str)[i].size;
  return all;
}

static shoal_status count_answers(const struct query *q) {
  size_t all = 0;
  for (int i = 0; i < q->n_outputs; i++) all += size_of(&q->answers[i]->t);
  return status_prefix(unpack_take(&q->room, all), "the answer: ");
}

shoal_status query_run(struct query *q) {
  for (int i = 0; i < q->signature->n_inputs; i++)
    if (!q->values[i]) TRY(has_defaults(q->signature) ? take_defaults(q) : check_inputs(q));
  TRY(q->servable->batcher ? batcher_run(q->servable->batcher, q, run_alone) : run_alone(q));
  return count_answers(q);
}

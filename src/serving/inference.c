/* See inference.h. The words of errors are TensorFlow Serving's. */
#include "serving/inference.h"

#include <inttypes.h>
#include <string.h>

#include "proto/serving.wire.h"
#include "saved_model/meta.h"
#include "tensor/tensor.h"

static const char *const methods[] = {[INFERENCE_CLASSIFY] = METHOD_CLASSIFY, [INFERENCE_REGRESS] = METHOD_REGRESS};
enum { MOST_TASKS = 1000 };

static shoal_status damaged(const char *what) { return INVALID("%s does not parse as a protocol buffer", what); }

/* ---- examples ---- */

/* Those of a list, behind a context: messages one after the other are one message. */
static shoal_status read_list(struct wire list, struct wire context, const struct unpack_room *room,
                              shoal_tensor **out) {
  struct wire_field f;
  enum wire_step step;
  struct wire w = list;
  int64_t n = 0;
  size_t each = sizeof(struct str) + wire_left(&context), all;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) n += f.tag == ExampleList_examples;
  if (step == WIRE_BROKEN) return damaged("Input");
  if (!n) return INVALID("Input is empty.");
  if (__builtin_mul_overflow((size_t)n, each, &all) || __builtin_add_overflow(all, wire_left(&list), &all))
    return NO_MEMORY(SIZE_MAX, "examples");
  TRY(unpack_take(room, all));
  struct tensor t;
  TRY(tensor_new_dims(&t, SHOAL_STRING, 1, &n));
  int64_t i = 0;
  for (w = list; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != ExampleList_examples) continue;
    size_t before = wire_left(&context);
    struct str *example = &T_DATA(&t, struct str)[i++];
    char *to = str_resize(example, before + f.size);
    if (example->size < before + f.size) {
      tensor_release(&t);
      return NO_MEMORY(before + f.size, "an example");
    }
    if (before) memcpy(to, context.at, before);
    if (f.size) memcpy(to + before, f.data, f.size);
  }
  *out = tensor_handle_take(&t);
  return NULL;
}

shoal_status inference_examples(struct wire input, const struct unpack_room *room, shoal_tensor **out) {
  struct wire_field f;
  enum wire_step step;
  struct wire list = wire_from("", 0), context = wire_from("", 0);
  while ((step = wire_next(&input, &f)) == WIRE_FIELD) {
    if (f.tag != Input_example_list && f.tag != Input_example_list_with_context) continue;
    list = wire_inside(&f);
    context = wire_from("", 0);
    if (f.tag == Input_example_list_with_context) find_ExampleListWithContext_context(list, &context);
  }
  return step == WIRE_BROKEN ? damaged("Input") : read_list(list, context, room, out);
}

/* ---- one question ---- */

static const shoal_tensor *answer_of(const struct query *q, const char *key) {
  for (int i = 0; i < q->n_outputs; i++)
    if (!strcmp(q->outputs[i], key)) return q->answers[i];
  return NULL;
}

const shoal_tensor *inference_classes(const struct query *q) { return answer_of(q, "classes"); }
const shoal_tensor *inference_scores(const struct query *q) { return answer_of(q, "scores"); }

static bool has_output(const shoal_signature *s, const char *key) {
  for (int i = 0; i < s->n_outputs; i++)
    if (!strcmp(s->outputs[i]->key, key)) return true;
  return false;
}

static shoal_status prepare(struct query *q, enum inference kind) {
  const shoal_signature *s = q->signature;
  const char *what = kind == INFERENCE_CLASSIFY ? "classification" : "regression";
  if (strcmp(s->method, methods[kind]))
    return INVALID("Expected %s signature method_name to be %s. Was: %s", what, methods[kind], s->method);
  if (s->n_inputs != 1) return INVALID("Expected one input Tensor.");
  if (query_input(q, (struct chars){"inputs", 6}) < 0)
    return STATUS(SHOAL_FAILED_PRECONDITION, "No %s inputs found in SignatureDef: %s", what, s->key);
  if (kind == INFERENCE_REGRESS) {
    if (s->n_outputs != 1) return INVALID("Expected one output Tensor.");
    if (!has_output(s, "outputs"))
      return STATUS(SHOAL_FAILED_PRECONDITION, "No regression outputs found in SignatureDef: %s", s->key);
    return query_want(q, (struct chars){"outputs", 7});
  }
  if (s->n_outputs != 1 && s->n_outputs != 2)
    return INVALID("Expected one or two output Tensors, found %d", s->n_outputs);
  if (!has_output(s, "classes") && !has_output(s, "scores"))
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "Expected classification signature outputs to contain at least one of \"classes\" or \"scores\". "
                  "Signature was: %s",
                  s->key);
  if (has_output(s, "classes")) TRY(query_want(q, (struct chars){"classes", 7}));
  return has_output(s, "scores") ? query_want(q, (struct chars){"scores", 6}) : NULL;
}

static shoal_status check_matrix(const shoal_tensor *t, const char *what, shoal_dtype dtype, int64_t n) {
  struct shape shape;
  if (!t) return NULL;
  shape = tensor_shape(&t->t);
  if (t->t.rank != 2) return INVALID("Expected Tensor shape: [batch_size num_classes] but got %s", shape_str(&shape));
  if (t->t.dtype != dtype)
    return INVALID("Expected %s Tensor of %s. Got: %s", what, dtype_tf_name((int)dtype), dtype_tf_name(t->t.dtype));
  if (t->t.dims[0] != n)
    return INVALID("Expected %s output batch size of %" PRId64 ". Got: %" PRId64, what, n, t->t.dims[0]);
  return NULL;
}

static shoal_status check_classes(const struct query *q, int64_t n) {
  const shoal_tensor *classes = inference_classes(q), *scores = inference_scores(q);
  TRY(check_matrix(classes, "classes", SHOAL_STRING, n));
  TRY(check_matrix(scores, "scores", SHOAL_FLOAT32, n));
  if (classes && scores && classes->t.dims[1] != scores->t.dims[1])
    return INVALID("Tensors class and score should match in dim_size(1). Got %" PRId64 " vs. %" PRId64,
                   classes->t.dims[1], scores->t.dims[1]);
  return NULL;
}

static shoal_status check_numbers(const struct tensor *t, int64_t n) {
  struct shape shape = tensor_shape(t);
  if (t->rank != 1 && !(t->rank == 2 && t->dims[1] == 1))
    return INVALID("Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got %s",
                   shape_str(&shape));
  if (t->dims[0] != n)
    return INVALID("Input batch size did not match output batch size: %" PRId64 " vs. %" PRId64, n, t->dims[0]);
  if (t->dtype != SHOAL_FLOAT32)
    return INVALID("Expected output Tensor of DT_FLOAT.  Got: %s", dtype_tf_name(t->dtype));
  return NULL;
}

shoal_status inference_run(struct query *q, struct servable *servable, struct chars signature, enum inference kind,
                           shoal_tensor *examples, const struct querier *by) {
  *q = (struct query){0};
  if (!servable_signature(servable, signature))
    return INVALID("No signature was found with the name: %s", signature.n ? SLICE_CSTR(signature) : "serving_default");
  TRY(query_open(q, servable_ref(servable), signature));
  TRY(prepare(q, kind));
  query_give(q, 0, shoal_tensor_ref(examples));
  query_asked_by(q, by);
  TRY(query_run(q));
  int64_t n = examples->t.n;
  return kind == INFERENCE_CLASSIFY ? check_classes(q, n) : check_numbers(&q->answers[0]->t, n);
}

static void put_class(struct text *out, const shoal_tensor *classes, const shoal_tensor *scores, int64_t at) {
  size_t c = begin_Classifications_classes(out);
  const struct str *label = classes ? &T_DATA(&classes->t, struct str)[at] : NULL;
  if (label && label->size) put_Class_label_n(out, str_data(label), label->size);
  if (scores && T_DATA(&scores->t, float)[at] != 0) put_Class_score(out, T_DATA(&scores->t, float)[at]);
  wire_end(out, c);
}

void inference_put(const struct query *q, enum inference kind, struct text *out) {
  const shoal_tensor *classes = inference_classes(q), *scores = inference_scores(q);
  const struct tensor *t = &(classes ? classes : scores ? scores : q->answers[0])->t;
  int64_t each = kind == INFERENCE_CLASSIFY ? t->dims[1] : 1;
  for (int64_t i = 0; i < t->dims[0]; i++) {
    size_t at = kind == INFERENCE_CLASSIFY ? begin_ClassificationResult_classifications(out)
                                           : begin_RegressionResult_regressions(out);
    for (int64_t k = 0; k < each && kind == INFERENCE_CLASSIFY; k++) put_class(out, classes, scores, i * each + k);
    if (kind == INFERENCE_REGRESS && T_DATA(t, float)[i] != 0) put_Regression_value(out, T_DATA(t, float)[i]);
    wire_end(out, at);
  }
}

/* ---- whole requests ---- */

static shoal_status find_servable(struct inference_source *s, const struct model_spec *spec, struct servable **out) {
  if (s->servable) *out = servable_ref(s->servable);
  else TRY(catalog_find(s->catalog, spec, out));
  if (!s->model) s->model = mem_strdup((*out)->name);
  return NULL;
}

static void put_spec(const struct query *q, struct text *out) {
  model_spec_put(out, q->servable->name, q->servable->version, q->signature->key);
}

/* A request of one task: spec and input in fields 1 and 2, the answer's result in 1 and spec in 2. */
static shoal_status answer_one(struct inference_source *s, enum inference kind, struct wire spec_bytes,
                               struct wire input, struct text *out) {
  struct model_spec spec;
  struct servable *servable = NULL;
  shoal_tensor *examples = NULL;
  struct query q = {0};
  TRY(model_spec_read(spec_bytes, &spec));
  shoal_status e = find_servable(s, &spec, &servable);
  if (!e) e = inference_examples(input, &s->by.room, &examples);
  if (!e) e = inference_run(&q, servable, spec.signature, kind, examples, &s->by);
  if (!e) {
    bool classes = kind == INFERENCE_CLASSIFY;
    size_t at = classes ? begin_ClassificationResponse_result(out) : begin_RegressionResponse_result(out);
    inference_put(&q, kind, out);
    wire_end(out, at);
    at = classes ? begin_ClassificationResponse_model_spec(out) : begin_RegressionResponse_model_spec(out);
    put_spec(&q, out);
    wire_end(out, at);
  }
  query_release(&q);
  servable_unref(servable);
  shoal_tensor_unref(examples);
  return e;
}

shoal_status inference_classify(struct inference_source *s, struct wire request, struct text *out) {
  struct wire spec, input = wire_from("", 0);
  if (!find_ClassificationRequest_model_spec(request, &spec)) return INVALID("Missing ModelSpec");
  find_ClassificationRequest_input(request, &input);
  return answer_one(s, INFERENCE_CLASSIFY, spec, input, out);
}

shoal_status inference_regress(struct inference_source *s, struct wire request, struct text *out) {
  struct wire spec, input = wire_from("", 0);
  if (!find_RegressionRequest_model_spec(request, &spec)) return INVALID("Missing ModelSpec");
  find_RegressionRequest_input(request, &input);
  return answer_one(s, INFERENCE_REGRESS, spec, input, out);
}

/* ---- several tasks ---- */

/* What is common to the tasks of a request. */
struct inference_tasks {
  struct inference_source *source;
  shoal_tensor *examples;
  struct servable *servable; /* the first task's: all are of one model */
  struct chars name;
  VEC(struct chars) seen; /* signatures */
};

static shoal_status read_task(struct wire task, struct model_spec *spec, enum inference *kind) {
  struct wire bytes, method = wire_from("", 0);
  if (!find_InferenceTask_model_spec(task, &bytes)) return INVALID("Missing ModelSpec");
  TRY(model_spec_read(bytes, spec));
  find_InferenceTask_method_name(task, &method);
  struct chars name = {(const char *)method.at, wire_left(&method)};
  if (slice_is(name, methods[INFERENCE_CLASSIFY])) *kind = INFERENCE_CLASSIFY;
  else if (slice_is(name, methods[INFERENCE_REGRESS])) *kind = INFERENCE_REGRESS;
  else return UNIMPLEMENTED("Unsupported signature method_name: %s", SLICE_CSTR(name));
  return NULL;
}

static bool same(struct chars a, struct chars b) { return a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n)); }

static shoal_status begin_task(struct inference_tasks *t, const struct model_spec *spec) {
  if (!t->servable) {
    t->name = spec->name;
    TRY(find_servable(t->source, spec, &t->servable));
  } else if (!same(t->name, spec->name)) {
    return INVALID("All ModelSpecs in a MultiInferenceRequest must access the same model name.");
  }
  for (size_t i = 0; i < t->seen.n; i++)
    if (same(t->seen.at[i], spec->signature))
      return INVALID("Duplicate evaluation of signature: %s", SLICE_CSTR(spec->signature));
  if (t->seen.n == MOST_TASKS) return INVALID("a request of more than %d tasks", MOST_TASKS);
  vec_push(&t->seen, spec->signature);
  return NULL;
}

static shoal_status answer_task(struct inference_tasks *t, struct wire task, struct text *out) {
  struct model_spec spec;
  enum inference kind;
  struct query q = {0};
  TRY(read_task(task, &spec, &kind));
  TRY(begin_task(t, &spec));
  shoal_status s = inference_run(&q, t->servable, spec.signature, kind, t->examples, &t->source->by);
  if (!s) {
    size_t result = begin_MultiInferenceResponse_results(out), at = begin_InferenceResult_model_spec(out);
    put_spec(&q, out);
    wire_end(out, at);
    at = kind == INFERENCE_CLASSIFY ? begin_InferenceResult_classification_result(out)
                                    : begin_InferenceResult_regression_result(out);
    inference_put(&q, kind, out);
    wire_end(out, at);
    wire_end(out, result);
  }
  query_release(&q);
  return s;
}

shoal_status inference_multi(struct inference_source *source, struct wire request, struct text *out) {
  struct inference_tasks t = {.source = source};
  struct wire input = wire_from("", 0);
  find_MultiInferenceRequest_input(request, &input);
  shoal_status s = inference_examples(input, &source->by.room, &t.examples);
  enum wire_step step = WIRE_END;
  for (struct wire_field f; !s && (step = wire_next(&request, &f)) == WIRE_FIELD;)
    if (f.tag == MultiInferenceRequest_tasks) s = answer_task(&t, wire_inside(&f), out);
  if (!s && step == WIRE_BROKEN) s = damaged("MultiInferenceRequest");
  if (!s && !t.seen.n) s = INVALID("Inference request must have at least one inference task.");
  vec_release(&t.seen);
  servable_unref(t.servable);
  shoal_tensor_unref(t.examples);
  return s;
}

/* See rest.h. */
#include "serving/rest.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "proto/serving.wire.h"
#include "rpc/loop.h"
#include "serving/data_type.h"
#include "serving/json_examples.h"
#include "serving/json_tensor.h"
#include "serving/requests.h"

static const char JSON[] = "application/json", METRICS[] = "/monitoring/prometheus/metrics";

/* ---- paths ---- */

enum rest_what { REST_STATUS, REST_METADATA, REST_PREDICT, REST_CLASSIFY, REST_REGRESS };

struct rest_target {
  struct model_spec spec; /* points into the path */
  enum rest_what what;
};

/* The word at *at, in any case, is behind it then. */
static bool take(const char **at, const char *word) {
  size_t n = strlen(word);
  if (strncasecmp(*at, word, n)) return false;
  *at += n;
  return true;
}

static struct chars take_name(const char **at) {
  struct chars name = {*at, strcspn(*at, "/:")};
  *at += name.n;
  return name;
}

static shoal_status take_version(const char **at, struct model_spec *spec) {
  struct chars digits = {*at, strcspn(*at, "/:")};
  char *text = mem_strndup(digits.at, digits.n);
  bool well = digits.n && strspn(text, "0123456789") == digits.n && str_to_int64(text, &spec->version);
  free(text);
  *at += digits.n;
  spec->has_version = true;
  return well ? NULL : INVALID("Failed to convert version: %s to numeric.", SLICE_CSTR(digits));
}

static bool take_method(const char *at, bool post, enum rest_what *what) {
  static const struct {
    const char *text;
    enum rest_what what;
  } posts[] = {{":predict", REST_PREDICT}, {":classify", REST_CLASSIFY}, {":regress", REST_REGRESS}},
    gets[] = {{"", REST_STATUS}, {"/metadata", REST_METADATA}};
  for (size_t i = 0; post && i < COUNT_OF(posts); i++)
    if (!strcasecmp(at, posts[i].text)) return *what = posts[i].what, true;
  for (size_t i = 0; !post && i < COUNT_OF(gets); i++)
    if (!strcasecmp(at, gets[i].text)) return *what = gets[i].what, true;
  return false;
}

static shoal_status malformed(const struct http1_request *r) {
  return INVALID("Malformed request: %s %.200s", SLICE_CSTR(r->method), r->path);
}

static shoal_status read_target(const struct http1_request *r, struct rest_target *out) {
  const char *at = r->path;
  bool post = slice_is(r->method, "POST"), get = slice_is(r->method, "GET");
  *out = (struct rest_target){0};
  if ((!post && !get) || !take(&at, "/v1/models")) return malformed(r);
  if (!*at && get) return INVALID("Missing model name in request.");
  if (!take(&at, "/")) return malformed(r);
  out->spec.name = take_name(&at);
  if (!out->spec.name.n) return malformed(r);
  if (take(&at, "/versions/")) TRY(take_version(&at, &out->spec));
  else if (take(&at, "/labels/")) {
    out->spec.label = take_name(&at);
    if (!out->spec.label.n) return malformed(r);
  }
  return take_method(at, post, &out->what) ? NULL : malformed(r);
}

/* ---- predict ---- */

/* The body as JSON: an object. */
static shoal_status read_document(struct chars body, json_value *out) {
  if (!body.n) return INVALID("JSON Parse error: The document is empty");
  TRY(json_check(body.at, body.n));
  *out = json_first(body.at);
  if (json_type_of(*out) != JSON_OBJECT) return INVALID("JSON Value: is not object");
  return NULL;
}

/* Appends the name of the signature that is asked. */
static shoal_status read_signature(json_value document, struct text *out) {
  json_value name = json_member(document, "signature_name");
  if (name && json_type_of(name) != JSON_STRING)
    return INVALID("JSON Value: not formatted correctly. 'signature_name' key must be a string value.");
  if (name) json_string(name, out);
  return NULL;
}

static shoal_status ask(struct query *q, json_value document, size_t n, struct text *out) {
  enum json_format format;
  TRY(json_read_inputs(q, document, n, &format));
  query_want_all(q);
  rpc_loop_hand_over();
  TRY(query_run(q));
  return json_write_answers(q, format, out);
}

static shoal_status predict(const struct rest *rest, struct model_spec spec, const struct http1_request *r,
                            const struct querier *by, struct text *out) {
  json_value document;
  struct text signature = {0};
  struct query q = {0};
  int64_t began = clock_ns();
  shoal_status s = read_document(r->body, &document);
  if (!s) s = read_signature(document, &signature);
  spec.signature = (struct chars){text_cstr(&signature), signature.n};
  if (!s) s = query_find(&q, rest->catalog, &spec);
  query_asked_by(&q, by);
  if (!s) s = ask(&q, document, r->body.n, out);
  requests_count(q.servable ? q.servable->name : NULL, REQUEST_PREDICT, REQUEST_REST, began, s);
  query_release(&q);
  text_release(&signature);
  return s;
}

/* ---- classify, regress ---- */

/* Of a servable that was found. */
static shoal_status infer_with(struct servable *servable, struct chars signature, json_value document,
                               enum inference kind, const struct querier *by, struct text *out) {
  shoal_tensor *examples;
  struct query q;
  TRY(json_read_examples(document, &by->room, &examples));
  rpc_loop_hand_over();
  shoal_status s = inference_run(&q, servable, signature, kind, examples, by);
  if (!s) s = json_write_inference(&q, kind, out);
  query_release(&q);
  shoal_tensor_unref(examples);
  return s;
}

static shoal_status infer(const struct rest *rest, const struct model_spec *spec, const struct http1_request *r,
                          enum inference kind, const struct querier *by, struct text *out) {
  json_value document;
  struct text signature = {0};
  struct servable *servable = NULL;
  int64_t began = clock_ns();
  shoal_status s = read_document(r->body, &document);
  if (!s) s = read_signature(document, &signature);
  if (!s) s = catalog_find(rest->catalog, spec, &servable);
  if (!s) s = infer_with(servable, (struct chars){text_cstr(&signature), signature.n}, document, kind, by, out);
  requests_count(servable ? servable->name : NULL, kind == INFERENCE_CLASSIFY ? REQUEST_CLASSIFY : REQUEST_REGRESS,
                 REQUEST_REST, began, s);
  servable_unref(servable);
  text_release(&signature);
  return s;
}

/* ---- status ---- */

static const char *state_name(int state) {
  switch (state) {
    case ModelVersionStatus_State_START: return "START";
    case ModelVersionStatus_State_LOADING: return "LOADING";
    case ModelVersionStatus_State_AVAILABLE: return "AVAILABLE";
    case ModelVersionStatus_State_UNLOADING: return "UNLOADING";
    case ModelVersionStatus_State_END: return "END";
    default: return "UNKNOWN";
  }
}

static void write_status(void *arg, const struct version_status *v) {
  struct text *out = arg, words = {0};
  text_add_utf8(&words, v->message, strlen(v->message));
  text_adds(out, out->n && out->at[out->n - 1] == '}' ? ",\n" : "");
  text_addf(out,
            "  {\n   \"version\": \"%" PRId64
            "\",\n   \"state\": \"%s\",\n   \"status\": {\n    \"error_code\": \"%s\",\n"
            "    \"error_message\": ",
            v->version, state_name(v->state), shoal_code_name(v->code));
  json_write_string(out, text_cstr(&words), words.n);
  text_adds(out, "\n   }\n  }");
  text_release(&words);
}

static shoal_status status(const struct rest *rest, const struct model_spec *spec, struct text *out) {
  text_adds(out, "{\n \"model_version_status\": [\n");
  TRY(catalog_status(rest->catalog, spec, write_status, out));
  text_adds(out, "\n ]\n}\n");
  return NULL;
}

/* ---- metadata ---- */

static void write_tensor_info(struct text *out, const shoal_signature_value *v) {
  text_adds(out, "     ");
  json_write_string(out, v->key, strlen(v->key));
  text_adds(out, ": {\n      \"dtype\": \"");
  data_type_print((int)v->dtype, out);
  text_adds(out, "\",\n      \"tensor_shape\": {\n       \"dim\": [");
  for (int i = 0; i < v->rank; i++)
    text_addf(out, "%s\n        {\n         \"size\": \"%" PRId64 "\",\n         \"name\": \"\"\n        }",
              i ? "," : "", v->dims[i]);
  text_addf(out, "%s],\n       \"unknown_rank\": %s\n      },\n      \"name\": ", v->rank > 0 ? "\n       " : "",
            v->rank < 0 ? "true" : "false");
  json_write_string(out, v->tensor ? v->tensor : "", v->tensor ? strlen(v->tensor) : 0);
  text_adds(out, "\n     }");
}

static void write_values(struct text *out, const char *what, const shoal_signature_value *const *at, int n) {
  text_addf(out, "    \"%s\": {", what);
  for (int i = 0; i < n; i++) {
    text_adds(out, i ? ",\n" : "\n");
    write_tensor_info(out, at[i]);
  }
  text_adds(out, n ? "\n    },\n" : "},\n");
}

static void write_signature(struct text *out, const shoal_signature *s) {
  text_adds(out, "   ");
  json_write_string(out, s->key, strlen(s->key));
  text_adds(out, ": {\n");
  write_values(out, "inputs", s->inputs, s->n_inputs);
  write_values(out, "outputs", s->outputs, s->n_outputs);
  text_adds(out, "    \"method_name\": ");
  json_write_string(out, s->method, strlen(s->method));
  text_adds(out, "\n   }");
}

static shoal_status metadata(const struct rest *rest, const struct model_spec *spec, struct text *out) {
  struct servable *found;
  const shoal_signature *s;
  TRY(catalog_find(rest->catalog, spec, &found));
  text_adds(out, "{\n\"model_spec\":{\n \"name\": ");
  json_write_string(out, found->name, strlen(found->name));
  text_addf(out,
            ",\n \"signature_name\": \"\",\n \"version\": \"%" PRId64
            "\"\n}\n,\n\"metadata\": {\"signature_def\": {\n"
            " \"signature_def\": {\n",
            found->version);
  for (int i = 0; (s = shoal_saved_model_signature_at(found->model, i)); i++) {
    if (i) text_adds(out, ",\n");
    write_signature(out, s);
  }
  text_adds(out, "\n }\n}\n}\n}\n");
  servable_unref(found);
  return NULL;
}

/* ---- answers ---- */

static int http_code(shoal_status s) {
  switch (s ? shoal_status_code(s) : SHOAL_OK) {
    case SHOAL_OK: return 200;
    case SHOAL_CANCELLED: return 499;
    case SHOAL_INVALID_ARGUMENT:
    case SHOAL_FAILED_PRECONDITION:
    case SHOAL_OUT_OF_RANGE: return 400;
    case SHOAL_DEADLINE_EXCEEDED: return 504;
    case SHOAL_NOT_FOUND: return 404;
    case SHOAL_ALREADY_EXISTS:
    case SHOAL_ABORTED: return 409;
    case SHOAL_PERMISSION_DENIED: return 403;
    case SHOAL_RESOURCE_EXHAUSTED: return 429;
    case SHOAL_UNIMPLEMENTED: return 501;
    case SHOAL_UNAVAILABLE: return 503;
    case SHOAL_UNAUTHENTICATED: return 401;
    default: return 500;
  }
}

void rest_refuse(void *rest, int code, const char *words, struct http1_answer *a) {
  struct text shown = {0};
  text_add_utf8(&shown, words, strlen(words));
  text_release(&a->body);
  a->code = code;
  a->type = JSON;
  text_adds(&a->body, "{\n    \"error\": ");
  json_write_string(&a->body, text_cstr(&shown), shown.n);
  text_adds(&a->body, "\n}");
  text_release(&shown);
}

static bool room_for(void *request, size_t bytes) { return http1_unpacks(request, bytes); }

static void unwanted(void *cancel) { cancel_start(cancel, STATUS(SHOAL_CANCELLED, "nobody waits for the answer")); }

/* What asks a model, until nobody waits for it. */
static shoal_status answer_by_model(const struct rest *rest, const struct rest_target *t, const struct http1_request *r,
                                    struct text *out) {
  struct cancel cancel;
  cancel_init(&cancel);
  http1_on_unwanted(r, unwanted, &cancel);
  struct querier by = {deadline_after_ms(rest->timeout_ms), {room_for, (void *)r}, &cancel};
  shoal_status s =
      t->what == REST_PREDICT
          ? predict(rest, t->spec, r, &by, out)
          : infer(rest, &t->spec, r, t->what == REST_CLASSIFY ? INFERENCE_CLASSIFY : INFERENCE_REGRESS, &by, out);
  http1_wanted(r);
  cancel_release(&cancel);
  return s;
}

static shoal_status answer(const struct rest *rest, const struct http1_request *r, struct text *out) {
  struct rest_target t;
  TRY(read_target(r, &t));
  if (t.what == REST_STATUS) return status(rest, &t.spec, out);
  return t.what == REST_METADATA ? metadata(rest, &t.spec, out) : answer_by_model(rest, &t, r, out);
}

void rest_handle(void *arg, const struct http1_request *r, struct http1_answer *a) {
  if (!strcmp(r->path, METRICS) && slice_is(r->method, "GET")) {
    a->code = 200;
    a->type = "text/plain";
    requests_write(&a->body);
    return;
  }
  if (strncasecmp(r->path, "/v1/", 4)) {
    rest_refuse(arg, 404, "there is nothing at this path: /v1/models/NAME, /monitoring/prometheus/metrics", a);
    return;
  }
  shoal_status s = answer(arg, r, &a->body);
  a->code = http_code(s);
  a->type = JSON;
  if (s) rest_refuse(arg, a->code, shoal_status_message(s), a);
  shoal_status_free(s);
}

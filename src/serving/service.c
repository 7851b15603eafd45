/* See service.h. A Predict runs on the thread of its handler: the transport bounds how many of these there are, for all
 * and for one connection, and has others for the network (rpc/loop.h). */
#include "serving/service.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/request_parts.h"
#include "proto/any.wire.h"
#include "proto/error_codes.wire.h"
#include "proto/meta_graph.wire.h"
#include "proto/serving.wire.h"
#include "rpc/loop.h"
#include "saved_model/model.h"
#include "serving/inference.h"
#include "serving/predict.h"
#include "serving/requests.h"
#include "tensor/tensor_proto.h"

static shoal_status check_end(enum wire_step step, const char *message) {
  return step == WIRE_BROKEN ? INVALID("%s does not parse as a protocol buffer", message) : NULL;
}

/* All requests have their spec in a field of one number: tag. */
static shoal_status read_spec(struct wire m, uint32_t tag, const char *message, struct model_spec *out) {
  struct wire_field f;
  enum wire_step step;
  struct wire spec = wire_from("", 0);
  bool found = false;
  while ((step = wire_next(&m, &f)) == WIRE_FIELD)
    if (f.tag == tag) {
      spec = wire_inside(&f);
      found = true;
    }
  TRY(check_end(step, message));
  if (!found) return INVALID("Missing ModelSpec");
  return model_spec_read(spec, out);
}

/* ---- Predict ---- */

static bool room_for(void *call, size_t bytes) { return rpc_call_unpacks(call, bytes); }

static void lost(void *cancel) { cancel_start(cancel, STATUS(SHOAL_CANCELLED, "the client has gone")); }

/* A model is asked for whoever called, until he goes. cancel is to be released after the answer. */
static struct querier asked_by(struct rpc_call *c, struct cancel *cancel) {
  cancel_init(cancel);
  rpc_call_on_lost(c, lost, cancel);
  return (struct querier){rpc_call_deadline(c), {room_for, c}, cancel};
}

static shoal_status run_predict(struct service *s, struct rpc_call *c, const struct querier *by, struct query *q,
                                struct rpc_message **out) {
  struct wire m;
  struct model_spec spec;
  TRY(request_read(c, &m));
  TRY(read_spec(m, PredictRequest_model_spec, "PredictRequest", &spec));
  TRY(query_find(q, s->catalog, &spec));
  TRY(predict_read(q, m, room_for, c));
  query_asked_by(q, by);
  rpc_loop_hand_over();
  TRY(query_run(q));
  return predict_response(q, out);
}

static void predict(struct rpc_call *c, void *arg) {
  struct query q = {0};
  struct rpc_message *out = NULL;
  int64_t began = clock_ns();
  struct cancel cancel;
  struct querier by = asked_by(c, &cancel);
  shoal_status s = run_predict(arg, c, &by, &q, &out);
  requests_count(q.servable ? q.servable->name : NULL, REQUEST_PREDICT, REQUEST_GRPC, began, s);
  query_release(&q);
  if (s) rpc_call_fail(c, s);
  else rpc_call_reply(c, out);
  cancel_release(&cancel);
}

/* ---- Classify, Regress, MultiInference ---- */

static void infer(struct rpc_call *c, struct service *service, enum request_api api,
                  shoal_status (*run)(struct inference_source *, struct wire, struct text *)) {
  struct cancel cancel;
  struct inference_source source = {.catalog = service->catalog, .by = asked_by(c, &cancel)};
  struct text out = {0};
  struct wire m;
  int64_t began = clock_ns();
  shoal_status s = request_read(c, &m);
  rpc_loop_hand_over();
  if (!s) s = run(&source, m, &out);
  requests_count(source.model, api, REQUEST_GRPC, began, s);
  free(source.model);
  rpc_call_answer(c, s, &out);
  cancel_release(&cancel);
}

static void classify(struct rpc_call *c, void *arg) { infer(c, arg, REQUEST_CLASSIFY, inference_classify); }
static void regress(struct rpc_call *c, void *arg) { infer(c, arg, REQUEST_REGRESS, inference_regress); }
static void multi_inference(struct rpc_call *c, void *arg) { infer(c, arg, REQUEST_MULTI_INFERENCE, inference_multi); }

/* ---- GetModelMetadata ---- */

/* As the file has them: an entry of the map is the same in both messages. */
static void put_signatures(struct text *t, const shoal_saved_model *m) {
  struct wire w = m->meta->message;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == MetaGraphDef_signature_def) wire_add_bytes(t, SignatureDefMap_signature_def, f.data, f.size);
}

static void put_metadata(struct text *t, const struct servable *s) {
  size_t spec = begin_GetModelMetadataResponse_model_spec(t);
  model_spec_put(t, s->name, s->version, NULL);
  wire_end(t, spec);
  size_t entry = begin_GetModelMetadataResponse_metadata(t);
  put_GetModelMetadataResponse_MetadataEntry_key(t, "signature_def");
  size_t any = begin_GetModelMetadataResponse_MetadataEntry_value(t);
  put_Any_type_url(t, "type.googleapis.com/tensorflow.serving.SignatureDefMap");
  size_t value = wire_open(t, Any_value);
  put_signatures(t, s->model);
  wire_end(t, value);
  wire_end(t, any);
  wire_end(t, entry);
}

static shoal_status check_fields(struct wire m) {
  bool any = false;
  for (struct wire_field f; wire_next(&m, &f) == WIRE_FIELD;) {
    if (f.tag != GetModelMetadataRequest_metadata_field) continue;
    struct chars name = {(const char *)f.data, f.size};
    if (!slice_is(name, "signature_def")) return INVALID("Metadata field %s is not supported", SLICE_CSTR(name));
    any = true;
  }
  return any ? NULL : INVALID("GetModelMetadataRequest must specify at least one metadata_field");
}

static shoal_status read_metadata(struct service *s, struct rpc_call *c, struct text *out) {
  struct wire m;
  struct model_spec spec;
  struct servable *found;
  TRY(request_read(c, &m));
  TRY(read_spec(m, GetModelMetadataRequest_model_spec, "GetModelMetadataRequest", &spec));
  TRY(check_fields(m));
  TRY(catalog_find(s->catalog, &spec, &found));
  put_metadata(out, found);
  servable_unref(found);
  return NULL;
}

static void get_model_metadata(struct rpc_call *c, void *arg) {
  struct text out = {0};
  shoal_status s = read_metadata(arg, c, &out);
  rpc_call_answer(c, s, &out);
}

/* ---- GetModelStatus ---- */

static void put_status(void *arg, const struct version_status *v) {
  struct text *t = arg, words = {0};
  size_t at = begin_GetModelStatusResponse_model_version_status(t);
  put_ModelVersionStatus_version(t, v->version);
  put_ModelVersionStatus_state(t, v->state);
  size_t status = begin_ModelVersionStatus_status(t);
  if (v->code) put_StatusProto_error_code(t, (int)v->code);
  text_add_utf8(&words, v->message, strlen(v->message));
  if (words.n) put_StatusProto_error_message(t, text_cstr(&words));
  text_release(&words);
  wire_end(t, status);
  wire_end(t, at);
}

static shoal_status read_status(struct service *s, struct rpc_call *c, struct text *out) {
  struct wire m;
  struct model_spec spec;
  TRY(request_read(c, &m));
  TRY(read_spec(m, GetModelStatusRequest_model_spec, "GetModelStatusRequest", &spec));
  return catalog_status(s->catalog, &spec, put_status, out);
}

static void get_model_status(struct rpc_call *c, void *arg) {
  struct text out = {0};
  shoal_status s = read_status(arg, c, &out);
  rpc_call_answer(c, s, &out);
}

/* ---- HandleReloadConfigRequest ---- */

struct reload_call {
  struct rpc_call *call;
  atomic_bool gone; /* who asked */
};

static void on_gone(void *r) { atomic_store(&((struct reload_call *)r)->gone, true); }
static bool is_gone(void *r) { return atomic_load(&((struct reload_call *)r)->gone); }

static void reloaded(void *arg, shoal_status s) {
  struct reload_call *r = arg;
  struct text out = {0};
  size_t at = begin_ReloadConfigResponse_status(&out);
  put_StatusProto_error_code(&out, Code_OK);
  wire_end(&out, at);
  rpc_call_answer(r->call, s, &out);
  free(r);
}

/* A client does not know what a path would be relative to. */
static shoal_status check_paths(const struct models_config *c) {
  for (size_t i = 0; i < c->models.n; i++)
    if (*c->models.at[i].base_path != '/')
      return INVALID("Expected model %s to have an absolute path or URI; got base_path()=%s", c->models.at[i].name,
                     c->models.at[i].base_path);
  return NULL;
}

static void handle_reload_config(struct rpc_call *c, void *arg) {
  struct service *service = arg;
  struct models_config config = {0};
  struct wire m, inside;
  shoal_status s = request_read(c, &m);
  if (!s && !find_ReloadConfigRequest_config(m, &inside)) s = INVALID("ReloadConfigRequest has no config");
  if (!s) s = models_config_read(&config, inside);
  if (!s) s = check_paths(&config);
  if (!s && !rpc_call_unpacks(c, config.bytes))
    s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "there is no room for the configuration of models beside other requests");
  if (!s) {
    struct reload_call *r = mem_zalloc(1, sizeof *r);
    r->call = c;
    rpc_call_on_cancel(c, on_gone, r);
    catalog_reload(service->catalog, &config, is_gone, reloaded, r);
    return;
  }
  models_config_release(&config);
  rpc_call_fail(c, s);
}

const struct rpc_method service_methods[] = {
    {"/tensorflow.serving.PredictionService/Predict", predict},
    {"/tensorflow.serving.PredictionService/Classify", classify},
    {"/tensorflow.serving.PredictionService/Regress", regress},
    {"/tensorflow.serving.PredictionService/MultiInference", multi_inference},
    {"/tensorflow.serving.PredictionService/GetModelMetadata", get_model_metadata},
    {"/tensorflow.serving.ModelService/GetModelStatus", get_model_status},
    {"/tensorflow.serving.ModelService/HandleReloadConfigRequest", handle_reload_config},
};
const int service_n_methods = (int)COUNT_OF(service_methods);

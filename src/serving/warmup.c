/* See warmup.h. */
#include "serving/warmup.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/record.h"
#include "proto/serving.wire.h"
#include "serving/inference.h"
#include "serving/predict.h"
#include "tensor/strings.h"

enum { MOST = 1000 };

static shoal_status predict(struct servable *s, struct wire request) {
  struct wire bytes;
  struct model_spec spec;
  struct query q = {0};
  if (!find_PredictRequest_model_spec(request, &bytes)) return INVALID("Missing ModelSpec");
  TRY(model_spec_read(bytes, &spec));
  shoal_status e = query_open(&q, servable_ref(s), spec.signature);
  if (!e) e = predict_read(&q, request, NULL, NULL);
  if (!e) e = query_run(&q);
  query_release(&q);
  return e;
}

static shoal_status replay(struct servable *s, struct wire log) {
  struct inference_source source = {.servable = s, .by = {.deadline = DEADLINE_NEVER}};
  struct text out = {0};
  struct wire inner, request = wire_from("", 0);
  shoal_status e = NULL;
  if (find_PredictionLog_predict_log(log, &inner)) {
    find_PredictLog_request(inner, &request);
    e = predict(s, request);
  } else if (find_PredictionLog_classify_log(log, &inner)) {
    find_ClassifyLog_request(inner, &request);
    e = inference_classify(&source, request, &out);
  } else if (find_PredictionLog_regress_log(log, &inner)) {
    find_RegressLog_request(inner, &request);
    e = inference_regress(&source, request, &out);
  } else if (find_PredictionLog_multi_inference_log(log, &inner)) {
    find_MultiInferenceLog_request(inner, &request);
    e = inference_multi(&source, request, &out);
  } else {
    e = UNIMPLEMENTED("Unsupported log_type for warmup");
  }
  text_release(&out);
  free(source.model);
  return e;
}

static shoal_status replay_all(struct servable *s, struct record_reader *r, struct text *record) {
  for (int i = 0; i < MOST; i++) {
    shoal_status e = record_read(r, record);
    if (e && shoal_status_code(e) == SHOAL_OUT_OF_RANGE) {
      shoal_status_free(e);
      return NULL;
    }
    if (!e) e = replay(s, wire_from(record->at, record->n));
    if (e) return status_prefix(e, "warm-up request %d: ", i + 1);
  }
  return INVALID("Number of warmup records exceeds the maximum (%d)", MOST);
}

shoal_status warmup(struct servable *s, const char *dir) {
  char *path = mem_printf("%s/assets.extra/tf_serving_warmup_requests", dir);
  struct record_reader r;
  struct text record = {0};
  shoal_status e = NULL;
  if (file_exists(path)) {
    e = record_reader_open(&r, path, RECORD_PLAIN);
    if (!e) {
      e = replay_all(s, &r, &record);
      record_reader_close(&r);
    }
  }
  counted_text_release(&record);
  free(path);
  return e;
}

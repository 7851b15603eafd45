/* See predict.h.
 *
 * Values are answered in typed fields, not as raw bytes, as TensorFlow Serving does it: clients read `float_val`. For
 * floats these are the same bytes, and leave from the tensor's own memory. */
#include "serving/predict.h"

#include "proto/serving.wire.h"
#include "proto/tensor.wire.h"
#include "tensor/tensor_proto.h"

/* By reference from so many bytes on. */
enum { LARGE = 4096 };

static shoal_status damaged(void) { return INVALID("PredictRequest does not parse as a protocol buffer"); }

/* ---- the request ---- */

static shoal_status unknown_input(const struct query *q, struct chars key) {
  struct text keys = {0};
  for (int i = 0; i < q->signature->n_inputs; i++) text_addf(&keys, "%s%s", i ? "," : "", q->keys[i]);
  shoal_status s = INVALID("input tensor alias not found in signature: %s. Inputs expected to be in the set {%s}.",
                           SLICE_CSTR(key), text_cstr(&keys));
  text_release(&keys);
  return s;
}

static shoal_status read_tensor(struct wire w, predict_room room, void *arg, shoal_tensor **out) {
  struct tensor_proto_view view;
  struct tensor t;
  TRY(tensor_proto_peek(w.at, wire_left(&w), &view));
  if (room && !room(arg, view.bytes))
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "there is no room for its %zu bytes beside what is held (--max_held_bytes)",
                  view.bytes);
  TRY(tensor_proto_decode(w.at, wire_left(&w), &t));
  *out = tensor_handle_take(&t);
  return NULL;
}

static shoal_status read_input(struct query *q, struct wire w, predict_room room, void *arg) {
  struct chars key = {"", 0};
  struct wire value = wire_from("", 0);
  struct wire_field f;
  enum wire_step step;
  shoal_tensor *t = NULL;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == PredictRequest_InputsEntry_key) key = (struct chars){(const char *)f.data, f.size};
    if (f.tag == PredictRequest_InputsEntry_value) value = wire_inside(&f);
  }
  if (step == WIRE_BROKEN) return damaged();
  int at = query_input(q, key);
  if (at < 0) return unknown_input(q, key);
  TRY(status_prefix(read_tensor(value, room, arg, &t), "input '%s': ", q->keys[at]));
  query_give(q, at, t);
  return NULL;
}

shoal_status predict_read(struct query *q, struct wire request, predict_room room, void *arg) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&request, &f)) == WIRE_FIELD) {
    if (f.tag == PredictRequest_inputs) TRY(read_input(q, wire_inside(&f), room, arg));
    if (f.tag == PredictRequest_output_filter) TRY(query_want(q, (struct chars){(const char *)f.data, f.size}));
  }
  if (step == WIRE_BROKEN) return damaged();
  if (!q->n_outputs) query_want_all(q);
  return NULL;
}

/* ---- the answer ---- */

static void let_go(void *tensor) { shoal_tensor_unref(tensor); }

/* All of a TensorProto but the bytes of its values. */
static void put_head(const struct tensor *t, struct text *out) {
  struct shape shape = tensor_shape(t);
  put_TensorProto_dtype(out, t->dtype);
  size_t at = begin_TensorProto_tensor_shape(out);
  shape_proto_encode(&shape, out);
  wire_end(out, at);
  wire_put_varint(out, t->dtype == SHOAL_FLOAT32 ? TensorProto_float_val_packed : TensorProto_double_val_packed);
  wire_put_varint(out, tensor_bytes(t));
}

static void put_output(struct message *m, const char *key, const struct text *head, size_t body) {
  size_t n = strlen(key);
  message_header(m, PredictResponse_outputs,
                 message_field_size(PredictResponse_OutputsEntry_key, n) +
                     message_field_size(PredictResponse_OutputsEntry_value, head->n + body));
  message_bytes(m, PredictResponse_OutputsEntry_key, key, n);
  message_header(m, PredictResponse_OutputsEntry_value, head->n + body);
  message_raw(m, text_cstr(head), head->n);
}

static shoal_status add_output(struct message *m, const char *key, shoal_tensor *value,
                               const struct unpack_room *room) {
  const struct tensor *t = &value->t;
  struct text head = {0};
  shoal_status s = NULL;
  bool floats = t->dtype == SHOAL_FLOAT32 || t->dtype == SHOAL_FLOAT64;
  if (floats && tensor_bytes(t) >= LARGE) {
    put_head(t, &head);
    put_output(m, key, &head, tensor_bytes(t));
    message_reference(m, t->data, tensor_bytes(t), let_go, shoal_tensor_ref(value));
  } else {
    s = tensor_proto_fields(t, &head);
    if (!s) s = unpack_take(room, head.n);
    if (!s) put_output(m, key, &head, 0);
  }
  text_release(&head);
  return s;
}

shoal_status predict_response(const struct query *q, struct rpc_message **out) {
  struct message m;
  struct text spec = {0};
  shoal_status s = NULL;
  message_init(&m);
  for (int i = 0; i < q->n_outputs && !s; i++) s = add_output(&m, q->outputs[i], q->answers[i], &q->room);
  model_spec_put(&spec, q->servable->name, q->servable->version, q->signature->key);
  message_bytes(&m, PredictResponse_model_spec, text_cstr(&spec), spec.n);
  text_release(&spec);
  if (s) message_release(&m);
  else *out = message_finish(&m);
  return s;
}

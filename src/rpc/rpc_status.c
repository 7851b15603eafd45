/* Errors on the wire; see rpc_status.h. */
#include "rpc/rpc_status.h"

#include <string.h>

#include "base/mem.h"
#include "base/status_marks.h"
#include "base/wire.h"
#include "proto/rpc_payload.wire.h"

#define DERIVED "type.googleapis.com/tensorflow.DerivedStatus"
#define RESTARTED "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted"
#define COORDINATION "type.googleapis.com/tensorflow.CoordinationServiceError"

void rpc_status_text(shoal_status s, struct text *out) {
  static const char cut[] = " ... [truncated]";
  const char *m = shoal_status_message(s);
  text_add_utf8(out, m, strnlen(m, RPC_MESSAGE_MAX + 1));
  if (out->n <= RPC_MESSAGE_MAX) return;
  out->n = RPC_MESSAGE_MAX - (sizeof cut - 1);
  while (((uint8_t)out->at[out->n] & 0xc0) == 0x80) out->n--; /* no part of a character */
  text_adds(out, cut);
}

static void put_mark(struct text *out, const char *key) {
  size_t entry = begin_GrpcPayloadContainer_payloads(out);
  put_GrpcPayloadContainer_PayloadsEntry_key(out, key);
  put_GrpcPayloadContainer_PayloadsEntry_value_n(out, "", 0);
  wire_end(out, entry);
}

void rpc_status_payload(shoal_status s, struct text *out) {
  if (status_is_derived(s)) put_mark(out, DERIVED);
  if (status_is_restarted(s)) put_mark(out, RESTARTED);
  if (status_is_coordination(s)) put_mark(out, COORDINATION);
}

static void read_marks(shoal_status s, const struct text *payload) {
  struct wire w = wire_from(payload->at, payload->n);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != GrpcPayloadContainer_payloads) continue;
    struct wire entry = wire_inside(&f);
    for (struct wire_field k; wire_next(&entry, &k) == WIRE_FIELD;) {
      if (k.tag != GrpcPayloadContainer_PayloadsEntry_key) continue;
      if (k.size == strlen(DERIVED) && !memcmp(k.data, DERIVED, k.size)) status_mark_derived(s);
      if (k.size == strlen(RESTARTED) && !memcmp(k.data, RESTARTED, k.size)) status_mark_restarted(s);
      if (k.size == strlen(COORDINATION) && !memcmp(k.data, COORDINATION, k.size)) status_mark_coordination(s);
    }
  }
}

shoal_status rpc_status_from(int code, const struct text *message, const struct text *payload) {
  if (code == SHOAL_OK) return NULL;
  shoal_status s = STATUS((shoal_code)((unsigned)code <= SHOAL_UNAUTHENTICATED ? code : SHOAL_UNKNOWN), "%.*s",
                          (int)MIN(message->n, 65536), text_cstr(message));
  if (payload->n) read_marks(s, payload);
  return s;
}

/* Errors on the wire; see rpc_status.h. */
#include "rpc/rpc_status.h"

#include <string.h>

#include "base/mem.h"
#include "base/wire.h"

#define DERIVED "type.googleapis.com/tensorflow.DerivedStatus"
#define RESTARTED "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted"

void rpc_status_text(shoal_status s, struct text *out) {
  static const char cut[] = " ... [truncated]";
  const char *m = shoal_status_message(s);
  size_t n = strlen(m);
  if (n <= RPC_MESSAGE_MAX) {
    text_add(out, m, n);
    return;
  }
  text_add(out, m, RPC_MESSAGE_MAX - (sizeof cut - 1));
  text_adds(out, cut);
}

static void put_mark(struct text *out, const char *key) {
  size_t entry = wire_begin(out, 1);
  wire_put_str(out, 1, key);
  wire_put_bytes(out, 2, "", 0);
  wire_end(out, entry);
}

void rpc_status_payload(shoal_status s, struct text *out) {
  if (status_is_derived(s)) put_mark(out, DERIVED);
  if (status_is_restarted(s)) put_mark(out, RESTARTED);
}

static void read_marks(shoal_status s, grpc_slice value) {
  struct wire w = wire_from(GRPC_SLICE_START_PTR(value), GRPC_SLICE_LENGTH(value));
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.number != 1 || f.type != WIRE_BYTES) continue;
    struct wire entry = wire_inside(&f);
    for (struct wire_field k; wire_next(&entry, &k) == WIRE_FIELD;) {
      if (k.number != 1 || k.type != WIRE_BYTES) continue;
      if (k.size == strlen(DERIVED) && !memcmp(k.data, DERIVED, k.size)) status_mark_derived(s);
      if (k.size == strlen(RESTARTED) && !memcmp(k.data, RESTARTED, k.size)) status_mark_restarted(s);
    }
  }
}

shoal_status rpc_status_from(grpc_status_code code, grpc_slice details, const grpc_metadata_array *trailers) {
  if (code == GRPC_STATUS_OK) return NULL;
  shoal_status s = STATUS((shoal_code)((unsigned)code <= SHOAL_UNAUTHENTICATED ? code : SHOAL_UNKNOWN), "%.*s",
                          (int)MIN(GRPC_SLICE_LENGTH(details), 65536), (const char *)GRPC_SLICE_START_PTR(details));
  for (size_t i = 0; trailers && i < trailers->count; i++)
    if (grpc_slice_str_cmp(trailers->metadata[i].key, "grpc-status-details-bin") == 0)
      read_marks(s, trailers->metadata[i].value);
  return s;
}

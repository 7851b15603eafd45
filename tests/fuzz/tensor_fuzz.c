/* TensorProto from anyone: decoding never crashes, and what was decoded survives a round trip. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tensor/tensor_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct tensor t, again;
  /* Repetition may make megabytes of a few bytes; that is allowed, but no use here. */
  size_t budget = 1 << 20;
  shoal_status s = tensor_proto_decode_within(data, size, &budget, &t);
  if (s) {
    shoal_status_free(s);
    return 0;
  }
  struct text out = {0};
  s = tensor_proto_encode(&t, &out);
  if (!s) {
    shoal_status back = tensor_proto_decode(out.at, out.n, &again);
    if (back || again.n != t.n || again.dtype != t.dtype) abort();
    tensor_release(&again);
  }
  shoal_status_free(s);
  text_release(&out);
  tensor_release(&t);
  return 0;
}

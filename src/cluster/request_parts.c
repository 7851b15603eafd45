/* See request_parts.h.
 *
 * The lists of a step (what is fed, fetched and run), of containers and of keys are unpacked before anything is known
 * of them, and what two bytes of a message become is two hundred times that. Counting them first costs nothing where
 * there are few, and nothing is taken on their word. */
#include "cluster/request_parts.h"

#include "base/status.h"
#include "base/wire.h"

/* FEW: so many are not worth counting. PART: bytes that one becomes until a step has been compiled. */
enum { FEW = 4096, MOST = 1 << 20, PART = 384, SMALLEST = 2 };

shoal_status request_parts(struct rpc_call *call, const void *data, size_t size) {
  if (size < (size_t)FEW * SMALLEST) return NULL;
  size_t n = 0;
  struct wire w = wire_from(data, size);
  for (struct wire_field f; n <= MOST && wire_next(&w, &f) == WIRE_FIELD;) n++;
  if (n > MOST)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "a request has more than %d names and values: that is too many", MOST);
  if (n <= FEW || !call || rpc_call_unpacks(call, n * PART)) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                "there is no room for the %zu names and values of a request beside those that are held "
                "(--max_held_bytes)",
                n);
}

shoal_status request_read(struct rpc_call *call, struct wire *out) {
  const void *data;
  size_t size;
  TRY(rpc_call_request(call, &data, &size));
  *out = wire_from(data, size);
  return request_parts(call, data, size);
}

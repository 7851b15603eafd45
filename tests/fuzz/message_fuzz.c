/* Types of messages from anyone, and messages of them. The first two bytes say how long the FileDescriptorSet is; the
 * rest is read as a message of every type in it, from bytes and from text. What comes out of a rewriting is a message:
 * rewriting it again changes nothing. */
#include <stdlib.h>
#include <string.h>

#include "ops/text/message_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  size_t n = (size_t)(data[0] | data[1] << 8);
  if (n > size - 2) n = size - 2;
  const uint8_t *rest = data + 2 + n;
  size_t left = size - 2 - n;
  struct message_pool pool = {0};
  shoal_status s = message_pool_read(&pool, data + 2, n);
  for (size_t i = 0; !s && i < pool.types.n && i < 8; i++) {
    const struct message_type *m = pool.types.at[i];
    struct text once = {0}, twice = {0}, text = {0};
    shoal_status r = message_rewrite(m, wire_from(rest, left), &once);
    if (!r) {
      shoal_status again = message_rewrite(m, wire_from(text_cstr(&once), once.n), &twice);
      if (again || once.n != twice.n || memcmp(text_cstr(&once), text_cstr(&twice), once.n)) abort();
    }
    shoal_status_free(r);
    shoal_status_free(message_read_text(m, (const char *)rest, left, &text));
    text_release(&once);
    text_release(&twice);
    text_release(&text);
  }
  shoal_status_free(s);
  message_pool_release(&pool);
  return 0;
}

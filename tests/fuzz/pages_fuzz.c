/* A request to the pages in plain HTTP, whole or in two parts: there is an answer or a wish for more, never a crash,
 * and what is answered is HTTP. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "rpc/pages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int page(void *arg, struct text *out) {
  text_adds(out, "a page\n");
  return 200;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const struct page rows[] = {{"/healthz", "text/plain", page}, {"/metrics", "text/plain", page}};
  for (size_t n = size / 2; n <= size; n += size - size / 2 ? size - size / 2 : 1) {
    struct text out = {0};
    char *copy = malloc(n ? n : 1); /* exactly as long: to be caught reading past it */
    if (n) memcpy(copy, data, n);
    bool done = pages_answer(rows, 2, NULL, copy, n, &out);
    MUST(done == (out.n > 0) && (!done || !strncmp(out.at, "HTTP/1.1 ", 9)));
    free(copy);
    text_release(&out);
  }
  return 0;
}

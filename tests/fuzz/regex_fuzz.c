/* A pattern and a text, parted by the first zero: compiling and matching end, quickly, whatever they are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *zero = memchr(data, 0, size);
  size_t n = zero ? (size_t)(zero - data) : size;
  const char *text = zero ? (const char *)zero + 1 : "";
  size_t text_n = zero ? size - n - 1 : 0;
  if (text_n > 256) text_n = 256;
  char *error = NULL;
  struct regex *r = regex_new((const char *)data, n, &error);
  if (r) {
    struct regex_span spans[REGEX_MAX_GROUPS];
    regex_full_match(r, text, text_n);
    regex_search(r, text, text_n, 0, spans);
    regex_free(r);
  }
  free(error);
  return 0;
}

/* A request to the pages in plain HTTP, whole or in two parts: it is read, refused or wished more of, never a crash,
 * and what is answered is HTTP. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "rpc/http1/http1_parse.h"
#include "rpc/http1/pages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int page(void *arg, struct text *out) {
  text_adds(out, "a page\n");
  return 200;
}

static void ask(const struct http1_head *h) {
  static const struct page rows[] = {{"/healthz", "text/plain", page}, {"/metrics", "text/plain", page}};
  char path[256];
  if (!http1_path(h->target, path, sizeof path)) return;
  struct http1_answer a = {0};
  struct text out = {0};
  pages_answer(rows, 2, NULL, &(struct http1_request){.method = h->method, .path = path, .has_body = h->length != 0},
               &a);
  http1_put_head(&out, &a, a.body.n, h->keep);
  MUST(a.code >= 200 && a.body.n && !strncmp(out.at, "HTTP/1.1 ", 9) && str_ends(text_cstr(&out), "\r\n\r\n"));
  text_release(&a.body);
  text_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (size_t n = size / 2; n <= size; n += size - size / 2 ? size - size / 2 : 1) {
    struct http1_head h;
    char *copy = malloc(n ? n : 1); /* exactly as long: to be caught reading past it */
    if (n) memcpy(copy, data, n);
    if (http1_head_read(copy, n, &h) == HTTP1_WHOLE) ask(&h);
    free(copy);
  }
  return 0;
}

/* See pages.h.
 *
 * There are at most MAX_VISITS at a time: the oldest goes when one more comes, so that idle ones cannot lock a probe
 * out, nor take the places of gRPC's clients. */
#include "rpc/http1/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_VISITS = 32 };

static const char TYPE[] = "text/plain; charset=utf-8", FRESH[] = "Cache-Control: no-store\r\n";

struct pages {
  const struct page *rows;
  int n_rows;
  void *arg;
  struct http1 *http;
};

static void refuse(void *arg, int code, const char *words, struct http1_answer *a) {
  a->code = code;
  a->type = TYPE;
  a->fields = code == 405 ? "Allow: GET, HEAD\r\nCache-Control: no-store\r\n" : FRESH;
  text_addf(&a->body, "%s\n", words);
}

void pages_answer(const struct page *rows, int n_rows, void *arg, const struct http1_request *r,
                  struct http1_answer *a) {
  if (!slice_is(r->method, "GET") && !slice_is(r->method, "HEAD")) {
    refuse(NULL, 405, "only GET and HEAD", a);
    return;
  }
  if (r->has_body) {
    refuse(NULL, 413, "a request with a body is not taken", a);
    return;
  }
  for (int i = 0; i < n_rows; i++) {
    if (strcmp(rows[i].path, r->path) != 0) continue;
    a->type = rows[i].type;
    a->fields = FRESH;
    a->code = rows[i].write(arg, &a->body);
    return;
  }
  struct text words = {0};
  text_adds(&words, "there is no such page; there are:");
  for (int i = 0; i < n_rows; i++) text_addf(&words, " %s", rows[i].path);
  refuse(NULL, 404, text_cstr(&words), a);
  text_release(&words);
}

static void handle(void *arg, const struct http1_request *r, struct http1_answer *a) {
  const struct pages *p = arg;
  pages_answer(p->rows, p->n_rows, p->arg, r, a);
}

shoal_status pages_start(const char *host, int port, const struct page *rows, int n, void *arg, struct pages **out) {
  struct pages *p = mem_zalloc(1, sizeof *p);
  *p = (struct pages){.rows = rows, .n_rows = n, .arg = arg};
  shoal_status s = http1_start(&(struct http1_options){.host = host,
                                                       .port = port,
                                                       .flags = "--http_host, --http_port",
                                                       .no_body = true,
                                                       .once = true,
                                                       .max_visits = MAX_VISITS,
                                                       .tells_stalls = true,
                                                       .handle = handle,
                                                       .refuse = refuse,
                                                       .arg = p},
                               &p->http);
  if (s) free(p);
  else *out = p;
  return s;
}

int pages_port(const struct pages *p) { return http1_port(p->http); }

void pages_close(struct pages *p) {
  if (p) http1_close(p->http, 0);
}

void pages_stop(struct pages *p) {
  if (!p) return;
  http1_stop(p->http);
  free(p);
}

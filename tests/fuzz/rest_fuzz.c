/* What REST reads of strangers: heads, chunks however they are cut, paths, JSON. What was checked can be walked: every
 * value, every string, every number, without leaving the text. */
#include <stdlib.h>
#include <string.h>

#include "rpc/http1/http1_parse.h"
#include "serving/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_head(const char *at, size_t n) {
  struct http1_head h;
  char path[256];
  int code = http1_head_read(at, n, &h);
  if (code != HTTP1_WHOLE) return;
  MUST(h.size <= n && h.length >= -1 && h.method.n && h.target.n);
  if (http1_path(h.target, path, sizeof path)) MUST(*path == '/' && strlen(path) < sizeof path);
}

/* Cut into pieces of `step` bytes the body is the same. */
static size_t read_chunks(const char *at, size_t n, size_t step, int *code) {
  struct http1_chunks c = {0};
  size_t body = 0;
  *code = HTTP1_MORE;
  for (size_t i = 0; i < n && *code == HTTP1_MORE;) {
    size_t used, data_n, have = n - i < step ? n - i : step;
    const char *part;
    *code = http1_chunks_read(&c, at + i, have, &used, &part, &data_n);
    MUST(used <= have && (!data_n || (part >= at + i && part + data_n <= at + i + used)));
    if (!used && *code == HTTP1_MORE) abort();
    body += data_n;
    i += used;
  }
  return body;
}

static void walk(json_value v, const char *end, struct text *scratch) {
  enum json_type t = json_type_of(v);
  MUST(json_end(v) <= end);
  if (t == JSON_NUMBER) json_number_of(v);
  if (t == JSON_STRING) {
    scratch->n = 0;
    json_string(v, scratch);
    MUST(str_is_utf8(text_cstr(scratch), scratch->n));
  }
  if (t != JSON_ARRAY && t != JSON_OBJECT) return;
  json_value key, value;
  int64_t n = 0;
  for (struct json_walk w = json_inside(v); json_next(&w, &key, &value); n++) {
    if (key) walk(key, end, scratch);
    walk(value, end, scratch);
  }
  MUST(n == json_count(v));
}

static void read_json(const char *at, size_t n) {
  shoal_status s = json_check(at, n);
  json_value v = s ? NULL : json_first(at);
  struct text scratch = {0};
  if (v && json_type_of(v) == JSON_OBJECT) {
    walk(v, at + n, &scratch);
    json_member(v, "instances");
    scratch.n = 0;
    json_show(v, &scratch);
  }
  text_release(&scratch);
  shoal_status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *copy = malloc(size ? size : 1); /* exactly as long: to be caught reading past it */
  if (size) memcpy(copy, data, size);
  int whole, cut;
  read_head(copy, size);
  size_t a = read_chunks(copy, size, size ? size : 1, &whole), b = read_chunks(copy, size, 3, &cut);
  MUST(whole == cut && a == b);
  read_json(copy, size);
  free(copy);
  return 0;
}

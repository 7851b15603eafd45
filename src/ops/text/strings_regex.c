/* RegexReplace and RegexFullMatch, with the pattern as an input or as an attribute. The matcher is base/regex.h. */
#include <pthread.h>
#include <string.h>

#include "base/regex.h"
#include "base/text.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"
#include "tensor/strings.h"

struct regex_state {
  struct regex *fixed; /* the attribute's pattern; NULL when it is an input */
  char *rewrite;
  size_t rewrite_n;
  bool global;
  pthread_mutex_t lock; /* guards the pattern last seen as an input */
  struct regex *last;
  struct text last_text;
};

static shoal_status compile(const char *pattern, size_t n, struct regex **out) {
  char *error;
  *out = regex_new(pattern, n, &error);
  if (*out) return NULL;
  shoal_status s = INVALID("Invalid pattern: %.*s, error: %s", (int)n, pattern, error);
  free(error);
  return s;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct regex_state *s = state;
  pthread_mutex_init(&s->lock, NULL);
  const struct attr *pattern = node_attr(ki->node, "pattern"), *rewrite = node_attr(ki->node, "rewrite");
  if (node_attr(ki->node, "replace_global")) TRY(node_get_bool(ki->node, "replace_global", &s->global));
  if (rewrite && rewrite->kind == ATTR_STRING) {
    s->rewrite_n = rewrite->s.n;
    s->rewrite = mem_alloc(s->rewrite_n + 1);
    memcpy(s->rewrite, rewrite->s.data, s->rewrite_n);
  }
  return pattern && pattern->kind == ATTR_STRING ? compile(pattern->s.data, pattern->s.n, &s->fixed) : NULL;
}

static void release(void *state) {
  struct regex_state *s = state;
  regex_free(s->fixed);
  regex_free(s->last);
  free(s->rewrite);
  text_release(&s->last_text);
  pthread_mutex_destroy(&s->lock);
}

/* The pattern of input 1, taken out of the state where the last step left it; give it back with keep(). */
static shoal_status take(struct kernel_ctx *ctx, struct regex **out) {
  struct regex_state *s = ctx->state;
  const struct tensor *pattern = ctx_in(ctx, 1);
  if (pattern->rank != 0) {
    struct shape shape = tensor_shape(pattern);
    return INVALID("Pattern must be scalar, but received %s", shape_str(&shape));
  }
  const struct str *p = string_at(pattern, 0);
  struct regex *r = NULL;
  pthread_mutex_lock(&s->lock);
  if (s->last && s->last_text.n == p->size && memcmp(text_cstr(&s->last_text), str_data(p), p->size) == 0) {
    r = s->last;
    s->last = NULL;
  }
  pthread_mutex_unlock(&s->lock);
  if (!r) TRY(compile(str_data(p), p->size, &r));
  *out = r;
  return NULL;
}

static void keep(struct kernel_ctx *ctx, struct regex *r) {
  struct regex_state *s = ctx->state;
  const struct str *p = string_at(ctx_in(ctx, 1), 0);
  pthread_mutex_lock(&s->lock);
  struct regex *old = s->last;
  s->last = r;
  s->last_text.n = 0;
  text_add(&s->last_text, str_data(p), p->size);
  pthread_mutex_unlock(&s->lock);
  regex_free(old);
}

/* ---- replacing ---- */

/* \0 to \9 stand for groups, \\ for a backslash. False when it asks for a group there is not. */
static bool rewrite_valid(const struct regex *r, const char *rewrite, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (rewrite[i] != '\\') continue;
    if (++i == n) return false;
    if (rewrite[i] >= '0' && rewrite[i] <= '9' ? rewrite[i] - '0' > regex_groups(r) : rewrite[i] != '\\') return false;
  }
  return true;
}

/* As it grows it is copied, and once more when it is whole. A few bytes can ask for any number of them. */
static bool put(struct text *out, const char *from, size_t n) {
  enum { COPIES = 4 };
  return strings_have_room((out->n + n) * COPIES) && text_try_add(out, from, n);
}

/* False: there is no memory for it. */
static bool put_rewrite(struct text *out, const char *text, const struct regex_span *spans, const char *rewrite,
                        size_t n) {
  if (!put(out, "", 0)) return false;
  for (size_t i = 0; i < n; i++) {
    if (rewrite[i] != '\\') {
      text_addc(out, rewrite[i]);
      continue;
    }
    char c = rewrite[++i];
    if (c == '\\') text_addc(out, '\\');
    else if (spans[c - '0'].begin >= 0 &&
             !put(out, text + spans[c - '0'].begin, (size_t)(spans[c - '0'].end - spans[c - '0'].begin)))
      return false;
  }
  return true;
}

static bool replace(const struct regex *r, const struct str *in, const char *rewrite, size_t rewrite_n, bool global,
                    struct text *out) {
  const char *text = str_data(in);
  size_t n = in->size, at = 0;
  ptrdiff_t last_end = -1;
  struct regex_span m[REGEX_MAX_GROUPS];
  while (at <= n && regex_search(r, text, n, at, m)) {
    text_add(out, text + at, (size_t)m[0].begin - at);
    if (m[0].begin == m[0].end && m[0].begin == last_end) { /* nothing, right after a match: one character on */
      if ((size_t)m[0].begin == n) {
        at = n;
        break;
      }
      at = (size_t)m[0].begin;
      do text_addc(out, text[at++]);
      while (at < n && ((unsigned char)text[at] & 0xc0) == 0x80);
      last_end = -1;
      continue;
    }
    if (!put_rewrite(out, text, m, rewrite, rewrite_n)) return false;
    at = (size_t)m[0].end;
    last_end = m[0].end;
    if (!global) break;
  }
  if (at < n) text_add(out, text + at, n - at);
  return true;
}

static shoal_status replace_all(struct kernel_ctx *ctx, const struct regex *r, const char *rewrite, size_t n) {
  const struct regex_state *s = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  if (!rewrite_valid(r, rewrite, n)) return ctx_forward(ctx, 0, 0, NULL);
  struct shape shape = tensor_shape(x);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct text t = {0};
  bool fits = true;
  for (int64_t i = 0; i < x->n && fits; i++) {
    t.n = 0;
    fits =
        replace(r, string_at(x, i), rewrite, n, s->global, &t) && str_try_set(&T_DATA(out, struct str)[i], t.at, t.n);
  }
  size_t size = t.n;
  text_release(&t);
  return fits ? NULL : NO_MEMORY(size, "a string, and more");
}

static shoal_status run_replace(struct kernel_ctx *ctx) {
  const struct tensor *rewrite = ctx_in(ctx, 2);
  struct regex *r;
  TRY(take(ctx, &r));
  shoal_status s;
  if (rewrite->rank != 0) {
    struct shape shape = tensor_shape(rewrite);
    s = INVALID("Rewrite must be scalar, but received %s", shape_str(&shape));
  } else {
    s = replace_all(ctx, r, str_data(string_at(rewrite, 0)), string_at(rewrite, 0)->size);
  }
  keep(ctx, r);
  return s;
}

static shoal_status run_static_replace(struct kernel_ctx *ctx) {
  const struct regex_state *s = ctx->state;
  return replace_all(ctx, s->fixed, s->rewrite, s->rewrite_n);
}

/* ---- matching ---- */

static shoal_status match_all(struct kernel_ctx *ctx, const struct regex *r) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  for (int64_t i = 0; i < x->n; i++)
    T_DATA(out, bool)[i] = regex_full_match(r, str_data(string_at(x, i)), string_at(x, i)->size);
  return NULL;
}

static shoal_status run_match(struct kernel_ctx *ctx) {
  struct regex *r;
  TRY(take(ctx, &r));
  shoal_status s = match_all(ctx, r);
  keep(ctx, r);
  return s;
}

static shoal_status run_static_match(struct kernel_ctx *ctx) {
  return match_all(ctx, ((const struct regex_state *)ctx->state)->fixed);
}

#define KERNEL(fn)                                                                                                  \
  (const struct kernel_def[]) {                                                                                     \
    {.device = "CPU", .state_size = sizeof(struct regex_state), .init = init, .release = release, .run = fn}, { 0 } \
  }

static const struct op_row rows[] = {
    {.name = "RegexReplace",
     .in = "input: string, pattern: string, rewrite: string",
     .out = "output: string",
     .attrs = "replace_global: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = KERNEL(run_replace)},
    {.name = "StaticRegexReplace",
     .in = "input: string",
     .out = "output: string",
     .attrs = "pattern: string; rewrite: string; replace_global: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = KERNEL(run_static_replace)},
    {.name = "RegexFullMatch",
     .in = "input: string, pattern: string",
     .out = "output: bool",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = KERNEL(run_match)},
    {.name = "StaticRegexFullMatch",
     .in = "input: string",
     .out = "output: bool",
     .attrs = "pattern: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = KERNEL(run_static_match)},
};
OP_FAMILY(strings_regex, rows);

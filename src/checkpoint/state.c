/* The `checkpoint` file; see state.h. Fields it does not know are stepped over, as long as they are scalars. */
#include "checkpoint/state.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { LIMIT = 64 << 20 };

void checkpoint_state_release(struct checkpoint_state *s) {
  free(s->latest);
  for (size_t i = 0; i < s->all.n; i++) free(s->all.at[i]);
  vec_release(&s->all);
  vec_release(&s->timestamps);
  *s = (struct checkpoint_state){0};
}

static char *state_path(const char *dir, const char *name) {
  return *dir ? mem_printf("%s/%s", dir, name ? name : "checkpoint") : mem_strdup(name ? name : "checkpoint");
}

static const char *skip_space(const char *p) {
  for (;;) {
    while (isspace((unsigned char)*p)) p++;
    if (*p != '#') return p;
    while (*p && *p != '\n') p++;
  }
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* A quoted string; NULL when it does not end. */
static const char *parse_string(const char *p, struct text *out) {
  char quote = *p++;
  for (; *p != quote; p++) {
    if (!*p || *p == '\n') return NULL;
    if (*p != '\\') {
      text_addc(out, *p);
      continue;
    }
    static const char from[] = "abfnrtv", to[] = "\a\b\f\n\r\t\v";
    const char *at;
    p++;
    if (*p >= '0' && *p <= '7') {
      int v = 0, n = 0;
      for (; n < 3 && *p >= '0' && *p <= '7'; n++, p++) v = v * 8 + (*p - '0');
      p--;
      text_addc(out, (char)v);
    } else if ((*p == 'x' || *p == 'X') && hex(p[1]) >= 0) {
      int v = hex(*++p);
      if (hex(p[1]) >= 0) v = v * 16 + hex(*++p);
      text_addc(out, (char)v);
    } else if (*p && (at = strchr(from, *p))) {
      text_addc(out, to[at - from]);
    } else if (*p) {
      text_addc(out, *p);
    } else {
      return NULL;
    }
  }
  return p + 1;
}

static char *resolve(const char *dir, char *path) {
  if (path[0] == '/' || !*dir || strstr(path, "://")) return path;
  char *full = mem_printf("%s/%s", dir, path);
  free(path);
  return full;
}

static bool parse(const char *dir, const char *p, struct checkpoint_state *s) {
  for (p = skip_space(p); *p; p = skip_space(p)) {
    const char *name = p;
    while (isalnum((unsigned char)*p) || *p == '_') p++;
    size_t n = (size_t)(p - name);
    p = skip_space(p);
    if (n == 0 || *p != ':') return false;
    p = skip_space(p + 1);
#define IS(text) (n == sizeof(text) - 1 && memcmp(name, text, n) == 0)
    if (*p == '"' || *p == '\'') {
      struct text value = {0};
      do { /* strings side by side are one */
        p = parse_string(p, &value);
        if (!p) {
          text_release(&value);
          return false;
        }
        p = skip_space(p);
      } while (*p == '"' || *p == '\'');
      char *path = resolve(dir, text_take(&value));
      if (IS("model_checkpoint_path")) {
        free(s->latest);
        s->latest = path;
      } else if (IS("all_model_checkpoint_paths")) {
        vec_push(&s->all, path);
      } else {
        free(path);
      }
    } else {
      char *end;
      double v = strtod(p, &end);
      if (end == p) return false;
      p = end;
      if (IS("all_model_checkpoint_timestamps")) vec_push(&s->timestamps, v);
      else if (IS("last_preserved_timestamp")) s->last_preserved = v;
    }
#undef IS
    if (*p == ',' || *p == ';') p++;
  }
  return true;
}

shoal_status checkpoint_state_read(const char *dir, const char *name, struct checkpoint_state *out) {
  *out = (struct checkpoint_state){0};
  char *path = state_path(dir, name), *data;
  size_t n;
  shoal_status s = file_read(path, LIMIT, &data, &n);
  if (!s) {
    if (!parse(dir, data, out)) {
      checkpoint_state_release(out);
      s = STATUS(SHOAL_DATA_LOSS,
                 "%s is no checkpoint state file: remove it, or let it say model_checkpoint_path: \"model.ckpt-N\"",
                 path);
    }
    free(data);
  }
  free(path);
  return s;
}

static void put_string(struct text *t, const char *field, const char *value) {
  text_addf(t, "%s: \"", field);
  for (const char *p = value; *p; p++) {
    unsigned char c = (unsigned char)*p;
    if (c == '\n') text_adds(t, "\\n");
    else if (c == '\r') text_adds(t, "\\r");
    else if (c == '\t') text_adds(t, "\\t");
    else if (c == '"' || c == '\'' || c == '\\') text_addf(t, "\\%c", c);
    else if (c < 32 || c >= 127) text_addf(t, "\\%03o", c);
    else text_addc(t, *p);
  }
  text_adds(t, "\"\n");
}

/* The shortest form that reads back as the same number. */
static void put_double(struct text *t, const char *field, double v) {
  char b[40];
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(b, sizeof b, "%.*g", digits, v);
    if (strtod(b, NULL) == v) break;
  }
  text_addf(t, "%s: %s\n", field, b);
}

shoal_status checkpoint_state_write(const char *dir, const char *name, const struct checkpoint_state *s) {
  struct text t = {0};
  if (s->latest) put_string(&t, "model_checkpoint_path", s->latest);
  for (size_t i = 0; i < s->all.n; i++) put_string(&t, "all_model_checkpoint_paths", s->all.at[i]);
  for (size_t i = 0; i < s->timestamps.n; i++) put_double(&t, "all_model_checkpoint_timestamps", s->timestamps.at[i]);
  if (s->last_preserved != 0) put_double(&t, "last_preserved_timestamp", s->last_preserved);
  char *path = state_path(dir, name);
  shoal_status e = file_write(path, t.at, t.n);
  free(path);
  text_release(&t);
  return e;
}

char *checkpoint_latest(const char *dir) {
  struct checkpoint_state s;
  shoal_status e = checkpoint_state_read(dir, NULL, &s);
  if (e) {
    shoal_status_free(e);
    return NULL;
  }
  char *latest = s.latest;
  s.latest = NULL;
  checkpoint_state_release(&s);
  if (!latest) return NULL;
  char *index = mem_printf("%s.index", latest);
  bool there = file_exists(index) || file_exists(latest);
  free(index);
  if (there) return latest;
  free(latest);
  return NULL;
}

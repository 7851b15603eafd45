/* Device names: the grammar TensorFlow accepts.
 *
 *   name = { "/job:" WORD | "/replica:" ID | "/task:" ID | "/device:" TYPE ":" ID | "/" OLD ":" ID }
 *
 * ID is a number or "*" (any); OLD is "cpu" or "gpu", as names were before there were others: any word there would make
 * a device type of every mistyped "/tsk:0". TYPE and OLD without an id ("/device:CPU", "/gpu") are accepted too. */
#include "base/device_name.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shoal_status bad(const char *name) { return INVALID("Malformed device specification '%s'", name); }

/* A number or '*'; *has is false for '*'. */
static bool read_id(const char **at, bool *has, int *id) {
  if (**at == '*') {
    ++*at;
    *has = false;
    return true;
  }
  if (!isdigit((unsigned char)**at)) return false;
  char *end;
  long v = strtol(*at, &end, 10);
  if (v < 0 || v > 1000000) return false;
  *at = end;
  *has = true;
  *id = (int)v;
  return true;
}

static bool read_word(const char **at, char *out, size_t size, bool upper) {
  size_t n = 0;
  while (isalnum((unsigned char)**at) || **at == '_') {
    if (n + 1 >= size) return false;
    out[n++] = (char)(upper ? toupper((unsigned char)**at) : **at);
    ++*at;
  }
  out[n] = 0;
  return n > 0;
}

static shoal_status unknown_part(const char *name, const char *part) {
  return INVALID("Malformed device specification '%s': '%.*s' is none of job, replica, task, device, cpu and gpu", name,
                 (int)strcspn(part, ":/"), part);
}

static bool eat(const char **at, const char *word) {
  size_t n = strlen(word);
  if (strncmp(*at, word, n)) return false;
  *at += n;
  return true;
}

static bool read_device(const char **at, struct device_spec *s) {
  if (**at == '*') { /* any device: "/device:*" */
    ++*at;
    return !eat(at, ":") || eat(at, "*");
  }
  if (!read_word(at, s->type, sizeof s->type, true)) return false;
  s->has_type = true;
  return **at != ':' || (++*at, read_id(at, &s->has_id, &s->id));
}

shoal_status device_spec_parse(const char *name, struct device_spec *out) {
  struct device_spec s = {0};
  const char *at = name;
  while (*at) {
    if (*at != '/') return bad(name);
    if (eat(&at, "/job:")) {
      if (*at == '*') at++;
      else if (!read_word(&at, s.job, sizeof s.job, false)) return bad(name);
      else s.has_job = true;
    } else if (eat(&at, "/replica:")) {
      if (!read_id(&at, &s.has_replica, &s.replica)) return bad(name);
    } else if (eat(&at, "/task:")) {
      if (!read_id(&at, &s.has_task, &s.task)) return bad(name);
    } else if (eat(&at, "/device:")) {
      if (!read_device(&at, &s)) return bad(name);
    } else {
      at++;
      if (!*at && at == name + 1) break; /* "/" alone: anything */
      const char *part = at;
      if (!read_device(&at, &s)) return bad(name);
      if (strcmp(s.type, "CPU") != 0 && strcmp(s.type, "GPU") != 0) return unknown_part(name, part);
    }
  }
  *out = s;
  return NULL;
}

/* Adds to a text of n bytes, of which size have room; the new length. */
__attribute__((format(printf, 4, 5))) static size_t add(char *out, size_t size, size_t n, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int more = vsnprintf(out + (n < size ? n : size - 1), n < size ? size - n : 1, fmt, ap);
  va_end(ap);
  return n + (size_t)more;
}

void device_spec_print(const struct device_spec *s, char *out, size_t size) {
  size_t n = 0;
  out[0] = 0;
  if (s->has_job) n = add(out, size, n, "/job:%s", s->job);
  if (s->has_replica) n = add(out, size, n, "/replica:%d", s->replica);
  if (s->has_task) n = add(out, size, n, "/task:%d", s->task);
  if (s->has_type && s->has_id) add(out, size, n, "/device:%s:%d", s->type, s->id);
  else if (s->has_type) add(out, size, n, "/device:%s:*", s->type);
}

bool device_spec_matches(const struct device_spec *want, const struct device_spec *have) {
  if (want->has_job && (!have->has_job || strcmp(want->job, have->job))) return false;
  if (want->has_replica && (!have->has_replica || want->replica != have->replica)) return false;
  if (want->has_task && (!have->has_task || want->task != have->task)) return false;
  if (want->has_type && (!have->has_type || strcmp(want->type, have->type))) return false;
  return !want->has_id || (have->has_id && want->id == have->id);
}

void device_spec_merge(struct device_spec *into, const struct device_spec *over) {
  if (over->has_job) {
    into->has_job = true;
    memcpy(into->job, over->job, sizeof into->job);
  }
  if (over->has_replica) into->has_replica = true, into->replica = over->replica;
  if (over->has_task) into->has_task = true, into->task = over->task;
  if (over->has_type) {
    into->has_type = true;
    memcpy(into->type, over->type, sizeof into->type);
    into->has_id = over->has_id;
    into->id = over->id;
  } else if (over->has_id) {
    into->has_id = true;
    into->id = over->id;
  }
}

bool device_spec_fill(struct device_spec *into, const struct device_spec *from) {
  if (into->has_job && from->has_job && strcmp(into->job, from->job)) return false;
  if (into->has_replica && from->has_replica && into->replica != from->replica) return false;
  if (into->has_task && from->has_task && into->task != from->task) return false;
  if (into->has_type && from->has_type && strcmp(into->type, from->type)) return false;
  if (into->has_id && from->has_id && into->id != from->id) return false;
  device_spec_merge(into, from);
  return true;
}

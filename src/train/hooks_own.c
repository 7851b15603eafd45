/* Hooks of a program's own that are made of a struct which can grow (shoal/hooks.h). shoal_hook is handed out by value,
 * so that it cannot; what a later version adds is found in the struct that stands behind `state`. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/options.h"
#include "shoal/hooks.h"

struct own_hook {
  shoal_hook_functions f;
  char *name;
  shoal_status refused; /* the struct makes no sense; told by begin */
};

static shoal_status named(const struct own_hook *h, shoal_status s) {
  return s && h->name ? status_prefix(s, "hook \"%s\": ", h->name) : s;
}

static shoal_status begin(void *state, shoal_graph *g) {
  struct own_hook *h = state;
  if (h->refused) return status_copy(h->refused);
  return h->f.begin ? named(h, h->f.begin(h->f.state, g)) : NULL;
}

static shoal_status after_create(void *state, const shoal_created *created) {
  struct own_hook *h = state;
  return h->f.after_create ? named(h, h->f.after_create(h->f.state, created)) : NULL;
}

static shoal_status before_run(void *state, shoal_run_context *step) {
  struct own_hook *h = state;
  return h->f.before_run ? named(h, h->f.before_run(h->f.state, step)) : NULL;
}

static shoal_status after_run(void *state, shoal_run_context *step) {
  struct own_hook *h = state;
  return h->f.after_run ? named(h, h->f.after_run(h->f.state, step)) : NULL;
}

static shoal_status end(void *state, shoal_session *session) {
  struct own_hook *h = state;
  return h->f.end ? named(h, h->f.end(h->f.state, session)) : NULL;
}

static void before_close(void *state) {
  struct own_hook *h = state;
  if (h->f.before_close) h->f.before_close(h->f.state);
}

static void release(void *state) {
  struct own_hook *h = state;
  if (h->f.free) h->f.free(h->f.state);
  shoal_status_free(h->refused);
  free(h->name);
  free(h);
}

shoal_hook shoal_hook_of(const shoal_hook_functions *f) {
  struct own_hook *h = mem_zalloc(1, sizeof *h);
  h->refused = OPTIONS_TAKE(shoal_hook_functions, free, &h->f, f);
  h->name = h->f.name ? mem_strdup(h->f.name) : NULL;
  return (shoal_hook){h, begin, after_create, before_run, after_run, end, before_close, release};
}

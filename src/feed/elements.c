/* A dataset's elements for programs that want no graph: an iterator in a session of its own. */
#include <stdlib.h>

#include "base/given.h"
#include "feed/element.h"
#include "shoal/step.h"

struct shoal_elements {
  shoal_session *session;
  shoal_op *begin;
  int64_t next; /* a callable */
  int n;
};

static shoal_status make_callable(struct shoal_elements *e, const shoal_out *next) {
  char *names[SHOAL_MAX_COMPONENTS];
  for (int i = 0; i < e->n; i++) names[i] = mem_printf("%s:%d", next[i].node->name, next[i].index);
  shoal_status s =
      shoal_session_make_callable(e->session, NULL, 0, (const char *const *)names, e->n, NULL, 0, &e->next);
  for (int i = 0; i < e->n; i++) free(names[i]);
  return s;
}

static shoal_status begin(struct shoal_elements *e, shoal_graph *g, shoal_out d, const shoal_session_options *options) {
  shoal_out next[SHOAL_MAX_COMPONENTS];
  e->begin = shoal_dataset_next(g, d, next, e->n, NULL);
  if (graph_error(g)) return status_copy(graph_error(g));
  TRY(shoal_session_open(g, options, &e->session));
  TRY(make_callable(e, next));
  return shoal_elements_rewind(e);
}

shoal_status shoal_elements_open(shoal_graph *g, shoal_out d, const shoal_session_options *options,
                                 shoal_elements **out) {
  GIVEN(g);
  GIVEN(out);
  struct feed_element spec;
  if (graph_error(g)) return status_copy(graph_error(g));
  TRY(element_of(__func__, d, &spec));
  shoal_elements *e = mem_zalloc(1, sizeof *e);
  e->n = spec.n;
  shoal_status s = begin(e, g, d, options);
  if (s) shoal_status_free(shoal_elements_close(e));
  else *out = e;
  return s;
}

shoal_status shoal_elements_rewind(shoal_elements *e) {
  return shoal_session_step(e->session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, e->begin);
}

shoal_status shoal_elements_next(shoal_elements *e, shoal_tensor **values) {
  GIVEN(values);
  return shoal_session_run_callable(e->session, e->next, NULL, NULL, 0, values, e->n, NULL);
}

shoal_status shoal_elements_close(shoal_elements *e) {
  if (!e) return NULL;
  shoal_status s = e->session ? shoal_session_close(e->session) : NULL;
  free(e);
  return s;
}

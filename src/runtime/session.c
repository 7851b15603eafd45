/* The public session calls: check what was given, come in, go through the session's table.
 *
 * A session may be closed while others use it: that ends their steps and waits until the last of them is out, whatever
 * kind of session it is and wherever in a call they are (compiling, asking a server, about to begin in the background).
 */
#include "shoal/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/given.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/text.h"
#include "runtime/run_cancel.h"
#include "runtime/session_ops.h"

void session_init(shoal_session *s, const struct session_ops *ops) {
  s->ops = ops;
  atomic_init(&s->closing, false);
  s->gives_up = NULL;
  inside_init(&s->calls);
}

void session_release(shoal_session *s) {
  inside_wait(&s->calls);
  free(s->gives_up);
  s->gives_up = NULL;
}

shoal_status session_enter(shoal_session *s) {
  if (!atomic_load(&s->closing) && inside_enter(&s->calls)) return NULL;
  return STATUS(SHOAL_CANCELLED, "Session has been closed.");
}

shoal_status session_leave(shoal_session *s, shoal_status e) {
  if (e && atomic_load(&s->closing) && shoal_status_code(e) != SHOAL_CANCELLED) {
    LOGD("after the session was closed: %s", shoal_status_message(e));
    shoal_status_free(e);
    e = run_closed_status();
  }
  inside_leave(&s->calls);
  return e;
}

shoal_status shoal_session_open(shoal_graph *g, const shoal_session_options *options, shoal_session **out) {
  GIVEN(out);
  shoal_session_options o = {0};
  TRY(OPTIONS_TAKE(shoal_session_options, give_up, &o, options));
  if (!g) return INVALID("a session needs a graph");
  if (shoal_graph_error(g)) return status_copy(shoal_graph_error(g));
  if (!o.target || !*o.target || !strcmp(o.target, "local")) return local_session_open(g, &o, out);
  for (const struct session_scheme *s = session_schemes; s->prefix; s++)
    if (str_starts(o.target, s->prefix)) return s->open(g, &o, out);
  return INVALID("'%s' is no target of a session: it must be \"\" (this process) or grpc://host:port", o.target);
}

shoal_status shoal_session_extend(shoal_session *s, shoal_graph *g) {
  GIVEN(s);
  GIVEN(g);
  if (shoal_graph_error(g)) return status_copy(shoal_graph_error(g));
  TRY(session_enter(s));
  return session_leave(s, s->ops->extend(s, g));
}

shoal_status shoal_session_close(shoal_session *s) {
  if (!s) return NULL;
  atomic_store(&s->closing, true);
  shoal_status e = s->ops->end(s);
  session_release(s); /* waits for who is inside */
  INVARIANT(10, !inside_enter(&s->calls));
  s->ops->free(s);
  return e;
}

shoal_status session_give_up(shoal_session *s, const char *why) {
  s->gives_up = mem_strdup(why);
  return shoal_session_close(s);
}

shoal_status shoal_session_run(shoal_session *s, const shoal_run_options *options, const char *const *feed_names,
                               shoal_tensor *const *feeds, int n_feeds, const char *const *fetch_names,
                               shoal_tensor **fetches, int n_fetches, const char *const *targets, int n_targets,
                               shoal_bytes *metadata) {
  GIVEN(s);
  GIVEN_NAMES(feed_names, n_feeds);
  GIVEN_NAMES(fetch_names, n_fetches);
  GIVEN_NAMES(targets, n_targets);
  GIVEN_ARRAY(feeds, n_feeds);
  GIVEN_ARRAY(fetches, n_fetches);
  struct step_signature sig = {feed_names, n_feeds, fetch_names, n_fetches, targets, n_targets};
  if (metadata) *metadata = (shoal_bytes){0};
  shoal_run_options o = {0};
  TRY(OPTIONS_TAKE(shoal_run_options, inter_op_thread_pool, &o, options));
  TRY(session_enter(s));
  return session_leave(s, s->ops->run(s, options ? &o : NULL, &sig, feeds, fetches, metadata));
}

shoal_status shoal_session_partial_setup(shoal_session *s, const char *const *feed_names, int n_feeds,
                                         const char *const *fetch_names, int n_fetches, const char *const *targets,
                                         int n_targets, char **handle) {
  GIVEN(s);
  GIVEN_NAMES(feed_names, n_feeds);
  GIVEN_NAMES(fetch_names, n_fetches);
  GIVEN_NAMES(targets, n_targets);
  GIVEN(handle);
  struct step_signature sig = {feed_names, n_feeds, fetch_names, n_fetches, targets, n_targets};
  TRY(session_enter(s));
  return session_leave(s, s->ops->partial_setup(s, &sig, handle));
}

shoal_status shoal_session_partial_run(shoal_session *s, const char *handle, const char *const *feed_names,
                                       shoal_tensor *const *feeds, int n_feeds, const char *const *fetch_names,
                                       shoal_tensor **fetches, int n_fetches) {
  GIVEN(s);
  GIVEN_NAMES(feed_names, n_feeds);
  GIVEN_NAMES(fetch_names, n_fetches);
  GIVEN(handle);
  GIVEN_ARRAY(feeds, n_feeds);
  GIVEN_ARRAY(fetches, n_fetches);
  struct step_signature sig = {feed_names, n_feeds, fetch_names, n_fetches, NULL, 0};
  TRY(session_enter(s));
  return session_leave(s, s->ops->partial_run(s, handle, &sig, feeds, fetches));
}

shoal_status shoal_session_make_callable(shoal_session *s, const char *const *feed_names, int n_feeds,
                                         const char *const *fetch_names, int n_fetches, const char *const *targets,
                                         int n_targets, int64_t *callable) {
  GIVEN(s);
  GIVEN_NAMES(feed_names, n_feeds);
  GIVEN_NAMES(fetch_names, n_fetches);
  GIVEN_NAMES(targets, n_targets);
  GIVEN(callable);
  struct step_signature sig = {feed_names, n_feeds, fetch_names, n_fetches, targets, n_targets};
  TRY(session_enter(s));
  return session_leave(s, s->ops->make_callable(s, &sig, callable));
}

shoal_status shoal_session_run_callable(shoal_session *s, int64_t callable, const shoal_run_options *options,
                                        shoal_tensor *const *feeds, int n_feeds, shoal_tensor **fetches, int n_fetches,
                                        shoal_bytes *metadata) {
  GIVEN(s);
  GIVEN_ARRAY(feeds, n_feeds);
  GIVEN_ARRAY(fetches, n_fetches);
  if (metadata) *metadata = (shoal_bytes){0};
  shoal_run_options o = {0};
  TRY(OPTIONS_TAKE(shoal_run_options, inter_op_thread_pool, &o, options));
  TRY(session_enter(s));
  return session_leave(
      s, s->ops->run_callable(s, callable, options ? &o : NULL, feeds, n_feeds, fetches, n_fetches, metadata));
}

shoal_status shoal_session_release_callable(shoal_session *s, int64_t callable) {
  GIVEN(s);
  TRY(session_enter(s));
  return session_leave(s, s->ops->release_callable(s, callable));
}

/* ---- devices: a line each, "name\ttype\tmemory\tincarnation" ---- */

/* What a server sends as a name does not break the line. */
static void add_word(struct text *to, const char *word) {
  for (; *word; word++) text_addc(to, *word == '\t' || *word == '\n' ? '?' : *word);
  text_addc(to, '\t');
}

void session_device_line(struct text *to, const shoal_device *d) {
  add_word(to, d->name);
  add_word(to, d->type);
  text_addf(to, "%" PRId64 "\t%" PRIu64 "\n", d->memory, d->incarnation);
}

/* Ends the word and gives the place behind it. */
static char *end_word(char *at) {
  at += strcspn(at, "\t\n");
  *at = 0;
  return at + 1;
}

/* One block: the array, then the lines, which the strings are in. */
shoal_status shoal_session_devices(shoal_session *s, shoal_device **list, int *n) {
  GIVEN(s);
  GIVEN(list);
  GIVEN(n);
  char *lines;
  TRY(session_enter(s));
  TRY(session_leave(s, s->ops->list_devices(s, &lines)));
  size_t count = 0, bytes = strlen(lines) + 1;
  for (const char *at = lines; *at; at++) count += *at == '\n';
  shoal_device *all = mem_alloc(count * sizeof *all + bytes);
  char *at = memcpy(all + count, lines, bytes);
  free(lines);
  for (size_t i = 0; i < count; i++) {
    all[i].name = at;
    all[i].type = at = end_word(at);
    at = end_word(at);
    all[i].memory = strtoll(at, &at, 10);
    all[i].incarnation = strtoull(at, &at, 10);
    at = end_word(at);
  }
  *list = all;
  *n = (int)count;
  return NULL;
}

shoal_status shoal_session_list_devices(shoal_session *s, char **names) {
  GIVEN(s);
  GIVEN(names);
  shoal_device *list;
  int n;
  TRY(shoal_session_devices(s, &list, &n));
  struct text t = {0};
  for (int i = 0; i < n; i++) text_addf(&t, "%s\n", list[i].name);
  free(list);
  *names = text_take(&t);
  return NULL;
}

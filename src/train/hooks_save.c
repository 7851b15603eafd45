/* CheckpointSaver: by steps or seconds, at the start and at the end; or at the end alone. A save takes a snapshot and
 * goes on writing behind the training; the last one is waited for. */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "train/hooks.h"
#include "train/saver.h"
#include "train/step_request.h"

struct save_hook {
  char *dir, *prefix;
  struct timer timer;
  shoal_saver *saver, *own; /* own: when none was given */
  shoal_out global_step;
  struct shoal_events *events;
  shoal_graph *graph;
  int fetch;
  int64_t saved; /* the step of the newest checkpoint; -1: there is none of this run */
  bool graph_written, at_end_alone;
};

static shoal_status begin(void *state, shoal_graph *g) {
  struct save_hook *s = state;
  if (!s->dir) return INVALID("CheckpointSaverHook: no folder is given to save to");
  TRY(hook_global_step(g, "CheckpointSaverHook", &s->global_step));
  s->graph = g;
  if (!s->saver) s->saver = s->own = shoal_saver_new(g, NULL);
  if (shoal_graph_error(g)) return status_copy(shoal_graph_error(g));
  TRY(saver_check_room(s->saver, s->dir));
  if (s->own) TRY(shoal_saver_recover(s->saver, s->dir));
  return events_shared_get(s->dir, &s->events);
}

shoal_status graph_write(shoal_graph *g, const char *dir, struct shoal_events *events, int64_t step,
                         shoal_saver *saver) {
  shoal_bytes text = {0}, def = {0};
  const struct text *meta;
  char *path = mem_printf("%s/graph.pbtxt", dir);
  shoal_status e = shoal_graph_export_text(g, &text);
  if (!e) e = file_write(path, text.data, text.size);
  if (!e) e = shoal_graph_export(g, &def);
  if (!e) e = event_write_graph(events, step, def.data, def.size);
  if (!e && saver) e = saver_meta_graph(saver, &meta);
  if (!e && saver) e = event_write_meta_graph(events, step, meta->at, meta->n);
  free(path);
  shoal_bytes_free(&text);
  shoal_bytes_free(&def);
  return e;
}

static shoal_status save(struct save_hook *s, shoal_session *session, int64_t step, bool behind) {
  timer_set_off(&s->timer, step, NULL, NULL);
  if (behind) TRY(shoal_saver_save_behind(s->saver, session, s->prefix, step));
  else TRY(shoal_saver_save(s->saver, session, s->prefix, step, NULL));
  s->saved = step;
  char *path = mem_printf("%s-%" PRId64, s->prefix, step);
  events_told(event_write_session_log(s->events, step, 3, path));
  free(path);
  return NULL;
}

static shoal_status after_create(void *state, const shoal_created *c) {
  struct save_hook *s = state;
  if (!s->graph_written) TRY(graph_write(s->graph, s->dir, s->events, 0, s->saver));
  s->graph_written = true;
  if (c->made == SHOAL_MADE_INITIALIZED && !s->at_end_alone) return save(s, c->session, c->global_step, false);
  timer_set_off(&s->timer, c->global_step, NULL, NULL);
  s->saved = c->made == SHOAL_MADE_RESTORED ? checkpoint_step(c->checkpoint) : -1;
  return NULL;
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct save_hook *s = state;
  s->fetch = shoal_context_fetch(c, s->global_step);
  return NULL;
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct save_hook *s = state;
  TRY(saver_poll(s->saver));
  /* The value fetched may be from before the step's own update. */
  if (!timer_due(&s->timer, (int64_t)shoal_context_number(c, s->fetch) + 1)) return NULL;
  int64_t step;
  TRY(session_get_int(shoal_context_session(c), s->global_step, &step));
  return timer_due(&s->timer, step) ? save(s, shoal_context_session(c), step, true) : NULL;
}

static shoal_status end(void *state, shoal_session *session) {
  struct save_hook *s = state;
  int64_t step;
  TRY(shoal_saver_wait(s->saver));
  TRY(session_get_int(session, s->global_step, &step));
  return step != s->saved ? save(s, session, step, false) : NULL;
}

static void before_close(void *state) {
  struct save_hook *s = state;
  shoal_status e = s->saver ? shoal_saver_wait(s->saver) : NULL;
  if (e) LOGW("%s", shoal_status_message(e));
  shoal_status_free(e);
}

static void release(void *state) {
  struct save_hook *s = state;
  shoal_saver_free(s->own);
  events_shared_release(s->events);
  free(s->dir);
  free(s->prefix);
  free(s);
}

static shoal_hook saver_hook(const char *dir, struct timer timer, bool at_end_alone, shoal_saver *saver) {
  struct save_hook *s = mem_zalloc(1, sizeof *s);
  *s = (struct save_hook){.dir = dir ? mem_strdup(dir) : NULL,
                          .prefix = mem_printf("%s/model.ckpt", dir ? dir : ""),
                          .saved = -1,
                          .timer = timer,
                          .at_end_alone = at_end_alone,
                          .saver = saver};
  return (shoal_hook){s,
                      .begin = begin,
                      .after_create = after_create,
                      .before_run = before_run,
                      .after_run = after_run,
                      .end = end,
                      .before_close = before_close,
                      .free = release};
}

shoal_hook shoal_checkpoint_saver_hook(const char *dir, int64_t save_steps, double save_secs, shoal_saver *saver) {
  enum { DEFAULT_SECS = 600 };
  return saver_hook(dir, timer_every(save_steps, save_secs, 0, DEFAULT_SECS), false, saver);
}

shoal_hook checkpoint_at_end_hook(const char *dir, shoal_saver *saver) {
  return saver_hook(dir, timer_every(0, 0, 0, 0), true, saver);
}

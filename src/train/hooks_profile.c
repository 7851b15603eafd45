/* Profiler: a trace of one step every so often. */
#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "base/log.h"
#include "train/hooks.h"
#include "train/step_request.h"
#include "train/timeline.h"

struct profiler {
  char *dir;
  struct timer timer;
  shoal_out global_step;
  struct shoal_events *events;
  int fetch;
  bool requested;
  int64_t next_step; /* -1 before the first */
};

static shoal_status begin(void *state, shoal_graph *g) {
  struct profiler *s = state;
  if (!s->dir) return INVALID("ProfilerHook: no folder is given to write traces to");
  TRY(hook_global_step(g, "ProfilerHook", &s->global_step));
  return events_shared_get(s->dir, &s->events);
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct profiler *s = state;
  s->requested = s->next_step >= 0 && timer_due(&s->timer, s->next_step);
  s->fetch = shoal_context_fetch(c, s->global_step);
  if (s->requested) shoal_context_trace(c);
  return NULL;
}

static shoal_status write_trace(struct profiler *s, int64_t step, shoal_bytes metadata) {
  struct text json = {0};
  char *path = mem_printf("%s/timeline-%" PRId64 ".json", s->dir, step), tag[40];
  shoal_status e = timeline_json(metadata.data, metadata.size, &json);
  shoal_status lost = e ? NULL : file_write(path, json.at, json.n);
  snprintf(tag, sizeof tag, "step_%" PRId64, step);
  if (!e && !lost) lost = event_write_run_metadata(s->events, step, tag, metadata.data, metadata.size);
  if (!e && !lost) LOGI("trace of step %" PRId64 ": %s", step, path);
  events_told(lost);
  free(path);
  text_release(&json);
  return e;
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct profiler *s = state;
  int64_t step = (int64_t)shoal_context_number(c, s->fetch);
  if (s->next_step < 0) timer_set_off(&s->timer, step, NULL, NULL); /* not at once: the first steps are not typical */
  step++;
  if (s->requested) {
    TRY(session_get_int(shoal_context_session(c), s->global_step, &step));
    timer_set_off(&s->timer, step, NULL, NULL);
    TRY(write_trace(s, step, shoal_context_metadata(c)));
  }
  s->next_step = step + shoal_context_steps(c);
  return NULL;
}

static void release(void *state) {
  struct profiler *s = state;
  events_shared_release(s->events);
  free(s->dir);
  free(s);
}

shoal_hook shoal_profiler_hook(int64_t save_steps, double save_secs, const char *dir) {
  struct profiler *s = mem_zalloc(1, sizeof *s);
  *s = (struct profiler){
      .dir = dir ? mem_strdup(dir) : NULL, .timer = timer_every(save_steps, save_secs, 1000, 0), .next_step = -1};
  return (shoal_hook){s, .begin = begin, .before_run = before_run, .after_run = after_run, .free = release};
}

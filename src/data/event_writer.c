/* Event files; see event_writer.h. An event waits in the record writer's buffer; what counts against max_queue and
 * flush_ms is the time since the buffer last reached the system. There is no thread: an event that comes late
 * flushes those before it, and closing flushes the rest. */
#include "data/event_writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/wire.h"
#include "data/record.h"
#include "proto/event.wire.h"

struct shoal_events {
  pthread_mutex_t lock;
  char *dir, *suffix, *path; /* path: NULL until the file is there */
  struct record_writer file; /* lock */
  bool closed;               /* lock */
  int max_queue, waiting;    /* lock */
  int64_t flush_ns, flushed; /* lock: when the file was last flushed */
};

shoal_status event_writer_new(const char *dir, const char *suffix, int max_queue, int flush_ms,
                              struct shoal_events **out) {
  if (!file_is_directory(dir)) TRY(directory_make(dir));
  struct shoal_events *w = mem_zalloc(1, sizeof *w);
  pthread_mutex_init(&w->lock, NULL);
  w->dir = mem_strdup(dir);
  w->suffix = mem_strdup(suffix);
  w->max_queue = max_queue;
  w->flush_ns = (int64_t)flush_ms * 1000000;
  *out = w;
  return NULL;
}

/* A file that nobody has: its name has the second it was made in, and where another was made in the same one (a short
 * run that is followed by the next, a task beside this one) the next that is free. */
static shoal_status claim_name(const struct shoal_events *w, int64_t seconds, char **out) {
  enum { TRIES = 1000 };
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  for (int64_t i = 0;; i++) {
    *out = mem_printf("%s/events.out.tfevents.%010" PRId64 ".%s%s", w->dir, seconds + i, host, w->suffix);
    bool taken = file_exists(*out); /* seen without a try: what fails is a change to the disk all the same */
    shoal_status s = taken ? STATUS(SHOAL_ALREADY_EXISTS, "%s; File exists", *out) : file_create(*out, "", 0);
    if (!s) return NULL;
    free(*out);
    if (shoal_status_code(s) != SHOAL_ALREADY_EXISTS || i == TRIES) return s;
    shoal_status_free(s);
  }
}

/* Call with the lock held. */
static shoal_status open_file(struct shoal_events *w) {
  int64_t seconds = wall_micros() / 1000000;
  char *path;
  TRY(claim_name(w, seconds, &path));
  shoal_status s = record_writer_open(&w->file, path, RECORD_PLAIN);
  if (s) {
    free(path);
    return s;
  }
  w->path = path;
  w->flushed = clock_ns();
  struct text t = {0};
  put_Event_wall_time(&t, (double)seconds);
  put_Event_file_version(&t, "brain.Event:2");
  size_t source = begin_Event_source_metadata(&t);
  put_SourceMetadata_writer(&t, "tensorflow.core.util.events_writer"); /* what readers of the format know */
  wire_end(&t, source);
  s = record_write(&w->file, t.at, t.n);
  text_release(&t);
  if (!s) s = record_flush(&w->file);
  return s;
}

static shoal_status write_locked(struct shoal_events *w, const void *event, size_t n) {
  if (w->closed) return STATUS(SHOAL_FAILED_PRECONDITION, "The event file is closed");
  if (!w->path) TRY(open_file(w));
  if (n) TRY(record_write(&w->file, event, n));
  w->waiting++;
  int64_t now = clock_ns();
  if (w->waiting <= w->max_queue && now - w->flushed < w->flush_ns) return NULL;
  w->waiting = 0;
  w->flushed = now;
  return record_flush(&w->file);
}

shoal_status event_write(struct shoal_events *w, const void *event, size_t n) {
  pthread_mutex_lock(&w->lock);
  shoal_status s = write_locked(w, event, n);
  pthread_mutex_unlock(&w->lock);
  return s;
}

shoal_status event_writer_flush(struct shoal_events *w) {
  pthread_mutex_lock(&w->lock);
  shoal_status s = w->closed ? NULL : w->path ? record_flush(&w->file) : open_file(w);
  w->waiting = 0;
  w->flushed = clock_ns();
  pthread_mutex_unlock(&w->lock);
  return s;
}

shoal_status event_writer_close(struct shoal_events *w) {
  pthread_mutex_lock(&w->lock);
  shoal_status s = w->closed ? NULL : record_writer_close(&w->file);
  w->closed = true;
  pthread_mutex_unlock(&w->lock);
  return s;
}

void event_writer_free(struct shoal_events *w) {
  if (!w) return;
  shoal_status_free(event_writer_close(w));
  pthread_mutex_destroy(&w->lock);
  free(w->dir);
  free(w->suffix);
  free(w->path);
  free(w);
}

const char *event_writer_path(const struct shoal_events *w) { return w->path; }

/* ---- events by kind ---- */

static void begin(struct text *t, int64_t step) {
  put_Event_wall_time(t, (double)wall_micros() / 1e6);
  if (step) put_Event_step(t, step);
}

static shoal_status end(struct shoal_events *w, struct text *t) {
  shoal_status s = event_write(w, t->at, t->n);
  text_release(t);
  return s;
}

static shoal_status write_bytes(struct shoal_events *w, int64_t step, uint32_t tag, const void *data, size_t n) {
  struct text t = {0};
  begin(&t, step);
  wire_add_bytes(&t, tag, data, n);
  return end(w, &t);
}

shoal_status event_write_summary(struct shoal_events *w, int64_t step, const void *summary, size_t n) {
  return write_bytes(w, step, Event_summary, summary, n);
}

shoal_status event_write_graph(struct shoal_events *w, int64_t step, const void *graph_def, size_t n) {
  return write_bytes(w, step, Event_graph_def, graph_def, n);
}

shoal_status event_write_meta_graph(struct shoal_events *w, int64_t step, const void *meta_graph_def, size_t n) {
  return write_bytes(w, step, Event_meta_graph_def, meta_graph_def, n);
}

shoal_status event_write_scalar(struct shoal_events *w, int64_t step, const char *tag, float value) {
  struct text t = {0};
  begin(&t, step);
  size_t summary = begin_Event_summary(&t), v = begin_Summary_value(&t);
  put_Summary_Value_tag(&t, tag);
  put_Summary_Value_simple_value(&t, value);
  wire_end(&t, v);
  wire_end(&t, summary);
  return end(w, &t);
}

shoal_status event_write_session_log(struct shoal_events *w, int64_t step, int status, const char *checkpoint_path) {
  struct text t = {0};
  begin(&t, step);
  size_t log = begin_Event_session_log(&t);
  put_SessionLog_status(&t, status);
  if (checkpoint_path) put_SessionLog_checkpoint_path(&t, checkpoint_path);
  wire_end(&t, log);
  return end(w, &t);
}

shoal_status event_write_run_metadata(struct shoal_events *w, int64_t step, const char *tag, const void *data,
                                      size_t n) {
  struct text t = {0};
  begin(&t, step);
  size_t m = begin_Event_tagged_run_metadata(&t);
  put_TaggedRunMetadata_tag(&t, tag);
  put_TaggedRunMetadata_run_metadata_n(&t, data, n);
  wire_end(&t, m);
  return end(w, &t);
}

/* Event files for C programs: the public face of the event writer. */
#include "shoal/train.h"
#include "base/given.h"
#include "base/status.h"
#include "data/event_writer.h"

enum { MAX_QUEUE = 100, FLUSH_MS = 10000 };

shoal_status shoal_events_open(const char *dir, shoal_events **out) {
  GIVEN(out);
  if (!dir) return INVALID("event files cannot be written: their folder is NULL");
  return status_prefix(event_writer_new(dir, "", MAX_QUEUE, FLUSH_MS, out), "event files cannot be written: ");
}

shoal_status shoal_events_scalar(shoal_events *w, int64_t step, const char *tag, float value) {
  GIVEN(w);
  GIVEN(tag);
  return event_write_scalar(w, step, tag, value);
}

shoal_status shoal_events_summary(shoal_events *w, int64_t step, const void *summary, size_t size) {
  GIVEN(w);
  if (size) GIVEN(summary);
  return event_write_summary(w, step, summary, size);
}

shoal_status shoal_events_graph(shoal_events *w, const shoal_graph *g) {
  GIVEN(w);
  GIVEN(g);
  shoal_bytes b;
  TRY(shoal_graph_export(g, &b));
  shoal_status s = event_write_graph(w, 0, b.data, b.size);
  shoal_bytes_free(&b);
  return s;
}

const char *shoal_events_path(const shoal_events *w) { return event_writer_path(w); }

shoal_status shoal_events_close(shoal_events *w) {
  if (!w) return NULL;
  shoal_status s = event_writer_close(w);
  event_writer_free(w);
  return s;
}

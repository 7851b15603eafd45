/* Event files, which TensorBoard reads: a TFRecord file of Event messages, the first of which says the version.
 * Writers are locked: several threads may share one. */
#ifndef DATA_EVENT_WRITER_H
#define DATA_EVENT_WRITER_H

#include "base/status.h"
#include "base/text.h"

struct shoal_events;

/* DIR/events.out.tfevents.SECONDS.HOST + suffix, made with the first event. The directory is made when it is not
 * there. At most max_queue events wait, for at most flush_ms, before they reach the file. */
shoal_status event_writer_new(const char *dir, const char *suffix, int max_queue, int flush_ms,
                              struct shoal_events **out);
/* Flushes and closes; an error of that is lost (event_writer_close tells it). */
void event_writer_free(struct shoal_events *w);
shoal_status event_writer_close(struct shoal_events *w);
shoal_status event_writer_flush(struct shoal_events *w);
/* The file's path, once there is one; NULL before. */
const char *event_writer_path(const struct shoal_events *w);

/* A whole Event message. */
shoal_status event_write(struct shoal_events *w, const void *event, size_t n);
/* An event of now with a Summary message. */
shoal_status event_write_summary(struct shoal_events *w, int64_t step, const void *summary, size_t n);
/* The same with a GraphDef, or a MetaGraphDef. */
shoal_status event_write_graph(struct shoal_events *w, int64_t step, const void *graph_def, size_t n);
shoal_status event_write_meta_graph(struct shoal_events *w, int64_t step, const void *meta_graph_def, size_t n);
/* One value{tag, simple_value}. */
shoal_status event_write_scalar(struct shoal_events *w, int64_t step, const char *tag, float value);
/* SessionLog: 1 start, 2 stop, 3 checkpoint (with its path, or NULL). */
shoal_status event_write_session_log(struct shoal_events *w, int64_t step, int status, const char *checkpoint_path);
/* TaggedRunMetadata. */
shoal_status event_write_run_metadata(struct shoal_events *w, int64_t step, const char *tag, const void *data,
                                      size_t n);

#endif

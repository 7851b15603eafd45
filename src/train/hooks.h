/* What hooks share: when it is time, and where events go. */
#ifndef TRAIN_HOOKS_H
#define TRAIN_HOOKS_H

#include "data/event_writer.h"
#include "shoal/hooks.h"

/* "Every n steps or seconds", as TensorFlow's SecondOrStepTimer counts. */
struct timer {
  int64_t steps;
  double secs;
  int64_t last_step; /* -1: not yet */
  int64_t last_ns;
};
struct timer timer_every(int64_t steps, double secs, int64_t default_steps, double default_secs);
bool timer_due(const struct timer *t, int64_t step);
/* Sets it off; what passed since the last time (0 at the first). */
void timer_set_off(struct timer *t, int64_t step, double *secs, int64_t *steps);

/* The graph's step counter, or an error that names who needs it. */
shoal_status hook_global_step(shoal_graph *g, const char *who, shoal_out *out);
/* Likewise: how many batches its steps have used, where input that goes by it begins. */
shoal_status hook_input_position(shoal_graph *g, const char *who, shoal_out *out);

/* The event file of a directory: one for all hooks of this process that write there. Each get has its release. */
shoal_status events_shared_get(const char *dir, struct shoal_events **out);
void events_shared_release(struct shoal_events *w);
/* What became of a write to it. A full disk is no reason to lose what is being trained: an error is said, once, and
 * freed. (That there is no such folder is an error, of events_shared_get.) */
void events_told(shoal_status s);

/* The graph for people (DIR/graph.pbtxt) and for TensorBoard (in events; with saver, which may be NULL, its
 * MetaGraphDef, too). */
shoal_status graph_write(shoal_graph *g, const char *dir, struct shoal_events *events, int64_t step,
                         shoal_saver *saver);

/* As shoal_checkpoint_saver_hook, for one checkpoint: that of the last step. */
shoal_hook checkpoint_at_end_hook(const char *dir, shoal_saver *saver);

#endif

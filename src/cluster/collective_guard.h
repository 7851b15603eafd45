/* What ends a member's collectives early: the cancellation of its step, its time-out, the failure of the step in
 * another task (collective_failed.h), the end of all (collectives.h). The head of whatever is under way for a member,
 * which counts references by it. */
#ifndef CLUSTER_COLLECTIVE_GUARD_H
#define CLUSTER_COLLECTIVE_GUARD_H

#include "base/alarm.h"
#include "base/cancel.h"
#include "base/ref.h"

struct collectives;

/* What ends all collectives that are under way, once. */
struct collectives_end {
  struct ref refs;
  struct cancel cancel;
};
struct collectives_end *collectives_end_new(void);
void collectives_end_unref(struct collectives_end *e);

struct collective_guard {
  struct ref refs;      /* its own, and those of whoever is about to cancel it */
  struct cancel cancel; /* started by any of these, or by guard_stop */
  int64_t deadline;
  int64_t step_id;                      /* under which it meets the others */
  struct collective_guard *prev, *next; /* failed_steps' own */
  bool entered;                         /* there */
  struct cancel *step;                  /* the step's cancellation; NULL: it has none */
  struct cancel_hook hook;
  struct collectives_end *end; /* a reference; NULL: none */
  struct cancel_hook end_hook;
  struct alarm alarm;
  shoal_status (*late)(struct collective_guard *g); /* what a time-out is told as */
  void (*release)(struct collective_guard *g);      /* with the last reference */
};

/* timeout_s 0: as the task has it. */
void guard_init(struct collective_guard *g, struct collectives *c, double timeout_s,
                shoal_status (*late)(struct collective_guard *g), void (*release)(struct collective_guard *g));
/* step_id: the step that the members meet in. False: it was cancelled before; guard_end is called all the same. What
 * `cancel` calls may be called from here on. */
bool guard_begin(struct collective_guard *g, struct collectives *c, struct cancel *step, int64_t step_id);
/* Nothing ends it any more. */
void guard_end(struct collective_guard *g, struct collectives *c);
/* May end it on this very thread. why is consumed. */
void guard_stop(struct collective_guard *g, shoal_status why);
void guard_ref(struct collective_guard *g);
void guard_unref(struct collective_guard *g);

#endif

/* A step: one run of a plan (or of the plans of several devices together). What kernels may want of it. */
#ifndef RUNTIME_STEP_H
#define RUNTIME_STEP_H

#include "base/cancel.h"
#include "base/clock.h"
#include "base/pool.h"
#include "runtime/rendezvous.h"
#include "runtime/resource.h"
#include "tensor/tensor.h"

struct step_stats;      /* runtime/step_stats.h */
struct collective_site; /* collective/site.h */
struct meeting;         /* collective/meeting.h */

struct step {
  int64_t id;
  struct cancel *cancel;
  struct rendezvous *rendezvous;       /* NULL when the plan neither sends nor receives */
  struct resource_mgr *step_resources; /* TensorArrays, stacks, temporary variables: freed with the step */
  struct pool *inter;                  /* where nodes run */
  int64_t deadline;                    /* clock_ns(), or DEADLINE_NEVER */
  struct step_stats *stats;            /* NULL unless traced */
  const char *session;                 /* the session's handle, "" locally */
  const struct tensor *args;           /* _Arg's values ([n_args]); the caller's */
  int n_args;
  struct tensor *rets; /* _Retval's values go here ([n_rets]) */
  int n_rets;
  struct collective_site *site; /* where collectives go that may have members in other tasks; NULL: none have */
  struct meeting *_Atomic
      *meeting;  /* of step_resources, where the others go; of the step and the calls in it; NULL: it is looked for */
  int depth;     /* function calls that led here */
  bool here;     /* the thread that launches it waits for its end, and may do so in a device */
  int64_t *more; /* so often the same is wanted after it (replay.h); NULL: no more, or it is not all in one plan */
  bool waits;    /* it ends when what its devices have queued is over; calls inside it do not wait */
  shoal_status _Atomic
      *late; /* the first error of queued work, for the end of the step that waits; NULL: nobody does */
};

/* A step may compute, or go round a loop for ever, on the very thread that would look at the clock while it waits. */
static inline void step_check_deadline(const struct step *s) {
  if (LIKELY(s->deadline == DEADLINE_NEVER) || !s->cancel || clock_ns() < s->deadline) return;
  if (!cancel_started(s->cancel))
    cancel_start(s->cancel, STATUS(SHOAL_DEADLINE_EXCEEDED, "Timed out waiting for notification"));
}

/* An error of work that a kernel queued, from any thread, by the `late` of the kernel's step. It is taken over. */
static inline void step_fail_late(shoal_status _Atomic *late, shoal_status s) {
  shoal_status none = NULL;
  if (!late || !atomic_compare_exchange_strong(late, &none, s)) shoal_status_free(s);
}

#endif

/* Who may cancel the step that this thread runs: how a run in the background (shoal/async.h) reaches the blocking call
 * underneath, whatever kind of session that is. Thread-local, not an argument: it passes public functions that have no
 * room for it. */
#ifndef RUNTIME_RUN_CANCEL_H
#define RUNTIME_RUN_CANCEL_H

#include "base/cancel.h"

/* The steps of this thread are under c until it is set back to NULL. */
void run_cancel_set(struct cancel *c);
/* For waits that ask now and then whether to give up: such a function, or NULL when nobody may cancel. */
bool (*run_cancel_asks(void))(void);
/* What a step that was cancelled so ends with. */
shoal_status run_cancel_status(void);
/* And what one ends with whose session was closed, in TensorFlow's words. */
shoal_status run_closed_status(void);
/* How what stood under c ended, whoever cancelled it: by e (consumed), but where e says no more than that something was
 * cancelled, by the reason. */
shoal_status run_cancel_outcome(struct cancel *c, shoal_status e);

/* For steps that can be told: fn is called once when this thread's step is cancelled, from any thread, perhaps before
 * link returns; never after unlink has. */
struct run_cancel_link {
  struct cancel *from;
  struct cancel_hook hook;
};
void run_cancel_link(struct run_cancel_link *l, void (*fn)(void *arg), void *arg);
void run_cancel_unlink(struct run_cancel_link *l);

#endif

#include "runtime/run_cancel.h"

static _Thread_local struct cancel *current;

void run_cancel_set(struct cancel *c) { current = c; }

static bool cancelled(void) { return cancel_started(current); }

bool (*run_cancel_asks(void))(void) { return current ? cancelled : NULL; }

shoal_status run_cancel_status(void) { return STATUS(SHOAL_CANCELLED, "the step was cancelled by shoal_async_cancel"); }

shoal_status run_closed_status(void) {
  return STATUS(SHOAL_CANCELLED, "Step was cancelled by an explicit call to `Session::Close()`.");
}

shoal_status run_cancel_outcome(struct cancel *c, shoal_status e) {
  if (!e || shoal_status_code(e) != SHOAL_CANCELLED) return e;
  shoal_status why = cancel_reason(c);
  bool tells = why && !status_is_derived(why);
  shoal_status_free(tells ? e : why);
  return tells ? why : e;
}

void run_cancel_link(struct run_cancel_link *l, void (*fn)(void *arg), void *arg) {
  l->from = current;
  if (!l->from || cancel_register(l->from, &l->hook, fn, arg)) return;
  l->from = NULL;
  fn(arg);
}

void run_cancel_unlink(struct run_cancel_link *l) {
  if (l->from) cancel_deregister(l->from, &l->hook);
}

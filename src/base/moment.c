#include "base/moment.h"

#include "base/clock.h"

/* Who takes it from WAITING to OVER goes on. What comes while it is being set is left to whoever sets it. */
enum { SETTING, WAITING, DUE, STOPPED, OVER };

static bool moves(struct moment *m, int from, int to) { return atomic_compare_exchange_strong(&m->state, &from, to); }

static void on_time(void *arg) {
  struct moment *m = arg;
  if (moves(m, SETTING, DUE) || !moves(m, WAITING, OVER)) return;
  if (m->cancel) cancel_deregister(m->cancel, &m->hook);
  m->then(m->arg, false);
}

static void on_cancel(void *arg) {
  struct moment *m = arg;
  if (moves(m, SETTING, STOPPED) || !moves(m, WAITING, OVER)) return;
  alarm_clear(&m->alarm);
  m->then(m->arg, true);
}

void moment_wait(struct moment *m, struct cancel *cancel, int64_t ms, void (*then)(void *arg, bool cancelled),
                 void *arg) {
  *m = (struct moment){.cancel = cancel, .then = then, .arg = arg};
  atomic_init(&m->state, SETTING);
  if (cancel && !cancel_register(cancel, &m->hook, on_cancel, m)) {
    then(arg, true);
    return;
  }
  alarm_set(&m->alarm, deadline_after_ms(ms), on_time, m);
  if (moves(m, SETTING, WAITING)) return;
  bool stopped = atomic_exchange(&m->state, OVER) == STOPPED;
  if (cancel) cancel_deregister(cancel, &m->hook);
  alarm_clear(&m->alarm);
  then(arg, stopped);
}

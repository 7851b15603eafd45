/* A new session meets its workers: every task it may use is asked for its devices, and waited for if it is not up yet.
 *
 * While it waits the session says for whom, with the cause as far as it is known, and gives up when the client's
 * deadline is near (so that the client learns who was missing, not only that time is up), at --startup_timeout, or when
 * a task is there but its certificate will not do. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "cluster/latch.h"
#include "cluster/master.h"

enum { LOOK_MS = 100, FIRST_MS = 1000, TELL_MS = 5000, ANSWER_MS = 1000 };

struct status_wait {
  struct latch *latch;
  bool done; /* the latch's lock */
};

static void status_done(void *arg, shoal_status s) {
  struct status_wait *w = arg;
  pthread_mutex_lock(&w->latch->lock);
  w->done = true;
  pthread_mutex_unlock(&w->latch->lock);
  latch_done(w->latch, s);
}

/* Asks those who have not answered what is the matter. False when all have by now. */
static bool find_missing(struct master_session *s, struct latch *l, const struct status_wait *waits, int64_t answer_ms,
                         struct text *out, shoal_status *hopeless) {
  struct roll r = {0};
  text_release(out);
  pthread_mutex_lock(&l->lock);
  for (size_t i = 1; i < s->workers.n; i++)
    if (!waits[i].done) {
      const struct worker_link *w = &s->workers.at[i];
      roll_add(&r, w->task, peer_address(w->peer), rpc_channel_ref(peer_channel(w->peer)));
    }
  pthread_mutex_unlock(&l->lock);
  size_t missing = roll_ask(&r, answer_ms);
  roll_missing(&r, out);
  shoal_status_free(*hopeless);
  *hopeless = roll_hopeless(&r);
  roll_release(&r);
  return missing > 0;
}

/* The time at which to give up, and what to call it. */
static int64_t find_limit(const struct master *m, int64_t deadline, const char **reason) {
  int64_t limit = deadline_after_ms(m->startup_timeout_ms), now = clock_ns();
  *reason = "--startup_timeout";
  if (deadline == DEADLINE_NEVER) return limit;
  int64_t near = deadline - MIN((deadline - now) / 4, 500 * 1000000ll);
  if (near < limit) {
    *reason = "the client's deadline";
    limit = near;
  }
  return limit;
}

static shoal_status wait_for_all(struct master_session *s, struct latch *l, const struct status_wait *waits,
                                 int64_t deadline, struct cancel *cancel) {
  const char *reason;
  int64_t start = clock_ns(), limit = find_limit(s->master, deadline, &reason), tell = start + FIRST_MS * 1000000ll;
  struct text missing = {0};
  shoal_status err = NULL, hopeless = NULL;
  while (!err && !latch_wait_until(l, MIN(clock_ns() + LOOK_MS * 1000000ll, limit))) {
    int64_t now = clock_ns();
    err = startup_late(s->master->startup);
    if (!err && cancel && cancel_started(cancel)) err = STATUS(SHOAL_CANCELLED, "the client has gone");
    if (err || (now < tell && now < limit)) continue;
    /* The answer must still reach the client. */
    int64_t answer_ms = MAX(1, MIN(ANSWER_MS, deadline == DEADLINE_NEVER ? ANSWER_MS : (deadline - now) / 2000000));
    if (!find_missing(s, l, waits, answer_ms, &missing, &hopeless)) continue;
    if (hopeless) {
      err = hopeless;
      hopeless = NULL;
    } else if (now >= limit) {
      err = STATUS(SHOAL_DEADLINE_EXCEEDED, "no answer within %s (%.1f s) from: %s", reason,
                   (double)(limit - start) * 1e-9, text_cstr(&missing));
    } else if (tell - start > FIRST_MS * 1000000ll) {
      LOGW("CreateSession still waiting for response from worker: %s", text_cstr(&missing));
    }
    tell = now + TELL_MS * 1000000ll;
  }
  text_release(&missing);
  shoal_status_free(hopeless);
  return err;
}

shoal_status master_meet_workers(struct master_session *s, int64_t deadline, struct cancel *cancel) {
  struct latch l;
  latch_init(&l, (int)s->workers.n);
  struct status_wait *waits = mem_zalloc(s->workers.n, sizeof *waits);
  struct cancel late;
  cancel_init(&late);
  for (size_t i = 0; i < s->workers.n; i++) {
    struct worker_link *w = &s->workers.at[i];
    waits[i].latch = &l;
    w->ops->get_status(w, deadline, &late, status_done, &waits[i]);
  }
  shoal_status err = wait_for_all(s, &l, waits, deadline, cancel);
  if (err) cancel_start(&late, NULL);
  shoal_status other = latch_finish(&l);
  if (!err) err = other;
  else shoal_status_free(other);
  cancel_release(&late);
  free(waits);
  return err;
}

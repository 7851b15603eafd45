/* Steps in the background: a thread that makes the blocking call, and a handle to wait for it. A pool of such threads
 * was rejected: steps wait for each other (queues, synchronous replicas), so that a bound on their number is a bound
 * on what may be asked for. */
#include "shoal/async.h"

#include "base/given.h"
#include "base/latch.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "runtime/run_cancel.h"
#include "runtime/session_ops.h"
#include "train/step_request.h"

struct shoal_async {
  shoal_session *session;
  struct step_request step;
  VEC(shoal_fetch) fetches;
  struct cancel cancel;
  pthread_t thread;
  struct latch ended; /* its status: how */
  bool stored;        /* the latch's lock: what was fetched is where it goes */
};

static void *run(void *arg) {
  struct shoal_async *a = arg;
  run_cancel_set(&a->cancel);
  shoal_status e = cancel_started(&a->cancel) ? run_cancel_status() : step_run(&a->step, a->session);
  run_cancel_set(NULL);
  if (e && cancel_started(&a->cancel)) {
    LOGD("after the step was cancelled: %s", shoal_status_message(e)); /* only a consequence, most of the time */
    shoal_status_free(e);
    e = run_cancel_status();
  }
  latch_done(&a->ended, session_leave(a->session, e));
  return NULL;
}

static void release(struct shoal_async *a) {
  for (size_t i = 0; i < a->step.feeds.n; i++) shoal_tensor_unref(a->step.feeds.at[i].value);
  step_release(&a->step);
  vec_release(&a->fetches);
  cancel_release(&a->cancel);
  shoal_status_free(latch_release(&a->ended));
  free(a);
}

/* In the session from now on, so that closing it waits. */
static shoal_status begin(struct shoal_async *a) {
  TRY(session_enter(a->session));
  if (!pthread_create(&a->thread, NULL, run, a)) return NULL;
  return session_leave(a->session, STATUS(SHOAL_RESOURCE_EXHAUSTED, "no thread for a step in the background"));
}

shoal_status shoal_run_async(shoal_session *s, const shoal_run_options *options, shoal_feeds feeds,
                             shoal_fetches fetches, const shoal_op *target, shoal_async **out) {
  GIVEN(s);
  GIVEN(out);
  struct shoal_async *a = mem_zalloc(1, sizeof *a);
  a->session = s;
  cancel_init(&a->cancel);
  latch_init(&a->ended, 1);
  shoal_status e = OPTIONS_TAKE(shoal_run_options, inter_op_thread_pool, &a->step.options, options);
  if (!e) e = step_ask(&a->step, __func__, feeds, fetches, target);
  for (size_t i = 0; i < a->step.feeds.n; i++)
    if (a->step.feeds.at[i].value) shoal_tensor_ref(a->step.feeds.at[i].value);
  for (int i = 0; i < fetches.n && !e; i++) vec_push(&a->fetches, fetches.at[i]);
  if (!e) e = begin(a);
  if (e) release(a);
  else *out = a;
  return e;
}

bool shoal_async_done(shoal_async *a, int64_t timeout_ms) {
  return latch_wait_until(&a->ended, timeout_ms ? deadline_after_ms(timeout_ms) : 0);
}

shoal_status shoal_async_wait(shoal_async *a) {
  shoal_async_done(a, -1);
  struct latch *l = &a->ended;
  pthread_mutex_lock(&l->lock);
  if (!l->status && !a->stored) l->status = step_store(&a->step, (shoal_fetches){a->fetches.at, (int)a->fetches.n});
  a->stored = true;
  shoal_status e = l->status ? status_copy(l->status) : NULL;
  pthread_mutex_unlock(&l->lock);
  return e;
}

void shoal_async_cancel(shoal_async *a) { cancel_start(&a->cancel, NULL); }

void shoal_async_free(shoal_async *a) {
  if (!a) return;
  shoal_async_cancel(a);
  pthread_join(a->thread, NULL);
  release(a);
}

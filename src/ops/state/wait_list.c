/* See wait_list.h. A scan over all who wait follows every change: areas have few of them. */
#include "ops/state/wait_list.h"

#include <stdlib.h>

#include "base/alarm.h"

struct staged_waiter {
  struct staged_waiter *next;
  struct wait_list *list;
  struct resource *r; /* a reference */
  struct kernel_ctx *ctx;
  wait_try attempt;
  struct cancel_hook hook;
  struct alarm alarm; /* zeros: it waits for as long as it takes */
  const char *late;
  bool finished; /* lock */
  shoal_status status;
};

void wait_list_init(struct wait_list *l) {
  *l = (struct wait_list){0};
  pthread_mutex_init(&l->lock, NULL);
}

void wait_list_release(struct wait_list *l) { pthread_mutex_destroy(&l->lock); }

static void finish(struct staged_waiter *w) {
  INVARIANT(5, w->finished);
  struct resource *r = w->r;
  cancel_deregister(w->ctx->step->cancel, &w->hook);
  alarm_clear(&w->alarm);
  ctx_done(w->ctx, w->status);
  free(w);
  resource_unref(r);
}

void wait_changed_and_unlock(struct wait_list *l) {
  struct staged_waiter *done = NULL, **last = &done;
  for (struct staged_waiter **at = &l->first; *at;) {
    struct staged_waiter *w = *at;
    if (!w->attempt(w->ctx, w->r, &w->status)) {
      if (l->in_order) break;
      at = &w->next;
      continue;
    }
    *at = w->next;
    w->next = NULL;
    w->finished = true;
    *last = w;
    last = &w->next;
    at = &l->first; /* what it changed may suit somebody before it */
  }
  pthread_mutex_unlock(&l->lock);
  while (done) {
    struct staged_waiter *w = done;
    done = w->next;
    finish(w);
  }
}

/* Ends it with s, unless it has ended. It may have been in the way of others. */
static void give_up(struct staged_waiter *w, shoal_status s) {
  struct wait_list *l = w->list;
  struct resource *r = w->r;
  pthread_mutex_lock(&l->lock);
  if (w->finished) {
    pthread_mutex_unlock(&l->lock);
    shoal_status_free(s);
    return;
  }
  struct staged_waiter **at = &l->first;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
  w->finished = true;
  w->status = s;
  resource_ref(r);
  pthread_mutex_unlock(&l->lock);
  finish(w);
  if (l->in_order) wait_changed(l);
  resource_unref(r);
}

static shoal_status cancelled(const struct wait_list *l, const struct kernel_ctx *ctx) {
  return STATUS(SHOAL_CANCELLED, "%s operation was cancelled", l->what ? l->what : ctx->kernel->op->name);
}

static void on_cancel(void *arg) {
  struct staged_waiter *w = arg;
  give_up(w, cancelled(w->list, w->ctx));
}

static void on_alarm(void *arg) {
  struct staged_waiter *w = arg;
  give_up(w, STATUS(SHOAL_DEADLINE_EXCEEDED, "%s", w->late));
}

void wait_start(struct wait_list *l, struct resource *r, struct kernel_ctx *ctx, wait_try attempt) {
  wait_start_until(l, r, ctx, attempt, DEADLINE_NEVER, NULL);
}

void wait_start_until(struct wait_list *l, struct resource *r, struct kernel_ctx *ctx, wait_try attempt,
                      int64_t deadline, const char *late) {
  struct staged_waiter *w = mem_zalloc(1, sizeof *w);
  *w = (struct staged_waiter){.list = l, .r = r, .ctx = ctx, .attempt = attempt, .late = late};
  resource_ref(r);
  pthread_mutex_lock(&l->lock);
  if (!cancel_register(ctx->step->cancel, &w->hook, on_cancel, w)) {
    pthread_mutex_unlock(&l->lock);
    ctx_done(ctx, cancelled(l, ctx));
    free(w);
    resource_unref(r);
    return;
  }
  struct staged_waiter **last = &l->first;
  while (*last) last = &(*last)->next;
  *last = w;
  if (deadline != DEADLINE_NEVER) alarm_set(&w->alarm, deadline, on_alarm, w);
  wait_changed_and_unlock(l);
}

void wait_changed(struct wait_list *l) {
  pthread_mutex_lock(&l->lock);
  wait_changed_and_unlock(l);
}

/* See wait_list.h. A scan over all who wait follows every change: areas have few of them. */
#include "ops/wait_list.h"

#include <stdlib.h>

struct waiter {
  struct waiter *next;
  struct wait_list *list;
  struct resource *r; /* a reference */
  struct kernel_ctx *ctx;
  wait_try attempt;
  struct cancel_hook hook;
  bool finished; /* lock */
  shoal_status status;
};

void wait_list_init(struct wait_list *l) {
  pthread_mutex_init(&l->lock, NULL);
  l->first = NULL;
}

void wait_list_release(struct wait_list *l) { pthread_mutex_destroy(&l->lock); }

static void finish(struct waiter *w) {
  struct resource *r = w->r;
  cancel_deregister(w->ctx->step->cancel, &w->hook);
  ctx_done(w->ctx, w->status);
  free(w);
  resource_unref(r);
}

/* Called with the lock held; drops it. */
static void flush_and_unlock(struct wait_list *l) {
  struct waiter *done = NULL, **last = &done;
  for (struct waiter **at = &l->first; *at;) {
    struct waiter *w = *at;
    if (!w->attempt(w->ctx, w->r, &w->status)) {
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
    struct waiter *w = done;
    done = w->next;
    finish(w);
  }
}

static void on_cancel(void *arg) {
  struct waiter *w = arg;
  struct wait_list *l = w->list;
  pthread_mutex_lock(&l->lock);
  if (w->finished) {
    pthread_mutex_unlock(&l->lock);
    return;
  }
  struct waiter **at = &l->first;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
  w->finished = true;
  w->status = STATUS(SHOAL_CANCELLED, "%s operation was cancelled", w->ctx->kernel->op->name);
  pthread_mutex_unlock(&l->lock);
  finish(w);
}

void wait_start(struct wait_list *l, struct resource *r, struct kernel_ctx *ctx, wait_try attempt) {
  struct waiter *w = mem_zalloc(1, sizeof *w);
  *w = (struct waiter){.list = l, .r = r, .ctx = ctx, .attempt = attempt};
  resource_ref(r);
  pthread_mutex_lock(&l->lock);
  if (!cancel_register(ctx->step->cancel, &w->hook, on_cancel, w)) {
    pthread_mutex_unlock(&l->lock);
    ctx_done(ctx, STATUS(SHOAL_CANCELLED, "%s operation was cancelled", ctx->kernel->op->name));
    free(w);
    resource_unref(r);
    return;
  }
  struct waiter **last = &l->first;
  while (*last) last = &(*last)->next;
  *last = w;
  flush_and_unlock(l);
}

void wait_changed(struct wait_list *l) {
  pthread_mutex_lock(&l->lock);
  flush_and_unlock(l);
}

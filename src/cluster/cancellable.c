/* Calls that a cancellation may end; see cancellable.h. */
#include "cluster/cancellable.h"

#include "rpc/message.h"

static void cancelled(void *arg) {
  struct cancellable *c = arg;
  const char *why = c->why;
  pthread_mutex_lock(&c->lock);
  c->cancelled = true;
  struct peer_call *call = c->call ? peer_call_ref(c->call) : NULL;
  pthread_mutex_unlock(&c->lock);
  if (!call) return;
  peer_cancel(call, STATUS(SHOAL_CANCELLED, "%s", why)); /* may free c */
  peer_call_unref(call);
}

bool cancellable_begin(struct cancellable *c, struct cancel *cancel, const char *why) {
  *c = (struct cancellable){.cancel = cancel, .why = why};
  pthread_mutex_init(&c->lock, NULL);
  bool hooked = cancel && cancel_register(cancel, &c->hook, cancelled, c);
  pthread_mutex_lock(&c->lock);
  if (!cancel || (hooked && !c->cancelled)) return true;
  pthread_mutex_unlock(&c->lock);
  if (hooked) cancel_deregister(cancel, &c->hook);
  pthread_mutex_destroy(&c->lock);
  return false;
}

void cancellable_begun(struct cancellable *c) { pthread_mutex_unlock(&c->lock); }

bool cancellable_start(struct cancellable *c, struct cancel *cancel, const char *why, const struct task_question *q) {
  if (!cancellable_begin(c, cancel, why)) {
    rpc_message_free(q->request);
    return false;
  }
  peer_start(q->peer, q->method, q->request, q->deadline, q->flags, q->step, q->what, q->done, q->arg, &c->call);
  cancellable_begun(c);
  return true;
}

void cancellable_end(struct cancellable *c) {
  pthread_mutex_lock(&c->lock);
  pthread_mutex_unlock(&c->lock);
  if (c->cancel) cancel_deregister(c->cancel, &c->hook);
  peer_call_unref(c->call);
  pthread_mutex_destroy(&c->lock);
}

/* Ranks of collectives in one process: a message is copied when both sides are there. */
#ifndef UNIT_MAILBOX_H
#define UNIT_MAILBOX_H

#include "unit.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"
#include "collective/run.h"

struct mailbox {
  pthread_mutex_t lock;
  struct posted {
    struct posted *next;
    int from, to;
    bool sent;
    struct collective_transfer *x;
  } * waiting; /* lock */
};

struct box_end {
  struct collective_transport head;
  struct mailbox *box;
  int rank;
  size_t piece; /* so much is given to take at once */
};

static void deliver(struct box_end *e, struct collective_transfer *from, struct collective_transfer *to) {
  assert_int_equal(from->bytes, to->bytes);
  if (!to->take && to->bytes) memcpy(to->data, from->data, to->bytes);
  for (size_t at = 0; to->take && at < to->bytes; at += e->piece)
    to->take(to, (char *)from->data + at, at, MIN(e->piece, to->bytes - at));
  from->done(from, NULL);
  to->done(to, NULL);
}

static void post(struct collective_transport *t, struct collective_transfer *x, bool sent) {
  struct box_end *e = (struct box_end *)t;
  int from = sent ? e->rank : x->peer, to = sent ? x->peer : e->rank;
  pthread_mutex_lock(&e->box->lock);
  struct posted **p = &e->box->waiting, *other;
  while ((other = *p) && !(other->from == from && other->to == to && other->sent != sent &&
                           !memcmp(other->x->label, x->label, 3 * sizeof *x->label)))
    p = &other->next;
  if (other) *p = other->next;
  else {
    struct posted *own = mem_alloc(sizeof *own);
    *own = (struct posted){e->box->waiting, from, to, sent, x};
    e->box->waiting = own;
  }
  pthread_mutex_unlock(&e->box->lock);
  if (!other) return;
  deliver(e, sent ? x : other->x, sent ? other->x : x);
  free(other);
}

static void box_send(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *x) {
  post(t, x, true);
}
static void box_recv(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *x) {
  post(t, x, false);
}

static void box_abandon(struct collective_transport *t, const struct collective_id *id, shoal_status why) {
  struct box_end *e = (struct box_end *)t;
  for (struct posted *found;;) {
    pthread_mutex_lock(&e->box->lock);
    struct posted **p = &e->box->waiting;
    while ((found = *p) && (found->sent ? found->from : found->to) != e->rank) p = &found->next;
    if (found) *p = found->next;
    pthread_mutex_unlock(&e->box->lock);
    if (!found) return;
    found->x->done(found->x, status_copy(why));
    free(found);
  }
}

static const struct collective_transport_ops box_ops = {"box", box_send, box_recv, box_abandon};

#endif

/* Room for large requests; see room.h.
 *
 * Who waits and who has room is known under a lock of its own, the last but the loop's. Room is given by the leader
 * alone (an event, posted when somebody asks or something is given back; a timer, for what others gave back), which
 * takes the lock of the connection whose turn it is. */
#include "rpc/room.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/vec.h"
#include "rpc/http2/http2.h"
#include "rpc/limits.h"

/* STREAMS: whose first windows fit in a budget. PASSES: how often others may go before one that does not fit.
 * LATE: ticks in a row that one is found late: a machine that stood still for a while has its chance to go on. BODIES:
 * the beginnings of those that are no streams take 1/BODIES of a budget, beside the half that streams' may. */
enum { STREAMS = 4096, LEAST_WINDOW = 16 << 10, PASSES = 64, LATE = 4, BODIES = 4 };
static const int64_t TICK_NS = 250000000;
static const int64_t PAUSE_NS = 1000000000; /* a tick that comes so late tells of a process that stood still */

static void on_look(struct rpc_event *e);
static void on_tick(struct rpc_timer *t);

static struct {
  pthread_mutex_t lock;
  struct http2 *first, **last; /* connections with streams that wait, in turn */
  struct http2_stream *having; /* streams that have room, and are not here to their end */
  atomic_int waiting;          /* streams; changed with the lock held */
  atomic_bool posted;
  struct rpc_event look;
  struct rpc_timer tick;                    /* set while some wait */
  int64_t due;                              /* when it is to come */
  struct room_waiter *others, **others_end; /* the leader's */
  atomic_int others_waiting;                /* changed by the leader */
} room = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .last = &room.first,
          .others_end = &room.others,
          .look = {.fn = on_look, .kind = RPC_EVENT_QUICK},
          .tick = {.fn = on_tick}};

size_t room_first_window(const struct http2 *c) {
  if (!c->held.parent) return HTTP2_WINDOW;
  size_t least = SIZE_MAX;
  for (const struct budget *b = &c->held; b; b = b->parent) least = MIN(least, b->most);
  return MIN(MAX(least / STREAMS, (size_t)LEAST_WINDOW), (size_t)HTTP2_WINDOW);
}

bool room_can_be(const struct http2 *c, size_t n) {
  if (n > c->first_window) n += c->first_window + HTTP2_USUAL_WINDOW; /* beside its own beginning */
  for (const struct budget *b = c->held.parent ? &c->held : NULL; b; b = b->parent)
    if (n > b->most - b->most / RPC_BODY_LEAVING) return false;
  return true;
}

static void look(void) {
  if (!atomic_exchange(&room.posted, true)) rpc_loop_post(&room.look);
}

bool room_is_wanted(void) { return atomic_load(&room.waiting) || atomic_load(&room.others_waiting); }

void room_freed(void) {
  if (room_is_wanted()) look();
}

/* ---- lists; the lock is held ---- */

static void append_conn(struct http2 *c) {
  c->room.in_turn = true;
  c->room.next = NULL;
  *room.last = c;
  room.last = &c->room.next;
}

static void take_out_conn(struct http2 *c) {
  struct http2 **at = &room.first;
  while (*at != c) at = &(*at)->room.next;
  *at = c->room.next;
  if (!*at) room.last = at;
  c->room.in_turn = false;
}

static void take_out(struct http2 *c, struct http2_stream *s) {
  if (s->room_next) s->room_next->room_at = s->room_at;
  else if (s->room == HTTP2_ROOM_WAITS) c->room.last = s->room_at;
  *s->room_at = s->room_next;
  if (s->room == HTTP2_ROOM_WAITS) {
    atomic_fetch_sub(&room.waiting, 1);
    c->address->waiting--;
    if (!c->room.first) take_out_conn(c);
  }
  s->room = HTTP2_ROOM_NONE;
}

static void set_tick(int64_t now) {
  room.due = now + TICK_NS;
  rpc_timer_set(&room.tick, room.due);
}

/* Call with the lock held: nobody is left for whom it would come. */
static void clear_tick(void) {
  if (!room_is_wanted()) rpc_timer_clear(&room.tick);
}

/* ---- asking ---- */

bool room_ask(struct http2 *c, struct http2_stream *s) {
  pthread_mutex_lock(&room.lock);
  int before = atomic_load(&room.waiting);
  struct budget *own = &c->address->held;
  bool few =
      c->address->waiting < own->most / 2 / c->first_window && (size_t)before < own->parent->most / 2 / c->first_window;
  if (few) {
    if (!c->room.first) {
      c->room.last = &c->room.first;
      append_conn(c);
    }
    s->room = HTTP2_ROOM_WAITS;
    s->room_since = clock_ns();
    s->room_passed = 0;
    s->room_conn = c;
    s->room_next = NULL;
    s->room_at = c->room.last;
    *c->room.last = s;
    c->room.last = &s->room_next;
    atomic_fetch_add(&room.waiting, 1);
    c->address->waiting++;
    if (!before && !atomic_load(&room.others_waiting)) set_tick(s->room_since);
  }
  pthread_mutex_unlock(&room.lock);
  if (few) look();
  return few;
}

void room_leave(struct http2 *c, struct http2_stream *s) {
  if (s->room == HTTP2_ROOM_NONE) return;
  pthread_mutex_lock(&room.lock);
  take_out(c, s);
  clear_tick();
  pthread_mutex_unlock(&room.lock);
}

bool room_wait(struct room_waiter *w, struct rpc_address *from) {
  size_t before = (size_t)atomic_load(&room.others_waiting);
  if (from->bodies >= from->held.most / BODIES / ROOM_BEGINNING ||
      before >= from->held.parent->most / BODIES / ROOM_BEGINNING)
    return false;
  from->bodies++;
  w->from = from;
  pthread_mutex_lock(&room.lock);
  if (!room_is_wanted()) set_tick(clock_ns());
  w->next = NULL;
  w->at = room.others_end;
  *w->at = w;
  room.others_end = &w->next;
  atomic_fetch_add(&room.others_waiting, 1);
  pthread_mutex_unlock(&room.lock);
  look();
  return true;
}

void room_wait_no_more(struct room_waiter *w) {
  if (!w->at) return;
  pthread_mutex_lock(&room.lock);
  *w->at = w->next;
  if (w->next) w->next->at = w->at;
  else room.others_end = w->at;
  w->at = NULL;
  w->from->bodies--;
  atomic_fetch_sub(&room.others_waiting, 1);
  clear_tick();
  pthread_mutex_unlock(&room.lock);
}

/* ---- giving ---- */

/* The connection's lock is held. False: there is no room, after all. */
static bool give(struct http2 *c, struct http2_stream *s) {
  if (!rpc_body_reserve(&s->body, s->want)) return false;
  pthread_mutex_lock(&room.lock);
  take_out(c, s);
  if (c->room.in_turn) { /* the next one's turn */
    take_out_conn(c);
    append_conn(c);
  }
  s->room = HTTP2_ROOM_HAS;
  s->room_since = clock_ns();
  s->room_from = s->body.size;
  s->room_at = &room.having;
  s->room_next = room.having;
  if (room.having) room.having->room_at = &s->room_next;
  room.having = s;
  clear_tick();
  pthread_mutex_unlock(&room.lock);
  http2_open_window(c, s);
  return true;
}

struct room_place {
  struct http2 *conn; /* a reference; NULL: none */
  uint32_t id;
  bool others_wait; /* without a conn: who does not fit has been passed often enough */
};

/* Whose turn it is: the first for whom there is room. */
static struct room_place next_in_turn(void) {
  struct room_place p = {0};
  pthread_mutex_lock(&room.lock);
  struct http2 *c = room.first;
  for (; c; c = c->room.next) {
    size_t more = c->room.first->want; /* what it holds of it already is little */
    if (budget_has_room(&c->held, more, RPC_BODY_LEAVING)) break;
    /* The others go on, until they have for long enough; always, where it is its own address that has it all. */
    const struct budget *all = c->address->held.parent;
    bool waits = c->room.first->room_passed >= PASSES && !budget_has_room(all, more, RPC_BODY_LEAVING);
    if (!waits) continue;
    p.others_wait = true;
    c = NULL;
    break;
  }
  if (c) {
    p = (struct room_place){.conn = c, .id = c->room.first->id};
    http2_ref(c);
    for (struct http2 *b = room.first; b != c; b = b->room.next) b->room.first->room_passed++;
  }
  pthread_mutex_unlock(&room.lock);
  return p;
}

/* One that is no stream goes before all that wait, which there was no room for; true: that was once too often. */
static bool pass_all(void) {
  bool enough = false;
  pthread_mutex_lock(&room.lock);
  for (struct http2 *c = room.first; c; c = c->room.next) enough |= ++c->room.first->room_passed >= PASSES;
  pthread_mutex_unlock(&room.lock);
  if (enough) look();
  return enough;
}

/* Its stream, with the connection's lock taken; NULL when it is gone. */
static struct http2_stream *enter(const struct room_place *p) {
  http2_lock(p->conn);
  return p->conn->dead ? NULL : nghttp2_session_get_stream_user_data(p->conn->session, (int32_t)p->id);
}

static void leave(struct room_place *p) {
  http2_unlock(p->conn);
  http2_unref(p->conn);
}

static void on_look(struct rpc_event *e) {
  atomic_store(&room.posted, false);
  bool more = true;
  struct room_place p = {0};
  while (more && (p = next_in_turn()).conn) {
    struct http2_stream *s = enter(&p);
    if (s && s->room == HTTP2_ROOM_WAITS) {
      more = give(p.conn, s);
      if (more) http2_flush(p.conn);
    }
    leave(&p);
  }
  for (struct room_waiter *w = room.others, *next; w && !p.others_wait; w = next) {
    next = w->next;
    if (!w->give(w)) continue;
    room_wait_no_more(w);
    p.others_wait = pass_all();
  }
}

/* It has room, and is silent, or not as far as its part of the time is gone that the others may have to wait. */
static bool is_late(const struct http2_stream *s, int64_t now) {
  double came = (double)(s->body.size - s->room_from) / (double)(s->want - s->room_from);
  int64_t stall = rpc_limit_ns(RPC_STALL_TIMEOUT);
  double most = (double)stall + came * (double)rpc_limit_ns(RPC_ROOM_TIMEOUT);
  return now - s->heard > stall || (double)(now - s->room_since) > most;
}

/* Those that have room and do not go on, while others wait. The time that this process was paused is not theirs. */
static void refuse_stalled(int64_t now, int64_t paused) {
  VEC(struct room_place) having = {0};
  pthread_mutex_lock(&room.lock);
  for (struct http2_stream *s = room.having; s; s = s->room_next) {
    http2_ref(s->room_conn);
    vec_push(&having, (struct room_place){.conn = s->room_conn, .id = s->id});
  }
  pthread_mutex_unlock(&room.lock);
  for (size_t i = 0; i < having.n; i++) {
    struct http2_stream *s = enter(&having.at[i]);
    if (s && paused) {
      s->room_since += paused;
      s->heard = MIN(s->heard + paused, now);
    }
    if (s) s->room_late = s->room == HTTP2_ROOM_HAS && is_late(s, now) ? s->room_late + 1 : 0;
    if (s && s->room_late > LATE) {
      http2_refuse(
          having.at[i].conn, s,
          STATUS(SHOAL_DEADLINE_EXCEEDED, "the rest of the request did not come, and others wait for its room"));
      http2_flush(having.at[i].conn);
    }
    leave(&having.at[i]);
  }
  vec_release(&having);
}

static void on_tick(struct rpc_timer *t) {
  int64_t now = clock_ns();
  pthread_mutex_lock(&room.lock);
  int64_t late = now - room.due;
  pthread_mutex_unlock(&room.lock);
  refuse_stalled(now, late > PAUSE_NS ? late : 0);
  look();
  pthread_mutex_lock(&room.lock);
  if (room_is_wanted()) set_tick(now);
  pthread_mutex_unlock(&room.lock);
}

/* One connection of HTTP/1.1; see http1_visit.h.
 *
 * It shakes hands (TLS), its head comes, its body comes, it is worked on (then its socket is not read), its answer goes
 * out, or it has had its last answer and what still comes is thrown away: closing with unread bytes would reset the
 * connection, and take the answer from the reader's hands. Bytes that come behind a request wait until it is answered.
 *
 * A connection that is ready is given one read of READ bytes, or WRITE bytes of an answer: what is left is told by the
 * next poll, in turn with all others. One that has gone is taken away by an event of its own, since others may end it
 * while the leader still has news of it in hand. */
#include "rpc/http1/http1_visit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/limits.h"
#include "rpc/room.h"

/* LAST_MS: for the client to close, after its last answer. SLOWEST: bytes a second of a body that has had its time.
 * SMALL: of an answer, what everybody may have, whatever others have not read; of a body, what is read through by who
 * leads.
 * CHUNKED: read at once of a body whose end is not known, so that little comes behind it. */
enum {
  READ = 64 << 10,
  CHUNKED = 8 << 10,
  WRITE = 1 << 20,
  LAST_MS = 2000,
  LAST_STOPPING_MS = 100,
  SLOWEST = 16 << 10,
  SMALL = 64 << 10,
  PATH = 2048
};
static const int64_t SECOND = 1000000000;

static void visit_unref(struct visit *v) {
  if (!ref_drop(&v->refs)) return;
  struct http1 *h = v->server;
  free(v);
  pthread_mutex_lock(&h->lock);
  h->alive--;
  pthread_cond_broadcast(&h->news); /* in one go: h may be gone after this */
  pthread_mutex_unlock(&h->lock);
}

static void post(struct visit *v, struct rpc_event *e, enum rpc_event_kind kind, void (*fn)(struct rpc_event *e)) {
  ref_take(&v->refs);
  *e = (struct rpc_event){.fn = fn, .kind = kind};
  rpc_loop_post(e);
}

/* ---- time ---- */

static void refused(struct visit *v, int code, const char *words);

/* A body has --request_timeout for its next byte, and as long beside what it takes to come slowly. */
static int64_t body_until(const struct visit *v) {
  int64_t slow = v->began + (int64_t)(v->body.size / SLOWEST) * SECOND;
  return MIN(v->heard, slow) + rpc_limit_ns(RPC_REQUEST_TIMEOUT);
}

/* While others wait for room, one that has it goes on as a stream has to (is_late() in room.c). */
static int64_t roomy_until(const struct visit *v) {
  double came = (double)v->body.size / (double)v->request.length;
  int64_t slow = v->began + (int64_t)(came * (double)rpc_limit_ns(RPC_ROOM_TIMEOUT));
  return MIN(v->heard, slow) + rpc_limit_ns(RPC_STALL_TIMEOUT);
}

static void on_late(struct rpc_timer *t) {
  struct visit *v = (struct visit *)((char *)t - offsetof(struct visit, timer));
  int64_t now = clock_ns(), late = now - v->due;
  v->due = 0;
  if (v->closed || v->state == VISIT_WORK) return;
  if (late > SECOND) { /* this process stood still: nobody was slow in that time */
    v->until += late;
    v->began += late;
  }
  if (v->room.at && now >= v->until) {
    refused(v, 503, "there is no room for the request beside those that are held (--max_held_bytes, --room_timeout)");
    return;
  }
  bool has_room = v->roomy && v->state == VISIT_BODY, others_wait = has_room && room_is_wanted();
  if (has_room && !others_wait) v->until = MAX(v->until, body_until(v));
  if (now >= v->until) {
    if (others_wait) refused(v, 408, "the rest of the request did not come, and others wait for its room");
    else visit_close(v);
    return;
  }
  v->due = v->until;
  rpc_timer_set(&v->timer, v->due);
}

/* The timer is moved when it would come too late alone: what goes on is found so when it comes. */
static void has_until(struct visit *v, int64_t until) {
  v->until = until;
  if (v->due && v->due <= until) return;
  v->due = until;
  rpc_timer_set(&v->timer, until);
}

bool visit_is_idle(const struct visit *v) {
  return v->state == VISIT_LAST || v->state == VISIT_SHAKES || (v->state == VISIT_HEAD && !v->in.n);
}

int64_t visit_idle_for(const struct visit *v, int64_t now) {
  if (v->closed) return -1;
  switch (v->state) {
    case VISIT_WORK:
    case VISIT_ANSWER: return -1;
    case VISIT_BODY: return v->room.at ? -1 : now - v->heard - DOOR_IDLE_S * SECOND;
    case VISIT_LAST: return now - v->heard;
    default: break;
  }
  return v->greeted ? now - v->heard - DOOR_IDLE_S * SECOND : now - v->made - DOOR_GREETING_S * SECOND;
}

/* ---- watching ---- */

static void watch_for(struct visit *v, uint32_t events) {
  if (v->watched == events) return;
  v->watched = events;
  if (!rpc_loop_rewatch(&v->watch, events)) LOGW("a connection is not watched: %m");
}

static void on_turn(struct rpc_event *e);

/* It waits for its turn; what comes meanwhile does not wake the loop. */
static void stand_in_line(struct visit *v) {
  if (v->in_line) return;
  v->in_line = true;
  watch_for(v, 0);
  post(v, &v->turn, v->state == VISIT_SHAKES ? RPC_EVENT_GREETING : RPC_EVENT_TURN, on_turn);
}

static bool reads(const struct visit *v) {
  if (v->closed || v->room.at) return false;
  return v->state == VISIT_HEAD || v->state == VISIT_BODY || v->state == VISIT_LAST;
}

/* Of bytes that TLS has, no poll tells. */
static void look_for_more(struct visit *v) {
  if (v->socket.ssl && SSL_pending(v->socket.ssl)) stand_in_line(v);
}

/* ---- the end ---- */

static void let_go(struct visit *v) {
  bool held = v->body.room || v->body.reserved || v->unpacked;
  room_wait_no_more(&v->room);
  v->roomy = false;
  rpc_body_release(&v->body);
  budget_give(&v->held, v->unpacked);
  v->unpacked = 0;
  v->body.budget = &v->held;
  if (held) room_freed();
}

static void forget_answer(struct visit *v) {
  budget_give(&v->unread, v->counted);
  v->counted = 0;
  text_release(&v->answer.body);
  text_release(&v->answer_head);
  v->answer = (struct http1_answer){0};
}

static void on_closing(struct rpc_event *e) {
  struct visit *v = (struct visit *)((char *)e - offsetof(struct visit, closing));
  struct http1 *h = v->server;
  h->visits.at[v->place] = vec_last(&h->visits);
  h->visits.at[v->place]->place = v->place;
  h->visits.n--;
  rpc_timer_clear(&v->timer);
  rpc_loop_unwatch(&v->watch);
  socket_release(&v->socket);
  let_go(v);
  forget_answer(v);
  text_release(&v->in);
  text_release(&v->head);
  budget_give(&v->from->connections, 1);
  rpc_address_unref(v->from);
  visit_unref(v); /* the event's, and the connection's */
  visit_unref(v);
}

void visit_close(struct visit *v) {
  if (v->closed) return;
  v->closed = true;
  post(v, &v->closing, RPC_EVENT_QUICK, on_closing);
}

static void wait_for_end(struct visit *v) {
  if (v->server->is_late) {
    visit_close(v);
    return;
  }
  if (v->socket.ssl) SSL_shutdown(v->socket.ssl);
  shutdown(v->socket.fd, SHUT_WR);
  text_release(&v->in);
  v->state = VISIT_LAST;
  has_until(v, clock_ns() + (v->server->stops ? LAST_STOPPING_MS : LAST_MS) * (SECOND / 1000));
  watch_for(v, EPOLLIN);
}

/* ---- answers ---- */

static void go_on_with_rest(struct visit *v);

static void wait_for_head(struct visit *v) {
  v->state = VISIT_HEAD;
  bool between = v->greeted && !v->in.n;
  has_until(v, clock_ns() + rpc_limit_ns(between ? RPC_IDLE_TIMEOUT : RPC_GREETING_TIMEOUT));
  watch_for(v, EPOLLIN);
}

/* Sends some; false: the connection is to go. */
static bool send_some(struct visit *v, size_t *written) {
  size_t head = v->answer_head.n;
  struct iovec parts[2] = {{0}};
  int n = 0;
  if (v->sent < head) parts[n++] = (struct iovec){v->answer_head.at + v->sent, head - v->sent};
  size_t from = v->sent > head ? v->sent - head : 0, left = v->answer.body.n - from;
  if (left) parts[n++] = (struct iovec){v->answer.body.at + from, MIN(left, (size_t)WRITE)};
  ssize_t sent = socket_write(&v->socket, parts, n);
  *written = sent > 0 ? (size_t)sent : 0;
  v->sent += *written;
  return sent >= 0;
}

static void flush(struct visit *v) {
  size_t all = v->answer_head.n + v->answer.body.n, written = 0;
  if (!send_some(v, &written)) {
    visit_close(v);
    return;
  }
  int64_t now = clock_ns();
  if (written) v->heard = now;
  if (v->sent < all && v->server->is_late) { /* who does not read does not keep a server that stops */
    visit_close(v);
    return;
  }
  if (v->sent < all) {
    if (written) has_until(v, now + rpc_limit_ns(RPC_UNREAD_TIMEOUT));
    watch_for(v, EPOLLOUT);
    return;
  }
  forget_answer(v);
  v->greeted = true;
  if (!v->keep) {
    wait_for_end(v);
    return;
  }
  wait_for_head(v);
  if (v->in.n) go_on_with_rest(v);
  if (reads(v)) look_for_more(v);
}

/* Begins to send v->answer. */
static void answer(struct visit *v) {
  struct http1 *h = v->server;
  let_go(v);
  size_t n = v->answer.body.n;
  if (n <= SMALL) {
    budget_force(&v->unread, n);
  } else if (!budget_take(&v->unread, n)) {
    text_release(&v->answer.body);
    v->answer = (struct http1_answer){0};
    h->o.refuse(h->o.arg, 503, "there is no room for the answer beside those that clients have not read", &v->answer);
    budget_force(&v->unread, n = v->answer.body.n);
  }
  v->counted = n;
  if (h->stops || h->o.once) v->keep = false;
  http1_put_head(&v->answer_head, &v->answer, v->answer.body.n, v->keep);
  if (slice_is(v->request.method, "HEAD")) text_release(&v->answer.body); /* it would be read as the next answer */
  v->sent = 0;
  v->state = VISIT_ANSWER;
  has_until(v, clock_ns() + rpc_limit_ns(RPC_UNREAD_TIMEOUT));
  flush(v);
}

/* What is to be said at once: the request is no further read. */
static void refused(struct visit *v, int code, const char *words) {
  v->keep = false;
  v->server->o.refuse(v->server->o.arg, code, words, &v->answer);
  answer(v);
}

/* ---- working ---- */

bool http1_unpacks(const struct http1_request *r, size_t bytes) {
  if (!budget_take(&r->of->held, bytes)) return false;
  r->of->unpacked += bytes;
  return true;
}

void http1_on_unwanted(const struct http1_request *r, void (*fn)(void *arg), void *arg) {
  struct visit *v = r->of;
  pthread_mutex_lock(&v->server->lock);
  v->unwanted = (struct unwanted){.fn = fn, .arg = arg};
  if (v->unwelcome) unwanted_tell(&v->unwanted, &v->server->lock, &v->server->news);
  pthread_mutex_unlock(&v->server->lock);
}

void http1_wanted(const struct http1_request *r) {
  struct visit *v = r->of;
  pthread_mutex_lock(&v->server->lock);
  unwanted_answer(&v->unwanted, &v->server->lock, &v->server->news);
  pthread_mutex_unlock(&v->server->lock);
}

static void on_unasked(struct rpc_event *e) {
  struct visit *v = (struct visit *)((char *)e - offsetof(struct visit, unasked));
  pthread_mutex_lock(&v->server->lock);
  v->unwelcome = true;
  unwanted_tell(&v->unwanted, &v->server->lock, &v->server->news);
  pthread_mutex_unlock(&v->server->lock);
  visit_unref(v);
}

void visit_unwanted(struct visit *v) {
  if (v->told || v->state != VISIT_WORK) return;
  v->told = true;
  post(v, &v->unasked, RPC_EVENT_NEWS, on_unasked);
}

static void on_done(struct rpc_event *e) {
  struct visit *v = (struct visit *)((char *)e - offsetof(struct visit, work));
  budget_give(&v->from->calls, 1);
  if (atomic_load(&v->lost)) {
    v->state = VISIT_LAST;
    visit_close(v);
  } else {
    answer(v);
  }
  visit_unref(v);
}

/* Not on the leader; v is the leader's afterwards. */
static void done(struct visit *v) {
  v->work = (struct rpc_event){.fn = on_done, .kind = RPC_EVENT_QUICK};
  rpc_loop_post(&v->work);
}

static void handle(struct visit *v) {
  struct http1 *h = v->server;
  char path[PATH];
  if (!http1_path(v->request.target, path, sizeof path)) {
    h->o.refuse(h->o.arg, 400, "the request's target is no path", &v->answer);
    return;
  }
  if (v->body.size > SMALL) rpc_loop_hand_over();
  struct http1_request r = {v->request.method, path, {(const char *)v->body.data, v->body.size}, .of = v};
  r.has_body = h->o.no_body && v->request.length;
  h->o.handle(h->o.arg, &r, &v->answer);
}

static void on_request(struct rpc_event *e) {
  struct visit *v = (struct visit *)((char *)e - offsetof(struct visit, work));
  if (!atomic_load(&v->lost)) handle(v);
  done(v);
}

/* The request is next in its address's line. */
static void ask(struct visit *v) {
  v->work = (struct rpc_event){.fn = on_request, .line = v->from->requests, .kind = RPC_EVENT_REQUEST};
  rpc_loop_post(&v->work);
}

/* A compressed request is inflated before its handler has its turn: that takes long, and few may do it at a time. */
static void on_packed(struct rpc_event *e) {
  struct visit *v = (struct visit *)((char *)e - offsetof(struct visit, work));
  struct http1 *h = v->server;
  const void *data;
  size_t size;
  shoal_status s = atomic_load(&v->lost) ? NULL : rpc_body_flat(&v->body, &data, &size);
  if (!s) {
    ask(v);
    return;
  }
  int code = shoal_status_code(s) == SHOAL_INVALID_ARGUMENT ? 400 : v->body.no_room ? 503 : 413;
  h->o.refuse(h->o.arg, code, shoal_status_message(s), &v->answer);
  shoal_status_free(s);
  done(v);
}

static void hand_over(struct visit *v) {
  v->state = VISIT_WORK;
  v->told = v->unwelcome = false;
  v->unwanted = (struct unwanted){0};
  v->body.compressed = v->request.gzip && v->body.size;
  v->body.most = v->server->o.max_body;
  budget_force(&v->from->calls, 1);
  watch_for(v, 0);
  ref_take(&v->refs); /* until it is done */
  if (!v->body.compressed) {
    ask(v);
    return;
  }
  v->work = (struct rpc_event){.fn = on_packed, .line = v->from->packed, .kind = RPC_EVENT_COMPUTE};
  rpc_loop_post(&v->work);
}

/* ---- requests ---- */

/* A body goes on. One that has all the room it needs is neither silent for long nor slow while others wait for theirs.
 */
static void hear_body(struct visit *v) {
  v->heard = clock_ns();
  int64_t until = v->roomy ? MIN(roomy_until(v), body_until(v)) : body_until(v);
  has_until(v, MAX(until, v->heard)); /* a timer that is set for the past would seem to come late */
}

static bool give_room(struct room_waiter *w) {
  struct visit *v = (struct visit *)((char *)w - offsetof(struct visit, room));
  if (!rpc_body_reserve(&v->body, (size_t)v->request.length)) return false;
  v->roomy = true;
  v->began = clock_ns();
  hear_body(v);
  watch_for(v, EPOLLIN);
  if (v->room.at) look_for_more(v);
  return true;
}

/* Could there ever be room for n bytes? */
static bool room_can_come(const struct visit *v, size_t n) {
  for (const struct budget *b = &v->held; b; b = b->parent)
    if (n > b->most - b->most / RPC_BODY_LEAVING) return false;
  return true;
}

/* What says that it is large has room for all of it, once it has begun to come; until then it is not read. So no set of
 * half bodies holds all that there is and waits for more. False: it was refused. */
static bool ask_for_room(struct visit *v) {
  size_t n = v->request.length > 0 ? (size_t)v->request.length : 0;
  if (v->roomy || v->room.at || n <= ROOM_BEGINNING || v->body.size < ROOM_BEGINNING / 2) return true;
  if (!room_can_come(v, n)) {
    refused(v, 503, "there is no room for a request of this size (--max_held_bytes, --max_connection_held_bytes)");
    return false;
  }
  if (!room_is_wanted() && give_room(&v->room)) return true;
  if (!room_wait(&v->room, v->from)) {
    refused(v, 503, "too many requests wait for room for theirs (--max_held_bytes)");
    return false;
  }
  watch_for(v, 0);
  has_until(v, clock_ns() + rpc_limit_ns(RPC_ROOM_TIMEOUT));
  return true;
}

/* More of a body; false: it was refused. */
static bool add_body(struct visit *v, const char *at, size_t n) {
  size_t most = v->request.length >= 0 ? (size_t)v->request.length : v->server->o.max_body;
  /* What comes before it asks for room is as little as a small one, and is taken where they are. */
  if (v->request.length >= 0 && !v->roomy) most = MIN(most, MAX((size_t)ROOM_BEGINNING, v->body.size + n));
  if (v->body.size + n > v->server->o.max_body) {
    refused(v, 413, "the request is too large (--rest_api_max_request_bytes)");
    return false;
  }
  if (n > v->body.room - v->body.size && !rpc_body_grow(&v->body, n - (v->body.room - v->body.size), most)) {
    refused(v, 503, "there is no room for the request beside those that are held (--max_held_bytes)");
    return false;
  }
  memcpy(v->body.data + v->body.size, at, n);
  v->body.size += n;
  return true;
}

/* Takes bytes of a body; returns how many, or SIZE_MAX when it was refused. */
static size_t take_body(struct visit *v, const char *at, size_t n) {
  size_t taken = 0;
  if (v->request.length >= 0) {
    taken = MIN(n, (size_t)v->request.length - v->body.size);
    if (taken && !add_body(v, at, taken)) return SIZE_MAX;
    if (v->body.size == (size_t)v->request.length) hand_over(v);
    else if (!ask_for_room(v)) return SIZE_MAX;
    return taken;
  }
  while (taken < n) {
    size_t used, data_n;
    const char *data;
    int code = http1_chunks_read(&v->chunks, at + taken, n - taken, &used, &data, &data_n);
    taken += used;
    if (data_n && !add_body(v, data, data_n)) return SIZE_MAX;
    if (code == HTTP1_WHOLE) {
      hand_over(v);
      return taken;
    }
    if (code != HTTP1_MORE) {
      refused(v, code, "the chunks of the request's body make no sense");
      return SIZE_MAX;
    }
  }
  return taken;
}

/* The head's own copy, into which the request points; what came behind it stays. */
static void keep_head(struct visit *v) {
  struct http1_head *r = &v->request;
  text_release(&v->head);
  text_add(&v->head, v->in.at, r->size);
  http1_head_read(text_cstr(&v->head), v->head.n, r);
  memmove(v->in.at, v->in.at + r->size, v->in.n - r->size);
  v->in.n -= r->size;
  v->keep = r->keep;
}

static void go_on(struct visit *v) {
  static const char words[] = "HTTP/1.1 100 Continue\r\n\r\n";
  struct iovec part = {(void *)(uintptr_t)words, sizeof words - 1};
  if (socket_write(&v->socket, &part, 1) < 0) LOGD("a client that expects 100 has not read");
}

/* The head is in v->in, as far as it has come. False: not all of it has, or its body is not to be read. */
static bool take_head(struct visit *v) {
  struct http1_head *r = &v->request;
  int code = http1_head_read(text_cstr(&v->in), v->in.n, r);
  if (code == HTTP1_MORE) return false;
  if (code != HTTP1_WHOLE) {
    *r = (struct http1_head){0};
    refused(v, code,
            code == 431   ? "the request's head is too large"
            : code == 415 ? "bodies may be compressed by gzip, and by nothing else"
                          : "this is no request of HTTP/1.1");
    return false;
  }
  keep_head(v);
  v->chunks = (struct http1_chunks){0};
  if (v->server->o.no_body && r->length) {
    v->keep = false;
    hand_over(v);
    return false;
  }
  if (r->length > (int64_t)v->server->o.max_body) {
    refused(v, 413, "the request is too large (--rest_api_max_request_bytes)");
    return false;
  }
  if (r->expects && r->length) go_on(v);
  v->state = VISIT_BODY;
  v->began = clock_ns();
  hear_body(v);
  return true;
}

/* Goes on with what is in v->in. */
static void go_on_with_rest(struct visit *v) {
  if (v->state == VISIT_HEAD && !take_head(v)) return;
  if (v->state != VISIT_BODY) return;
  size_t taken = take_body(v, text_cstr(&v->in), v->in.n);
  if (taken == SIZE_MAX || !taken) return;
  memmove(v->in.at, v->in.at + taken, v->in.n - taken);
  v->in.n -= taken;
}

/* How much may be read at once: little beyond what is asked for, since it waits without being counted. */
static size_t wanted(const struct visit *v) {
  if (v->state == VISIT_HEAD) return HTTP1_HEAD - MIN(v->in.n, (size_t)HTTP1_HEAD - 1);
  if (v->state != VISIT_BODY) return READ;
  if (v->request.length < 0) return CHUNKED;
  size_t half = ROOM_BEGINNING / 2,
         most = v->roomy ? READ : ROOM_BEGINNING - MIN(v->body.size, half); /* then it asks */
  return MIN(most, (size_t)v->request.length - v->body.size);
}

static void read_some(struct visit *v) {
  char *scratch = (char *)rpc_loop_scratch();
  struct iovec to = {scratch, wanted(v)};
  ssize_t n = socket_read(&v->socket, &to, 1);
  if (n < 0) visit_close(v);
  if (n <= 0) return;
  if (v->state == VISIT_LAST) return;
  if (v->state == VISIT_BODY && !v->in.n) {
    hear_body(v);
    size_t taken = take_body(v, scratch, (size_t)n);
    if (taken != SIZE_MAX && taken < (size_t)n) text_add(&v->in, scratch + taken, (size_t)n - taken);
  } else {
    if (!v->in.n && v->state == VISIT_HEAD) {
      v->heard = clock_ns();
      has_until(v, v->heard + rpc_limit_ns(RPC_GREETING_TIMEOUT));
    }
    text_add(&v->in, scratch, (size_t)n);
    go_on_with_rest(v);
  }
  if (reads(v)) look_for_more(v);
}

static void shake(struct visit *v) {
  uint32_t events = EPOLLIN;
  int done = socket_handshake(&v->socket, &events);
  if (done < 0) visit_close(v);
  else if (done) wait_for_head(v);
  else watch_for(v, events);
}

static void on_turn(struct rpc_event *e) {
  struct visit *v = (struct visit *)((char *)e - offsetof(struct visit, turn));
  v->in_line = false;
  if (!v->closed && v->state == VISIT_SHAKES) {
    shake(v);
  } else if (reads(v)) {
    watch_for(v, EPOLLIN);
    read_some(v);
  }
  visit_unref(v);
}

static void on_socket(struct rpc_watch *w, uint32_t events) {
  struct visit *v = (struct visit *)((char *)w - offsetof(struct visit, watch));
  if (v->closed || v->in_line) return;
  if (v->room.at) { /* it is not read, and can only have gone */
    visit_close(v);
    return;
  }
  switch (v->state) {
    case VISIT_SHAKES: stand_in_line(v); return;
    case VISIT_WORK: /* told again and again, unless nobody looks */
      atomic_store(&v->lost, true);
      rpc_loop_unwatch(w);
      visit_unwanted(v);
      return;
    case VISIT_ANSWER: flush(v); return;
    default: read_some(v);
  }
}

void visit_begin(struct http1 *h, int fd, struct rpc_address *from) {
  struct visit *v = mem_zalloc(1, sizeof *v);
  v->server = h;
  v->from = from;
  ref_init(&v->refs, 1);
  v->watch = (struct rpc_watch){.fn = on_socket, .fd = fd};
  v->timer.fn = on_late;
  v->room.give = give_room;
  v->made = v->heard = clock_ns();
  v->place = h->visits.n;
  budget_init(&v->held, (size_t)rpc_limit(RPC_MAX_CONNECTION_HELD_BYTES), &from->held);
  budget_init(&v->unread, (size_t)rpc_limit(RPC_MAX_CONNECTION_UNREAD_BYTES), &from->unread);
  v->body.budget = &v->held;
  socket_init(&v->socket, fd, h->tls, true, NULL);
  vec_push(&h->visits, v);
  pthread_mutex_lock(&h->lock);
  h->alive++;
  pthread_mutex_unlock(&h->lock);
  v->watched = EPOLLIN;
  if (!rpc_loop_watch(&v->watch, v->watched)) {
    visit_close(v);
  } else if (h->tls) {
    v->state = VISIT_SHAKES;
    has_until(v, v->made + rpc_limit_ns(RPC_GREETING_TIMEOUT));
  } else {
    wait_for_head(v);
  }
}

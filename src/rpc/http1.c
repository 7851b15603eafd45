/* See http1.h.
 *
 * A connection is in one of five states: its head comes, its body comes, it is worked on (then it is the pool's, and
 * its socket is not watched), its answer goes out, or it has had its last answer and what still comes is thrown away
 * (closing with unread bytes would reset the connection, and take the answer from the reader's hands). Bytes that come
 * behind a request wait until it is answered. */
#include "rpc/http1.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/vec.h"
#include "rpc/address.h"
#include "rpc/bind.h"
#include "rpc/body.h"
#include "rpc/http1_parse.h"
#include "rpc/limits.h"

/* LOOK_MS: between looks at who is late. HEAD_S: for a head, from its first byte. IDLE_S: between requests. SILENT_S:
 * in the middle of a body, before it makes room for others. SLOWEST: bytes a second of a body that has had its time.
 * SMALL_ANSWER: what everybody may have, whatever others have not read. */
enum {
  MAX_BODY = 256 << 20,
  SCRATCH = 64 << 10,
  EVENTS = 64,
  LOOK_MS = 500,
  HEAD_S = 20,
  IDLE_S = 300,
  LAST_S = 2,
  SILENT_S = 10,
  SLOWEST = 16 << 10,
  SMALL_ANSWER = 64 << 10,
  PATH = 2048
};

struct visit {
  struct http1 *server;
  struct rpc_address *from;
  int fd;
  enum visit_state { VISIT_HEAD, VISIT_BODY, VISIT_WORK, VISIT_ANSWER, VISIT_LAST } state;
  int64_t until;    /* when it has had its time */
  int64_t began;    /* the body */
  int64_t heard;    /* the last of it */
  struct text in;   /* the head as it comes; what came behind a request */
  struct text head; /* of the request that is worked on: request points into it */
  struct http1_head request;
  struct http1_chunks chunks;
  struct rpc_body body;
  struct budget held;
  size_t unpacked; /* taken of it beside the body */
  struct http1_answer answer;
  struct text answer_head;
  size_t sent;    /* of both */
  size_t counted; /* of the answer, among those that are not read */
  bool keep, watched, gone;
  size_t place;       /* in the server's list */
  struct visit *next; /* of those that are done, or gone */
};

struct http1 {
  struct http1_options o;
  int listener, port, epoll, wake;
  pthread_t thread;
  struct pool *pool;
  VEC(struct visit *) visits; /* the thread's */
  struct visit *gone;         /* the thread's: freed once no event can name them */
  int working;                /* the thread's: in the pool */
  bool more;                  /* the thread's: something came behind a request that is answered */
  int64_t stop_at;            /* the thread's: 0, or when the last go */
  pthread_mutex_t lock;
  struct visit *done;  /* lock */
  int64_t stopping_at; /* lock: 0, or when it is to have ended */
  char scratch[SCRATCH];
};

/* ---- one connection ---- */

/* For no events it is not watched at all: that a client hangs up would be told again and again. */
static void watch(struct visit *v, uint32_t events) {
  struct epoll_event e = {.events = events, .data.ptr = v};
  int how = !events ? EPOLL_CTL_DEL : v->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (!events && !v->watched) return;
  if (epoll_ctl(v->server->epoll, how, v->fd, &e)) LOGW("a connection is not watched: %m");
  else v->watched = events != 0;
}

static void visit_free(struct visit *v) {
  struct http1 *h = v->server;
  h->visits.at[v->place] = vec_last(&h->visits);
  h->visits.at[v->place]->place = v->place;
  h->visits.n--;
  close(v->fd);
  if (v->counted) budget_give(&v->from->unread, v->counted);
  rpc_body_release(&v->body);
  text_release(&v->in);
  text_release(&v->head);
  text_release(&v->answer.body);
  text_release(&v->answer_head);
  budget_give(&v->from->connections, 1);
  rpc_address_unref(v->from);
  v->gone = true;
  v->next = h->gone;
  h->gone = v;
}

static void wait_for_head(struct visit *v) {
  v->state = VISIT_HEAD;
  v->until = clock_ns() + (int64_t)(v->in.n ? HEAD_S : IDLE_S) * 1000000000;
  watch(v, EPOLLIN);
}

/* A body goes on: it has --request_timeout for its next byte, and as long beside what it takes to come slowly. */
static void hear_body(struct visit *v) {
  int64_t patience = rpc_limit_ns(RPC_REQUEST_TIMEOUT);
  v->heard = clock_ns();
  v->until = MIN(v->heard, v->began + (int64_t)(v->body.size / SLOWEST) * 1000000000) + patience;
}

static void wait_for_end(struct visit *v) {
  shutdown(v->fd, SHUT_WR);
  text_release(&v->in);
  v->state = VISIT_LAST;
  v->until = clock_ns() + (int64_t)LAST_S * 1000000000;
  watch(v, EPOLLIN);
}

/* ---- answers ---- */

static const char *reason(int code) {
  switch (code) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
  }
}

static bool flush(struct visit *v);

static void let_go(struct visit *v) {
  rpc_body_release(&v->body);
  budget_give(&v->held, v->unpacked);
  v->unpacked = 0;
}

/* Begins to send v->answer. */
static void answer(struct visit *v) {
  let_go(v);
  v->body.budget = &v->held;
  size_t n = v->answer.body.n;
  if (n <= SMALL_ANSWER) {
    budget_force(&v->from->unread, n);
  } else if (!budget_take(&v->from->unread, n)) {
    text_release(&v->answer.body);
    v->answer = (struct http1_answer){0};
    v->server->o.refuse(v->server->o.arg, 503,
                        "there is no room for the answer beside those that clients have not read", &v->answer);
    n = 0;
  }
  v->counted = n;
  if (v->server->stop_at) v->keep = false;
  text_addf(&v->answer_head,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nX-Content-Type-Options: nosniff\r\n%s\r\n",
            v->answer.code, reason(v->answer.code), v->answer.type ? v->answer.type : "text/plain", v->answer.body.n,
            v->keep ? "" : "Connection: close\r\n");
  if (slice_is(v->request.method, "HEAD")) text_release(&v->answer.body); /* it would be read as the next answer */
  v->sent = 0;
  v->state = VISIT_ANSWER;
  v->until = clock_ns() + rpc_limit_ns(RPC_UNREAD_TIMEOUT);
  if (!flush(v)) visit_free(v);
}

/* What is to be said at once: the request is no further read. */
static void refused(struct visit *v, int code, const char *words) {
  v->keep = false;
  v->server->o.refuse(v->server->o.arg, code, words, &v->answer);
  answer(v);
}

/* ---- requests ---- */

bool http1_unpacks(const struct http1_request *r, size_t bytes) {
  if (!budget_take(&r->of->held, bytes)) return false;
  r->of->unpacked += bytes;
  return true;
}

static void work(void *arg) {
  struct visit *v = arg;
  struct http1 *h = v->server;
  const void *data;
  size_t size;
  char path[PATH];
  shoal_status s = rpc_body_flat(&v->body, &data, &size);
  if (s)
    h->o.refuse(h->o.arg, shoal_status_code(s) == SHOAL_INVALID_ARGUMENT ? 400 : 413, shoal_status_message(s),
                &v->answer);
  else if (!http1_path(v->request.target, path, sizeof path))
    h->o.refuse(h->o.arg, 400, "the request's target is no path", &v->answer);
  else h->o.handle(h->o.arg, &(struct http1_request){v->request.method, path, {data, size}, v}, &v->answer);
  shoal_status_free(s);
  pthread_mutex_lock(&h->lock);
  v->next = h->done;
  h->done = v;
  pthread_mutex_unlock(&h->lock);
  uint64_t one = 1;
  if (write(h->wake, &one, sizeof one) < 0) LOGD("a wake-up was not needed: %m");
}

static void hand_over(struct visit *v) {
  v->state = VISIT_WORK;
  v->until = INT64_MAX;
  v->body.compressed = v->request.gzip;
  v->body.most = v->server->o.max_body;
  watch(v, 0);
  v->server->working++;
  pool_submit(v->server->pool, work, v);
}

/* More of a body; false: it was refused. */
static bool add_body(struct visit *v, const char *at, size_t n) {
  size_t most = v->request.length >= 0 ? (size_t)v->request.length : v->server->o.max_body;
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

/* Takes bytes of a body; returns how many, or SIZE_MAX when the connection is not to be used any more. */
static size_t take_body(struct visit *v, const char *at, size_t n) {
  size_t taken = 0;
  if (v->request.length >= 0) {
    taken = MIN(n, (size_t)v->request.length - v->body.size);
    if (taken && !add_body(v, at, taken)) return SIZE_MAX;
    if (v->body.size == (size_t)v->request.length) hand_over(v);
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

/* The head is in v->in, as far as it has come. False: not all of it has, or the connection is not to be used. */
static bool take_head(struct visit *v) {
  struct http1_head *r = &v->request;
  int code = http1_head_read(text_cstr(&v->in), v->in.n, r);
  if (code == HTTP1_MORE) return false;
  if (code != HTTP1_WHOLE) {
    refused(v, code, code == 431 ? "the request's head is too large" : "this is no request of HTTP/1.1");
    return false;
  }
  /* The head's own copy, into which the request points; what came behind it stays. */
  text_release(&v->head);
  text_add(&v->head, v->in.at, r->size);
  http1_head_read(text_cstr(&v->head), v->head.n, r);
  memmove(v->in.at, v->in.at + r->size, v->in.n - r->size);
  v->in.n -= r->size;
  v->keep = r->keep;
  v->chunks = (struct http1_chunks){0};
  if (r->length > (int64_t)v->server->o.max_body) {
    refused(v, 413, "the request is too large (--rest_api_max_request_bytes)");
    return false;
  }
  static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
  if (r->expects && r->length && send(v->fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    LOGD("a client that expects 100 has not read: %m");
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

/* False: the connection is gone. */
static bool read_some(struct visit *v) {
  struct http1 *h = v->server;
  ssize_t n = recv(v->fd, h->scratch, SCRATCH, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return false;
  if (v->state == VISIT_LAST) return true;
  if (v->state == VISIT_BODY && !v->in.n) {
    hear_body(v);
    size_t taken = take_body(v, h->scratch, (size_t)n);
    if (taken != SIZE_MAX && taken < (size_t)n) text_add(&v->in, h->scratch + taken, (size_t)n - taken);
    return true;
  }
  if (!v->in.n) v->until = clock_ns() + (int64_t)HEAD_S * 1000000000;
  text_add(&v->in, h->scratch, (size_t)n);
  go_on_with_rest(v);
  return true;
}

/* Sends; false: the connection is to go. */
static bool flush(struct visit *v) {
  size_t head = v->answer_head.n, all = head + v->answer.body.n;
  while (v->sent < all) {
    struct iovec parts[2] = {{0}};
    int n = 0;
    if (v->sent < head) parts[n++] = (struct iovec){v->answer_head.at + v->sent, head - v->sent};
    size_t from = v->sent > head ? v->sent - head : 0;
    if (from < v->answer.body.n) parts[n++] = (struct iovec){v->answer.body.at + from, v->answer.body.n - from};
    ssize_t sent = sendmsg(v->fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = (size_t)n}, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      watch(v, EPOLLOUT);
      return true;
    }
    if (sent < 0) return false;
    v->sent += (size_t)sent;
    v->until = clock_ns() + rpc_limit_ns(RPC_UNREAD_TIMEOUT);
  }
  if (v->counted) budget_give(&v->from->unread, v->counted);
  v->counted = 0;
  text_release(&v->answer.body);
  text_release(&v->answer_head);
  v->answer = (struct http1_answer){0};
  if (v->keep) wait_for_head(v);
  else wait_for_end(v);
  v->server->more |= v->keep && v->in.n;
  return true;
}

/* ---- all connections ---- */

/* Since when nobody has been heard there: of one that waits for its next request, or is silent in the middle of one.
 * INT64_MAX: it is not to make room for others. */
static int64_t idle_since(const struct visit *v, int64_t now) {
  if (v->state == VISIT_HEAD || v->state == VISIT_LAST) return v->until - (int64_t)IDLE_S * 1000000000;
  bool silent = v->state == VISIT_BODY && now - v->heard > (int64_t)SILENT_S * 1000000000;
  return silent ? v->heard : INT64_MAX;
}

/* One (of an address; NULL: of all) makes room. */
static bool end_an_idle_one(struct http1 *h, const struct rpc_address *of) {
  struct visit *oldest = NULL;
  int64_t now = clock_ns(), least = INT64_MAX;
  for (size_t i = 0; i < h->visits.n; i++) {
    struct visit *v = h->visits.at[i];
    int64_t since = idle_since(v, now);
    if (since >= least || (of && v->from != of)) continue;
    oldest = v;
    least = since;
  }
  if (oldest) visit_free(oldest);
  return oldest != NULL;
}

static bool may_come(struct http1 *h, struct rpc_address *from) {
  if (budget_take(&from->connections, 1)) return true;
  bool share = budget_used(&from->connections) >= from->connections.most;
  return end_an_idle_one(h, share ? from : NULL) && budget_take(&from->connections, 1);
}

static void take_in(struct http1 *h) {
  struct sockaddr_storage peer = {0};
  int fd = accept4(h->listener, (struct sockaddr *)&peer, &(socklen_t){sizeof peer}, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    bool none = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (none && !end_an_idle_one(h, NULL)) usleep(LOOK_MS * 100);
    return;
  }
  struct rpc_address *from = rpc_address_get(rpc_address_number(&peer), rpc_budget(RPC_MAX_HELD_BYTES));
  if (!may_come(h, from)) {
    rpc_address_unref(from);
    close(fd);
    return;
  }
  struct visit *v = mem_zalloc(1, sizeof *v);
  *v = (struct visit){.server = h, .from = from, .fd = fd, .place = h->visits.n};
  budget_init(&v->held, (size_t)rpc_limit(RPC_MAX_CONNECTION_HELD_BYTES), &from->held);
  v->body.budget = &v->held;
  vec_push(&h->visits, v);
  wait_for_head(v);
  if (!v->watched) visit_free(v);
}

static void take_done(struct http1 *h) {
  uint64_t count;
  if (read(h->wake, &count, sizeof count) < 0) count = 0;
  pthread_mutex_lock(&h->lock);
  struct visit *v = h->done;
  h->done = NULL;
  if (h->stopping_at && !h->stop_at) h->stop_at = h->stopping_at;
  pthread_mutex_unlock(&h->lock);
  for (struct visit *next; v; v = next) {
    next = v->next;
    h->working--;
    answer(v);
  }
}

static void end_late(struct http1 *h) {
  int64_t now = clock_ns();
  for (size_t i = h->visits.n; i-- > 0;) {
    struct visit *v = h->visits.at[i];
    bool idle = (v->state == VISIT_HEAD && !v->in.n) || v->state == VISIT_LAST;
    if (v->state == VISIT_WORK || (now < v->until && !(h->stop_at && (idle || now >= h->stop_at)))) continue;
    visit_free(v);
  }
}

/* What came behind requests that are answered by now. */
static void go_on(struct http1 *h) {
  h->more = false;
  for (size_t i = h->visits.n; i-- > 0;) {
    struct visit *v = h->visits.at[i];
    if (v->state == VISIT_HEAD && v->in.n && memchr(v->in.at, '\n', v->in.n)) go_on_with_rest(v);
  }
}

static void attend_one(struct visit *v) {
  if (v->gone || v->state == VISIT_WORK) return;
  bool stays = v->state == VISIT_ANSWER ? flush(v) : read_some(v);
  if (!stays) visit_free(v);
}

static void bury(struct http1 *h) {
  for (struct visit *v = h->gone, *next; v; v = next) {
    next = v->next;
    free(v);
  }
  h->gone = NULL;
}

static void *attend(void *arg) {
  struct http1 *h = arg;
  struct epoll_event events[EVENTS];
  pthread_setname_np(pthread_self(), "shoal-rest");
  int64_t looked = 0;
  bool deaf = false;
  while (!(h->stop_at && !h->working && (!h->visits.n || clock_ns() >= h->stop_at))) {
    int n = epoll_wait(h->epoll, events, EVENTS, LOOK_MS);
    bool done = false;
    for (int i = 0; i < n; i++) {
      if (events[i].data.ptr == &h->wake) done = true;
      else if (events[i].data.ptr == h) take_in(h);
      else attend_one(events[i].data.ptr);
    }
    if (done) take_done(h);
    while (h->more) go_on(h);
    if (h->stop_at && !deaf) {
      epoll_ctl(h->epoll, EPOLL_CTL_DEL, h->listener, NULL);
      deaf = true;
    }
    if (done || clock_ns() - looked > (int64_t)LOOK_MS * 1000000) {
      end_late(h);
      looked = clock_ns();
    }
    bury(h);
  }
  while (h->visits.n) visit_free(vec_last(&h->visits));
  bury(h);
  return NULL;
}

/* ---- starting and stopping ---- */

static void release(struct http1 *h) {
  if (h->listener >= 0) close(h->listener);
  if (h->epoll >= 0) close(h->epoll);
  if (h->wake >= 0) close(h->wake);
  if (h->pool) pool_free(h->pool);
  vec_release(&h->visits);
  pthread_mutex_destroy(&h->lock);
  free(h);
}

static shoal_status open_descriptors(struct http1 *h) {
  TRY(bind_and_listen(h->o.host ? h->o.host : "127.0.0.1", h->o.port, "--rest_api_port", &h->listener, &h->port));
  h->epoll = epoll_create1(EPOLL_CLOEXEC);
  h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event in = {.events = EPOLLIN, .data.ptr = h}, news = {.events = EPOLLIN, .data.ptr = &h->wake};
  if (h->epoll < 0 || h->wake < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->listener, &in) ||
      epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &news))
    return ERRNO_STATUS(errno, "no descriptors for REST");
  return NULL;
}

shoal_status http1_start(const struct http1_options *o, struct http1 **out) {
  struct http1 *h = mem_zalloc(1, sizeof *h);
  h->o = *o;
  if (!h->o.max_body) h->o.max_body = MAX_BODY;
  h->listener = h->epoll = h->wake = -1;
  pthread_mutex_init(&h->lock, NULL);
  shoal_status s = open_descriptors(h);
  if (!s) {
    h->pool = pool_new(o->threads ? o->threads : 4 * cpu_count(), "rest");
    int err = pthread_create(&h->thread, NULL, attend, h);
    if (err) s = ERRNO_STATUS(err, "no thread for REST");
  }
  if (s) release(h);
  else *out = h;
  return s;
}

int http1_port(const struct http1 *h) { return h->port; }

void http1_close(struct http1 *h, int64_t grace_ms) {
  if (!h) return;
  pthread_mutex_lock(&h->lock);
  h->stopping_at = clock_ns() + grace_ms * 1000000;
  pthread_mutex_unlock(&h->lock);
  uint64_t one = 1;
  if (write(h->wake, &one, sizeof one) < 0) LOGW("REST is told to stop, and does not hear: %m");
}

void http1_stop(struct http1 *h) {
  if (!h) return;
  pthread_join(h->thread, NULL);
  release(h);
}

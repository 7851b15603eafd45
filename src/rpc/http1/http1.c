/* A server of HTTP/1.1; see http1.h. */
#include "rpc/http1/http1.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/mem.h"
#include "rpc/bind.h"
#include "rpc/http1/http1_visit.h"
#include "rpc/limits.h"

enum { MAX_BODY = 256 << 20 };

/* ---- answers ---- */

static const char *reason(int code) {
  switch (code) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
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

void http1_put_head(struct text *out, const struct http1_answer *a, size_t size, bool keep) {
  text_addf(out,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nX-Content-Type-Options: nosniff\r\n%s%s\r\n",
            a->code, reason(a->code), a->type ? a->type : "text/plain", size, a->fields ? a->fields : "",
            keep ? "" : "Connection: close\r\n");
}

/* ---- who comes ---- */

static struct visit *find_idle(const struct http1 *h, const struct rpc_address *of, int64_t *longest) {
  struct visit *found = NULL;
  int64_t now = clock_ns();
  *longest = -1;
  for (size_t i = 0; i < h->visits.n; i++) {
    int64_t ns = visit_idle_for(h->visits.at[i], now);
    if (ns <= *longest || (of && h->visits.at[i]->from->number != of->number)) continue;
    found = h->visits.at[i];
    *longest = ns;
  }
  return found;
}

static struct http1 *of_door(struct door *d) { return (struct http1 *)((char *)d - offsetof(struct http1, door)); }

static int64_t longest_idle(struct door *d, const struct rpc_address *of) {
  int64_t longest;
  find_idle(of_door(d), of, &longest);
  return longest;
}

static bool end_idle(struct door *d, const struct rpc_address *of) {
  int64_t longest;
  struct visit *v = find_idle(of_door(d), of, &longest);
  if (v) visit_close(v);
  return v != NULL;
}

/* Where a server has a number of its own, the oldest of those that nobody works for goes at once. */
static void make_room(struct http1 *h) {
  struct visit *oldest = NULL;
  int open = 0;
  for (size_t i = 0; i < h->visits.n; i++) {
    struct visit *v = h->visits.at[i];
    open += !v->closed;
    if (!v->closed && v->state != VISIT_WORK && (!oldest || v->made < oldest->made)) oldest = v;
  }
  if (open >= h->o.max_visits && oldest) visit_close(oldest);
}

static void on_connected(void *arg, int fd) {
  struct http1 *h = arg;
  struct sockaddr_storage peer = {0};
  if (fd < 0) door_free_descriptors();
  if (fd < 0) return;
  getpeername(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof peer});
  struct rpc_address *from = rpc_address_get(rpc_address_number(&peer), rpc_budget(RPC_MAX_HELD_BYTES));
  if (h->o.max_visits) make_room(h);
  if (door_lets_in(from, &peer)) {
    visit_begin(h, fd, from);
    return;
  }
  rpc_address_unref(from);
  close(fd);
}

/* ---- starting and stopping ---- */

static void on_late(struct rpc_timer *t) {
  struct http1 *h = (struct http1 *)((char *)t - offsetof(struct http1, late));
  h->is_late = true;
  for (size_t i = 0; i < h->visits.n; i++) {
    struct visit *v = h->visits.at[i];
    if (v->state == VISIT_WORK) visit_unwanted(v);
    else visit_close(v);
  }
}

static void on_stopping(struct rpc_event *e) {
  struct http1 *h = (struct http1 *)((char *)e - offsetof(struct http1, stopping));
  listener_close(h->listener);
  h->stops = true;
  for (size_t i = 0; i < h->visits.n; i++)
    if (visit_is_idle(h->visits.at[i])) visit_close(h->visits.at[i]);
  pthread_mutex_lock(&h->lock);
  int64_t stop_at = h->stop_at;
  pthread_mutex_unlock(&h->lock);
  rpc_timer_set(&h->late, stop_at);
  pthread_mutex_lock(&h->lock);
  h->deaf = true;
  pthread_cond_broadcast(&h->news);
  pthread_mutex_unlock(&h->lock);
}

static void on_ending(struct rpc_event *e) {
  struct http1 *h = (struct http1 *)((char *)e - offsetof(struct http1, ending));
  rpc_timer_clear(&h->late);
  pthread_mutex_lock(&h->lock);
  h->over = true;
  pthread_cond_broadcast(&h->news); /* in one go: h may be gone after this */
  pthread_mutex_unlock(&h->lock);
}

static void http1_free(struct http1 *h) {
  SSL_CTX_free(h->tls);
  vec_release(&h->visits);
  pthread_mutex_destroy(&h->lock);
  pthread_cond_destroy(&h->news);
  free(h);
  rpc_loop_release();
}

/* Of the protocols that a client of TLS offers, ours; one that offers others alone is left to find out. */
static int pick_protocol(SSL *ssl, const unsigned char **out, unsigned char *n, const unsigned char *offered,
                         unsigned int size, void *arg) {
  static const unsigned char mine[] = "\x08http/1.1";
  unsigned char *picked;
  int found = SSL_select_next_proto(&picked, n, mine, sizeof mine - 1, offered, size);
  *out = picked;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

shoal_status http1_start(const struct http1_options *o, struct http1 **out) {
  TRY(rpc_loop_acquire());
  struct http1 *h = mem_zalloc(1, sizeof *h);
  h->o = *o;
  if (!h->o.max_body) h->o.max_body = MAX_BODY;
  h->stopping = (struct rpc_event){.fn = on_stopping, .kind = RPC_EVENT_QUICK};
  h->ending = (struct rpc_event){.fn = on_ending, .kind = RPC_EVENT_QUICK};
  h->late.fn = on_late;
  h->door = (struct door){.longest = longest_idle, .end = end_idle};
  pthread_mutex_init(&h->lock, NULL);
  cond_init(&h->news);
  shoal_status s = rpc_tls_context(o->tls, true, &h->tls);
  if (h->tls) SSL_CTX_set_alpn_select_cb(h->tls, pick_protocol, NULL);
  if (!s) s = bind_and_listen(o->host ? o->host : "127.0.0.1", o->port, o->flags, &h->fd, &h->port);
  if (s) {
    http1_free(h);
    return s;
  }
  h->listener = listener_of(h->fd, on_connected, h);
  door_add(&h->door);
  if (o->tells_stalls) h->stall = http1_stall_new(h);
  *out = h;
  listener_begin(h->listener);
  return NULL;
}

int http1_port(const struct http1 *h) { return h->port; }

void http1_close(struct http1 *h, int64_t grace_ms) {
  if (!h) return;
  http1_stall_free(h->stall); /* it uses the listener */
  h->stall = NULL;
  pthread_mutex_lock(&h->lock);
  h->stop_at = clock_ns() + grace_ms * 1000000;
  pthread_mutex_unlock(&h->lock);
  rpc_loop_post(&h->stopping);
}

void http1_stop(struct http1 *h) {
  if (!h) return;
  pthread_mutex_lock(&h->lock);
  while (!h->deaf || h->alive) pthread_cond_wait(&h->news, &h->lock);
  pthread_mutex_unlock(&h->lock);
  door_remove(&h->door);
  rpc_loop_post(&h->ending);
  pthread_mutex_lock(&h->lock);
  while (!h->over) pthread_cond_wait(&h->news, &h->lock);
  pthread_mutex_unlock(&h->lock);
  http1_free(h);
}

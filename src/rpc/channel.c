/* The client half of the RPC layer: calls wait in their channel until there is a connection, then they are streams on
 * it. connect.c sees to connections.
 *
 * A call is in one place: in the channel's list (the channel's lock), in its connection's table (that one's lock), or
 * over. Whoever takes it out of the first or the second ends it, so it ends once. */
#include "rpc/channel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/text.h"
#include "rpc/connect.h"
#include "rpc/rpc_status.h"

struct rpc_pending {
  struct http2_stream stream;     /* its connection's lock */
  struct channel_waiting waiting; /* the channel's lock */
  struct rpc_event finished;
  struct rpc_timer timer;
  struct ref refs; /* the call's own, the timer's, and the handle's */
  struct rpc_channel *channel;
  struct http2 *conn; /* the channel's lock, until it is set */
  char *method;
  struct rpc_message *request;
  int64_t deadline;
  shoal_status error; /* instead of what the peer said */
  rpc_done done;
  void *arg;
};

static struct rpc_pending *of_stream(struct http2_stream *s) { return (struct rpc_pending *)s; }
static struct rpc_pending *of_waiting(struct channel_waiting *w) {
  return (struct rpc_pending *)((char *)w - offsetof(struct rpc_pending, waiting));
}

void rpc_pending_unref(struct rpc_pending *p) {
  if (!p || !ref_drop(&p->refs)) return;
  rpc_body_release(&p->stream.body);
  headers_release(&p->stream.headers);
  if (p->conn) http2_unref(p->conn);
  block_free(p->method);
  block_free(p);
}

static void on_finished(struct rpc_event *e) {
  struct rpc_pending *p = (struct rpc_pending *)((char *)e - offsetof(struct rpc_pending, finished));
  shoal_status s = p->error ? p->error : headers_status(&p->stream.headers);
  s = rpc_tls_explain(s, p->channel->tls != NULL);
  rpc_message_free(p->request);
  struct rpc_body body = {0};
  if (!s) {
    body = p->stream.body;
    p->stream.body = (struct rpc_body){0};
  }
  rpc_done done = p->done;
  void *arg = p->arg;
  rpc_pending_unref(p);
  done(arg, s, &body);
  rpc_body_release(&body);
}

/* It is in no list and no table any more. */
static void end(struct rpc_pending *p, shoal_status error) {
  p->error = error;
  if (p->deadline != DEADLINE_NEVER && rpc_timer_clear(&p->timer)) rpc_pending_unref(p);
  rpc_loop_post(&p->finished);
}

/* ---- what the connection and the channel tell ---- */

void channel_call_ended(struct http2 *conn, struct http2_stream *s) { end(of_stream(s), NULL); }

void channel_call_refused(struct http2 *conn, struct http2_stream *s, shoal_status why) {
  http2_reset(conn, s, NGHTTP2_CANCEL);
  end(of_stream(s), why);
}

void channel_call_lost(struct http2 *conn, struct http2_stream *s, shoal_status why) { end(of_stream(s), why); }

void channel_call_fail(struct channel_waiting *w, shoal_status why) { end(of_waiting(w), why); }

bool channel_call_send(struct rpc_channel *c, struct channel_waiting *w) {
  struct rpc_pending *p = of_waiting(w);
  struct http2 *conn = c->conn;
  struct fields f = {0};
  fields_add(&f, ":method", "POST", 4);
  fields_add(&f, ":scheme", c->tls ? "https" : "http", c->tls ? 5 : 4);
  fields_add(&f, ":path", p->method, strlen(p->method));
  fields_add(&f, ":authority", c->address, strlen(c->address));
  fields_add(&f, "te", "trailers", 8);
  fields_add(&f, "content-type", "application/grpc", 16);
  fields_add_timeout(&f, p->deadline);
  http2_lock(conn);
  bool open = http2_request(conn, &p->stream, &f, p->request);
  if (open) {
    p->conn = conn;
    http2_ref(conn);
    p->request = NULL;
    http2_flush(conn);
  }
  http2_unlock(conn);
  fields_release(&f);
  return open;
}

/* ---- calls ---- */

static void stop_call(struct rpc_pending *p, shoal_status why) {
  struct rpc_channel *c = p->channel;
  pthread_mutex_lock(&c->lock);
  bool waited = channel_forget(c, &p->waiting);
  struct http2 *conn = p->conn;
  pthread_mutex_unlock(&c->lock);
  if (waited) {
    end(p, why);
    return;
  }
  bool open = false;
  if (conn) {
    http2_lock(conn);
    open = p->stream.id != 0;
    if (open) {
      http2_reset(conn, &p->stream, NGHTTP2_CANCEL);
      end(p, why);
      http2_flush(conn);
    }
    http2_unlock(conn);
  }
  if (!open) shoal_status_free(why);
}

static void on_deadline(struct rpc_timer *t) {
  struct rpc_pending *p = (struct rpc_pending *)((char *)t - offsetof(struct rpc_pending, timer));
  stop_call(p, STATUS(SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded"));
  rpc_pending_unref(p);
}

void rpc_start(struct rpc_channel *c, const char *method, struct rpc_message *request, int64_t deadline, unsigned flags,
               rpc_done done, void *arg, struct rpc_pending **handle) {
  rpc_start_placed(c, method, request, deadline, flags, NULL, done, arg, handle);
}

void rpc_start_placed(struct rpc_channel *c, const char *method, struct rpc_message *request, int64_t deadline,
                      unsigned flags, rpc_place place, rpc_done done, void *arg, struct rpc_pending **handle) {
  struct rpc_pending *p = block_zalloc(sizeof *p);
  bool timed = deadline != DEADLINE_NEVER;
  ref_init(&p->refs, 1 + timed + (handle != NULL));
  headers_init(&p->stream.headers);
  p->stream.place = place;
  p->stream.place_arg = arg;
  p->waiting.patient = flags & RPC_WAIT_FOR_READY;
  p->finished.fn = on_finished;
  p->timer.fn = on_deadline;
  p->channel = c;
  p->method = block_strndup(method, strlen(method));
  p->request = request ? request : message_from_text(&(struct text){0});
  p->deadline = deadline;
  p->done = done;
  p->arg = arg;
  if (handle) *handle = p;
  pthread_mutex_lock(&c->lock);
  if (timed) rpc_timer_set(&p->timer, deadline);
  shoal_status unfit = rpc_message_check(p->request, "a request");
  if (unfit) end(p, unfit);
  else channel_enter(c, &p->waiting);
  pthread_mutex_unlock(&c->lock);
}

void rpc_cancel(struct rpc_pending *p, shoal_status why) {
  struct text message = {0};
  rpc_status_text(why, &message);
  stop_call(p, STATUS(shoal_status_code(why), "%s", text_cstr(&message)));
  text_release(&message);
  shoal_status_free(why);
}

void rpc_wait_init(struct rpc_wait *w) {
  latch_init(&w->ended, 1);
  w->body = (struct rpc_body){0};
}

void rpc_wait_done(void *wait, shoal_status s, struct rpc_body *body) {
  struct rpc_wait *w = wait;
  w->body = *body;
  *body = (struct rpc_body){0};
  latch_done(&w->ended, s);
}

shoal_status rpc_wait_finish(struct rpc_wait *w, struct rpc_body *body) {
  shoal_status s = latch_finish(&w->ended);
  if (body && !s) *body = w->body;
  else rpc_body_release(&w->body);
  return s;
}

shoal_status rpc_call_wait(struct rpc_channel *c, const char *method, struct rpc_message *request, int64_t deadline,
                           unsigned flags, struct rpc_body *body) {
  struct rpc_wait w;
  rpc_wait_init(&w);
  rpc_start(c, method, request, deadline, flags, rpc_wait_done, &w, NULL);
  rpc_loop_hand_over();
  return rpc_wait_finish(&w, body);
}

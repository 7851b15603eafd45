/* The client half of the RPC layer: a call is one batch, its completion one event.
 *
 * The channel's target has no subchannel sharing with others of the process (a pool of its own), so that a connection
 * stuck towards one peer never delays another user's. */
#include "rpc/channel.h"

#include <grpc/grpc_security.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/handover.h"
#include "base/mem.h"
#include "base/text.h"
#include "rpc/loop.h"
#include "rpc/rpc_status.h"

struct rpc_channel {
  atomic_int refs;
  grpc_channel *channel;
  char *address;
  bool tls;
};

struct rpc_pending {
  struct rpc_event e;
  atomic_int refs; /* the batch's, and the handle's */
  struct rpc_channel *channel;
  grpc_call *call;
  grpc_metadata_array headers, trailers;
  grpc_byte_buffer *request, *response;
  grpc_status_code code;
  grpc_slice details;
  rpc_done done;
  void *arg;
};

static grpc_arg int_arg(const char *key, int v) {
  return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = v};
}

struct rpc_channel *rpc_channel_new(const char *address, const struct rpc_tls *tls, const char *name) {
  rpc_loop_acquire();
  struct rpc_channel *c = mem_zalloc(1, sizeof *c);
  atomic_init(&c->refs, 1);
  c->address = mem_strdup(address);
  c->tls = tls != NULL;
  grpc_arg args[16] = {
      int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, INT_MAX),
      int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, INT_MAX),
      int_arg(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20),
      int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20),
      int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
      int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000), /* in fact: how long one attempt may take */
      int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000),
      int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
      int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
      int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
      int_arg(GRPC_ARG_MAX_METADATA_SIZE, 16384),
      int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
      int_arg(GRPC_ARG_ENABLE_CENSUS, 0),
      int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
  };
  size_t n = 14;
  if (tls && name)
    args[n++] = (grpc_arg){.type = GRPC_ARG_STRING,
                           .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                           .value.string = (char *)(uintptr_t)name};
  grpc_channel_args channel_args = {n, args};
  char *target = mem_printf("dns:///%s", address);
  grpc_channel_credentials *creds = rpc_tls_channel(tls);
  if (creds) {
    c->channel = grpc_channel_create(target, creds, &channel_args);
    grpc_channel_credentials_release(creds);
  } else {
    c->channel = grpc_lame_client_channel_create(target, GRPC_STATUS_UNAUTHENTICATED,
                                                 "the certificates given with --tls_... cannot be used");
  }
  free(target);
  return c;
}

struct rpc_channel *rpc_channel_ref(struct rpc_channel *c) {
  atomic_fetch_add(&c->refs, 1);
  return c;
}

void rpc_channel_unref(struct rpc_channel *c) {
  if (!c || atomic_fetch_sub(&c->refs, 1) != 1) return;
  grpc_channel_destroy(c->channel);
  free(c->address);
  free(c);
  rpc_loop_release();
}

const char *rpc_channel_address(const struct rpc_channel *c) { return c->address; }

void rpc_pending_unref(struct rpc_pending *p) {
  if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
  grpc_call_unref(p->call);
  free(p);
}

static void finish(struct rpc_event *e, bool ok) {
  struct rpc_pending *p = (struct rpc_pending *)e;
  struct rpc_channel *channel = p->channel;
  shoal_status s = rpc_tls_explain(rpc_status_from(p->code, p->details, &p->trailers), channel->tls);
  struct rpc_body body = rpc_body_of(p->response);
  grpc_slice_unref(p->details);
  grpc_metadata_array_destroy(&p->headers);
  grpc_metadata_array_destroy(&p->trailers);
  grpc_byte_buffer_destroy(p->request);
  rpc_done done = p->done;
  void *arg = p->arg;
  rpc_pending_unref(p);
  done(arg, s, &body);
  rpc_body_release(&body);
}

void rpc_start(struct rpc_channel *c, const char *method, grpc_byte_buffer *request, int64_t deadline, unsigned flags,
               rpc_done done, void *arg, struct rpc_pending **handle) {
  struct rpc_pending *p = mem_zalloc(1, sizeof *p);
  p->e.fn = finish;
  p->channel = c;
  p->done = done;
  p->arg = arg;
  atomic_init(&p->refs, handle ? 2 : 1);
  p->request = request ? request : grpc_raw_byte_buffer_create(NULL, 0);
  grpc_metadata_array_init(&p->headers);
  grpc_metadata_array_init(&p->trailers);
  grpc_slice name = grpc_slice_from_copied_string(method);
  p->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, rpc_loop_queue(), name, NULL,
                                     rpc_deadline(deadline), NULL);
  grpc_slice_unref(name);
  if (handle) *handle = p;
  grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
                    {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                    {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
  ops[0].flags = flags & RPC_WAIT_FOR_READY
                     ? GRPC_INITIAL_METADATA_WAIT_FOR_READY | GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET
                     : GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
  ops[1].data.send_message.send_message = p->request;
  ops[3].data.recv_initial_metadata.recv_initial_metadata = &p->headers;
  ops[4].data.recv_message.recv_message = &p->response;
  ops[5].data.recv_status_on_client.trailing_metadata = &p->trailers;
  ops[5].data.recv_status_on_client.status = &p->code;
  ops[5].data.recv_status_on_client.status_details = &p->details;
  grpc_call *call = p->call;
  handover_give(&p->e);
  grpc_call_error err = grpc_call_start_batch(call, ops, 6, &p->e, NULL);
  MUST(err == GRPC_CALL_OK);
}

void rpc_cancel(struct rpc_pending *p, shoal_status why) {
  struct text message = {0};
  rpc_status_text(why, &message);
  grpc_call_cancel_with_status(p->call, (grpc_status_code)shoal_status_code(why), text_cstr(&message), NULL);
  text_release(&message);
  shoal_status_free(why);
}

struct waiter {
  sem_t done;
  shoal_status s;
  struct rpc_body body;
};

static void wake(void *arg, shoal_status s, struct rpc_body *body) {
  struct waiter *w = arg;
  w->s = s;
  w->body = *body;
  *body = (struct rpc_body){0};
  sem_post(&w->done);
}

shoal_status rpc_call_wait(struct rpc_channel *c, const char *method, grpc_byte_buffer *request, int64_t deadline,
                           unsigned flags, struct rpc_body *body) {
  struct waiter w = {0};
  sem_init(&w.done, 0, 0);
  rpc_start(c, method, request, deadline, flags, wake, &w, NULL);
  rpc_loop_hand_over();
  while (sem_wait(&w.done) != 0) continue;
  sem_destroy(&w.done);
  if (body && !w.s) *body = w.body;
  else rpc_body_release(&w.body);
  return w.s;
}

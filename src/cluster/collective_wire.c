/* A message of a collective is a value of its step: bytes under a key that sender and receiver make of the same parts,
 *
 *   SENDER;INCARNATION;RECEIVER;GROUP:INSTANCE:FRAME:ITERATION:LABEL;0:0      LABEL: numbers (schedule.h)
 *
 * of which the fourth is TensorFlow's name of the buffer. A send puts a reference to the sender's memory there and ends
 * when whoever received it lets go. One that is given up leaves it behind: it goes with the step, and the memory with
 * it.
 *
 * Between hosts the bytes of a large message go where they are wanted as they come (struct fast_sink), merged part by
 * part by the thread that reads them. Those that come whole, in memory of their own, are merged on the step's own pool:
 * they arrive on threads of the network. So does what follows a large message in the program, which may take long. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/denormals.h"
#include "cluster/collectives.h"
#include "cluster/request_ids.h"
#include "cluster/worker.h"
#include "proto/any.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"

enum { LARGE = 32 << 10 };

static char *name_of(const struct collective_id *id, const int *label) {
  if (label[0] == LABEL_PAIR)
    return mem_printf("%d:%d:%" PRIu64 ":%" PRIu64 "%d%d", id->group_key, id->instance_key, id->frame, id->iter,
                      label[1], label[2]);
  return mem_printf("%d:%d:%" PRIu64 ":%" PRIu64 ":%d:%d:%d", id->group_key, id->instance_key, id->frame, id->iter,
                    label[0], label[1], label[2]);
}

char *collective_wire_key(const struct collective_group *g, const struct collective_id *id, int from, int to,
                          const int *label) {
  const struct collective_place *a = &g->places[from], *b = &g->places[to];
  char *name = name_of(id, label), *key = rendezvous_key_make(a->device, a->incarnation, b->device, name, 0, 0);
  free(name);
  return key;
}

static char *key_of(const struct collective_wire *w, const struct collective_id *id, int from, int to,
                    const int *label) {
  return collective_wire_key(w->group, id, from, to, label);
}

/* ---- sending ---- */

struct posted {
  struct collective_transfer *transfer;
  struct cancel *cancel;
  struct cancel_hook hook;
  struct buffer *owner;
  struct pool *pool;
  atomic_bool ended; /* it is decided how */
};

static void posted_free(struct posted *p) {
  buffer_unref(p->owner);
  free(p);
}

static void was_taken(void *arg) {
  struct posted *p = arg;
  cancel_deregister(p->cancel, &p->hook);
  p->transfer->done(p->transfer, NULL);
  posted_free(p);
}

/* The last who could read it has let go: a connection with its lock held, for one, and what ends now may send. */
static void released(struct buffer *b) {
  struct posted *p = b->owner;
  if (atomic_exchange(&p->ended, true)) posted_free(p);
  else pool_submit(p->pool, was_taken, p);
}

static void given_up(void *arg) {
  struct posted *p = arg;
  struct collective_transfer *x = p->transfer; /* once it is decided p may go at any moment */
  struct cancel *c = p->cancel;
  if (!atomic_exchange(&p->ended, true)) x->done(x, cancel_reason(c));
}

static void wire_send(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *x) {
  struct collective_wire *w = (struct collective_wire *)t;
  struct posted *p = mem_zalloc(1, sizeof *p);
  *p = (struct posted){.transfer = x, .cancel = w->cancel, .owner = buffer_ref(x->owner), .pool = w->step->inter};
  struct tensor value = {.buffer = buffer_wrap(x->data, x->bytes, NULL, released, p),
                         .data = x->data,
                         .dtype = SHOAL_UINT8,
                         .rank = 1,
                         .n = (int64_t)x->bytes,
                         .dims = {(int64_t)x->bytes}};
  struct buffer *own = buffer_ref(value.buffer); /* it does not end before it has begun */
  if (!cancel_register(w->cancel, &p->hook, given_up, p)) {
    tensor_release(&value);
    given_up(p);
  } else {
    char *key = key_of(w, id, w->rank, x->peer, x->label);
    shoal_status s = rendezvous_send(w->rendezvous, key, rendezvous_hash(key), &value, false);
    free(key);
    if (s && !atomic_exchange(&p->ended, true)) {
      cancel_deregister(w->cancel, &p->hook);
      x->done(x, s);
    } else {
      shoal_status_free(s);
    }
  }
  buffer_unref(own);
}

/* ---- receiving ---- */

struct received {
  struct fast_sink sink; /* first */
  struct collective_transfer *transfer;
  struct collective_wire *wire;
  struct tensor value;
  struct cancellable call; /* RecvBuf */
  struct rpc_body body;
};

static void end(struct received *r, shoal_status s) {
  struct collective_transfer *x = r->transfer;
  atomic_store(&r->wire->waits_for, -1);
  free(r);
  x->done(x, s);
}

static shoal_status wrong_size(const struct received *r, size_t bytes) {
  return INVALID("%s sends %zu bytes where %zu were expected: members of a collective op differ in shape",
                 r->wire->group->places[r->transfer->peer].device, bytes, r->transfer->bytes);
}

/* Elements in a message stand anywhere; what computes wants them where their type stands. */
static void take_unaligned(struct collective_transfer *x, const char *data, size_t at, size_t bytes) {
  _Alignas(64) char piece[4096];
  for (size_t done = 0, n; done < bytes; done += n) {
    n = MIN(bytes - done, sizeof piece);
    memcpy(piece, data + done, n);
    x->take(x, piece, at + done, n);
  }
}

static void put(struct collective_transfer *x, const void *data, size_t at, size_t bytes) {
  if (!bytes) return;
  if (!x->take) memcpy((char *)x->data + at, data, bytes);
  else if ((uintptr_t)data % 16) take_unaligned(x, data, at, bytes);
  else x->take(x, data, at, bytes);
}

static void take_part(struct fast_sink *s, const void *part, size_t at, size_t bytes) {
  struct collective_transfer *x = ((struct received *)s)->transfer;
  uint64_t control = denormals_flush(); /* as kernels do, and pools */
  x->take(x, part, at, bytes);
  denormals_restore(control);
}

static void take_value(void *arg) {
  struct received *r = arg;
  if (r->sink.filled) {
    end(r, NULL);
    return;
  }
  put(r->transfer, r->value.data, 0, r->transfer->bytes);
  tensor_release(&r->value);
  end(r, NULL);
}

/* Whoever knows the key can send anything under it: only bytes in this host's memory are read as they are. */
static bool is_message(const struct tensor *value) {
  return !tensor_valid(value) || (value->dtype == SHOAL_UINT8 && !value->buffer->device);
}

static void value_came(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct received *r = arg;
  size_t bytes = s || is_dead || !tensor_valid(value) ? 0 : tensor_bytes(value);
  if (r->sink.filled) bytes = r->sink.bytes;
  if (!s && !is_message(value))
    s = INVALID("%s sends a value that is no message of a collective",
                r->wire->group->places[r->transfer->peer].device);
  if (!s && (is_dead || bytes != r->transfer->bytes)) s = wrong_size(r, bytes);
  if (s) {
    tensor_release(value);
    end(r, s);
    return;
  }
  tensor_move(&r->value, value);
  if (bytes > LARGE && !pool_is_mine(r->wire->step->inter)) pool_submit(r->wire->step->inter, take_value, r);
  else take_value(r);
}

/* ---- receiving from TensorFlow's tasks ---- */

/* RecvBufRespExtra in an Any: the pieces of the buffer, in order. */
static shoal_status take_pieces(struct received *r, struct wire any, bool count) {
  struct wire extra, pieces;
  size_t at = 0, whole = r->transfer->take ? 64 : 1; /* merges are of whole elements */
  if (!find_Any_value(any, &extra)) return INTERNAL("An answer to RecvBuf has no content");
  pieces = extra;
  for (struct wire_field f; wire_next(&pieces, &f) == WIRE_FIELD;) {
    if (f.tag != RecvBufRespExtra_tensor_content) continue;
    if (at % whole && count) return INTERNAL("An answer to RecvBuf has its content in odd pieces");
    if (!count) put(r->transfer, f.data, at, f.size);
    at += f.size;
  }
  return count && at != r->transfer->bytes ? wrong_size(r, at) : NULL;
}

static void take_answer(void *arg) {
  struct received *r = arg;
  const void *data;
  size_t size;
  struct wire options = wire_from("", 0);
  shoal_status s = rpc_body_flat(&r->body, &data, &size);
  if (!s && !find_RecvBufResponse_transport_options(wire_from(data, size), &options))
    s = INTERNAL("An answer to RecvBuf has no content");
  for (int pass = 0; pass < 2 && !s; pass++) s = take_pieces(r, options, pass == 0);
  rpc_body_release(&r->body);
  end(r, s);
}

static void answer_came(void *arg, shoal_status s, struct rpc_body *body) {
  struct received *r = arg;
  cancellable_end(&r->call);
  if (s) {
    end(r, s);
    return;
  }
  r->body = *body;
  *body = (struct rpc_body){0};
  if (r->transfer->bytes > LARGE) pool_submit(r->wire->step->inter, take_answer, r);
  else take_answer(r);
}

static void ask_for_buffer(struct received *r, const struct collective_id *id) {
  static const char why[] = "the collective that waited for this has ended";
  struct collective_wire *w = r->wire;
  struct collective_transfer *x = r->transfer;
  const struct collective_place *from = &w->group->places[x->peer];
  const struct step_names *names = &w->session->names;
  struct peer *peer = names->find(names->arg, from->device, device_task_length(from->device));
  if (!peer) {
    end(r, INVALID("%s, a member of collective group %d, is not in this task's cluster", from->device, id->group_key));
    return;
  }
  char *name = name_of(id, x->label);
  struct text m = {0};
  put_RecvBufRequest_step_id(&m, w->step_id);
  put_RecvBufRequest_buf_rendezvous_key(&m, name);
  put_RecvBufRequest_num_bytes(&m, (int64_t)x->bytes);
  put_RecvBufRequest_client_locality_n(&m, "", 0);
  put_RecvBufRequest_server_locality_n(&m, "", 0);
  put_RecvBufRequest_src_device(&m, from->device);
  put_RecvBufRequest_dst_device(&m, w->group->places[w->rank].device);
  put_RecvBufRequest_request_id(&m, request_id_new());
  put_RecvBufRequest_src_incarnation(&m, from->incarnation);
  char *what = mem_printf("collective buffer %s", name);
  struct task_question q = {.peer = peer,
                            .method = "/tensorflow.WorkerService/RecvBuf",
                            .request = message_from_text(&m),
                            .deadline = w->step->deadline,
                            .step = w->step->id,
                            .what = what,
                            .done = answer_came,
                            .arg = r};
  struct cancel *cancel = w->cancel; /* the end of the call may be the end of w */
  if (!cancellable_start(&r->call, cancel, why, &q)) end(r, cancel_reason(cancel));
  free(what);
  free(name);
}

static void recv_poured(struct received *r, const char *key) {
  struct collective_wire *w = r->wire;
  struct collective_transfer *x = r->transfer;
  r->sink = (struct fast_sink){.bytes = x->bytes, .to = x->data, .take = x->take ? take_part : NULL};
  step_rendezvous_recv_poured(w->rendezvous, key, &r->sink, w->cancel, value_came, r);
}

static void wire_recv(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *x) {
  struct collective_wire *w = (struct collective_wire *)t;
  struct received *r = mem_zalloc(1, sizeof *r);
  r->transfer = x;
  r->wire = w;
  atomic_store(&w->waits_for, x->peer);
  bool fetched = w->step_id == w->step->id; /* step 0 is nobody's, who could fetch for it */
  if (!w->group->places[x->peer].is_ours || (!fetched && w->group->tasks[x->peer] != w->group->tasks[w->rank])) {
    ask_for_buffer(r, id);
    return;
  }
  char *key = key_of(w, id, x->peer, w->rank, x->label);
  if (!fetched) step_rendezvous_recv_local(w->rendezvous, key, w->cancel, value_came, r);
  else if (x->bytes > LARGE) recv_poured(r, key);
  else rendezvous_recv(w->rendezvous, key, rendezvous_hash(key), w->cancel, value_came, r);
  free(key);
}

void collective_wire_watch(struct collective_wire *w, const struct collective_id *id, int rank, struct cancel *cancel,
                           rendezvous_done done, void *arg) {
  static const int nothing[3] = {LABEL_PAIR - 1, 0, 0};
  char *key = key_of(w, id, rank, w->rank, nothing);
  rendezvous_recv(w->rendezvous, key, rendezvous_hash(key), cancel, done, arg);
  free(key);
}

static void wire_abandon(struct collective_transport *t, const struct collective_id *id, shoal_status why) {
  cancel_start(((struct collective_wire *)t)->cancel, status_copy(why));
}

void collective_wire_init(struct collective_wire *w) {
  static const struct collective_transport_ops ops = {"rendezvous", wire_send, wire_recv, wire_abandon};
  w->head.ops = &ops;
  atomic_init(&w->waits_for, -1);
}

/* The answers of the fast path; see fast.h for what travels.
 *
 * Large tensors are read by the receiver out of the sender's memory (process_vm_readv), those of 1 KB to 2 MB are put
 * into memory that both share, where the receiver uses them: one copy either way. Where the system forbids it the
 * receiver says RESEND once, and all goes through the socket from then on.
 *
 * What is lent or lies in shared memory is held until the receiver says DONE, or its connection is closed: an answer
 * that comes later holds nothing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/block.h"
#include "base/mem.h"
#include "rpc/fast/fast_sender.h"
#include "rpc/limits.h"
#include "tensor/tensor_proto.h"

enum { REMOTE_FROM = 64 << 10 };

bool sender_hold(struct sender *c, struct held *h) {
  if (c->closed) return false;
  struct held **at = &c->held[fast_bucket(h->id)];
  h->next = *at;
  *at = h;
  if (h->kind == HELD_LENT) atomic_fetch_add(&c->conn.lent, 1);
  return true;
}

static void held_free(struct held *h) {
  tensor_release(&h->value);
  block_free(h);
}

/* Takes a block for h and keeps h for the receiver; NULL when there is none. Call with the lock held. */
static void *take_block(struct sender *c, struct held *h) {
  if (!c->arena && !c->no_shared) {
    c->arena = fast_arena_new();
    c->no_shared = !c->arena;
  }
  if (c->no_shared || c->closed || !atomic_load(&c->conn.is_open)) return NULL;
  void *to = fast_arena_take(c->arena, h->bytes, &h->offset);
  if (to) sender_hold(c, h);
  return to;
}

/* By shared memory; false when that cannot be. head has t's dimensions, and room. */
static bool send_shared(struct sender *c, struct fast_frame f, uint64_t *head, struct tensor *t) {
  struct held *h = block_alloc(sizeof *h);
  *h = (struct held){.id = f.id, .flags = f.flags, .kind = HELD_BLOCK, .bytes = f.size};
  h->value = *t; /* what it is, not whose: whoever gave it has it back now */
  h->value.buffer = NULL;
  h->value.data = NULL;
  pthread_mutex_lock(&c->lock);
  void *to = take_block(c, h);
  uint64_t offset = h->offset;
  pthread_mutex_unlock(&c->lock);
  if (!to) {
    held_free(h);
    return false;
  }
  /* A peer that lets go of it before it was told where it is spoils its own values alone. */
  memcpy(to, t->data, f.size);
  fast_count(&fast_sent, f.size);
  memcpy(head + t->rank, fast_arena_place(c->arena), sizeof(struct fast_place));
  head[t->rank + sizeof(struct fast_place) / 8] = offset;
  f.kind = FAST_SHARED;
  f.head += sizeof(struct fast_place) + 8;
  fast_conn_send(&c->conn, &f, head, NULL, NULL);
  return true;
}

void sender_value(struct sender *c, uint64_t id, uint8_t flags, struct tensor *t, bool may_remote) {
  struct fast_frame f = {.flags = flags, .id = id, .dtype = t->dtype, .rank = t->rank};
  uint64_t head[SHOAL_MAX_RANK + 5];
  for (int i = 0; i < t->rank; i++) head[i] = (uint64_t)t->dims[i];
  f.size = tensor_bytes(t);
  f.head = (uint32_t)t->rank * 8;
  if (may_remote && f.size >= SHARED_FROM && f.size <= SHARED_TO && send_shared(c, f, head, t)) return;
  if (may_remote && f.size >= REMOTE_FROM) {
    struct held *h = block_alloc(sizeof *h);
    *h = (struct held){.id = id, .flags = flags};
    tensor_ref(&h->value, t);
    pthread_mutex_lock(&c->lock);
    bool allowed = !c->no_remote && atomic_load(&c->conn.lent) < rpc_limit(RPC_MAX_FAST_REQUESTS) && sender_hold(c, h);
    pthread_mutex_unlock(&c->lock);
    if (allowed) {
      f.kind = FAST_REMOTE;
      fast_count(&fast_sent, f.size);
      head[t->rank] = (uint64_t)getpid();
      head[t->rank + 1] = (uint64_t)(uintptr_t)t->data;
      f.head += 16;
      fast_conn_send(&c->conn, &f, head, NULL, NULL);
      return;
    }
    held_free(h);
  }
  f.kind = FAST_VALUE;
  fast_conn_send(&c->conn, &f, head, f.size ? t->buffer : NULL, t->data);
}

/* Bytes in a tensor, as bodies are sent. */
static shoal_status bytes_tensor(struct text *bytes, struct tensor *out) {
  shoal_status s = tensor_new_dims(out, SHOAL_UINT8, 1, (const int64_t[]){(int64_t)bytes->n});
  if (!s && bytes->n) memcpy(out->data, bytes->at, bytes->n);
  return s;
}

/* Strings, resources and variants, as a TensorProto in a buffer of bytes. */
static shoal_status encode(const struct tensor *t, struct tensor *out) {
  struct text bytes = {0};
  TRY(tensor_proto_encode(t, &bytes));
  shoal_status s = bytes_tensor(&bytes, out);
  text_release(&bytes);
  return s;
}

void sender_error(struct sender *c, uint64_t id, shoal_status s) {
  const char *text = shoal_status_message(s);
  struct fast_frame f = {.kind = FAST_ERROR, .id = id, .dtype = (uint8_t)shoal_status_code(s)};
  f.flags = (uint8_t)((status_is_derived(s) ? FAST_DERIVED : 0) | (status_is_restarted(s) ? FAST_RESTARTED : 0));
  f.head = (uint32_t)MIN(strlen(text), 65536);
  fast_conn_send(&c->conn, &f, text, NULL, NULL);
  shoal_status_free(s);
}

void fast_answer(struct fast_request *r, shoal_status s, struct tensor *value, bool is_dead) {
  struct sender *c = r->conn;
  request_begin_answer(r);
  if (!s && !is_dead && !dtype_plain((shoal_dtype)value->dtype)) {
    struct tensor bytes;
    s = encode(value, &bytes);
    if (!s) {
      sender_value(c, r->id, FAST_ENCODED, &bytes, false);
      tensor_release(&bytes);
    }
  } else if (!s && is_dead) {
    fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_VALUE, .flags = FAST_DEAD, .id = r->id}, NULL, NULL,
                   NULL);
  } else if (!s && value->buffer && value->buffer->device) {
    sender_card_value(c, r->id, r->by_window, value);
  } else if (!s) {
    sender_value(c, r->id, 0, value, true);
  }
  if (s) sender_error(c, r->id, s);
  if (value) tensor_release(value);
  request_unref(r);
}

void fast_reply(struct fast_request *r, shoal_status s, struct text *bytes) {
  struct tensor t = tensor_none();
  request_begin_answer(r);
  if (!s) s = bytes_tensor(bytes, &t);
  struct fast_frame f = {.kind = FAST_RESULT, .id = r->id, .size = bytes->n};
  if (s) sender_error(r->conn, r->id, s);
  else fast_conn_send(&r->conn->conn, &f, NULL, bytes->n ? t.buffer : NULL, t.data);
  tensor_release(&t);
  text_release(bytes);
  request_unref(r);
}

/* ---- what is held ---- */

static struct held *take_held(struct sender *c, uint64_t id) {
  pthread_mutex_lock(&c->lock);
  struct held **at = &c->held[fast_bucket(id)];
  while (*at && (*at)->id != id) at = &(*at)->next;
  struct held *h = *at;
  if (h) {
    *at = h->next;
    if (h->kind == HELD_LENT) atomic_fetch_sub(&c->conn.lent, 1);
  }
  pthread_mutex_unlock(&c->lock);
  return h;
}

void sender_let_go(struct sender *c, uint64_t id, bool again) {
  struct held *h = take_held(c, id);
  shoal_status s = NULL;
  if (!h) return;
  if (h->kind == HELD_WINDOW) {
    if (again) {
      sender_card_again(c, h);
    } else {
      pthread_mutex_lock(&c->lock);
      fast_windows_give(&c->windows, h->window);
      pthread_mutex_unlock(&c->lock);
    }
    block_free(h);
    return;
  }
  /* What was put into a block that the receiver cannot get at is copied out of it; memory for it is not taken under the
   * lock. */
  struct tensor was = h->value;
  bool shared = h->kind == HELD_BLOCK, back = shared && again;
  if (back) h->value = tensor_none();
  if (back) s = tensor_new_dims(&h->value, (shoal_dtype)was.dtype, was.rank, was.dims);
  pthread_mutex_lock(&c->lock);
  if (back && !s) memcpy(h->value.data, fast_arena_at(c->arena, h->offset), h->bytes);
  if (shared) fast_arena_give(c->arena, h->bytes, h->offset);
  if (back) c->no_shared = true;
  if (!shared && again) c->no_remote = true;
  pthread_mutex_unlock(&c->lock);
  if (s) sender_error(c, h->id, s);
  else if (again) sender_value(c, h->id, h->flags, &h->value, shared);
  held_free(h);
}

void sender_drop_held(struct sender *c) {
  for (int b = 0; b < FAST_BUCKETS; b++) {
    pthread_mutex_lock(&c->lock);
    c->closed = true;
    struct held *held = c->held[b];
    c->held[b] = NULL;
    pthread_mutex_unlock(&c->lock);
    for (struct held *next; held; held = next) {
      next = held->next;
      held_free(held);
    }
  }
}

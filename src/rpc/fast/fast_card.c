/* The answers of the fast path whose values are in the memory of a card; see fast_window.h.
 *
 * Nobody waits here: the card is given the copy, into a window or to the host, and the frame leaves when it says that
 * it is done. Meanwhile the connection is held, and with it the windows. */
#include "base/block.h"
#include "device/gate.h"
#include "rpc/fast/fast_sender.h"

struct card_answer { /* a value on its way out of a card */
  struct rpc_event again; /* begins it anew */
  struct sender *conn;
  uint64_t id;
  struct tensor from, to; /* from: a reference, but for a part of a window */
  int window;             /* -1: none */
  uint64_t offset;
};

static struct card_answer *answer_new(struct sender *c, uint64_t id) {
  struct card_answer *l = block_zalloc(sizeof *l);
  fast_conn_ref(&c->conn);
  *l = (struct card_answer){.conn = c, .id = id, .window = -1};
  return l;
}

static void answer_free(struct card_answer *l) {
  fast_conn_unref(&l->conn->conn);
  block_free(l);
}

static void give_part(struct sender *c, int window) {
  pthread_mutex_lock(&c->lock);
  fast_windows_give(&c->windows, window);
  pthread_mutex_unlock(&c->lock);
}

/* ---- by way of the host ---- */

static void came_to_host(void *arg, shoal_status s) {
  struct card_answer *l = arg;
  if (s) sender_error(l->conn, l->id, s);
  else sender_value(l->conn, l->id, 0, &l->to, true);
  tensor_release(&l->to);
  if (l->window >= 0) give_part(l->conn, l->window);
  else tensor_release(&l->from);
  answer_free(l);
}

static void by_host(struct card_answer *l) {
  struct device *d = l->from.buffer->device;
  device_gate_enter(d->gate);
  d->type->ops->to_host(d, &l->from, &l->to, came_to_host, l);
  device_gate_leave(d->gate);
}

/* ---- by a window ---- */

/* The card has copied the value into its part: the receiver is told where that is. */
static void came_to_window(void *arg, shoal_status s) {
  struct card_answer *l = arg;
  struct sender *c = l->conn;
  struct tensor t = l->from;
  struct fast_window_place place;
  struct held *h = block_alloc(sizeof *h);
  *h = (struct held){
      .id = l->id, .kind = HELD_WINDOW, .window = l->window, .offset = l->offset, .bytes = tensor_bytes(&t)};
  h->value = t; /* what it is, not whose */
  h->value.buffer = NULL;
  h->value.data = NULL;
  pthread_mutex_lock(&c->lock);
  const struct fast_window *w = &c->windows.at[l->window];
  place = (struct fast_window_place){w->handle, w->size, l->offset};
  bool kept = !s && sender_hold(c, h);
  if (!kept) fast_windows_give(&c->windows, l->window);
  pthread_mutex_unlock(&c->lock);
  if (!kept) block_free(h);
  if (kept) {
    struct fast_frame f = {
        .kind = FAST_WINDOW, .id = l->id, .dtype = t.dtype, .rank = t.rank, .size = tensor_bytes(&t)};
    uint64_t head[SHOAL_MAX_RANK + sizeof place / 8];
    for (int i = 0; i < t.rank; i++) head[i] = (uint64_t)t.dims[i];
    memcpy(head + t.rank, &place, sizeof place);
    f.head = (uint32_t)(t.rank * 8 + sizeof place);
    fast_count(&fast_sent, f.size);
    fast_conn_send(&c->conn, &f, head, NULL, NULL);
  } else if (s) {
    sender_error(c, l->id, s);
  }
  tensor_release(&l->from);
  answer_free(l);
}

/* One more window of the size that fast_windows_more said, made without the lock; false: there is none to be had. */
static bool add_window(struct sender *c, struct device *d, size_t size) {
  struct fast_window w = {.device = d, .size = size};
  shoal_status s = d->type->ops->window_new(d, "values for other tasks", size, &w.memory, &w.handle);
  bool made = !s;
  shoal_status_free(s);
  if (!made) w.memory = tensor_none();
  pthread_mutex_lock(&c->lock);
  bool added = made && c->windows.n < MOST_WINDOWS;
  if (added) c->windows.at[c->windows.n++] = w;
  c->no_windows |= !made;
  pthread_mutex_unlock(&c->lock);
  if (!added) fast_window_release(&w);
  return added;
}

static bool take_part(struct card_answer *l) {
  struct sender *c = l->conn;
  struct device *d = l->from.buffer->device;
  size_t bytes = tensor_bytes(&l->from), more = 0;
  for (int tries = 0; tries < 2; tries++) {
    pthread_mutex_lock(&c->lock);
    bool can = !c->no_windows && !c->closed;
    l->window = can ? fast_windows_take(&c->windows, d, bytes, &l->offset) : -1;
    more = can && l->window < 0 && !tries ? fast_windows_more(&c->windows, d, bytes) : 0;
    pthread_mutex_unlock(&c->lock);
    if (l->window >= 0) return true;
    if (!more || !add_window(c, d, more)) return false;
  }
  return false;
}

static void by_window(struct card_answer *l) {
  struct device *d = l->from.buffer->device;
  pthread_mutex_lock(&l->conn->lock);
  struct tensor window = l->conn->windows.at[l->window].memory; /* stays: the connection is held */
  pthread_mutex_unlock(&l->conn->lock);
  device_gate_enter(d->gate);
  d->type->ops->copy(d, &l->from, &window, (size_t)l->offset);
  d->type->ops->when_done(d, came_to_window, l);
  device_gate_leave(d->gate);
}

void sender_card_value(struct sender *c, uint64_t id, bool by_window_, struct tensor *value) {
  struct card_answer *l = answer_new(c, id);
  const struct device_ops *ops = value->buffer->device->type->ops;
  tensor_move(&l->from, value);
  *value = tensor_none();
  bool large = tensor_bytes(&l->from) >= WINDOW_FROM,
       checked = l->from.dtype == SHOAL_BOOL; /* the host looks at those */
  if (by_window_ && ops->window_new && large && !checked && take_part(l)) by_window(l);
  else by_host(l);
}

static void begin_again(struct rpc_event *e) { by_host((struct card_answer *)e); }

/* The leader reads the frame that asks for this, and may not wait for the card's gate, nor for pinned memory. */
void sender_card_again(struct sender *c, const struct held *h) {
  struct card_answer *l = answer_new(c, h->id);
  l->again = (struct rpc_event){.fn = begin_again, .kind = RPC_EVENT_NEWS};
  l->window = h->window;
  pthread_mutex_lock(&c->lock);
  c->no_windows = true;
  l->from = fast_window_part(&c->windows.at[h->window].memory, h->offset, &h->value);
  pthread_mutex_unlock(&c->lock);
  rpc_loop_post(&l->again);
}

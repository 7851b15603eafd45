/* The soft device's memory.
 *
 * A buffer of the device has a block: host memory behind an address that is not the host's, and the marks of the work
 * that uses it. The marks are the block's and outlive the buffer: when the last reference goes while work is still
 * queued, nobody waits; the block is kept with its marks, and whoever gets it next writes after them, on whatever
 * stream. So queued work may have an address and no reference, as a card's kernels do. What goes back to the host is
 * memory that no queued work uses. */
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/ref.h"
#include "device/memory.h"
#include "device/soft/soft.h"

enum { AWAY_BIT = 55, KEPT_MOST = 64 << 20 };
#define AWAY ((uintptr_t)1 << AWAY_BIT)

static void *away(const void *data) { return (void *)((uintptr_t)data | AWAY); }
static void *back(const void *data) { return (void *)((uintptr_t)data & ~AWAY); }

/* ---- events ---- */

struct soft_event {
  struct ref refs;
  pthread_mutex_t lock;
  pthread_cond_t set;
  atomic_bool is_set; /* set under the lock */
};

static struct soft_event *event_new(void) {
  struct soft_event *e = mem_zalloc(1, sizeof *e);
  ref_init(&e->refs, 1);
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->set, NULL);
  return e;
}

static struct soft_event *event_ref(struct soft_event *e) {
  if (e) ref_take(&e->refs);
  return e;
}

static void event_unref(struct soft_event *e) {
  if (!e || !ref_drop(&e->refs)) return;
  pthread_mutex_destroy(&e->lock);
  pthread_cond_destroy(&e->set);
  free(e);
}

static void event_set(struct soft_event *e) {
  pthread_mutex_lock(&e->lock);
  atomic_store(&e->is_set, true);
  pthread_cond_broadcast(&e->set);
  pthread_mutex_unlock(&e->lock);
}

static void event_wait(struct soft_event *e) {
  if (!e) return;
  pthread_mutex_lock(&e->lock);
  while (!atomic_load(&e->is_set)) pthread_cond_wait(&e->set, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

static bool event_pending(struct soft_event *e) { return e && !atomic_load(&e->is_set); }

/* ---- blocks ---- */

struct soft_block {
  struct device_piece piece;
  struct soft_memory *of;     /* a reference */
  struct buffer *memory;      /* the host's; shared while it is open on a stream */
  struct soft_event *written; /* the last work that writes it; changed by who has the buffer alone */
  struct soft_event *read;    /* memory's lock: the last work that reads it without a reference: on one stream, so that
                                 those before it are over then too */
  struct soft_block *next;    /* of those kept */
};

struct soft_memory {
  struct ref refs; /* the device's, and one of each block that is in use: tensors may outlive their device */
  struct device_memory account;
  pthread_mutex_t lock;
  struct soft_block *kept;     /* lock: nobody's, perhaps with work that is still queued */
  size_t kept_bytes;           /* lock */
  size_t kept_most;            /* lock: 0 when the device has gone */
  struct soft_event *replayed; /* lock: the last replay; NULL: there was none */
};

struct soft_memory *soft_memory_new(int64_t limit) {
  struct soft_memory *m = mem_zalloc(1, sizeof *m);
  ref_init(&m->refs, 1);
  device_memory_init(&m->account, limit);
  pthread_mutex_init(&m->lock, NULL);
  m->kept_most = KEPT_MOST;
  return m;
}

static void unref(struct soft_memory *m) {
  if (!ref_drop(&m->refs)) return;
  device_memory_release(&m->account);
  pthread_mutex_destroy(&m->lock);
  event_unref(m->replayed);
  free(m);
}

static void drop(struct soft_block *list) {
  for (struct soft_block *next; list; list = next) {
    next = list->next;
    event_unref(list->written);
    event_unref(list->read);
    buffer_unref(list->memory);
    free(list);
  }
}

static size_t weight(const struct soft_block *b) { return sizeof *b + b->memory->size; }

/* Call these with the lock held. */
static void keep(struct soft_memory *m, struct soft_block *b) {
  b->next = m->kept;
  m->kept = b;
  m->kept_bytes += weight(b);
}

static struct soft_block *unlink_kept(struct soft_memory *m, struct soft_block **at) {
  struct soft_block *b = *at;
  *at = b->next;
  m->kept_bytes -= weight(b);
  return b;
}

/* Blocks that no work uses, as many as are too much; to be dropped when the lock is free. */
static struct soft_block *trim(struct soft_memory *m, size_t most) {
  struct soft_block *list = NULL;
  for (struct soft_block **at = &m->kept; *at && m->kept_bytes > most;) {
    if (event_pending((*at)->written) || event_pending((*at)->read)) {
      at = &(*at)->next;
      continue;
    }
    struct soft_block *b = unlink_kept(m, at);
    b->next = list;
    list = b;
  }
  return list;
}

void soft_memory_free(struct soft_memory *m) {
  pthread_mutex_lock(&m->lock);
  m->kept_most = 0;
  struct soft_block *list = trim(m, 0);
  pthread_mutex_unlock(&m->lock);
  drop(list);
  unref(m);
}

static void give_back(struct buffer *buffer) {
  struct soft_block *b = buffer->owner;
  struct soft_memory *m = b->of;
  memory_note_give(b->piece.note);
  device_memory_give(&m->account, &b->piece);
  pthread_mutex_lock(&m->lock);
  keep(m, b);
  struct soft_block *list = trim(m, m->kept_most);
  pthread_mutex_unlock(&m->lock);
  drop(list);
  unref(m);
}

/* What is open on a stream is still somebody's. */
static struct soft_block *take_kept(struct soft_memory *m, size_t size) {
  pthread_mutex_lock(&m->lock);
  struct soft_block **at = &m->kept;
  while (*at && ((*at)->memory->size != size || buffer_shared((*at)->memory))) at = &(*at)->next;
  struct soft_block *b = *at ? unlink_kept(m, at) : NULL;
  pthread_mutex_unlock(&m->lock);
  return b;
}

static struct soft_memory *memory_of(const struct device *d) { return ((struct soft_device *)d->impl)->memory; }

/* The block becomes a buffer's: its marks stay. */
static struct buffer *wrap(struct device *d, struct soft_block *b) {
  b->of = memory_of(d);
  ref_take(&b->of->refs);
  return buffer_wrap(away(b->memory->data), b->memory->size, d, give_back, b);
}

static struct soft_block *block_new(struct buffer *memory) {
  struct soft_block *b = mem_zalloc(1, sizeof *b);
  b->memory = memory;
  return b;
}

/* A value of a captured step that has its place: that is counted already. */
static void give_back_placed(struct buffer *buffer) {
  struct soft_block *b = buffer->owner;
  struct soft_memory *m = b->of;
  b->next = NULL;
  drop(b);
  unref(m);
}

static bool alloc_placed(struct device *d, size_t size, struct buffer **out) {
  struct buffer *memory = soft_captures(d) ? soft_capture_place(size) : NULL;
  if (!memory) return false;
  *out = wrap(d, block_new(memory));
  (*out)->release = give_back_placed;
  return true;
}

shoal_status soft_alloc(struct device *d, const char *who, size_t size, struct buffer **out) {
  struct soft_memory *m = memory_of(d);
  if (alloc_placed(d, size, out)) return NULL;
  struct soft_block *b = take_kept(m, size);
  if (!b) {
    struct buffer *memory;
    TRY(buffer_new(size, &memory));
    b = block_new(memory);
  }
  shoal_status s = device_memory_take(&m->account, d->name, who, (int64_t)size, &b->piece);
  if (!s) {
    b->piece.note = memory_note_take(d, size);
    *out = wrap(d, b);
    if (soft_captures(d)) soft_capture_block(*out);
    return NULL;
  }
  pthread_mutex_lock(&m->lock);
  keep(m, b);
  pthread_mutex_unlock(&m->lock);
  return s;
}

/* ---- windows ---- */

/* Their memory is not used again: no work that uses it is queued, by the word of its users. */
static void drop_window(struct buffer *buffer) {
  struct soft_block *b = buffer->owner;
  struct soft_memory *m = b->of;
  if (b->piece.bytes) device_memory_give(&m->account, &b->piece);
  drop(b);
  unref(m);
}

shoal_status soft_window(struct device *d, const char *who, struct buffer *memory, struct buffer **out) {
  struct soft_memory *m = memory_of(d);
  struct soft_block *b = block_new(memory);
  shoal_status s = who ? device_memory_take(&m->account, d->name, who, (int64_t)memory->size, &b->piece) : NULL;
  if (s) {
    free(b);
    return s;
  }
  b->of = m;
  ref_take(&m->refs);
  *out = buffer_wrap(away(memory->data), memory->size, d, drop_window, b);
  return NULL;
}

static struct soft_block *block_of(const struct tensor *t) { return t->buffer->owner; }

void *soft_data(const struct tensor *t) { return back(t->data); }

void soft_open(const struct tensor *from, struct tensor *to) {
  tensor_ref(to, from);
  struct buffer *b = from->buffer;
  if (!b || !b->device) return;
  event_wait(block_of(from)->written);
  to->buffer = buffer_ref(block_of(from)->memory);
  to->data = back(from->data);
  buffer_unref(b);
}

bool soft_is_of(const struct tensor *open, const struct tensor *t) {
  return tensor_valid(t) && t->buffer->device && block_of(t)->memory == open->buffer;
}

static bool is_closed(const struct tensor *t) {
  return !tensor_valid(t) || t->buffer->device || !dtype_plain((shoal_dtype)t->dtype);
}

/* A block is behind one buffer only. */
static shoal_status own(struct tensor *t) {
  struct tensor copy;
  if (!buffer_shared(t->buffer) && !t->buffer->release) return NULL;
  TRY(tensor_copy(&copy, t));
  tensor_release(t);
  tensor_move(t, &copy);
  return NULL;
}

static void put_away(struct device *d, struct tensor *t, struct soft_block *b) {
  t->buffer = wrap(d, b);
  t->data = away(t->data);
}

shoal_status soft_close(struct device *d, const char *who, struct tensor *t) {
  if (is_closed(t)) return NULL;
  TRY(own(t));
  struct soft_block *b = block_new(t->buffer);
  shoal_status s = device_memory_take(&memory_of(d)->account, d->name, who, (int64_t)b->memory->size, &b->piece);
  if (s) free(b);
  else put_away(d, t, b);
  return s;
}

shoal_status soft_close_again(struct device *d, const char *who, struct tensor *t) {
  if (is_closed(t)) return NULL;
  TRY(own(t));
  struct soft_block *b = block_new(t->buffer);
  device_memory_enter(&memory_of(d)->account, who, (int64_t)b->memory->size, &b->piece);
  put_away(d, t, b);
  return NULL;
}

/* ---- turns ---- */

struct soft_turn soft_write(const struct tensor *t) {
  struct soft_block *b = block_of(t);
  struct soft_turn turn = {.before = {b->written, b->read}, .after = event_new()};
  b->written = event_ref(turn.after);
  b->read = NULL;
  return turn;
}

struct soft_turn soft_read(const struct tensor *t) {
  struct soft_block *b = block_of(t);
  struct soft_turn turn = {.before = {event_ref(b->written)}, .after = event_new()};
  pthread_mutex_lock(&b->of->lock);
  event_unref(b->read);
  b->read = event_ref(turn.after);
  pthread_mutex_unlock(&b->of->lock);
  return turn;
}

struct soft_turn soft_turn_after(const struct tensor *t) {
  return (struct soft_turn){.before = {event_ref(block_of(t)->written)}, .after = event_new()};
}

struct soft_turn soft_turn_new(void) {
  return (struct soft_turn){.after = event_new()};
}

void soft_replays_note(struct soft_memory *m, const struct soft_turn *turn) {
  pthread_mutex_lock(&m->lock);
  event_unref(m->replayed);
  m->replayed = event_ref(turn->after);
  pthread_mutex_unlock(&m->lock);
}

struct soft_turn soft_turn_after_replays(struct soft_memory *m) {
  pthread_mutex_lock(&m->lock);
  struct soft_turn turn = {.before = {event_ref(m->replayed)}, .after = event_new()};
  pthread_mutex_unlock(&m->lock);
  return turn;
}

void soft_turn_begin(struct soft_turn *turn) {
  for (int i = 0; i < 2; i++) {
    event_wait(turn->before[i]);
    event_unref(turn->before[i]);
  }
}

void soft_turn_end(struct soft_turn *turn) {
  event_set(turn->after);
  event_unref(turn->after);
}

/* A card's memory: regions taken from the driver, cut into chunks.
 *
 * The driver's own calls wait for the card, so regions are kept, each twice as large as the one before up to half a GB,
 * and chunks are cut from the smallest that is large enough and joined with their free neighbours when they come back.
 * What is larger than that has a region of its own, which serves nothing smaller than half of it: the next step wants
 * it again, and would find it cut up (GPT-2's logits, 6.6 of 28 GB). A chunk carries two counts (cuda.h): when it was
 * given back, and when a copy into it was queued; chunks that are joined have the later of both. Where there is no
 * room, and before such a large region is taken, regions that are free as a whole go back to the driver.
 *
 * How much a device may take is kept by the account (device/memory.h): what virtual devices share of a card is theirs
 * by that alone. */
#include <stdlib.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/vec.h"
#include "device/cuda/cuda.h"
#include "device/memory.h"

enum { ALIGN = 256, BINS = 40 };
#define FIRST_REGION ((size_t)32 << 20)
#define FIRST_REGION_WITHIN ((size_t)2 << 20)
/* What a captured step may have, of all: three fourths. It is cut from what earlier steps gave back. */
enum { CAPTURED_PARTS = 3, OF_PARTS = 4 };
#define LARGEST_GROWTH ((size_t)512 << 20)

struct cuda_chunk {
  struct device_piece piece;       /* while it is somebody's */
  struct cuda_memory *of;          /* a reference while it is somebody's */
  struct cuda_chunk *left, *right; /* neighbours in the region; NULL: its ends */
  struct cuda_chunk *prev, *next;  /* in its bin, when it is free */
  CUdeviceptr at;
  size_t size;
  size_t region; /* the size of what it is cut from; 0: it has a place in a plan, and no neighbours */
  size_t span;   /* then: that */
  bool is_free;
  uint64_t freed_at, copied_in;
};

struct cuda_memory {
  struct ref refs; /* the device's, and one of each chunk that is somebody's: tensors may outlive their device */
  struct device_memory account;
  const struct cuda_api *api;
  CUcontext context;
  pthread_mutex_t lock;
  struct cuda_device *c;         /* lock: NULL when the device has gone */
  struct cuda_chunk *bins[BINS]; /* lock: free chunks, by size */
  size_t next_region;            /* lock */
  /* Of a part that is cut up on its own (cuda_memory_within): */
  struct device *within;         /* regions are taken from that one's memory; NULL: from the driver */
  VEC(struct buffer *) regions;  /* lock: those */
  size_t taken;                  /* lock: their bytes */
  CUdeviceptr planned;           /* where the first of them begins, if there is a plan */
  struct memory_serving serving; /* lock */
};

struct cuda_memory *cuda_memory_new(struct cuda_device *c, int64_t limit) {
  struct cuda_memory *m = mem_zalloc(1, sizeof *m);
  ref_init(&m->refs, 1);
  device_memory_init(&m->account, limit);
  pthread_mutex_init(&m->lock, NULL);
  m->api = c->api;
  m->context = c->context;
  m->c = c;
  m->next_region = FIRST_REGION;
  return m;
}

static void unref(struct cuda_memory *m) {
  if (!ref_drop(&m->refs)) return;
  for (size_t i = 0; i < m->regions.n; i++) buffer_unref(m->regions.at[i]);
  vec_release(&m->regions);
  memory_serving_release(&m->serving);
  device_memory_release(&m->account);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

/* ---- bins; with the lock held ---- */

static int bin_of(size_t size) {
  int b = 0;
  while (b < BINS - 1 && size >> (b + 9)) b++;
  return b;
}

static void bin_put(struct cuda_memory *m, struct cuda_chunk *k) {
  k->is_free = true;
  LIST_ADD(m->bins[bin_of(k->size)], k);
}

static void bin_take(struct cuda_memory *m, struct cuda_chunk *k) {
  LIST_REMOVE(m->bins[bin_of(k->size)], k);
  k->is_free = false;
}

static bool serves(const struct cuda_chunk *k, size_t size) {
  return k->size >= size && (k->region <= LARGEST_GROWTH || size >= k->region / 2);
}

/* The smallest that is large enough. */
static struct cuda_chunk *best(const struct cuda_memory *m, size_t size) {
  for (int b = bin_of(size); b < BINS; b++) {
    struct cuda_chunk *found = NULL;
    for (struct cuda_chunk *k = m->bins[b]; k; k = k->next)
      if (serves(k, size) && (!found || k->size < found->size)) found = k;
    if (found) return found;
  }
  return NULL;
}

/* ---- regions; with the lock held ---- */

static void region_drop(struct cuda_memory *m, struct cuda_chunk *whole) {
  cuda_enter(m->context);
  if (!m->within) m->api->memory_free(whole->at);
  free(whole);
}

/* Those that are free from end to end. */
static bool regions_drop(struct cuda_memory *m) {
  bool any = false;
  for (int b = 0; b < BINS; b++)
    for (struct cuda_chunk *k = m->bins[b], *next; k; k = next) {
      next = k->next;
      if (k->left || k->right) continue;
      bin_take(m, k);
      region_drop(m, k);
      any = true;
    }
  return any;
}

static shoal_status take_from(struct cuda_memory *m, struct device *d, const char *who, size_t size,
                              struct buffer **out);

static int region_memory(struct cuda_memory *m, size_t size, CUdeviceptr *at) {
  struct buffer *b;
  cuda_enter(m->context);
  if (!m->within) return m->api->memory_new(at, size);
  if (m->taken + size > (size_t)m->account.limit / OF_PARTS * CAPTURED_PARTS) return CU_OUT_OF_MEMORY;
  shoal_status s = take_from(cuda_of(m->within)->memory, m->within, "captured steps", size, &b);
  shoal_status_free(s);
  if (s) return CU_OUT_OF_MEMORY;
  vec_push(&m->regions, b);
  m->taken += size;
  *at = (CUdeviceptr)(uintptr_t)b->data;
  return 0;
}

static int region_new(struct cuda_memory *m, size_t size) {
  CUdeviceptr at;
  int error = region_memory(m, size, &at);
  if (error) return error;
  struct cuda_chunk *k = mem_zalloc(1, sizeof *k);
  k->at = at;
  k->size = k->region = size;
  bin_put(m, k);
  return 0;
}

/* Large ones first, then only what is needed, then with what can be given back. */
static shoal_status grow(struct cuda_memory *m, size_t size) {
  size_t large = MAX(size, MIN(m->next_region, (size_t)m->account.limit));
  if (size > LARGEST_GROWTH && !m->within) regions_drop(m);
  int error = region_new(m, large);
  if (error && large > size) error = region_new(m, size);
  if (error == CU_OUT_OF_MEMORY && !m->within && regions_drop(m)) error = region_new(m, size);
  if (!error) m->next_region = MIN(2 * m->next_region, LARGEST_GROWTH);
  return cuda_status(error, "memory of the card");
}

/* ---- chunks ---- */

static void cut(struct cuda_memory *m, struct cuda_chunk *k, size_t size) {
  if (k->size - size < ALIGN) return;
  struct cuda_chunk *rest = mem_zalloc(1, sizeof *rest);
  rest->at = k->at + size;
  rest->size = k->size - size;
  rest->region = k->region;
  rest->freed_at = k->freed_at;
  rest->copied_in = k->copied_in;
  rest->left = k;
  rest->right = k->right;
  if (k->right) k->right->left = rest;
  k->right = rest;
  k->size = size;
  bin_put(m, rest);
}

static shoal_status chunk_take(struct cuda_memory *m, size_t size, struct cuda_chunk **out) {
  shoal_status s = NULL;
  size = MAX(size + ALIGN - 1, (size_t)ALIGN) / ALIGN * ALIGN;
  pthread_mutex_lock(&m->lock);
  struct cuda_chunk *k = best(m, size);
  if (!k && !(s = grow(m, size))) k = best(m, size);
  if (k) {
    bin_take(m, k);
    cut(m, k, size);
  }
  pthread_mutex_unlock(&m->lock);
  *out = k;
  return s;
}

/* The one to the right becomes a part of k. */
static void join(struct cuda_chunk *k, struct cuda_chunk *right) {
  k->size += right->size;
  k->freed_at = MAX(k->freed_at, right->freed_at);
  k->copied_in = MAX(k->copied_in, right->copied_in);
  k->right = right->right;
  if (k->right) k->right->left = k;
  free(right);
}

static void chunk_give(struct cuda_memory *m, struct cuda_chunk *k) {
  struct cuda_chunk *left = k->left, *right = k->right;
  if (right && right->is_free) {
    bin_take(m, right);
    join(k, right);
  }
  if (left && left->is_free) {
    bin_take(m, left);
    join(left, k);
    k = left;
  }
  bin_put(m, k);
}

static void span_give(struct cuda_memory *m, struct cuda_chunk *k) {
  memory_serving_give(&m->serving, k->span);
  free(k);
}

/* Work that uses it may be queued: what computes comes before the count it is given back at. */
static void give_back(struct buffer *b) {
  struct cuda_chunk *k = b->owner;
  struct cuda_memory *m = k->of;
  memory_note_give(k->piece.note);
  if (!m->within) device_memory_give(&m->account, &k->piece);
  pthread_mutex_lock(&m->lock);
  if (m->c) k->freed_at = atomic_load(&m->c->computed);
  if (k->region) chunk_give(m, k);
  else span_give(m, k);
  if (!m->c) regions_drop(m);
  pthread_mutex_unlock(&m->lock);
  unref(m);
}

void cuda_memory_free(struct cuda_memory *m) {
  if (!m) return;
  pthread_mutex_lock(&m->lock);
  m->c = NULL;
  regions_drop(m);
  pthread_mutex_unlock(&m->lock);
  unref(m);
}

/* By the plan of a captured step: NULL where it has no place for that. */
static struct cuda_chunk *span_take(struct cuda_memory *m, size_t size) {
  size_t span;
  pthread_mutex_lock(&m->lock);
  bool planned = m->planned && memory_serving_take(&m->serving, size, &span);
  pthread_mutex_unlock(&m->lock);
  if (!planned) return NULL;
  struct cuda_chunk *k = mem_zalloc(1, sizeof *k);
  k->at = m->planned + m->serving.spans.at[span].at;
  k->size = size;
  k->span = span;
  return k;
}

/* What a part is cut into was counted when that was taken. */
static shoal_status enter(struct cuda_memory *m, struct device *d, const char *who, size_t size, struct cuda_chunk *k) {
  if (m->within) return NULL;
  shoal_status s = device_memory_take(&m->account, d->name, who, (int64_t)size, &k->piece);
  if (!s) return NULL;
  pthread_mutex_lock(&m->lock);
  chunk_give(m, k);
  pthread_mutex_unlock(&m->lock);
  return s;
}

static shoal_status take_from(struct cuda_memory *m, struct device *d, const char *who, size_t size,
                              struct buffer **out) {
  /* What the device may not have is not asked of the driver, who may have it. */
  if (!m->within && !device_memory_fits(&m->account, (int64_t)size))
    return device_memory_none(&m->account, d->name, (int64_t)size, "");
  struct cuda_chunk *k = span_take(m, size);
  shoal_status s = k ? NULL : chunk_take(m, size, &k);
  if (shoal_status_code(s) == SHOAL_RESOURCE_EXHAUSTED) {
    shoal_status_free(s);
    return device_memory_none(&cuda_of(d)->memory->account, d->name, (int64_t)size,
                              ", and the driver has no more (other processes may use the card)");
  }
  TRY(s);
  TRY(enter(m, d, who, size, k));
  k->of = m;
  k->piece.note = memory_note_take(d, size);
  ref_take(&m->refs);
  *out = buffer_wrap((void *)(uintptr_t)k->at, size, d, give_back, k); /* NOLINT: an address of the card */
  return NULL;
}

/* How a captured step is served: what it takes for its values is given back with it, all at once. Where there is no
 * room for what was planned it is served as others are. */
struct cuda_memory *cuda_memory_within(struct device *d, const struct memory_plan *plan) {
  struct cuda_memory *m = cuda_memory_new(cuda_of(d), d->memory_limit);
  m->within = d;
  m->next_region = FIRST_REGION_WITHIN;
  if (plan && plan->total && region_memory(m, plan->total, &m->planned)) m->planned = 0;
  if (m->planned) memory_serving_init(&m->serving, plan);
  return m;
}

size_t cuda_memory_taken(struct cuda_memory *m) {
  pthread_mutex_lock(&m->lock);
  size_t taken = m->taken;
  pthread_mutex_unlock(&m->lock);
  return taken;
}

shoal_status cuda_alloc(struct device *d, const char *who, size_t size, struct buffer **out) {
  TRY(cuda_open(cuda_of(d)));
  struct cuda_capture *captured = cuda_capturing(cuda_of(d));
  return take_from(captured ? cuda_capture_memory(captured) : cuda_of(d)->memory, d, who, size, out);
}

/* ---- what is not cut from regions ---- */

struct cuda_wrapped {
  struct cuda_chunk chunk; /* first */
  void (*release)(void *owner);
  void *owner;
};

static void drop_wrapped(struct buffer *b) {
  struct cuda_wrapped *w = b->owner;
  struct cuda_memory *m = w->chunk.of;
  if (w->chunk.piece.bytes) device_memory_give(&m->account, &w->chunk.piece);
  cuda_enter(m->context);
  w->release(w->owner);
  free(w);
  unref(m);
}

shoal_status cuda_memory_wrap(struct device *d, const char *who, CUdeviceptr at, size_t size,
                              void (*release)(void *owner), void *owner, struct buffer **out) {
  struct cuda_memory *m = cuda_of(d)->memory;
  struct cuda_wrapped *w = mem_zalloc(1, sizeof *w);
  shoal_status s = who ? device_memory_take(&m->account, d->name, who, (int64_t)size, &w->chunk.piece) : NULL;
  if (s) {
    free(w);
    return s;
  }
  w->chunk.of = m;
  w->release = release;
  w->owner = owner;
  ref_take(&m->refs);
  *out = buffer_wrap((void *)(uintptr_t)at, size, d, drop_wrapped, w); /* NOLINT: an address of the card */
  return NULL;
}

static struct cuda_chunk *chunk_of(const struct tensor *t) { return t->buffer->owner; }
uint64_t cuda_copied_in(const struct tensor *t) { return chunk_of(t)->copied_in; }
uint64_t cuda_freed_at(const struct tensor *t) { return chunk_of(t)->freed_at; }
void cuda_set_copied_in(const struct tensor *t, uint64_t count) { chunk_of(t)->copied_in = count; }

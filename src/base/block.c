/* The store of blocks; see block.h.
 *
 * Classes of sizes, 64 bytes times 2^k and 3 * 2^(k-1); before every block stands its class. What a step's thread
 * takes, another gives back: lists a thread alone, as malloc() and the tensors' buffers have them, fill up on one side
 * and run dry on the other. One list for all, under a lock, took 62 ns for a block taken and given
 * (90 where another thread gives it), more than malloc() with 55 (85). So a thread has two bundles of each class, and
 * only whole bundles go to the store and come from there, one lock for as many blocks: 22 to 31 ns (54 to 66). (Two, so
 * that who takes and gives one in turns at the end of a bundle does not go there each time.)
 *
 * Lists of each owner (a connection, a peer, a registered graph) were the other way; each would need a bound, a lock
 * and an end of its own, and what one had too much of would be of no use to the next. One bound is for all: what comes
 * back past it goes to the system. A thread's bundles are at most BUNDLE_BYTES each, or one block.
 *
 * Each thread fills two bundles of a class before any other has of them: by one malloc() a block, a cluster's steps
 * took some for thousands of them. So a thread that finds the store empty takes a bundle as one slab. Blocks of slabs
 * are never the system's again: SLAB_BYTES of the bound are theirs, and no more are made.
 *
 * With a sanitizer nothing is kept, so that each use of freed memory is seen. */
#include "base/block.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { SMALLEST = 64, CLASSES = 17, NO_CLASS = CLASSES, BUNDLE_BYTES = 4096, SLAB_BYTES = BLOCKS_KEPT / 4 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
enum { KEEPS = 0 };
#else
enum { KEEPS = 1 };
#endif

/* What stands before each. */
union head {
  struct {
    union head *next; /* in its bundle */
    uint32_t size_class;
    bool slab; /* part of one: not to be freed */
  };
  max_align_t aligned;
};

struct block_bundle {
  union head *first;
  size_t n;
};

/* A bundle in the store: this stands in its first block. */
struct block_stored {
  union head *next; /* bundle */
  size_t n;
};
_Static_assert(sizeof(struct block_stored) + sizeof(union head) <= SMALLEST, "it fits");

static struct {
  _Alignas(64) pthread_mutex_t lock;
  union head *first; /* lock */
} lists[CLASSES] = {[0 ... CLASSES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static atomic_size_t kept;  /* in the lists */
static atomic_size_t slabs; /* taken as such */

/* A thread's own. */
struct block_shelf {
  struct block_bundle now[CLASSES], full[CLASSES]; /* full: or empty */
};
static pthread_key_t shelf_key;
static pthread_once_t shelf_once = PTHREAD_ONCE_INIT;
static _Thread_local struct block_shelf *mine;

static size_t class_bytes(unsigned c) { return ((size_t)SMALLEST << c / 2) / 2 * (2 + c % 2); }

static unsigned class_of(size_t bytes) {
  _Static_assert(BLOCK_LARGEST == SMALLEST << (CLASSES - 1) / 2, "the last class is that of the largest");
  if (!KEEPS || bytes > BLOCK_LARGEST) return NO_CLASS;
  if (bytes <= SMALLEST) return 0;
  unsigned c = 2 * (unsigned)(63 - __builtin_clzll((bytes - 1) / SMALLEST));
  while (class_bytes(c) < bytes) c++;
  return c;
}

static bool is_full(const struct block_bundle *b, unsigned c) {
  return b->n && (b->n + 1) * class_bytes(c) > BUNDLE_BYTES;
}

static struct block_stored *stored(union head *h) { return (struct block_stored *)(h + 1); }

/* What is left of it. */
static struct block_bundle free_all_but_slabs(struct block_bundle b) {
  struct block_bundle left = {0};
  for (union head *h = b.first, *next; b.n--; h = next) {
    next = h->next;
    if (!h->slab) {
      free(h);
      continue;
    }
    h->next = left.first;
    left.first = h;
    left.n++;
  }
  return left;
}

/* To the store, or where that is full to the system. */
static void give_bundle(unsigned c, struct block_bundle b) {
  if (atomic_load_explicit(&kept, memory_order_relaxed) + b.n * class_bytes(c) > BLOCKS_KEPT - SLAB_BYTES)
    b = free_all_but_slabs(b);
  if (!b.n) return;
  atomic_fetch_add_explicit(&kept, b.n * class_bytes(c), memory_order_relaxed);
  pthread_mutex_lock(&lists[c].lock);
  *stored(b.first) = (struct block_stored){lists[c].first, b.n};
  lists[c].first = b.first;
  pthread_mutex_unlock(&lists[c].lock);
}

/* An empty one when there is none. */
static struct block_bundle take_bundle(unsigned c) {
  struct block_bundle b = {0};
  pthread_mutex_lock(&lists[c].lock);
  b.first = lists[c].first;
  if (b.first) {
    lists[c].first = stored(b.first)->next;
    b.n = stored(b.first)->n;
  }
  pthread_mutex_unlock(&lists[c].lock);
  atomic_fetch_sub_explicit(&kept, b.n * class_bytes(c), memory_order_relaxed);
  return b;
}

/* A bundle made of one piece of memory; an empty one when there is none, or there are enough of them. */
static struct block_bundle slab_bundle(unsigned c) {
  size_t size = class_bytes(c), n = BUNDLE_BYTES / size;
  if (n < 2 || atomic_fetch_add_explicit(&slabs, n * size, memory_order_relaxed) + n * size > SLAB_BYTES) {
    if (n >= 2) atomic_fetch_sub_explicit(&slabs, n * size, memory_order_relaxed);
    return (struct block_bundle){0};
  }
  char *slab = malloc(n * size);
  struct block_bundle b = {0};
  for (size_t i = n; slab && i-- > 0; b.n++) {
    union head *h = (union head *)(void *)(slab + i * size);
    h->next = b.first;
    h->slab = true;
    b.first = h;
  }
  return b;
}

static void shelf_end(void *arg) {
  struct block_shelf *s = arg;
  mine = NULL;
  for (unsigned c = 0; c < CLASSES; c++) {
    give_bundle(c, s->now[c]);
    give_bundle(c, s->full[c]);
  }
  free(s);
}

static void make_key(void) { pthread_key_create(&shelf_key, shelf_end); }

/* NULL when there is no memory for one. */
static struct block_shelf *shelf(void) {
  if (LIKELY(mine != NULL)) return mine;
  pthread_once(&shelf_once, make_key);
  mine = calloc(1, sizeof *mine);
  if (mine && pthread_setspecific(shelf_key, mine) != 0) {
    free(mine);
    mine = NULL;
  }
  return mine;
}

static union head *take(unsigned c) {
  if (c == NO_CLASS) return NULL;
  struct block_shelf *s = shelf();
  if (!s) return NULL;
  struct block_bundle *b = &s->now[c];
  if (!b->n) {
    *b = s->full[c].n ? s->full[c] : take_bundle(c);
    s->full[c].n = 0;
    if (!b->n) *b = slab_bundle(c);
    if (!b->n) return NULL;
  }
  union head *h = b->first;
  b->first = h->next;
  b->n--;
  return h;
}

static void give(union head *h, unsigned c) {
  struct block_shelf *s = shelf();
  if (!s) {
    give_bundle(c, (struct block_bundle){h, 1});
    return;
  }
  struct block_bundle *b = &s->now[c];
  if (is_full(b, c)) {
    give_bundle(c, s->full[c]);
    s->full[c] = *b;
    b->n = 0;
  }
  h->next = b->first;
  b->first = h;
  b->n++;
}

static void *finish(union head *h, unsigned c) {
  h->size_class = c;
  return h + 1;
}

/* One of its own, from the system. */
static union head *fresh(void *p) {
  union head *h = p;
  if (h) h->slab = false;
  return h;
}

void *block_alloc(size_t n) {
  size_t bytes;
  if (__builtin_add_overflow(n, sizeof(union head), &bytes)) bytes = SIZE_MAX;
  unsigned c = class_of(bytes);
  union head *h = take(c);
  return finish(h ? h : fresh(mem_alloc(c == NO_CLASS ? bytes : class_bytes(c))), c);
}

void *block_try_alloc(size_t n) {
  size_t bytes;
  if (__builtin_add_overflow(n, sizeof(union head), &bytes)) return NULL;
  unsigned c = class_of(bytes);
  if (mem_fails()) return NULL;
  union head *h = take(c);
  if (!h) h = fresh(malloc(c == NO_CLASS ? bytes : class_bytes(c)));
  return h ? finish(h, c) : NULL;
}

void *block_zalloc(size_t n) { return memset(block_alloc(n), 0, n); }

void *block_try_zalloc(size_t n) {
  void *p = block_try_alloc(n);
  return p ? memset(p, 0, n) : NULL;
}

/* In place, if that can be; NULL: it must move, or there is no memory. Only what is past the classes grows. */
static void *resized(void *p, size_t bytes) {
  union head *h = (union head *)p - 1;
  unsigned c = h->size_class;
  if (c != NO_CLASS) return class_bytes(c) >= bytes ? p : NULL;
  if (class_of(bytes) != NO_CLASS) return NULL;
  union head *grown = realloc(h, bytes);
  return grown ? finish(grown, c) : NULL;
}

/* What stood in p, as far as n bytes have room for it. */
static void *moved(void *to, void *p, size_t n) {
  if (!to) return NULL;
  unsigned c = ((union head *)p - 1)->size_class;
  memcpy(to, p, c == NO_CLASS ? n : MIN(n, class_bytes(c) - sizeof(union head)));
  block_free(p);
  return to;
}

void *block_realloc(void *p, size_t count, size_t size) {
  size_t n, bytes;
  if (__builtin_mul_overflow(count, size, &n) || __builtin_add_overflow(n, sizeof(union head), &bytes))
    return mem_alloc(SIZE_MAX);
  void *same = p ? resized(p, bytes) : NULL;
  return same ? same : p ? moved(block_alloc(n), p, n) : block_alloc(n);
}

void *block_try_realloc(void *p, size_t count, size_t size) {
  size_t n, bytes;
  if (__builtin_mul_overflow(count, size, &n) || __builtin_add_overflow(n, sizeof(union head), &bytes)) return NULL;
  if (!p) return block_try_alloc(n);
  if (mem_fails()) return NULL;
  void *same = resized(p, bytes);
  return same ? same : moved(block_try_alloc(n), p, n);
}

char *block_strndup(const char *s, size_t n) {
  char *copy = block_alloc(n + 1);
  if (n) memcpy(copy, s, n);
  copy[n] = 0;
  return copy;
}

void block_free(void *p) {
  if (!p) return;
  union head *h = (union head *)p - 1;
  if (h->size_class == NO_CLASS) free(h);
  else give(h, h->size_class);
}

size_t blocks_kept(void) {
  size_t own = 0;
  for (unsigned c = 0; mine && c < CLASSES; c++) own += (mine->now[c].n + mine->full[c].n) * class_bytes(c);
  return atomic_load(&kept) + own;
}

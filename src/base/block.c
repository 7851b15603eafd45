/* The store of blocks; see block.h.
 *
 * A list for each class of sizes, 64 bytes times 2^k and 3 * 2^(k-1), each under a lock of its own; before every block
 * stands its class. What a step's thread takes, another gives back: lists a thread, as malloc() and the tensors'
 * buffers have them, fill up on one side and run dry on the other. Lists of each owner (a connection, a peer, a
 * registered graph) were the other way; each would need a bound, a lock and an end of its own, and what one had too
 * much of would be of no use to the next. One bound is for all: what comes back past it goes to the system.
 *
 * With a sanitizer nothing is kept, so that each use of freed memory is seen. */
#include "base/block.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { SMALLEST = 64, CLASSES = 17, NO_CLASS = CLASSES };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
enum { KEEPS = 0 };
#else
enum { KEEPS = 1 };
#endif

/* What stands before each. */
union head {
  struct {
    union head *next; /* in the store */
    uint32_t size_class;
  };
  max_align_t aligned;
};

static struct {
  _Alignas(64) pthread_mutex_t lock;
  union head *first; /* lock */
} lists[CLASSES] = {[0 ... CLASSES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static atomic_size_t kept;

static size_t class_bytes(unsigned c) { return ((size_t)SMALLEST << c / 2) / 2 * (2 + c % 2); }

static unsigned class_of(size_t bytes) {
  _Static_assert(BLOCK_LARGEST == SMALLEST << (CLASSES - 1) / 2, "the last class is that of the largest");
  if (!KEEPS || bytes > BLOCK_LARGEST) return NO_CLASS;
  if (bytes <= SMALLEST) return 0;
  unsigned c = 2 * (unsigned)(63 - __builtin_clzll((bytes - 1) / SMALLEST));
  while (class_bytes(c) < bytes) c++;
  return c;
}

static union head *take(unsigned c) {
  if (c == NO_CLASS) return NULL;
  pthread_mutex_lock(&lists[c].lock);
  union head *h = lists[c].first;
  if (h) lists[c].first = h->next;
  pthread_mutex_unlock(&lists[c].lock);
  if (h) atomic_fetch_sub_explicit(&kept, class_bytes(c), memory_order_relaxed);
  return h;
}

static void *finish(union head *h, unsigned c) {
  h->size_class = c;
  return h + 1;
}

void *block_alloc(size_t n) {
  size_t bytes;
  if (__builtin_add_overflow(n, sizeof(union head), &bytes)) bytes = SIZE_MAX;
  unsigned c = class_of(bytes);
  union head *h = take(c);
  return finish(h ? h : mem_alloc(c == NO_CLASS ? bytes : class_bytes(c)), c);
}

void *block_try_alloc(size_t n) {
  size_t bytes;
  if (__builtin_add_overflow(n, sizeof(union head), &bytes)) return NULL;
  unsigned c = class_of(bytes);
  if (mem_fails()) return NULL;
  union head *h = take(c);
  if (!h) h = malloc(c == NO_CLASS ? bytes : class_bytes(c));
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
  h = realloc(h, bytes);
  return h ? h + 1 : NULL;
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
  unsigned c = h->size_class;
  size_t bytes = c == NO_CLASS ? 0 : class_bytes(c);
  if (!bytes || atomic_fetch_add_explicit(&kept, bytes, memory_order_relaxed) + bytes > BLOCKS_KEPT) {
    if (bytes) atomic_fetch_sub_explicit(&kept, bytes, memory_order_relaxed);
    free(h);
    return;
  }
  pthread_mutex_lock(&lists[c].lock);
  h->next = lists[c].first;
  lists[c].first = h;
  pthread_mutex_unlock(&lists[c].lock);
}

size_t blocks_kept(void) { return atomic_load(&kept); }

/* The host buffer cache.
 *
 * Classes: sizes are rounded up to 64·2^k·{4,5,6,7}/4, so at most a quarter is wasted. Blocks up to
 * 64 KiB are kept in a list per thread: KEEP bytes of each class, and KEEP_TINY of the tiny ones if the thread itself
 * took so many. The rest goes to the shared list, where the threads that took it look for it: a step wanders from
 * thread to thread, and each would fill a cache of its own otherwise. Larger ones go straight to the shared list of
 * their class. The shared cache is bounded: past CACHE_LIMIT bytes, and for blocks too large to be worth keeping,
 * memory goes back to the system. */
#include "tensor/buffer.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/block.h"
#include "base/machine.h"
#include "base/mem.h"
#include "tensor/strings.h"
#include "tensor/tensor.h"

enum {
  ALIGN = 64,
  CLASSES = 4 * 42,
  SMALL_CLASSES = 4 * 10, /* up to 64 KiB */
  TINY = 8 << 10,
  KEEP_TINY = 1 << 20,
  KEEP = 1 << 16,
  BUFFER_FOREIGN = 0xffff,
};
#define CACHE_LIMIT ((size_t)1 << 30)

struct list {
  struct buffer *head; /* linked through owner */
  int n;
  int taken; /* a thread's: blocks it took and has not given back */
};

struct thread_cache {
  struct list lists[SMALL_CLASSES];
  int64_t strings; /* bytes, not in the account yet */
};

static struct {
  pthread_mutex_t lock;
  struct list lists[CLASSES]; /* lock */
  size_t cached;              /* lock: bytes in lists */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t system_allocs;
static _Atomic size_t system_bytes;
static _Atomic size_t limit; /* 0: not looked up yet */
static pthread_key_t cache_key;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;
static _Thread_local struct thread_cache *tls;

/* Class c holds blocks of class_bytes(c). */
static size_t class_bytes(unsigned c) { return ((size_t)ALIGN << (c / 4)) / 4 * (4 + c % 4); }

static unsigned class_of(size_t size) {
  if (size <= ALIGN) return 0;
  unsigned log = 63u - (unsigned)__builtin_clzll((size - 1) / ALIGN | 1);
  unsigned c = log * 4;
  while (class_bytes(c) < size) c++;
  return c;
}

/* Large blocks in large pages: touching a gigabyte for the first time takes a tenth of the time then. */
static bool system_new(size_t bytes, void **out) {
  enum { LARGE = 4 << 20, LARGE_PAGE = 2 << 20 };
  if (posix_memalign(out, bytes >= LARGE ? LARGE_PAGE : ALIGN, bytes) != 0) return false;
  if (bytes >= LARGE) madvise(*out, bytes, MADV_HUGEPAGE);
  return true;
}

static void system_free(struct buffer *b) {
  atomic_fetch_sub_explicit(&system_bytes, class_bytes(b->size_class), memory_order_relaxed);
  free(b);
}

static void push(struct list *l, struct buffer *b) {
  b->owner = l->head;
  l->head = b;
  l->n++;
}

static struct buffer *pop(struct list *l) {
  struct buffer *b = l->head;
  if (!b) return NULL;
  l->head = b->owner;
  l->n--;
  return b;
}

static void share(struct buffer *b) {
  size_t bytes = class_bytes(b->size_class);
  pthread_mutex_lock(&shared.lock);
  bool keep = shared.cached + bytes <= CACHE_LIMIT;
  if (keep) {
    push(&shared.lists[b->size_class], b);
    shared.cached += bytes;
  }
  pthread_mutex_unlock(&shared.lock);
  if (!keep) system_free(b);
}

static void cache_end(void *arg) {
  struct thread_cache *c = arg;
  for (int i = 0; i < SMALL_CLASSES; i++)
    for (struct buffer *b; (b = pop(&c->lists[i]));) share(b);
  atomic_fetch_add_explicit(&system_bytes, (size_t)c->strings, memory_order_relaxed);
  free(c);
  tls = NULL;
}

static void make_key(void) { pthread_key_create(&cache_key, cache_end); }

static struct thread_cache *thread_cache(void) {
  if (LIKELY(tls != NULL)) return tls;
  pthread_once(&cache_once, make_key);
  tls = mem_zalloc(1, sizeof *tls);
  pthread_setspecific(cache_key, tls);
  return tls;
}

static struct buffer *take_cached(unsigned c) {
  if (c < SMALL_CLASSES) {
    struct list *l = &thread_cache()->lists[c];
    if (l->taken < INT32_MAX) l->taken++;
    struct buffer *b = pop(l);
    if (b) return b;
  }
  pthread_mutex_lock(&shared.lock);
  struct buffer *b = pop(&shared.lists[c]);
  if (b) shared.cached -= class_bytes(c);
  pthread_mutex_unlock(&shared.lock);
  return b;
}

void buffer_set_limit(size_t bytes) { atomic_store(&limit, bytes); }

static bool within_limit(size_t size) {
  size_t most = atomic_load_explicit(&limit, memory_order_relaxed);
  if (!most) {
    most = machine_memory();
    buffer_set_limit(most);
  }
  return size <= most;
}

/* All buffers together are at most what the machine has. */
static bool has_room(size_t bytes) {
  size_t most = machine_memory();
  for (int tries = 0; tries < 2; tries++) {
    size_t used = atomic_load_explicit(&system_bytes, memory_order_relaxed);
    if (used > SIZE_MAX / 2) used = 0; /* strings that one thread made and another, which is ahead, has freed */
    if (used < most && bytes <= most - used) return true;
    buffer_trim();
  }
  return false;
}

bool strings_have_room(size_t bytes) { return within_limit(bytes) && has_room(bytes); }

void strings_count(int64_t bytes) {
  enum { LITTLE = 32 << 10 };
  struct thread_cache *c = thread_cache();
  c->strings += bytes;
  if (c->strings < LITTLE && c->strings > -LITTLE) return;
  atomic_fetch_add_explicit(&system_bytes, (size_t)c->strings, memory_order_relaxed); /* modulo 2^64: also less */
  c->strings = 0;
}

shoal_status buffer_new(size_t size, struct buffer **out) {
  unsigned c = size > ((size_t)1 << 46) || mem_fails() ? CLASSES : class_of(size);
  struct buffer *b = NULL;
  if (c < CLASSES) {
    b = take_cached(c);
    if (!b && within_limit(size) && has_room(size)) {
      void *p = NULL;
      if (system_new(ALIGN + class_bytes(c), &p)) b = p;
      if (!b) { /* what is cached in other classes may be what is missing */
        buffer_trim();
        if (system_new(ALIGN + class_bytes(c), &p)) b = p;
      }
      if (b) {
        atomic_fetch_add_explicit(&system_allocs, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&system_bytes, class_bytes(c), memory_order_relaxed);
      }
    }
  }
  if (!b) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM when allocating a tensor of %zu bytes", size);
  _Static_assert(sizeof(struct buffer) <= ALIGN, "the header stands before the data");
  ref_init(&b->refs, 1);
  b->size_class = (uint16_t)c;
  b->elements_of = 0;
  b->data = (char *)b + ALIGN;
  b->size = size;
  b->device = NULL;
  b->release = NULL;
  b->owner = NULL;
  *out = b;
  return NULL;
}

struct buffer *buffer_wrap(void *data, size_t size, struct device *device, void (*release)(struct buffer *),
                           void *owner) {
  struct buffer *b = block_zalloc(sizeof *b);
  ref_init(&b->refs, 1);
  b->size_class = BUFFER_FOREIGN;
  b->data = data;
  b->size = size;
  b->device = device;
  b->release = release;
  b->owner = owner;
  return b;
}

void buffer_free_(struct buffer *b) {
  if (UNLIKELY(b->elements_of)) elements_destroy((shoal_dtype)b->elements_of, b->data, b->size);
  if (UNLIKELY(b->size_class == BUFFER_FOREIGN)) {
    if (b->release) b->release(b);
    block_free(b);
    return;
  }
  if (b->size_class < SMALL_CLASSES) {
    struct list *l = &thread_cache()->lists[b->size_class];
    bool mine = l->taken > 0;
    l->taken -= mine;
    size_t bytes = class_bytes(b->size_class);
    if ((size_t)l->n * bytes < (size_t)(mine && bytes <= TINY ? KEEP_TINY : KEEP)) {
      push(l, b);
      return;
    }
  }
  share(b);
}

uint64_t buffer_system_allocs(void) { return atomic_load(&system_allocs); }

size_t buffer_bytes_cached(void) {
  pthread_mutex_lock(&shared.lock);
  size_t n = shared.cached;
  pthread_mutex_unlock(&shared.lock);
  return n;
}

size_t buffer_bytes_in_use(void) {
  size_t all = atomic_load(&system_bytes), cached = buffer_bytes_cached();
  return all > cached && all <= SIZE_MAX / 2 ? all - cached : 0;
}

void buffer_trim(void) {
  for (unsigned c = 0; c < CLASSES; c++) {
    for (;;) {
      pthread_mutex_lock(&shared.lock);
      struct buffer *b = pop(&shared.lists[c]);
      if (b) shared.cached -= class_bytes(c);
      pthread_mutex_unlock(&shared.lock);
      if (!b) break;
      system_free(b);
    }
  }
}

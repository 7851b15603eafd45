/* Pinned memory of the host: what a card copies from and to by itself while the processor goes on.
 *
 * Taking it from the system is slow, so pieces are kept, by powers of two, and used again. A copy in goes through one;
 * a copy out makes a tensor of one, which comes back here when its last reference goes. What the host writes in every
 * step and never reads, a captured step's feeds, has memory that is written past the processor's caches, from where a
 * card would have to fetch it. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/ref.h"
#include "device/cuda/cuda.h"

enum { SMALLEST = 12, CLASSES = 40, WRITE_ONLY = -1 };
#define KEPT_MOST ((size_t)256 << 20)

struct pinned_piece {
  struct pinned_piece *next; /* of those kept */
  struct cuda_pinned *of;    /* a reference */
  void *data;
  int class;
};

struct cuda_pinned {
  struct ref refs; /* the device's, and one of each piece in use */
  bool gone;       /* lock: the device has */
  const struct cuda_api *api;
  CUcontext context;
  pthread_mutex_t lock;
  struct pinned_piece *kept[CLASSES]; /* lock */
  size_t kept_bytes;                  /* lock */
};

struct cuda_pinned *cuda_pinned_new(struct cuda_device *c) {
  struct cuda_pinned *p = mem_zalloc(1, sizeof *p);
  ref_init(&p->refs, 1);
  p->api = c->api;
  p->context = c->context;
  pthread_mutex_init(&p->lock, NULL);
  return p;
}

static size_t class_bytes(int class) { return (size_t)1 << (SMALLEST + class); }

static void drop(struct pinned_piece *x) {
  cuda_enter(x->of->context);
  x->of->api->pinned_free(x->data);
  free(x);
}

static void unref(struct cuda_pinned *p) {
  if (!ref_drop(&p->refs)) return;
  pthread_mutex_destroy(&p->lock);
  free(p);
}

void cuda_pinned_free(struct cuda_pinned *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->gone = true;
  for (int i = 0; i < CLASSES; i++)
    while (p->kept[i]) {
      struct pinned_piece *x = p->kept[i];
      p->kept[i] = x->next;
      drop(x);
    }
  pthread_mutex_unlock(&p->lock);
  unref(p);
}

static void give_back(struct buffer *b) {
  struct pinned_piece *x = b->owner;
  struct cuda_pinned *p = x->of;
  pthread_mutex_lock(&p->lock);
  bool keep = x->class != WRITE_ONLY && !p->gone && p->kept_bytes + class_bytes(x->class) <= KEPT_MOST;
  if (keep) {
    x->next = p->kept[x->class];
    p->kept[x->class] = x;
    p->kept_bytes += class_bytes(x->class);
  }
  pthread_mutex_unlock(&p->lock);
  if (!keep) drop(x);
  unref(p);
}

static struct pinned_piece *take_kept(struct cuda_pinned *p, int class) {
  pthread_mutex_lock(&p->lock);
  struct pinned_piece *x = p->kept[class];
  if (x) {
    p->kept[class] = x->next;
    p->kept_bytes -= class_bytes(class);
  }
  pthread_mutex_unlock(&p->lock);
  return x;
}

static shoal_status piece_new(struct cuda_pinned *p, size_t size, int class, struct pinned_piece **out) {
  enum { WRITE_COMBINED = 4 };
  void *data;
  cuda_enter(p->context);
  TRY(cuda_status(p->api->pinned_new(&data, size, class == WRITE_ONLY ? WRITE_COMBINED : 0),
                  "pinned memory of the host"));
  struct pinned_piece *x = mem_zalloc(1, sizeof *x);
  *x = (struct pinned_piece){.of = p, .data = data, .class = class};
  *out = x;
  return NULL;
}

static struct buffer *wrap(struct pinned_piece *x, size_t size) {
  ref_take(&x->of->refs);
  return buffer_wrap(x->data, size, NULL, give_back, x);
}

shoal_status cuda_pinned_buffer(struct cuda_pinned *p, size_t size, struct buffer **out) {
  int class = 0;
  while (class_bytes(class) < size) class ++;
  struct pinned_piece *x = take_kept(p, class);
  if (!x) TRY(piece_new(p, class_bytes(class), class, &x));
  *out = wrap(x, size);
  return NULL;
}

shoal_status cuda_pinned_for_writing(struct cuda_pinned *p, size_t size, struct buffer **out) {
  struct pinned_piece *x;
  TRY(piece_new(p, MAX(size, (size_t)1), WRITE_ONLY, &x));
  *out = wrap(x, size);
  return NULL;
}

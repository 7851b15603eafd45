/* Frames of the fast path from anyone who knows the secret: a connection fed with any bytes gives whole frames, or
 * ends. No length in a frame is believed before it is checked, and closed() comes exactly once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "rpc/fast_wire.h"
#include "tensor/buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct conn {
  struct fast_conn c; /* first */
  pthread_mutex_t *lock;
  pthread_cond_t *changed;
  bool *over;
  int closed;
};

static void *frame(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head, struct buffer *body) {
  if (f->head > FAST_MAX_HEAD) abort();
  if (body && body->size < f->size) abort();
  volatile uint8_t sum = 0; /* all of the head is there to be read */
  for (uint32_t i = 0; i < f->head; i++) sum = (uint8_t)(sum + head[i]);
  buffer_unref(body);
  return NULL;
}

static void run(struct fast_conn *c, void *work) {}

static void closed(struct fast_conn *c) {
  if (((struct conn *)c)->closed++) abort();
}

static void release(struct fast_conn *c) {
  struct conn *k = (struct conn *)c;
  if (k->closed != 1) abort();
  pthread_mutex_lock(k->lock);
  *k->over = true;
  pthread_cond_signal(k->changed);
  pthread_mutex_unlock(k->lock);
  free(k);
}

static const struct fast_conn_ops ops = {frame, run, closed, release};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t secret[FAST_SECRET] = "sixteen letters";
  static bool set;
  if (!set) buffer_set_limit(64 << 20);
  set = true;
  int ends[2];
  if (size > 60000 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 0; /* what a socket holds at once */
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  bool over = false;
  struct conn *k = mem_zalloc(1, sizeof *k);
  k->lock = &lock;
  k->changed = &changed;
  k->over = &over;
  bool known = size && data[0] & 1; /* the first byte: does the secret come first? */
  fast_conn_start(&k->c, &ops, ends[0], secret, true);
  if (known && write(ends[1], secret, sizeof secret) != sizeof secret) abort();
  if (size > 1 && write(ends[1], data + 1, size - 1) < 0) abort();
  close(ends[1]);
  fast_conn_unref(&k->c);
  pthread_mutex_lock(&lock);
  while (!over) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return 0;
}

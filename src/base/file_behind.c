/* Large files behind; see file_behind.h. O_DIRECT wants memory, offsets and lengths in whole blocks: buffers are of
 * whole pages and start where the one before ended, and only the last one, which may end anywhere, is written through
 * the page cache. Writing from the tensors' own memory was rejected: a checkpoint lays them end to end, so that only
 * the first lies on a block.
 *
 * Lock: `on_its_way`, `error` and `end` are shared with the thread; buffer[current] and used are the caller's alone. */
#include "base/file_behind.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { PAGE = 4096, PIECE = 4 << 20 };

struct file_behind {
  int fd;
  const char *path;
  char *buffer[2];
  int current;
  size_t used;
  bool started; /* there is a thread */
  pthread_t thread;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  const char *on_its_way; /* a full buffer; NULL: the thread has nothing to do */
  bool end;
  shoal_status error; /* the first; nothing is written after it */
};

struct file_behind *file_behind_new(int fd, const char *path) {
  void *memory = mmap(NULL, 2 * (size_t)PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  struct file_behind *b = mem_zalloc(1, sizeof *b);
  b->fd = fd;
  b->path = path;
  b->buffer[0] = memory;
  b->buffer[1] = b->buffer[0] + PIECE;
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->changed, NULL);
  return b;
}

/* Direct writes on or off; whether the file takes them is seen at the first. */
static void set_direct(int fd, bool on) {
  int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

static shoal_status write_all(const struct file_behind *b, const char *at, size_t n) {
  while (n) {
    if (UNLIKELY(file_fault != NULL)) file_fault("write", b->path);
    ssize_t put = write(b->fd, at, n);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && (fcntl(b->fd, F_GETFL) & O_DIRECT)) { /* not this file system, or not this size */
      set_direct(b->fd, false);
      continue;
    }
    if (put < 0) return ERRNO_STATUS(errno, "%s", b->path);
    at += put;
    n -= (size_t)put;
    if (n && (size_t)put % PAGE) set_direct(b->fd, false); /* off the blocks from here on */
  }
  return NULL;
}

static void *write_behind(void *arg) {
  struct file_behind *b = arg;
  pthread_mutex_lock(&b->lock);
  for (;;) {
    while (!b->on_its_way && !b->end) pthread_cond_wait(&b->changed, &b->lock);
    if (!b->on_its_way) break;
    const char *at = b->on_its_way;
    bool failed = b->error;
    pthread_mutex_unlock(&b->lock);
    shoal_status e = failed ? NULL : write_all(b, at, PIECE);
    pthread_mutex_lock(&b->lock);
    if (e) b->error = e;
    b->on_its_way = NULL;
    pthread_cond_signal(&b->changed);
  }
  pthread_mutex_unlock(&b->lock);
  return NULL;
}

/* The current buffer is full: it goes, and the other one, which has arrived by then, is the current one. */
static shoal_status send(struct file_behind *b) {
  if (!b->started) {
    set_direct(b->fd, true);
    if (pthread_create(&b->thread, NULL, write_behind, b)) { /* without a thread it is only slower */
      b->used = 0;
      return write_all(b, b->buffer[b->current], PIECE);
    }
    b->started = true;
  }
  pthread_mutex_lock(&b->lock);
  while (b->on_its_way) pthread_cond_wait(&b->changed, &b->lock);
  shoal_status e = status_copy(b->error);
  b->on_its_way = b->buffer[b->current];
  pthread_cond_signal(&b->changed);
  pthread_mutex_unlock(&b->lock);
  b->current = !b->current;
  b->used = 0;
  return e;
}

shoal_status file_behind_add(struct file_behind *b, const void *data, size_t n) {
  const char *at = data;
  while (n) {
    size_t part = MIN(n, PIECE - b->used);
    memcpy(b->buffer[b->current] + b->used, at, part);
    b->used += part;
    at += part;
    n -= part;
    if (b->used == PIECE) TRY(send(b));
  }
  return NULL;
}

static void stop(struct file_behind *b) {
  if (!b->started) return;
  pthread_mutex_lock(&b->lock);
  b->end = true;
  pthread_cond_signal(&b->changed);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->thread, NULL);
  b->started = false;
}

shoal_status file_behind_finish(struct file_behind *b) {
  stop(b);
  shoal_status e = status_copy(b->error);
  set_direct(b->fd, false);
  if (!e) e = write_all(b, b->buffer[b->current], b->used);
  file_behind_abort(b);
  return e;
}

void file_behind_abort(struct file_behind *b) {
  if (!b) return;
  stop(b);
  pthread_cond_destroy(&b->changed);
  pthread_mutex_destroy(&b->lock);
  shoal_status_free(b->error);
  munmap(b->buffer[0], 2 * (size_t)PIECE);
  free(b);
}

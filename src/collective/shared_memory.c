#include "collective/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/mem.h"
#include "base/sealed.h"

struct shared_home {
  int fd;
  uint64_t inode;
  struct shared_memory *at;
  pthread_mutex_t lock;
  unsigned refusals; /* lock */
};

uint64_t shared_boot(void) {
  static _Atomic uint64_t known;
  if (atomic_load(&known)) return atomic_load(&known);
  char text[64];
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
  if (fd >= 0) close(fd);
  atomic_store(&known, n > 0 ? fingerprint_cat64(fingerprint64(text, (size_t)n), SHARED_FORM) | 1 : 0);
  return atomic_load(&known);
}

struct shared_home *shared_home_new(void) {
  int fd;
  uint64_t inode;
  void *at = sealed_new("shoal-collectives", sizeof(struct shared_memory), &fd, &inode);
  if (!at) return NULL;
  struct shared_home *h = mem_zalloc(1, sizeof *h);
  h->fd = fd;
  h->inode = inode;
  h->at = at;
  pthread_mutex_init(&h->lock, NULL);
  return h;
}

void shared_home_free(struct shared_home *h) {
  if (!h) return;
  munmap(h->at, sizeof *h->at);
  close(h->fd);
  pthread_mutex_destroy(&h->lock);
  free(h);
}

struct shared_place shared_home_place(const struct shared_home *h) {
  return (struct shared_place){shared_boot(), (uint64_t)getpid(), (uint64_t)h->fd, h->inode};
}

struct shared_area *shared_home_take(struct shared_home *h, uint64_t key) {
  struct shared_area *found = NULL;
  pthread_mutex_lock(&h->lock);
  for (int i = 0; i < SHARED_AREAS && !found; i++)
    if (!atomic_load(&h->at->areas[i].key)) found = &h->at->areas[i];
  if (found) {
    atomic_store(&found->epoch, 0);
    atomic_store(&found->broken, 0);
    atomic_store(&found->given_up, 0);
    atomic_store(&found->has_window, 0);
    bond_word_clear(&found->bond);
    atomic_store(&found->key, key);
  }
  pthread_mutex_unlock(&h->lock);
  return found;
}

void shared_home_give(struct shared_home *h, struct shared_area *a) {
  pthread_mutex_lock(&h->lock);
  atomic_store(&a->key, 0);
  /* The pages go back to the system; what is read there by somebody who has not seen the end yet is zero. */
  madvise(a->slots, sizeof a->slots, MADV_REMOVE);
  pthread_mutex_unlock(&h->lock);
}

void shared_home_refuse(struct shared_home *h, uint64_t key) {
  pthread_mutex_lock(&h->lock);
  atomic_store(&h->at->refused[h->refusals++ % SHARED_REFUSED], key);
  pthread_mutex_unlock(&h->lock);
}

/* ---- others' ---- */

struct shared_memory *shared_view_open(const struct shared_place *p) {
  if (!p->boot || p->boot != shared_boot()) return NULL;
  return sealed_open(p->pid, p->fd, p->inode, sizeof(struct shared_memory));
}

void shared_view_close(struct shared_memory *m) {
  if (m) munmap(m, sizeof *m);
}

struct shared_area *shared_view_find(struct shared_memory *m, uint64_t key) {
  for (int i = 0; i < SHARED_AREAS; i++)
    if (atomic_load(&m->areas[i].key) == key) return &m->areas[i];
  return NULL;
}

bool shared_view_refuses(struct shared_memory *m, uint64_t key) {
  for (int i = 0; i < SHARED_REFUSED; i++)
    if (atomic_load(&m->refused[i]) == key) return true;
  return false;
}

/* ---- the bell ---- */

void shared_sleep(struct shared_area *a, uint32_t seen, int64_t ns) {
  struct timespec most = {ns / 1000000000, ns % 1000000000};
  syscall(SYS_futex, &a->bell, FUTEX_WAIT, seen, &most, NULL, 0);
}

void shared_ring(struct shared_area *a) {
  if (!atomic_load(&a->asleep)) return;
  atomic_fetch_add(&a->bell, 1);
  syscall(SYS_futex, &a->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

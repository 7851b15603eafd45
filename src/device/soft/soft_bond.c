/* What stands for a library that sums among processes: each sends what it has to rank 0, which merges it and sends back
 * what came out, by sockets whose name leads to them. For tests of those who use such a library; nobody gains by it.
 *
 * A name is the number of an abstract address of Unix sockets, where rank 0 listens from then on. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/mem.h"
#include "device/bond.h"
#include "device/soft/soft.h"

enum { LOOK_MS = 10 };

struct soft_bond {
  struct device_bond head;
  int rank, size;
  int sockets[MOST_MERGED]; /* rank 0: to each of the others, [0] listens; else [0] is to rank 0; -1: none */
};

static struct {
  pthread_mutex_t lock;
  uint64_t last;
  int listens; /* at the last name */
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .listens = -1};

static uint64_t card_of(const struct device *d) {
  const char *card = getenv("SHOAL_SOFT_CARD"); /* processes that are to share one say which */
  return card ? fingerprint64(card, strlen(card)) : fingerprint_cat64((uint64_t)getpid(), (uint64_t)d->card);
}

static bool can(enum device_merge merge, bool mean, shoal_dtype dtype) {
  return merge == DEVICE_ADD && (dtype == SHOAL_FLOAT32 || dtype == SHOAL_BFLOAT16);
}

static struct sockaddr_un address_of(const struct device_bond_name *of) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  uint64_t parts[2];
  memcpy(parts, of->bytes, sizeof parts);
  snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "shoal-soft-bond-%llu-%llu", (unsigned long long)parts[0],
           (unsigned long long)parts[1]);
  return a;
}

static shoal_status failed(const char *what) { return UNIMPLEMENTED("%s: %s", what, strerror(errno)); }

static shoal_status name(struct device *d, struct device_bond_name *out) {
  shoal_status s = NULL;
  pthread_mutex_lock(&names.lock);
  uint64_t parts[2] = {(uint64_t)getpid(), ++names.last};
  memset(out, 0, sizeof *out);
  memcpy(out->bytes, parts, sizeof parts);
  struct sockaddr_un at = address_of(out);
  if (names.listens >= 0) close(names.listens); /* nobody has come to that one */
  names.listens = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (names.listens < 0 || bind(names.listens, (struct sockaddr *)&at, sizeof at) || listen(names.listens, MOST_MERGED))
    s = failed("a name for a group");
  pthread_mutex_unlock(&names.lock);
  return s;
}

/* ---- waiting ---- */

static shoal_status await(int fd, short events, const struct device_watch *w) {
  struct pollfd p = {.fd = fd, .events = events};
  while (poll(&p, 1, LOOK_MS) <= 0)
    if (w->is_over(w->arg)) return STATUS(SHOAL_CANCELLED, "the wait is over");
  return NULL;
}

static shoal_status move(int fd, void *data, size_t n, bool out, const struct device_watch *w) {
  for (size_t at = 0; at < n;) {
    TRY(await(fd, out ? POLLOUT : POLLIN, w));
    ssize_t k = out ? send(fd, (char *)data + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : recv(fd, (char *)data + at, n - at, MSG_DONTWAIT);
    if (k > 0) at += (size_t)k;
    else if (k == 0 || (errno != EAGAIN && errno != EINTR)) return STATUS(SHOAL_UNAVAILABLE, "another rank has left");
  }
  return NULL;
}

/* ---- joining ---- */

static shoal_status accept_all(struct soft_bond *b, const struct device_watch *w) {
  for (int k = 1; k < b->size; k++) {
    int32_t rank = -1;
    TRY(await(b->sockets[0], POLLIN, w));
    int fd = accept4(b->sockets[0], NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return failed("a rank that comes");
    shoal_status s = move(fd, &rank, sizeof rank, false, w);
    if (!s && (rank < 1 || rank >= b->size || b->sockets[rank] >= 0)) s = INVALID("rank %d came", (int)rank);
    if (s) {
      close(fd);
      return s;
    }
    b->sockets[rank] = fd;
  }
  return NULL;
}

static shoal_status come(struct soft_bond *b, const struct device_bond_name *by, const struct device_watch *w) {
  struct sockaddr_un at = address_of(by);
  int32_t rank = b->rank;
  b->sockets[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (b->sockets[0] < 0 || connect(b->sockets[0], (struct sockaddr *)&at, sizeof at)) return failed("rank 0");
  return move(b->sockets[0], &rank, sizeof rank, true, w);
}

static void release(struct device_bond *of) {
  struct soft_bond *b = (struct soft_bond *)of;
  for (int r = 0; r < b->size; r++)
    if (b->sockets[r] >= 0) close(b->sockets[r]);
  free(b);
}

static shoal_status join(struct device *d, const struct device_bond_name *by, int rank, int size,
                         const struct device_watch *w, struct device_bond **out) {
  struct soft_bond *b = mem_zalloc(1, sizeof *b);
  *b = (struct soft_bond){.head = {d}, .rank = rank, .size = size};
  for (int r = 0; r < MOST_MERGED; r++) b->sockets[r] = -1;
  if (rank == 0) {
    pthread_mutex_lock(&names.lock);
    b->sockets[0] = names.listens;
    names.listens = -1;
    pthread_mutex_unlock(&names.lock);
  }
  shoal_status s = rank == 0 ? accept_all(b, w) : come(b, by, w);
  if (s) release(&b->head);
  else *out = &b->head;
  return s;
}

/* ---- sums ---- */

/* What the others have, as values of the device. */
static shoal_status gather(struct soft_bond *b, const struct tensor *in, struct tensor *all,
                           const struct device_watch *w) {
  struct shape shape = tensor_shape(in);
  for (int r = 1; r < b->size; r++) {
    TRY(device_tensor_new(b->head.device, "a bond", (shoal_dtype)in->dtype, &shape, &all[r]));
    TRY(move(b->sockets[r], soft_data(&all[r]), tensor_bytes(in), false, w));
  }
  return NULL;
}

static shoal_status merge(struct soft_bond *b, const struct device_merging *m, struct tensor *all) {
  const struct tensor *in[MOST_MERGED] = {m->in[0]};
  for (int r = 1; r < b->size; r++) in[r] = &all[r];
  struct device_merging of = *m;
  of.in = in;
  of.n_in = b->size;
  TRY(soft_merge(b->head.device, &of));
  return b->head.device->type->ops->finish(b->head.device);
}

static shoal_status sum(struct soft_bond *b, const struct device_merging *m, const struct device_watch *w) {
  const struct tensor *in = m->in[0], *out = m->out[0];
  struct tensor all[MOST_MERGED] = {0};
  if (b->rank) {
    TRY(move(b->sockets[0], soft_data(in), tensor_bytes(in), true, w));
    return move(b->sockets[0], soft_data(out), tensor_bytes(out), false, w);
  }
  shoal_status s = gather(b, in, all, w);
  if (!s) s = merge(b, m, all);
  for (int r = 1; r < b->size && !s; r++) s = move(b->sockets[r], soft_data(out), tensor_bytes(out), true, w);
  for (int r = 1; r < b->size; r++) tensor_release(&all[r]);
  return s;
}

/* Nothing is queued on the device any more that could be in the way. */
static shoal_status sum_all(struct device_bond *of, const struct device_merging *sums, int n,
                            const struct device_watch *w) {
  struct soft_bond *b = (struct soft_bond *)of;
  TRY(b->head.device->type->ops->finish(b->head.device));
  for (int i = 0; i < n; i++) TRY(sum(b, &sums[i], w));
  return NULL;
}

const struct device_bonds soft_bonds = {
    .card_of = card_of, .name = name, .join = join, .can = can, .sum = sum_all, .free = release};

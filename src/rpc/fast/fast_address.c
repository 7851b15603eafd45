/* Sockets of the fast path; see fast_address.h.
 *
 * Unix sockets have abstract names: nothing is left in the file system, and they are seen only within one network
 * namespace, so a task in a container of its own is taken for one on another host, as it should be. */
#include "rpc/fast/fast_address.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

enum { SILENCE_MS = 20000 };
#define NAME_BEGINS "shoal-"

static socklen_t local_address(struct sockaddr_un *a, const char *name, size_t n) {
  *a = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(a->sun_path + 1, name, n);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

int fast_bind_local(char name[FAST_NAME]) {
  uint64_t random;
  struct sockaddr_un a;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || getrandom(&random, sizeof random, 0) != sizeof random) goto fail;
  snprintf(name, FAST_NAME, NAME_BEGINS "%d-%016llx", (int)getpid(), (unsigned long long)random);
  if (bind(fd, (struct sockaddr *)&a, local_address(&a, name, strlen(name))) || listen(fd, 64)) goto fail;
  return fd;
fail:
  if (fd >= 0) close(fd);
  return -1;
}

int fast_dial_local(const char *name, size_t n) {
  struct sockaddr_un a;
  if (n > sizeof a.sun_path - 1 || n < strlen(NAME_BEGINS) || memcmp(name, NAME_BEGINS, strlen(NAME_BEGINS)) != 0)
    return -1;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval most = {.tv_sec = FAST_DIAL_MS / 1000}; /* one that accepts nobody may have its queue full */
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&a, local_address(&a, name, n))) {
    close(fd);
    return -1;
  }
  return fd;
}

bool fast_same_user(int fd) {
  struct ucred who;
  socklen_t n = sizeof who;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == geteuid();
}

long fast_peer_process(int fd) {
  struct ucred who;
  socklen_t n = sizeof who;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.pid < 0 ? 0 : who.pid;
}

/* "[::1]" or "::1" or a name. */
static struct addrinfo *resolve(const char *host, int port, int flags) {
  char bare[256], service[16];
  snprintf(bare, sizeof bare, "%s", host[0] == '[' ? host + 1 : host);
  bare[strcspn(bare, "]")] = 0;
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found = NULL;
  return getaddrinfo(bare, service, &hints, &found) ? NULL : found;
}

void fast_tune_tcp(int fd) {
  int on = 1, silence = SILENCE_MS;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* What has been written and not been read stays in the nearer caches if it is little: 64 MB both ways at once between
 * two processes of one host took 34 ms with 128 KB (of which the system makes 256), 44 with 256 KB, 59 with 1 MB. (A
 * body that is not much more than that is better written at once.) What a line of 100 Gb/s carries in a round trip must
 * have room; where one takes so long that this is more than the most, it is as it always was. */
void fast_tune_sending(int fd, bool large) {
  enum { LEAST = 256 << 10, MOST = 1 << 20, BYTES_PER_US = 12500 };
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  bool known = large && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) &&
               n >= offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt && info.tcpi_min_rtt < MOST;
  int size = known ? MAX(MIN((int)info.tcpi_min_rtt, MOST / BYTES_PER_US) * BYTES_PER_US, LEAST) : MOST;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

int fast_bind_tcp(const char *host, int *port) {
  struct addrinfo *a = resolve(host, 0, AI_PASSIVE);
  if (!a) return -1;
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), off = 0;
  if (fd >= 0 && a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  struct sockaddr_storage got;
  socklen_t n = sizeof got;
  bool ok = fd >= 0 && !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 64) &&
            !getsockname(fd, (struct sockaddr *)&got, &n);
  freeaddrinfo(a);
  if (!ok) {
    if (fd >= 0) close(fd);
    return -1;
  }
  *port = ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                                          : ((struct sockaddr_in *)&got)->sin_port);
  return fd;
}

/* Connects without blocking for longer than the time left. */
static int dial(const struct addrinfo *a, int timeout_ms) {
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
  if (fd < 0) return -1;
  socklen_t n = sizeof err;
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  if (!connect(fd, a->ai_addr, a->ai_addrlen)) return fd;
  if (errno == EINPROGRESS && poll(&p, 1, timeout_ms) == 1 && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) && !err)
    return fd;
  close(fd);
  return -1;
}

int fast_dial_tcp(const char *host, int port) {
  struct addrinfo *found = resolve(host, port, 0);
  int fd = -1, tries = 2;
  for (struct addrinfo *a = found; a && fd < 0 && tries--; a = a->ai_next) fd = dial(a, FAST_DIAL_MS / 2);
  if (found) freeaddrinfo(found);
  if (fd >= 0) fast_tune_tcp(fd);
  return fd;
}

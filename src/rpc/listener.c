/* Sockets that listen; see listener.h. */
#include "rpc/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { MAX_SOCKETS = 8, BACKLOG = 1024, AT_ONCE = 64, PAUSE_MS = 100 };
static const int64_t SAY_NS = 5000000000;

struct listener {
  listener_fn fn;
  void *arg;
  struct rpc_timer resume; /* after there were no descriptors */
  int64_t said;            /* when that was last told */
  struct listening {
    struct rpc_watch watch;
    struct listener *of;
  } sockets[MAX_SOCKETS];
  int n;
};

static void say_full(struct listener *l) {
  int64_t now = clock_ns();
  if (l->said && now - l->said < SAY_NS) return;
  l->said = now;
  LOGW("no connections are taken in for a moment: %m");
}

static void on_connection(struct rpc_watch *w, uint32_t events) {
  struct listener *l = ((struct listening *)w)->of;
  for (int i = 0; i < AT_ONCE; i++) {
    int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      l->fn(l->arg, fd);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      say_full(l);
      l->fn(l->arg, -1);
      errno = EMFILE;
      for (int k = 0; k < l->n; k++) rpc_loop_rewatch(&l->sockets[k].watch, 0);
      rpc_timer_set(&l->resume, clock_ns() + (int64_t)PAUSE_MS * 1000000);
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

static void on_resume(struct rpc_timer *t) {
  struct listener *l = (struct listener *)((char *)t - offsetof(struct listener, resume));
  for (int k = 0; k < l->n; k++) rpc_loop_rewatch(&l->sockets[k].watch, EPOLLIN);
}

static int port_of(int fd) {
  struct sockaddr_storage a;
  socklen_t size = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &size) < 0) return 0;
  return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

static void set_port(struct sockaddr *a, int port) {
  if (a->sa_family == AF_INET6) ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
  else ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

/* A socket that listens at an address; -1 with errno. [::] takes IPv4 in, too. */
static int listen_at(struct addrinfo *a, int port) {
  set_port(a->ai_addr, port);
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
  if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int err = errno;
  close(fd);
  errno = err;
  return -1;
}

shoal_status listener_open(const char *host, int *port, listener_fn fn, void *arg, struct listener **out) {
  char bare[256];
  snprintf(bare, sizeof bare, "%s", host[0] == '[' ? host + 1 : host);
  bare[strcspn(bare, "]")] = 0;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  int err = getaddrinfo(bare, NULL, &hints, &found);
  if (err)
    return STATUS(SHOAL_UNKNOWN, "Could not start gRPC server: the address %s:%d cannot be resolved (%s)", host, *port,
                  gai_strerror(err));
  struct listener *l = mem_zalloc(1, sizeof *l);
  l->fn = fn;
  l->arg = arg;
  l->resume.fn = on_resume;
  int why = 0;
  for (struct addrinfo *a = found; a && l->n < MAX_SOCKETS; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    int fd = listen_at(a, *port);
    /* A machine without IPv6 has no [::]. */
    if (fd < 0 && errno == EAFNOSUPPORT && strcmp(bare, "::") == 0) {
      struct sockaddr_in any = {.sin_family = AF_INET};
      fd = listen_at(
          &(struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&any, .ai_addrlen = sizeof any},
          *port);
    }
    if (fd < 0) {
      why = errno;
      if (why == EADDRINUSE) break;
      continue;
    }
    l->sockets[l->n++] = (struct listening){{.fn = on_connection, .fd = fd}, l};
    if (!*port) *port = port_of(fd);
  }
  freeaddrinfo(found);
  if (!l->n || why == EADDRINUSE) {
    for (int i = 0; i < l->n; i++) close(l->sockets[i].watch.fd);
    free(l);
    errno = why;
    return STATUS(SHOAL_UNKNOWN, "Could not start gRPC server: %s:%d: %m (%s)", host, *port,
                  why == EACCES          ? "ports below 1024 are the system's: choose another"
                  : why == EADDRNOTAVAIL ? "this machine does not have that address"
                                         : "is another server running there? choose another port or stop it");
  }
  *out = l;
  return NULL;
}

struct listener *listener_of(int fd, listener_fn fn, void *arg) {
  struct listener *l = mem_zalloc(1, sizeof *l);
  *l = (struct listener){.fn = fn, .arg = arg, .resume.fn = on_resume, .n = 1};
  l->sockets[0] = (struct listening){{.fn = on_connection, .fd = fd}, l};
  return l;
}

void listener_begin(struct listener *l) {
  for (int i = 0; i < l->n; i++) MUST(rpc_loop_watch(&l->sockets[i].watch, EPOLLIN));
}

void listener_close(struct listener *l) {
  if (!l) return;
  rpc_timer_clear(&l->resume);
  for (int i = 0; i < l->n; i++) {
    rpc_loop_unwatch(&l->sockets[i].watch);
    close(l->sockets[i].watch.fd);
  }
  free(l);
}

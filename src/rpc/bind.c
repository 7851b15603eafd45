/* See bind.h. */
#include "rpc/bind.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 256 };

static int listen_at(const struct addrinfo *a) {
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int err = errno;
  close(fd);
  errno = err;
  return -1;
}

static int listen_at_any(int port) {
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  return listen_at(
      &(struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&any, .ai_addrlen = sizeof any});
}

shoal_status bind_and_listen(const char *host, int port, const char *what, int *fd, int *bound) {
  char bare[256], service[16];
  snprintf(bare, sizeof bare, "%s", host[0] == '[' ? host + 1 : host);
  bare[strcspn(bare, "]")] = 0;
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  int err = getaddrinfo(bare, service, &hints, &found);
  if (err) return INVALID("the host %s (%s) cannot be resolved: %s", host, what, gai_strerror(err));
  *fd = listen_at(found);
  if (*fd < 0 && errno == EAFNOSUPPORT && !strcmp(bare, "::")) *fd = listen_at_any(port); /* there is no IPv6 */
  err = errno;
  freeaddrinfo(found);
  if (*fd < 0)
    return ERRNO_STATUS(err, "nobody can listen at %s:%d (%s): choose another port, or 0 for a free one", host, port,
                        what);
  struct sockaddr_storage a;
  getsockname(*fd, (struct sockaddr *)&a, &(socklen_t){sizeof a});
  *bound =
      ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
  return NULL;
}

/* Ports for the servers that a unit test starts in its own process. */
#ifndef UNIT_PORTS_H
#define UNIT_PORTS_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

/* A port of the loopback interface that nobody listens on now. */
static inline int free_port(void) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
  close(fd);
  return ntohs(a.sin_port);
}

#endif

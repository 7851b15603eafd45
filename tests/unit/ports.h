/* Ports for the servers that a unit test starts in its own process. */
#ifndef UNIT_PORTS_H
#define UNIT_PORTS_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "unit.h"

/* Nobody else's: as tests/cluster/cluster.py and src/cli/launch_cluster.c do it, the port is claimed by the name of a
 * socket that stays open as long as this process. */
static inline bool claim_port(int port) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "shoal-launch-port-%d", port);
  int claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  bool ok =
      bind(claim, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 &&
      bind(probe, (struct sockaddr *)&a, sizeof a) == 0;
  close(probe);
  if (!ok) close(claim);
  return ok;
}

/* A port that nobody listens on, and that the system does not give to whoever connects: below its own range. */
static inline int free_port(void) {
  static int next;
  enum { FIRST = 20000, LAST = 32768 };
  if (!next) next = FIRST + (int)((unsigned)getpid() * 7919u % (LAST - FIRST));
  for (int i = 0; i < LAST - FIRST; i++) {
    int port = next;
    next = next + 1 < LAST ? next + 1 : FIRST;
    if (claim_port(port)) return port;
  }
  fail_msg("no free ports");
  return 0;
}

#endif

/* The bytes of one input as a file in memory, for parsers that open theirs by path. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A path of this process. */
static inline const char *fuzz_path(const char *target) {
  static char path[64];
  if (!path[0]) snprintf(path, sizeof path, "/dev/shm/%s.%d", target, (int)getpid());
  return path;
}

static inline void fuzz_put(const char *path, const uint8_t *data, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
  close(fd);
}

#endif

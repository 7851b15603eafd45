/* A checkpoint from anyone. The first two bytes say how long the index is; the rest is the data file. Opening, listing
 * and reading every tensor gives values or named errors. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/bundle.h"

static void put(const char *path, const uint8_t *data, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char prefix[64];
  if (!prefix[0]) snprintf(prefix, sizeof prefix, "/dev/shm/bundle_fuzz.%d", (int)getpid());
  if (size < 2) return 0;
  size_t index = (size_t)(data[0] | data[1] << 8);
  if (index > size - 2) index = size - 2;
  char *index_path = bundle_index_path(prefix), *data_path = bundle_data_path(prefix, 0, 1);
  put(index_path, data + 2, index);
  put(data_path, data + 2 + index, size - 2 - index);
  struct bundle b;
  shoal_status s = bundle_open(&b, prefix);
  for (size_t i = 0; !s && i < b.items.n; i++) {
    struct tensor t;
    shoal_status r = bundle_read(&b, b.items.at[i].key, b.items.at[i].key_n, &t);
    if (!r) tensor_release(&t);
    shoal_status_free(r);
  }
  if (!s) bundle_close(&b);
  shoal_status_free(s);
  unlink(index_path);
  unlink(data_path);
  free(index_path);
  free(data_path);
  return 0;
}

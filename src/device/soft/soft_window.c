/* Windows of the soft device: sealed memory (base/sealed.h), which any process of the user may map. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sealed.h"
#include "device/soft/soft.h"

struct soft_handle {
  uint64_t pid, fd, inode;
};
_Static_assert(sizeof(struct soft_handle) <= DEVICE_HANDLE, "there is room");

struct soft_mapping {
  void *at;
  size_t size;
  int fd; /* of who made it; -1 */
};

static void unmap(struct buffer *b) {
  struct soft_mapping *m = b->owner;
  munmap(m->at, m->size);
  if (m->fd >= 0) close(m->fd);
  free(m);
}

/* Becomes a tensor of the device. */
static shoal_status show(struct device *d, const char *who, void *at, size_t bytes, int fd, struct tensor *out) {
  struct soft_mapping *m = mem_zalloc(1, sizeof *m);
  struct buffer *memory, *b;
  *m = (struct soft_mapping){at, bytes, fd};
  memory = buffer_wrap(at, bytes, NULL, unmap, m);
  shoal_status s = soft_window(d, who, memory, &b);
  if (s) {
    buffer_unref(memory);
    return s;
  }
  *out = (struct tensor){
      .buffer = b, .data = b->data, .dtype = SHOAL_UINT8, .rank = 1, .n = (int64_t)bytes, .dims = {(int64_t)bytes}};
  return NULL;
}

shoal_status soft_window_new(struct device *d, const char *who, size_t bytes, struct tensor *out,
                             struct device_handle *handle) {
  struct soft_handle h = {.pid = (uint64_t)getpid()};
  int fd;
  void *at = sealed_new("shoal-window", bytes, &fd, &h.inode);
  if (!at) return UNIMPLEMENTED("the system has no memory that processes can share");
  h.fd = (uint64_t)fd;
  memset(handle, 0, sizeof *handle);
  memcpy(handle->bytes, &h, sizeof h);
  return show(d, who, at, bytes, fd, out);
}

shoal_status soft_window_open(struct device *d, const struct device_handle *handle, size_t bytes, struct tensor *out) {
  struct soft_handle h;
  memcpy(&h, handle->bytes, sizeof h);
  void *at = sealed_open(h.pid, h.fd, h.inode, bytes);
  if (!at) return UNIMPLEMENTED("the memory of another process cannot be had");
  return show(d, NULL, at, bytes, -1, out);
}

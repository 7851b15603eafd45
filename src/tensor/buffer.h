/* Buffers: reference-counted memory behind tensors, 64-byte aligned.
 *
 * Host buffers come from a cache of size classes (a list per thread for small blocks, shared lists for the
 * rest), so that a step of static shapes takes no memory from the system after its first run. Memory that
 * others own (a received message, a mapped file, a device's memory) is wrapped with a release function. */
#ifndef TENSOR_BUFFER_H
#define TENSOR_BUFFER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ref.h"
#include "base/status.h"
#include "shoal/tensor.h"

struct device; /* device/device.h: NULL stands for host memory */

struct buffer {
  struct ref refs;
  uint16_t size_class; /* host cache's class; BUFFER_FOREIGN when release is set */
  uint8_t elements_of; /* 0, or the dtype whose elements must be destroyed (string, resource, variant) */
  void *data;
  size_t size;                       /* bytes asked for */
  struct device *device;             /* whose memory; NULL: host */
  void (*release)(struct buffer *b); /* NULL: host cache */
  void *owner;                       /* for release */
};

/* size bytes of host memory, contents undefined. RESOURCE_EXHAUSTED when there is no memory, or when all buffers
 * together would take more than the machine has: an overcommitting system would promise it and kill the process
 * later. */
shoal_status buffer_new(size_t size, struct buffer **out);
/* No buffer of more bytes is made: RESOURCE_EXHAUSTED. 0: what the machine has, which is the default. For the whole
 * process. */
void buffer_set_limit(size_t bytes);
/* Wraps foreign memory; release(b) is called with the last reference (it frees what owner holds, not b). */
struct buffer *buffer_wrap(void *data, size_t size, struct device *device, void (*release)(struct buffer *),
                           void *owner);
static inline struct buffer *buffer_ref(struct buffer *b) {
  if (b) ref_take(&b->refs);
  return b;
}
void buffer_free_(struct buffer *b);
static inline void buffer_unref(struct buffer *b) {
  if (!b) return;
  if (ref_drop_own(&b->refs)) buffer_free_(b);
}
static inline int buffer_shared(const struct buffer *b) { return b && ref_count(&b->refs) > 1; }

/* How often the cache asked the system for memory, and the bytes it holds (in use and cached): for tests,
 * status pages and the allocation count of the steady state. */
uint64_t buffer_system_allocs(void);
size_t buffer_bytes_in_use(void);
size_t buffer_bytes_cached(void);
/* Gives cached blocks back to the system. */
void buffer_trim(void);

#endif

/* Devices: where memory lives and kernels run. The CPU is the one implementation there is. Kernels and executors take
 * memory from tensor/buffer.h; the table's functions for memory, copies and streams are called by nobody yet:
 *
 * Work on a device may be asynchronous: a kernel's run() may return when its work is only queued on the
 * device's stream. An executor shall order such work by stream, and call `sync` (or copy out, which implies it)
 * before the host looks at results. On the CPU all of this is immediate. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "base/device_name.h"
#include "tensor/tensor.h"

struct device;

struct device_ops {
  const char *type; /* "CPU", "GPU" */
  /* Memory of the device; the buffer's device field is set. */
  shoal_status (*alloc)(struct device *d, size_t size, struct buffer **out);
  /* Tensors between host and device, and within one; done may be called later, from any thread. */
  void (*to_host)(struct device *d, const struct tensor *from, struct tensor *to, void (*done)(void *, shoal_status),
                  void *arg);
  void (*from_host)(struct device *d, const struct tensor *from, struct tensor *to, void (*done)(void *, shoal_status),
                    void *arg);
  /* (optional) Waits for all queued work. */
  shoal_status (*sync)(struct device *d);
  /* (optional) Calls fn when the work queued so far is done. */
  void (*when_done)(struct device *d, void (*fn)(void *), void *arg);
  void (*free)(struct device *d);
};

struct device {
  const struct device_ops *ops;
  char *name;           /* "/job:localhost/replica:0/task:0/device:CPU:0" */
  int ordinal;          /* the 0 at its end */
  uint64_t incarnation; /* drawn at start, never 0 */
  int task_devices;     /* of its type in its task; 1 unless whoever makes them says otherwise */
  int64_t memory_limit;
  struct pool *intra;             /* for loops inside kernels; shared between devices of a process */
  bool host;                      /* its memory is host memory and kernels finish before run() returns */
  void *stream;                   /* the implementation's */
  const struct file_roots *files; /* base/file_root.h: what kernels here may open; NULL: anything */
};

/* A logical CPU. The pool stays the caller's. */
struct device *device_cpu_new(const char *task_name, int ordinal, struct pool *intra);
void device_free(struct device *d);

#endif

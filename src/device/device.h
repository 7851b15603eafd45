/* Devices: where memory lives and kernels run. The CPU is one implementation, CUDA another; nothing above asks
 * which, it goes through the table.
 *
 * Work on a device may be asynchronous: a kernel's run() may return when its work is only queued on the
 * device's stream. The executor orders such work by stream, and calls `sync` (or copies out, which implies it)
 * before the host looks at results. On the CPU all of this is immediate. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "tensor/tensor.h"

struct device;

struct device_ops {
  const char *type; /* "CPU", "GPU" */
  /* Memory of the device; the buffer's device field is set. */
  shoal_status (*alloc)(struct device *d, size_t size, struct buffer **out);
  /* Tensors between host and device, and within one; done may be called later, from any thread. */
  void (*to_host)(struct device *d, const struct tensor *from, struct tensor *to, void (*done)(void *, shoal_status),
                  void *arg);
  void (*from_host)(struct device *d, const struct tensor *from, struct tensor *to,
                    void (*done)(void *, shoal_status), void *arg);
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
  int64_t memory_limit;
  struct pool *intra;   /* for loops inside kernels; shared between devices of a process */
  bool host;            /* its memory is host memory and kernels finish before run() returns */
  void *stream;         /* the implementation's */
};

/* A logical CPU. The pool stays the caller's. */
struct device *device_cpu_new(const char *task_name, int ordinal, struct pool *intra);
void device_free(struct device *d);

/* ---- device names ---- */

/* A parsed, possibly partial name: what is absent has has_x false. Old forms ("/cpu:0", "/gpu:1") are understood. */
struct device_spec {
  bool has_job, has_replica, has_task, has_type, has_id;
  char job[64];
  int replica, task, id;
  char type[32]; /* upper case */
};
shoal_status device_spec_parse(const char *name, struct device_spec *out);
/* "/job:a/replica:0/task:1/device:CPU:0", with the parts there are. Long enough: 192 bytes. */
void device_spec_print(const struct device_spec *s, char *out, size_t size);
/* Every part that `want` names is the same in `have`. */
bool device_spec_matches(const struct device_spec *want, const struct device_spec *have);
/* Parts of `over` win; the rest stays. */
void device_spec_merge(struct device_spec *into, const struct device_spec *over);
/* Sets the parts of `into` that are absent; false when both have a part and differ. */
bool device_spec_fill(struct device_spec *into, const struct device_spec *from);

#endif

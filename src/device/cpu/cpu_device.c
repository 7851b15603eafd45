/* The CPU as a device: host memory, work done when a call returns. Several logical CPUs may share a machine. */
#include <stdlib.h>
#include <sys/random.h>

#include "base/mem.h"
#include "device/device.h"

static shoal_status cpu_alloc(struct device *d, size_t size, struct buffer **out) { return buffer_new(size, out); }

/* Host to host: the tensor itself travels. */
static void cpu_share(struct device *d, const struct tensor *from, struct tensor *to,
                      void (*done)(void *, shoal_status), void *arg) {
  tensor_ref(to, from);
  done(arg, NULL);
}

static const struct device_ops cpu_ops = {
    .type = "CPU", .alloc = cpu_alloc, .to_host = cpu_share, .from_host = cpu_share};

struct device *device_cpu_new(const char *task_name, int ordinal, struct pool *intra) {
  struct device *d = mem_zalloc(1, sizeof *d);
  d->ops = &cpu_ops;
  d->name = mem_printf("%s/device:CPU:%d", task_name, ordinal);
  d->ordinal = ordinal;
  d->task_devices = 1;
  d->memory_limit = 256 << 20; /* what TensorFlow reports for a CPU; nothing is limited by it */
  d->intra = intra;
  d->host = true;
  while (!d->incarnation)
    if (getrandom(&d->incarnation, sizeof d->incarnation, 0) < 0) d->incarnation = (uint64_t)(uintptr_t)d;
  return d;
}

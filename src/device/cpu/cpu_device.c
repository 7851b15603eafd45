/* The CPU as a device: host memory, work done when a call returns. Several logical CPUs may share a machine. Its
 * kernels are those in the rows of the ops. */
#include "device/device.h"

static shoal_status cpu_alloc(struct device *d, size_t size, struct buffer **out) { return buffer_new(size, out); }

/* Host to host: the tensor itself travels. */
static void cpu_share(struct device *d, const struct tensor *from, struct tensor *to, device_done done, void *arg) {
  tensor_ref(to, from);
  done(arg, NULL);
}

static int cpu_count_of(int asked) { return asked > 0 ? asked : 1; }

static const struct device_ops cpu_ops = {.alloc = cpu_alloc, .to_host = cpu_share, .from_host = cpu_share};

DEVICE_TYPE(cpu) = {.name = "CPU",
                    .priority = 70,
                    .host = true,
                    .memory_limit = 256 << 20, /* what TensorFlow reports for a CPU; nothing is limited by it */
                    .ops = &cpu_ops,
                    .count = cpu_count_of};

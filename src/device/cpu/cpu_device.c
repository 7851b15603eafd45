/* The CPU as a device: host memory, work done when a call returns. Several logical CPUs may share a machine. Its
 * kernels are those in the rows of the ops. */
#include "device/device.h"

static int cpu_count_of(int asked) { return asked > 0 ? asked : 1; }

static const struct device_ops cpu_ops = {0}; /* nothing is to be copied or waited for */

static shoal_status cpu_start(struct device *d, const struct device_options *o) {
  d->memory_limit = 256 << 20; /* what TensorFlow reports for a CPU; nothing is limited by it */
  return NULL;
}

DEVICE_TYPE(cpu) = {
    .name = "CPU", .priority = 70, .host = true, .ops = &cpu_ops, .count = cpu_count_of, .start = cpu_start};

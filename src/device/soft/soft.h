/* The soft device: a GPU for machines without one, to prove that nothing reads a device's memory behind its back.
 *
 * It is there when SHOAL_SOFT_GPUS=N is in the environment, N devices a task; for tests alone: it is slower than the
 * CPU whose kernels it borrows, and gains nothing. Without the variable nobody sees it.
 *
 * Memory: a block of the host's behind an address that is not the host's: bit 55 is set, where user space ends on every
 * processor we run on. Whoever reads it without asking the device dies at once, under any sanitizer or none. Streams
 * are threads: one computes, one copies, one tells who waits; what is queued on one runs in order. */
#ifndef DEVICE_SOFT_SOFT_H
#define DEVICE_SOFT_SOFT_H

#include "device/device.h"

struct soft_device {
  struct device host; /* a CPU of the same name, for the kernels that are borrowed */
  struct pool *compute, *copy, *events;
};

/* On a stream: a second reference to a value, which may be read. */
void soft_open(const struct tensor *from, struct tensor *to);
/* On a stream: host memory becomes the device's. A block is behind one buffer only, so that who has that to itself may
 * write into it: one that others share is copied. */
shoal_status soft_close(struct device *d, struct tensor *t);

const struct kernel_def *soft_borrow(const struct op *op);
extern const struct device_kernels soft_kernels[];

#endif

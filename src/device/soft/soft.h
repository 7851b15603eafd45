/* The soft device: a GPU for machines without one, to prove that nothing reads a device's memory behind its back.
 *
 * It is there when SHOAL_SOFT_GPUS=N is in the environment, N devices a task; for tests alone: it is slower than the
 * CPU whose kernels it borrows, and gains nothing. Without the variable nobody sees it.
 *
 * Memory: a block of the host's behind an address that is not the host's: bit 55 is set, where user space ends on every
 * processor we run on. Whoever reads it without asking the device dies at once, under any sanitizer or none. Streams
 * are threads: one computes, one copies in, one copies out, one tells who waits; what is queued on one runs in order.
 * One waits for another by an event, which a buffer has (`ready`) while work that writes it may be queued. Work waits
 * only for what was queued before it, so streams that wait for each other never do so in a circle. */
#ifndef DEVICE_SOFT_SOFT_H
#define DEVICE_SOFT_SOFT_H

#include "device/device.h"

struct soft_device {
  struct device host; /* a CPU of the same name, for the kernels that are borrowed */
  struct pool *compute, *in, *out, *events;
};

/* Something that a stream will have done. */
struct soft_event;
struct soft_event *soft_event_new(void);
struct soft_event *soft_event_ref(struct soft_event *e);
void soft_event_unref(struct soft_event *e);
void soft_event_set(struct soft_event *e);
void soft_event_wait(struct soft_event *e); /* on a stream; NULL: nothing to wait for */

/* For work about to be queued that writes a tensor of the device, which is the caller's alone: what it must wait for
 * (a reference, or NULL), and the event that it sets then (a reference; the buffer has another). */
struct soft_turn {
  struct soft_event *before, *after;
};
struct soft_turn soft_write(const struct tensor *t);
void soft_turn_begin(struct soft_turn *turn);
void soft_turn_end(struct soft_turn *turn);

/* On a stream: a second reference to a value, which may be read: all that was queued to write it has been done. */
void soft_open(const struct tensor *from, struct tensor *to);
/* On a stream: where the bytes of a tensor of the device are. */
void *soft_data(const struct tensor *t);
/* On a stream: host memory becomes the device's. A block is behind one buffer only, so that who has that to itself may
 * write into it: one that others share is copied. */
shoal_status soft_close(struct device *d, struct tensor *t);

const struct kernel_def *soft_borrow(const struct op *op);
extern const struct device_kernels soft_kernels[];

#endif

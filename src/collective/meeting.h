/* Where the members of a collective op meet: devices that each bring a tensor and each take a result.
 *
 *   group      a set of devices, by group_key; the first group_size that come are its members for the step
 *   instance   one operation of a group, by instance_key (and frame and iteration, inside loops)
 *   member     one device's part in an instance
 *   rank       a member's place in its group: devices in order of name, whatever the order they came in
 *
 * A meeting is one step's. Nobody waits in it on a thread: a member is handed in, and called back when the last of its
 * instance has come, when its step is cancelled, or when its time-out is over. The one that comes last does the work
 * for all (exchange.h).
 *
 * All members of a group are devices of one task, that is of this process: a group that has more members than the task
 * has devices is refused at once. Groups of several tasks meet elsewhere (site.h). */
#ifndef COLLECTIVE_MEETING_H
#define COLLECTIVE_MEETING_H

#include "base/alarm.h"
#include "base/cancel.h"
#include "collective/arithmetic.h"
#include "collective/orders.h"
#include "device/device.h"
#include "tensor/tensor.h"

enum collective_kind { /* TensorFlow's numbers */
                       COLLECTIVE_REDUCE,
                       COLLECTIVE_BROADCAST,
                       COLLECTIVE_GATHER,
                       COLLECTIVE_ALL_TO_ALL = 4,
                       COLLECTIVE_REDUCE_SCATTER,
                       COLLECTIVE_JOIN, /* nothing but to be in the group */
};

/* Filled and owned by whoever joins; lives until done is called. */
struct collective_member {
  const char *name; /* of the node, for errors */
  struct device *device;
  bool on_device; /* `in`, and what make() makes, is in the memory of its device, which is not the host's */
  enum collective_kind kind;
  int group_size, group_key, instance_key;
  int rank; /* which it claims; -1: by the name of its device */
  int64_t step;
  uint64_t frame, iter;
  shoal_dtype dtype;
  struct shape shape;      /* of the result */
  bool is_source;          /* of a broadcast */
  int algorithm;           /* schedule.h; -1: the cheapest. Used among Shoal's tasks */
  shoal_dtype wire;        /* BFLOAT16: of float32 messages are of that (parcels.h); 0: as values are */
  double timeout_s;        /* 0: none */
  struct order_held holds; /* what its device comes to after it, as far as that is known; the node's */
  const struct collective_arithmetic *arithmetic;
  const struct tensor *in; /* NULL for those who receive a broadcast */
  struct cancel *cancel;
  /* Makes the tensor for a result, which other members may share, in place of `in` where that can be. */
  shoal_status (*make)(struct collective_member *m, struct tensor *out);
  /* Called exactly once, from any thread, with no lock held; result (NULL with an error) is to be taken over. */
  void (*done)(struct collective_member *m, shoal_status s, struct tensor *result);

  /* the meeting's own */
  struct meeting *meeting;
  struct meeting_instance *instance; /* meeting's lock: NULL once it is decided how the wait ends */
  struct collective_member *next;    /* of those who come together */
  shoal_status refusal;
  struct cancel_hook hook;
  struct alarm alarm;
  struct order_wait order; /* meeting's lock */

  struct { /* under_way.h's own */
    struct collective_member *prev, *next;
    bool way; /* it has entered */
  } under;
};

struct meeting *meeting_new(void);
/* Nobody waits in it any more. */
void meeting_free(struct meeting *m);
/* May call done before it returns. */
void meeting_join(struct meeting *m, struct collective_member *member);

#endif

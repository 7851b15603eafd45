/* Devices: where memory lives and kernels run.
 *
 * A type of device is a folder, src/device/TYPE/, that exports one row with DEVICE_TYPE; the build gathers the rows in
 * device_types[], and nothing else lists them. A row says how many devices of the type a task has, how to start one,
 * and which kernels it brings. The CPU is one such row; its kernels stand in the rows of the ops.
 *
 * Memory: a buffer says whose it is (tensor/buffer.h). The host may read a tensor's data only when that is nobody's but
 * its own. Values go from one memory to the other by to_host and from_host, at the edges that runtime/memory_edges.c
 * finds: kernels say which of their arguments are in host memory whatever the device.
 *
 * Order: a kernel's run() may return when its work is only queued, and so does from_host. Who comes later sees what was
 * queued before: within a queue by its order, across the queues of a device (computing, copies in, copies out) by the
 * type's own marks, which belong to the memory: whoever gets memory whose last reference went while work that uses it
 * was queued writes after that work. So nobody on a device waits for another, and queued work needs no reference; the
 * host waits in to_host, whose `done` says that it has the value, and at the end of a step, in when_done.
 * Work whose results (or shapes) the host must know before it can go on is a kernel with start(). An error that queued
 * work finds goes to the step (step_fail_late), which does not end before that work has. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/device_name.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/vec.h"
#include "tensor/strided.h"

struct device;
struct device_gate; /* device/gate.h */
struct kernel_def;  /* runtime/kernel.h */
struct op;          /* graph/op.h */

typedef void (*device_done)(void *arg, shoal_status s);

/* Work that was queued once and is kept, to be queued again as a whole. */
struct device_capture {         /* the head of a type's own */
  VEC(struct buffer *) feeds;   /* memory of the host that its copies in read, in their order */
  VEC(struct buffer *) fetches; /* the same of copies at the end, which write it */
};

/* Values of several devices on one card, merged element by element into one, which each `out` gets. They are added in
 * the order of pairs (collective/schedule.h), so that the bits are those of the CPU. */
enum device_merge { DEVICE_ADD, DEVICE_MUL, DEVICE_MAX, DEVICE_MIN };
enum { MOST_MERGED = 64 };
struct device_merging {
  enum device_merge merge;
  int mean_of;                     /* the result is divided by so many; 0: it is not */
  int n_in, n_out;                 /* at most MOST_MERGED */
  const struct tensor *const *in;  /* plain numbers; each has as many elements as each other and each out */
  const struct tensor *const *out; /* the caller's alone; one may be an `in`, and then is no part of it */
};

/* By which other processes of this host find a window: memory of a device that they may open. */
enum { DEVICE_HANDLE = 64 };
struct device_handle {
  uint8_t bytes[DEVICE_HANDLE];
};

struct device_ops { /* but for free(), not asked of devices whose memory is the host's */
  /* Memory of the device; the buffer's device field is set. `who` is the node that wants it: where there is no room,
   * RESOURCE_EXHAUSTED says who has it (device/memory.h). */
  shoal_status (*alloc)(struct device *d, const char *who, size_t size, struct buffer **out);
  /* A value of the device for the host: *to becomes a tensor of its memory. done is called once, from any thread,
   * perhaps before it returns; from and to stay valid until then. */
  void (*to_host)(struct device *d, const struct tensor *from, struct tensor *to, device_done done, void *arg);
  /* (optional) The same for a value that nobody reads before the step ends: *to is memory of the host at once, and has
   * the value when all that was queued by then is over. It may go before. */
  shoal_status (*to_host_at_end)(struct device *d, const struct tensor *from, struct tensor *to);
  /* A value of the host for the device: *to is there for whatever the device does from now on. The bytes of `from` are
   * held, and may be read until the step ends. */
  shoal_status (*from_host)(struct device *d, const char *who, const struct tensor *from, struct tensor *to);
  /* (optional) The same for a value of another device of the type in this process. */
  shoal_status (*from_peer)(struct device *d, const char *who, const struct tensor *from, struct tensor *to);
  /* (optional) Queues it, on one of the devices: after all that was queued on the others, and before all that will be.
   * UNIMPLEMENTED: not of this dtype. */
  shoal_status (*merge)(struct device *d, const struct device_merging *m);
  /* (optional) The same for devices that are each on a card of its own, by a library of the type's, which adds in an
   * order of its own: d[i] has in[i] and gets out[i], which may be it. UNIMPLEMENTED: the library is not there, or has
   * no such. */
  shoal_status (*merge_across)(struct device *const *d, const struct device_merging *m);
  /* (optional, both or none) A window of so many bytes, a tensor of uint8; and another's, in this process or another
   * of the host: what a stranger says it is is looked at. Its owner must outlive those who use it; nothing orders what
   * they do but their waiting for each other (finish). UNIMPLEMENTED: memory cannot be shared so, here or with that. */
  shoal_status (*window_new)(struct device *d, const char *who, size_t bytes, struct tensor *out,
                             struct device_handle *handle);
  shoal_status (*window_open)(struct device *d, const struct device_handle *handle, size_t bytes, struct tensor *out);
  /* Queues, in the order of what computes: all of a value of the device goes to a place, in bytes, of another, or one
   * becomes zeros. What is written is the caller's alone. */
  void (*copy)(struct device *d, const struct tensor *from, const struct tensor *to, size_t at);
  void (*zero)(struct device *d, const struct tensor *t);
  /* The same of elements of one value, from element from_at on, to those of another: plain ones of any size. */
  shoal_status (*copy_view)(struct device *d, const struct strided *s, const struct tensor *to, int64_t to_at,
                            const struct tensor *from, int64_t from_at);
  /* Tells when all that has been queued by now is over: once, from any thread. An error is one of the device itself,
   * which nobody else was told of. */
  void (*when_done)(struct device *d, device_done done, void *arg);
  /* (optional) The same for a thread that has nothing else to do: it comes back then. */
  shoal_status (*finish)(struct device *d);
  /* (optional, all or none) From begin to end what this thread queues is kept instead of done, with the memory it takes
   * meanwhile; values it makes have no contents. The gate is shut (device/gate.h). from_host takes the bytes at once,
   * and what it reads again in a replay is in `feeds`; to_host_at_end is for the end of each replay. A replay queues
   * all of it, after what was queued before, which may be replays of the same. On an error free() is all that may
   * follow. */
  shoal_status (*capture_begin)(struct device *d, struct device_capture **out);
  shoal_status (*capture_end)(struct device *d, struct device_capture *c);
  shoal_status (*replay)(struct device *d, struct device_capture *c);
  void (*capture_free)(struct device *d, struct device_capture *c);
  void (*free)(struct device *d); /* (optional) what start() made; nothing runs there any more */
};

struct device_kernels { /* a row of a type's own table: kernels of an op, best first, ended by {0} */
  const char *op;       /* NULL ends the table */
  const struct kernel_def *kernels;
};

/* What the ConfigProto of a session, or of a server, says of devices that have memory of their own (gpu_options). Which
 * cards there are, and in which order, is settled before a type is asked to start a device: it finds the card's number
 * in the device. */
enum { MOST_VIRTUAL = 64, MOST_CARDS = 64, VISIBLE_TEXT = 256 };
struct virtual_device {
  int card;       /* in the order of those that are used */
  int64_t memory; /* bytes */
};
struct device_options {
  double memory_fraction; /* how much of a card's memory a device may take; 0: the type knows */
  bool allow_growth; /* a device takes memory as it needs it; else a type may take all that it may have at the start.
                      * Neither the soft device nor NVIDIA's cards take anything beforehand either way */
  char visible[VISIBLE_TEXT]; /* "2,0": the cards that are used, in the order of their devices; "": all */
  struct virtual_device virtual_devices[MOST_VIRTUAL]; /* several devices on one card; those without any have one */
  int n_virtual, n_cards;                              /* n_cards: so many cards were spoken of */
  bool across; /* sums over devices on different cards are the type's library's (merge_across): NCCL's */
};

struct device_type {
  const char *name; /* "CPU", "GPU" */
  int priority;   /* a node goes to the device of the highest that has a kernel for it; TensorFlow's: CPU 70, GPU 210 */
  bool host;      /* its memory is host memory, and kernels finish before run() returns */
  bool stands_in; /* takes the place of another type of this name, when it has any devices */
  const struct device_ops *ops;
  const struct device_kernels *kernels; /* NULL: none */
  const struct kernel_def *(*more_kernels)(
      const struct op *op); /* (optional) asked for ops that are not in the table */
  /* (optional) The CPU's, over the host's memory: for nodes that ask for this type and would get no kernel otherwise.
   * Nothing is placed on a device for their sake. */
  const struct kernel_def *(*lent)(const struct op *op);
  int (*count)(int asked);       /* how many cards a task has when so many were asked for; asked -1: nothing was said */
  const char *(*why_none)(void); /* (optional) why there are none here: a constant */
  const char *(*why_apart)(void); /* (optional) why merge_across has no library here: a constant; NULL: it has */
  /* (optional) Sets d->impl and d->description; and d->memory_limit, where that is 0. */
  shoal_status (*start)(struct device *d, const struct device_options *o);
};
#define DEVICE_TYPE(folder) const struct device_type device_type_##folder

extern const struct device_type *const device_types[]; /* made by the build; NULL ends it */
/* NULL: there are no devices of that type here, and what others have is not known. */
const struct device_type *device_type_find(const char *name);
/* The same of a table: for tests. */
const struct device_type *device_type_among(const struct device_type *const *types, const char *name);
/* The type whose memory is the host's: the CPU. */
const struct device_type *device_type_host(void);
/* Of the type of that name, known here or not. */
int device_type_priority(const char *name);

struct device {
  const struct device_type *type;
  char *name;                     /* "/job:localhost/replica:0/task:0/device:CPU:0" */
  int ordinal;                    /* the 0 at its end */
  int card;                       /* which of the type's it is on: the ordinal, unless device_options say otherwise */
  int64_t memory_limit;           /* bytes that it may take; the CPU says what TensorFlow's does, and heeds nothing */
  char *description;              /* physical_device_desc, on the heap; NULL: none */
  uint64_t incarnation;           /* drawn at start, never 0 */
  int task_devices;               /* of its type in its task */
  bool across;                    /* as device_options say */
  struct pool *intra;             /* for loops inside kernels; shared between devices of a process */
  void *impl;                     /* the type's */
  struct device_gate *gate;       /* of steps; NULL: its memory is the host's */
  atomic_bool lost;               /* nothing will run there any more, until the process is started again */
  struct budget windows;          /* bytes in which other tasks are shown values, of all connections */
  const struct file_roots *files; /* base/file_root.h: what kernels here may open; NULL: anything */
};

/* One device, the only one of its type in its task. The pool stays the caller's. */
shoal_status device_new(const char *type, const char *task, int ordinal, struct pool *intra, struct device **out);
void device_free(struct device *d);

/* A tensor in a device's memory, for the node of that name; its contents are undefined. */
shoal_status device_tensor_new(struct device *d, const char *who, shoal_dtype dtype, const struct shape *shape,
                               struct tensor *out);
/* A value in host memory, wherever it was: waits for its device. Not for threads that a device waits for, nor with a
 * lock that its work may want. */
shoal_status device_to_host(const struct tensor *from, struct tensor *to);

struct device_count {
  const char *type;
  int n;
};
/* "GPU=2,CPU=4": so many of each. The types are those there are here, and there are so many. At most `most` of them. */
shoal_status device_counts_parse(const char *text, struct device_count *out, int most, int *n);
/* How many of a type were asked for; -1: nothing was said. */
int device_asked(const struct device_type *type, const struct device_count *asked, int n);
/* Can a task that asks for so many have these? In TensorFlow's words (device_options.c). */
shoal_status device_options_check(const struct device_options *o, const struct device_count *asked, int n_asked);
/* The cards that a task uses when it asks for so many (-1: all), of options that were checked; returns how many. Of a
 * type whose memory is the host's they are counted only. */
int device_cards(const struct device_type *type, const struct device_options *o, int asked, int cards[MOST_CARDS]);
/* The devices of a task: of each type as many as were asked for, or as it has by itself; hosts first, so that the first
 * of all is one. A device that does not start is left out, with a warning that says why. options NULL: none. */
struct device **devices_new(const char *task, const struct device_count *asked, int n_asked,
                            const struct device_options *options, struct pool *intra, int *n);

#endif

/* The soft device: a GPU for machines without one, to prove that nothing reads a device's memory behind its back.
 *
 * It is there when SHOAL_SOFT_GPUS=N is in the environment, N devices a task; for tests alone: it is slower than the
 * CPU whose kernels it borrows, and gains nothing. Without the variable nobody sees it.
 *
 * Memory: a block of the host's behind an address that is not the host's: bit 55 is set, where user space ends on every
 * processor we run on. Whoever reads it without asking the device dies at once, under any sanitizer or none. Streams
 * are threads: one computes, one runs the CPU's kernels, one copies in, one copies out, one tells who waits; what is
 * queued on one runs in order.
 * One waits for another by an event, which a block has while work that uses it may be queued (soft_memory.c). Work
 * waits only for what was queued before it, so streams that wait for each other never do so in a circle.
 *
 * Where a type GPU of real cards is there too, this one takes its place when the variable is set, and only then. */
#ifndef DEVICE_SOFT_SOFT_H
#define DEVICE_SOFT_SOFT_H

#include "device/device.h"

struct soft_memory;

struct soft_device {
  struct device host; /* a CPU of the same name, for the kernels that are borrowed */
  struct pool *compute, *borrowed, *in, *out, *events;
  struct soft_memory *memory;
};

struct soft_memory *soft_memory_new(int64_t limit);
void soft_memory_free(struct soft_memory *m); /* when nothing is queued any more */

/* For the node of that name. What was queued to use the memory before is waited for by who takes a turn to write. */
shoal_status soft_alloc(struct device *d, const char *who, size_t size, struct buffer **out);

/* A buffer of the device over memory of the host's, which is taken over: of a window, that somebody else may have too.
 * who: it counts as that node's; NULL: as nobody's. On an error it stays the caller's. */
shoal_status soft_window(struct device *d, const char *who, struct buffer *memory, struct buffer **out);
/* The type's (soft_window.c). */
shoal_status soft_window_new(struct device *d, const char *who, size_t bytes, struct tensor *out,
                             struct device_handle *handle);
shoal_status soft_window_open(struct device *d, const struct device_handle *handle, size_t bytes, struct tensor *out);

struct soft_event; /* something that a stream will have done */
/* The turn of work about to be queued, which has an address of the device and need not have a reference: what it must
 * wait for, and what it sets then. */
struct soft_turn {
  struct soft_event *before[2], *after;
};
/* To write a tensor, which is the caller's alone. */
struct soft_turn soft_write(const struct tensor *t);
/* To read one, on the stream that computes. */
struct soft_turn soft_read(const struct tensor *t);
/* To read one on any stream, by who holds a reference to it. */
struct soft_turn soft_turn_after(const struct tensor *t);
void soft_turn_begin(struct soft_turn *turn);
void soft_turn_end(struct soft_turn *turn);

/* A turn that waits for nothing: others are to come after it. */
struct soft_turn soft_turn_new(void);
/* The turn of a replay, which has many places to write and none to mark; and one to read after the last of them, on
 * another stream. */
void soft_replays_note(struct soft_memory *m, const struct soft_turn *turn);
struct soft_turn soft_turn_after_replays(struct soft_memory *m);

/* Work for the stream that computes (soft_capture.c): the head of somebody's own. */
enum { SOFT_TURNS = 5 };
struct soft_work {
  void (*run)(struct soft_work *w);  /* again and again, when it was captured */
  void (*drop)(struct soft_work *w); /* (optional) what it has beside its memory */
  struct soft_turn turns[SOFT_TURNS];
  int n_turns;
};
/* Before it is queued: what it will read and write. */
void soft_work_reads(struct soft_work *w, const struct tensor *t);
void soft_work_writes(struct soft_work *w, const struct tensor *t);
/* Takes it over: it runs, or is kept. */
void soft_queue(struct device *d, struct soft_work *w);

/* Does this thread capture what it queues on the device? Then: a block is the capture's, and copies in and at the end
 * are made by staged memory. */
bool soft_captures(const struct device *d);
void soft_capture_block(struct buffer *b);
/* The memory that the capture's plan has for the next value; NULL: it has none. */
struct buffer *soft_capture_place(size_t size);
shoal_status soft_capture_in(struct device *d, const struct tensor *from, const struct tensor *to);
void soft_capture_out(struct device *d, const struct tensor *from, const struct tensor *to);

/* The type's. */
shoal_status soft_capture_begin(struct device *d, struct device_capture **out);
shoal_status soft_capture_end(struct device *d, struct device_capture *of);
shoal_status soft_replay(struct device *d, struct device_capture *of);
void soft_capture_free(struct device *d, struct device_capture *of);
void soft_zero(struct device *d, const struct tensor *t);
shoal_status soft_merge(struct device *d, const struct device_merging *of); /* soft_merge.c */
shoal_status soft_merge_across(struct device *const *d, const struct device_merging *m);

/* On a stream: a second reference to a value, which may be read: all that was queued to write it has been done. */
void soft_open(const struct tensor *from, struct tensor *to);
/* Where the bytes of a tensor of the device are, for work on a stream. */
void *soft_data(const struct tensor *t);
/* Is the first what the second was opened to be? */
bool soft_is_of(const struct tensor *open, const struct tensor *t);
/* On a stream: host memory becomes the device's, by the node of that name. A block is behind one buffer only, so that
 * who has that to itself may write into it: one that others share is copied. On an error it stays the host's. */
shoal_status soft_close(struct device *d, const char *who, struct tensor *t);
/* The same for a value that was the device's before it was opened: there is room for it. */
shoal_status soft_close_again(struct device *d, const char *who, struct tensor *t);

const struct kernel_def *soft_borrow(const struct op *op);
extern const struct device_kernels soft_kernels[];

#endif

/* NVIDIA's cards: /device:GPU:N.
 *
 * A device has three streams: one computes, one copies in, one copies out. What was queued on one runs in order; one
 * waits for another by counting. Each stream counts what was put on it, and remembers up to where it has been told to
 * wait for the others; a piece of memory remembers when it was last given back (in the count of what computes) and when
 * a copy into it was queued. So the usual case, a kernel whose arguments were computed, compares two numbers.
 *
 * Whoever copies out holds a reference until it is done, and all else that reads or writes does so on the stream that
 * computes: memory that is given back may be had again at once, since its next user comes later there; only a copy in
 * waits for the count it was given back at.
 *
 * Small copies in, and copies out that are wanted at the end of the step only, are put on the stream that computes.
 *
 * One lock a device covers its streams. A thread of the device waits for copies out and for the ends of
 * steps, and tells who asked; a thread that has begun a step and has nothing else to do waits for the card itself. */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda/cuda_api.h"
#include "device/device.h"

struct cuda_memory;
struct cuda_blas;
struct cuda_dnn;
struct cuda_teller;
struct cuda_pinned;
struct cuda_capture;

enum { CUDA_VIEWS = 5, CUDA_TURNS = 4 };
/* Copies in of so many bytes go with what computes: a stream of their own gains less than the streams' waiting for each
 * other costs. */
enum { CUDA_SMALL_COPY = 1 << 20 };
enum cuda_stream_id { CUDA_COMPUTE, CUDA_IN, CUDA_OUT, CUDA_STREAMS };

struct cuda_stream {
  CUstream stream;
  CUevent mark;                  /* where it was when another one was told to wait for it */
  uint64_t queued;               /* work put on it so far */
  uint64_t waited[CUDA_STREAMS]; /* how much of the others it comes after */
};

struct cuda_held_list { /* cuda_held.c */
  struct buffer **at;
  size_t n, cap, bytes;
  uint64_t first; /* how many were let go before at[0] */
};

struct cuda_device {
  const struct cuda_api *api;
  atomic_bool *lost; /* the device's */
  struct device *device;
  bool limited;            /* its memory_limit was said, not guessed */
  pthread_mutex_t opening; /* recursive: what it consists of is used already while it is opened */
  bool being_opened;       /* opening: by this thread */
  atomic_bool open;        /* all below is there only then, but for multiprocessors and lock */
  CUcontext context;
  int multiprocessors;
  pthread_mutex_t lock;
  bool captured;                            /* lock: a step is, by: */
  pthread_t capturer;                       /* lock */
  pthread_cond_t released;                  /* it is not any more */
  struct cuda_stream streams[CUDA_STREAMS]; /* lock */
  atomic_uint_fast64_t computed;            /* what has been put on the stream that computes, for who has no lock */
  struct cuda_memory *memory;
  struct cuda_teller *teller;
  struct cuda_held_list held; /* lock */
  struct cuda_pinned *pinned;
  struct cuda_blas *blas;
  struct cuda_dnn *dnn;         /* NULL: no convolution yet */
  bool no_dnn;                  /* cuDNN is there and does not work */
  CUmodule *modules;            /* as many as there are fatbins */
  CUfunction views[CUDA_VIEWS]; /* copies of elements of 1, 2, 4, 8, 16 bytes */
  CUfunction turns[CUDA_TURNS]; /* matrices turned round, of elements of 1, 2, 4, 8 bytes */
  CUfunction small;             /* products of small matrices (cuda_small.h) */
};

static inline struct cuda_device *cuda_of(const struct device *d) { return d->impl; }

/* ---- opening (cuda_device.c) ---- */

/* A card is opened when it is first used, which takes a tenth of a second and a hundred megabytes: memory is taken, a
 * kernel's function is looked for, a step is captured. Whoever has any of these need not ask. */
shoal_status cuda_open(struct cuda_device *c);
static inline bool cuda_is_open(const struct cuda_device *c) { return atomic_load(&c->open); }
int cuda_opened(void); /* how many devices of this process have been: for tests */

/* ---- streams (cuda_stream.c): with the lock held ---- */

/* The lock, with the card current for this thread; not while another thread captures a step. */
void cuda_lock(struct cuda_device *c);
void cuda_unlock(struct cuda_device *c);
shoal_status cuda_streams_new(struct cuda_device *c);
void cuda_streams_free(struct cuda_device *c);
/* What comes next on `on` runs after the first `until` pieces of work of `other`. */
shoal_status cuda_wait(struct cuda_device *c, enum cuda_stream_id on, enum cuda_stream_id other, uint64_t until);
/* A kernel that will be launched next reads or writes it. */
shoal_status cuda_use(struct cuda_device *c, const struct tensor *t);
/* One more piece of work is about to be put on the stream that computes. */
void cuda_count_computed(struct cuda_device *c);
shoal_status cuda_launch(struct cuda_device *c, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                         void **args);

/* The same in one dimension, with shared memory beside what the kernel itself has: as much as cuda_let_share said. */
shoal_status cuda_launch_sharing(struct cuda_device *c, CUfunction f, unsigned grid, unsigned block, unsigned bytes,
                                 void **args);
shoal_status cuda_let_share(struct cuda_device *c, CUfunction f, unsigned bytes);

/* ---- between devices (cuda_peers.c) ---- */

/* The type's. */
shoal_status cuda_from_peer(struct device *d, const char *who, const struct tensor *from, struct tensor *to);
shoal_status cuda_merge(struct device *d, const struct device_merging *m);
/* A tensor of the device like another one, of whatever memory (cuda_device.c). */
shoal_status cuda_tensor_like(struct device *d, const char *who, const struct tensor *like, struct tensor *out);

/* ---- memory (cuda_memory.c) ---- */

struct cuda_memory *cuda_memory_new(struct cuda_device *c, int64_t limit);
/* A part of the device's memory that is cut up on its own, by a plan as far as that goes. */
struct memory_plan; /* device/memory_plan.h */
struct cuda_memory *cuda_memory_within(struct device *d, const struct memory_plan *plan);
size_t cuda_memory_taken(struct cuda_memory *m); /* bytes that such a part has */
void cuda_memory_free(struct cuda_memory *m);    /* when nothing is queued any more; what tensors still hold stays */
shoal_status cuda_alloc(struct device *d, const char *who, size_t size, struct buffer **out);
/* Of a tensor of the device: the count of copies in that wrote it, and that of what computed when its memory was free.
 */
uint64_t cuda_copied_in(const struct tensor *t);
uint64_t cuda_freed_at(const struct tensor *t);
void cuda_set_copied_in(const struct tensor *t, uint64_t count);

/* ---- windows (cuda_window.c) ---- */

/* The type's. */
shoal_status cuda_window_new(struct device *d, const char *who, size_t bytes, struct tensor *out,
                             struct device_handle *handle);
shoal_status cuda_window_open(struct device *d, const struct device_handle *handle, size_t bytes, struct tensor *out);
/* A buffer of the device over memory that is cut from none of its regions: release(owner) when it goes. who: it counts
 * as that node's; NULL: as nobody's (cuda_memory.c). */
shoal_status cuda_memory_wrap(struct device *d, const char *who, CUdeviceptr at, size_t size,
                              void (*release)(void *owner), void *owner, struct buffer **out);

/* ---- pinned memory of the host (cuda_pinned.c) ---- */

struct cuda_pinned *cuda_pinned_new(struct cuda_device *c);
void cuda_pinned_free(struct cuda_pinned *p);
/* A buffer of host memory that the card copies from and to by itself. */
shoal_status cuda_pinned_buffer(struct cuda_pinned *p, size_t size, struct buffer **out);
/* The same of memory that the host writes and never reads. */
shoal_status cuda_pinned_for_writing(struct cuda_pinned *p, size_t size, struct buffer **out);

/* ---- telling (cuda_teller.c) ---- */

struct cuda_teller *cuda_teller_new(struct cuda_device *c);
void cuda_teller_free(struct cuda_teller *t); /* all have been told */
/* done(arg) when what has been put on a stream by now is over; the tensor and the buffer are held until then. With the
 * device's lock held. */
shoal_status cuda_tell(struct cuda_teller *t, enum cuda_stream_id after, const struct tensor *hold, struct buffer *held,
                       device_done done, void *arg);

/* The same for all that is on the three streams, CUDA_OUT being the last; what was held until then is let go. */
shoal_status cuda_tell_end(struct cuda_teller *t, device_done done, void *arg);
/* The type's: this thread waits for all of that. */
shoal_status cuda_finish(struct device *d);

/* ---- steps that are captured (cuda_capture.c) ---- */

/* By this thread, now; NULL: none. */
struct cuda_capture *cuda_capturing(const struct cuda_device *c);
struct cuda_memory *cuda_capture_memory(const struct cuda_capture *k);
/* Pinned memory that the captured work reads, or writes for the end of the step. */
void cuda_capture_feed(struct cuda_capture *k, struct buffer *b);
void cuda_capture_fetch(struct cuda_capture *k, struct buffer *b);
/* The type's. */
shoal_status cuda_capture_begin(struct device *d, struct device_capture **out);
shoal_status cuda_capture_end(struct device *d, struct device_capture *of);
shoal_status cuda_replay(struct device *d, struct device_capture *of);
void cuda_capture_free(struct device *d, struct device_capture *of);

/* ---- what is held until a step ends (cuda_held.c) ---- */

/* A buffer that queued work uses is held until somebody has waited for all of that work. False: there is enough of them
 * already; the caller has it told. With the device's lock held. */
bool cuda_hold(struct cuda_device *c, struct buffer *b);
/* How many have been held so far, with the lock; and those of them that still are are let go, without it. */
uint64_t cuda_held_last(const struct cuda_device *c);
void cuda_let_go(struct cuda_device *c, uint64_t last);

/* ---- kernels ---- */

shoal_status cuda_copy_view(struct device *d, const struct strided *s, const struct tensor *to, int64_t to_at,
                            const struct tensor *from, int64_t from_at);

struct op;
const struct kernel_def *cuda_kernels(const struct op *op);

/* ---- fatbins (cuda_modules.c) ---- */

shoal_status cuda_modules_load(struct cuda_device *c);
void cuda_modules_free(struct cuda_device *c);
/* A function of a .cu file, by name and types: NAME, NAME_TYPE or NAME_TYPE_TYPE. NOT_FOUND names it. */
shoal_status cuda_function(struct cuda_device *c, const char *file, const char *name, shoal_dtype a, shoal_dtype b,
                           CUfunction *out);
/* NAME_1, NAME_2, NAME_4, ...: n functions of a file, each for elements of so many bytes; and that for a size. */
shoal_status cuda_functions_by_size(struct cuda_device *c, const char *file, const char *name, int n, CUfunction *out);
CUfunction cuda_for_size(const CUfunction *of, int n, size_t size);
/* Were there any when this was built? */
bool cuda_has_kernels(void);

#endif

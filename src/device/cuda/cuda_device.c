/* NVIDIA's cards: the type, its devices, copies. See cuda.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "runtime/kernel_borrow.h"
#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_dnn.h"
#include "device/cuda/cuda_nccl.h"

static CUdeviceptr address(const struct tensor *t) { return (CUdeviceptr)(uintptr_t)t->data; }

/* ---- copies ---- */

shoal_status cuda_tensor_like(struct device *d, const char *who, const struct tensor *like, struct tensor *out) {
  struct shape shape = tensor_shape(like);
  return device_tensor_new(d, who, (shoal_dtype)like->dtype, &shape, out);
}

static void ignore(void *arg, shoal_status s) { shoal_status_free(s); }

/* What must be told of is told, where it is not held. */
static shoal_status hold(struct cuda_device *c, enum cuda_stream_id on, struct buffer *b) {
  if (cuda_capturing(c)) return NULL; /* the capture has it */
  return cuda_hold(c, b) ? NULL : cuda_tell(c->teller, on, NULL, b, ignore, NULL);
}

static shoal_status queue_small_in(struct cuda_device *c, const struct tensor *to, struct buffer *staged) {
  TRY(cuda_use(c, to)); /* a copy that its memory had before it was given back */
  cuda_count_computed(c);
  TRY(cuda_status(c->api->copy_in(address(to), staged->data, tensor_bytes(to), c->streams[CUDA_COMPUTE].stream),
                  "a copy to the card"));
  return hold(c, CUDA_COMPUTE, staged);
}

static shoal_status queue_in(struct cuda_device *c, const struct tensor *to, struct buffer *staged) {
  struct cuda_stream *in = &c->streams[CUDA_IN];
  struct cuda_capture *captured = cuda_capturing(c);
  if (captured) cuda_capture_feed(captured, staged);
  if (captured || tensor_bytes(to) <= CUDA_SMALL_COPY) return queue_small_in(c, to, staged);
  TRY(cuda_wait(c, CUDA_IN, CUDA_COMPUTE, cuda_freed_at(to)));
  TRY(cuda_status(c->api->copy_in(address(to), staged->data, tensor_bytes(to), in->stream), "a copy to the card"));
  cuda_set_copied_in(to, ++in->queued);
  return hold(c, CUDA_IN, staged);
}

static shoal_status cuda_from_host(struct device *d, const char *who, const struct tensor *from, struct tensor *to) {
  struct cuda_device *c = cuda_of(d);
  struct buffer *staged;
  TRY(cuda_tensor_like(d, who, from, to));
  if (!from->n) return NULL;
  size_t bytes = tensor_bytes(from);
  shoal_status s = cuda_capturing(c) ? cuda_pinned_for_writing(c->pinned, bytes, &staged)
                                     : cuda_pinned_buffer(c->pinned, bytes, &staged);
  if (!s) {
    memcpy(staged->data, from->data, tensor_bytes(from));
    cuda_lock(c);
    s = queue_in(c, to, staged);
    cuda_unlock(c);
    buffer_unref(staged);
  }
  if (s) tensor_release(to);
  return s;
}

static shoal_status queue_out(struct cuda_device *c, const struct tensor *from, struct buffer *host, device_done done,
                              void *arg) {
  struct cuda_stream *out = &c->streams[CUDA_OUT];
  TRY(cuda_wait(c, CUDA_OUT, CUDA_COMPUTE, c->streams[CUDA_COMPUTE].queued));
  TRY(cuda_wait(c, CUDA_OUT, CUDA_IN, cuda_copied_in(from)));
  TRY(cuda_status(c->api->copy_out(host->data, address(from), tensor_bytes(from), out->stream),
                  "a copy from the card"));
  out->queued++;
  return cuda_tell(c->teller, CUDA_OUT, from, host, done, arg);
}

static void cuda_to_host(struct device *d, const struct tensor *from, struct tensor *to, device_done done, void *arg) {
  struct cuda_device *c = cuda_of(d);
  struct buffer *host;
  bool empty = from->n == 0; /* once it has been told, both tensors may be gone */
  shoal_status s = cuda_pinned_buffer(c->pinned, tensor_bytes(from), &host);
  if (!s) {
    tensor_move(to, from); /* its type and shape */
    to->buffer = host;
    to->data = host->data;
    cuda_lock(c);
    s = empty ? NULL : queue_out(c, from, host, done, arg);
    cuda_unlock(c);
    if (s) tensor_release(to);
  }
  if (s || empty) done(arg, s);
}

/* In the order of what computes, which is over by then with what it reads: no reference is needed. */
static shoal_status queue_late(struct cuda_device *c, const struct tensor *from, struct buffer *host) {
  struct cuda_capture *captured = cuda_capturing(c);
  if (captured) cuda_capture_fetch(captured, host);
  TRY(cuda_use(c, from));
  cuda_count_computed(c);
  TRY(cuda_status(c->api->copy_out(host->data, address(from), tensor_bytes(from), c->streams[CUDA_COMPUTE].stream),
                  "a copy from the card"));
  return hold(c, CUDA_COMPUTE, host);
}

static shoal_status cuda_to_host_at_end(struct device *d, const struct tensor *from, struct tensor *to) {
  struct cuda_device *c = cuda_of(d);
  struct buffer *host;
  TRY(cuda_pinned_buffer(c->pinned, tensor_bytes(from), &host));
  tensor_move(to, from); /* its type and shape */
  to->buffer = host;
  to->data = host->data;
  cuda_lock(c);
  shoal_status s = from->n ? queue_late(c, from, host) : NULL;
  cuda_unlock(c);
  if (s) tensor_release(to);
  return s;
}

/* Nobody asks whether it could be queued; a card that refuses work says so again at the end of the step. */
static void said(shoal_status s) {
  if (s) LOGW("%s", shoal_status_message(s));
  shoal_status_free(s);
}

static shoal_status queue_copy(struct cuda_device *c, const struct tensor *from, const struct tensor *to, size_t at) {
  TRY(cuda_use(c, from));
  TRY(cuda_use(c, to));
  cuda_count_computed(c);
  return cuda_status(
      c->api->copy_within(address(to) + at, address(from), tensor_bytes(from), c->streams[CUDA_COMPUTE].stream),
      "a copy on the card");
}

static void cuda_copy(struct device *d, const struct tensor *from, const struct tensor *to, size_t at) {
  struct cuda_device *c = cuda_of(d);
  if (!from->n) return;
  cuda_lock(c);
  said(queue_copy(c, from, to, at));
  cuda_unlock(c);
}

static shoal_status queue_zero(struct cuda_device *c, const struct tensor *t) {
  TRY(cuda_use(c, t));
  cuda_count_computed(c);
  return cuda_status(c->api->fill(address(t), 0, tensor_bytes(t), c->streams[CUDA_COMPUTE].stream), "zeros");
}

static void cuda_zero(struct device *d, const struct tensor *t) {
  struct cuda_device *c = cuda_of(d);
  if (!t->n) return;
  cuda_lock(c);
  said(queue_zero(c, t));
  cuda_unlock(c);
}

/* The last stream comes after the two others, and then everything is over. */
static shoal_status queue_end(struct cuda_device *c, device_done done, void *arg) {
  TRY(cuda_wait(c, CUDA_OUT, CUDA_COMPUTE, c->streams[CUDA_COMPUTE].queued));
  TRY(cuda_wait(c, CUDA_OUT, CUDA_IN, c->streams[CUDA_IN].queued));
  return cuda_tell_end(c->teller, done, arg);
}

static void cuda_when_done(struct device *d, device_done done, void *arg) {
  struct cuda_device *c = cuda_of(d);
  if (!cuda_is_open(c)) {
    done(arg, NULL);
    return;
  }
  cuda_lock(c);
  shoal_status s = queue_end(c, done, arg);
  cuda_unlock(c);
  if (s) done(arg, s);
}

/* ---- the type ---- */

static int cuda_count(int asked) {
  int have = asked && cuda_has_kernels() ? cuda_card_count() : 0; /* none are wanted: the driver is left alone */
  return asked < 0 ? have : MIN(asked, have);
}

static const char *cuda_why_none(void) {
  const char *why = NULL;
  if (!cuda_api(&why)) return why;
  return cuda_has_kernels() ? NULL : "this was built without kernels for NVIDIA's cards: there was no nvcc";
}

static char *describe(const struct cuda_api *api, int card) {
  char name[256] = "", bus[32] = "";
  int major = 0, minor = 0;
  api->device_name(name, sizeof name, card);
  api->device_bus(bus, sizeof bus, card);
  api->device_attribute(&major, CU_CAPABILITY_MAJOR, card);
  api->device_attribute(&minor, CU_CAPABILITY_MINOR, card);
  return mem_printf("device: %d, name: %s, pci bus id: %s, compute capability: %d.%d", card, name, bus, major, minor);
}

/* Less a little for the driver. */
static int64_t most_of(size_t bytes) {
  enum { DRIVERS = 300 << 20 };
  return (int64_t)bytes - MIN((int64_t)bytes / 20, (int64_t)DRIVERS);
}

/* What is said of it before it is opened: a fraction is of all it has. */
static shoal_status guess_memory(struct cuda_device *c, const struct device_options *o, int64_t *limit) {
  size_t total;
  c->limited = *limit || o->memory_fraction > 0;
  if (*limit) return NULL;
  TRY(cuda_status(c->api->device_memory(&total, c->device->card), "memory of the card"));
  *limit = o->memory_fraction > 0 ? (int64_t)(o->memory_fraction * (double)total) : most_of(total);
  return NULL;
}

/* What it may take in fact: what is free now, if nothing was said. */
static shoal_status memory_for(const struct cuda_device *c, int64_t *limit) {
  size_t unused, total;
  *limit = c->device->memory_limit;
  TRY(cuda_status(c->api->memory_info(&unused, &total), "memory of the card"));
  if (!c->limited) *limit = MIN(*limit, most_of(unused));
  return NULL;
}

static shoal_status open_card(struct cuda_device *c) {
  struct device *d = c->device;
  int64_t limit;
  if (!c->context) TRY(cuda_status(c->api->context_retain(&c->context, d->card), "the card"));
  cuda_enter(c->context);
  TRY(memory_for(c, &limit));
  TRY(cuda_streams_new(c));
  c->memory = cuda_memory_new(c, limit);
  c->teller = cuda_teller_new(c);
  c->pinned = cuda_pinned_new(c);
  TRY(cuda_modules_load(c));
  TRY(cuda_functions_by_size(c, "views", "view", CUDA_VIEWS, c->views));
  TRY(cuda_functions_by_size(c, "turn", "turn", CUDA_TURNS, c->turns));
  TRY(cuda_function(c, "small", "small_products_8", 0, 0, &c->small));
  return cuda_blas_new(c, d, &c->blas);
}

static void close_card(struct cuda_device *c);

static atomic_int opened;
int cuda_opened(void) { return atomic_load(&opened); }

shoal_status cuda_open(struct cuda_device *c) {
  if (cuda_is_open(c)) return NULL;
  pthread_mutex_lock(&c->opening);
  shoal_status s = NULL;
  if (!cuda_is_open(c) && !c->being_opened) {
    c->being_opened = true;
    s = open_card(c);
    c->being_opened = false;
    if (s) close_card(c);
    else atomic_fetch_add(&opened, 1);
    atomic_store(&c->open, !s);
  }
  pthread_mutex_unlock(&c->opening);
  return s;
}

static void opening_init(pthread_mutex_t *m) {
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(m, &a);
  pthread_mutexattr_destroy(&a);
}

static void close_card(struct cuda_device *c) {
  if (!c->context) return;
  cuda_enter(c->context);
  for (int i = 0; i < CUDA_STREAMS; i++)
    if (c->streams[i].stream) c->api->stream_finish(c->streams[i].stream);
  cuda_teller_free(c->teller);
  cuda_let_go(c, cuda_held_last(c));
  free(c->held.at);
  cuda_blas_free(c->blas);
  cuda_dnn_free(c->dnn);
  cuda_modules_free(c);
  cuda_pinned_free(c->pinned);
  cuda_memory_free(c->memory);
  cuda_streams_free(c);
  c->teller = NULL;
  c->held = (struct cuda_held_list){0};
  c->blas = NULL;
  c->dnn = NULL;
  c->modules = NULL;
  c->pinned = NULL;
  c->memory = NULL;
  memset(c->streams, 0, sizeof c->streams);
}

static void cuda_free(struct device *d) {
  struct cuda_device *c = cuda_of(d);
  close_card(c);
  pthread_mutex_destroy(&c->opening);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->released);
  free(c);
}

/* A card that may turn out to be of no use is tried at once, so that a task goes without it: one for which there may be
 * no kernels, and one that another process may have for itself. */
static bool is_doubtful(const struct cuda_device *c) {
  enum { SURE = 8 };
  int major = 0, mode = 0;
  c->api->device_attribute(&major, CU_CAPABILITY_MAJOR, c->device->card);
  c->api->device_attribute(&mode, CU_COMPUTE_MODE, c->device->card);
  return major < SURE || mode != 0;
}

static shoal_status start(struct cuda_device *c, struct device *d, const struct device_options *o) {
  TRY(guess_memory(c, o, &d->memory_limit));
  TRY(cuda_status(c->api->device_attribute(&c->multiprocessors, CU_MULTIPROCESSORS, d->card), "the card"));
  return is_doubtful(c) ? cuda_open(c) : NULL;
}

static shoal_status cuda_start(struct device *d, const struct device_options *o) {
  struct cuda_device *c = mem_zalloc(1, sizeof *c);
  c->device = d;
  atomic_init(&c->open, false);
  opening_init(&c->opening);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->released, NULL);
  c->api = cuda_api(NULL);
  c->lost = &d->lost;
  d->impl = c;
  shoal_status s = start(c, d, o);
  if (s) {
    cuda_free(d);
    return s;
  }
  d->description = describe(c->api, d->card);
  return NULL;
}

static const struct device_ops cuda_ops = {.alloc = cuda_alloc,
                                           .to_host = cuda_to_host,
                                           .to_host_at_end = cuda_to_host_at_end,
                                           .from_host = cuda_from_host,
                                           .from_peer = cuda_from_peer,
                                           .merge = cuda_merge,
                                           .merge_across = cuda_merge_across,
                                           .window_new = cuda_window_new,
                                           .window_open = cuda_window_open,
                                           .copy = cuda_copy,
                                           .zero = cuda_zero,
                                           .copy_view = cuda_copy_view,
                                           .when_done = cuda_when_done,
                                           .finish = cuda_finish,
                                           .capture_begin = cuda_capture_begin,
                                           .capture_end = cuda_capture_end,
                                           .replay = cuda_replay,
                                           .capture_free = cuda_capture_free,
                                           .free = cuda_free};

DEVICE_TYPE(cuda) = {.name = "GPU",
                     .priority = 210,
                     .ops = &cuda_ops,
                     .more_kernels = cuda_kernels,
                     .lent = kernel_lent,
                     .count = cuda_count,
                     .why_none = cuda_why_none,
                     .why_apart = cuda_nccl_missing,
                     .start = cuda_start};

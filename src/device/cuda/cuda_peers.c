/* What a card does with values of others in this process: copies, and sums over the devices of one card.
 *
 * A stream of this device comes after all that another has queued, by the other's own marks; and where it has read or
 * written the other's memory by a kernel, what the other computes comes after that, and counts as one more piece of its
 * work: so memory that it gives back afterwards is not written too early either.
 *
 * Two devices may want each other's locks at once: one lock for all such pairs comes before. */
#include "base/mem.h"
#include "device/cuda/cuda.h"

static pthread_mutex_t pairs = PTHREAD_MUTEX_INITIALIZER;

static CUdeviceptr address(const struct tensor *t) { return (CUdeviceptr)(uintptr_t)t->data; }

/* With this one's lock held. */
static shoal_status come_after(struct cuda_device *c, enum cuda_stream_id on, struct cuda_device *peer) {
  for (int i = 0; i < CUDA_OUT; i++) {
    struct cuda_stream *s = &peer->streams[i];
    cuda_lock(peer);
    shoal_status e = cuda_status(peer->api->event_record(s->mark, s->stream), "a mark");
    cuda_enter(c->context);
    if (!e) e = cuda_status(c->api->stream_wait(c->streams[on].stream, s->mark, 0), "a stream that waits");
    cuda_unlock(peer);
    TRY(e);
  }
  return NULL;
}

static shoal_status come_before(struct cuda_device *c, struct cuda_device *peer) {
  struct cuda_stream *s = &c->streams[CUDA_COMPUTE];
  TRY(cuda_status(c->api->event_record(s->mark, s->stream), "a mark"));
  cuda_lock(peer);
  shoal_status e =
      cuda_status(peer->api->stream_wait(peer->streams[CUDA_COMPUTE].stream, s->mark, 0), "a stream that waits");
  cuda_count_computed(peer);
  cuda_unlock(peer);
  cuda_enter(c->context);
  return e;
}

/* ---- copies ---- */

static void ignore(void *arg, shoal_status s) { shoal_status_free(s); }

/* Another device may be on this card or on another; the driver finds the way. */
static shoal_status queue_copy(struct cuda_device *c, struct cuda_device *peer, const struct tensor *from,
                               const struct tensor *to) {
  struct cuda_stream *in = &c->streams[CUDA_IN];
  TRY(come_after(c, CUDA_IN, peer));
  TRY(cuda_wait(c, CUDA_IN, CUDA_COMPUTE, cuda_freed_at(to)));
  TRY(cuda_status(c->api->copy_within(address(to), address(from), tensor_bytes(to), in->stream),
                  "a copy between devices"));
  cuda_set_copied_in(to, ++in->queued);
  return cuda_tell(c->teller, CUDA_IN, from, NULL, ignore, NULL);
}

shoal_status cuda_from_peer(struct device *d, const char *who, const struct tensor *from, struct tensor *to) {
  struct cuda_device *c = cuda_of(d);
  TRY(cuda_tensor_like(d, who, from, to));
  if (!from->n) return NULL;
  pthread_mutex_lock(&pairs);
  cuda_lock(c);
  shoal_status s = queue_copy(c, cuda_of(from->buffer->device), from, to);
  cuda_unlock(c);
  pthread_mutex_unlock(&pairs);
  if (s) tensor_release(to);
  return s;
}

/* ---- sums ---- */

struct cuda_merging { /* as merge.cu has it */
  const void *in[MOST_MERGED];
  void *out[MOST_MERGED];
  int64_t n;
  int32_t n_in, n_out, merge, mean_of;
  bool packed;
};

static bool is_packed(const struct device_merging *m) {
  enum { PACK = 16 };
  uintptr_t bits = 0;
  for (int i = 0; i < m->n_in; i++) bits |= (uintptr_t)m->in[i]->data;
  for (int i = 0; i < m->n_out; i++) bits |= (uintptr_t)m->out[i]->data;
  return bits % PACK == 0;
}

/* The devices that it touches beside this one, each once. */
static int peers_of(const struct cuda_device *c, const struct device_merging *m, struct cuda_device **peers) {
  int n = 0;
  for (int i = 0; i < m->n_in + m->n_out; i++) {
    const struct tensor *t = i < m->n_in ? m->in[i] : m->out[i - m->n_in];
    struct cuda_device *p = cuda_of(t->buffer->device);
    int k = 0;
    while (k < n && peers[k] != p) k++;
    if (k == n && p != c) peers[n++] = p;
  }
  return n;
}

static shoal_status queue_merge(struct cuda_device *c, const struct device_merging *m, CUfunction f) {
  enum { BLOCK = 256, EACH = 4, BLOCKS_EACH = 16 };
  struct cuda_device *peers[2 * MOST_MERGED];
  struct cuda_merging k = {.n = m->in[0]->n,
                           .n_in = m->n_in,
                           .n_out = m->n_out,
                           .merge = (int32_t)m->merge,
                           .mean_of = m->mean_of,
                           .packed = is_packed(m)};
  int n = peers_of(c, m, peers);
  for (int i = 0; i < n; i++) TRY(come_after(c, CUDA_COMPUTE, peers[i]));
  for (int i = 0; i < m->n_in; i++) {
    k.in[i] = m->in[i]->data;
    if (cuda_of(m->in[i]->buffer->device) == c) TRY(cuda_use(c, m->in[i]));
  }
  for (int i = 0; i < m->n_out; i++) {
    k.out[i] = m->out[i]->data;
    if (cuda_of(m->out[i]->buffer->device) == c) TRY(cuda_use(c, m->out[i]));
  }
  int64_t blocks = MIN((k.n + BLOCK * EACH - 1) / (BLOCK * EACH), (int64_t)c->multiprocessors * BLOCKS_EACH);
  TRY(cuda_launch(c, f, (unsigned)MAX(blocks, 1), 1, BLOCK, (void *[]){&k}));
  for (int i = 0; i < n; i++) TRY(come_before(c, peers[i]));
  return NULL;
}

shoal_status cuda_merge(struct device *d, const struct device_merging *m) {
  struct cuda_device *c = cuda_of(d);
  CUfunction f;
  if (!m->in[0]->n) return NULL;
  TRY(cuda_function(c, "merge", "merge", (shoal_dtype)m->in[0]->dtype, 0, &f));
  pthread_mutex_lock(&pairs);
  cuda_lock(c);
  shoal_status s = queue_merge(c, m, f);
  cuda_unlock(c);
  pthread_mutex_unlock(&pairs);
  return s;
}

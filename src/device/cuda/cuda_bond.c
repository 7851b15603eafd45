/* NCCL between processes: one rank a card (device/bond.h).
 *
 * Communicators do not block: whoever waits for other ranks asks NCCL how far it is, and the watch whether to go on.
 * Who gives up aborts the communicator, which ends what is on the card, and waits for that: memory that it writes is
 * not used again before. NCCL refuses two ranks on one card; groups of several cards have not been tried, for want of
 * them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/mem.h"
#include "device/bond.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_nccl.h"

enum { IN_PROGRESS = 7, NOT_READY = 600, SPIN_NS = 200000, REST_US = 50 };
_Static_assert(sizeof(struct nccl_id) == DEVICE_BOND_NAME, "a name is NCCL's");

struct cuda_bond {
  struct device_bond head;
  struct cuda_device *c; /* its device's */
  ncclComm_t comm;       /* NULL: aborted, or never there */
  CUevent over;          /* behind the last sum */
};

static uint64_t card_of(const struct device *d) {
  char bus[32] = "";
  cuda_of(d)->api->device_bus(bus, sizeof bus, d->card);
  return fingerprint64(bus, strlen(bus));
}

static bool can(enum device_merge merge, bool mean, shoal_dtype dtype) {
  return !cuda_nccl_missing() && cuda_nccl_op(merge, mean, dtype) >= 0 && cuda_nccl_type(dtype) >= 0;
}

static shoal_status there(void) {
  const char *missing = cuda_nccl_missing();
  if (!missing) missing = nccl.why_alone;
  return missing && *missing ? UNIMPLEMENTED("%s", missing) : NULL;
}

static shoal_status name(struct device *d, struct device_bond_name *out) {
  struct nccl_id id;
  TRY(there());
  TRY(cuda_open(cuda_of(d)));
  cuda_enter(cuda_of(d)->context);
  shoal_status s = cuda_nccl_status(nccl.unique_id(&id), "a name");
  cuda_leave();
  if (!s) memcpy(out->bytes, &id, sizeof id);
  return s;
}

/* ---- waiting ---- */

static void rest(int64_t began) {
  if (clock_ns() - began > SPIN_NS) usleep(REST_US);
}

static shoal_status given_up(void) { return STATUS(SHOAL_CANCELLED, "the wait for other ranks is over"); }

/* error: what the last call said. */
static shoal_status settle(struct cuda_bond *b, int error, const struct device_watch *w, const char *what) {
  for (int64_t began = clock_ns(); error == IN_PROGRESS; rest(began)) {
    if (w->is_over(w->arg)) return given_up();
    int asked = nccl.async_error(b->comm, &error);
    if (asked) error = asked;
  }
  return cuda_nccl_status(error, what);
}

static shoal_status await(struct cuda_bond *b, const struct device_watch *w) {
  int error, of_nccl = 0;
  for (int64_t began = clock_ns(); (error = b->c->api->event_query(b->over)) == NOT_READY; rest(began)) {
    if (w->is_over(w->arg)) return given_up();
    nccl.async_error(b->comm, &of_nccl);
    if (of_nccl && of_nccl != IN_PROGRESS) return cuda_nccl_status(of_nccl, "a sum");
  }
  if (cuda_is_lost(error)) atomic_store(b->c->lost, true);
  return cuda_status(error, "a sum");
}

/* ---- a group ---- */

static void give_up(struct cuda_bond *b) {
  cuda_enter(b->c->context);
  if (b->comm) nccl.abort(b->comm);
  b->comm = NULL;
  cuda_leave();
}

static void release(struct device_bond *of) {
  struct cuda_bond *b = (struct cuda_bond *)of;
  give_up(b);
  cuda_enter(b->c->context);
  if (b->over) b->c->api->event_free(b->over);
  free(b);
}

static shoal_status start(struct cuda_bond *b, const struct device_bond_name *by, int rank, int size,
                          const struct device_watch *w) {
  struct nccl_config config = {sizeof config, NCCL_MAGIC, NCCL_CONFIG_VERSION, .blocking = 0};
  struct nccl_id id;
  memcpy(&id, by->bytes, sizeof id);
  TRY(cuda_status(b->c->api->event_new(&b->over, CU_EVENT_DISABLE_TIMING), "an event"));
  return settle(b, nccl.init_rank(&b->comm, size, id, rank, &config), w, "a group of processes");
}

static shoal_status join(struct device *d, const struct device_bond_name *by, int rank, int size,
                         const struct device_watch *w, struct device_bond **out) {
  TRY(there());
  TRY(cuda_open(cuda_of(d)));
  struct cuda_bond *b = mem_zalloc(1, sizeof *b);
  b->head.device = d;
  b->c = cuda_of(d);
  cuda_enter(b->c->context);
  shoal_status s = start(b, by, rank, size, w);
  cuda_leave(); /* NCCL may have made another card current */
  if (s) release(&b->head);
  else *out = &b->head;
  return s;
}

/* ---- sums ---- */

static int queue_one(struct cuda_bond *b, const struct device_merging *m) {
  shoal_dtype t = (shoal_dtype)m->in[0]->dtype;
  cuda_count_computed(b->c);
  int error = nccl.all_reduce(m->in[0]->data, m->out[0]->data, (size_t)m->in[0]->n, cuda_nccl_type(t),
                              cuda_nccl_op(m->merge, m->mean_of != 0, t), b->comm, b->c->streams[CUDA_COMPUTE].stream);
  return error == IN_PROGRESS ? 0 : error;
}

static shoal_status queue(struct cuda_bond *b, const struct device_merging *sums, int n, int *error) {
  for (int i = 0; i < n; i++) {
    TRY(cuda_use(b->c, sums[i].in[0]));
    TRY(cuda_use(b->c, sums[i].out[0]));
  }
  TRY(cuda_nccl_status(nccl.group_start(), "sums"));
  int wrong = 0;
  for (int i = 0; i < n && !wrong; i++)
    if (sums[i].in[0]->n) wrong = queue_one(b, &sums[i]);
  *error = nccl.group_end();
  return cuda_nccl_status(wrong, "a sum");
}

/* What NCCL puts on the stream may come there later than this returns from it: steps that compute are inside the gate,
 * so nobody captures the stream meanwhile (device/gate.h), and what it reads and writes is held. */
static shoal_status run(struct cuda_bond *b, const struct device_merging *sums, int n, const struct device_watch *w) {
  int error = 0;
  cuda_lock(b->c);
  shoal_status s = queue(b, sums, n, &error);
  cuda_unlock(b->c);
  if (!s) s = settle(b, error, w, "sums");
  if (s) return s;
  cuda_lock(b->c);
  s = cuda_status(b->c->api->event_record(b->over, b->c->streams[CUDA_COMPUTE].stream), "an event");
  cuda_unlock(b->c);
  return s ? s : await(b, w);
}

static shoal_status sum(struct device_bond *of, const struct device_merging *sums, int n,
                        const struct device_watch *w) {
  struct cuda_bond *b = (struct cuda_bond *)of;
  if (!b->comm) return given_up();
  shoal_status s = run(b, sums, n, w);
  if (s) {
    give_up(b);
    cuda_enter(b->c->context);
    b->c->api->stream_finish(b->c->streams[CUDA_COMPUTE].stream);
  }
  cuda_leave();
  return s;
}

const struct device_bonds cuda_bonds = {
    .card_of = card_of, .name = name, .join = join, .can = can, .sum = sum, .free = release};

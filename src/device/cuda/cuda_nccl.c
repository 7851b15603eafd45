/* NCCL: sums of devices of one process that are each on a card of its own; those of several processes are in
 * cuda_bond.c. Opened at run time; what of it we use is declared in cuda_nccl.h as its binary interface has it.
 *
 * The cards of a group, in their order, have communicators that are made when the group is first seen and stay: making
 * them takes a good part of a second. All members are in this process: one thread queues the work of all of them, each
 * on its own stream that computes, and one lock keeps groups apart. NCCL wants no two ranks on a
 * card: where there is one its test is a group of one, and groups of several have not been tried. */
#include "device/cuda/cuda_nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/cuda.h"

struct nccl_group {
  struct nccl_group *next;
  int n, cards[MOST_MERGED];
  ncclComm_t comms[MOST_MERGED];
};

struct nccl_api nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
  pthread_mutex_t lock;
  struct nccl_group *first; /* lock */
} groups = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void open_library(void) {
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  const char *said = library ? NULL : dlerror();
  if (!library) {
    snprintf(nccl.why, sizeof nccl.why, "NCCL cannot be opened: %s", said ? said : "libnccl.so.2");
    return;
  }
#define ROW(name, symbol, args) {symbol, (void **)(void *)&nccl.name},
  const struct cuda_symbol symbols[] = {NCCL_FUNCTIONS(ROW){"ncclGetErrorString", (void **)(void *)&nccl.error_text},
                                        {0}};
  const struct cuda_symbol more[] = {NCCL_MORE_FUNCTIONS(ROW){0}};
#undef ROW
  const char *missing = cuda_symbols(library, more);
  if (missing) snprintf(nccl.why_alone, sizeof nccl.why_alone, "libnccl.so.2 has no %s: it is too old", missing);
  missing = cuda_symbols(library, symbols);
  if (missing) snprintf(nccl.why, sizeof nccl.why, "libnccl.so.2 has no %s: it is too old", missing);
}

const char *cuda_nccl_missing(void) {
  pthread_once(&once, open_library);
  return *nccl.why ? nccl.why : NULL;
}

shoal_status cuda_nccl_status(int error, const char *what) {
  return error ? INTERNAL("NCCL, %s: %s", what, nccl.error_text(error)) : NULL;
}

/* ---- groups; with the lock held ---- */

static shoal_status find_group(struct device *const *d, int n, struct nccl_group **out) {
  struct nccl_group *g = mem_zalloc(1, sizeof *g), *found = groups.first;
  g->n = n;
  for (int i = 0; i < n; i++) g->cards[i] = d[i]->card;
  while (found && (found->n != n || memcmp(found->cards, g->cards, (size_t)n * sizeof *g->cards) != 0))
    found = found->next;
  shoal_status s = found ? NULL : cuda_nccl_status(nccl.init_all(g->comms, n, g->cards), "a group of cards");
  if (found || s) {
    free(g);
    *out = found;
    return s;
  }
  g->next = groups.first;
  *out = groups.first = g;
  return NULL;
}

int cuda_nccl_type(shoal_dtype t) {
  switch (t) {
    case SHOAL_INT32: return 2;
    case SHOAL_INT64: return 4;
    case SHOAL_FLOAT16: return 6;
    case SHOAL_FLOAT32: return 7;
    case SHOAL_FLOAT64: return 8;
    case SHOAL_BFLOAT16: return 9;
    default: return -1;
  }
}

static bool is_whole(shoal_dtype t) { return t == SHOAL_INT32 || t == SHOAL_INT64; }

int cuda_nccl_op(enum device_merge merge, bool mean, shoal_dtype t) {
  static const int ops[] = {[DEVICE_ADD] = 0, [DEVICE_MUL] = 1, [DEVICE_MAX] = 2, [DEVICE_MIN] = 3};
  enum { AVERAGE = 4 };
  if (!mean) return ops[merge];
  return merge == DEVICE_ADD && !is_whole(t) ? AVERAGE : -1;
}

static int op_of(const struct device_merging *m) {
  return cuda_nccl_op(m->merge, m->mean_of != 0, (shoal_dtype)m->in[0]->dtype);
}

static shoal_status queue(const struct nccl_group *g, int i, struct device *d, const struct device_merging *m) {
  struct cuda_device *c = cuda_of(d);
  cuda_lock(c);
  shoal_status s = cuda_use(c, m->in[i]);
  if (!s) s = cuda_use(c, m->out[i]);
  cuda_count_computed(c);
  if (!s)
    s = cuda_nccl_status(nccl.all_reduce(m->in[i]->data, m->out[i]->data, (size_t)m->in[i]->n,
                                         cuda_nccl_type((shoal_dtype)m->in[i]->dtype), op_of(m), g->comms[i],
                                         c->streams[CUDA_COMPUTE].stream),
                         "a sum");
  cuda_unlock(c);
  return s;
}

static shoal_status queue_all(struct device *const *d, const struct device_merging *m) {
  struct nccl_group *g;
  TRY(find_group(d, m->n_in, &g));
  TRY(cuda_nccl_status(nccl.group_start(), "a sum"));
  shoal_status s = NULL;
  for (int i = 0; i < m->n_in && !s; i++) s = queue(g, i, d[i], m);
  status_merge(&s, cuda_nccl_status(nccl.group_end(), "a sum"));
  return s;
}

shoal_status cuda_merge_across(struct device *const *d, const struct device_merging *m) {
  const char *missing = cuda_nccl_missing();
  if (missing) return UNIMPLEMENTED("%s", missing);
  if (op_of(m) < 0 || cuda_nccl_type((shoal_dtype)m->in[0]->dtype) < 0) return UNIMPLEMENTED("NCCL has no such sum");
  if (!m->in[0]->n) return NULL;
  pthread_mutex_lock(&groups.lock);
  shoal_status s = queue_all(d, m);
  pthread_mutex_unlock(&groups.lock);
  cuda_leave(); /* it has made other cards current */
  return s;
}

/* OpenMPI's handles are pointers to its structs, and its constants are addresses of symbols: so its functions can be
 * called without its header (which says MPI_COMM_WORLD for &ompi_mpi_comm_world). Other MPIs have numbers there, and
 * lack the symbols: they are told as not found.
 *
 * Messages between two ranks that have one tag come in the order in which they were sent: the tag is the collective's
 * instance, and within one the k-th message that a rank sends to another is the k-th that the other receives
 * (schedule.h). Counts are ints: what is large goes in pieces, which both sides cut alike. A receive that merges takes
 * one piece while the others come. */
#include "collective/mpi_transport.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { PIECE = 1 << 20 };

typedef void *mpi_handle; /* MPI_Comm, MPI_Datatype, MPI_Request */

struct mpi_library {
  int (*init)(int *argc, char ***argv);
  int (*finalize)(void);
  int (*abort)(mpi_handle comm, int code);
  int (*comm_rank)(mpi_handle comm, int *rank);
  int (*comm_size)(mpi_handle comm, int *size);
  int (*isend)(const void *data, int n, mpi_handle type, int to, int tag, mpi_handle comm, mpi_handle *request);
  int (*irecv)(void *data, int n, mpi_handle type, int from, int tag, mpi_handle comm, mpi_handle *request);
  int (*test)(mpi_handle *request, int *ended, void *status);
  int (*cancel)(mpi_handle *request);
  int (*request_free)(mpi_handle *request);
  mpi_handle world, bytes;
};

/* A transfer under way: its pieces end in order. */
struct mpi_message {
  struct mpi_message *next;
  struct collective_transfer *transfer;
  int tag;
  size_t n, ended; /* pieces */
  char *room;      /* of a receive that merges: where its pieces come */
  mpi_handle requests[];
};

struct mpi_transport {
  struct collective_transport head;
  struct mpi_library lib;
  int rank, size;
  struct mpi_message *first, **last;
};

/* ---- the library ---- */

static void *find_library(void) {
  static const char *const names[] = {"libmpi.so.40", "libmpi.so"};
  void *lib = NULL;
  for (size_t i = 0; i < COUNT_OF(names) && !lib; i++)
    lib = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL); /* its own plugins look for symbols of it */
  return lib;
}

static shoal_status find_symbols(void *lib, struct mpi_library *l) {
  const struct {
    const char *name;
    void *to;
  } symbols[] = {{"MPI_Init", &l->init},           {"MPI_Finalize", &l->finalize},
                 {"MPI_Abort", &l->abort},         {"MPI_Comm_rank", &l->comm_rank},
                 {"MPI_Comm_size", &l->comm_size}, {"MPI_Isend", &l->isend},
                 {"MPI_Irecv", &l->irecv},         {"MPI_Test", &l->test},
                 {"MPI_Cancel", &l->cancel},       {"MPI_Request_free", &l->request_free},
                 {"ompi_mpi_byte", &l->bytes},     {"ompi_mpi_comm_world", &l->world}};
  for (size_t i = 0; i < COUNT_OF(symbols); i++) {
    void *found = dlsym(lib, symbols[i].name);
    if (!found) return STATUS(SHOAL_NOT_FOUND, "the MPI of this system is not OpenMPI: it has no %s", symbols[i].name);
    memcpy(symbols[i].to, &found, sizeof found);
  }
  return NULL;
}

static shoal_status load(struct mpi_library *l) {
  void *lib = find_library();
  if (!lib) return STATUS(SHOAL_NOT_FOUND, "OpenMPI is not installed: there is no libmpi.so (Debian: openmpi-bin)");
  return find_symbols(lib, l);
}

/* ---- messages ---- */

static size_t bytes_of(const struct mpi_message *x, size_t i) {
  size_t bytes = x->transfer->bytes;
  return i + 1 < x->n ? PIECE : bytes - i * PIECE;
}

static struct mpi_message *message_new(struct collective_transfer *t, const struct collective_id *id) {
  size_t n = MAX((t->bytes + PIECE - 1) / PIECE, 1); /* those of a barrier have no byte */
  struct mpi_message *x = mem_zalloc(1, sizeof *x + n * sizeof *x->requests);
  x->transfer = t;
  x->tag = (int)((unsigned)id->instance_key & 0x7fffffff);
  x->n = n;
  if (t->take) x->room = mem_alloc(t->bytes);
  return x;
}

static void append(struct mpi_transport *m, struct mpi_message *x) {
  *m->last = x;
  m->last = &x->next;
}

static void mpi_send(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *to) {
  struct mpi_transport *m = (struct mpi_transport *)t;
  const struct mpi_library *l = &m->lib;
  struct mpi_message *x = message_new(to, id);
  for (size_t i = 0; i < x->n; i++)
    l->isend((const char *)to->data + i * PIECE, (int)bytes_of(x, i), l->bytes, to->peer, x->tag, l->world,
             &x->requests[i]);
  append(m, x);
}

static void mpi_recv(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *from) {
  struct mpi_transport *m = (struct mpi_transport *)t;
  const struct mpi_library *l = &m->lib;
  struct mpi_message *x = message_new(from, id);
  char *to = x->room ? x->room : from->data;
  for (size_t i = 0; i < x->n; i++)
    l->irecv(to + i * PIECE, (int)bytes_of(x, i), l->bytes, from->peer, x->tag, l->world, &x->requests[i]);
  append(m, x);
}

/* Whether all of it has ended. */
static bool look(const struct mpi_transport *m, struct mpi_message *x) {
  for (int ended; x->ended < x->n; x->ended++) {
    m->lib.test(&x->requests[x->ended], &ended, NULL);
    if (!ended) return false;
    size_t at = x->ended * PIECE;
    if (x->room) x->transfer->take(x->transfer, x->room + at, at, bytes_of(x, x->ended));
  }
  return true;
}

static void end_message(struct mpi_message *x, shoal_status s) {
  struct collective_transfer *t = x->transfer;
  free(x->room);
  free(x);
  t->done(t, s);
}

/* Takes out the first that has ended; NULL: none has. */
static struct mpi_message *take_ended(struct mpi_transport *m) {
  for (struct mpi_message **at = &m->first, *x; (x = *at); at = &x->next) {
    if (!look(m, x)) continue;
    *at = x->next;
    if (m->last == &x->next) m->last = at;
    return x;
  }
  return NULL;
}

void mpi_transport_progress(struct mpi_transport *m) {
  for (struct mpi_message *x; (x = take_ended(m));) end_message(x, NULL);
}

/* MPI may yet read what was sent and write where something was to come: that memory stays. */
static void give_up(const struct mpi_transport *m, struct mpi_message *x, shoal_status why) {
  for (; x->ended < x->n; x->ended++) {
    m->lib.cancel(&x->requests[x->ended]);
    m->lib.request_free(&x->requests[x->ended]);
  }
  buffer_ref(x->transfer->owner);
  x->room = NULL;
  end_message(x, why);
}

static void mpi_abandon(struct collective_transport *t, const struct collective_id *id, shoal_status why) {
  struct mpi_transport *m = (struct mpi_transport *)t;
  struct mpi_message *all = m->first;
  m->first = NULL;
  m->last = &m->first;
  for (struct mpi_message *next; all; all = next) {
    next = all->next;
    all->next = NULL;
    if (all->tag == (int)((unsigned)id->instance_key & 0x7fffffff)) give_up(m, all, status_copy(why));
    else append(m, all);
  }
}

/* ---- the world ---- */

shoal_status mpi_transport_open(struct mpi_transport **out) {
  static const struct collective_transport_ops ops = {"mpi", mpi_send, mpi_recv, mpi_abandon, NULL};
  struct mpi_library lib;
  TRY(load(&lib));
  if (!getenv("OMPI_COMM_WORLD_SIZE"))
    return STATUS(SHOAL_FAILED_PRECONDITION, "this process was not started by mpirun: say mpirun -n RANKS before it");
  if (lib.init(NULL, NULL)) return INTERNAL("MPI_Init has failed");
  struct mpi_transport *m = mem_zalloc(1, sizeof *m);
  m->head.ops = &ops;
  m->lib = lib;
  m->last = &m->first;
  lib.comm_rank(lib.world, &m->rank);
  lib.comm_size(lib.world, &m->size);
  *out = m;
  return NULL;
}

int mpi_transport_rank(const struct mpi_transport *m) { return m->rank; }
int mpi_transport_size(const struct mpi_transport *m) { return m->size; }
struct collective_transport *mpi_transport_head(struct mpi_transport *m) {
  return &m->head;
}

void mpi_transport_close(struct mpi_transport *m) {
  m->lib.finalize();
  free(m);
}

void mpi_transport_abort(struct mpi_transport *m) {
  m->lib.abort(m->lib.world, 1);
  abort();
}

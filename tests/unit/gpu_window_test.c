/* Collectives of processes in the memory of their devices, which they share by windows (collective/window_work.h):
 * every operation, values of one chunk and of several, many sums at once, among three processes on one card; beside
 * sums made on the host, bit for bit. And what a window is refused for. */
#include "gpu_case.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/latch.h"
#include "collective/pairs.h"
#include "collective/shared_group.h"
#include "collective/window_work.h"
#include "ops/control/collective_loops.h"

enum { RANKS = 3, ODD = 1027, CHUNKS = WINDOW_SLOT / 4 + 77, MANY = 20, SECONDS = 60 };

static struct board { /* all processes have it */
  struct shared_place places[RANKS];
  atomic_int there, left;
} * board;

static int rank;
static struct pool *pool;
static struct device *device;
static struct shared_home *home;
static struct shared_group *group;

/* The element that a rank brings. */
static double brings(int r, int64_t i) { return (double)((i * 7919 + r * 104729) % 2003 - 1001) / 37; }

static void store(shoal_dtype t, void *to, int64_t i, double v) {
  if (t == SHOAL_FLOAT32) ((float *)to)[i] = (float)v;
  else if (t == SHOAL_INT64) ((int64_t *)to)[i] = (int64_t)v;
  else half_from_float(t, (uint16_t *)to + i, &(float){(float)v}, 1);
}

/* n elements of it, from one on. */
static void fill(shoal_dtype t, int r, int64_t from, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++) store(t, to, i, brings(r, from + i));
}

static struct tensor host_tensor(shoal_dtype t, int64_t n) {
  struct tensor x;
  ASSERT_OK(tensor_new_dims(&x, t, 1, &n));
  return x;
}

static void on_device(struct tensor *host, struct tensor *out) {
  ASSERT_OK(device->type->ops->from_host(device, "test", host, out));
  tensor_release(host);
}

struct one {
  struct collective_run run;
  struct schedule_request request;
  struct tensor in, out;
  struct latch *latch;
};

static void done(struct collective_run *r, shoal_status s) { latch_done(((struct one *)r)->latch, s); }

static int64_t in_n(const struct schedule_request *r) {
  return r->operation == OPERATION_REDUCE_SCATTER || r->operation == OPERATION_ALL_TO_ALL ? r->n * RANKS : r->n;
}
static int64_t out_n(const struct schedule_request *r) {
  return r->operation == OPERATION_ALL_GATHER || r->operation == OPERATION_ALL_TO_ALL ? r->n * RANKS : r->n;
}

static void prepare(struct one *x, enum collective_operation operation, shoal_dtype t, int64_t n,
                    const struct collective_loops *loops, int instance, struct latch *latch) {
  *x =
      (struct one){.latch = latch, .request = {.operation = operation, .rank = rank, .size = RANKS, .root = 1, .n = n}};
  struct tensor host = host_tensor(t, in_n(&x->request));
  fill(t, rank, 0, host.n, host.data);
  on_device(&host, &x->in);
  struct shape shape = shape_vector(out_n(&x->request));
  if (operation == OPERATION_ALL_REDUCE && instance % 2) tensor_ref(&x->out, &x->in); /* in its place */
  else ASSERT_OK(device_tensor_new(device, "test", t, &shape, &x->out));
  x->run = (struct collective_run){.request = &x->request,
                                   .id = {.step = 1, .group_key = 1, .instance_key = instance},
                                   .transport = shared_group_transport(group),
                                   .arithmetic = &loops->head,
                                   .members = RANKS,
                                   .element = dtype_size(t),
                                   .device_in = &x->in,
                                   .device_out = &x->out,
                                   .done = done};
}

static void sum_of_all(shoal_dtype t, int64_t from, int64_t n, const struct collective_loops *loops, char *to) {
  struct tensor all[RANKS], spare = host_tensor(t, n * pairs_levels(RANKS));
  const char *sources[RANKS];
  for (int r = 0; r < RANKS; r++) {
    all[r] = host_tensor(t, n);
    fill(t, r, from, n, all[r].data);
    sources[r] = all[r].data;
  }
  pairs_sum(&loops->head, sources, RANKS, dtype_size(t), n, to, spare.data, (size_t)n * dtype_size(t));
  if (loops->head.final) loops->head.final(&loops->head, to, RANKS, n);
  for (int r = 0; r < RANKS; r++) tensor_release(&all[r]);
  tensor_release(&spare);
}

static void expect(const struct one *x, shoal_dtype t, const struct collective_loops *loops, void *to) {
  int64_t n = x->request.n;
  size_t bytes = (size_t)n * dtype_size(t);
  switch (x->request.operation) {
    case OPERATION_ALL_REDUCE: sum_of_all(t, 0, n, loops, to); break;
    case OPERATION_REDUCE_SCATTER: sum_of_all(t, rank * n, n, loops, to); break;
    case OPERATION_BROADCAST: fill(t, 1, 0, n, to); break;
    default:
      for (int r = 0; r < RANKS; r++)
        fill(t, r, x->request.operation == OPERATION_ALL_TO_ALL ? rank * n : 0, n, (char *)to + (size_t)r * bytes);
  }
}

static void check(struct one *x, shoal_dtype t, const struct collective_loops *loops) {
  struct tensor have, want = host_tensor(t, x->out.n);
  ASSERT_OK(device_to_host(&x->out, &have));
  expect(x, t, loops, want.data);
  if (memcmp(have.data, want.data, tensor_bytes(&want)) != 0)
    fail_msg("rank %d: operation %d of %d elements of type %d has other bits", rank, (int)x->request.operation,
             (int)x->request.n, (int)t);
  tensor_release(&have);
  tensor_release(&want);
  tensor_release(&x->in);
  tensor_release(&x->out);
}

static void run_many(enum collective_operation operation, shoal_dtype t, int64_t n, const char *final, int many) {
  static int instance;
  struct collective_loops loops = {0};
  struct latch latch;
  struct one *all = mem_zalloc((size_t)many, sizeof *all);
  ASSERT_OK(collective_loops_init(&loops, "Add", final, t));
  latch_init(&latch, (size_t)many);
  for (int i = 0; i < many; i++) {
    prepare(&all[i], operation, t, n + i, &loops, ++instance, &latch);
    if (i) all[i - 1].run.next = &all[i].run;
  }
  collective_run_start(&all[0].run);
  ASSERT_OK(latch_finish(&latch));
  for (int i = 0; i < many; i++) check(&all[i], t, &loops);
  free(all);
}

static void operations(void **state) {
  static const enum collective_operation all[] = {OPERATION_ALL_REDUCE, OPERATION_REDUCE_SCATTER, OPERATION_ALL_GATHER,
                                                  OPERATION_ALL_TO_ALL, OPERATION_BROADCAST};
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_BFLOAT16, SHOAL_INT64};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    for (size_t t = 0; t < COUNT_OF(types); t++) run_many(all[i], types[t], ODD, "Id", 1);
  for (size_t i = 0; i < COUNT_OF(all); i++) run_many(all[i], SHOAL_FLOAT32, CHUNKS, "Id", 1);
  run_many(OPERATION_ALL_REDUCE, SHOAL_FLOAT32, CHUNKS, "Div", 1);
  run_many(OPERATION_ALL_REDUCE, SHOAL_FLOAT32, 0, "Id", 1);
}

static void many_at_once(void **state) { run_many(OPERATION_ALL_REDUCE, SHOAL_FLOAT32, 901, "Div", MANY); }

/* Handles that lead nowhere, and windows that are smaller than was said. */
static void windows_that_are_refused(void **state) {
  struct device_handle handle;
  struct tensor own, other;
  memset(&handle, 0x5a, sizeof handle);
  ASSERT_FAILS(device->type->ops->window_open(device, &handle, 4096, &other), SHOAL_UNIMPLEMENTED, "");
  ASSERT_OK(device->type->ops->window_new(device, "test", 1 << 20, &own, &handle));
  ASSERT_FAILS(device->type->ops->window_open(device, &handle, 1 << 22, &other), SHOAL_UNIMPLEMENTED, "");
  ASSERT_OK(device->type->ops->window_open(device, &handle, 1 << 20, &other)); /* in the same process */
  tensor_release(&own);
  tensor_release(&other);
}

/* ---- processes ---- */

static void wait_for_all(atomic_int *counter) {
  atomic_fetch_add(counter, 1);
  for (int i = 0; i < SECONDS * 1000 && atomic_load(counter) < RANKS; i++) usleep(1000);
  assert_int_equal(atomic_load(counter), RANKS);
}

static int setup(void **state) {
  static const char *const names[RANKS] = {"/task:0", "/task:1", "/task:2"};
  pool = pool_new(1, "test");
  ASSERT_OK(device_new("GPU", "/job:a/replica:0/task:0", 0, pool, &device));
  home = shared_home_new();
  assert_non_null(home);
  board->places[rank] = shared_home_place(home);
  wait_for_all(&board->there);
  group = shared_group_new(&(struct shared_group_request){.home = home,
                                                          .identity = 1,
                                                          .rank = rank,
                                                          .size = RANKS,
                                                          .places = board->places,
                                                          .names = names,
                                                          .device = device});
  assert_non_null(group);
  return 0;
}

static int teardown(void **state) {
  wait_for_all(&board->left);
  shared_group_free(group);
  shared_home_free(home);
  device_free(device);
  pool_free(pool);
  return 0;
}

/* A card is opened by each process for itself: after it was made. */
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operations), cmocka_unit_test(many_at_once),
                                     cmocka_unit_test(windows_that_are_refused)};
  pid_t others[RANKS];
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (rank = 1; rank < RANKS; rank++)
    if (!(others[rank] = fork())) break;
  rank %= RANKS;
  alarm(3 * SECONDS);
  if (rank) assert_non_null(freopen("/dev/null", "w", stdout)); /* who counts tests counts each once */
  int wrong_here = gpu_here() ? cmocka_run_group_tests_name("gpu_window", tests, setup, teardown) : 1;
  for (int r = 1; r < RANKS && !rank; r++) {
    int status;
    waitpid(others[r], &status, 0);
    wrong_here += status != 0;
  }
  return wrong_here != 0;
}

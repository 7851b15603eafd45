/* Sums of processes by a library of the device's type (device/bond.h, collective/bonded.h): NCCL on cards, on the soft
 * device what stands for it. Who may have them; three processes whose sums it makes, or whose windows do where they are
 * on one card, as they are on a machine with one; one that leaves in the middle; and, on cards, a group of one and two
 * ranks on one card, which NCCL refuses. */
#include "gpu_case.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/latch.h"
#include "collective/bonded.h"
#include "collective/shared_group.h"
#include "ops/control/collective_loops.h"

enum { RANKS = 3, ODD = 1027, LARGE = (4 << 20) + 77, MANY = 5, SECONDS = 60 };

static struct board { /* all processes have it */
  struct shared_place places[RANKS];
  struct device_bond_name name;
  atomic_int there, left, named, gone;
} * board;

static int rank;
static struct pool *pool;
static struct device *device;
static struct shared_home *home;
static struct shared_group *group;

/* ---- who may ---- */

static void who_may(void **state) {
  struct bond_word words[3] = {{.wish = BOND_WANTED, .card = 7}, {.wish = BOND_WANTED, .card = 8}, {.card = 7}};
  const struct bond_word *all[] = {&words[0], &words[1], &words[2]};
  int with;
  assert_int_equal(bond_refused(all, 2, &with), -1);
  assert_int_equal(bond_refused(all, 3, &with), 2); /* it has not told, which is no */
  assert_int_equal(with, -1);
  words[2].wish = BOND_UNWANTED;
  assert_int_equal(bond_refused(all, 3, &with), 2);
  words[2].wish = BOND_WANTED;
  assert_int_equal(bond_refused(all, 3, &with), 2); /* it is on the card of rank 0 */
  assert_int_equal(with, 0);
  words[2].card = 9;
  assert_int_equal(bond_refused(all, 3, &with), -1);
}

static void what_a_device_says(void **state) {
  struct bond_word word;
  bool across = device->across;
  bond_word_clear(&word);
  assert_int_equal(word.wish, BOND_UNTOLD);
  device->across = false;
  bond_word_tell(&word, device);
  assert_int_equal(word.wish, BOND_UNWANTED);
  device->across = true;
  bond_word_tell(&word, device);
  assert_int_equal(word.wish, BOND_WANTED);
  assert_int_equal(word.card, device_bonds(device)->card_of(device));
  device->across = across;
}

/* ---- sums of the group ---- */

struct one {
  struct collective_run run;
  struct schedule_request request;
  struct tensor in, out;
  struct latch *latch;
};

static void done(struct collective_run *r, shoal_status s) { latch_done(((struct one *)r)->latch, s); }

/* Small whole numbers: a library adds in an order of its own. */
static float brings(int r, int64_t i) { return (float)((i * 31 + r * 7) % 61 - 30); }

static void prepare(struct one *x, int64_t n, const struct collective_loops *loops, int instance, struct latch *latch) {
  struct tensor host;
  struct shape shape = shape_vector(n);
  *x =
      (struct one){.latch = latch, .request = {.operation = OPERATION_ALL_REDUCE, .rank = rank, .size = RANKS, .n = n}};
  ASSERT_OK(tensor_new_dims(&host, SHOAL_FLOAT32, 1, &n));
  for (int64_t i = 0; i < n; i++) T_DATA(&host, float)[i] = brings(rank, i);
  ASSERT_OK(device->type->ops->from_host(device, "test", &host, &x->in));
  tensor_release(&host);
  if (instance % 2) tensor_ref(&x->out, &x->in); /* in its place */
  else ASSERT_OK(device_tensor_new(device, "test", SHOAL_FLOAT32, &shape, &x->out));
  x->run = (struct collective_run){.request = &x->request,
                                   .id = {.step = 1, .group_key = 1, .instance_key = instance},
                                   .transport = shared_group_transport(group),
                                   .arithmetic = &loops->head,
                                   .members = RANKS,
                                   .element = sizeof(float),
                                   .device_in = &x->in,
                                   .device_out = &x->out,
                                   .done = done};
}

static void check(struct one *x, bool mean) {
  struct tensor have;
  ASSERT_OK(device_to_host(&x->out, &have));
  for (int64_t i = 0; i < have.n; i++) {
    float want = (brings(0, i) + brings(1, i) + brings(2, i)) / (mean ? RANKS : 1);
    if (!(fabsf(T_DATA(&have, const float)[i] - want) <= 1e-5f * (1 + fabsf(want))))
      fail_msg("rank %d: element %d is %g, not %g", rank, (int)i, (double)T_DATA(&have, const float)[i], (double)want);
  }
  tensor_release(&have);
}

static shoal_status sums(int64_t n, const char *final, int many, bool checked) {
  static int instance;
  struct collective_loops loops = {0};
  struct latch latch;
  struct one *all = mem_zalloc((size_t)many, sizeof *all);
  ASSERT_OK(collective_loops_init(&loops, "Add", final, SHOAL_FLOAT32));
  latch_init(&latch, (size_t)many);
  for (int i = 0; i < many; i++) {
    prepare(&all[i], n + i, &loops, ++instance, &latch);
    if (i) all[i - 1].run.next = &all[i].run;
  }
  collective_run_start(&all[0].run);
  shoal_status s = latch_finish(&latch);
  for (int i = 0; i < many; i++) {
    if (!s && checked) check(&all[i], final[0] == 'D');
    tensor_release(&all[i].in);
    tensor_release(&all[i].out);
  }
  free(all);
  return s;
}

static void in_a_group(void **state) {
  for (int i = 0; i < 2; i++) {
    ASSERT_OK(sums(ODD, "Id", 1, true));
    ASSERT_OK(sums(LARGE, "Div", 1, true));
    ASSERT_OK(sums(ODD, "Div", MANY, true));
    ASSERT_OK(sums(0, "Id", 1, true));
  }
}

/* Processes on one card have windows, and those that each have their own (soft devices do) what the library makes. */
static void by_whom(void **state) {
  bool apart = !cuda_api(NULL) && !getenv("SHOAL_SOFT_CARD");
  assert_int_equal(shared_group_is_bonded(group), apart);
}

/* ---- the library by itself ---- */

static bool never(void *arg) { return false; }
static bool at_once(void *arg) { return true; }

static void sum_alone(struct device_bond *b) {
  const int64_t n = ODD;
  struct tensor host, in, have;
  ASSERT_OK(tensor_new_dims(&host, SHOAL_FLOAT32, 1, &n));
  for (int64_t i = 0; i < n; i++) T_DATA(&host, float)[i] = brings(0, i);
  ASSERT_OK(device->type->ops->from_host(device, "test", &host, &in));
  const struct tensor *of = &in;
  struct device_merging m = {.merge = DEVICE_ADD, .n_in = 1, .n_out = 1, .in = &of, .out = &of};
  ASSERT_OK(device_bonds(device)->sum(b, &m, 1, &(struct device_watch){never, NULL}));
  ASSERT_OK(device_to_host(&in, &have));
  assert_memory_equal(have.data, host.data, (size_t)n * sizeof(float));
  tensor_release(&host);
  tensor_release(&in);
  tensor_release(&have);
}

static bool has_library(void) {
  struct device_bond_name name;
  shoal_status s = device_bonds(device)->name(device, &name);
  if (s) print_message("# %s\n", shoal_status_message(s));
  bool has = !s;
  shoal_status_free(s);
  return has;
}

static void of_one(void **state) {
  const struct device_bonds *bonds = device_bonds(device);
  struct device_bond_name name;
  struct device_bond *b = NULL;
  if (rank || !has_library()) return;
  ASSERT_OK(bonds->name(device, &name));
  ASSERT_OK(bonds->join(device, &name, 0, 1, &(struct device_watch){never, NULL}, &b));
  assert_true(bonds->can(DEVICE_ADD, true, SHOAL_FLOAT32));
  sum_alone(b);
  bonds->free(b);
}

/* Whom it waits for does not come. */
static void a_wait_is_ended(void **state) {
  const struct device_bonds *bonds = device_bonds(device);
  struct device_bond_name name;
  struct device_bond *b = NULL;
  if (rank || !has_library()) return;
  ASSERT_OK(bonds->name(device, &name));
  ASSERT_FAILS(bonds->join(device, &name, 0, 2, &(struct device_watch){at_once, NULL}, &b), SHOAL_CANCELLED, "");
}

static void wait_for_all(atomic_int *counter) {
  atomic_fetch_add(counter, 1);
  for (int i = 0; i < SECONDS * 1000 && atomic_load(counter) < RANKS; i++) usleep(1000);
  assert_int_equal(atomic_load(counter), RANKS);
}

static bool too_late(void *arg) { return clock_ns() > *(int64_t *)arg; }

/* NCCL says what is wrong, to both; the soft device has nothing against it. */
static void two_on_one_card(void **state) {
  const struct device_bonds *bonds = device_bonds(device);
  struct device_bond *b = NULL;
  int64_t end = clock_ns() + 30 * (int64_t)1000000000;
  bool has = has_library();
  if (!rank && has) ASSERT_OK(bonds->name(device, &board->name));
  wait_for_all(&board->named);
  if (rank > 1 || !has || !cuda_api(NULL)) return;
  shoal_status s = bonds->join(device, &board->name, rank, 2, &(struct device_watch){too_late, &end}, &b);
  assert_non_null(s);
  print_message("# two ranks on one card: %s\n", shoal_status_message(s));
  assert_int_not_equal(shoal_status_code(s), SHOAL_CANCELLED);
  shoal_status_free(s);
}

/* The last rank ends in the middle: the others are told who. */
static void one_that_leaves(void **state) {
  if (rank == RANKS - 1) {
    atomic_store(&board->gone, 1);
    _exit(0);
  }
  while (!atomic_load(&board->gone)) usleep(1000);
  ASSERT_FAILS(sums(LARGE, "Id", 1, false), SHOAL_UNAVAILABLE, "/task:2");
}

/* ---- processes ---- */

static int setup(void **state) {
  static const char *const names[RANKS] = {"/task:0", "/task:1", "/task:2"};
  pool = pool_new(1, "test");
  ASSERT_OK(device_new("GPU", "/job:a/replica:0/task:0", 0, pool, &device));
  device->across = true;
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
  atomic_fetch_add(&board->left, 1);
  for (int i = 0; i < SECONDS * 1000 && atomic_load(&board->left) < RANKS - 1; i++) usleep(1000);
  shared_group_free(group);
  shared_home_free(home);
  device_free(device);
  pool_free(pool);
  return 0;
}

/* A card is opened by each process for itself: after it was made. */
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(who_may),         cmocka_unit_test(what_a_device_says),
                                     cmocka_unit_test(in_a_group),      cmocka_unit_test(by_whom),
                                     cmocka_unit_test(of_one),          cmocka_unit_test(a_wait_is_ended),
                                     cmocka_unit_test(two_on_one_card), cmocka_unit_test(one_that_leaves)};
  pid_t others[RANKS];
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (rank = 1; rank < RANKS; rank++)
    if (!(others[rank] = fork())) break;
  rank %= RANKS;
  alarm(3 * SECONDS);
  if (rank) assert_non_null(freopen("/dev/null", "w", stdout)); /* who counts tests counts each once */
  int wrong_here = gpu_here() ? cmocka_run_group_tests_name("gpu_bond", tests, setup, teardown) : 1;
  for (int r = 1; r < RANKS && !rank; r++) {
    int status;
    waitpid(others[r], &status, 0);
    wrong_here += status != 0;
  }
  return wrong_here != 0;
}

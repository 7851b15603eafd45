/* The turns of sums in shared memory, of all ranks in one process and at one address: ThreadSanitizer sees there what
 * in processes, each with a mapping of its own, it cannot, and what is read or written in a slot when it is another's.
 * Sums of one value and of many joined, of any size around the borders of chunks and pieces, one exchange after the
 * other. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "collective/shared_work.h"

enum { MOST_RANKS = 7, MOST_PARTS = 20, EXCHANGES = 6, ROUNDS = 12 };

struct rank_part {
  struct collective_run run;
  struct schedule_request request;
  uint32_t *in, *out; /* the same: in place */
};

struct turns {
  int size, n_parts;
  int64_t turns;
  struct rank_part at[MOST_RANKS][MOST_PARTS];
  struct shared_part parts[MOST_RANKS][MOST_PARTS];
  struct shared_work work[MOST_RANKS];
};

static struct shared_area *areas[MOST_RANKS];
static char spare[MOST_RANKS][SHARED_SPARE];
static struct turns exchanges[EXCHANGES];
static uint64_t state_of_chance = 1;

static int64_t chance(int64_t below) {
  state_of_chance = state_of_chance * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state_of_chance >> 33) % (uint64_t)below);
}

static void add(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((uint32_t *)out)[i] = ((const uint32_t *)x)[i] + ((const uint32_t *)y)[i];
}

/* Elements of a sum: around what each rank sums by itself, around whole chunks, or any. */
static int64_t some_elements(int ranks) {
  static const int64_t beside[] = {0, 1, -1, 15, 16, 17, -16, 256, -256};
  const int64_t around[] = {16, SHARED_AT_ONCE / 4 / (ranks - 1), SHARED_CHUNK / 4, SHARED_CHUNK / 2,
                            chance(3 * SHARED_CHUNK / 4) + 1};
  int64_t n = around[chance(5)] + beside[chance(9)];
  return n > 0 ? n : 1;
}

/* Rank r brings (r + 1) times the element's number, its part's, and one. */
static uint32_t brought(int rank, int part, int64_t i) {
  return (uint32_t)(rank + 1) * ((uint32_t)i + (uint32_t)part + 1);
}

static void make(struct turns *t, int size, bool joined) {
  static const struct collective_arithmetic sum = {add, NULL};
  size_t at = 0, room = 0;
  *t = (struct turns){.size = size};
  for (int p = 0; p < (joined ? MOST_PARTS : 1); p++, t->n_parts++) {
    int64_t n = joined ? chance(4000) + 1 : some_elements(size);
    assert_true(!joined || shared_work_joins(OPERATION_ALL_REDUCE, n, sizeof(uint32_t), &room));
    for (int r = 0; r < size; r++) {
      struct rank_part *x = &t->at[r][p];
      x->in = malloc((size_t)n * sizeof *x->in);
      x->out = chance(2) ? x->in : malloc((size_t)n * sizeof *x->out);
      for (int64_t i = 0; i < n; i++) x->in[i] = brought(r, p, i);
      x->request = (struct schedule_request){.operation = OPERATION_ALL_REDUCE, .rank = r, .size = size, .n = n};
      x->run = (struct collective_run){.request = &x->request,
                                       .arithmetic = &sum,
                                       .members = size,
                                       .element = sizeof *x->in,
                                       .in = x->in,
                                       .out = x->out};
      t->parts[r][p] = (struct shared_part){&x->run, at, (size_t)n * sizeof *x->in};
    }
    at += room;
  }
  for (int r = 0; r < size; r++) {
    t->work[r] = (struct shared_work){
        .parts = t->parts[r], .n_parts = t->n_parts, .areas = areas, .rank = r, .size = size, .spare = spare[r]};
    t->turns = shared_work_init(&t->work[r]);
  }
}

static void check(struct turns *t) {
  for (int p = 0; p < t->n_parts; p++)
    for (int r = 0; r < t->size; r++) {
      struct rank_part *x = &t->at[r][p];
      uint32_t all = (uint32_t)(t->size * (t->size + 1) / 2);
      for (int64_t i = 0; i < x->request.n; i++) {
        assert_int_equal(x->out[i], all * brought(0, p, i));
        assert_int_equal(x->in[i], x->in == x->out ? x->out[i] : brought(r, p, i));
      }
      if (x->out != x->in) free(x->out);
      free(x->in);
    }
}

/* All exchanges, as a group drives them. */
static void *take_turns(void *arg) {
  int rank = *(int *)arg;
  uint64_t turn = 0;
  for (int e = 0; e < EXCHANGES; e++)
    for (int64_t k = 0; k < exchanges[e].turns; k++) {
      for (int r = 0; r < exchanges[e].size; r++)
        while (atomic_load(&areas[r]->turn) < turn) sched_yield();
      shared_work_turn(&exchanges[e].work[rank], k, turn);
      atomic_store(&areas[rank]->turn, ++turn);
    }
  return NULL;
}

static void sums_of_any_size_and_number(void **state) {
  for (int r = 0; r < MOST_RANKS; r++) areas[r] = aligned_alloc(4096, sizeof *areas[r]);
  for (int round = 0; round < ROUNDS; round++) {
    int size = 2 + round % (MOST_RANKS - 1), ranks[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    for (int e = 0; e < EXCHANGES; e++) make(&exchanges[e], size, chance(3) == 0);
    for (int r = 0; r < size; r++) atomic_store(&areas[r]->turn, 0);
    for (int r = 0; r < size; r++) {
      ranks[r] = r;
      assert_int_equal(pthread_create(&threads[r], NULL, take_turns, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int e = 0; e < EXCHANGES; e++) check(&exchanges[e]);
  }
  for (int r = 0; r < MOST_RANKS; r++) free(areas[r]);
}

RUN_TESTS(cmocka_unit_test(sums_of_any_size_and_number))

/* The store of blocks: it gives what it was given, keeps no more than it may, and large ones not at all; what grows
 * keeps what it holds. */
#include "unit.h"

#include <pthread.h>
#include <string.h>

#include "base/block.h"
#include "base/mem.h"

static bool keeps(void) {
  size_t before = blocks_kept();
  block_free(block_alloc(100));
  return blocks_kept() > before || before; /* with a sanitizer it keeps nothing */
}

static void used_again(void **state) {
  bool kept_ones = keeps();
  for (size_t n = 0; n + 16 <= BLOCK_LARGEST; n += 61) {
    char *p = block_alloc(n);
    assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
    memset(p, 0xff, n);
    block_free(p);
    size_t kept = blocks_kept();
    char *q = block_zalloc(n);
    if (kept_ones) assert_ptr_equal(q, p);
    if (kept_ones) assert_true(blocks_kept() < kept);
    for (size_t i = 0; i < n; i++) assert_int_equal(q[i], 0);
    block_free(q);
    assert_int_equal(blocks_kept(), kept);
  }
}

static void large_ones_go(void **state) {
  size_t kept = blocks_kept();
  char *p = block_zalloc(BLOCK_LARGEST + 1);
  p[BLOCK_LARGEST] = 1;
  block_free(p);
  block_free(NULL);
  assert_int_equal(blocks_kept(), kept);
}

static void bounded(void **state) {
  enum { MANY = 2 * BLOCKS_KEPT / 8192 };
  void **all = mem_alloc(MANY * sizeof *all);
  for (int i = 0; i < MANY; i++) all[i] = block_alloc(8000);
  for (int i = 0; i < MANY; i++) block_free(all[i]);
  assert_true(blocks_kept() <= BLOCKS_KEPT + BLOCKS_SHELF);
  if (keeps()) assert_true(blocks_kept() > BLOCKS_KEPT / 2);
  free(all);
}

/* A store that is full: what there is more of is this thread's own. */
static void shelf_is_bounded(void **state) {
  enum { MOST = 1000 };
  void *all[MOST];
  size_t before = blocks_kept();
  for (size_t n = 40; n < BLOCK_LARGEST; n += n / 4) {
    for (int i = 0; i < MOST; i++) all[i] = block_alloc(n);
    for (int i = 0; i < MOST; i++) block_free(all[i]);
  }
  assert_true(before < BLOCKS_KEPT / 2 || blocks_kept() <= BLOCKS_KEPT + BLOCKS_SHELF);
}

static void *take_all(void *arg) {
  void **all = arg;
  for (int i = 0; i < 100; i++) all[i] = block_alloc(1000);
  return NULL;
}

static void *give_all(void *arg) {
  void **all = arg;
  for (int i = 0; i < 100; i++) block_free(all[i]);
  return NULL;
}

/* What one thread takes and another gives back comes round, also when they have ended. */
static void other_threads(void **state) {
  void *all[100];
  for (int i = 0; i < 20; i++) {
    size_t before = blocks_kept();
    void *(*const each[])(void *) = {take_all, give_all};
    for (int k = 0; k < 2; k++) {
      pthread_t t;
      assert_int_equal(pthread_create(&t, NULL, each[k], all), 0);
      pthread_join(t, NULL);
    }
    if (i) assert_int_equal(blocks_kept(), before);
  }
}

/* Blocks that a thread took as one piece of memory are of use to another, and stay when a store that is full gives what
 * it is given to the system. */
static void pieces(void **state) {
  enum { N = 200, MANY = 2 * BLOCKS_KEPT / 8192 };
  void *few[N], **all = mem_alloc(MANY * sizeof *all);
  pthread_t t;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < N; i++) memset(few[i] = block_alloc(300), round + 1, 300);
    for (int i = 0; i < MANY; i++) all[i] = block_alloc(8000);
    for (int i = 0; i < MANY; i++) block_free(all[i]);
    for (int i = 0; i < N; i++)
      for (int k = 0; k < 300; k++) assert_int_equal(((char *)few[i])[k], round + 1);
    assert_int_equal(pthread_create(&t, NULL, give_all, few), 0);
    pthread_join(t, NULL);
    for (int i = 100; i < N; i++) block_free(few[i]);
  }
  assert_true(blocks_kept() <= BLOCKS_KEPT + BLOCKS_SHELF);
  free(all);
}

static void refused(void **state) {
  block_free(block_alloc(40)); /* a full store does not hide that there is no memory */
  mem_fail_at(1);
  assert_null(block_try_alloc(40));
  assert_true(mem_fail_at(0));
  char *p = block_try_zalloc(40);
  assert_non_null(p);
  block_free(p);
  assert_null(block_try_alloc(SIZE_MAX));
}

static void grown(void **state) {
  static const size_t sizes[] = {1, 40, 200, 199, 5000, 40000, 300000, 50000, 10, 0};
  size_t had = 1;
  char *p = block_alloc(1);
  p[0] = 0;
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    p = i % 2 ? block_realloc(p, sizes[i], 1) : block_try_realloc(p, sizes[i], 1);
    for (size_t k = 0; k < MIN(had, sizes[i]); k++) assert_int_equal((uint8_t)p[k], k % 251);
    for (size_t k = had; k < sizes[i]; k++) p[k] = (char)(k % 251);
    had = sizes[i];
  }
  mem_fail_at(1);
  assert_null(block_try_realloc(p, 100000, 1));
  assert_true(mem_fail_at(0));
  assert_null(block_try_realloc(p, SIZE_MAX, 2));
  block_free(p);
}

static void strings(void **state) {
  char *s = block_strndup("abcdef", 3);
  assert_string_equal(s, "abc");
  block_free(s);
  s = block_strndup(NULL, 0);
  assert_string_equal(s, "");
  block_free(s);
}

RUN_TESTS(cmocka_unit_test(used_again), cmocka_unit_test(large_ones_go), cmocka_unit_test(other_threads),
          cmocka_unit_test(bounded), cmocka_unit_test(shelf_is_bounded), cmocka_unit_test(pieces),
          cmocka_unit_test(refused), cmocka_unit_test(grown), cmocka_unit_test(strings))

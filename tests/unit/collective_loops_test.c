/* The mean of a collective's members: the bits that a division gives, however it is made. Sums in the order of pairs,
 * also into one of those that are summed. */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "collective/pairs.h"
#include "ops/control/collective_loops.h"
#include "ops/math/elementwise.h"
#include "tensor/tensor.h"

enum { N = 1 << 16 };

/* Every pattern of sixteen bits, as the upper half of a float or as a value of its own. */
static void fill(shoal_dtype t, char *to) {
  for (uint32_t i = 0; i < N; i++) {
    uint16_t half = (uint16_t)i;
    uint32_t bits = i << 16 | (i * 40503u & 0xffff);
    uint64_t wide = (uint64_t)i << 48 | (uint64_t)i * 0x9e3779b97f4a7c15u >> 16;
    if (dtype_size(t) == 2) memcpy(to + 2 * i, &half, 2);
    else if (dtype_size(t) == 4) memcpy(to + 4 * i, &bits, 4);
    else memcpy(to + 8 * i, &wide, 8);
  }
}

/* By the loop of the op Div. */
static void plain(shoal_dtype t, char *data, int members) {
  struct binary_loop div = {0};
  char by[8] = {0};
  float f = (float)members;
  double d = members;
  ASSERT_OK(binary_loop_init(&div, "Div", t, t));
  if (t == SHOAL_FLOAT64) memcpy(by, &d, 8);
  else if (t == SHOAL_FLOAT32) memcpy(by, &f, 4);
  else half_from_float(t, (uint16_t *)(void *)by, &f, 1);
  binary_loop_run(&div, data, data, by, N, VECTOR_SCALAR);
}

static void means_are_divisions(void **state) {
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_FLOAT16, SHOAL_BFLOAT16};
  static const int members[] = {1, 2, 3, 4, 6, 8, 64, 1024, 2048, 65536};
  for (size_t t = 0; t < COUNT_OF(types); t++)
    for (size_t k = 0; k < COUNT_OF(members); k++) {
      struct collective_loops a = {0};
      size_t bytes = N * dtype_size(types[t]);
      char *got = mem_alloc(bytes), *wanted = mem_alloc(bytes);
      ASSERT_OK(collective_loops_init(&a, "Add", "Div", types[t]));
      fill(types[t], got);
      fill(types[t], wanted);
      a.head.final(&a.head, got, members[k], N);
      plain(types[t], wanted, members[k]);
      assert_memory_equal(got, wanted, bytes);
      free(got);
      free(wanted);
    }
}

/* S(0, n) = S(0, h) + S(h, n - h), written down. */
static float in_pairs(float x[][7], int first, int n, int i) {
  if (n == 1) return x[first][i];
  int h = 1;
  while (h * 2 < n) h *= 2;
  return in_pairs(x, first, h, i) + in_pairs(x, first + h, n - h, i);
}

static void sums_in_place(void **state) {
  enum { MOST = 17, EACH = 7 };
  struct collective_loops a = {0};
  ASSERT_OK(collective_loops_init(&a, "Add", "Id", SHOAL_FLOAT32));
  for (int n = 1; n <= MOST; n++)
    for (int into = -1; into < n; into++) { /* -1: none of them */
      float x[MOST][EACH], wanted[EACH], aside[EACH];
      const char *sources[MOST];
      for (int r = 0; r < n; r++) {
        for (int i = 0; i < EACH; i++) x[r][i] = powf(-7.3f, (float)((r * 5 + i) % 9));
        sources[r] = (const char *)x[r];
      }
      for (int i = 0; i < EACH; i++) wanted[i] = in_pairs(x, 0, n, i);
      float *to = into < 0 ? aside : x[into];
      char *spare = mem_alloc((size_t)pairs_levels(n) * sizeof aside); /* no more than is asked for */
      pairs_sum(&a.head, sources, n, sizeof(float), EACH, (char *)to, spare, sizeof aside);
      assert_memory_equal(to, wanted, sizeof wanted);
      free(spare);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(means_are_divisions), cmocka_unit_test(sums_in_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

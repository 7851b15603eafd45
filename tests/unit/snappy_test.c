/* Snappy's blocks: what is packed comes back, and what is broken is refused. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/snappy.h"

static void round_trip(const char *data, size_t n, size_t most) {
  struct text packed = {0};
  char *plain;
  size_t got;
  assert_true(snappy_encode(data, n, &packed));
  assert_true(packed.n <= most);
  ASSERT_OK(snappy_decode(packed.at, packed.n, &plain, &got));
  assert_int_equal(got, n);
  assert_memory_equal(plain, data, n);
  free(plain);
  text_release(&packed);
}

static void what_is_packed_comes_back(void **state) {
  enum { N = 300000 };
  char *data = calloc(1, N);
  round_trip("", 0, 1);
  round_trip("a", 1, 3);
  round_trip(data, N, N / 20); /* zeros: 64 bytes in 3 */
  uint32_t random = 1;
  for (size_t i = 0; i < N; i++) data[i] = (char)((random = random * 1664525u + 1013904223u) >> 24);
  for (size_t n = 1; n < 200; n++) round_trip(data, n, n + 4);
  round_trip(data, N, N + 16);
  memcpy(data + 70000, data, 60000); /* farther back than a copy reaches, and then not */
  memcpy(data + 135000, data + 80000, 50000);
  round_trip(data, N, N + 16);
  for (size_t i = 0; i < N; i++) data[i] = (char)(i % 7 + (i / 1000) % 3);
  for (size_t n = 0; n < 300; n++) round_trip(data, n, n + 4);
  round_trip(data, N, N / 10);
  free(data);
}

static void broken_blocks_are_refused(void **state) {
  static const struct {
    const char *bytes;
    size_t n;
  } bad[] = {
      {"", 0}, /* no length */
      {"\x05\x00"
       "a",
       3}, /* fewer than it says */
      {"\x01\x04"
       "ab",
       4}, /* more than it says */
      {"\x08\x00"
       "a\x0d\x02",
       5}, /* a copy from before the beginning */
      {"\x08\x00"
       "a\x0d\x00",
       5},                             /* from nowhere */
      {"\x08\xf0", 2},                 /* a literal without its length */
      {"\x08\xfc\xff\xff\xff\xff", 6}, /* of 4 GB */
      {"\xff\xff\xff\xff\x0f\x00"
       "a",
       7}, /* 4 GB of one byte */
      {"\x08\x00"
       "a\x02\x01",
       5}, /* a copy without the end of its offset */
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *plain;
    size_t n;
    ASSERT_FAILS(snappy_decode(bad[i].bytes, bad[i].n, &plain, &n), SHOAL_DATA_LOSS, "corrupted");
  }
}

RUN_TESTS(cmocka_unit_test(what_is_packed_comes_back), cmocka_unit_test(broken_blocks_are_refused))

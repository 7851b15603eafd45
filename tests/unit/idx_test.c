/* IDX files: right ones, and every way in which one can be wrong. */
#include "unit.h"

#include <unistd.h>
#include <zlib.h>

#include "data/idx.h"

static char path[] = "/tmp/idx_test_XXXXXX";

/* Writes bytes to the test's file, gzipped or plain. */
static void put(const void *bytes, size_t n, bool packed) {
  gzFile f = gzopen(path, packed ? "wb" : "wbT");
  assert_non_null(f);
  assert_int_equal(gzwrite(f, bytes, (unsigned)n), n);
  gzclose(f);
}

static const unsigned char good[] = {0, 0, 0x0B, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0x01, 0x02, 0xFF, 0xFF, 0, 0, 0x7F, 0xFF};

static void numbers_are_turned_round(void **state) {
  for (int packed = 0; packed < 2; packed++) {
    put(good, sizeof good, packed);
    struct tensor t;
    ASSERT_OK(idx_read(path, &t));
    assert_int_equal(t.dtype, SHOAL_INT16);
    assert_int_equal(t.rank, 2);
    const int16_t expect[] = {0x0102, -1, 0, 0x7FFF};
    assert_memory_equal(t.data, expect, sizeof expect);
    tensor_release(&t);
  }
}

static void every_cut_is_seen(void **state) {
  for (int packed = 0; packed < 2; packed++)
    for (size_t n = 0; n < sizeof good; n++) {
      struct tensor t;
      put(good, n, packed);
      ASSERT_FAILS(idx_read(path, &t), SHOAL_DATA_LOSS, "cut short");
    }
  /* A gzip stream without its end. */
  put(good, sizeof good, true);
  FILE *f = fopen(path, "rb");
  unsigned char bytes[256];
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  put(bytes, n - 4, false);
  struct tensor t;
  shoal_status s = idx_read(path, &t);
  assert_int_equal(shoal_status_code(s), SHOAL_DATA_LOSS);
  shoal_status_free(s);
}

static void wrong_headers_are_named(void **state) {
  struct tensor t;
  unsigned char bad[sizeof good + 1];
  memcpy(bad, good, sizeof good);
  bad[sizeof good] = 0;
  put(bad, sizeof bad, false);
  ASSERT_FAILS(idx_read(path, &t), SHOAL_DATA_LOSS, "more than");
  bad[2] = 0x0A;
  put(bad, sizeof good, false);
  ASSERT_FAILS(idx_read(path, &t), SHOAL_INVALID_ARGUMENT, "not an IDX file");
  bad[2] = 0x0B;
  bad[0] = 1;
  put(bad, sizeof good, false);
  ASSERT_FAILS(idx_read(path, &t), SHOAL_INVALID_ARGUMENT, "not an IDX file");
  bad[0] = 0;
  bad[3] = 0;
  put(bad, sizeof good, false);
  ASSERT_FAILS(idx_read(path, &t), SHOAL_INVALID_ARGUMENT, "rank 0");
  bad[3] = 200;
  put(bad, sizeof good, false);
  ASSERT_FAILS(idx_read(path, &t), SHOAL_INVALID_ARGUMENT, "rank 200");
}

static void sizes_are_not_believed(void **state) {
  struct tensor t;
  const unsigned char huge[] = {0, 0, 8, 2, 0, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 1, 2, 3};
  uint64_t before = buffer_system_allocs();
  put(huge, sizeof huge, false);
  ASSERT_FAILS(idx_read(path, &t), SHOAL_DATA_LOSS, "announces");
  const unsigned char overflow[] = {0, 0, 8, 3, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  put(overflow, sizeof overflow, false);
  shoal_status s = idx_read(path, &t);
  assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
  shoal_status_free(s);
  assert_int_equal(buffer_system_allocs(), before);
  ASSERT_FAILS(idx_read("/no/such/file", &t), SHOAL_NOT_FOUND, "/no/such/file");
  ASSERT_FAILS(idx_read("/tmp", &t), SHOAL_INVALID_ARGUMENT, "not a file");
}

static int make_file(void **state) { return close(mkstemp(path)); }
static int remove_file(void **state) { return unlink(path); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_turned_round), cmocka_unit_test(every_cut_is_seen),
                                     cmocka_unit_test(wrong_headers_are_named),
                                     cmocka_unit_test(sizes_are_not_believed)};
  return cmocka_run_group_tests(tests, make_file, remove_file);
}

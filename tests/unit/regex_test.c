/* Patterns: what matches, what is refused, and that no pattern takes long. */
#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/philox.h"
#include "base/regex.h"
#include "base/text.h"
#include "unit.h"

static bool full(const char *pattern, const char *text) {
  char *error = NULL;
  struct regex *r = regex_new(pattern, strlen(pattern), &error);
  if (!r) {
    print_error("%s\n", error);
    free(error);
    fail();
  }
  bool yes = regex_full_match(r, text, strlen(text));
  regex_free(r);
  return yes;
}

static void test_matching(void **state) {
  assert_true(full("a*", ""));
  assert_true(full("(a|b)*c", "ababc"));
  assert_false(full("(a|b)*c", "ababd"));
  assert_true(full("[^a-c]+", "xyz"));
  assert_true(full("a{2,3}", "aaa"));
  assert_false(full("a{2,3}", "aaaa"));
  assert_true(full("(?i)hello", "HeLLo"));
  assert_true(full("\\d+\\.\\d*", "3.14"));
  assert_true(full(".", "\xc3\xa4"));
  assert_false(full(".", "\n"));
  assert_true(full("(?s).", "\n"));
  assert_false(full(".", "\xff"));
  assert_true(full("^s3://.*", "s3://bucket"));
}

static void test_spans(void **state) {
  char *error = NULL;
  struct regex *r = regex_new("(\\w+)@(\\w+)?", 12, &error);
  struct regex_span m[REGEX_MAX_GROUPS];
  assert_true(regex_search(r, "to: ann@home", 12, 0, m));
  assert_int_equal(m[0].begin, 4);
  assert_int_equal(m[0].end, 12);
  assert_int_equal(m[1].end, 7);
  assert_int_equal(m[2].begin, 8);
  assert_true(regex_search(r, "ann@", 4, 0, m));
  assert_int_equal(m[2].begin, -1);
  assert_false(regex_search(r, "nobody", 6, 0, m));
  regex_free(r);
}

static void test_refused(void **state) {
  static const char *const wrong[] = {"(",
                                      ")",
                                      "[",
                                      "*",
                                      "a**",
                                      "\\",
                                      "a{1001}",
                                      "[b-a]",
                                      "(?P<x",
                                      "\\8",
                                      "(?z)",
                                      "a{2,1}",
                                      "\\pX",
                                      "\xff",
                                      "\\p",
                                      "\\p{L",
                                      "\\p{}",
                                      "[\\p{Nothing}]",
                                      "((a{1000}){1000}){1000}"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char *error = NULL;
    struct regex *r = regex_new(wrong[i], strlen(wrong[i]), &error);
    assert_null(r);
    assert_non_null(error);
    free(error);
  }
}

static void test_properties(void **state) {
  assert_true(full("\\pL+", "aZ\xc3\xa9\xe6\xbc\xa2"));
  assert_false(full("\\pL+", "a1"));
  assert_true(full("\\p{Lu}\\p{Ll}+", "\xc3\x89t\xc3\xa9"));
  assert_true(full("\\P{Lu}+", "abc1"));
  assert_true(full("\\p{^Lu}\\P{^Lu}", "aA"));
  assert_true(full("[\\p{Greek}\\d-]+", "\xce\xb1-1"));
  assert_false(full("[^\\p{P}]", "!"));
  assert_true(full("\\p{Any}", "\n"));
  assert_true(full("(?i)\\p{Lu}", "a"));
}

static void test_cases(void **state) {
  assert_true(
      full("(?i)stra\xc3\x9f"
           "e",
           "STRA\xe1\xba\x9e"
           "E"));
  assert_true(full("(?i)k", "\xe2\x84\xaa")); /* Kelvin */
  assert_true(full("(?i)\xc3\xa4+", "\xc3\xa4\xc3\x84"));
  assert_true(full("(?i)[\xd0\xb0-\xd1\x8f]+", "\xd0\x96\xd0\xb6"));
  assert_false(full("\xc3\xa4", "\xc3\x84"));
  assert_true(full("(?i)[^k]", "j"));
  assert_false(full("(?i)[^k]", "K"));
}

/* Three bytes become hundreds of ranges: there is an end to it. */
static void test_properties_are_bounded(void **state) {
  struct text pattern = {0};
  for (int i = 0; i < 20000; i++) text_adds(&pattern, "\\pL");
  char *error = NULL;
  assert_null(regex_new(text_cstr(&pattern), pattern.n, &error));
  assert_non_null(strstr(error, "pattern too large"));
  free(error);
  text_release(&pattern);
}

static void test_linear(void **state) {
  char text[3001];
  memset(text, 'a', 3000);
  text[3000] = 0;
  int64_t start = clock_ns();
  assert_false(full("(a*)*(a*)*(a|aa)+b", text));
  assert_true(clock_ns() - start < 60000000000); /* 2^3000 steps otherwise */
}

static void test_hashes(void **state) {
  assert_true(fingerprint64("", 0) == 0x9ae16a3b2f90404full);
  uint64_t key0 = 0x0706050403020100ull, key1 = 0x0f0e0d0c0b0a0908ull; /* the published test vector */
  unsigned char in[15];
  for (int i = 0; i < 15; i++) in[i] = (unsigned char)i;
  assert_true(siphash64(key0, key1, in, 15) == 0xa129ca6149be45e5ull);
}

static void test_philox(void **state) {
  struct philox a = {{0}, {0}}, b = a; /* the published test vector for a counter and a key of zero */
  uint32_t x[4], many[4 * 40];
  philox_next(&a, x);
  assert_int_equal(x[0], 0x6627e8d5u);
  assert_int_equal(x[1], 0xe169c58du);
  assert_int_equal(x[2], 0xbc57ac4cu);
  assert_int_equal(x[3], 0x9b00dbd8u);
  b.counter[0] = UINT32_MAX - 10; /* the carry is in the middle of a vector */
  b.counter[1] = UINT32_MAX;
  struct philox c = b;
  philox_blocks(&b, many, 40);
  for (int i = 0; i < 40; i++) {
    philox_next(&c, x);
    assert_memory_equal(x, many + 4 * i, 16);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_matching),   cmocka_unit_test(test_spans),  cmocka_unit_test(test_refused),
      cmocka_unit_test(test_properties), cmocka_unit_test(test_cases),  cmocka_unit_test(test_properties_are_bounded),
      cmocka_unit_test(test_linear),     cmocka_unit_test(test_hashes), cmocka_unit_test(test_philox),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* REST's parsers: JSON's numbers, strings and errors; heads and chunks of HTTP/1.1; paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "rpc/http1/http1_parse.h"
#include "serving/json.h"

static void numbers_are_those_of_strtod(void **state) {
  static const char *const texts[] = {"0",
                                      "-0",
                                      "1",
                                      "-1",
                                      "0.1",
                                      "1e22",
                                      "1e23",
                                      "123456789.125",
                                      "1e-22",
                                      "1e-23",
                                      "5e-324",
                                      "1e308",
                                      "1e309",
                                      "2.5E+3",
                                      "-7.25e-2",
                                      "9007199254740993.0",
                                      "0.30000000000000004",
                                      "3.4028235e38",
                                      "00"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    char text[64];
    snprintf(text, sizeof text, "%s,", texts[i]);
    double want = strtod(texts[i], NULL), got = json_number_of(text).d;
    assert_memory_equal(&want, &got, sizeof want);
  }
  srand(1);
  for (int i = 0; i < 100000; i++) {
    char text[64];
    snprintf(text, sizeof text, "%.*g,", 1 + rand() % 17, (rand() - RAND_MAX / 2) / (double)(1 + rand() % 100000));
    assert_true(json_number_of(text).d == strtod(text, NULL));
  }
}

static void integers_keep_their_bits(void **state) {
  assert_true(json_number_of("9223372036854775807,").i == INT64_MAX);
  assert_true(json_number_of("-9223372036854775808,").i == INT64_MIN);
  assert_int_equal(json_number_of("-9223372036854775808,").kind, JSON_SIGNED);
  assert_int_equal(json_number_of("-9223372036854775809,").kind, JSON_DECIMAL);
  assert_int_equal(json_number_of("18446744073709551615,").kind, JSON_UNSIGNED);
  assert_int_equal(json_number_of("18446744073709551616,").kind, JSON_DECIMAL);
  assert_int_equal(json_number_of("1.0,").kind, JSON_DECIMAL);
}

static void strings_are_unescaped(void **state) {
  struct text t = {0};
  json_string("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"", &t);
  assert_string_equal(text_cstr(&t), "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80");
  assert_true(json_string_is("\"\\u0061b\"", "ab"));
  text_release(&t);
}

static void what_is_no_json_is_refused(void **state) {
  static const struct {
    const char *text;
    bool well;
  } cases[] = {{"{}", true},
               {" [1, 2 ] ", true},
               {"{\"a\": [NaN, -Infinity, Inf]}", true},
               {"", false},
               {"{", false},
               {"[1,]", false},
               {"[1 2]", false},
               {"{\"a\" 1}", false},
               {"{a: 1}", false},
               {"[01]", false},
               {"[1.]", false},
               {"[.5]", false},
               {"[+1]", false},
               {"[1e]", false},
               {"[\"\\x\"]", false},
               {"[\"\\u12g4\"]", false},
               {"[\"\\ud83d\\ude00\"]", true},
               {"[\"\\ud83d\"]", false},
               {"[\"\\ud83dx\"]", false},
               {"[\"\\ud83d\\u0041\"]", false},
               {"[\"\\ude00\"]", false},
               {"[1e308, -1e-400]", true},
               {"[1e309]", false},
               {"[-1e400]", false},
               {"[\"a\nb\"]", false},
               {"[\"\xff\"]", false},
               {"[tru]", false},
               {"[]]", false},
               {"[}", false},
               {"{\"a\":1,}", false},
               {"\"", false},
               {"-", false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    shoal_status s = json_check(cases[i].text, strlen(cases[i].text));
    assert_int_equal(s == NULL, cases[i].well);
    shoal_status_free(s);
  }
  shoal_status s = json_check("[\"\\\0\"]", 6); /* a zero is no escape */
  assert_non_null(s);
  shoal_status_free(s);
}

static void heads_are_read_or_refused(void **state) {
  static const struct {
    const char *text;
    int code;
  } cases[] = {{"GET / HTTP/1.1\r\n\r\n", 200},
               {"GET / HTTP/1.1\n\n", 200},
               {"GET / HTTP/1.1\r\nHost: a\r\n", HTTP1_MORE},
               {"GET / HTTP/3\r\n\r\n", 505},
               {"GET /\r\n\r\n", 400},
               {"G@T / HTTP/1.1\r\n\r\n", 400},
               {"GET /\xc3\xa9 HTTP/1.1\r\n\r\n", 400}, /* whether or not char has a sign */
               {"GET /\x7f HTTP/1.1\r\n\r\n", 400},
               {"POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n", 200},
               {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
               {"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400},
               {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 400},
               {"POST / HTTP/1.1\r\nTransfer-Encoding: identity, chunked\r\n\r\n", 501},
               {"POST / HTTP/1.1\r\nX : y\r\n\r\n", 400}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct http1_head h;
    assert_int_equal(http1_head_read(cases[i].text, strlen(cases[i].text), &h), cases[i].code);
  }
}

static void chunks_are_joined(void **state) {
  static const char text[] = "5;a=b\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nT: x\r\n\r\nGET";
  for (size_t step = 1; step < sizeof text; step++) {
    struct http1_chunks c = {0};
    struct text body = {0};
    int code = HTTP1_MORE;
    size_t at = 0;
    while (code == HTTP1_MORE) {
      size_t used, n, have = MIN(step, sizeof text - 1 - at);
      const char *data;
      code = http1_chunks_read(&c, text + at, have, &used, &data, &n);
      text_add(&body, data, n);
      at += used;
    }
    assert_int_equal(code, HTTP1_WHOLE);
    assert_string_equal(text_cstr(&body), "hello world");
    assert_string_equal(text + at, "GET");
    text_release(&body);
  }
}

static void chunks_of_odd_lines_are_refused(void **state) {
  static const char *const cases[] = {"1\nx\r\n0\r\n\r\n",
                                      "1;a\nx\r\n0\r\n\r\n",
                                      "1\rx\r\n0\r\n\r\n",
                                      "1\r\nx\n0\r\n\r\n",
                                      "1\r\nxy\r\n",
                                      "1\r\nx\r\n0\r\n\n",
                                      "1\r\nx\r\n0\r\n\r\r\n",
                                      "\r\n",
                                      "-1\r\n"};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct http1_chunks c = {0};
    int code = HTTP1_MORE;
    for (size_t at = 0, used, n; code == HTTP1_MORE && at < strlen(cases[i]); at += used) {
      const char *data;
      code = http1_chunks_read(&c, cases[i] + at, strlen(cases[i]) - at, &used, &data, &n);
    }
    assert_int_equal(code, 400);
  }
}

static void paths_are_unescaped(void **state) {
  char out[16];
  assert_true(http1_path((struct chars){"/a%20b?c", 8}, out, sizeof out));
  assert_string_equal(out, "/a b");
  assert_false(http1_path((struct chars){"/%00", 4}, out, sizeof out));
  assert_false(http1_path((struct chars){"/%2", 3}, out, sizeof out));
  assert_false(http1_path((struct chars){"http://x/", 9}, out, sizeof out));
  assert_false(http1_path((struct chars){"/0123456789abcdef", 17}, out, sizeof out));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_those_of_strtod), cmocka_unit_test(integers_keep_their_bits),
      cmocka_unit_test(strings_are_unescaped),       cmocka_unit_test(what_is_no_json_is_refused),
      cmocka_unit_test(heads_are_read_or_refused),   cmocka_unit_test(chunks_are_joined),
      cmocka_unit_test(paths_are_unescaped),         cmocka_unit_test(chunks_of_odd_lines_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What unit tests share: cmocka, and checks of statuses. */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define ASSERT_OK(expr)                                                                    \
  do {                                                                                     \
    shoal_status s_ = (expr);                                                              \
    if (s_) {                                                                              \
      print_error("%s: %s\n%s", #expr, shoal_status_message(s_), shoal_status_places(s_)); \
      shoal_status_free(s_);                                                               \
      fail();                                                                              \
    }                                                                                      \
  } while (0)

/* Fails with that code, and text somewhere in the message. */
#define ASSERT_FAILS(expr, code_, text)                                                                     \
  do {                                                                                                      \
    shoal_status s_ = (expr);                                                                               \
    if (shoal_status_code(s_) != (code_) || !strstr(shoal_status_message(s_), text)) {                      \
      print_error("%s: %s: %s\n", #expr, shoal_code_name(shoal_status_code(s_)), shoal_status_message(s_)); \
      shoal_status_free(s_);                                                                                \
      fail();                                                                                               \
    }                                                                                                       \
    shoal_status_free(s_);                                                                                  \
  } while (0)

#define RUN_TESTS_WITHIN(begin, end, ...)             \
  int main(void) {                                    \
    const struct CMUnitTest tests[] = {__VA_ARGS__};  \
    return cmocka_run_group_tests(tests, begin, end); \
  }
#define RUN_TESTS(...) RUN_TESTS_WITHIN(NULL, NULL, __VA_ARGS__)

/* What runs programs of a build for another architecture (tests/run.py); "": they run by themselves. */
static inline const char *unit_emulator(void) {
  const char *emulator = getenv("SHOAL_EMULATOR");
  return emulator ? emulator : "";
}

#endif

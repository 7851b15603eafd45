/* Being told to stop by a signal: once, twice at once, twice. */
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/stop.h"

/* What becomes of a process that is told twice, this long after the first time. */
static int told_twice(int first, int second, long milliseconds) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    stop_signals_take();
    raise(first);
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left)) continue;
    raise(second);
    _exit(stop_told() ? 7 : 8);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* A scheduler signals a process and its group. */
static void at_once(void **unused) {
  int status = told_twice(SIGTERM, SIGTERM, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void in_earnest(void **unused) {
  static const int pairs[][2] = {{SIGTERM, SIGTERM}, {SIGINT, SIGTERM}};
  for (int i = 0; i < 2; i++) {
    int status = told_twice(pairs[i][0], pairs[i][1], 1100);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == pairs[i][1]);
  }
}

RUN_TESTS(cmocka_unit_test(at_once), cmocka_unit_test(in_earnest))

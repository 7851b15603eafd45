/* Memory: what a process may use, growing arrays, and what happens when there is no more.
 *
 * As SQLite's tests do: each call is made again and again, and the first, second, third ... attempt to get memory in it
 * fails, until none does. Under each the call answers RESOURCE_EXHAUSTED or has done without; the sanitizers' build
 * finds what is lost on the way. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/machine.h"
#include "base/vec.h"
#include "folder.h"

/* ---- what a process may use ---- */

static void put_file(const char *path, const char *text) {
  char *at = in_dir(path);
  for (char *slash = at + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(at, 0700);
    *slash = '/';
  }
  FILE *f = fopen(at, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  free(at);
}

/* The least of the limits on the way from a process's group up to the root, in either version of control groups. */
static void limits_of_groups(void **state) {
  put_file("v2/memory.max", "max\n");
  put_file("v2/outer/memory.max", "3000000\n");
  put_file("v2/outer/inner/memory.max", "5000000\n");
  put_file("v2/outer/inner/tight/memory.max", "1000000\n");
  char *v2 = in_dir("v2");
  assert_int_equal(machine_group_limit("0::/outer/inner\n", v2), 3000000);
  assert_int_equal(machine_group_limit("0::/outer/inner/tight", v2), 1000000);
  assert_int_equal(machine_group_limit("0::/outer/inner/tight/without", v2), 1000000);
  assert_true(machine_group_limit("0::/\n", v2) == SIZE_MAX);
  assert_true(machine_group_limit("0::/elsewhere\n", v2) == SIZE_MAX);
  assert_true(machine_group_limit("", v2) == SIZE_MAX);
  assert_true(machine_group_limit("no colons\n:\n::\n\n", v2) == SIZE_MAX);
  put_file("v2/memory.max", "900000\n"); /* a container's own group is its root, whatever the path says */
  assert_int_equal(machine_group_limit("0::/docker/0123\n", v2), 900000);
  free(v2);
  put_file("v1/memory/slurm/memory.limit_in_bytes", "7000000\n");
  put_file("v1/memory/memory.limit_in_bytes", "9223372036854771712\n");
  char *v1 = in_dir("v1");
  assert_int_equal(machine_group_limit("5:cpu:/slurm\n4:hugetlb,memory:/slurm/job\n0::/slurm\n", v1), 7000000);
  assert_true(machine_group_limit("4:memory:/other\n", v1) == 9223372036854771712u);
  assert_true(machine_group_limit("4:memory2:/slurm\n", v1) == SIZE_MAX);
  free(v1);
  assert_true(machine_memory() > 0 && machine_memory() == machine_memory());
}

/* ---- arrays ---- */

static int calls;
typedef VEC(int) ints;
static ints *counted(ints *v) {
  calls++;
  return v;
}

static void arguments_are_evaluated_once(void **state) {
  ints v = {0};
  int next = 0;
  for (int i = 0; i < 20; i++) vec_push(counted(&v), next++);
  assert_int_equal(calls, 20);
  assert_int_equal(v.n, 20);
  for (int i = 0; i < 20; i++) assert_int_equal(v.at[i], i);
  vec_last(counted(&v)) = 77;
  assert_int_equal(vec_pop(counted(&v)), 77);
  vec_reserve(counted(&v), (size_t)(100 + next++));
  assert_true(v.cap >= 120 && next == 21);
  vec_release(counted(&v));
  assert_int_equal(calls, 24);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(limits_of_groups),
                                     cmocka_unit_test(arguments_are_evaluated_once)};
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

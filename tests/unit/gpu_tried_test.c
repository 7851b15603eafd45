/* Is every kernel that cards have held against the CPU's, for every type it takes?
 *
 * The kernels are asked of their table (src/device/cuda), so that nobody has to remember to list a new one. What is
 * tried is what the other tests of a GPU's kernels run: they are run here once more, with SHOAL_LOG=debug, by which a
 * program tells of each kernel that it makes. Without a card the soft device stands in, and the same nodes are made on
 * it, but for those that rewrites make where a card has a kernel for them: these are looked for with a card alone. */
#include "unit.h"

#include <dirent.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/strmap.h"
#include "device/cuda/cuda.h"
#include "graph/op.h"
#include "runtime/kernel.h"

/* What no graph can have. */
static const struct {
  const char *kernel, *why;
} never[] = {{"_FusedMatMul T=float16", "the rewrite that makes it leaves float16 alone"},
             {"_MatMulOnto T=float16", "it is made of those"},
             {"_MatMulGelu T=float16", "so is it"}};

static struct strmap seen; /* "OP ATTR=TYPE", and "OP" */

static void note(const char *key) { strmap_put(&seen, key, &seen); }

/* "...] GPU makes OP ATTR=TYPE ATTR=TYPE\n" */
static void read_line(char *line) {
  char *at = strstr(line, "] GPU makes "), *rest = NULL;
  if (!at) return;
  const char *op = strtok_r(at + strlen("] GPU makes "), " \n", &rest);
  if (!op) return;
  note(op);
  for (const char *type; (type = strtok_r(NULL, " \n", &rest));) {
    char key[256];
    snprintf(key, sizeof key, "%s %s", op, type);
    note(key);
  }
}

static void run_suite(const char *folder, const char *name) {
  char command[4096], *line = NULL;
  size_t size = 0;
  snprintf(command, sizeof command, "SHOAL_LOG=debug %s '%s/%s' 2>&1", unit_emulator(), folder, name);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  while (getline(&line, &size, f) >= 0) read_line(line);
  free(line);
  assert_int_equal(pclose(f), 0);
}

static bool is_never(const char *kernel) {
  for (size_t i = 0; i < COUNT_OF(never); i++)
    if (!strcmp(never[i].kernel, kernel)) return true;
  return false;
}

/* The other tests of a GPU's kernels are those whose names say so. */
static void run_suites(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));) {
    size_t length = strlen(e->d_name);
    if (strncmp(e->d_name, "gpu_", 4) || length < 9 || strcmp(e->d_name + length - 5, "_test")) continue;
    if (!strcmp(e->d_name, "gpu_tried_test")) continue;
    run_suite(folder, e->d_name);
    n++;
  }
  closedir(d);
  assert_true(n > 5);
}

/* How many of the types of one kernel were not tried. */
static int missing_of(const struct op *of, const char *attr, uint32_t types) {
  int missing = 0;
  const char *op = of->name;
  const struct op_attr *allowed = attr ? op_attr_find(of, attr) : NULL;
  for (int t = 1; attr && t < 32; t++) {
    char key[256];
    if (!(types >> t & 1) || (allowed && allowed->types && !(allowed->types >> t & 1))) continue;
    snprintf(key, sizeof key, "%s %s=%s", op, attr, shoal_dtype_name((shoal_dtype)t));
    if (strmap_has(&seen, key) || is_never(key)) continue;
    print_error("not tried: %s\n", key);
    missing++;
  }
  if (!attr && !strmap_has(&seen, op)) {
    print_error("not tried: %s\n", op);
    missing++;
  }
  return missing;
}

static void every_kernel_is_tried(void **state) {
  char here[4096];
  ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
  assert_true(length > 0);
  here[length] = 0;
  const char *folder = dirname(here);
  run_suites(folder);
  int n, missing = 0, kernels = 0;
  const struct op *const *ops = op_all(&n);
  for (int i = 0; i < n; i++)
    for (const struct kernel_def *k = cuda_kernels(ops[i]); k && k->device; k++) {
      kernels++;
      bool of_cards = ops[i]->name[0] == '_' && !cuda_api(NULL); /* rewrites make it where a card has it */
      if (!of_cards) missing += missing_of(ops[i], k->type_attr, k->types);
    }
  print_message("# %d kernels\n", kernels);
  strmap_release(&seen);
  assert_int_equal(missing, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_kernel_is_tried)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

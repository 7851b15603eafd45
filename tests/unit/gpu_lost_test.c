/* A card that is lost while a program trains: the step that was under way says so and by what, and whoever begins
 * again, here on the CPU, goes on from the last checkpoint to the weights of a run that nothing happened to.
 *
 * A real card is lost by a kernel that traps, which another thread launches at its context while steps run: nothing
 * of the process runs on the card afterwards. The soft device has a switch for it (SHOAL_SOFT_LOST). The program that
 * trains is this one, run with arguments: a process that has lost its card ends. */
#include "gpu_case.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 60, SAVE = 10, LOST_AT = 35, LOST = 3 };

/* ---- the program that trains ---- */

static atomic_int steps_done;

static const char trap[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry trap_now()\n{\n  trap;\n  ret;\n}\n";

static void lose_card(const struct cuda_api *api) {
  CUcontext context;
  CUmodule m;
  CUfunction f;
  int e = api->context_retain(&context, 0);
  if (!e) e = api->context_set(context);
  if (!e) e = api->module_load(&m, trap);
  if (!e) e = api->module_function(&f, m, "trap_now");
  if (!e) e = api->launch(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  if (e) fprintf(stderr, "the card could not be lost: error %d\n", e);
}

static void *lose(void *file) {
  const struct cuda_api *api = getenv("SHOAL_SOFT_GPUS") ? NULL : cuda_api(NULL);
  while (atomic_load(&steps_done) < LOST_AT) usleep(200);
  if (api) {
    lose_card(api);
  } else {
    FILE *f = fopen(file, "w");
    if (f) fclose(f);
  }
  return NULL;
}

/* loss = mean((w - 3)^2), with momentum; prints the step it begins at, or what went wrong, and the sum of w. */
static int train(const char *dir, const char *device, bool loses) {
  char file[600];
  pthread_t loser;
  snprintf(file, sizeof file, "%s/lost", dir);
  if (loses && getenv("SHOAL_SOFT_GPUS")) setenv("SHOAL_SOFT_LOST", file, 1);
  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, device);
  shoal_var w =
      shoal_variable(g, "w", shoal_constant_floats(g, SHOAL_SHAPE(8), (float[8]){1, 2, 4, 8, 16, 32, 64, 128}));
  shoal_out loss = shoal_reduce_mean(g, shoal_squared_difference(g, w.value, shoal_constant_float(g, 3)));
  shoal_op *step = shoal_minimize(g, shoal_momentum(0.9, 0.9), loss, shoal_global_step(g));
  shoal_out sum = shoal_reduce_sum(g, w.value);
  shoal_pop_device(g);
  shoal_status error = NULL;
  float have = 0;
  int64_t begun = -1;
  if (shoal_graph_error(g)) return shoal_report(g);
  if (loses) pthread_create(&loser, NULL, lose, file);
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = dir, .save_steps = SAVE, .stop_at_step = STEPS, .status = &error)
  while (!shoal_should_stop(s)) {
    if (begun < 0) printf("begins at %lld\n", (long long)(begun = shoal_train_session_created(s)->global_step));
    shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(sum, &have), step);
    atomic_fetch_add(&steps_done, 1);
    if (loses) usleep(2000); /* the card is to be lost somewhere in the middle */
  }
  printf("%s\nsum %.3f\n", error ? shoal_status_message(error) : "went well", (double)have);
  fflush(stdout);
  _exit(error ? LOST : 0); /* what is left on the card cannot be tidied up */
}

/* ---- the test ---- */

static int run_program(const char *dir, const char *device, const char *how, char *text, size_t size) {
  char here[1024], command[4096];
  ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
  assert_true(length > 0);
  here[length] = 0;
  snprintf(command, sizeof command, "%s '%s' '%s' %s %s 2>&1", unit_emulator(), here, dir, device, how);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  size_t n = fread(text, 1, size - 1, f);
  text[n] = 0;
  int status = pclose(f);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *fresh_dir(void) {
  char name[] = "/tmp/shoal-lost-XXXXXX";
  assert_non_null(mkdtemp(name));
  return strdup(name);
}

static void remove_dir(char *dir) {
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    unlink(path);
  }
  if (d) closedir(d);
  rmdir(dir);
  free(dir);
}

static double sum_of(const char *text) {
  const char *at = strstr(text, "\nsum ");
  return at ? atof(at + 5) : NAN;
}

static void training_goes_on_elsewhere(void **state) {
  enum { TEXT = 1 << 18 }; /* with SHOAL_LOG=debug too: who finds nobody reading any more ends by a signal */
  static char text[TEXT], whole[TEXT];
  char *dir = fresh_dir(), *other = fresh_dir();
  assert_int_equal(run_program(other, "/device:CPU:0", "", whole, sizeof whole), 0);
  int code = run_program(dir, "/device:GPU:0", "loses", text, sizeof text);
  print_message("# %s", strstr(text, "begins at") ? strstr(text, "begins at") : text);
  if (code != LOST || !strstr(text, "lost to this process")) fail_msg("ended with %d: %s", code, text);
  code = run_program(dir, "/device:CPU:0", "", text, sizeof text);
  const char *at = strstr(text, "begins at ");
  if (code || !at || atoi(at + 10) < SAVE || atoi(at + 10) >= STEPS) fail_msg("ended with %d: %s", code, text);
  assert_float_equal(sum_of(text), sum_of(whole), 0.01);
  remove_dir(dir);
  remove_dir(other);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_goes_on_elsewhere)};
  if (argc >= 3) return train(argv[1], argv[2], argc > 3);
  if (!gpu_here()) return 1;
  return cmocka_run_group_tests_name("gpu_lost", tests, NULL, NULL);
}

/* A worker for the tests: trains a model that counts. Each step adds one to both of its variables and to the step
 * counter, so that after any fault the three must agree.
 *
 *   trainer --cluster=JSON --job=worker --task=0 --steps=N [--checkpoint_dir=DIR] [--save_steps=N] [--step_ms=N]
 *           [--master=grpc://...] [--max_wait=SECONDS] [--size=FLOATS] [--gathered=1]
 *           [--trace=DIR] [--progress=1]
 *
 * Without --cluster and --master it trains in this process. Prints what happens, a line for each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shoal/shoal.h>

static const char *text_flag(int argc, char **argv, const char *name) {
  size_t n = strlen(name);
  for (int i = 1; i < argc; i++)
    if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, name, n) && argv[i][2 + n] == '=') return argv[i] + 3 + n;
  return NULL;
}

static long number_flag(int argc, char **argv, const char *name, long otherwise) {
  const char *t = text_flag(argc, argv, name);
  return t ? atol(t) : otherwise;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static shoal_op *add_one(shoal_graph *g, shoal_var v, shoal_out by) {
  shoal_builder *b = shoal_build(g, "AssignAddVariableOp", NULL);
  shoal_build_input(b, v.handle);
  shoal_build_input(b, by);
  return shoal_build_end(b);
}

static shoal_status say_created(void *state, const shoal_created *c) {
  static const char *const how[] = {"initialized", "restored", "rejoined", "waited"};
  printf("made %s at step %" PRId64 "\n", how[c->made], c->global_step);
  return NULL;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *cluster = text_flag(argc, argv, "cluster"), *job = text_flag(argc, argv, "job");
  int task = (int)number_flag(argc, argv, "task", 0), step_ms = (int)number_flag(argc, argv, "step_ms", 5);
  int64_t size = number_flag(argc, argv, "size", 8);
  shoal_server *server = NULL;
  if (cluster) {
    shoal_status e = shoal_server_start(
        &(shoal_server_options){.cluster = cluster, .job = job ? job : "worker", .task = task}, &server);
    if (e) return shoal_train_exit(e);
  }

  shoal_graph *g = shoal_graph_new();
  char worker[64];
  snprintf(worker, sizeof worker, "/job:worker/task:%d", task);
  int ps = (int)number_flag(argc, argv, "ps", 1);
  bool remote = server || text_flag(argc, argv, "master");
  if (remote) shoal_push_replica_setter(g, &(shoal_replica_setter){.ps_tasks = ps, .worker_device = worker});
  shoal_var step = shoal_global_step(g);
  shoal_var a = shoal_variable(g, "a", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(size)));
  shoal_var b = shoal_variable(g, "b", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(size)));
  shoal_out ones = shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(size));
  shoal_op *train = shoal_group(
      g, (shoal_op *[]){add_one(g, a, ones), add_one(g, b, ones), add_one(g, step, shoal_constant_int64(g, 1))}, 3,
      "train");
  shoal_out first = shoal_reduce_mean(g, a.value), second = shoal_reduce_mean(g, b.value);
  if (remote) shoal_pop_device(g);
  shoal_scalar_summary(g, shoal_constant_string(g, "mean"), first);
  shoal_histogram_summary(g, shoal_constant_string(g, "values"), a.value);
  if (size == 8) {
    shoal_builder *picture = shoal_build(g, "ImageSummary", NULL);
    shoal_build_input(picture, shoal_constant_string(g, "picture"));
    shoal_build_input(picture, shoal_reshape(g, a.value, shoal_constant_ints(g, SHOAL_SHAPE(4), (int[]){1, 2, 4, 1})));
    shoal_build_end(picture);
  }
  shoal_saver *saver = NULL;
  if (text_flag(argc, argv, "gathered"))
    saver = shoal_saver_new(g, &(shoal_saver_options){.from = SHOAL_SAVE_GATHERED});
  if (shoal_graph_error(g)) return shoal_report(g);

  const char *trace = text_flag(argc, argv, "trace");
  shoal_hook hooks[2] = {{.after_create = say_created}};
  if (trace) hooks[1] = shoal_profiler_hook(100, 0, trace);
  shoal_status error = NULL;
  double slowest = 0, began = seconds();
  int64_t now = 0, own = 0;
  SHOAL_TRAIN_SESSION(
      s, g, .server = server, .master = text_flag(argc, argv, "master"), .is_chief = task == 0,
      .checkpoint_dir = text_flag(argc, argv, "checkpoint_dir"), .save_steps = number_flag(argc, argv, "save_steps", 0),
      .stop_at_step = number_flag(argc, argv, "steps", 100),
      .max_wait_secs = (double)number_flag(argc, argv, "max_wait", 240), .scaffold = &(shoal_scaffold){.saver = saver},
      .hooks = hooks, .n_hooks = trace ? 2 : 1,
      .progress = number_flag(argc, argv, "progress", 0) ? &(shoal_progress){.loss = first} : NULL, .status = &error) {
    while (!shoal_should_stop(s)) {
      double before = seconds();
      if (!shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(step.value, &now), train)) continue;
      double took = seconds() - before;
      if (took > slowest && own > 3) slowest = took;
      if (own++ % 20 == 0) printf("at step %" PRId64 " %.2f s\n", now, seconds() - began);
      nanosleep(&(struct timespec){.tv_sec = step_ms / 1000, .tv_nsec = step_ms % 1000 * 1000000L}, NULL);
    }
    /* Another worker's last step may be under way: its three updates are not one. What was lost stays lost: what has not
     * changed for five seconds is not waited for. */
    float va = -1, vb = -1;
    for (int same = 0; same < 100 && !(va == (float)now && vb == va); same++) {
      int64_t was = now;
      float was_a = va, was_b = vb;
      shoal_session *raw = shoal_train_session_raw(s);
      shoal_status e = NULL;
      if (raw)
        e = shoal_session_step(raw, SHOAL_NO_FEEDS, SHOAL_FETCH(step.value, &now, first, &va, second, &vb), NULL);
      bool lost = !raw || e;
      shoal_status_free(e);
      if (lost) break;
      if (now != was || va != was_a || vb != was_b) same = 0;
      nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    printf("stopping at step %" PRId64 " own %" PRId64 " a %g b %g slowest step %.4f s\n", now, own, (double)va,
           (double)vb, slowest);
  }
  shoal_saver_free(saver);
  int code = shoal_train_exit(error);
  printf("exit %d\n", code);
  shoal_server_stop(server);
  shoal_graph_free(g);
  return code;
}

/* Options of programs that were compiled with other headers: older ones give less, newer ones more. And what else a
 * program has to tell versions apart, and lines of the log for itself. */
#include "unit.h"

#include <unistd.h>

#include <shoal/shoal.h>

#include "base/log.h"

enum { MORE = 16 };

/* One public struct of options, given to the call that takes it. */
struct use {
  const char *name;
  size_t size;
  shoal_status (*give)(shoal_graph *g, const void *options);
};

static shoal_status error_of(shoal_graph *g) { return shoal_graph_error(g) ? status_copy(shoal_graph_error(g)) : NULL; }

static shoal_status session(shoal_graph *g, const void *o) {
  shoal_session *s = NULL;
  TRY(shoal_session_open(g, o, &s));
  return shoal_session_close(s);
}

static shoal_status run(shoal_graph *g, const void *o) {
  shoal_session *s = NULL;
  TRY(shoal_session_open(g, NULL, &s));
  shoal_status e = shoal_session_run(s, o, NULL, NULL, 0, NULL, NULL, 0, NULL, 0, NULL);
  shoal_status_free(shoal_session_close(s));
  return e;
}

static shoal_status server(shoal_graph *g, const void *o) {
  shoal_server *s = NULL;
  return shoal_server_start(o, &s); /* without a cluster: an error in any case */
}

static shoal_status saver(shoal_graph *g, const void *o) {
  shoal_saver_free(shoal_saver_new(g, o));
  return error_of(g);
}

static shoal_status train_session(shoal_graph *g, const void *o) {
  shoal_train_session *s = NULL;
  TRY(shoal_train_session_open(g, o, &s));
  return shoal_train_session_close(s);
}

static shoal_status scaffold(shoal_graph *g, const void *o) {
  return train_session(g, SHOAL_OPTIONS(shoal_train_session_options, .scaffold = o, .no_signals = true));
}

static shoal_status its_session(shoal_graph *g, const void *o) {
  return train_session(g, SHOAL_OPTIONS(shoal_train_session_options, .no_signals = true, .session = o));
}

static shoal_status progress(shoal_graph *g, const void *o) {
  return train_session(g, SHOAL_OPTIONS(shoal_train_session_options, .progress = o, .no_signals = true));
}

static shoal_status progress_hook(shoal_graph *g, const void *o) {
  shoal_hook hook = shoal_progress_hook(o);
  return train_session(g, SHOAL_OPTIONS(shoal_train_session_options, .hooks = &hook, .n_hooks = 1, .no_signals = true));
}

static shoal_status own_hook(shoal_graph *g, const void *o) {
  shoal_hook hook = shoal_hook_of(o);
  return train_session(g, SHOAL_OPTIONS(shoal_train_session_options, .hooks = &hook, .n_hooks = 1, .no_signals = true));
}

static shoal_status supervisor(shoal_graph *g, const void *o) {
  shoal_supervisor *s = NULL;
  TRY(shoal_supervisor_new(g, o, &s));
  return shoal_supervisor_stop(s);
}

static shoal_status replicas(shoal_graph *g, const void *o) {
  shoal_sync_replicas_free(shoal_sync_replicas_new(g, shoal_sgd(1), o));
  return error_of(g);
}

static shoal_out never(shoal_graph *g, void *arg, const shoal_out *vars) { return shoal_constant_bool(g, false); }

static void same(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) { *next = *vars; }

static shoal_status loop(shoal_graph *g, const void *o) {
  shoal_out x = shoal_constant_float(g, 1), y;
  shoal_while_loop(g, never, same, NULL, &x, 1, o, &y);
  return error_of(g);
}

static shoal_status setter(shoal_graph *g, const void *o) {
  shoal_push_replica_setter(g, o);
  shoal_pop_device(g);
  return error_of(g);
}

static shoal_status scale(shoal_graph *g, const void *o) {
  shoal_var w = shoal_variable(g, "w", shoal_constant_float(g, 1));
  shoal_minimize_scaled(g, shoal_sgd(1), w.value, shoal_global_step(g), o);
  return error_of(g);
}

static shoal_status pipeline(shoal_graph *g, const void *o) {
  shoal_out x = shoal_constant_float(g, 1);
  shoal_pipeline_minimize(g, o, x, x, shoal_sgd(1), shoal_global_step(g), NULL); /* an error without stages, too */
  return error_of(g);
}

static shoal_status partitioning(shoal_graph *g, const void *o) {
  shoal_partitioned p = shoal_partitioned_variable_with(g, "v", SHOAL_FLOAT32, SHOAL_SHAPE(4), o);
  shoal_partitioned_free(&p);
  return error_of(g);
}

static shoal_status op(shoal_graph *g, const void *o) {
  shoal_out x = shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(1, 1));
  shoal_mat_mul_with(g, x, x, o);
  return error_of(g);
}

static const struct use uses[] = {
    {"shoal_session_options", sizeof(shoal_session_options), session},
    {"shoal_session_options", sizeof(shoal_session_options), its_session},
    {"shoal_run_options", sizeof(shoal_run_options), run},
    {"shoal_server_options", sizeof(shoal_server_options), server},
    {"shoal_saver_options", sizeof(shoal_saver_options), saver},
    {"shoal_train_session_options", sizeof(shoal_train_session_options), train_session},
    {"shoal_scaffold", sizeof(shoal_scaffold), scaffold},
    {"shoal_progress", sizeof(shoal_progress), progress},
    {"shoal_progress", sizeof(shoal_progress), progress_hook},
    {"shoal_hook_functions", sizeof(shoal_hook_functions), own_hook},
    {"shoal_partitioning", sizeof(shoal_partitioning), partitioning},
    {"shoal_supervisor_options", sizeof(shoal_supervisor_options), supervisor},
    {"shoal_sync_options", sizeof(shoal_sync_options), replicas},
    {"shoal_loop_options", sizeof(shoal_loop_options), loop},
    {"shoal_replica_setter", sizeof(shoal_replica_setter), setter},
    {"shoal_loss_scale", sizeof(shoal_loss_scale), scale},
    {"shoal_pipeline", sizeof(shoal_pipeline), pipeline},
    {"shoal_mat_mul_options", sizeof(shoal_mat_mul_options), op},
};

/* What the call says to options of `size` bytes that claim to be `claimed`, the last byte being `last`. The graph has a
 * step counter, which training sessions want. */
static shoal_status give(const struct use *u, size_t size, size_t claimed, char last) {
  char *bytes = calloc(1, size); /* no byte more: reading past it is seen by the address sanitizer */
  bytes[size - 1] = last;
  memcpy(bytes, &claimed, sizeof claimed);
  shoal_graph *g = shoal_graph_new();
  shoal_global_step(g);
  shoal_status e = u->give(g, bytes);
  shoal_graph_free(g);
  free(bytes);
  return e;
}

#define EACH(u) for (const struct use *u = uses; u < uses + sizeof uses / sizeof *uses; u++)

static void newer_programs(void **state) {
  EACH(u) {
    char text[128];
    snprintf(text, sizeof text, "%s has %zu bytes, of which this version of Shoal knows %zu", u->name, u->size + MORE,
             u->size);
    ASSERT_FAILS(give(u, u->size + MORE, u->size + MORE, 1), SHOAL_INVALID_ARGUMENT, text);
    shoal_status e = give(u, u->size + MORE, u->size + MORE, 0);
    if (e) assert_null(strstr(shoal_status_message(e), u->name));
    shoal_status_free(e);
  }
}

static void older_programs(void **state) {
  EACH(u) {
    shoal_status e = give(u, sizeof(size_t), sizeof(size_t), 8);
    if (e) assert_null(strstr(shoal_status_message(e), u->name));
    shoal_status_free(e);
  }
  /* What is there is used, what is not has its default. */
  struct {
    size_t size;
    const char *target;
  } first = {sizeof first, "nowhere://"};
  assert_int_equal(sizeof first, offsetof(shoal_session_options, config));
  shoal_graph *g = shoal_graph_new();
  shoal_session *s = NULL;
  ASSERT_FAILS(shoal_session_open(g, (const void *)&first, &s), SHOAL_INVALID_ARGUMENT, "nowhere://");
  first.target = "";
  ASSERT_OK(shoal_session_open(g, (const void *)&first, &s));
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void no_sizes(void **state) {
  EACH(u) {
    char text[128];
    snprintf(text, sizeof text, "%s has ", u->name);
    ASSERT_FAILS(give(u, u->size, 3, 0), SHOAL_INVALID_ARGUMENT, text);
    ASSERT_FAILS(give(u, u->size, sizeof(size_t) + 1, 0), SHOAL_INVALID_ARGUMENT, text);
    ASSERT_FAILS(give(u, u->size, (size_t)1 << 30, 0), SHOAL_INVALID_ARGUMENT, text);
    shoal_status e = give(u, u->size, 0, 0);
    if (u->give == op) assert_non_null(strstr(shoal_status_message(e), "has no size"));
    else if (e) assert_null(strstr(shoal_status_message(e), text));
    shoal_status_free(e);
  }
}

/* ---- arrays: the struct that has one says how large its elements are ---- */

static shoal_out weigh(shoal_graph *g, shoal_out in, void *built) {
  ++*(int *)built;
  return shoal_mul(g, in, shoal_variable(g, "w", shoal_constant_float(g, 2)).value);
}

static shoal_out mean(shoal_graph *g, shoal_out out, shoal_out labels, void *arg) { return shoal_reduce_mean(g, out); }

static shoal_status build_stages(const void *stages, size_t stage_size) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_floats(g, SHOAL_SHAPE(2), (float[]){1, 2});
  shoal_pipeline_minimize(g,
                          SHOAL_OPTIONS(shoal_pipeline, .stages = stages, .n_stages = 2, .micro_batches = 1,
                                        .loss = mean, .stage_size = stage_size),
                          x, x, shoal_sgd(1), shoal_global_step(g), NULL);
  shoal_status e = error_of(g);
  shoal_graph_free(g);
  return e;
}

static void stages_of_other_versions(void **state) {
  int built = 0;
  shoal_pipeline_stage first[2] = {{"", weigh, &built}, {"", weigh, &built}};
  struct {
    shoal_pipeline_stage stage;
    int64_t more;
  } newer[2] = {{first[0], 0}, {first[1], 0}};
  ASSERT_OK(build_stages(first, 0));
  ASSERT_OK(build_stages(first, sizeof *first));
  ASSERT_OK(build_stages(newer, sizeof *newer));
  assert_int_equal(built, 6);
  newer[1].more = 1;
  ASSERT_FAILS(build_stages(newer, sizeof *newer), SHOAL_INVALID_ARGUMENT,
               "shoal_pipeline_stage has 32 bytes, of which this version of Shoal knows 24");
  ASSERT_FAILS(build_stages(first, 8), SHOAL_INVALID_ARGUMENT, "shoal_pipeline_stage has the size 8");
  ASSERT_FAILS(build_stages(NULL, 0), SHOAL_INVALID_ARGUMENT, "stages is NULL");
}

/* Two runners: one goes on until the other fails. */
struct newer_runner {
  shoal_queue_runner runner;
  int64_t more;
};

typedef shoal_status start_runners(shoal_graph *g, const void *runners, size_t runner_size);

static shoal_status with_two(start_runners *start, bool newer, size_t runner_size, int64_t more) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 1);
  shoal_global_step(g);
  shoal_queue_runner plain[2] = {{.enqueue = shoal_no_op(g)},
                                 {.enqueue = shoal_assert(g, shoal_constant_bool(g, false), &x, 1)}};
  struct newer_runner grown[2] = {{plain[0], 0}, {plain[1], more}};
  shoal_status e = start(g, newer ? (const void *)grown : plain, runner_size);
  shoal_graph_free(g);
  return e;
}

static shoal_status start_alone(shoal_graph *g, const void *runners, size_t runner_size) {
  shoal_session *s;
  shoal_coordinator *c = shoal_coordinator_new();
  TRY(shoal_session_open(g, NULL, &s));
  shoal_status e = shoal_queue_runners_start(runners, 2, runner_size, s, c);
  if (!e) e = shoal_coordinator_join(c, 0);
  shoal_coordinator_free(c);
  shoal_status_free(shoal_session_close(s));
  return e;
}

static shoal_status start_in_session(shoal_graph *g, const void *runners, size_t runner_size) {
  shoal_status e = NULL;
  SHOAL_TRAIN_SESSION(s, g, .queue_runners = runners, .n_queue_runners = 2, .no_signals = true, .status = &e,
                      .queue_runner_size = runner_size)
  while (!shoal_should_stop(s)) usleep(1000);
  return e;
}

static shoal_status start_supervised(shoal_graph *g, const void *runners, size_t runner_size) {
  shoal_supervisor *sv;
  shoal_session *s;
  TRY(shoal_supervisor_new(g,
                           SHOAL_OPTIONS(shoal_supervisor_options, .is_chief = true, .queue_runners = runners,
                                         .n_queue_runners = 2, .no_signals = true, .queue_runner_size = runner_size),
                           &sv));
  shoal_status e = shoal_supervisor_managed_session(sv, "", NULL, &s);
  while (!e && !shoal_supervisor_should_stop(sv)) usleep(1000);
  shoal_status stopped = shoal_supervisor_stop(sv);
  if (!e) return stopped;
  shoal_status_free(stopped);
  return e;
}

static void runners_of_other_versions(void **state) {
  start_runners *const all[] = {start_alone, start_in_session, start_supervised};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    ASSERT_FAILS(with_two(all[i], false, 0, 0), SHOAL_INVALID_ARGUMENT, "assertion failed");
    ASSERT_FAILS(with_two(all[i], false, sizeof(shoal_queue_runner), 0), SHOAL_INVALID_ARGUMENT, "assertion failed");
    ASSERT_FAILS(with_two(all[i], true, sizeof(struct newer_runner), 0), SHOAL_INVALID_ARGUMENT, "assertion failed");
    ASSERT_FAILS(with_two(all[i], true, sizeof(struct newer_runner), 1), SHOAL_INVALID_ARGUMENT,
                 "shoal_queue_runner has 40 bytes, of which this version of Shoal knows 32");
    ASSERT_FAILS(with_two(all[i], false, 1, 0), SHOAL_INVALID_ARGUMENT, "shoal_queue_runner has the size 1");
  }
}

/* Defaults of ops that are not zero stay where an older program says nothing. */
static void older_programs_of_ops(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_leaky_relu_options o = SHOAL_LEAKY_RELU_DEFAULTS;
  o.alpha = 0.5F;
  shoal_out x = shoal_constant_float(g, -10), newer = shoal_leaky_relu_with(g, x, &o);
  o.size = offsetof(shoal_leaky_relu_options, alpha);
  shoal_out older = shoal_leaky_relu_with(g, x, &o);
  float with, without;
  shoal_session *s = NULL;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(newer, &with, older, &without), NULL));
  assert_float_equal(with, -5, 1e-5);
  assert_float_equal(without, -2, 1e-5);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void versions(void **state) {
  assert_string_equal(shoal_version(), SHOAL_VERSION);
  assert_int_equal(shoal_version_number(), SHOAL_VERSION_NUMBER);
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", SHOAL_VERSION_MAJOR, SHOAL_VERSION_MINOR, SHOAL_VERSION_PATCH);
  assert_string_equal(text, SHOAL_VERSION);
  assert_true(SHOAL_VERSION_NUMBER >= SHOAL_VERSION_OF(0, 1, 0) && SHOAL_VERSION_NUMBER < SHOAL_VERSION_OF(1, 0, 0));
}

static void note(void *arg, const shoal_log_line *line) {
  assert_true(line->time_ns > 0 && line->line > 0 && strstr(line->file, "options_test.c"));
  snprintf(arg, 64, "%d %s", (int)line->level, line->text);
}

static void lines_of_the_log(void **state) {
  char seen[64] = "";
  shoal_set_log_level(SHOAL_LOG_INFO);
  shoal_set_log(note, seen);
  LOGI("the answer is %d", 42);
  assert_string_equal(seen, "1 the answer is 42");
  LOGD("not made");
  assert_string_equal(seen, "1 the answer is 42");
  shoal_set_log_level(SHOAL_LOG_NONE);
  LOGE("not made");
  assert_string_equal(seen, "1 the answer is 42");
  shoal_set_log(NULL, NULL);
  shoal_set_log_level(SHOAL_LOG_WARNING);
  LOGW("a line on standard error");
  assert_string_equal(seen, "1 the answer is 42");
}

/* The rule in shoal.h: whatever ends a thing takes NULL for one. */
static void ends_of_nothing(void **state) {
  shoal_graph_free(NULL);
  shoal_bytes_free(NULL);
  shoal_tensor_unref(NULL);
  shoal_status_free(NULL);
  shoal_saver_free(NULL);
  shoal_coordinator_free(NULL);
  shoal_cluster_free(NULL);
  shoal_server_stop(NULL);
  shoal_sharing_free(NULL);
  shoal_partitioned_free(NULL);
  shoal_sync_replicas_free(NULL);
  shoal_async_free(NULL);
  shoal_batches_free(NULL);
  ASSERT_OK(shoal_session_close(NULL));
  ASSERT_OK(shoal_train_session_close(NULL));
  ASSERT_OK(shoal_supervisor_stop(NULL));
  ASSERT_OK(shoal_events_close(NULL));
}

/* This program has the library inside: ops that are linked to the shared one would bring a second copy along. */
static void another_copy(void **state) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
  assert_true(n > 0);
  path[n] = 0;
  for (int up = 0; up < 2; up++) *strrchr(path, '/') = 0;
  strcat(path, "/ops/own_op.so");
  ASSERT_FAILS(shoal_load_ops(path), SHOAL_FAILED_PRECONDITION, "another copy of libshoal");
  ASSERT_FAILS(shoal_load_ops("/nowhere/ops.so"), SHOAL_NOT_FOUND, "op library /nowhere/ops.so");
  ASSERT_FAILS(shoal_load_ops("/etc/passwd"), SHOAL_INVALID_ARGUMENT, "op library /etc/passwd");
  ASSERT_FAILS(shoal_load_ops("/tmp"), SHOAL_INVALID_ARGUMENT, "op library /tmp");
}

/* What a callback of the program's returns. */
static void errors_of_programs(void **state) {
  ASSERT_FAILS(shoal_status_new(SHOAL_DATA_LOSS, "row %d", 7), SHOAL_DATA_LOSS, "row 7");
  assert_null(shoal_status_new(SHOAL_OK, "nothing"));
}

RUN_TESTS(cmocka_unit_test(newer_programs), cmocka_unit_test(older_programs), cmocka_unit_test(no_sizes),
          cmocka_unit_test(stages_of_other_versions), cmocka_unit_test(runners_of_other_versions),
          cmocka_unit_test(older_programs_of_ops), cmocka_unit_test(versions), cmocka_unit_test(lines_of_the_log),
          cmocka_unit_test(ends_of_nothing), cmocka_unit_test(another_copy), cmocka_unit_test(errors_of_programs))

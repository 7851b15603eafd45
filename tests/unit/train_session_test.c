/* Training sessions in this process: initialising, restoring, hooks and their order, the ways to end. */
#include "unit.h"

#include <dirent.h>
#include <math.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shoal/shoal.h>

#include "train/claim.h"
#include "train/train_session.h"

struct model {
  shoal_graph *g;
  shoal_out x, loss;
  shoal_var v;
  shoal_op *train;
};

/* loss = (v - x)^2, one float. */
static struct model build(void) {
  struct model m = {.g = shoal_graph_new()};
  m.x = shoal_placeholder(m.g, SHOAL_FLOAT32, SHOAL_SCALAR, "x");
  m.v = shoal_variable(m.g, "v", shoal_constant_float(m.g, 1));
  m.loss = shoal_squared_difference(m.g, m.v.value, m.x);
  m.train = shoal_minimize(m.g, shoal_momentum(0.1, 0.5), m.loss, shoal_global_step(m.g));
  return m;
}

static shoal_tensor *number(float v) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &v, sizeof v, &t));
  return t;
}

static char *fresh_dir(void) {
  char name[] = "/tmp/shoal-train-XXXXXX";
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

static bool exists(const char *dir, const char *name) {
  char path[600];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return stat(path, &st) == 0;
}

/* ---- the loop ---- */

static void stops_at_step(void **unused) {
  struct model m = build();
  shoal_tensor *x = number(3);
  int runs = 0;
  float loss = 0;
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, m.g, .stop_at_step = 7, .status = &error)
  while (!shoal_should_stop(s)) {
    assert_true(shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_FETCH(m.loss, &loss), m.train));
    runs++;
  }
  ASSERT_OK(error);
  assert_int_equal(runs, 7);
  assert_true(loss < 4);
  assert_int_equal(shoal_train_exit(NULL), 0);
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
}

/* Runs to `last` in dir; returns v. */
static float train_to(const char *dir, int64_t last, int *runs, shoal_made *made) {
  struct model m = build();
  shoal_tensor *x = number(3);
  float v = 0;
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, m.g, .checkpoint_dir = dir, .stop_at_step = last, .save_steps = 2, .status = &error) {
    *made = shoal_train_session_created(s)->made;
    while (!shoal_should_stop(s)) {
      shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train);
      ++*runs;
    }
    ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(m.v.value, &v), NULL));
  }
  ASSERT_OK(error);
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
  return v;
}

static void resumes(void **unused) {
  char *dir = fresh_dir(), *other = fresh_dir();
  int runs = 0;
  shoal_made made;
  train_to(dir, 5, &runs, &made);
  assert_int_equal(made, SHOAL_MADE_INITIALIZED);
  assert_int_equal(runs, 5);
  assert_true(exists(dir, "checkpoint") && exists(dir, "model.ckpt-0.index") && exists(dir, "model.ckpt-2.index"));
  assert_true(exists(dir, "model.ckpt-4.index") && exists(dir, "model.ckpt-5.index") && exists(dir, "graph.pbtxt"));
  int64_t step;
  char *latest = shoal_latest_checkpoint(dir);
  ASSERT_OK(shoal_checkpoint_int(latest, "global_step", &step));
  assert_int_equal(step, 5);
  free(latest);
  runs = 0;
  float v = train_to(dir, 9, &runs, &made);
  assert_int_equal(made, SHOAL_MADE_RESTORED);
  assert_int_equal(runs, 4);
  runs = 0;
  float whole = train_to(other, 9, &runs, &made); /* the same without a break: the same number, slots and all */
  assert_int_equal(runs, 9);
  assert_true(v == whole);
  assert_false(exists(dir, "model.ckpt-0.index")); /* five are kept: 4 5 7 9 and 2 */
  remove_dir(dir);
  remove_dir(other);
}

/* ---- hooks ---- */

struct log {
  char text[4096];
  int fetch;
  shoal_out what;
  shoal_status fail_with;
};

static void note(struct log *l, const char *what) { strncat(l->text, what, sizeof l->text - strlen(l->text) - 1); }
static shoal_status log_begin(void *p, shoal_graph *g) {
  note(p, "begin ");
  return NULL;
}
static shoal_status log_created(void *p, const shoal_created *c) {
  note(p, c->is_chief && c->global_step == 0 ? "created " : "wrong ");
  return NULL;
}
static shoal_status log_before(void *p, shoal_run_context *c) {
  struct log *l = p;
  note(l, "before ");
  if (l->what.node) l->fetch = shoal_context_fetch(c, l->what);
  return NULL;
}
static shoal_status log_after(void *p, shoal_run_context *c) {
  struct log *l = p;
  note(l, "after ");
  if (l->what.node) note(l, shoal_context_number(c, l->fetch) >= 0 ? "value " : "wrong ");
  shoal_status e = l->fail_with;
  l->fail_with = NULL;
  return e;
}
static shoal_status log_end(void *p, shoal_session *s) {
  note(p, "end ");
  return NULL;
}
static void log_close(void *p) { note(p, "close "); }
static void log_free(void *p) { note(p, "free"); }

static shoal_hook log_hook(struct log *l) {
  return (shoal_hook){l, log_begin, log_created, log_before, log_after, log_end, log_close, log_free};
}

static void hooks_in_order(void **unused) {
  struct model m = build();
  struct log l = {.what = m.loss};
  shoal_tensor *x = number(3);
  shoal_status error = NULL;
  shoal_hook hooks[] = {log_hook(&l)};
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = hooks, .n_hooks = 1, .stop_at_step = 2, .status = &error)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train);
  ASSERT_OK(error);
  assert_string_equal(l.text, "begin created before after value before after value end close free");
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
}

static void hook_error_ends_without_end(void **unused) {
  struct model m = build();
  struct log l = {.fail_with = STATUS(SHOAL_INTERNAL, "broken hook")};
  shoal_tensor *x = number(3);
  shoal_status error = NULL;
  shoal_hook hooks[] = {log_hook(&l)};
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = hooks, .n_hooks = 1, .stop_at_step = 2, .status = &error)
  while (!shoal_should_stop(s)) assert_false(shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train));
  ASSERT_FAILS(error, SHOAL_INTERNAL, "broken hook");
  assert_string_equal(l.text, "begin created before after close free");
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
}

/* The same by the struct that can grow: in the same order, and its errors say whose they are. */
static void hook_of_functions(void **unused) {
  struct model m = build();
  struct log l = {.what = m.loss};
  shoal_tensor *x = number(3);
  char name[] = "log";
  shoal_status error = NULL;
  for (int fails = 0; fails < 2; fails++) {
    if (fails) l = (struct log){.fail_with = STATUS(SHOAL_INTERNAL, "broken hook")};
    strcpy(name, "log");
    shoal_hook hooks[] = {
        shoal_hook_of(SHOAL_OPTIONS(shoal_hook_functions, .name = name, .state = &l, .begin = log_begin,
                                    .after_create = log_created, .before_run = log_before, .after_run = log_after,
                                    .end = log_end, .before_close = log_close, .free = log_free))};
    strcpy(name, "---");
    SHOAL_TRAIN_SESSION(s, m.g, .hooks = hooks, .n_hooks = 1, .stop_at_step = fails ? 9 : 2, .status = &error)
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train);
    if (!fails) ASSERT_OK(error);
    assert_string_equal(l.text, fails ? "begin created before after close free"
                                      : "begin created before after value before after value end close free");
  }
  ASSERT_FAILS(error, SHOAL_INTERNAL, "hook \"log\": broken hook");
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
}

static shoal_status feeds_x(void *p, shoal_run_context *c) {
  struct model *m = p;
  shoal_tensor *x = number(1);
  shoal_context_feed(c, m->x, x);
  shoal_tensor_unref(x);
  return NULL;
}

/* The tensor is the hook's no more than until it has fed it. */
static void a_hook_feeds(void **unused) {
  struct model m = build();
  shoal_status error = NULL;
  float loss = -1;
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = &(shoal_hook){&m, .before_run = feeds_x}, .n_hooks = 1, .stop_at_step = 3,
                      .status = &error)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(m.loss, &loss), m.train);
  ASSERT_OK(error);
  assert_float_equal(loss, 0, 0); /* v is 1, and so is what is fed */
  shoal_graph_free(m.g);
}

static void feeding_twice_is_an_error(void **unused) {
  struct model m = build();
  shoal_tensor *x = number(3);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = &(shoal_hook){&m, .before_run = feeds_x}, .n_hooks = 1, .status = &error)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train);
  ASSERT_FAILS(error, SHOAL_INVALID_ARGUMENT, "fed twice");
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
}

static void nan_stops(void **unused) {
  for (int fail = 0; fail < 2; fail++) {
    struct model m = build();
    shoal_tensor *good = number(3), *bad = number(NAN);
    int runs = 0;
    shoal_status error = NULL;
    SHOAL_TRAIN_SESSION(s, m.g, .hooks = (shoal_hook[]){shoal_nan_tensor_hook(m.loss, fail)}, .n_hooks = 1,
                        .stop_at_step = 20, .status = &error)
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_FEED(m.x, ++runs == 3 ? bad : good), SHOAL_NO_FETCHES, m.train);
    if (fail) ASSERT_FAILS(error, SHOAL_FAILED_PRECONDITION, "NaN loss during training");
    else ASSERT_OK(error);
    assert_int_equal(runs, 3);
    shoal_tensor_unref(good);
    shoal_tensor_unref(bad);
    shoal_graph_free(m.g);
  }
}

static void final_ops_and_logging(void **unused) {
  struct model m = build();
  shoal_tensor *x = number(3);
  int64_t last = 0;
  shoal_status error = NULL;
  shoal_hook hooks[] = {shoal_final_ops_hook(SHOAL_FETCH(shoal_global_step(m.g).value, &last), NULL),
                        shoal_logging_tensor_hook(&m.v.value, NULL, 1, 0, 0, true), shoal_stop_at_step_hook(4, 0)};
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = hooks, .n_hooks = 3, .status = &error)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train);
  ASSERT_OK(error);
  assert_int_equal(last, 4);
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
}

static void summaries_and_traces(void **unused) {
  struct model m = build();
  char *dir = fresh_dir();
  shoal_tensor *x = number(3);
  shoal_scalar_summary(m.g, shoal_constant_string(m.g, "loss"), m.loss);
  shoal_status error = NULL;
  shoal_hook hooks[] = {shoal_profiler_hook(3, 0, dir)};
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = hooks, .n_hooks = 1, .stop_at_step = 8, .log_dir = dir,
                      .save_summaries_steps = 2, .log_step_count_steps = 2,
                      .progress = &(shoal_progress){.loss = m.loss, .examples_per_step = 1}, .status = &error)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_FEED(m.x, x), SHOAL_NO_FETCHES, m.train);
  ASSERT_OK(error);
  assert_true(exists(dir, "timeline-4.json") || exists(dir, "timeline-3.json"));
  shoal_tensor_unref(x);
  shoal_graph_free(m.g);
  remove_dir(dir);
}

/* ---- ends ---- */

static shoal_out queue(shoal_graph *g, const char *name) {
  shoal_builder *b = shoal_build(g, "FIFOQueueV2", name);
  shoal_build_types(b, "component_types", (shoal_dtype[]){SHOAL_FLOAT32}, 1);
  return shoal_build_end_out(b);
}

static shoal_op *close_queue(shoal_graph *g, shoal_out q, bool cancel) {
  shoal_builder *b = shoal_build(g, "QueueCloseV2", NULL);
  shoal_build_input(b, q);
  shoal_build_bool(b, "cancel_pending_enqueues", cancel);
  return shoal_build_end(b);
}

static shoal_out dequeue(shoal_graph *g, shoal_out q) {
  shoal_builder *b = shoal_build(g, "QueueDequeueV2", NULL);
  shoal_build_input(b, q);
  shoal_build_types(b, "component_types", (shoal_dtype[]){SHOAL_FLOAT32}, 1);
  return shoal_build_end_out(b);
}

static shoal_op *enqueue(shoal_graph *g, const char *op, shoal_out q, shoal_out value) {
  shoal_builder *b = shoal_build(g, op, NULL);
  shoal_build_input(b, q);
  shoal_build_input(b, value);
  return shoal_build_end(b);
}

struct filler {
  shoal_op *fill, *close;
};
static shoal_status fill_queue(void *arg, shoal_session *session) {
  struct filler *f = arg;
  TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, f->fill));
  return shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, f->close);
}

/* A queue of five elements, which runners move to a second one; its sixth element is the end. */
static void input_ends_cleanly(void **unused) {
  shoal_graph *g = shoal_graph_new();
  shoal_global_step(g);
  shoal_out first = queue(g, "first"), second = queue(g, "second");
  struct filler f = {
      enqueue(g, "QueueEnqueueManyV2", first, shoal_constant_floats(g, SHOAL_SHAPE(5), (float[]){1, 2, 3, 4, 5})),
      close_queue(g, first, false)};
  shoal_queue_runner runner = {enqueue(g, "QueueEnqueueV2", second, dequeue(g, first)), 2,
                               close_queue(g, second, false), close_queue(g, second, true)};
  shoal_out next = dequeue(g, second);
  shoal_status error = NULL;
  float v, sum = 0;
  int runs = 0;
  SHOAL_TRAIN_SESSION(s, g, .scaffold = &(shoal_scaffold){.init_fn = fill_queue, .init_arg = &f},
                      .queue_runners = &runner, .n_queue_runners = 1, .status = &error)
  while (!shoal_should_stop(s))
    if (shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(next, &v), NULL)) sum += v, runs++;
  ASSERT_OK(error);
  assert_int_equal(runs, 5);
  assert_true(sum == 15);
  shoal_graph_free(g);
}

/* A runner's error ends the session, and is what the session returns. */
static void runner_error(void **unused) {
  shoal_graph *g = shoal_graph_new();
  shoal_global_step(g);
  shoal_out q = queue(g, "q");
  shoal_out bad = shoal_check_numerics(g, shoal_constant_float(g, NAN), "bad input");
  shoal_queue_runner runner = {enqueue(g, "QueueEnqueueV2", q, bad), 1, close_queue(g, q, false),
                               close_queue(g, q, true)};
  shoal_out next = dequeue(g, q);
  shoal_status error = NULL;
  float v;
  SHOAL_TRAIN_SESSION(s, g, .queue_runners = &runner, .n_queue_runners = 1, .status = &error)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(next, &v), NULL);
  ASSERT_FAILS(error, SHOAL_INVALID_ARGUMENT, "bad input");
  shoal_graph_free(g);
}

static void errors_come_early(void **unused) {
  struct model m = build();
  shoal_train_session *s;
  ASSERT_FAILS(shoal_train_session_open(m.g, &(shoal_train_session_options){.checkpoint_dir = "/proc/nowhere"}, &s),
               SHOAL_NOT_FOUND, "cannot be written: /proc/nowhere");
  shoal_graph_free(m.g);
  m = build();
  shoal_add_v2(m.g, m.x, shoal_constant_int(m.g, 1));
  struct log l = {0};
  ASSERT_FAILS(shoal_train_session_open(
                   m.g, &(shoal_train_session_options){.hooks = (shoal_hook[]){log_hook(&l)}, .n_hooks = 1}, &s),
               SHOAL_INVALID_ARGUMENT, "");
  assert_string_equal(l.text, "free");
  shoal_graph_free(m.g);
}

/* A run that has its steps trains none, and leaves its checkpoint as it is. */
static void has_its_steps(void **unused) {
  char *dir = fresh_dir();
  int runs = 0;
  shoal_made made;
  train_to(dir, 5, &runs, &made);
  runs = 0;
  train_to(dir, 4, &runs, &made);
  assert_int_equal(runs, 0);
  assert_int_equal(made, SHOAL_MADE_RESTORED);
  assert_true(exists(dir, "model.ckpt-5.index"));
  assert_false(exists(dir, "model.ckpt-6.index"));
  remove_dir(dir);
}

static bool at_once(void) { return true; }

/* A folder of checkpoints is one run's; who has it is said. */
static void folders_are_claimed(void **unused) {
  char *dir = fresh_dir();
  struct claim *first, *second;
  ASSERT_OK(claim_take(dir, NULL, &first));
  assert_non_null(first);
  ASSERT_FAILS(claim_take(dir, at_once, &second), SHOAL_FAILED_PRECONDITION, "saves in");
  claim_free(first);
  ASSERT_OK(claim_take(dir, at_once, &second));
  claim_free(second);
  ASSERT_OK(claim_take("/there/is/no/such/folder", NULL, &first));
  assert_null(first);
  remove_dir(dir);
}

static atomic_int asked;
static bool when_asked_again(void) { return atomic_fetch_add(&asked, 1) >= 3; }

static shoal_status make(shoal_graph *g, const char *target, shoal_op *init) {
  struct scaffold f = {0};
  ASSERT_OK(scaffold_complete(&f, g, &(shoal_scaffold){.init_op = init}, false));
  struct session_manager m = {.graph = g,
                              .scaffold = &f,
                              .session.create_timeout_ms = 3600000,
                              .target = strdup(target),
                              .is_chief = true,
                              .give_up = when_asked_again};
  shoal_session *s;
  shoal_made made;
  atomic_store(&asked, 0);
  shoal_status e = session_manager_create(&m, &s, &made);
  session_manager_release(&m);
  scaffold_release(&f);
  return e;
}

/* Told to stop while a session is being made: whatever that waits for is broken off, and named. */
static void making_is_given_up(void **unused) {
  struct model m = build();
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  char target[64];
  int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(silent, (struct sockaddr *)&a, sizeof a) | listen(silent, 8), 0);
  getsockname(silent, (struct sockaddr *)&a, &n);
  snprintf(target, sizeof target, "grpc://127.0.0.1:%d", ntohs(a.sin_port));
  ASSERT_FAILS(make(m.g, target, NULL), SHOAL_CANCELLED, "while making a session on grpc://127.0.0.1");
  close(silent); /* now it refuses */
  ASSERT_FAILS(make(m.g, target, NULL), SHOAL_CANCELLED, "while making a session on grpc://127.0.0.1");
  shoal_out never = dequeue(m.g, queue(m.g, "q"));
  ASSERT_FAILS(make(m.g, "", never.node), SHOAL_CANCELLED, "the model was being initialised or restored");
  shoal_graph_free(m.g);
}

/* A hook that writes, and was not told where. */
static void hooks_want_folders(void **unused) {
  struct model m = build();
  shoal_train_session *s;
  shoal_hook hooks[] = {shoal_profiler_hook(1, 0, NULL), shoal_checkpoint_saver_hook(NULL, 1, 0, NULL)};
  for (int i = 0; i < 2; i++)
    ASSERT_FAILS(shoal_train_session_open(m.g, &(shoal_train_session_options){.hooks = &hooks[i], .n_hooks = 1}, &s),
                 SHOAL_INVALID_ARGUMENT, "no folder is given");
  shoal_graph_free(m.g);
}

/* A checkpoint of another model: names and shapes are listed, nothing is touched. */
static void other_models_checkpoint(void **unused) {
  char *dir = fresh_dir();
  int runs = 0;
  shoal_made made;
  train_to(dir, 3, &runs, &made);
  shoal_graph *g = shoal_graph_new();
  shoal_variable(g, "w", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(2, 3)));
  shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(4)));
  shoal_global_step(g);
  shoal_train_session *s;
  shoal_status e = shoal_train_session_open(g, &(shoal_train_session_options){.checkpoint_dir = dir}, &s);
  const char *text = shoal_status_message(e);
  assert_int_equal(shoal_status_code(e), SHOAL_INVALID_ARGUMENT);
  assert_non_null(strstr(text, "w: float [2,3], not in the checkpoint"));
  assert_non_null(strstr(text, "v: float [4], in the checkpoint float []"));
  assert_non_null(strstr(text, "v/Momentum: float []"));
  shoal_status_free(e);
  assert_true(exists(dir, "model.ckpt-3.index"));
  shoal_graph_free(g);
  remove_dir(dir);
}

/* A disk that has no room for the model is found out before the first step. */
static void model_larger_than_the_disk(void **unused) {
  char *dir = fresh_dir();
  shoal_graph *g = shoal_graph_new();
  shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(INT64_C(1) << 45)));
  shoal_global_step(g);
  shoal_train_session *s;
  ASSERT_FAILS(shoal_train_session_open(g, &(shoal_train_session_options){.checkpoint_dir = dir}, &s),
               SHOAL_RESOURCE_EXHAUSTED, "one checkpoint of this model takes 140737488.4 MB; the first is kept until");
  shoal_graph_free(g);
  remove_dir(dir);
}

RUN_TESTS(cmocka_unit_test(stops_at_step), cmocka_unit_test(resumes), cmocka_unit_test(hooks_in_order),
          cmocka_unit_test(hook_error_ends_without_end), cmocka_unit_test(hook_of_functions),
          cmocka_unit_test(a_hook_feeds), cmocka_unit_test(feeding_twice_is_an_error), cmocka_unit_test(nan_stops),
          cmocka_unit_test(final_ops_and_logging), cmocka_unit_test(summaries_and_traces),
          cmocka_unit_test(input_ends_cleanly), cmocka_unit_test(runner_error), cmocka_unit_test(errors_come_early),
          cmocka_unit_test(has_its_steps), cmocka_unit_test(folders_are_claimed), cmocka_unit_test(making_is_given_up),
          cmocka_unit_test(hooks_want_folders), cmocka_unit_test(other_models_checkpoint),
          cmocka_unit_test(model_larger_than_the_disk))

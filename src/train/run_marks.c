/* Marks of a run on its servers: three numbers beside the model, which no checkpoint holds.
 *
 *   run   Which run this is. A chief that comes back finds its variables alive and this mark the one it knows (from its
 *         own memory, or from the file `shoal_run` in the checkpoint directory): then nothing needs to be restored, and
 *         no step of the others is lost. A task that was restarted has no mark, and lacks its variables.
 *   stop  How often the run was asked to stop. Every worker remembers the number at its start; one that is told to stop
 *         (SIGTERM) adds one, and all see it. There is one on every task that holds variables, so that such a task can
 *         ask, too, before it goes.
 *   done  1 when the chief has ended the training, as opposed to having crashed: a parameter server that is a program
 *         of its own (shoal_server_serve) ends then. One on every task, too. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "graph/builder.h"
#include "base/device_name.h"
#include "runtime/mark_names.h"
#include "train/run_marks.h"
#include "train/train_session.h"
#include "train/variables.h"

struct mark {
  shoal_out value, fed;
  shoal_op *set, *add;
  shoal_out there;
};

struct run_marks {
  struct mark run;
  VEC(struct mark) stops, dones;
  int64_t id; /* of the run this process is part of; 0: none yet */
};

static struct mark make_mark(shoal_graph *g, const char *name, const char *shared, const struct shoal_node *with) {
  struct mark m = {0};
  struct shape scalar = shape_scalar();
  graph_push_colocation(g, with);
  struct build b = build_begin(g, "VarHandleOp", name);
  build_attr_type(&b, "dtype", SHOAL_INT64);
  build_attr_shape(&b, "shape", &scalar);
  build_attr_string(&b, "shared_name", shared);
  shoal_out handle = build_end_out(&b);
  if (handle.node) {
    m.fed = shoal_placeholder(g, SHOAL_INT64, SHOAL_SCALAR, "value");
    m.value = variable_read_op(g, handle, SHOAL_INT64, NULL);
    m.there = build_op1(g, "VarIsInitializedOp", handle);
    m.set = shoal_variable_assign(g, (shoal_var){handle, m.value}, m.fed);
    struct build a = build_begin(g, "AssignAddVariableOp", NULL);
    build_in(&a, handle);
    build_in(&a, build_const_int(g, SHOAL_INT64, 1));
    m.add = build_end(&a);
  }
  graph_pop_colocation(g);
  return m;
}

struct run_marks *run_marks_build(shoal_graph *g) {
  struct run_marks *m = mem_zalloc(1, sizeof *m);
  int n = shoal_variables(g, false, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_variables(g, false, vars, n);
  struct strmap seen = {0};
  graph_push_scope(g, "shoal");
  graph_push_control(g, NULL, -1);
  for (int i = 0; i < n; i++) {
    struct shoal_node *v = vars[i].handle.node;
    if (!i) m->run = make_mark(g, "run", RUN_MARK, v);
    if (strmap_put(&seen, v->device, v)) continue;
    vec_push(&m->stops, make_mark(g, "stop", STOP_MARK, v));
    vec_push(&m->dones, make_mark(g, "done", DONE_MARK, v));
  }
  graph_pop_control(g);
  graph_pop_scope(g);
  strmap_release(&seen);
  free(vars);
  return m;
}

void run_marks_free(struct run_marks *m) {
  if (!m) return;
  vec_release(&m->stops);
  vec_release(&m->dones);
  free(m);
}

static shoal_status set(const struct mark *m, shoal_session *session, int64_t v) {
  shoal_tensor *t;
  TRY(shoal_tensor_from(SHOAL_INT64, 0, NULL, &v, sizeof v, &t));
  shoal_status s = shoal_session_step(session, SHOAL_FEED(m->fed, t), SHOAL_NO_FETCHES, m->set);
  shoal_tensor_unref(t);
  return s;
}

/* ---- which run ---- */

static char *mark_path(const char *dir) { return mem_printf("%s/shoal_run", dir); }

static int64_t read_file(const char *dir) {
  enum { LONGEST = 64 };
  char *path = mark_path(dir), *data = NULL;
  size_t n;
  int64_t id = 0;
  shoal_status s = file_read(path, LONGEST, &data, &n);
  if (!s) {
    data[strcspn(data, "\n")] = 0;
    if (!str_to_int64(data, &id)) id = 0;
    free(data);
  }
  shoal_status_free(s);
  free(path);
  return id;
}

bool run_marks_same_run(struct run_marks *m, shoal_session *session, const char *dir) {
  int64_t known = m->id ? m->id : dir ? read_file(dir) : 0, found = 0;
  bool there = false;
  if (!known || !m->run.value.node) return false;
  shoal_status s = shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(m->run.there, &there), NULL);
  if (!s && there) s = session_get_int(session, m->run.value, &found);
  bool same = !s && there && found == known;
  if (same) m->id = known;
  shoal_status_free(s);
  return same;
}

shoal_status run_marks_begin(struct run_marks *m, shoal_session *session, const char *dir) {
  if (!m->run.value.node) return NULL;
  uint64_t drawn[2] = {(uint64_t)wall_nanos(), (uint64_t)getpid()};
  m->id = (int64_t)(hash_bytes(drawn, sizeof drawn, 0) >> 1) | 1;
  TRY(set(&m->run, session, m->id));
  if (!dir) return NULL;
  char *path = mark_path(dir), text[32];
  int n = snprintf(text, sizeof text, "%" PRId64 "\n", m->id);
  shoal_status s = file_write(path, text, (size_t)n);
  free(path);
  return s;
}

/* ---- stopping ---- */

shoal_status run_marks_stops(struct run_marks *m, shoal_session *session, int64_t *sum) {
  struct step_request step = {0};
  *sum = 0;
  for (size_t i = 0; i < m->stops.n; i++) step_fetch(&step, m->stops.at[i].value);
  shoal_status s = m->stops.n ? step_run(&step, session) : NULL;
  if (shoal_status_code(s) == SHOAL_FAILED_PRECONDITION) { /* a chief of TensorFlow's leaves no marks */
    shoal_status_free(s);
    s = NULL;
  }
  for (size_t i = 0; i < step.values.n; i++) *sum += (int64_t)tensor_number(step.values.at[i]);
  step_release(&step);
  return s;
}

shoal_status run_marks_ready(struct run_marks *m, shoal_session *session) {
  for (size_t i = 0; i < m->stops.n; i++) {
    bool there;
    TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(m->stops.at[i].there, &there), NULL));
    if (!there) TRY(set(&m->stops.at[i], session, 0));
  }
  return run_marks_done(m, session, false);
}

shoal_status run_marks_done(struct run_marks *m, shoal_session *session, bool done) {
  for (size_t i = 0; i < m->dones.n; i++) TRY(set(&m->dones.at[i], session, done));
  return NULL;
}

shoal_status run_marks_request_stop(struct run_marks *m, shoal_session *session) {
  struct step_request step = {0};
  for (size_t i = 0; i < m->stops.n; i++) step_target(&step, m->stops.at[i].add);
  shoal_status s = m->stops.n ? step_run(&step, session) : NULL;
  step_release(&step);
  return s;
}

/* Savers: snapshot, write, list; see shoal/saver.h. */
#include "train/saver.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/given.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "checkpoint/bundle.h"
#include "graph/builder.h"
#include "train/meta_graph.h"
#include "train/progress.h"
#include "train/step_request.h"

enum { DEFAULT_KEEP = 5, DEFAULT_KEEP_HOURS = 10000 };

struct shoal_saver {
  shoal_graph *graph;
  struct text meta; /* the MetaGraphDef, when meta_nodes nodes were in the graph */
  size_t meta_nodes;
  bool no_meta;
  struct saver_nodes nodes;
  struct saver_files files;
  shoal_save_from asked, from; /* from: AUTO until found out */
  char *task;                  /* in whose name it says what it saved; NULL: it does not */
  /* The write behind: one at a time. */
  bool writing;
  pthread_t thread;
  shoal_session *session;
  char *path;
  atomic_bool done;     /* the thread is about to end */
  shoal_status written; /* its result, after it was joined */
};

shoal_saver *shoal_saver_new(shoal_graph *g, const shoal_saver_options *options) {
  shoal_saver_options o = {0};
  shoal_status e = OPTIONS_TAKE(shoal_saver_options, no_meta_graph, &o, options);
  if (e) graph_fail(g, e);
  shoal_saver *s = mem_zalloc(1, sizeof *s);
  s->graph = g;
  s->no_meta = o.no_meta_graph;
  s->asked = s->from = o.from;
  s->files.max_to_keep = o.max_to_keep ? o.max_to_keep : DEFAULT_KEEP;
  s->files.keep_every_secs = (o.keep_every_hours > 0 ? o.keep_every_hours : DEFAULT_KEEP_HOURS) * 3600;
  saver_nodes_build(&s->nodes, g, o.vars, o.n_vars);
  return s;
}

void shoal_saver_free(shoal_saver *s) {
  if (!s) return;
  shoal_status_free(shoal_saver_wait(s));
  saver_nodes_release(&s->nodes);
  saver_files_release(&s->files);
  text_release(&s->meta);
  free(s->task);
  free(s);
}

static shoal_tensor *string_tensor(const char *text) {
  shoal_tensor *t = NULL;
  shoal_status_free(shoal_tensor_from_string(text, strlen(text), &t)); /* NULL is found out by the step */
  return t;
}

/* ---- who sees the files? ---- */

/* Do all tasks with variables find a file? */
static shoal_status seen_by_all(shoal_saver *s, shoal_session *session, const char *path, bool *all) {
  struct step_request step = {0};
  shoal_tensor *pattern = string_tensor(path);
  shoal_status e = step_feed(&step, s->nodes.pattern, pattern);
  for (size_t i = 0; i < s->nodes.groups.n; i++) step_fetch(&step, s->nodes.groups.at[i].sees_files);
  if (!e) e = step_run(&step, session);
  *all = !e;
  for (size_t i = 0; i < step.values.n; i++) *all = *all && shoal_tensor_elements(step.values.at[i]) > 0;
  step_release(&step);
  shoal_tensor_unref(pattern);
  shoal_code code = shoal_status_code(e);
  if (code == SHOAL_PERMISSION_DENIED || code == SHOAL_UNIMPLEMENTED || code == SHOAL_INVALID_ARGUMENT) {
    shoal_status_free(e); /* a server that keeps its files to itself */
    e = NULL;
  }
  return e;
}

static shoal_status choose(shoal_saver *s, shoal_session *session, const char *existing) {
  bool all = false;
  if (s->from != SHOAL_SAVE_AUTO) return NULL;
  TRY(seen_by_all(s, session, existing, &all));
  s->from = all ? SHOAL_SAVE_SHARDED : SHOAL_SAVE_GATHERED;
  return NULL;
}

/* Finds out by a file that is made for it beside the checkpoints. */
static shoal_status choose_by_probe(shoal_saver *s, shoal_session *session, const char *path) {
  if (s->from != SHOAL_SAVE_AUTO) return NULL;
  char *probe = mem_printf("%s.tempstate-probe-%d-%" PRId64, path, (int)getpid(), wall_nanos());
  shoal_status e = file_write(probe, "", 0);
  if (!e) e = choose(s, session, probe);
  shoal_status_free(file_remove(probe));
  free(probe);
  return e;
}

/* ---- saving ---- */

shoal_status saver_meta_graph_of(const shoal_saver *s, struct shoal_graph *copy, struct text *out) {
  struct meta_saver def = {.filename = s->nodes.prefix,
                           .save = s->nodes.saved,
                           .restore = s->nodes.read_gathered,
                           .max_to_keep = MAX(s->files.max_to_keep, 0),
                           .keep_every_hours = s->files.keep_every_secs / 3600};
  return meta_graph_encode(copy, &def, out);
}

const struct saver_nodes *saver_nodes_of(const shoal_saver *s) { return &s->nodes; }

shoal_status saver_meta_graph(shoal_saver *s, const struct text **out) {
  *out = &s->meta;
  if (s->meta.n && s->meta_nodes == s->graph->nodes.n) return NULL;
  s->meta.n = 0;
  s->meta_nodes = s->graph->nodes.n;
  return saver_meta_graph_of(s, s->graph, &s->meta);
}

static shoal_status write_meta(shoal_saver *s, const char *path) {
  if (s->no_meta) return NULL;
  char *file = mem_printf("%s.meta", path);
  shoal_status e = file_write(file, s->meta.at, s->meta.n);
  free(file);
  return e;
}

static shoal_status run_with_paths(shoal_saver *s, shoal_session *session, const char *path, const shoal_op *op) {
  char *parts = mem_printf("%s_temp_%d_%" PRId64 "/part", path, (int)getpid(), wall_nanos());
  shoal_tensor *prefix = string_tensor(path), *base = string_tensor(parts);
  shoal_status e =
      shoal_session_step(session, SHOAL_FEED(s->nodes.prefix, prefix, s->nodes.parts, base), SHOAL_NO_FETCHES, op);
  if (e && op == s->nodes.write_sharded) { /* parts that were complete when another failed */
    char *pattern = mem_printf("%s*", parts), *dir = path_directory(parts);
    struct path_list left = {0};
    shoal_status_free(file_glob(pattern, &left));
    for (size_t i = 0; i < left.paths.n; i++) shoal_status_free(file_remove(left.paths.at[i]));
    shoal_status_free(directory_remove(dir));
    path_list_release(&left);
    free(pattern);
    free(dir);
  }
  shoal_tensor_unref(prefix);
  shoal_tensor_unref(base);
  free(parts);
  return e;
}

static shoal_status take_snapshot(shoal_saver *s, shoal_session *session, const char *path) {
  TRY(saver_files_check_room(path, s->nodes.bytes, 1));
  TRY(choose_by_probe(s, session, path));
  const struct text *meta; /* made here, while nobody can be adding to the graph */
  if (!s->no_meta) TRY(saver_meta_graph(s, &meta));
  return session_run_op(session, s->nodes.take);
}

static shoal_status write_values(shoal_saver *s, shoal_session *session, const char *path) {
  shoal_status e = run_with_paths(s, session, path,
                                  s->from == SHOAL_SAVE_SHARDED ? s->nodes.write_sharded : s->nodes.write_gathered);
  shoal_status_free(session_run_op(session, s->nodes.drop)); /* what stays is overwritten by the next one */
  return e;
}

static shoal_status write_snapshot(shoal_saver *s, shoal_session *session, const char *path) {
  shoal_status e = write_values(s, session, path);
  if (!e) e = write_meta(s, path);
  if (!e) e = saver_files_add(&s->files, path);
  if (!e && s->task) progress_say(s->task, "saved %s", path);
  return status_prefix(e, "checkpoint %s was not saved: ", path);
}

shoal_status saver_write(shoal_saver *s, shoal_session *session, const char *path) {
  TRY(shoal_saver_wait(s));
  TRY(take_snapshot(s, session, path));
  return write_values(s, session, path);
}

static char *path_of(const char *prefix, int64_t step) {
  return step < 0 ? mem_strdup(prefix) : mem_printf("%s-%" PRId64, prefix, step);
}

shoal_status shoal_saver_save(shoal_saver *s, shoal_session *session, const char *prefix, int64_t step, char **path) {
  GIVEN(s);
  GIVEN(session);
  GIVEN(prefix);
  TRY(shoal_saver_wait(s));
  char *to = path_of(prefix, step);
  shoal_status e = take_snapshot(s, session, to);
  if (!e) e = write_snapshot(s, session, to);
  if (!e && path) *path = to;
  else free(to);
  return e;
}

static void *write_behind(void *arg) {
  shoal_saver *s = arg;
  s->written = write_snapshot(s, s->session, s->path);
  atomic_store(&s->done, true);
  return NULL;
}

shoal_status shoal_saver_save_behind(shoal_saver *s, shoal_session *session, const char *prefix, int64_t step) {
  GIVEN(s);
  GIVEN(session);
  GIVEN(prefix);
  TRY(shoal_saver_wait(s));
  char *to = path_of(prefix, step);
  shoal_status e = take_snapshot(s, session, to);
  if (e) {
    free(to);
    return e;
  }
  s->session = session;
  s->path = to;
  atomic_store(&s->done, false);
  int err = pthread_create(&s->thread, NULL, write_behind, s);
  if (err) {
    free(to);
    return ERRNO_STATUS(err, "cannot start a thread");
  }
  s->writing = true;
  return NULL;
}

shoal_status shoal_saver_wait(shoal_saver *s) {
  if (!s->writing) return NULL;
  pthread_join(s->thread, NULL);
  s->writing = false;
  free(s->path);
  s->path = NULL;
  shoal_status e = s->written;
  s->written = NULL;
  return e;
}

shoal_status saver_poll(shoal_saver *s) { return s->writing && atomic_load(&s->done) ? shoal_saver_wait(s) : NULL; }

shoal_status saver_check_room(const shoal_saver *s, const char *dir) {
  char *path = mem_printf("%s/checkpoint", dir), *latest = checkpoint_latest(dir);
  shoal_status e = saver_files_check_room(path, s->nodes.bytes, latest ? 1 : 2);
  free(path);
  free(latest);
  return e;
}

void saver_talk(shoal_saver *s, const char *task) {
  free(s->task);
  s->task = mem_strdup(task);
}

/* ---- restoring ---- */

/* A checkpoint may be from before a variable that the model has now. */
static shoal_status read_values(shoal_saver *s, shoal_session *session, const char *prefix) {
  const struct saver_nodes *n = &s->nodes;
  bool sharded = s->from == SHOAL_SAVE_SHARDED;
  const shoal_op *before = sharded ? n->read_sharded_before : n->read_gathered_before;
  shoal_status e = run_with_paths(s, session, prefix, sharded ? n->read_sharded : n->read_gathered);
  if (!before || shoal_status_code(e) != SHOAL_NOT_FOUND) return e;
  shoal_status_free(e);
  return run_with_paths(s, session, prefix, before);
}

shoal_status shoal_saver_restore(shoal_saver *s, shoal_session *session, const char *prefix) {
  GIVEN(s);
  GIVEN(session);
  if (!prefix)
    return NOT_FOUND("there is no checkpoint to restore: its path is NULL, as shoal_latest_checkpoint finds none");
  TRY(saver_check_model(&s->nodes, prefix));
  char *index = mem_printf("%s.index", prefix);
  shoal_status e = choose(s, session, index);
  free(index);
  if (!e) e = read_values(s, session, prefix);
  if (s->asked == SHOAL_SAVE_AUTO) s->from = SHOAL_SAVE_AUTO; /* tasks may come back on other machines */
  return status_prefix(e, "checkpoint %s was not restored: ", prefix);
}

shoal_status shoal_saver_recover(shoal_saver *s, const char *dir) {
  GIVEN(s);
  GIVEN(dir);
  return saver_files_recover(&s->files, dir);
}

int64_t checkpoint_step(const char *prefix) {
  const char *dash = prefix ? strrchr(prefix, '-') : NULL;
  int64_t step;
  return dash && str_to_int64(dash + 1, &step) && step >= 0 ? step : -1;
}

char *shoal_latest_checkpoint(const char *dir) { return dir ? checkpoint_latest(dir) : NULL; }

shoal_status shoal_checkpoint_int(const char *prefix, const char *name, int64_t *out) {
  GIVEN(prefix);
  GIVEN(name);
  GIVEN(out);
  struct bundle b;
  struct tensor t;
  TRY(bundle_open(&b, prefix));
  shoal_status s = bundle_read(&b, name, strlen(name), &t);
  if (!s) {
    s = tensor_get_int(&t, name, out);
    tensor_release(&t);
  }
  bundle_close(&b);
  return s;
}

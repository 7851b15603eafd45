/* The state of servers as a table or as JSON: every one is asked at once for its text and its numbers (StatusResponse
 * in src/proto/shoal.proto).
 *
 * What a server sends is a stranger's word: nothing of it reaches the terminal before text_add_shown() has seen it. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/given.h"
#include "base/mem.h"
#include "cluster/metrics.h"
#include "proto/shoal.wire.h"
#include "rpc/message.h"

enum { MAX_WAITS = 8 };

/* What is in the message, in the structure and, by that name, in JSON. */
#define NUMBER(field, name) \
  { StatusResponse_##field, offsetof(struct server_numbers, field), name }
static const struct {
  uint32_t tag;
  size_t at;
  const char *name;
} numbers[] = {NUMBER(pid, "process"),
               NUMBER(up_ms, "up_ms"),
               NUMBER(tensor_bytes, "tensor_bytes"),
               NUMBER(sessions, "sessions"),
               NUMBER(running, "running"),
               NUMBER(variables, "variables"),
               NUMBER(variable_bytes, "variable_bytes"),
               NUMBER(global_step, "global_step"),
               NUMBER(memory_bytes, "memory_bytes"),
               NUMBER(steps, "steps"),
               NUMBER(master_sessions, "master_sessions")};
static_assert(COUNT_OF(numbers) == sizeof(struct server_numbers) / sizeof(int64_t), "each has its field");

static int64_t *number_at(struct server_numbers *n, size_t i) { return (int64_t *)((char *)n + numbers[i].at); }

/* ---- the server's side ---- */

void server_status_numbers(struct shoal_server *s, struct text *out) {
  struct server_numbers n;
  server_numbers_get(s, &n);
  n.global_step++;
  for (size_t i = 0; i < COUNT_OF(numbers); i++) wire_add_uint(out, numbers[i].tag, (uint64_t)*number_at(&n, i));
  put_StatusResponse_task(out, s->task);
}

/* ---- the asker's side ---- */

struct asked {
  char *task, *address; /* task NULL: as the server says */
  int64_t timeout_ms;
  struct server_numbers n;
  char *text;
  shoal_status error;
  pthread_t thread;
  bool started;
};

static char *shown(const void *data, size_t n, bool lines) {
  struct text t = {0};
  text_add_shown(&t, data, n, lines);
  return text_take(&t);
}

static void *ask_one(void *arg) {
  struct asked *a = arg;
  struct rpc_body body = {0};
  const void *data;
  size_t size;
  a->error = server_ask(a->address, "/shoal.Server/Status", a->timeout_ms, &body);
  if (a->error) return NULL;
  a->error = rpc_body_flat(&body, &data, &size);
  struct wire w = a->error ? wire_from("", 0) : wire_from(data, size);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
      if (f.tag == numbers[i].tag) *number_at(&a->n, i) = (int64_t)f.value;
    if (f.tag == StatusResponse_text && !a->text) a->text = shown(f.data, f.size, true);
    if (f.tag == StatusResponse_task && !a->task) a->task = shown(f.data, f.size, false);
  }
  a->n.global_step--;
  rpc_body_release(&body);
  return NULL;
}

static bool not_ours(const struct asked *a) { return shoal_status_code(a->error) == SHOAL_UNIMPLEMENTED; }

/* The table's columns behind task, address and state. Where a terminal is too narrow for all, those whose number is
 * highest go first, and the address last of all. */
enum column { PROCESS, MEMORY, TENSORS, SESSIONS, RUNNING, STEPS, VARIABLES, GLOBAL_STEP, COLUMNS };
static const struct {
  const char *name;
  int width, goes;
} columns[COLUMNS] = {
    [PROCESS] = {"PROCESS", 8, 6},     [MEMORY] = {"MEMORY", 9, 2},
    [TENSORS] = {"TENSORS", 9, 7},     [SESSIONS] = {"SESSIONS", 8, 5},
    [RUNNING] = {"RUNNING", 7, 4},     [STEPS] = {"STEPS", 10, 3},
    [VARIABLES] = {"VARIABLES", 9, 8}, [GLOBAL_STEP] = {"GLOBAL_STEP", 11, 1},
};

struct layout {
  int task, address; /* widths; address 0: left out */
  bool has[COLUMNS];
};

enum { STATE_WIDTH = 12 };

static struct layout lay_out(const struct asked *all, size_t n, int room) {
  struct layout l = {.task = 4, .address = 7};
  for (size_t i = 0; i < n; i++) {
    l.task = MAX(l.task, (int)(all[i].task ? strlen(all[i].task) : 0));
    l.address = MAX(l.address, (int)strlen(all[i].address));
  }
  int width = l.task + 2 + l.address + 2 + STATE_WIDTH;
  for (int c = 0; c < COLUMNS; c++) {
    l.has[c] = true;
    width += 1 + columns[c].width;
  }
  for (int goes = COLUMNS; room && width > room && goes > 0; goes--)
    for (int c = 0; c < COLUMNS; c++) {
      if (columns[c].goes != goes) continue;
      l.has[c] = false;
      width -= 1 + columns[c].width;
    }
  if (room && width > room) l.address = 0;
  return l;
}

static void put_cell(const struct asked *a, enum column c, struct text *out) {
  const struct server_numbers *n = &a->n;
  const int64_t values[COLUMNS] = {
      [PROCESS] = n->pid,     [MEMORY] = n->memory_bytes, [TENSORS] = n->tensor_bytes, [SESSIONS] = n->sessions,
      [RUNNING] = n->running, [STEPS] = n->steps,         [VARIABLES] = n->variables,  [GLOBAL_STEP] = n->global_step,
  };
  double size = (double)values[c];
  if (c == MEMORY || c == TENSORS)
    text_addf(out, size >= 1e9 ? " %6.1f GB" : " %6.1f MB", size >= 1e9 ? size / 1e9 : size / 1e6);
  else if (values[c] >= 0)
    text_addf(out, " %*" PRId64, columns[c].width, values[c]); /* a global step may not be there */
}

static void put_names(const char *task, const char *address, const struct layout *l, struct text *out) {
  text_addf(out, "%-*s  ", l->task, task);
  if (l->address) text_addf(out, "%-*s  ", l->address, address);
}

static void put_row(const struct asked *a, const struct layout *l, struct text *out) {
  put_names(a->task ? a->task : l->address ? "" : a->address, a->address, l, out);
  if (not_ours(a)) {
    text_adds(out, "up, but not Shoal's\n");
    return;
  }
  if (a->error) {
    static const char noise[] = "Failed to connect to remote host: ";
    const char *why = shoal_status_message(a->error), *cause = strstr(why, noise);
    if (cause) why = cause + strlen(noise);
    char *line = shown(why, strcspn(why, "\n"), false);
    text_addf(out, "no answer: %s\n", line);
    free(line);
    return;
  }
  text_addf(out, "up %7.0f s", (double)a->n.up_ms * 1e-3);
  for (int c = 0; c < COLUMNS; c++)
    if (l->has[c]) put_cell(a, (enum column)c, out);
  text_addc(out, '\n');
}

typedef bool wait_fn(const struct asked *a, const char *line, int n, struct text *out); /* true: it took it */

/* The lines of a server's text that say for what it waits; calls fn for each. */
static void each_wait(const struct asked *a, wait_fn *fn, struct text *out) {
  int found = 0;
  for (const char *at = a->text; at && *at && found < MAX_WAITS;) {
    int n = (int)strcspn(at, "\n");
    const char *line = at + strspn(at, " ");
    if (memmem(at, (size_t)n, ": waits for ", 12) || memmem(at, (size_t)n, ": waiting here for ", 19))
      found += fn(a, line, n - (int)(line - at), out);
    at += n + (at[n] == '\n');
  }
}

/* For how long a line's step has run, by all that the server says of it; -1: it does not say. */
static double step_age(const struct asked *a, const char *line) {
  int n = (int)strcspn(line, ":\n");
  double oldest = -1;
  for (const char *at = a->text; at && *at;) {
    const char *end = at + strcspn(at, "\n");
    at += strspn(at, " ");
    const char *since =
        strncmp(at, line, (size_t)n) || at[n] != ':' ? NULL : memmem(at, (size_t)(end - at), " since ", 7);
    double age = since ? strtod(since + 7, NULL) : -1;
    if (age > oldest) oldest = age;
    at = end + (*end == '\n');
  }
  return oldest;
}

/* In the table: what waits for no longer than a step may take is the normal course of things. Of the keys that values
 * have between tasks people want the name alone: "TASK;INCARNATION;TASK;edge_7_w/read;0:0". */
static bool put_wait(const struct asked *a, const char *line, int n, struct text *out) {
  double age = step_age(a, line);
  bool here = memmem(line, (size_t)n, ": waiting here for ", 19) != NULL;
  if (age < 1 && (here || age >= 0)) return false;
  const char *name = line + n, *end = memrchr(line, ';', (size_t)n), *key = end;
  if (end) name = memrchr(line, ';', (size_t)(end - line));
  while (key && key > line && key[-1] != ' ') key--;
  if (end && name) text_addf(out, "  %.*s%.*s\n", (int)(key - line), line, (int)(end - name - 1), name + 1);
  else text_addf(out, "  %.*s\n", n, line);
  return true;
}

static bool put_wait_json(const struct asked *a, const char *line, int n, struct text *out) {
  char *copy = mem_strndup(line, (size_t)n);
  if (out->at[out->n - 1] != '[') text_adds(out, ", ");
  text_add_json(out, copy);
  free(copy);
  return true;
}

/* room: columns of the terminal; 0: as many as it takes. */
static void put_table(const struct asked *all, size_t n, int room, struct text *out) {
  struct layout l = lay_out(all, n, room);
  put_names("TASK", "ADDRESS", &l, out);
  text_addf(out, "%-*s", STATE_WIDTH, "STATE");
  for (int c = 0; c < COLUMNS; c++)
    if (l.has[c]) text_addf(out, " %*s", columns[c].width, columns[c].name);
  text_addc(out, '\n');
  for (size_t i = 0; i < n; i++) put_row(&all[i], &l, out);
  for (size_t i = 0; i < n; i++) {
    struct text waits = {0};
    each_wait(&all[i], put_wait, &waits);
    if (waits.n) text_addf(out, "%s:\n%s", all[i].task ? all[i].task : all[i].address, waits.at);
    text_release(&waits);
  }
}

static void put_json(const struct asked *a, struct text *out) {
  text_adds(out, "{\"task\": ");
  text_add_json(out, a->task ? a->task : "");
  text_adds(out, ", \"address\": ");
  text_add_json(out, a->address);
  text_addf(out, ", \"state\": \"%s\"", not_ours(a) ? "not Shoal's" : a->error ? "no answer" : "up");
  if (a->error) {
    text_adds(out, ", \"error\": ");
    text_add_json(out, shoal_status_message(a->error));
  }
  for (size_t i = 0; i < COUNT_OF(numbers) && !a->error; i++) {
    int64_t v;
    memcpy(&v, (const char *)&a->n + numbers[i].at, sizeof v);
    if (v >= 0) text_addf(out, ", \"%s\": %" PRId64, numbers[i].name, v); /* a global_step may not be there */
  }
  text_adds(out, ", \"waits\": [");
  each_wait(a, put_wait_json, out);
  text_adds(out, "]}");
}

static shoal_status ask_all(struct asked *all, size_t n, enum status_form form, int room, char **result) {
  struct text out = {0};
  size_t missing = 0;
  for (size_t i = 0; i < n; i++) all[i].started = !pthread_create(&all[i].thread, NULL, ask_one, &all[i]);
  for (size_t i = 0; i < n; i++) {
    if (all[i].started) pthread_join(all[i].thread, NULL);
    else ask_one(&all[i]);
    missing += all[i].error && !not_ours(&all[i]);
  }
  if (form == STATUS_TABLE) {
    put_table(all, n, room, &out);
    text_addf(&out, "%zu tasks, %zu up\n", n, n - missing);
  } else if (form == STATUS_JSON) {
    text_addf(&out, "{\"tasks\": [");
    for (size_t i = 0; i < n; i++) {
      text_adds(&out, i ? ",\n  " : "\n  ");
      put_json(&all[i], &out);
    }
    text_addf(&out, "\n], \"up\": %zu}\n", n - missing);
  } else {
    for (size_t i = 0; i < n; i++) text_adds(&out, all[i].text ? all[i].text : "");
  }
  shoal_status err = NULL;
  if (missing && form == STATUS_TEXT) {
    for (size_t i = 0; i < n; i++) { /* the first says it best */
      if (!err) err = all[i].error;
      else shoal_status_free(all[i].error);
      all[i].error = NULL;
    }
  } else if (missing) {
    err = STATUS(SHOAL_UNAVAILABLE, "%zu of %zu tasks do not answer", missing, n);
  }
  for (size_t i = 0; i < n; i++) {
    shoal_status_free(all[i].error);
    free(all[i].task);
    free(all[i].address);
    free(all[i].text);
  }
  *result = text_take(&out);
  return err;
}

shoal_status server_status(const char *const *targets, size_t n, int64_t timeout_ms, enum status_form form, int room,
                           char **out) {
  struct asked *all = mem_zalloc(n ? n : 1, sizeof *all);
  for (size_t i = 0; i < n; i++)
    all[i] = (struct asked){.address = mem_strdup(str_starts(targets[i], "grpc://") ? targets[i] + 7 : targets[i]),
                            .timeout_ms = timeout_ms};
  shoal_status s = ask_all(all, n, form, room, out);
  free(all);
  return s;
}

shoal_status cluster_status(const char *cluster, int64_t timeout_ms, enum status_form form, int room, char **out) {
  struct cluster_spec spec = {0};
  VEC(struct asked) all = {0};
  shoal_status err = cluster_spec_from_json(&spec, "cluster_spec", cluster);
  if (!err) err = cluster_spec_check(&spec);
  for (size_t i = 0; i < spec.jobs.n && !err; i++)
    for (size_t k = 0; k < spec.jobs.at[i].tasks.n; k++)
      vec_push(&all, (struct asked){
                         .task = mem_printf("/job:%s/task:%d", spec.jobs.at[i].name, spec.jobs.at[i].tasks.at[k].index),
                         .address = mem_strdup(spec.jobs.at[i].tasks.at[k].address),
                         .timeout_ms = timeout_ms});
  *out = NULL;
  if (!err) err = ask_all(all.at, all.n, form, room, out);
  vec_release(&all);
  cluster_spec_release(&spec);
  return err;
}

shoal_status shoal_cluster_status(const char *cluster, int64_t timeout_ms, char **table) {
  GIVEN(cluster);
  GIVEN(table);
  return cluster_status(cluster, timeout_ms, STATUS_TABLE, 0, table);
}

shoal_status shoal_server_remote_status(const char *target, int64_t timeout_ms, char **out) {
  GIVEN(target);
  GIVEN(out);
  char *text = NULL;
  shoal_status s = server_status(&target, 1, timeout_ms, STATUS_TEXT, 0, &text);
  if (s) free(text);
  else *out = text;
  return s;
}

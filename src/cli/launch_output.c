/* The tasks' output: every line with its task before it, and on a terminal a view of all tasks below (launch_view.c).
 *
 * Lines of standard output go to standard output and lines of standard error to standard error, whole lines at a time,
 * so that tasks never write into each other's. A line that ends with a carriage return is progress: it replaces the one
 * before in the view and is not kept. The last lines of each task are kept for the report of its failure.
 *
 * The view is redrawn in place by three escape sequences that every terminal of this century knows. A library for
 * terminals was rejected: the lines must stay in the scroll-back and in files as they are. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/launch.h"

enum { MAX_LINE = 64 << 10, MAX_PROGRESS = 400 };
#define REDRAW_NS 200000000

struct launch_view {
  bool drawn_here; /* standard output is a terminal that is drawn on */
  int drawn;       /* lines of the view on the screen */
  int64_t next;    /* when to draw again */
  size_t widest;   /* of the tasks' names */
  FILE **logs;     /* with --log_dir, one for each task */
  size_t n_logs;
  bool log_failed; /* and it was said */
};

shoal_status launch_view_open(struct launch_job *j, struct launch_view **out) {
  struct launch_view *v = mem_zalloc(1, sizeof *v);
  const char *term = getenv("TERM");
  v->drawn_here = j->view && isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
  for (size_t i = 0; i < j->tasks.n; i++) v->widest = MAX(v->widest, strlen(j->tasks.at[i].name));
  *out = v;
  if (!j->log_dir) return NULL;
  shoal_status made = directory_make(j->log_dir);
  if (made) return status_prefix(made, "--log_dir=%s cannot be made: ", j->log_dir);
  v->logs = mem_zalloc(j->tasks.n, sizeof *v->logs);
  for (; v->n_logs < j->tasks.n; v->n_logs++) {
    const struct launch_task *t = &j->tasks.at[v->n_logs];
    char *path = mem_printf("%s/%s-%d.log", j->log_dir, t->job, t->index);
    v->logs[v->n_logs] = fopen(path, "ae");
    shoal_status s = v->logs[v->n_logs] ? NULL : ERRNO_STATUS(errno, "--log_dir: %s cannot be written", path);
    free(path);
    if (s) return s;
  }
  return NULL;
}

void launch_view_close(struct launch_view *v) {
  if (!v) return;
  for (size_t i = 0; i < v->n_logs; i++) fclose(v->logs[i]);
  free(v->logs);
  free(v);
}

/* Has the launcher, whose child this is, the terminal? After Ctrl-Z, and behind &, the screen is another's. */
static bool in_front(void) {
  pid_t front = tcgetpgrp(STDOUT_FILENO);
  return front < 0 || front == getpgid(getppid());
}

static void erase(struct launch_view *v) {
  if (v->drawn && in_front()) printf("\r\033[%dA\033[J", v->drawn);
  v->drawn = 0;
}

static void print_line(struct launch_job *j, const struct launch_task *t, bool is_error, const char *line) {
  struct launch_view *v = j->output;
  if (v->drawn_here) {
    /* One stream, or the view would be torn; each task in a colour of its own. */
    erase(v);
    printf("\033[3%dm[%s]\033[0m %s\n", 1 + (int)(t - j->tasks.at) % 6, t->name, line);
    return;
  }
  fprintf(is_error ? stderr : stdout, "[%s] %s\n", t->name, line);
}

/* Does the line tell how far the task is? As the lines of TensorFlow's hooks and of most programs do. */
static bool is_progress(const char *line) { return strcasestr(line, "step") && strpbrk(line, "0123456789"); }

static void set_progress(struct launch_task *t, const char *line) {
  free(t->progress);
  t->progress = mem_strndup(line, MIN(strlen(line), MAX_PROGRESS));
}

static void take_line(struct launch_job *j, struct launch_task *t, struct launch_stream *s, bool whole) {
  const char *line = text_cstr(&s->line);
  bool told = launch_progress_take(j, t, line);
  if (!whole) {
    if (*line && !told) set_progress(t, line);
  } else {
    /* Of a row of progress the last line is enough. */
    if (!told || !t->tail_told) t->n_lines++;
    t->tail_told = told;
    char **slot = &t->tail[(t->n_lines - 1) % LAUNCH_TAIL];
    free(*slot);
    *slot = mem_strdup(line);
    if (!told && is_progress(line)) set_progress(t, line);
    launch_watch_line(j, t, line);
    if (!told || !j->output->drawn_here) print_line(j, t, s->is_error, line);
    if (j->output->logs) fprintf(j->output->logs[t - j->tasks.at], "%s\n", line);
  }
  s->line.n = 0;
  if (s->line.at) s->line.at[0] = 0;
}

/* A carriage return is known to end a line of progress only by what follows it. */
static void take_byte(struct launch_job *j, struct launch_task *t, struct launch_stream *s, char c) {
  bool returned = s->line.n && s->line.at[s->line.n - 1] == '\r';
  if (returned) s->line.at[--s->line.n] = 0;
  if (c == '\n') {
    take_line(j, t, s, true);
    return;
  }
  if (returned) take_line(j, t, s, false);
  if (c) text_addc(&s->line, c);
  if (s->line.n >= MAX_LINE) take_line(j, t, s, true);
}

void launch_view_read(struct launch_job *j, struct launch_task *t, struct launch_stream *s) {
  char bytes[16384];
  ssize_t n;
  /* A bounded number of times: one task that writes without pause must not keep the others waiting. */
  for (int turn = 0; turn < 8; turn++) {
    n = read(s->fd, bytes, sizeof bytes);
    if (n <= 0) break;
    for (ssize_t i = 0; i < n; i++) take_byte(j, t, s, bytes[i]);
    if (turn == 7) return;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (s->line.n) take_line(j, t, s, true);
  text_release(&s->line);
  close(s->fd);
  s->fd = -1;
}

void launch_view_say(struct launch_job *j, const char *fmt, ...) {
  struct launch_view *v = j->output;
  erase(v);
  fflush(stdout);
  va_list args;
  va_start(args, fmt);
  fputs("launch: ", stderr);
  vfprintf(stderr, fmt, args);
  fputc('\n', stderr);
  va_end(args);
  fflush(stderr);
}

void launch_view_tail(struct launch_job *j, const struct launch_task *t) {
  size_t first = t->n_lines > LAUNCH_TAIL ? t->n_lines - LAUNCH_TAIL : 0;
  for (size_t i = first; i < t->n_lines; i++) fprintf(stderr, "  | %s\n", t->tail[i % LAUNCH_TAIL]);
  fflush(stderr);
}

static void draw(struct launch_job *j) {
  struct launch_view *v = j->output;
  erase(v);
  v->drawn = launch_view_draw(j, (int)v->widest);
  v->next = clock_ns() + REDRAW_NS;
}

void launch_view_flush(struct launch_job *j, bool last) {
  struct launch_view *v = j->output;
  bool shown = v->drawn_here && in_front();
  if (!shown) v->drawn = 0; /* what was drawn is not the last on the screen any more */
  if (shown && last) erase(v);
  if (shown && !last && (!v->drawn || clock_ns() >= v->next)) draw(j);
  fflush(stdout);
  fflush(stderr);
  for (size_t i = 0; i < v->n_logs; i++)
    if (fflush(v->logs[i]) && !v->log_failed) {
      v->log_failed = true;
      launch_view_say(j, "--log_dir=%s: not all can be written there: %s", j->log_dir, strerror(errno));
    }
}

/* The view of a job on a terminal: a bar for each task that tells how far it is, and below one line for the whole job.
 *
 *   ps/0      running        0:12
 *   worker/0  running        0:12  [########------------]  2000/5000  loss 0.4312  51200 examples/s  staleness 1.0
 *   job       step 2000/5000  loss 0.4312  102400 examples/s  eta 0:18
 *
 * What the lines of training programs say is read by train/progress.h; such lines move the bars and do not scroll by.
 * The job's step is the furthest of its tasks', its rate the sum of theirs; the time left comes from how fast the job's
 * step moved of late, so that neither a slow task nor one that starts again makes it jump. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/launch.h"

enum { BAR = 20, SHORTEST_BAR = 10, NARROW = 72, MAX_COLUMNS = 400, OLD_SECS = 30 };

bool launch_progress_take(struct launch_job *j, struct launch_task *t, const char *line) {
  struct progress_line p;
  if (!progress_parse(line, &p)) return false;
  int64_t now = clock_ns();
  t->at = p;
  t->at_when = now;
  if (p.step > j->step) {
    if (j->step_when) progress_rate_add(&j->rate, p.step - j->step, (double)(now - j->step_when) * 1e-9);
    j->step = p.step;
    j->step_when = now;
  }
  if (p.last > j->last) j->last = p.last;
  return true;
}

/* The whole job as one line of progress; false: nobody has told of any. */
bool launch_progress_job(const struct launch_job *j, struct progress_line *out) {
  *out =
      (struct progress_line){.step = j->step, .last = j->last, .examples_per_sec = -1, .eta_secs = -1, .staleness = -1};
  int64_t newest = 0, now = clock_ns();
  bool any = false;
  for (size_t i = 0; i < j->tasks.n; i++) {
    const struct launch_task *t = &j->tasks.at[i];
    if (!t->at_when) continue;
    any = true;
    if (t->at.has_loss && t->at_when >= newest) {
      newest = t->at_when;
      out->has_loss = true;
      out->loss = t->at.loss;
    }
    bool works = t->state == TASK_RUNNING && now - t->at_when < (int64_t)OLD_SECS * 1000000000;
    if (works && t->at.examples_per_sec >= 0)
      out->examples_per_sec = (out->examples_per_sec > 0 ? out->examples_per_sec : 0) + t->at.examples_per_sec;
    if (t->at.staleness > out->staleness) out->staleness = t->at.staleness;
  }
  if (j->last > j->step) out->eta_secs = progress_rate_eta(&j->rate, j->last - j->step);
  return any;
}

static const char *state_word(const struct launch_task *t, char *room, size_t size) {
  if (t->state == TASK_RUNNING) return t->signal ? "stopping" : "running";
  if (t->state == TASK_WAITING) return t->restarts ? "starts again" : "starts";
  if (t->signal || (WIFEXITED(t->status) && !WEXITSTATUS(t->status))) return "ended";
  if (WIFEXITED(t->status)) snprintf(room, size, "failed (%d)", WEXITSTATUS(t->status));
  else snprintf(room, size, "killed (%d)", WTERMSIG(t->status));
  return room;
}

static void put_bar(struct text *out, const struct progress_line *p, int width) {
  int64_t step = p->step < p->last ? p->step : p->last;
  int done = p->last > 0 ? (int)((double)step / (double)p->last * width) : 0;
  text_addc(out, '[');
  for (int i = 0; i < width; i++) text_addc(out, i < done ? '#' : '-');
  text_adds(out, "]  ");
}

/* Characters, not bytes. */
static int width_of(const char *s) {
  int n = 0;
  for (; *s; s++) n += (*s & 0xc0) != 0x80;
  return n;
}

/* Puts the line, or as many of its fields (two blanks lie between them) as there is room for. */
static void put_fitting(const char *line, int columns) {
  size_t end = 0, field = 0;
  for (int n = 0; line[end] && n < columns; n++) {
    if (line[end] == ' ' && line[end + 1] == ' ') field = end;
    for (end++; (line[end] & 0xc0) == 0x80;) end++;
  }
  if (line[end] && strncmp(line + end, "  ", 2) != 0 && field) end = field;
  printf("%.*s", (int)end, line);
}

/* In a narrow terminal the numbers are what stays: first the bar goes, then what need not be said of a task that runs.
 */
static void put_task(struct text *out, const struct launch_job *j, const struct launch_task *t, int widest,
                     int columns) {
  char room[32];
  int64_t until = t->ended ? t->ended : clock_ns(), seconds = t->started ? (until - t->started) / 1000000000 : 0;
  text_addf(out, "%-*s  ", widest, t->name);
  if (columns >= NARROW || t->state != TASK_RUNNING || !t->at_when)
    text_addf(out, "%-*s %3ld:%02ld  ", columns >= NARROW ? 12 : 0, state_word(t, room, sizeof room),
              (long)(seconds / 60), (long)(seconds % 60));
  if (t->at_when) {
    struct text words = {0};
    struct progress_line p = t->at;
    p.task[0] = 0;
    p.eta_secs = -1; /* the job's is below */
    progress_put(&words, &p);
    int bar = columns - width_of(text_cstr(out)) - width_of(text_cstr(&words)) - 4;
    if (p.last > 0 && columns >= NARROW) put_bar(out, &p, MAX(MIN(bar, BAR), SHORTEST_BAR));
    text_adds(out, text_cstr(&words));
    text_release(&words);
  } else if (t->progress) {
    text_add_shown(out, t->progress, strlen(t->progress), false);
  }
}

int launch_view_draw(const struct launch_job *j, int widest) {
  struct winsize w = {0};
  int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80, drawn = 0;
  size_t most = w.ws_row > 5 ? (size_t)w.ws_row - 4 : 8;
  columns = columns > MAX_COLUMNS ? MAX_COLUMNS : columns;
  struct text line = {0};
  size_t shown = j->tasks.n > most ? most - 1 : j->tasks.n;
  for (size_t i = 0; i < shown; i++, drawn++) {
    line.n = 0;
    put_task(&line, j, &j->tasks.at[i], widest, columns - 1);
    fputs("\033[2m", stdout);
    put_fitting(text_cstr(&line), columns - 1);
    fputs("\033[0m\n", stdout);
  }
  if (shown < j->tasks.n) {
    line.n = 0;
    text_addf(&line, "%-*s  and %zu more, for which the terminal has no room", widest, "...", j->tasks.n - shown);
    put_fitting(text_cstr(&line), columns - 1);
    putchar('\n');
    drawn++;
  }
  struct progress_line p;
  if (launch_progress_job(j, &p)) {
    line.n = 0;
    text_addf(&line, "%-*s  ", widest, "job");
    if (columns <= NARROW) { /* the tasks say the rest */
      p.has_loss = false;
      p.examples_per_sec = p.staleness = -1;
    }
    progress_put(&line, &p);
    put_fitting(text_cstr(&line), columns - 1);
    putchar('\n');
    drawn++;
  }
  text_release(&line);
  return drawn;
}

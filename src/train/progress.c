/* Progress lines: writing and reading them. See progress.h for the format.
 *
 * The reader takes lines from other programs, which may look alike without being ours: it accepts nothing but the
 * format itself, field by field, so that a message that happens to speak of steps is shown as a message. */
#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* ---- writing ---- */

/* "0:12", "1:02:03". */
static void put_time(struct text *t, double secs) {
  enum { MOST = 1000 * 3600 };
  int64_t all = !(secs > 0) ? 0 : secs > MOST ? MOST : (int64_t)(secs + 0.5);
  if (all >= 3600) text_addf(t, "%" PRId64 ":%02d:%02d", all / 3600, (int)(all / 60 % 60), (int)(all % 60));
  else text_addf(t, "%d:%02d", (int)(all / 60), (int)(all % 60));
}

void progress_put(struct text *t, const struct progress_line *l) {
  int64_t step = l->last > 0 && l->step > l->last ? l->last : l->step;
  if (*l->task) text_addf(t, "%s  ", l->task);
  text_addf(t, "step %" PRId64, step);
  if (l->last > 0) text_addf(t, "/%" PRId64, l->last);
  if (l->has_loss) text_addf(t, "  loss %.4f", l->loss);
  if (l->examples_per_sec >= 0) text_addf(t, "  %.0f examples/s", l->examples_per_sec);
  if (l->eta_secs >= 0) {
    text_adds(t, "  eta ");
    put_time(t, l->eta_secs);
  }
  if (l->staleness >= 0) text_addf(t, "  staleness %.1f", l->staleness);
}

void progress_say(const char *task, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  bool labelled = task && *task;
  fprintf(stderr, "%s%s%s%s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", labelled ? task : "", labelled ? "  " : "",
          text);
}

/* ---- reading ---- */

static bool skip(const char **at, const char *word) {
  size_t n = strlen(word);
  if (strncmp(*at, word, n) != 0) return false;
  *at += n;
  return true;
}

static bool take_count(const char **at, int64_t *out) {
  if (**at < '0' || **at > '9') return false;
  char *end;
  *out = strtoll(*at, &end, 10);
  *at = end;
  return true;
}

static bool take_number(const char **at, double *out) {
  if (**at == ' ') return false;
  char *end;
  *out = strtod(*at, &end);
  bool any = end != *at;
  *at = end;
  return any;
}

static bool take_time(const char **at, double *out) {
  int64_t part[3];
  int n = 0;
  do {
    if (n == 3 || !take_count(at, &part[n])) return false;
    n++;
  } while (skip(at, ":"));
  *out = 0;
  for (int i = 0; i < n; i++) *out = *out * 60 + (double)part[i];
  return n > 1;
}

bool progress_parse(const char *line, struct progress_line *out) {
  *out = (struct progress_line){.examples_per_sec = -1, .eta_secs = -1, .staleness = -1};
  const char *at = line;
  if (!skip(&at, "step ")) {
    const char *two = strstr(line, "  step ");
    size_t n = two ? (size_t)(two - line) : 0;
    if (!n || n >= sizeof out->task || memchr(line, '\n', n)) return false;
    memcpy(out->task, line, n);
    at = two + strlen("  step ");
  }
  if (!take_count(&at, &out->step)) return false;
  if (skip(&at, "/") && !take_count(&at, &out->last)) return false;
  if (skip(&at, "  loss ")) {
    if (!take_number(&at, &out->loss)) return false;
    out->has_loss = true;
  }
  const char *mark = at;
  if (skip(&at, "  ") && !(take_number(&at, &out->examples_per_sec) && skip(&at, " examples/s"))) {
    out->examples_per_sec = -1;
    at = mark;
  }
  if (skip(&at, "  eta ") && !take_time(&at, &out->eta_secs)) return false;
  if (skip(&at, "  staleness ") && !take_number(&at, &out->staleness)) return false;
  return !*at || strchr("\r\n", *at) != NULL;
}

/* ---- the time left ---- */

void progress_rate_add(struct progress_rate *r, int64_t steps, double secs) {
  const double memory_secs = 30;
  if (!(secs > 0)) return;
  double keep = exp(-secs / memory_secs);
  r->steps = keep * r->steps + (double)(steps > 0 ? steps : 0);
  r->secs = keep * r->secs + secs;
}

double progress_rate_eta(const struct progress_rate *r, int64_t steps) {
  const double least_secs = 2; /* what the first steps tell is not worth showing */
  if (r->secs < least_secs || !(r->steps > 0) || steps < 0) return -1;
  return (double)steps * r->secs / r->steps;
}

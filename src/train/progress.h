/* The line by which a training program says how far it is: one format, for whoever writes it (the progress hook) and
 * whoever reads it (`shoal launch`, which makes one view of the lines of all tasks).
 *
 *   worker 1  step 1200/5000  loss 0.4312  51200 examples/s  eta 0:12  staleness 1.0
 *
 * Fields stand two spaces apart, in this order. "step N" is always there; the task before it and everything after it
 * may be missing, "/M" too. Times are M:SS or H:MM:SS. A loss that is no number is "nan" or "inf". */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

struct progress_line {
  char task[64];      /* "": none */
  int64_t step, last; /* last 0: not known */
  bool has_loss;
  double loss;
  double examples_per_sec; /* below 0: not known, as the two below */
  double eta_secs;
  double staleness;
};

/* Adds the line, without an end of line. A step past the last one is shown as the last one: workers that train side by
 * side each finish the step they are in. */
void progress_put(struct text *t, const struct progress_line *l);
/* Reads a line (what follows it, such as an end of line, does not matter); false: it is none. */
bool progress_parse(const char *line, struct progress_line *out);

/* A line about something else, on standard error: "worker 1  saved /tmp/run/model.ckpt-5". task may be NULL or "". On a
 * terminal it takes the place of the progress line, which comes again below it. */
void progress_say(const char *task, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* How fast steps come, for a time left that does not jump: recent steps count for more, over half a minute. */
struct progress_rate {
  double steps, secs; /* both fade */
};
void progress_rate_add(struct progress_rate *r, int64_t steps, double secs);
/* The time for so many more steps; -1: not known yet. */
double progress_rate_eta(const struct progress_rate *r, int64_t steps);

#endif

/* Timing by the card's own events. See cuda_timed.h. */
#include "device/cuda/cuda_timed.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, MARKS = ROUNDS + 1, TIMES = 2 }; /* TIMES: in a round */

static bool is(const char *variable, const char *value) {
  const char *v = getenv(variable);
  return v && !strcmp(v, value);
}

bool cuda_may_time(const struct cuda_device *c) {
  return !is("TF_DETERMINISTIC_OPS", "1") && !is("TF_DETERMINISTIC_OPS", "true") && !is("SHOAL_TIMED_PRODUCTS", "0") &&
         !cuda_capturing(c);
}

static float median(const float v[ROUNDS]) {
  float low = v[0] < v[1] ? v[0] : v[1], high = v[0] < v[1] ? v[1] : v[0];
  return v[2] < low ? low : v[2] > high ? high : v[2];
}

static bool run_round(int (*run)(void *arg), void *arg) {
  bool good = true;
  for (int i = 0; i < TIMES; i++) good = good && !run(arg);
  return good;
}

static float time_between(struct cuda_device *c, int (*run)(void *arg), void *arg, const CUevent marks[MARKS]) {
  CUstream s = c->streams[CUDA_COMPUTE].stream;
  float took[ROUNDS];
  bool good = !run(arg) && !c->api->event_record(marks[0], s);
  for (int i = 0; i < ROUNDS; i++) good = good && run_round(run, arg) && !c->api->event_record(marks[i + 1], s);
  good = good && !c->api->event_wait(marks[ROUNDS]);
  for (int i = 0; i < ROUNDS; i++) good = good && !c->api->event_elapsed(&took[i], marks[i], marks[i + 1]);
  return good ? median(took) / TIMES : -1;
}

float cuda_time(struct cuda_device *c, int (*run)(void *arg), void *arg) {
  CUevent marks[MARKS] = {NULL};
  bool good = true;
  for (int i = 0; i < MARKS; i++) good = good && !c->api->event_new(&marks[i], 0);
  float took = good ? time_between(c, run, arg, marks) : -1;
  for (int i = 0; i < MARKS; i++)
    if (marks[i]) c->api->event_free(marks[i]);
  return took;
}

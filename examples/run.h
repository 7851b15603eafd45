/* What the examples share: a step by outputs and ops instead of names, and an end with a message. */
#ifndef EXAMPLES_RUN_H
#define EXAMPLES_RUN_H

#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>

static inline void check(shoal_status s) {
  if (!s) return;
  fprintf(stderr, "%s: %s\n%s", shoal_code_name(shoal_status_code(s)), shoal_status_message(s), shoal_status_places(s));
  exit(1);
}

enum { MAX_FEEDS = 4 };

/* What a step is fed with, ended by {0}. */
struct feed {
  shoal_out to;
  shoal_tensor *value;
};

/* Runs target (or NULL) and fetches one scalar float (what.node NULL: none). */
static inline float run(shoal_session *session, const struct feed *feeds, shoal_out what, shoal_op *target) {
  char names[MAX_FEEDS + 1][256];
  const char *feed_names[MAX_FEEDS], *fetch = names[MAX_FEEDS], *target_name = target ? shoal_op_name(target) : NULL;
  shoal_tensor *values[MAX_FEEDS], *got = NULL;
  int n = 0;
  for (; feeds && feeds[n].to.node && n < MAX_FEEDS; n++) {
    snprintf(names[n], sizeof names[n], "%s:%d", shoal_op_name(feeds[n].to.node), feeds[n].to.index);
    feed_names[n] = names[n];
    values[n] = feeds[n].value;
  }
  if (what.node) snprintf(names[MAX_FEEDS], sizeof names[0], "%s:%d", shoal_op_name(what.node), what.index);
  check(shoal_session_run(session, NULL, feed_names, values, n, &fetch, &got, what.node != NULL, &target_name,
                          target != NULL, NULL));
  float v = got ? *(const float *)shoal_tensor_const_data(got) : 0;
  shoal_tensor_unref(got);
  return v;
}

#endif

/* How much work may yet go into something that others asked for, and whether anybody still waits for it.
 *
 * A graph of a few kilobytes can ask for any amount of work: functions that call functions. Whoever works at others'
 * word spends from an effort as it goes, a unit for each thing it makes or looks at, and stops where there is none
 * left. Every EFFORT_LOOK units it is asked whether to go on at all. Of one thread at a time. */
#ifndef BASE_EFFORT_H
#define BASE_EFFORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { EFFORT_LOOK = 256 };
#define EFFORT_UNBOUNDED (INT64_MAX / 2)

struct effort {
  int64_t left;
  const char *what;        /* takes too much, when nothing is left: "Inlining functions" */
  bool (*over)(void *arg); /* does nobody wait any more? NULL: somebody does */
  void *arg;
};

static inline shoal_status effort_spend(struct effort *e, int64_t n) {
  if (!e) return NULL;
  int64_t before = e->left;
  e->left -= n;
  if (e->left < 0) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s takes more work than is allowed", e->what);
  if (e->over && before / EFFORT_LOOK != e->left / EFFORT_LOOK && e->over(e->arg))
    return STATUS(SHOAL_CANCELLED, "nobody waits for the graph any more");
  return NULL;
}

#endif

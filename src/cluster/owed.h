/* What masters have yet to say: steps that they ran here by RunGraph, and whose CleanupGraph has not come.
 *
 * TensorFlow's master waits for the answer to each CleanupGraph, for ever where the task has gone (or until there is
 * another at its address): a session that is closed then hangs. So a server that is told to stop stays a moment for
 * those that are due. The table of steps cannot say it: parts that send and receive nothing are not there.
 *
 * Whoever runs steps and never cleans up gains a second of our leaving, and crowds out others' steps here: the list is
 * short, and the oldest is forgotten first. */
#ifndef CLUSTER_OWED_H
#define CLUSTER_OWED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OWED_MOST = 256 };

struct owed_step {
  int64_t id;
  uint64_t connection; /* over which it was asked for */
  int running;         /* calls that are not answered */
};

struct owed {
  pthread_mutex_t lock;
  pthread_cond_t less;
  struct owed_step steps[OWED_MOST]; /* lock: [n], the oldest at `oldest` once all are in use */
  size_t n, oldest;                  /* lock */
};

void owed_init(struct owed *o);
void owed_release(struct owed *o);
/* A RunGraph of the step has come; it has been answered; its CleanupGraph has. */
void owed_begin(struct owed *o, int64_t step, uint64_t connection);
void owed_ended(struct owed *o, int64_t step);
void owed_paid(struct owed *o, int64_t step);
/* Waits until nothing is due from a master that is still connected: for what runs at most so long, and at most so long
 * in all. How many steps were due at first. */
size_t owed_linger(struct owed *o, bool (*connected)(void *arg, uint64_t connection), void *arg, int64_t running_ms,
                   int64_t most_ms);

#endif

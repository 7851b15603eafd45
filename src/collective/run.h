/* A rank's program (schedule.h) over a transport. Nobody waits on a thread: the program goes on wherever the message
 * that it waited for has ended, and `done` is called at its end. */
#ifndef COLLECTIVE_RUN_H
#define COLLECTIVE_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "collective/arithmetic.h"
#include "collective/schedule.h"
#include "collective/transport.h"
#include "tensor/tensor.h"

struct run_message; /* run.c */

/* Filled and owned by whoever starts it; lives until done is called. */
struct collective_run {
  const struct schedule *program;         /* NULL where the transport does it all */
  const struct schedule_request *request; /* what the program was made of; for those transports */
  struct collective_id id;
  struct collective_transport *transport;
  const struct collective_arithmetic *arithmetic; /* NULL where nothing is summed */
  int members;                                    /* of the group, for a mean */
  size_t element;                                 /* bytes */
  shoal_dtype wire;                               /* that messages are of; 0: as the values are */
  const void *in;                                 /* may be `out`, or no part of it */
  void *out;
  struct buffer *in_owner, *out_owner;         /* (optional) whose memory they are, for transports */
  const struct tensor *device_in, *device_out; /* the same where they are a device's: for transports in its memory */
  int64_t patience_ns;                         /* how long the thread that starts it may wait for the others to begin */
  void (*done)(struct collective_run *r, shoal_status s); /* exactly once, no lock held; s is to be taken over */

  /* the run's own */
  pthread_mutex_t lock;
  bool busy;                    /* lock: some thread is in the program */
  bool waits;                   /* lock: for the message that is being received */
  bool abandoned;               /* lock */
  int open;                     /* lock: messages under way */
  shoal_status status;          /* lock: why it fails */
  size_t at;                    /* whoever made it busy: the next step */
  struct buffer *scratch;       /* NULL: none is needed */
  struct run_message *messages; /* [steps of the program]: each step has at most one */
  struct collective_run *next;  /* a transport's that does it all */
  bool under_way;               /* likewise */
  atomic_bool failed;           /* likewise: before it began */
};

/* May call done before it returns. Of transports that do it all: with those linked to it by next, which are of the same
 * one; the first one's patience is that of all. */
void collective_run_start(struct collective_run *r);
/* Ends it early, also one that another thread is just about to start; s is consumed. Its own done is still called,
 * once. Of those that no transport does whole: one that has been started. */
void collective_run_fail(struct collective_run *r, shoal_status s);
/* Of transports that do it all: calls done of each in a list, with its status. */
void collective_runs_end(struct collective_run *list);

#endif

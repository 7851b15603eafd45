/* TensorFlow's tasks in a group, looked at before they are met again after a step has failed.
 *
 * Once a collective has failed in such a task it refuses all others until it is started again, and says so to nobody:
 * who waits for its messages waits for ever. And one that was started again has other numbers than the group has; asked
 * for a message under the old ones it is told nothing, and its first step is lost, with which it would refuse all
 * others again. So each is asked twice: for its status, which tells a new one, and for the group, as it was told of it,
 * which costs it nothing and has its refusal as the answer. */
#ifndef CLUSTER_COLLECTIVE_OTHERS_H
#define CLUSTER_COLLECTIVE_OTHERS_H

#include "cluster/cancellable.h"
#include "cluster/step_rendezvous.h"
#include "collective/group.h"

/* Filled by whoever asks, who keeps all of it until done is called, once. */
struct others_check {
  const struct step_names *names;
  const struct collective_group *group;
  const char *device_type;
  struct cancel *cancel;
  /* s (to be taken over): one of them refuses, or does not answer. is_new: one was started again. */
  void (*done)(struct others_check *o, shoal_status s, bool is_new);
  /* its own */
  struct cancellable call;
  struct peer *peer; /* the session's */
  int rank;          /* that is being asked */
};

void others_check_start(struct others_check *o);

#endif

/* The plans of one task for one signature, or for one registered graph: one for each device that has nodes. They are
 * compiled together, launched together, and end together: a set's run has one step (one rendezvous, one cancellation)
 * and one outcome. The local session and a cluster's worker run nothing in any other way. */
#ifndef RUNTIME_PLAN_SET_H
#define RUNTIME_PLAN_SET_H

#include "base/join.h"
#include "graph/graph.h"
#include "runtime/function.h"
#include "runtime/plan.h"

/* What plans are compiled for: a task's devices, as a session knows them. */
struct plan_places {
  struct device **devices;
  struct resource_mgr **resources; /* [n_devices] */
  int n_devices;
  struct function_runtime *functions; /* NULL: none */
  struct kernel_cache *kernels;
  bool steps;                                     /* sets run by plan_set_launch: as steps of their own */
  int (*place_of)(void *arg, const char *device); /* the number of a device by its name; -1: none */
  void *arg;
  int64_t *next_name; /* of the nodes that cutting adds */
};

struct plan_set {
  struct plan **plans;
  int n;
  struct resource_mgr *_Atomic spare; /* a step's manager in which nothing was made: the next run takes it */
};

/* Cuts a graph by device: parts ([n_devices], all NULL) gets one for each that has nodes. */
shoal_status plan_places_cut(struct plan_places *p, struct shoal_graph *g, struct shoal_graph **parts);
/* Adds the plan of a graph that is all on one device. What was added before an error is released with the set. */
shoal_status plan_set_add(struct plan_set *set, const struct plan_places *p, int device, const struct shoal_graph *g);
/* Cuts, and adds all parts, which are the caller's to free. */
shoal_status plan_set_compile(struct plan_set *set, struct plan_places *p, struct shoal_graph *g,
                              struct shoal_graph **parts);
void plan_set_release(struct plan_set *set);
/* One plan, which neither sends nor receives nor waits for anything but its device: it is all of the step. */
bool plan_set_is_alone(const struct plan_set *set);

/* One run of a set, in the caller's memory until its end. The step is the caller's to fill in, but for what lives as
 * long as it does: the launch brings that, and plan_set_end takes it away. */
struct set_run {
  struct step step;
  struct meeting *_Atomic meeting; /* the step's; NULL: nobody went there yet */
  struct join join;
  shoal_status _Atomic late; /* the step's */
};

/* Launches all plans: the last on this thread, the others on the step's. A plan that fails ends the others. The caller
 * is a part of the run too, and ends his by join_part(&r->join, ...); after that, next(arg, err) may be called. */
void plan_set_launch(struct plan_set *set, struct set_run *r, void (*next)(void *arg, shoal_status s), void *arg);
/* The same in a step whose resources are there: that of a caller. Without threads of the step, all on this one. */
void plan_set_start(struct plan_set *set, struct set_run *r, void (*next)(void *arg, shoal_status s), void *arg);
/* Once it has been launched and is over. */
void plan_set_end(struct plan_set *set, struct set_run *r);

#endif

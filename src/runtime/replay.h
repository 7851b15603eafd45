/* Steps that are queued as a whole: captured once, replayed after.
 *
 * A plan on a device that is one run of kernels which only queue work puts the same work there in every step, as long
 * as shapes and addresses are the same: one launch for all of it costs a fraction of one for each (CUDA's graphs). So
 * after a few runs a step takes notes of the variables it touches; the next one is captured, if nothing else uses the
 * device at that moment (device/gate.h): its nodes run, but the device keeps their work instead of doing it. From then
 * on a step copies its feeds to where the captured copies read them, locks its variables, sees that their values are
 * where they were, in the same shapes, replays, waits, and copies its fetches. No node runs. A server does not wait:
 * the device tells it.
 *
 * What can be captured is found when the plan is compiled (replay_map.c): every node is a kernel with run(); what keeps
 * state is variables alone (KERNEL_REPLAYS); what kernels read in host memory is the same in every step. What then
 * turns out different is seen before anything is queued: a step with other shapes runs as always, a variable whose
 * value moved (a restored checkpoint) ends the capture, and another one is made, later and later where that happens all
 * the time (steps of several threads that read what the others change). SHOAL_LOG=debug says what was captured and what
 * was not, and why. SHOAL_REPLAY=0 switches it off.
 *
 * The memory of a captured step is its own while it is kept (the device sees to that); the run that takes notes also
 * notes what memory it takes and gives back, so that each value has its place when it is captured
 * (device/memory_plan.h). One step at a time replays; others that come meanwhile run as always. Several steps that are
 * wanted one after the other with the same arguments are queued at once (replay_more), if each is that plan alone. */
#ifndef RUNTIME_REPLAY_H
#define RUNTIME_REPLAY_H

#include "runtime/plan.h"

struct plan;
struct replay;

/* Where the ends of a step come from. */
enum replay_source { REPLAY_KEPT, REPLAY_ARG, REPLAY_FETCH };
struct replay_ret {
  enum replay_source from;
  int i; /* the argument, or the fetch in the order they are queued */
};
struct replay_map {
  int n_feeds, *feed_args; /* by copies in, in order: the argument, or -1: always the same */
  int n_fetches, n_rets;
  struct replay_ret *rets; /* [n_rets] */
};
/* False: it cannot be captured; *why is on the heap. nodes: the plan's, in order. */
bool replay_map_init(struct replay_map *m, const struct plan *p, struct shoal_node *const *nodes, char **why);
void replay_map_release(struct replay_map *m);

/* NULL: this plan is none of those. */
struct replay *replay_new(struct plan *p, struct shoal_node *const *nodes);
void replay_free(struct replay *r);
/* Runs a step of a plan in this way, if it can at present, for one who has passed the device's gate. A step whose
 * thread waits for it (step->here) is over then, with the status in *out; of another the device tells the end, which
 * leaves the gate and calls done. */
enum replay_outcome { REPLAY_NOT, /* it is to be run as always, and nothing was done */ REPLAY_OVER, REPLAY_BEGUN };
enum replay_outcome replay_run(struct replay *r, struct step *step, void (*done)(void *arg, shoal_status s), void *arg,
                               shoal_status *out);
/* The step that this thread begins next, and waits for, is wanted so many more times after it, with the same arguments;
 * what is fetched is the last one's. Where it is replayed some of them are queued with it, nobody waiting between them,
 * and are taken off the number. NULL: no more of that. */
void replay_more(int64_t *more);
/* The same for who begins that step: once, then NULL. It is the step's (step->more) if all of it is the plan that may
 * be replayed: other parts, and whoever sends to it, run once. */
int64_t *replay_more_take(void);
/* How many steps were, in this process: for tests. */
int64_t replay_count(void);
/* How many bytes of devices' memory captured steps have now: the same. */
int64_t replay_bytes(void);

#endif

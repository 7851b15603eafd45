/* Parts of steps that receive and send, run as parts that are given arguments and give results.
 *
 * Under a master that is not ours (TensorFlow's) what is fed comes to a worker by the rendezvous, and what is fetched
 * leaves by it; so do values between the devices of one task. A plan with receives in it is begun in pieces as they
 * come, and can be no captured step (replay.h). So such a part of a step has a second plan, in which arguments stand
 * for its receives and results for its sends: all values are received first, then that plan runs, captured after a few
 * steps and replayed from then on, then all is sent. No other plan is needed for what lies between.
 *
 * What may not be: to wait for a value that another task makes of what is sent here. The graph of one part does not say
 * which receives those are. So every send must come after all receives, by the edges of the part itself; then nothing
 * leaves later than it would for want of a value. Transfers that stay in devices' memory, receives that wait for
 * something here, and parts that could not be captured without their ends either, are left as they are; SHOAL_LOG=debug
 * says which node was the reason. A part that carries much is left too: what it computes while values come, and sends
 * while it computes, is worth more than what a captured step saves.
 *
 * A dead value (of a branch not taken elsewhere) makes the step run by the first plan, with a rendezvous that has what
 * was received. */
#ifndef RUNTIME_GATHERED_H
#define RUNTIME_GATHERED_H

#include "graph/graph.h"
#include "runtime/plan.h"

struct gathered_plan;

/* One end of a transfer, of a receive or of a send. */
struct gathered_edge {
  char *key, *node;
  uint64_t hash;
  shoal_dtype dtype;
};

/* What the graph of a part says. */
struct gathered_map {
  struct gathered_edge *recvs, *sends;
  int n_recvs, n_sends;
  int n_args, n_rets;        /* the step's own: those of the receives and sends come behind them */
  struct shoal_graph *inner; /* with _Arg and _Retval */
};
/* False: it is none of these; *why (on the heap) is NULL where it has neither sends nor receives. */
bool gathered_map_init(struct gathered_map *m, const struct shoal_graph *g, const struct device *d, char **why);
void gathered_map_release(struct gathered_map *m);

/* Of the graph that a plan was made of; NULL: none. */
struct gathered_plan *gathered_new(const struct shoal_graph *g, const struct plan_options *o);
void gathered_free(struct gathered_plan *g);
/* Runs a step of p, whose it is, in this way; false: it is to be run as always, and nothing was done. */
bool gathered_run(struct gathered_plan *g, struct plan *p, struct step *step, void (*done)(void *arg, shoal_status s),
                  void *arg);

#endif

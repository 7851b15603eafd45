/* Plans: a partition of a graph compiled for one device. Compiling resolves everything that can be: kernels, slots
 * for values, who uses a value last, frames of loops. Running then touches only arrays.
 *
 * Two ways to run, chosen when compiling:
 *   straight   no v1 control flow: runs of nodes, one after another in a fixed order, without a lock, a counter or a
 *              queue for each (kernels use the intra-op threads); what waits (receives, queues, function calls) is
 *              started early, and what follows from it runs where it ends. A plan that waits for nothing is one such
 *              run on the calling thread
 *   dataflow   the rest: nodes run when their inputs are there, in frames and iterations, on inter-op threads
 */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include "graph/graph.h"
#include "runtime/kernel.h"
#include "runtime/step.h"

struct plan;
struct kernel_cache;

struct plan_options {
  struct device *device;
  struct resource_mgr *resources;
  struct function_runtime *functions; /* NULL: no functions */
  bool step; /* it runs as a step, or a part of one, whose end waits for what devices have queued; not a function */
  struct kernel_cache *kernels;       /* where stateful kernels are kept across plans of a session; NULL: none are */
};

/* The graph must be placed and partitioned; it may be freed afterwards. */
shoal_status plan_compile(const struct shoal_graph *g, const struct plan_options *options, struct plan **out);
/* Runs one step; any number may run at once. done is called once, perhaps before this returns. The step must live until
 * then. */
void plan_run(struct plan *p, struct step *step, void (*done)(void *arg, shoal_status s), void *arg);
struct plan *plan_ref(struct plan *p);
void plan_unref(struct plan *p);
/* True when plan_run never waits for anything outside the plan and ends before it returns. */
bool plan_is_straight(const struct plan *p);
/* The same but for what its device has queued. */
bool plan_is_alone(const struct plan *p);

/* Runs one node now, outside any plan: for constant folding. Asynchronous kernels are refused. cancel (NULL: nobody
 * does) ends it as it ends a step. */
shoal_status plan_evaluate(const struct plan_options *o, const struct shoal_node *n, const struct tensor *const *in,
                           struct cancel *cancel, struct tensor *out);

/* Kernels whose state outlives a plan: a random op's counter belongs to the session and the node. */
struct kernel_cache *kernel_cache_new(void);
void kernel_cache_free(struct kernel_cache *c);

/* May the one be taken for the other without reading memory that is not there? (kernel.c) */
bool dtype_is_harmless(shoal_dtype is, shoal_dtype said);

#endif

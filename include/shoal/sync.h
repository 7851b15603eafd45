/* Synchronous training of replicas, each with a graph of its own, over variables on parameter servers.
 *
 *   shoal_sync_replicas *sync = shoal_sync_replicas_new(g, shoal_adam(0.01), &(shoal_sync_options){
 *       .replicas_to_aggregate = 2, .task = task});
 *   shoal_op *train = shoal_sync_minimize(sync, loss, shoal_global_step(g));
 *   ... .hooks = (shoal_hook[]){shoal_sync_hook(sync, task == 0)}, .n_hooks = 1 ...
 *   shoal_sync_replicas_free(sync);
 *
 * Three ways:
 * - tokens: TensorFlow's SyncReplicasOptimizer, with the same names for all that is shared, so that workers of both
 * kinds train together. Gradients gather on the parameter servers; when there are replicas_to_aggregate, the chief
 * applies their mean and hands out tokens for the next step. A gradient that is too old is dropped. Tokens are leased:
 * one that is not answered with a gradient in time is handed out again, and a worker that leaves gives its own back, so
 * that neither a killed worker nor uneven data stops the others.
 * - strict: exactly one gradient of each worker in each step, added in the order of the tasks. Two runs with the same
 *   seeds, data and workers have the same variables, bit for bit. A worker that leaves, or is lost, is left out of the
 *   mean from then on; when it comes back it takes part again.
 * - bounded: gradients are applied at once, but no worker begins a step while it is more than `staleness` steps ahead
 * of the slowest. */
#ifndef SHOAL_SYNC_H
#define SHOAL_SYNC_H

#include <shoal/hooks.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_sync_mode { SHOAL_SYNC_TOKENS, SHOAL_SYNC_STRICT, SHOAL_SYNC_BOUNDED } shoal_sync_mode;

typedef struct shoal_sync_options {
  size_t size; /* shoal/options.h */
  shoal_sync_mode mode;
  int replicas_to_aggregate; /* tokens: gradients in a step */
  int total_replicas;        /* workers; 0: replicas_to_aggregate. Above it: the others are backup workers */
  int task;                  /* strict, bounded: which of them this one is, from 0 */
  int staleness;             /* bounded: how many steps ahead of the slowest a worker may be */
  int64_t lease_ms;          /* 0: 10 s. Tokens: how long a step may take before tokens are handed out anew, and never
                                less than four times what steps took lately. Strict, bounded: how long a worker may
                                give no sign of life (its hook does, whatever the worker is doing) */
  int init_tokens;           /* tokens: at the start; 0: replicas_to_aggregate, as TensorFlow (the first steps then drop
                                gradients); below 0: no more than are needed */
} shoal_sync_options;

typedef struct shoal_sync_replicas shoal_sync_replicas;

/* The graph must outlive it. Mistakes are the graph's error. */
SHOAL_API shoal_sync_replicas *shoal_sync_replicas_new(shoal_graph *g, shoal_optimizer optimizer,
                                                       const shoal_sync_options *options);
/* Hooks made from it keep what they need. */
SHOAL_API void shoal_sync_replicas_free(shoal_sync_replicas *s);

/* As shoal_minimize and shoal_apply_gradients; the op is what this worker runs for each of its batches. Once. */
SHOAL_API shoal_op *shoal_sync_minimize(shoal_sync_replicas *s, shoal_out loss, shoal_var step);
SHOAL_API shoal_op *shoal_sync_apply_gradients(shoal_sync_replicas *s, const shoal_var *vars,
                                               const shoal_gradient *grads, int n, shoal_var step);

/* What a training session needs to run it: initialises, and on the chief applies gradients in a thread of its own. */
SHOAL_API shoal_hook shoal_sync_hook(shoal_sync_replicas *s, bool is_chief);

/* How many gradients of this worker came too late and were dropped (tokens): an int64 scalar. */
SHOAL_API shoal_out shoal_sync_stale(const shoal_sync_replicas *s);

/* For programs without training sessions (tokens): what the hook runs. */
SHOAL_API shoal_op *shoal_sync_local_init_op(const shoal_sync_replicas *s);  /* every worker but the chief, at first */
SHOAL_API shoal_op *shoal_sync_chief_init_op(const shoal_sync_replicas *s);  /* the chief, at first */
SHOAL_API shoal_op *shoal_sync_init_tokens_op(const shoal_sync_replicas *s); /* the chief, then */
SHOAL_API shoal_op *shoal_sync_chief_op(const shoal_sync_replicas *s);       /* the chief, over and over, in a thread */

#ifdef __cplusplus
}
#endif
#endif

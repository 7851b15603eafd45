/* Where a run is in its input, kept in its checkpoints: a run that was interrupted sees the batches that it would have
 * seen. A worker's position is the number of batches it has trained on; the step that trains on one advances it, so
 * that the two cannot come apart.
 *
 * Programs that feed their batches give the input hook a function from positions to batches:
 *
 *   shoal_input in = shoal_input_position(g, task);
 *   shoal_hook hooks[] = {shoal_input_hook(in, (shoal_out[]){x, y}, 2, fill_batch, &data)};
 *
 * Programs with datasets in the graph leave it to shoal_dataset_next (shoal/dataset.h). Those that make datasets of the
 * ops themselves skip what was seen (SkipDataset by in.position, in the op that makes the iterator: a local init op),
 * and group in.advance with their training op. Random numbers that must repeat come from stateless ops with
 * shoal_step_seed. */
#ifndef SHOAL_INPUT_H
#define SHOAL_INPUT_H

#include <shoal/hooks.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_MAX_INPUT_WORKERS 1024

typedef struct shoal_input {
  shoal_out position; /* int64 scalar: this worker's batches so far */
  shoal_op *advance;  /* adds one to it */
} shoal_input;

/* The position of worker number `worker`. All workers share one variable, "input_position", which the device scopes
 * place. */
SHOAL_API shoal_input shoal_input_position(shoal_graph *g, int worker);

/* Makes the batch of a position: values[i] (a new reference) is fed to to[i]. */
typedef shoal_status shoal_input_fill(void *arg, int64_t position, shoal_tensor **values);
/* Feeds each step with the batch of its position, and advances it. Where the position is the step counter (and advance
 * NULL) it begins at the number of batches that were used, also where a step takes several (shoal/accumulate.h). */
SHOAL_API shoal_hook shoal_input_hook(shoal_input in, const shoal_out *to, int n, shoal_input_fill *fill, void *arg);

/* Which rows of a data set are in which batch: every epoch is another permutation of all examples, drawn from seed and
 * epoch alone, and workers take its batches in turn. What is left at the end of an epoch is left out. */
typedef struct shoal_batches shoal_batches;
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_batches_new(int64_t examples, int64_t batch, uint64_t seed, int worker,
                                                          int workers, shoal_batches **out);
/* The rows of the worker's batch number `position` (`batch` of them); valid until the next call. */
SHOAL_API const int64_t *shoal_batches_at(shoal_batches *b, int64_t position);
SHOAL_API void shoal_batches_free(shoal_batches *b);

/* A seed [2] for stateless random ops that is another in every step, and the same again when a step is run again. In a
 * replica of a strategy it is the replica's own, and the same however replicas are dealt out to tasks. */
SHOAL_API shoal_out shoal_step_seed(shoal_graph *g, shoal_var step);

#ifdef __cplusplus
}
#endif
#endif

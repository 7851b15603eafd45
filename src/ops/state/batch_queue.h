/* Queues in which the calls of concurrent steps are joined into batches: what Batch and BatchFunction share.
 *
 * A queue is a resource, named by container, shared_name (else the node's name) and batching_queue. A call joins the
 * last batch that waits, where it fits and is of the same kind, else it begins a new one. A batch is ready when it is
 * full, when another was begun behind it, or when its first call has waited long enough. */
#ifndef OPS_STATE_BATCH_QUEUE_H
#define OPS_STATE_BATCH_QUEUE_H

#include "runtime/function.h"
#include "runtime/kernel.h"

enum { BATCH_MAX_SIZES = 1024 };

/* What an op says of its queue; of the first that names it when it is made. */
struct batch_options {
  int64_t max_input;    /* rows of a call */
  int64_t max_rows;     /* of a batch */
  int64_t max_enqueued; /* batches that wait */
  int64_t timeout_micros;
  int64_t threads; /* batches that are worked on at once */
  bool splitting;  /* a call may be spread over several batches */
  int n_sizes;
  int64_t sizes[BATCH_MAX_SIZES]; /* [n_sizes] that batches are padded to, rising */
};

/* What is common to the calls of one op. */
struct batch_kind {
  struct function *f; /* NULL: Batch, which hands the batch to one of the steps */
  struct function_runtime *functions;
  uint64_t hash; /* of what f does: calls are joined only with those of the same */
  int n_batched; /* inputs that are; the rest is captured */
};

struct batch_queue;
/* The queue of that name, a new reference. */
shoal_status batch_queue_get(struct resource_mgr *m, const char *container, const char *name,
                             const struct batch_options *o, struct batch_queue **out);
void batch_queue_unref(struct batch_queue *q);
/* Puts ctx's inputs, which have that many rows (> 0), into the queue; ctx_done is called when they have been worked on,
 * at once with an error. UNAVAILABLE when the queue is full. */
void batch_queue_add(struct batch_queue *q, const struct batch_kind *kind, struct kernel_ctx *ctx, int64_t rows);

/* Rows of several tensors, which differ in nothing else, as one tensor of at least `rows`: the first row is repeated
 * until there are so many. */
shoal_status batch_join(const struct tensor *parts, int n, int64_t rows, struct tensor *out);

#endif

/* Queues of tuples of tensors: first in first out, padding, shuffling, by priority. Nobody waits on a thread: an
 * attempt that cannot be met yet is kept, and its callback runs on the thread that makes it possible, or cancels it. */
#ifndef OPS_STATE_QUEUE_H
#define OPS_STATE_QUEUE_H

#include "base/cancel.h"
#include "ops/state/state.h"

enum queue_kind { QUEUE_FIFO, QUEUE_PADDING, QUEUE_SHUFFLE, QUEUE_PRIORITY };

struct queue_spec {
  enum queue_kind kind;
  int n;                                  /* components; for QUEUE_PRIORITY the int64 priority is the first */
  shoal_dtype *types;                     /* [n] */
  struct shape *shapes;                   /* [n], or NULL: not specified. Partly known for QUEUE_PADDING */
  int64_t capacity;                       /* INT32_MAX: unbounded */
  int64_t min_after_dequeue, seed, seed2; /* QUEUE_SHUFFLE */
};
/* From the attributes of one of the queue ops. */
shoal_status queue_spec_init(struct queue_spec *s, const struct shoal_node *n, enum queue_kind kind);
void queue_spec_copy(struct queue_spec *to, const struct queue_spec *from);
void queue_spec_release(struct queue_spec *s);

struct queue;
extern const struct resource_type queue_type;

/* Takes over the spec. random_seed stands in for seeds that are both 0. */
struct queue *queue_new(const char *name, struct queue_spec *spec, uint64_t random_seed);
/* INVALID_ARGUMENT when a node asks for a queue of another kind, capacity, types or shapes under the same name. */
shoal_status queue_matches(const struct queue *q, const struct queue_spec *want, const char *node, const char *op);
const struct queue_spec *queue_spec_of(const struct queue *q);

/* Called once, from any thread. tuple ([spec.n]): its tensors become the callee's; NULL with an error and for enqueues.
 */
typedef void (*queue_done)(void *arg, shoal_status s, struct tensor *tuple);

/* tuple ([n_tuple]) is referred to, not taken over. many: each component's rows are elements. cancel may be NULL. */
void queue_enqueue(struct queue *q, const struct tensor *const *tuple, int n_tuple, bool many, struct cancel *cancel,
                   queue_done done, void *arg);
void queue_dequeue(struct queue *q, struct cancel *cancel, queue_done done, void *arg);
/* n elements as one batch; up_to: what there is when the queue is closed, if at least one. */
void queue_dequeue_many(struct queue *q, int64_t n, bool up_to, struct cancel *cancel, queue_done done, void *arg);
/* Pending enqueues are cancelled, or met first. */
void queue_close(struct queue *q, bool cancel_pending, queue_done done, void *arg);
bool queue_is_closed(struct queue *q);
int64_t queue_size(struct queue *q);
/* How many attempts wait: for tests and status pages. */
int queue_waiting(struct queue *q);

#endif

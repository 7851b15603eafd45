/* Requests that come at one time, run as one: --enable_batching, with TensorFlow Serving's parameters.
 *
 * A batch is of one signature, one choice of outputs and, but for the first dimension, one shape. Whoever finds none
 * open opens one and leads it: waits until it is full or has waited long enough and one of so many runners is free,
 * joins the inputs, runs, and gives each request its rows. Who goes away before a batch begins is taken out of it; a
 * batch that nobody waits for any more is cancelled, and one that finds no runner for LONGEST_WAIT_S refused, whether
 * or not its requests have deadlines. So no thread is there for batches alone, and while all
 * runners are busy batches grow. */
#ifndef SERVING_BATCH_H
#define SERVING_BATCH_H

#include "base/vec.h"
#include "serving/query.h"

struct batch_parameters {
  int64_t max_batch_size;       /* rows; 1000 */
  int64_t batch_timeout_micros; /* 0 */
  int64_t max_enqueued_batches; /* that wait for a runner; 10 */
  int64_t num_batch_threads;    /* runners; as many as cores */
  VEC(int64_t) allowed;         /* sizes that a batch is filled up to, the last being max_batch_size; none: any */
  bool pad;                     /* inputs of other lengths are filled up with zeros */
};

void batch_parameters_default(struct batch_parameters *p);
/* A BatchingParameters in text; to be released after an error, too. */
shoal_status batch_parameters_read_file(struct batch_parameters *p, const char *path);
void batch_parameters_release(struct batch_parameters *p);

struct batcher;
/* The parameters stay the caller's, and outlive it. */
struct batcher *batcher_new(const struct batch_parameters *p);
void batcher_free(struct batcher *b);
/* As query_run would: the query's own run is `alone`, for what cannot be put into a batch. */
shoal_status batcher_run(struct batcher *b, struct query *q, shoal_status (*alone)(struct query *q));

#endif

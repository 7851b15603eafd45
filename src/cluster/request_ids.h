/* Requests already seen: a call that arrives twice with one id (a client that tried again after a broken connection)
 * must not run twice. The last 100,000 ids are kept; 0 stands for none.
 *
 * An id of a worker's request counts together with its step: TensorFlow's master draws ids from generators that each
 * have a seed of 32 bits, and starts a thread with a new one for each step. So of 100,000 steps one or two have the id
 * of another, which TensorFlow's workers take for the same request, and abort. */
#ifndef CLUSTER_REQUEST_IDS_H
#define CLUSTER_REQUEST_IDS_H

#include <stdint.h>

#include "base/status.h"

struct request_ids;
struct request_ids *request_ids_new(void);
void request_ids_free(struct request_ids *r);
/* ABORTED when id was there before, with this step (0: it has none). method: "RunStep (master)", as it stands in the
 * error. */
shoal_status request_ids_track(struct request_ids *r, const char *method, int64_t id, int64_t step);
/* A random id, never 0. */
int64_t request_id_new(void);
/* 64 random bits. */
uint64_t random_bits(void);

#endif

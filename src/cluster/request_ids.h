/* Requests already seen: a call that arrives twice with one id (a client that tried again after a broken connection)
 * must not run twice. The last 100,000 ids are kept; 0 stands for none. */
#ifndef CLUSTER_REQUEST_IDS_H
#define CLUSTER_REQUEST_IDS_H

#include <stdint.h>

#include "base/status.h"

struct request_ids;
struct request_ids *request_ids_new(void);
void request_ids_free(struct request_ids *r);
/* ABORTED when id was there before. method: "RunStep (master)", as it stands in the error. */
shoal_status request_ids_track(struct request_ids *r, const char *method, int64_t id);
/* A random id, never 0. */
int64_t request_id_new(void);
/* 64 random bits. */
uint64_t random_bits(void);

#endif

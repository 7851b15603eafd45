/* A connection's body that goes into a sink (fast.h) as it comes. */
#ifndef RPC_FAST_FAST_POUR_H
#define RPC_FAST_FAST_POUR_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "rpc/fast/fast.h"
#include "rpc/loop.h"

struct fast_pour {
  pthread_mutex_t lock;   /* held while the sink is written: who gives it up waits for that */
  struct fast_sink *sink; /* lock: NULL when it is full, or given up */
  uint64_t id;            /* lock: whose call's */
  /* the leader's */
  size_t at; /* bytes that have come */
  size_t carried;
  uint8_t carry[FAST_GRAIN]; /* the last of them, which make no whole grain yet */
};

void fast_pour_init(struct fast_pour *p);
void fast_pour_release(struct fast_pour *p);
/* The body of that call's value begins. */
void fast_pour_begin(struct fast_pour *p, struct fast_sink *sink, uint64_t id);
/* From any thread: when it returns that call's sink is not touched any more. */
void fast_pour_give_up(struct fast_pour *p, uint64_t id);
/* Bytes of the body that have been read already. */
void fast_pour_bytes(struct fast_pour *p, const uint8_t *data, size_t n);
/* Reads from the socket; *n is recv's answer, unless the call was given up. POURED: the sink is full. */
enum fast_poured { FAST_POURING, FAST_POURED, FAST_GIVEN_UP } fast_pour_read(struct fast_pour *p, int fd, ssize_t *n);

#endif

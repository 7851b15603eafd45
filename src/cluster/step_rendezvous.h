/* The rendezvous of a step on one task: values made here wait for whoever asks, values made elsewhere are fetched.
 *
 * A request for a value may arrive before the step has started here, and waits: so a step is made by whichever comes
 * first. It goes when its part has run well and its last value was taken, else with CleanupGraph; its number is
 * remembered for a while, so that a request that comes too late fails instead of waiting for ever. */
#ifndef CLUSTER_STEP_RENDEZVOUS_H
#define CLUSTER_STEP_RENDEZVOUS_H

#include "cluster/peer.h"
#include "rpc/address.h"
#include "runtime/rendezvous.h"
#include "runtime/step_stats.h"

struct steps; /* of one worker */
enum { STEP_STALE_MS = 60000 };

/* What a step must know to fetch from others; stays the caller's while the step runs. */
struct step_names {
  const char *task; /* this task: "/job:worker/replica:0/task:1", as the session names it */
  /* The peer of that name, or NULL. */
  struct peer *(*find)(void *arg, const char *task, size_t n);
  void *arg;
  int64_t session; /* a number of its own */
};

/* most: steps; requests for values of more are refused, unless steps that nobody is at work on make room. most_of_one:
 * of these, that only requests of one connection know of; of one address: its share of most. */
struct steps *steps_new(int64_t most, int64_t most_of_one);
void steps_free(struct steps *s);

/* The step's rendezvous, made when there is none; a reference. */
struct rendezvous *steps_get(struct steps *s, int64_t id);
/* The same for a request from outside: ABORTED when the step was cleaned up before. */
shoal_status steps_get_for_request(struct steps *s, int64_t id, struct rpc_origin from, struct rendezvous **out);
/* The request has its value, or has gone: a step that only requests know of goes with the last of them. */
void steps_request_over(struct steps *s, struct rendezvous *r);
/* Before running; connection: over which somebody wants it run (0: none); stats (optional) receives a span for each
 * value fetched. INVALID_ARGUMENT when the step is running for another session. */
shoal_status step_rendezvous_bind(struct rendezvous *r, const struct step_names *names, uint64_t connection,
                                  struct step_stats *stats);
/* After running: fetches and names are no more. */
void step_rendezvous_unbind(struct rendezvous *r);
/* A value made on this task, whoever makes it (client feeds, RecvTensor). */
void step_rendezvous_recv_local(struct rendezvous *r, const char *key, struct cancel *cancel, rendezvous_done done,
                                void *arg);
/* A value whose bytes may go into a sink as they come (fast.h), where it is fetched. */
void step_rendezvous_recv_poured(struct rendezvous *r, const char *key, struct fast_sink *sink, struct cancel *cancel,
                                 rendezvous_done done, void *arg);
/* What others keep with a step, and goes with it. */
struct step_guest {
  struct step_guest *next;
  void (*free)(struct step_guest *g);
};
/* The one that `is` says is sought, made when there is none; make may not use the step. */
struct step_guest *step_rendezvous_guest(struct rendezvous *r,
                                         bool (*is)(const struct step_guest *g, const void *sought),
                                         struct step_guest *(*make)(const void *sought), const void *sought);
/* Ends waiting receives with ABORTED and forgets the step. */
void steps_cleanup(struct steps *s, int64_t id);
/* It was to run here, and did not begin: what was sent to it goes, unless somebody else knows of the step. */
void steps_not_begun(struct steps *s, struct rendezvous *r);
/* Forgets steps that nobody has been at work on for so long, and whose master has gone: nobody will clean up. */
void steps_sweep(struct steps *s, int64_t idle_ms, bool (*connected)(void *arg, uint64_t connection), void *arg);
/* The step has run here, and all went well: it is forgotten as soon as its last value has been fetched. */
void steps_finished(struct steps *s, int64_t id);
/* The session is no more: neither are its steps. */
void steps_forget_session(struct steps *s, int64_t session);
/* What is waited for, one line each, up to a number. */
void steps_describe(struct steps *s, struct text *out);

#endif

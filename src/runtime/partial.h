/* Partial runs: a step whose feeds come, and whose fetches are asked for, in several calls. The step runs from the
 * set-up on; its feeds and fetches are client-terminated _Recv and _Send nodes (FEED_WIRES), and meet the calls in the
 * step's rendezvous. Here is what local sessions and masters have in common of it: which feeds and fetches have had
 * their turn, whether a fetch can be computed yet, and one call's exchange of values. */
#ifndef RUNTIME_PARTIAL_H
#define RUNTIME_PARTIAL_H

#include "base/join.h"
#include "graph/prune.h"
#include "runtime/rendezvous.h"

/* What has been fed and fetched. Not locked. */
struct partial_marks {
  const struct shoal_graph *pruned; /* the step's, with names as given to it; the owner keeps them */
  char *const *feeds, *const *fetches;
  int n_feeds, n_fetches;
  bool *fed, *fetched;
};

void partial_marks_init(struct partial_marks *m, const struct shoal_graph *pruned, char *const *feeds, int n_feeds,
                        char *const *fetches, int n_fetches);
void partial_marks_release(struct partial_marks *m);
/* Marks what one call feeds and fetches; all: nothing is left for another. Errors in TensorFlow's words, and then
 * nothing is marked. */
shoal_status partial_marks_take(struct partial_marks *m, const struct step_signature *sig, bool *all);

/* The client's end of a step. */
struct partial_end {
  struct rendezvous *rendezvous;
  void (*recv)(struct rendezvous *r, const char *key, struct cancel *cancel, rendezvous_done done, void *arg);
  struct cancel *cancel;
  const char *device; /* where the client's nodes are */
  uint64_t incarnation;
};

/* One call: in the caller's memory until it is released. */
struct partial_call {
  struct join join;
  int n;
  struct tensor *values; /* [n], in the signature's order of fetches */
};

/* Sends the feeds (taken over, but for the array) and asks for the fetches: next(arg, err) when all have come, perhaps
 * before this returns. */
void partial_call_begin(struct partial_call *c, const struct partial_end *e, const struct step_signature *sig,
                        struct tensor *feeds, void (*next)(void *arg, shoal_status s), void *arg);
void partial_call_release(struct partial_call *c);

#endif

/* Cutting a graph down to what one step needs. */
#ifndef GRAPH_PRUNE_H
#define GRAPH_PRUNE_H

#include "graph/graph.h"

/* "name:index" (or "name" for output 0) taken apart; false when malformed. The name is copied to the caller's buffer.
 */
bool tensor_name_parse(const char *text, char *name, size_t size, int *index);

/* What a client asks of a step. */
struct step_signature {
  const char *const *feeds; /* "x:0" */
  int n_feeds;
  const char *const *fetches;
  int n_fetches;
  const char *const *targets; /* "op" */
  int n_targets;
};

enum feed_style {
  FEED_ARGS,  /* feeds become _Arg, fetches _Retval, numbered in the order given */
  FEED_WIRES, /* feeds become client-terminated _Recv, fetches _Send, on `device` (distributed sessions) */
};

struct prune_options {
  enum feed_style style;
  const char *device;   /* where the new nodes are put: a full device name */
  uint64_t incarnation; /* of that device, for FEED_WIRES */
};

/* A new graph that holds just what the fetches and targets need when the feeds are fed; feeds and fetches are
 * replaced as the options say. Errors in TensorFlow's words (unknown names, fed twice, fed and fetched, nothing
 * asked for). The functions come along. */
shoal_status graph_prune(const struct shoal_graph *g, const struct step_signature *sig, const struct prune_options *o,
                         struct shoal_graph **out);

/* The part of g whose nodes are marked in keep ([nodes.n]); inputs from outside must not exist. */
struct shoal_graph *graph_subset(const struct shoal_graph *g, const bool *keep, struct shoal_node **map);

#endif

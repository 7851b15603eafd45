/* GraphDef bytes into a graph, and a graph into GraphDef bytes. */
#ifndef GRAPH_IMPORT_H
#define GRAPH_IMPORT_H

#include "graph/graph.h"

enum { GRAPH_VERSION = 1645 }; /* the GraphDef version of TensorFlow 2.15, which we read and write */

struct import_options {
  const char *prefix;    /* put before every name with a '/'; NULL or "": none */
  bool internal;         /* names may begin with '_': graphs between master and workers */
  bool opens_session;    /* a session's first graph: an attribute that its node's types need is NOT_FOUND, as at
                            TensorFlow's masters, not INVALID_ARGUMENT */
  int max_nodes;         /* 0: no limit */
  struct effort *effort; /* each node is taken from it; NULL: nobody counts */
  size_t max_repeated; /* bytes that repeated values may take; 0: as many as TensorFlow's messages have bytes, 2 GiB */
  /* Asked when all is read, before the graph is changed for good: may so many nodes come, which take so many bytes (the
   * GraphDef's own, and those of repeated values written out)? NULL: they may. */
  shoal_status (*admit)(void *arg, size_t nodes, size_t bytes);
  void *arg;
};

/* Adds all nodes and functions. Nodes may come in any order and may refer to nodes that the graph already has; cycles
 * pass through NextIteration only. Attributes with defaults may be absent, others not. On error the graph is as
 * before. added (optional) gets the id of the first new node: the new ones are those from there on. */
shoal_status graph_import(struct shoal_graph *g, const void *data, size_t size, const struct import_options *options,
                          int *added);

struct export_options {
  bool strip_defaults; /* leave out attributes that equal their default */
  bool assigned;       /* write the assigned device where there is one */
  bool no_library;
  bool in_function; /* inputs as bodies of functions have them: "node:output:0" */
};
/* Appends a GraphDef to out. */
shoal_status graph_export(const struct shoal_graph *g, const struct export_options *options, struct text *out);
/* Appends its field `library`: functions and their gradients; nothing where there are none. */
void graph_export_library(const struct shoal_graph *g, struct text *out);
/* Appends one NodeDef. */
shoal_status node_export(const struct shoal_node *n, const struct export_options *options, struct text *out);
/* Appends an OpDef. */
shoal_status op_export(const struct op *op, struct text *out);

#endif

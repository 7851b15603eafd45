/* Patterns: nodes that belong together, found in a graph.
 *
 * A pattern is text, a row for each node, and names stand for tensors:
 *
 *   "c = Sub x m\n"        c is output 0 of a Sub of x and m
 *   "d = Mul e s:1\n"      an operand may be another output of a row's node
 *   "v = Mean q *\n"       * is any tensor
 *   "f = Cast? x\n"        when casts are asked for: a Cast; else f is x itself
 *   "d = AddN& a b\n"      a sum that a and b are among the terms of
 *
 * Mul, AddV2 and AddN take their operands in any order. The first row's result is where the search begins; every other
 * row has a name that an earlier one has too, and is looked for among the readers of that tensor, or is its node. Two
 * rows are never one node. What can be had in several ways is tried in all of them. */
#ifndef GRAPH_PATTERN_H
#define GRAPH_PATTERN_H

#include "graph/graph.h"

enum { PATTERN_ROWS = 48, PATTERN_NAMES = 64, PATTERN_OPERANDS = 3 };

struct pattern_row {
  const char *op;                                       /* of the registry; NULL: no such op, nothing is found */
  int result;                                           /* a name's number */
  int n, in[PATTERN_OPERANDS], index[PATTERN_OPERANDS]; /* -1: any tensor */
  bool perhaps, among;                                  /* ? and & */
};

struct pattern {
  int n, n_names;
  struct pattern_row rows[PATTERN_ROWS];
  char names[PATTERN_NAMES][8];
};

struct match {
  shoal_out of[PATTERN_NAMES]; /* by name; node NULL: none yet */
};

void pattern_add(struct pattern *p, const char *text); /* rows behind those there are */
/* A name's number; -1: it has none such. */
int pattern_name(const struct pattern *p, const char *name);

/* All rows, with the first one's result at root; casts: the rows with ? are there. users: of the graph as it is. tries:
 * how many nodes may be looked at; when they are used up nothing is found (a stranger's graph may have a million
 * readers of one tensor). */
bool pattern_match(const struct pattern *p, const struct consumers *users, struct shoal_node *root, bool casts,
                   int64_t *tries, struct match *m);
/* The node that stands for row i; NULL: none does, being a ? that is not there. */
struct shoal_node *match_node(const struct pattern *p, const struct match *m, bool casts, int i);

#endif

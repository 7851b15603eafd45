/* A part of a graph as a function: what some tensors need, from arguments on. */
#ifndef SAVED_MODEL_GRAPH_PART_H
#define SAVED_MODEL_GRAPH_PART_H

#include "base/text.h"
#include "graph/graph.h"

struct part_arg {
  shoal_out from; /* of the graph: what the argument stands for */
  char *name;     /* as the function's signature has it */
  int object;     /* who gives it when the function is called, by number; -1: the caller */
};

/* Who says what a part captures: *object is the number of what gives that tensor, -1 where it is computed inside; an
 * error where it can be neither. */
typedef shoal_status (*part_capture)(void *arg, shoal_out from, int *object);

struct graph_part {
  const struct shoal_graph *graph;
  char *name;
  VEC(struct part_arg) args; /* inputs first, then captures */
  VEC(shoal_out) outputs;
  VEC(struct shoal_node *) effects; /* nodes that run in every call */
  VEC(struct shoal_node *) nodes;   /* the body */
  bool *inside;                     /* [graph->nodes.n] */
};

void graph_part_init(struct graph_part *p, const struct shoal_graph *g, const char *name);
void graph_part_release(struct graph_part *p);
/* An input; name is made one that a signature may have. */
void graph_part_add_input(struct graph_part *p, shoal_out from, const char *name);
/* Finds the body, when inputs, outputs and effects are there. */
shoal_status graph_part_find(struct graph_part *p, part_capture capture, void *arg);
/* Appends the FunctionDef. */
shoal_status graph_part_encode(const struct graph_part *p, struct text *out);
/* Appends that of a function that calls it, with its n inputs in another order: input i is order[i] of the other. */
shoal_status graph_part_encode_call(const struct graph_part *p, const char *name, const int *order, int n,
                                    struct text *out);

#endif

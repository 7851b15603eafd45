/* What shared work is made of: between the graph that keeps it (work_graph.c) and the hook that asks for it (work.c).
 */
#ifndef FEED_WORK_H
#define FEED_WORK_H

#include "shoal/work.h"

/* Who has an item, as the variable holds it: nobody yet, worker w as w + 1, or it is done. */
enum { WORK_NOBODY = 0, WORK_DONE = -1 };

struct work_items {
  shoal_out value;    /* a number for each item */
  shoal_op *lengthen; /* by what is fed to `more` */
};

struct work_graph {
  shoal_out item, skip;       /* placeholders: which item, and how many elements of it were used */
  shoal_op *begin;            /* begins to walk that item */
  struct shoal_node *next;    /* its next element */
  shoal_out ticket;           /* the next item that was never handed out; OUT_OF_RANGE: all were */
  shoal_op *own, *done;       /* the item is this worker's; it is done */
  shoal_op *advance;          /* one element more of it was used */
  shoal_out more;             /* placeholder */
  struct work_items items[2]; /* who has each; how many elements of it were used */
  shoal_out in[SHOAL_MAX_COMPONENTS];
  int n;
};

shoal_status work_graph_build(shoal_graph *g, const shoal_work_options *o, int n, struct work_graph *w);

#endif

/* Which algorithm: the cheapest of those that give the same bits. */
#ifndef COLLECTIVE_CHOOSE_H
#define COLLECTIVE_CHOOSE_H

#include "collective/simulate.h"

/* Links of one host by the fast path, and of a network; measured on neither in particular, but their ratios hold. */
extern const struct machine_cost collective_usual_cost;

/* Seconds, by the formulas of docs/algorithms.md; all ranks on links of one kind. Not for HIERARCHICAL. */
double collective_estimate(enum collective_operation operation, enum collective_algorithm algorithm, int size,
                           double bytes, const struct machine_cost *cost, const struct link_cost *link);

/* Sets r->algorithm. Every rank of a group comes to the same, given the same cost: what was measured is told to all by
 * one. Where hosts hold several ranks each an all-reduce is HIERARCHICAL, whatever the costs: it may add in an order of
 * its own. RING is never chosen; it is for groups with TensorFlow's processes, and for who asks for it. */
void collective_choose(struct schedule_request *r, size_t element, const struct machine_cost *cost);

/* How a member wants to communicate, in one number, which is the same on all members: its algorithm (-1: the cheapest),
 * and whether messages are bfloat16. 0 is none of these. And what its communication_hint would be. */
int collective_hint(int algorithm, bool bfloat16);
enum { COLLECTIVE_HINT_NAME = 64 };
void collective_hint_print(int hint, char out[COLLECTIVE_HINT_NAME]);

#endif

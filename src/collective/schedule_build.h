/* Writing programs: what the algorithms' files share. A program is written for one rank among `members`, which may be a
 * part of the group, so that algorithms can be made of others. */
#ifndef COLLECTIVE_SCHEDULE_BUILD_H
#define COLLECTIVE_SCHEDULE_BUILD_H

#include "collective/schedule.h"

struct schedule_members {
  const int *ranks; /* [n], in order */
  int n, me;        /* ranks[me] is the rank whose program is written */
};

struct schedule_span span_of(enum schedule_buffer buffer, int64_t at, int64_t n);
/* Piece i of n pieces of a span: equal but for one element. */
struct schedule_span span_piece(struct schedule_span s, int i, int n);
/* The same elements of another buffer. */
struct schedule_span span_in(struct schedule_span s, enum schedule_buffer buffer);

/* Spans without elements are left out, but for messages of a barrier. */
void step_send(struct schedule *s, int to, struct schedule_span a);
void step_recv(struct schedule *s, int from, struct schedule_span a);
void step_recv_merge(struct schedule *s, int from, struct schedule_span a, struct schedule_span b);
void step_merge(struct schedule *s, struct schedule_span a, struct schedule_span b);
void step_copy(struct schedule *s, struct schedule_span a, struct schedule_span b);
void step_finish(struct schedule *s, struct schedule_span a);
/* Messages without a byte. */
void step_signal(struct schedule *s, int to, int from);
/* The steps from `first` on are this one of TensorFlow's messages. */
void step_label(struct schedule *s, size_t first, int a, int b, int c);

/* Room for n elements above *top, which is moved up; whoever puts *top back gives the room back. */
struct schedule_span schedule_scratch(struct schedule *s, int64_t *top, int64_t n);

/* schedule_reduce.c: the sum of all members' `in`, in the order of pairs. */

/* Leaves the sum in `out` of member 0; other members' `out` may be overwritten. */
void reduce_tree(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out);
void reduce_central(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out);
/* Leaves the member's own piece of the sum, piece m.me of m.n, in `own`. */
void scatter_direct(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span own);
/* All-reduces. */
void halving(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out);
void hierarchical(struct schedule *s, struct schedule_members m, const int *hosts, struct schedule_span in,
                  struct schedule_span out);

/* schedule_spread.c: from those who have to those who have not; and the ring, which does both. */

void broadcast_tree(struct schedule *s, struct schedule_members m, int root, struct schedule_span out);
void broadcast_central(struct schedule *s, struct schedule_members m, int root, struct schedule_span out);
/* tasks: [m.n], of each member. */
void broadcast_tasks(struct schedule *s, struct schedule_members m, const int *tasks, int root,
                     struct schedule_span out);
/* Member i has piece i of `out`; afterwards all have all. */
void gather_direct(struct schedule *s, struct schedule_members m, struct schedule_span out);
void gather_ring(struct schedule *s, struct schedule_members m, struct schedule_span out);
void ring_reduce(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out,
                 int64_t alignment);

#endif

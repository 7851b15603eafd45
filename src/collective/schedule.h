/* What one rank does in a collective: a program of sends, receives and merges, made before the first byte moves.
 *
 *   rank       a member's place in its group, 0 .. size-1
 *   step       one line of a rank's program: it names a span of one of three buffers, and mostly a peer
 *   span       neighbouring elements of a buffer
 *
 * A program runs in order. A send only begins there: it goes on beside the program, which waits for it no sooner than a
 * later step writes what is being sent. A receive ends before the next step begins. The k-th message that a rank sends
 * to another is the k-th that the other receives from it, so nothing needs to be agreed upon while a program runs.
 *
 * The same programs are run by run.h over any transport and by simulate.h over links that are only numbers.
 *
 * Which algorithm adds in which order matters for the last bits. Two orders exist:
 *
 *   pairs      neighbours are added, then pairs of neighbours, and so on: S(0, n) = S(0, h) + S(h, n - h), with h the
 *              largest power of two below n. CENTRAL, DIRECT, TREE and HALVING all add so, at any size and with any
 *              number of ranks: choosing among them by measured costs never changes a result. HIERARCHICAL does where
 *              hosts hold equal, neighbouring ranks, a power of two each.
 *   ring       RING is TensorFlow's: the piece c begins at rank c and each next rank adds its own. Its pieces are
 *              TensorFlow's too, so a group may have TensorFlow's processes in it.
 *
 * Messages have labels, three numbers, which are those of TensorFlow's names in RING (pass, piece, sender) and TASKS
 * (tree, sender's and receiver's places in it), so that its processes find them; LABEL_PAIR, sender, receiver: a name
 * that ends in the two ranks with nothing between, as TensorFlow's all-to-all has it. */
#ifndef COLLECTIVE_SCHEDULE_H
#define COLLECTIVE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum collective_operation {
  OPERATION_ALL_REDUCE,     /* in: n elements everywhere; out: their sum everywhere */
  OPERATION_REDUCE,         /* the sum at the root; the others' out is theirs to lose */
  OPERATION_REDUCE_SCATTER, /* in: n * ranks; out: the rank's own n of the sum */
  OPERATION_ALL_GATHER,     /* in: n; out: n * ranks, in order of rank */
  OPERATION_BROADCAST,      /* out: the root's in */
  OPERATION_ALL_TO_ALL,     /* in: n * ranks; out: what each rank had for this one */
  OPERATION_BARRIER,        /* nobody ends before all have begun */
};

enum collective_algorithm {
  ALGORITHM_CENTRAL,      /* everybody to one, and back */
  ALGORITHM_DIRECT,       /* each rank sums one piece of all, straight from everybody */
  ALGORITHM_TREE,         /* binomial: up and down */
  ALGORITHM_HALVING,      /* recursive halving, then doubling */
  ALGORITHM_RING,         /* TensorFlow's ring */
  ALGORITHM_HIERARCHICAL, /* inside each host, then between hosts */
  ALGORITHM_TASKS,        /* TensorFlow's tree: between tasks, then inside each; and its all-to-all */
  ALGORITHMS
};
extern const char *const collective_algorithm_names[ALGORITHMS];
/* By name; -1: there is none. */
int collective_algorithm_find(const char *name);

enum { LABEL_PAIR = -1 };

struct schedule_request {
  enum collective_operation operation;
  enum collective_algorithm algorithm;
  int rank, size, root;
  int64_t n;         /* elements: see the operations */
  int64_t alignment; /* of the ring's pieces, in elements: TensorFlow's are of 64 bytes */
  const int *hosts;  /* [size], the host of each rank; NULL: all on one. TASKS: the task of each, 0 first, in order */
};

enum schedule_buffer { BUFFER_IN, BUFFER_OUT, BUFFER_SCRATCH };

struct schedule_span {
  enum schedule_buffer buffer;
  int64_t at, n;
};

enum schedule_verb {
  STEP_SEND,       /* span a to the peer */
  STEP_RECV,       /* span a = what the peer sends */
  STEP_RECV_MERGE, /* span a = span b op what the peer sends */
  STEP_MERGE,      /* span a = span a op span b */
  STEP_COPY,       /* span a = span b */
  STEP_FINISH,     /* span a = final(span a): the sum is whole */
};

struct schedule_step {
  enum schedule_verb verb;
  int peer;
  int number;   /* of a message: how many went before it, in its direction, between the two */
  int label[3]; /* of a message: no other of its collective has the same */
  struct schedule_span a;
  struct schedule_span b; /* of as many elements as a, or of none */
};

struct schedule {
  struct schedule_step *steps;
  size_t n, room;
  int64_t scratch; /* elements */
};

/* INVALID_ARGUMENT, by name, for what makes no sense (a root outside of the group, ...), UNIMPLEMENTED where an
 * algorithm does not do the operation: collective_can() knows beforehand. */
shoal_status schedule_init(struct schedule *s, const struct schedule_request *r);
void schedule_release(struct schedule *s);
bool collective_can(enum collective_operation operation, enum collective_algorithm algorithm);

#endif

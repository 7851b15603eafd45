/* The compiled form, shared by plan.c (which makes it) and the two executors. */
#ifndef RUNTIME_PLAN_INTERNAL_H
#define RUNTIME_PLAN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/ref.h"
#include "runtime/plan.h"

enum node_flags {
  NODE_SWITCH = 1 << 0,
  NODE_MERGE = 1 << 1,
  NODE_ENTER = 1 << 2,
  NODE_ENTER_CONST = 1 << 3, /* the value is there in every iteration */
  NODE_EXIT = 1 << 4,
  NODE_NEXT = 1 << 5,
  NODE_ASYNC = 1 << 6,
  NODE_EXPENSIVE = 1 << 7,
  NODE_DEAD_OK = 1 << 8,  /* runs although an input is dead */
  NODE_MAY_SKIP = 1 << 9, /* may leave an output without a value: that output is dead */
  NODE_REFS = 1 << 10,    /* has reference inputs or outputs */
  NODE_UNINITIALIZED_OK = 1 << 11,
  NODE_TRIGGER = 1 << 12, /* ControlTrigger: is never dead, whatever it waits for */
  NODE_PLACED = 1 << 13,  /* its output has a place in another's, or others' have in its: placed_outputs.c */
  NODE_COUNTED = 1 << 14, /* reads what other segments read too: USE_COUNTED */
  NODE_LONG = 1 << 15,    /* takes as long as memory does to come: what comes next is asked for before it runs */
};

/* From output `out` of a node (-1: control) to a consumer. */
struct plan_edge {
  int dst;
  int out;
};

struct plan_node {
  struct kernel *kernel;
  unsigned flags;
  int frame;     /* frame_info the node runs in */
  int local;     /* its place among that frame's nodes */
  int out_frame; /* where its outputs go: the same, the child (Enter) or the parent (Exit) */
  int n_in, n_out;
  int first_in; /* its inputs in plan->in_slots */
  int out_slot; /* first output, in out_frame's slots */
  int first_edge, n_edges;
  int pending; /* inputs and control inputs to wait for (Merge: see dataflow.c) */
  int n_data, n_control;
  atomic_bool slow; /* outbox.h */
};

/* A loop's body, or the whole graph (frame 0). */
struct frame_info {
  char *name;
  int parent;
  int n_nodes, n_slots;
  int n_enters;   /* Enter nodes leading in */
  int parallel;   /* iterations in flight at most */
  int *slot_uses; /* [n_slots] how many inputs read each slot */
  int *nodes;     /* [n_nodes] plan node by local index */
};

/* Nodes that become ready together and run one after the other, or one asynchronous node: segments.c. */
struct segment {
  int first, n;           /* its nodes */
  int call;               /* asynchronous: its number among those; else -1 */
  bool expensive;         /* has a node that is */
  int64_t elements;       /* that its nodes read, as far as shapes are known */
  bool follows;           /* waits for the one before it, whose next stage it is: stages.c */
  int pending;            /* segments it waits for */
  int first_next, n_next; /* those that wait for it, in plan->nexts */
};

enum last_use {                /* bits; 0: this input is not the last of its segment to read its slot */
                USE_LAST = 1,  /* it is */
                USE_TWICE = 2, /* the same node reads the slot through another input too: its buffer cannot be taken */
                USE_COUNTED = 4, /* other segments read it as well: a counter says which is the last */
};

/* A value that others are written into, one behind the other: the output of a concatenation. */
struct plan_whole {
  shoal_dtype dtype;
  int64_t n;
};

/* Where a node's output is: so many elements of a whole, or that itself. */
struct plan_place {
  int node, whole;
  int64_t first, n;
  bool is_whole;
};

/* How a run of a plan ended, when several threads may end it. */
struct verdict {
  pthread_mutex_t lock;
  shoal_status status; /* lock */
  atomic_bool failed;
};
/* The first failure also ends what the step waits for. */
void verdict_fail(struct verdict *v, struct step *step, shoal_status s);

/* The two sides of an asynchronous call, whoever started the kernel and its end, each leave a mark; the second to come
 * goes on. So a kernel that ends before it returns is followed by its starter's loop, not by deeper recursion. */
enum { CALL_OPEN, CALL_LEFT, CALL_ENDED };

struct exec; /* a running step's memory: straight.c */
struct flow; /* the same: dataflow.c */

struct plan {
  struct ref refs;
  struct device *device;
  struct resource_mgr *resources;
  int n_nodes;
  struct plan_node *nodes; /* in topological order */
  int *in_slots;           /* inputs of all nodes: slot in the node's own frame */
  struct plan_edge *edges;
  int n_frames;
  struct frame_info *frames;
  int total_in;
  bool straight, has_refs;
  /* straight: */
  int n_once;          /* the first nodes, whose values are the same in every step: run when compiled */
  struct tensor *once; /* [slots of the first n_once nodes] their values */
  int n_once_slots;
  struct segment *segments;
  int n_segments, n_calls; /* n_calls: how many are asynchronous */
  int *nexts;
  uint8_t *last_use;              /* [total_in] enum last_use */
  int *readers;                   /* [slots] how many segments read it */
  uint64_t *steals;               /* [n_nodes] kernel_ctx.steal, but for what is counted */
  int *drops;                     /* slots to let go after a node: what it is the last to read, and made for nobody */
  int *first_drop;                /* [n_nodes + 1] into drops */
  struct replay *replay;          /* replay.h; NULL: it runs node by node always */
  struct gathered_plan *gathered; /* gathered.h; NULL: it receives and sends as it goes, or does not */
  struct plan_whole *wholes;
  int n_wholes;
  struct plan_place *places; /* [n_places], by their nodes */
  int n_places;
  /* reusable memory of finished steps */
  pthread_mutex_t lock;
  struct exec *execs; /* lock */
  struct flow *flows; /* lock */
};

shoal_status kernel_make(const struct shoal_node *n, const struct plan_options *o, struct kernel **out);
void kernel_free(struct kernel *k); /* drops one reference */

/* In the order in which they are called. nodes: [n_nodes] the plan's, the first n_once of which are in no segment;
 * segment: [n_nodes] is filled in. False: there are too many different sets of asynchronous nodes. */
bool segments_cut(struct plan *p, struct shoal_node **nodes, const bool *async, size_t n_ids, int *segment);
/* Cuts them further: stages.c. early: [n_nodes] whose inputs are wanted as soon as they can be had. */
bool stages_wanted(const struct shoal_node *n);
void stages_cut(struct plan *p, struct shoal_node **nodes, const bool *early, size_t n_ids, int *segment);
void segments_order(struct plan *p, struct shoal_node **nodes, int *segment); /* the nodes of one stand together */
void segments_link(struct plan *p, const int *segment);
void segments_last_uses(struct plan *p, const int *segment);
void segments_find_drops(struct plan *p); /* after last uses */

/* Which values are written where a concatenation wants them: placed_outputs.c. After slots were given. */
void places_find(struct plan *p, struct shoal_node **nodes, const int *at);
/* Of a node that is NODE_PLACED. */
const struct plan_place *place_of(const struct plan *p, int node);

/* A step on a device whose memory is its own, which waits for what is queued there; not gathered. */
void plan_run_whole(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg);
void straight_run(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg);
void straight_free(struct exec *e, const struct plan *p);
void dataflow_run(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg);
void dataflow_free(struct flow *f, const struct plan *p);

/* TensorFlow's error when a kernel left an output without a value. */
shoal_status missing_output(const struct plan_node *n, const struct kernel_ctx *ctx);
/* And strings that found no memory since so many were lost (tensor/strings.h). One that waited while others found none
 * has lost nothing, unless it is strings that it waited for. */
shoal_status missing_strings(const struct plan_node *n, const struct kernel_ctx *ctx, uint64_t before);
/* The inputs of a node with references: fills in refs_in, and reads through where a value is wanted (into temps, to
 * be released). UNINITIALIZED in TensorFlow's words. */
shoal_status refs_prepare(const struct plan_node *n, struct variable *const *slot_refs, const int *in_slots,
                          const struct tensor **in, struct variable **refs_in, struct tensor *temps);

#endif

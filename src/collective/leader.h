/* What the leader of collectives that span tasks knows: who is in which group, and what each instance is.
 *
 * A member asks twice, once for each group and once for each of its instances, and keeps the answers; both come when
 * the last member has asked. TensorFlow's leader answers the second at once, so that whoever differs from the others
 * (in the op, the type, the shape, the way to communicate) is told alone, and the others wait for ever: here all are
 * told, and what does not fit is forgotten, so that the same keys can be used again. Members that come to an instance
 * in steps of different numbers would wait for each other's messages for ever: of two such the one that was there first
 * is told, unless the other is a little behind it. Members that call instances in other orders, and say so, are told
 * when it is sure that they wait for each other (orders.h). Who asks again is answered from what is known: members that
 * have lost an answer with a step that failed, or were restarted, find their group.
 *
 * Strangers choose keys, sizes and names. Both tables are bounded, and so is what they hold in bytes: where one
 * is full the oldest of whoever has begun the most makes room, those that are complete before others. What a member may
 * tell of itself is little; who comes, who leaves and who asks again costs the same in a group of thousands. The answer
 * about a group is one, however many read it. */
#ifndef COLLECTIVE_LEADER_H
#define COLLECTIVE_LEADER_H

#include <stdatomic.h>

#include "base/ref.h"
#include "base/status.h"
#include "base/strmap.h"
#include "base/text.h"
#include "base/vec.h"
#include "base/wire.h"
#include "collective/meeting.h"

struct leader;
struct leader *leader_new(void);
/* Nobody waits any more. */
void leader_free(struct leader *l);

struct group_question {
  uint64_t asker; /* a connection or a session: of these none keeps others out */
  int key, size;
  const char *device_type, *device;
  struct wire attributes; /* a DeviceAttributes message, of that device */
};

struct instance_question {
  uint64_t asker;
  int group_key, group_size, key;
  enum collective_kind kind;
  int dtype;
  int arithmetic;          /* its code (arithmetic.h); 0: it does not say */
  struct shape shape;      /* of the result */
  bool is_source;          /* of a broadcast */
  int64_t step;            /* in which it comes there; 0: it does not say, or that is its own */
  int hint;                /* how it wants to communicate (choose.h); 0: it does not say */
  struct order_held holds; /* what its device comes to in that step after it */
  const char *device;
};

/* A CompleteGroupResponse. */
struct leader_answer {
  struct ref refs;
  struct text bytes;
};
struct leader_answer *leader_answer_ref(struct leader_answer *a);
void leader_answer_unref(struct leader_answer *a);

/* Filled and owned by whoever asks; lives until done is called, or leader_leave has said that it will not be. */
struct leader_wait {
  /* Exactly once, from any thread, with no lock held; s is to be taken over. group: of answers about groups; who keeps
   * it takes a reference. source: a rank, or -1. */
  void (*done)(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source);
  /* the leader's own */
  struct leader_wait *next, *prev;
  struct leader_roll *roll; /* lock: where it waits; NULL: it does not */
  struct roll_member *member;
};

/* Both may call done before they return. */
void leader_ask_group(struct leader *l, const struct group_question *q, struct leader_wait *w);
void leader_ask_instance(struct leader *l, const struct instance_question *q, struct leader_wait *w);
/* Waits no longer. True: done will not be called; what was known of it is added to why ("2 of 3 members came: ..."), if
 * anybody wants to read it. */
bool leader_leave(struct leader *l, struct leader_wait *w, struct text *why);
/* The complete groups that a task has members in, and their instances, are no more: they are complete again when all
 * have asked again, whoever comes in the task's place among them. Who waits in such an instance is told why (which
 * stays the caller's). */
void leader_lose_task(struct leader *l, const char *task, shoal_status why);
/* The task has gone in order. Its groups stay as they are for those who are not done yet; who waits in an instance that
 * it has not come to is told why. */
void leader_task_left(struct leader *l, const char *task, shoal_status why);

/* ---- who is missed ---- */

/* A group or an instance in which somebody waits, as it was when it was looked at. */
struct leader_gap {
  bool is_group;
  char *name; /* its key in its table */
  char *what; /* for people */
  int64_t began;
  int size, came;
  char *type;          /* of a group: of its devices */
  bool say;            /* it is time to tell people of it (again) */
  struct strmap tasks; /* of a group: those whose members came, and how many of each, as a pointer */
  VEC(struct leader_absent {
    char *device;
    uint64_t incarnation;
    int rank;
  })
  absent; /* of an instance, whose group is known: members that have not come, not all where they are many */
};
struct leader_gaps {
  struct leader_gap *at;
  size_t n, cap;
};

/* What waits since before then. False: nobody waits, since then or before. */
bool leader_gaps_find(struct leader *l, int64_t before, struct leader_gaps *out);
void leader_gaps_release(struct leader_gaps *g);
/* A member that it waits for does not come: who waits is told why (which stays the caller's), where it still does, and
 * it can be asked for anew. */
void leader_gap_lose(struct leader *l, const struct leader_gap *g, shoal_status why);

/* It is about to go: whoever has not been told yet of what did not fit (refusals.h) is, also who asks from now on.
 * leader_left: how many have not asked; told: some of those who asked, and may not have read the answer yet. */
void leader_last_words(struct leader *l);
size_t leader_left(struct leader *l, uint64_t *told, size_t room, size_t *n_told);

#endif

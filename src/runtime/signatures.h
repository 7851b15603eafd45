/* Compiled steps by their signatures: what is fed, fetched and run. One table a session, in this process or a master's.
 *
 * What was compiled is kept, up to a number: of more, the one that was not used for the longest time is forgotten (a
 * program that fetches something else every time must not grow for ever). A signature that is being compiled is waited
 * for by whoever asks for it meanwhile, and all get its outcome, an error too. The table knows nothing of compiling:
 *
 *   signatures_find(t, key, NULL, &asker, &s)     SIGNATURE_KEPT: a reference in s
 *                                                 SIGNATURE_AWAITED: asker->tell will be called
 *                                                 SIGNATURE_ABSENT: make a work (what it takes may be refused), and
 *   signatures_find(t, key, &work, &asker, &s)    as above, somebody may have been quicker; now ABSENT says
 *                                                 that the work is entered and the asker waits for it: compile,
 *   signatures_end(t, &work, s, err)              and in the end this tells all askers
 *
 * Nothing here waits. Askers and works live in their owners' memory. */
#ifndef RUNTIME_SIGNATURES_H
#define RUNTIME_SIGNATURES_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/numbered.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/strmap.h"
#include "base/text.h"
#include "graph/prune.h"

/* The head of what was compiled. References are taken with the table's lock held, or by those who have one: what has
 * but one is the table's alone. */
struct signature {
  struct ref refs;
  uint64_t last_used; /* the table's lock: in uses of the table */
};

static inline void signature_ref(struct signature *s) { ref_take(&s->refs); }

/* Who asked. tell: with an error (consumed) or a reference; the asker is its owner's again. */
struct signature_asker {
  struct signature_asker *next;
  void (*tell)(struct signature_asker *a, shoal_status err, struct signature *s);
  const atomic_bool *gone; /* set: waits no more; NULL: waits */
};

/* One that is being compiled. */
struct signature_work {
  char *key;
  struct signature_asker *askers, **last; /* lock: in the order they came */
  bool deserted;                          /* lock: nobody waits for it, or can find it */
};

struct signatures {
  pthread_mutex_t lock;
  struct strmap kept;        /* lock: key -> struct signature * */
  struct strmap making;      /* lock: key -> struct signature_work * */
  uint64_t uses;             /* lock */
  struct numbered callables; /* lock: struct held_step * */
  size_t most;
  void (*forget)(void *owner, struct signature *s); /* it has left the table: takes its reference over */
  void *owner;
};

void signatures_init(struct signatures *t, size_t most, void (*forget)(void *owner, struct signature *s), void *owner);
/* Nothing is being compiled. let_go takes over the table's references, and those of callables. */
void signatures_release(struct signatures *t, void (*let_go)(struct signature *s));

/* The key of a signature, a block: style tells apart what is compiled in different ways. */
char *signature_key(char style, const struct step_signature *sig);

enum signature_state { SIGNATURE_KEPT, SIGNATURE_AWAITED, SIGNATURE_ABSENT };
/* a NULL: only looks. */
enum signature_state signatures_find(struct signatures *t, const char *key, struct signature_work *fresh,
                                     struct signature_asker *a, struct signature **out);
/* The work is over: with an error (consumed), or with s, a reference that is taken over. */
void signatures_end(struct signatures *t, struct signature_work *w, struct signature *s, shoal_status err);
/* Does nobody wait for the work any more (closed: whoever waits will be told of that)? Then nobody who comes later
 * finds it either, and it may be broken off. */
bool signatures_deserted(struct signatures *t, struct signature_work *w, bool closed);
/* Forgets the one that was not used for the longest time; false: all are in use. */
bool signatures_make_room(struct signatures *t);
size_t signatures_count(struct signatures *t);

/* Callables: steps that are held by a number until it is released. The reference is taken over, and n bytes of options,
 * what each run of it is told, are kept beside it. */
int64_t signatures_hold(struct signatures *t, struct signature *s, const void *options, size_t n);
/* A reference, or NULL, and a copy of the options. */
struct signature *signatures_held(struct signatures *t, int64_t callable, void *options);
/* The reference that was held, or NULL; the number is no more. */
struct signature *signatures_let_go(struct signatures *t, int64_t callable);

#endif

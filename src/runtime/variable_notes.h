/* Which variables a run of a plan touches, and where their values were.
 *
 * While a thread takes notes, reading a variable and locking it to be changed leave one each. A captured step has the
 * addresses and the shapes of those values in it: it may be replayed as long as they are what they were, and while it
 * is begun nobody may change that. (Memory serves again: a value of another shape may come to lie where one of the
 * same size was.)
 *
 * While a step is captured nothing of it is done. A value that moved then would be somewhere where nobody writes it, so
 * that whatever would move one fails: the step moves it every time, or another step shares it at this moment. */
#ifndef RUNTIME_VARIABLE_NOTES_H
#define RUNTIME_VARIABLE_NOTES_H

#include "base/vec.h"
#include "runtime/variable.h"

struct variable_note {
  struct variable *v; /* a reference */
  struct tensor was;  /* the value when it was first touched: its place, type and shape. It is not held */
  bool written;
};

struct variable_notes {
  VEC(struct variable_note) at; /* by address, each once */
};

void variable_notes_begin(struct variable_notes *n); /* on this thread, until: */
void variable_notes_end(void);
void variable_notes_release(struct variable_notes *n);

/* By who touches a variable, with its lock held. */
extern _Thread_local struct variable_notes *variable_notes_taken;
void variable_note_add(struct variable *v, bool written);
static inline void variable_note(struct variable *v, bool written) {
  if (UNLIKELY(variable_notes_taken != NULL)) variable_note_add(v, written);
}

/* On this thread, until it is said again: values stay where they are. */
void variables_stay(bool stay);
/* By who is about to give a variable's value another place: INTERNAL where they stay. */
shoal_status variable_may_move(const struct variable *v);

/* Locks them all, each as it was touched. The name of the first whose value is not what it was, or that others hold
 * though it is to be written, or that is gone (none is locked then); NULL: all are as they were. */
const char *variable_notes_lock(const struct variable_notes *n);
void variable_notes_unlock(const struct variable_notes *n);

#endif

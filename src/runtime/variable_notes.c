/* Notes of variables; see variable_notes.h. */
#include "runtime/variable_notes.h"

#include <string.h>

#include "base/mem.h"

_Thread_local struct variable_notes *variable_notes_taken;

void variable_notes_begin(struct variable_notes *n) { variable_notes_taken = n; }
void variable_notes_end(void) { variable_notes_taken = NULL; }

void variable_notes_release(struct variable_notes *n) {
  for (size_t i = 0; i < n->at.n; i++) variable_unref(n->at.at[i].v);
  vec_release(&n->at);
}

void variable_note_add(struct variable *v, bool written) {
  struct variable_notes *n = variable_notes_taken;
  size_t i = 0;
  while (i < n->at.n && n->at.at[i].v < v) i++;
  if (i == n->at.n || n->at.at[i].v != v) {
    vec_push(&n->at, (struct variable_note){0});
    memmove(&n->at.at[i + 1], &n->at.at[i], (n->at.n - 1 - i) * sizeof *n->at.at);
    n->at.at[i] = (struct variable_note){0};
    resource_ref(&v->head);
    n->at.at[i].v = v;
    if (tensor_valid(&v->value)) tensor_move(&n->at.at[i].was, &v->value);
    n->at.at[i].was.buffer = NULL;
  }
  n->at.at[i].written |= written;
}

static _Thread_local bool stay;
void variables_stay(bool yes) { stay = yes; }

shoal_status variable_may_move(const struct variable *v) {
  return LIKELY(!stay) ? NULL : INTERNAL("the value of %s would move", v->name);
}

static bool is_as_it_was(const struct variable_note *n) {
  const struct tensor *t = &n->v->value, *was = &n->was;
  if (!tensor_valid(t) || atomic_load(&n->v->head.gone)) return false;
  if (t->data != was->data || t->dtype != was->dtype || !tensor_same_shape(t, was)) return false;
  return !n->written || tensor_writable(t);
}

static void unlock(const struct variable_notes *n, size_t count) {
  for (size_t i = 0; i < count; i++) pthread_rwlock_unlock(&n->at.at[i].v->lock);
}

const char *variable_notes_lock(const struct variable_notes *n) {
  for (size_t i = 0; i < n->at.n; i++) {
    struct variable_note *one = &n->at.at[i];
    if (one->written) pthread_rwlock_wrlock(&one->v->lock);
    else pthread_rwlock_rdlock(&one->v->lock);
    if (is_as_it_was(one)) continue;
    unlock(n, i + 1);
    return one->v->name;
  }
  return NULL;
}

void variable_notes_unlock(const struct variable_notes *n) { unlock(n, n->at.n); }

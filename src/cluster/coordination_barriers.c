/* Barriers of the coordination service; see coordination.h. A barrier is made by the first task that comes to it, for
 * the tasks that this one names, and passes once: when the last of them has come, or with an error for all. Who comes
 * afterwards is told the same, for as long as it is remembered. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/coordination.h"

enum { AWAITED = 1, HERE };
static const int64_t LONGEST_MS = 365ll * 24 * 3600 * 1000;

struct coordination_barrier {
  struct coordination_value *id;     /* its key; who made the barrier has been charged for it */
  struct coordination_barrier *next; /* of those that are passed: the one that passed after it */
  bool passed;
  shoal_status result; /* of a barrier that is passed */
  int64_t deadline;
  size_t size, left; /* tasks that it is for, and those that have not come */
  struct coordination_wait *waiting;
  uint8_t tasks[]; /* of all tasks: AWAITED, HERE, or 0: it is not for this one */
};

static void barrier_free(struct coordination_barrier *b) {
  coordination_value_unref(b->id);
  shoal_status_free(b->result);
  free(b);
}

void coordination_barrier_drop(struct coordination *c, struct coordination_barrier *b) {
  if (b->passed || b->waiting) return;
  strmap_remove(&c->barriers, b->id->key);
  barrier_free(b);
}

/* Barriers that passed first go first. They do while nobody walks over them. */
static void forget_surplus(struct coordination *c, int most) {
  while (c->n_passed > most) {
    struct coordination_barrier *b = c->first_passed;
    c->first_passed = b->next;
    c->n_passed--;
    strmap_remove(&c->barriers, b->id->key);
    barrier_free(b);
  }
}

/* result is taken over. */
static void pass(struct coordination *c, struct coordination_barrier *b, shoal_status result,
                 struct coordination_wait **told) {
  b->passed = true;
  b->result = result;
  while (b->waiting) coordination_tell(told, b->waiting, status_copy(result), NULL);
  if (c->n_passed++) c->last_passed->next = b;
  else c->first_passed = b;
  c->last_passed = b;
}

static shoal_status barrier_new(struct coordination *c, const char *id, struct account *a,
                                struct coordination_barrier **out) {
  struct coordination_value *name;
  size_t size = sizeof **out + c->tasks.n;
  TRY(coordination_value_new(a, id, NULL, 0, size, &name));
  struct coordination_barrier *b = mem_try_zalloc(1, size);
  if (!b) {
    coordination_value_unref(name);
    return NO_MEMORY(size, "a barrier");
  }
  b->id = name;
  strmap_put(&c->barriers, id, b);
  *out = b;
  return NULL;
}

/* For whom it is; an error is for all. */
static shoal_status invite(struct coordination *c, struct coordination_barrier *b, char *const *among, size_t n) {
  for (size_t i = 0; i < (n ? n : c->tasks.n); i++) {
    const struct coordinated_task *t = n ? coordination_task(c, among[i]) : &c->tasks.at[i];
    if (!t)
      return INVALID("Unexpected task (%s) that is not in the cluster called the barrier. Barrier Id: %s", among[i],
                     b->id->key);
    if (t->state == TASK_ERROR)
      return INTERNAL("Task (%s) is already in error before the barrier was called. Barrier Id: %s", t->name,
                      b->id->key);
    uint8_t *state = &b->tasks[t - c->tasks.at];
    b->size += !*state;
    *state = AWAITED;
  }
  b->left = b->size;
  return NULL;
}

/* Are those that a later one names the same? */
static bool agrees(struct coordination *c, const struct coordination_barrier *b, char *const *among, size_t n) {
  if (!n) return b->size == c->tasks.n;
  for (size_t i = 0; i < n; i++) {
    const struct coordinated_task *t = coordination_task(c, among[i]);
    if (!t || !b->tasks[t - c->tasks.at]) return false;
  }
  return b->size == n;
}

/* A task comes; an error is for all. */
static shoal_status enter(struct coordination *c, struct coordination_barrier *b, const char *task, char *const *among,
                          size_t n) {
  const struct coordinated_task *t = coordination_task(c, task);
  uint8_t *state = t ? &b->tasks[t - c->tasks.at] : NULL;
  if (!state || !*state) return INVALID("A non-participating task (%s) called the barrier: %s", task, b->id->key);
  if (!agrees(c, b, among, n)) return INVALID("Conflicting tasks specified for the same barrier: %s", b->id->key);
  b->left -= *state == AWAITED;
  *state = HERE;
  return NULL;
}

void coordination_barrier(struct coordination *c, const char *id, int64_t timeout_ms, const char *task,
                          char *const *among, size_t n, struct account *a, struct coordination_wait *w) {
  struct coordination_wait *told = NULL;
  shoal_status s = NULL;
  pthread_mutex_lock(&c->lock);
  if (c->stopped) s = STATUS(SHOAL_ABORTED, "Barrier failed because service is shutting down. Barrier_id: %s", id);
  struct coordination_barrier *b = s ? NULL : strmap_get(&c->barriers, id);
  bool is_new = !s && !b;
  if (is_new) s = barrier_new(c, id, a, &b);
  w->barrier = b;
  if (s || (!is_new && b->passed)) {
    coordination_tell(&told, w, s ? coordination_error(s) : status_copy(b->result), NULL);
  } else if (coordination_link(&b->waiting, w, &told) || is_new) {
    if (is_new) b->deadline = deadline_after_ms(MAX(MIN(timeout_ms, LONGEST_MS), 0));
    if (is_new) s = invite(c, b, among, n);
    if (!s) s = enter(c, b, task, among, n);
    if (s || !b->left) pass(c, b, coordination_error(s), &told);
    coordination_barrier_drop(c, b); /* its only caller was gone before */
  }
  forget_surplus(c, MOST_PASSED);
  coordination_unlock(c, told);
}

shoal_status coordination_cancel_barrier(struct coordination *c, const char *id, const char *task) {
  struct coordination_wait *told = NULL;
  shoal_status s = NULL;
  pthread_mutex_lock(&c->lock);
  struct coordination_barrier *b = strmap_get(&c->barriers, id);
  if (!b) s = NOT_FOUND("Barrier (%s) is cancelled before anybody has come to it", id);
  else if (b->passed)
    s = STATUS(SHOAL_FAILED_PRECONDITION, "Barrier (%s) has already been passed with status code: %d", id,
               (int)shoal_status_code(b->result));
  else
    pass(c, b, coordination_error(STATUS(SHOAL_CANCELLED, "Barrier (%s) is cancelled by task: %s", id, task)), &told);
  forget_surplus(c, MOST_PASSED);
  coordination_unlock(c, told);
  return coordination_error(s);
}

void coordination_barriers_lose(struct coordination *c, const struct coordinated_task *t, const char *how,
                                struct coordination_wait **told) {
  void *value;
  for (size_t i = 0; strmap_next(&c->barriers, &i, NULL, &value);) {
    struct coordination_barrier *b = value;
    if (!b->passed && b->tasks[t - c->tasks.at])
      pass(c, b,
           coordination_error(INTERNAL("Barrier failed from %s. Barrier Id: %s, Task: %s", how, b->id->key, t->name)),
           told);
  }
  forget_surplus(c, MOST_PASSED);
}

/* Who has not come, a few of them. */
static void add_awaited(const struct coordination *c, const struct coordination_barrier *b, struct text *out) {
  enum { NAMED = 20 };
  int n = 0;
  for (size_t i = 0; i < c->tasks.n && n < NAMED; i++)
    if (b->tasks[i] == AWAITED) n++, text_addf(out, "%s\n", c->tasks.at[i].name);
}

void coordination_barriers_look(struct coordination *c, int64_t now, struct coordination_wait **told) {
  void *value;
  for (size_t i = 0; strmap_next(&c->barriers, &i, NULL, &value);) {
    struct coordination_barrier *b = value;
    struct text who = {0};
    if (b->passed || now < b->deadline) continue;
    add_awaited(c, b, &who);
    pass(c, b,
         coordination_error(STATUS(SHOAL_DEADLINE_EXCEEDED,
                                   "Barrier timed out. Barrier_id: %s. Timed out task names:\n%s", b->id->key,
                                   text_cstr(&who))),
         told);
    text_release(&who);
  }
  forget_surplus(c, MOST_PASSED);
}

void coordination_forget_barriers(struct coordination *c, struct coordination_wait **told) {
  void *value;
  for (size_t i = 0; strmap_next(&c->barriers, &i, NULL, &value);) {
    struct coordination_barrier *b = value;
    if (!b->passed)
      pass(c, b,
           coordination_error(
               STATUS(SHOAL_ABORTED, "Barrier failed because service is shutting down. Barrier_id: %s", b->id->key)),
           told);
  }
  forget_surplus(c, 0);
  strmap_release(&c->barriers);
}

/* Which of its machine's cards a task sees: `shoal launch --gpus_per_task=N`.
 *
 * CUDA hides all cards but those that CUDA_VISIBLE_DEVICES names, by number, from a process and gives the others
 * numbers from 0 on; TensorFlow's programs and ours need know nothing else. Tasks that train or evaluate get N cards
 * each, one task of a machine after the other; parameter servers get none, so that they take no memory there. Where the
 * launcher itself was given cards, those of this machine are dealt out from them. As CUDA reads that list, it ends
 * before the first number below 0 ("-1" is none at all), and no card may be there twice. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/launch.h"

/* The name at `at` in a list "2,0,GPU-1f..." and how long it is; 0: the list ends there. */
static size_t name_at(const char *at) { return *at == '-' ? 0 : strcspn(at, ","); }

static const char *next_name(const char *at) {
  at += strcspn(at, ",");
  return at + (*at == ',');
}

/* The i-th name of a list; NULL: it has fewer. */
static const char *nth(const char *list, int64_t i, size_t *n) {
  while ((*n = name_at(list)) && i-- > 0) list = next_name(list);
  return *n ? list : NULL;
}

static shoal_status check_given(const char *list) {
  for (const char *at = list; name_at(at); at = next_name(at))
    for (const char *before = list; before < at; before = next_name(before))
      if (name_at(before) == name_at(at) && !memcmp(before, at, name_at(at)))
        return INVALID("--gpus_per_task: CUDA_VISIBLE_DEVICES=%s has %.*s twice", list, (int)name_at(at), at);
  return NULL;
}

static bool same_machine(const struct launch_task *a, const struct launch_task *b) {
  return !a->host == !b->host && (!a->host || !strcmp(a->host, b->host));
}

/* How many tasks of its machine come before it. */
static int64_t turn_of(const struct launch_job *j, const struct launch_task *t) {
  int64_t before = 0;
  for (const struct launch_task *o = j->tasks.at; o < t; o++) before += o->role != ROLE_PS && same_machine(o, t);
  return before;
}

static shoal_status add_card(struct text *out, const struct launch_task *t, const char *given, int64_t card) {
  size_t n;
  if (out->n) text_addc(out, ',');
  if (!given) {
    text_addf(out, "%lld", (long long)card);
    return NULL;
  }
  const char *name = nth(given, card, &n);
  if (!name) return INVALID("--gpus_per_task: CUDA_VISIBLE_DEVICES=%s has no card left for %s", given, t->name);
  text_add(out, name, n);
  return NULL;
}

shoal_status launch_cards_deal(struct launch_job *j) {
  const char *given = getenv("CUDA_VISIBLE_DEVICES");
  if (j->gpus_per_task < 0) return NULL;
  if (given) TRY(check_given(given));
  for (size_t i = 0; i < j->tasks.n; i++) {
    struct launch_task *t = &j->tasks.at[i];
    struct text list = {0};
    shoal_status s = NULL;
    int64_t n = t->role == ROLE_PS ? 0 : j->gpus_per_task, first = turn_of(j, t) * n;
    for (int64_t k = 0; k < n && !s; k++) s = add_card(&list, t, t->host ? NULL : given, first + k);
    t->cards = mem_strdup(text_cstr(&list));
    text_release(&list);
    TRY(s);
  }
  return NULL;
}

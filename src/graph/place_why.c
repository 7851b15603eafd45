/* Reasons of placement; see place_why.h. */
#include "graph/place_why.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"

static const struct place_device *device_of(const struct shoal_node *n, const struct place_options *o) {
  for (int i = 0; n->assigned && i < o->n_devices; i++)
    if (!strcmp(o->devices[i].name, n->assigned)) return &o->devices[i];
  return NULL;
}

static bool same_task(const struct place_device *a, const struct place_device *b) {
  struct device_spec task = a->spec;
  task.has_type = task.has_id = false;
  return device_spec_matches(&task, &b->spec);
}

/* The best device of the task of another; NULL: that is one. */
static const struct place_device *better_than(const struct place_device *on, const struct place_options *o) {
  const struct place_device *best = on;
  for (int i = 0; o->priority && i < o->n_devices; i++)
    if (same_task(on, &o->devices[i]) && o->priority(o->devices[i].spec.type) > o->priority(best->spec.type))
      best = &o->devices[i];
  return best == on ? NULL : best;
}

static bool was_asked_for(const struct shoal_node *n, const char *type) {
  struct device_spec asked;
  shoal_status s = device_spec_parse(n->device, &asked);
  bool is = !s && asked.has_type && !strcmp(asked.type, type);
  shoal_status_free(s);
  return is;
}

char *place_why(const struct shoal_node *n, const struct place_options *o) {
  const struct place_device *on = device_of(n, o), *better = on ? better_than(on, o) : NULL;
  if (!better) return NULL;
  if (was_asked_for(n, on->spec.type)) return mem_printf("%s was asked for", on->spec.type);
  if (o->has_kernel && !o->has_kernel(n, better->spec.type))
    return o->why_no_kernel ? o->why_no_kernel(n, better->spec.type)
                            : mem_printf("%s has no kernel for %s", n->op->name, better->spec.type);
  return mem_printf("goes with what it shares a variable, a class or all its readers with");
}

/* ---- all of a graph ---- */

struct reason {
  char *text; /* OP: why */
  int n;
};

static int by_number(const void *a, const void *b) {
  const struct reason *x = a, *y = b;
  return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->text, y->text);
}

void place_tell_why(const struct shoal_graph *g, const struct place_options *o) {
  VEC(struct reason) all = {0};
  struct strmap index = {0}; /* place in `all`, from 1 */
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    char *why = n ? place_why(n, o) : NULL;
    if (!why) continue;
    char *text = mem_printf("%s: %s", n->op->name, why);
    free(why);
    size_t at = (size_t)(uintptr_t)strmap_get(&index, text);
    if (at) {
      all.at[at - 1].n++;
      free(text);
      continue;
    }
    vec_push(&all, (struct reason){text, 1});
    strmap_put(&index, text, (void *)(uintptr_t)all.n);
  }
  strmap_release(&index);
  if (all.n) qsort(all.at, all.n, sizeof *all.at, by_number);
  for (size_t i = 0; i < all.n; i++) {
    log_write(LOG_INFO, __FILE__, __LINE__, "not on the best device: %d of %s", all.at[i].n, all.at[i].text);
    free(all.at[i].text);
  }
  vec_release(&all);
}

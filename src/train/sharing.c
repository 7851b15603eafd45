/* Copies of a model that share variables.
 *
 * TensorFlow finds shared variables by name, in scopes that are reused; scopes here are made unique, so a second copy
 * has other names. What is the same is the order in which a model makes its variables: the n-th of a copy is the n-th
 * of the first. That needs no names, and a copy that does something else is told so at once. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "graph/given.h"
#include "train/variables.h"

struct shoal_sharing {
  struct variable_maker maker;
  VEC(shoal_var) made;
  size_t next;   /* which one is asked for next, in copies after the first */
  bool complete; /* the first copy is made */
};

static bool take(struct variable_maker *m, const char *name, shoal_out initial, int flags, shoal_var *out) {
  struct shoal_sharing *s = (struct shoal_sharing *)m;
  if (!s->complete) return false;
  *out = (shoal_var){0};
  if (variable_is_next(m->g, s->made.at, s->made.n, s->next, name, initial)) *out = s->made.at[s->next++];
  return true;
}

static void give(struct variable_maker *m, shoal_var v, int flags) { vec_push(&((struct shoal_sharing *)m)->made, v); }

bool variable_is_next(struct shoal_graph *g, const shoal_var *made, size_t n, size_t next, const char *name,
                      shoal_out initial) {
  if (graph_error(g)) return false;
  if (next >= n) {
    graph_fail(g, INVALID("variable '%s': this copy of a model has more variables than the first (%zu)", name, n));
    return false;
  }
  struct shape want = out_shape(initial), have = out_shape(made[next].value);
  if (out_type(initial) == out_type(made[next].value) && shape_equal(&want, &have)) return true;
  graph_fail(g, INVALID("variable '%s' is %s of %s, but '%s', its place in the first copy of the model, is %s of %s",
                        name, dtype_tf_name(out_type(initial)), shape_str(&want), made[next].handle.node->name,
                        dtype_tf_name(out_type(made[next].value)), shape_str(&have)));
  return false;
}

void variable_all_taken(struct shoal_graph *g, size_t n, size_t next) {
  if (next != n && !graph_error(g))
    graph_fail(g, INVALID("this copy of a model has %zu variables, the first had %zu", next, n));
}

shoal_sharing *shoal_sharing_new(void) { return mem_zalloc(1, sizeof(struct shoal_sharing)); }

void shoal_sharing_begin(shoal_graph *g, shoal_sharing *s) {
  GRAPH_GIVEN(g, s);
  s->maker = (struct variable_maker){.g = g, .replica = -1, .take = take, .give = give};
  variable_maker_begin(&s->maker, __func__);
  s->next = 0;
}

void shoal_sharing_end(shoal_graph *g, shoal_sharing *s) {
  GRAPH_GIVEN(g, s);
  s->maker.g = g;
  variable_maker_end(&s->maker, __func__);
  if (s->complete) variable_all_taken(g, s->made.n, s->next);
  s->complete = true;
}

void shoal_sharing_free(shoal_sharing *s) {
  if (!s) return;
  vec_release(&s->made);
  free(s);
}

/* Copies of a model that share variables.
 *
 * TensorFlow finds shared variables by name, in scopes that are reused; scopes here are made unique, so a second copy
 * has other names. What is the same is the order in which a model makes its variables: the n-th of a copy is the n-th
 * of the first. That needs no names, and a copy that does something else is told so at once.
 *
 * A graph is built by one thread, so the sharing that is on is known to the thread; copies do not nest. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "graph/given.h"
#include "train/variables.h"

struct shoal_sharing {
  VEC(shoal_var) made;
  size_t next;   /* which one is asked for next, in copies after the first */
  bool complete; /* the first copy is made */
};

static _Thread_local struct {
  struct shoal_graph *g;
  struct shoal_sharing *s;
} on;

shoal_sharing *shoal_sharing_new(void) { return mem_zalloc(1, sizeof(struct shoal_sharing)); }

void shoal_sharing_begin(shoal_graph *g, shoal_sharing *s) {
  GRAPH_GIVEN(g, s);
  if (on.s) graph_fail(g, INVALID("shoal_sharing_begin: another sharing is on; they do not nest"));
  on.g = g;
  on.s = s;
  s->next = 0;
}

void shoal_sharing_end(shoal_graph *g, shoal_sharing *s) {
  GRAPH_GIVEN(g, s);
  if (on.s != s) graph_fail(g, INVALID("shoal_sharing_end: this sharing is not on"));
  if (s->complete && s->next != s->made.n && !graph_error(g))
    graph_fail(g, INVALID("this copy of a model has %zu variables, the first had %zu", s->next, s->made.n));
  s->complete = true;
  on.g = NULL;
  on.s = NULL;
}

void shoal_sharing_free(shoal_sharing *s) {
  if (!s) return;
  vec_release(&s->made);
  free(s);
}

bool sharing_take(struct shoal_graph *g, const char *name, shoal_out initial, shoal_var *out) {
  if (on.g != g || !on.s || !on.s->complete) return false;
  *out = (shoal_var){0};
  if (graph_error(g)) return true;
  if (on.s->next >= on.s->made.n) {
    graph_fail(
        g, INVALID("variable '%s': this copy of a model has more variables than the first (%zu)", name, on.s->made.n));
    return true;
  }
  shoal_var v = on.s->made.at[on.s->next++];
  struct shape want = out_shape(initial), have = out_shape(v.value);
  if (out_type(initial) != out_type(v.value) || !shape_equal(&want, &have)) {
    graph_fail(g, INVALID("variable '%s' is %s of %s, but '%s', its place in the first copy of the model, is %s of %s",
                          name, dtype_tf_name(out_type(initial)), shape_str(&want), v.handle.node->name,
                          dtype_tf_name(out_type(v.value)), shape_str(&have)));
    return true;
  }
  *out = v;
  return true;
}

void sharing_give(struct shoal_graph *g, shoal_var v) {
  if (on.g == g && on.s) vec_push(&on.s->made, v);
}

/* Variables in pieces, and what a checkpoint has of them: see the header. */
#include "train/pieces.h"

#include <stdlib.h>
#include <string.h>

static const char shape_attr[] = "_piece_of_shape", first_attr[] = "_piece_first", elements_attr[] = "_piece_elements",
                  live_attr[] = "_piece_live";

/* ---- flat lists ---- */

shoal_out flat_of(struct shoal_graph *g, shoal_out x) {
  if (out_shape(x).rank == 1) return x;
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
}

shoal_out flat_shaped(struct shoal_graph *g, shoal_out list, const struct shape *shape) {
  return build_op2(g, "Reshape", list, build_const_ints(g, SHOAL_INT64, shape->dims, shape->rank));
}

shoal_out flat_part(struct shoal_graph *g, shoal_out list, int64_t first, int64_t n) {
  return build_op3(g, "Slice", list, build_const_ints(g, SHOAL_INT64, &first, 1),
                   build_const_ints(g, SHOAL_INT64, &n, 1));
}

shoal_out flat_join(struct shoal_graph *g, const shoal_out *lists, int n, int axis) {
  if (n == 1) return lists[0];
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, lists, n);
  build_in(&b, build_const_int(g, SHOAL_INT32, axis));
  return build_end_out(&b);
}

shoal_out flat_pad(struct shoal_graph *g, shoal_out list, int64_t more, double with) {
  if (!more) return list;
  shoal_out fill =
      build_op2(g, "Fill", build_const_ints(g, SHOAL_INT64, &more, 1), build_const_float(g, out_type(list), with));
  return flat_join(g, (const shoal_out[]){list, fill}, 2, 0);
}

/* ---- pieces ---- */

void piece_set(shoal_var v, const char *saved, const char *slice, const struct piece *p,
               const struct shoal_node *live) {
  if (!v.handle.node) return;
  variable_set_slice(v, saved, slice);
  node_set_attr(v.handle.node, shape_attr, attr_shape(&p->whole));
  node_set_attr(v.handle.node, first_attr, attr_int(p->first));
  node_set_attr(v.handle.node, elements_attr, attr_int(p->n));
  if (live) node_set_attr(v.handle.node, live_attr, attr_string(live->name, strlen(live->name)));
}

bool piece_get(shoal_var v, struct piece *out) {
  const struct shoal_node *n = v.handle.node;
  if (!n || !node_attr(n, shape_attr)) return false;
  shoal_status e = node_get_shape(n, shape_attr, &out->whole);
  if (!e) e = node_get_int(n, first_attr, &out->first);
  if (!e) e = node_get_int(n, elements_attr, &out->n);
  bool is = !e;
  shoal_status_free(e);
  return is;
}

/* ---- values of checkpoints ---- */

static int64_t elements(const struct shape *s) {
  int64_t n = 0;
  shoal_status_free(shape_elements(s, &n)); /* a variable's: there is such a number */
  return n;
}

/* How many pieces, from the first on, are the value's; 0: not all of them are there. */
static int count_pieces(const shoal_var *vars, int n) {
  const char *name = variable_save_name(vars[0]), *slice = variable_save_slice(vars[0]);
  struct shape whole = {0};
  int64_t there = 0;
  int k = 0;
  for (struct piece p; k < n && piece_get(vars[k], &p); k++) {
    bool same = !strcmp(variable_save_name(vars[k]), name) && !strcmp(variable_save_slice(vars[k]), slice);
    if (!same || p.first != there) break;
    there += p.n;
    whole = p.whole;
  }
  return k && there == elements(&whole) ? k : 0;
}

int saved_values(struct shoal_graph *g, const shoal_var *vars, int n, struct saved_value *out) {
  int made = 0;
  struct piece p;
  for (int i = 0; i < n; i += out[made++].n) {
    out[made] = (struct saved_value){&vars[i], 1};
    if (!piece_get(vars[i], &p)) continue;
    int pieces = count_pieces(vars + i, n - i);
    if (pieces) out[made].n = pieces;
    else if (!graph_error(g))
      graph_fail(g, INVALID("variable '%s' is saved with all of its pieces, in their order, or not at all",
                            variable_save_name(vars[i])));
  }
  return made;
}

const char *saved_name(const struct saved_value *v) { return variable_save_name(v->vars[0]); }
const char *saved_name_before(const struct saved_value *v) {
  const char *stand_in = variable_stand_in(v->vars[0]);
  return stand_in ? stand_in : saved_name(v);
}
const char *saved_slice(const struct saved_value *v) { return variable_save_slice(v->vars[0]); }

struct shape saved_shape(const struct saved_value *v) {
  struct piece p;
  return piece_get(v->vars[0], &p) ? p.whole : out_shape(v->vars[0].value);
}

struct shoal_node *saved_home(struct shoal_graph *g, const struct saved_value *v, int i) {
  struct shoal_node *own = v->vars[i].handle.node;
  const char *live = NULL;
  if (node_attr(own, live_attr)) shoal_status_free(node_get_string(own, live_attr, &live));
  struct shoal_node *home = live ? graph_find(g, live) : NULL;
  return home ? home : own;
}

shoal_out saved_read(struct shoal_graph *g, const struct saved_value *v, int i) {
  return variable_read_op(g, node_out(saved_home(g, v, i), 0), out_type(v->vars[i].value), NULL);
}

shoal_out saved_join(struct shoal_graph *g, const struct saved_value *v, const shoal_out *parts) {
  struct piece p;
  if (!piece_get(v->vars[0], &p)) return parts[0];
  shoal_out *lists = mem_zalloc((size_t)v->n, sizeof *lists);
  for (int i = 0; i < v->n; i++) lists[i] = out_shape(v->vars[i].value).rank == 1 ? parts[i] : flat_of(g, parts[i]);
  shoal_out whole = flat_shaped(g, flat_part(g, flat_join(g, lists, v->n, 0), 0, elements(&p.whole)), &p.whole);
  free(lists);
  return whole;
}

shoal_out saved_now(struct shoal_graph *g, const struct saved_value *v) {
  shoal_out *parts = mem_zalloc((size_t)v->n, sizeof *parts);
  for (int i = 0; i < v->n; i++) parts[i] = saved_read(g, v, i);
  shoal_out whole = saved_join(g, v, parts);
  free(parts);
  return whole;
}

/* The rest is 1: what no optimizer divides by in vain. */
static shoal_out piece_of(struct shoal_graph *g, shoal_out list, shoal_var v, const struct piece *p) {
  struct shape own = out_shape(v.value);
  shoal_out part = flat_pad(g, flat_part(g, list, MIN(p->first, elements(&p->whole)), p->n), elements(&own) - p->n, 1);
  return own.rank == 1 ? part : flat_shaped(g, part, &own);
}

void saved_assign(struct shoal_graph *g, const struct saved_value *v, shoal_out whole, shoal_op **out) {
  struct piece p;
  for (int i = 0; i < v->n; i++) {
    bool cut = piece_get(v->vars[i], &p);
    shoal_out value = cut ? piece_of(g, flat_of(g, whole), v->vars[i], &p) : whole;
    graph_push_colocation(g, v->vars[i].handle.node);
    out[i] = shoal_variable_assign(g, v->vars[i], value);
    graph_pop_colocation(g);
  }
}

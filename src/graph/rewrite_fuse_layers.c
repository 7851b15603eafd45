/* Layers of Transformers become one node, and their gradients another.
 *
 * Programs build layers of TensorFlow's ops (train/layer_norm.c and others), so that TensorFlow's servers run their
 * graphs, and the gradients are those of the ops. A device that has the whole layer as a kernel is asked here: the ops
 * that such a layer is made of, and those that its gradient comes out as, are found by their pattern (pattern.h).
 *
 * What is between must be read by nobody else, or nothing would be saved. So a layer whose gradient looks otherwise (a
 * batch of unknown size, a variable that is not trained) stays as it is.
 *
 * First all layers are found, in the graph as it was; then each is made, and `became` tells what stands for a tensor
 * now; at the end every edge is led there. A node in the place of many may close a circle where the many did not: so
 * before one is made, what it reads is walked back, and must not come from what it replaces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/fuse_layers.h"

static const struct layer *const layers[] = {&layer_of_norm, &layer_of_gelu, &layer_of_cross_entropy,
                                             &layer_of_attention, &layer_of_causal_attention};
enum { MOST_TRIES = 20 << 20 };

/* ---- for layers ---- */

shoal_out found_out(const struct layer_found *l, const char *name) {
  int i = pattern_name(l->p, name);
  return i < 0 ? (shoal_out){0} : l->m.of[i];
}

static struct shape known(shoal_out o) {
  return o.node && o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown();
}

struct shape found_shape(const struct layer_found *l, const char *name) {
  return known(found_out(l, name));
}

static bool same_out(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

/* A sum of two that have one shape has it too. */
static struct shape shape_anyhow(const struct fusing_layers *f, shoal_out o, bool sums) {
  struct shape s = known(o);
  if (shape_known(&s)) return s;
  for (size_t i = 0; i < f->shapes.n; i++)
    if (same_out(f->shapes.at[i].of, o)) return f->shapes.at[i].shape;
  if (!sums || !o.node || !op_is(o.node->op, "AddV2")) return s;
  struct shape a = shape_anyhow(f, o.node->in[0], false), b = shape_anyhow(f, o.node->in[1], false);
  return shape_known(&a) && shape_equal(&a, &b) ? a : s;
}

struct shape found_shape_anyhow(const struct layer_found *l, const char *name) {
  return shape_anyhow(l->f, found_out(l, name), true);
}

/* What is computed once more reads what came in the first time through an IdentityN (recompute.h). */
static void note_shape(struct fusing_layers *f, const struct layer_found *l) {
  shoal_out o = found_out(l, l->layer->input);
  while (op_is(o.node->op, "Identity") || op_is(o.node->op, "IdentityN")) o = o.node->in[o.index];
  vec_push(&f->shapes, ((struct known_shape){o, found_shape(l, l->layer->input_like)}));
}

bool may_be(const struct shape *a, const struct shape *b) {
  if (a->rank < 0 || b->rank < 0) return true;
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] >= 0 && b->dims[i] >= 0 && a->dims[i] != b->dims[i]) return false;
  return true;
}

const struct tensor *constant_of(shoal_out o) {
  if (!o.node || !op_is(o.node->op, "Const")) return NULL;
  const struct attr *v = node_attr(o.node, "value");
  return v && v->kind == ATTR_TENSOR ? v->tensor : NULL;
}

double constant_at(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: return (double)T_DATA(t, const float)[i];
    case SHOAL_FLOAT64: return T_DATA(t, const double)[i];
    case SHOAL_BFLOAT16: return (double)bf16_to_float(T_DATA(t, const bf16)[i]);
    case SHOAL_FLOAT16: return (double)f16_to_float(T_DATA(t, const f16)[i]);
    case SHOAL_INT32: return T_DATA(t, const int32_t)[i];
    case SHOAL_INT64: return (double)T_DATA(t, const int64_t)[i];
    default: return NAN;
  }
}

bool number_is(shoal_out o, double v) {
  const struct tensor *t = constant_of(o);
  return t && t->n == 1 && t->rank == 0 && fabs(constant_at(t, 0) - v) <= 0.005 * fabs(v);
}

bool found_number(const struct layer_found *l, const char *name, double v) { return number_is(found_out(l, name), v); }

bool reduces(const struct shoal_node *n, int first, int last, bool keep) {
  const struct tensor *axes = n->n_in == 2 ? constant_of(n->in[1]) : NULL;
  const struct attr *kept = node_attr(n, "keep_dims");
  if (!axes || axes->n != last - first || !kept || kept->kind != ATTR_BOOL || kept->b != keep) return false;
  int rank = known(n->in[0]).rank;
  for (int64_t i = 0; i < axes->n; i++) {
    double at = constant_at(axes, i);
    if ((at < 0 && rank < 0) || !((at < 0 ? at + rank : at) == first + i)) return false;
  }
  return rank < 0 || rank >= last;
}

static shoal_out now(const struct fusing_layers *f, shoal_out o) {
  while (o.node && (size_t)o.node->id < f->n_ids && o.index == 0 && f->became[o.node->id].node)
    o = f->became[o.node->id];
  return o;
}

struct shoal_node *layer_node(struct fusing_layers *f, const struct layer_found *l, const char *like, const char *op,
                              const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs) {
  shoal_out have[8];
  if (!op_find(op) || n_in > 8) return NULL;
  for (int i = 0; i < n_in; i++) have[i] = now(f, in[i]);
  char *base = mem_printf("%s/fused", found_node(l, like)->name);
  struct shoal_node *n = rewrite_add(f->r, found_node(l, like), base, op, have, n_in, attrs, n_attrs);
  free(base);
  return n;
}

/* ---- results ---- */

static bool is_row_of(const struct layer_found *l, const struct shoal_node *n) {
  for (int i = 0; i < l->p->n; i++)
    if (match_node(l->p, &l->m, l->casts, i) == n) return true;
  return false;
}

/* The terms of a sum that are not of this layer, and the one that stands for those that are. */
static shoal_out sum_with(struct fusing_layers *f, const struct layer_found *l, const struct shoal_node *sum,
                          shoal_out mine) {
  shoal_out *terms = mem_zalloc((size_t)sum->n_in + 1, sizeof *terms);
  int n = 0;
  for (int i = 0; i < sum->n_in; i++)
    if (!is_row_of(l, sum->in[i].node)) terms[n++] = now(f, sum->in[i]);
  struct shoal_node *all = NULL;
  if (n) {
    terms[n++] = mine;
    all = rewrite_add(f->r, sum, sum->name, "AddN", terms, n, NULL, 0);
  }
  free(terms);
  return all ? (shoal_out){all, 0} : mine;
}

void layer_becomes(struct fusing_layers *f, const struct layer_found *l, const char *name, shoal_out to) {
  struct shoal_node *old = found_node(l, name);
  if (op_is(old->op, "AddN")) to = sum_with(f, l, old, to);
  f->became[old->id] = to;
}

/* ---- what may be replaced ---- */

static bool is_named(const char *names, const char *name) {
  size_t n = strlen(name);
  for (const char *at = names; *at; at += *at == ' ') {
    size_t k = strcspn(at, " ");
    if (k == n && !memcmp(at, name, n)) return true;
    at += k;
  }
  return false;
}

static bool is_result(const struct layer_found *l, int row) {
  const char *name = l->p->names[l->p->rows[row].result];
  if (is_named(l->layer->result, name) || (l->back && is_named(l->layer->gradients, name))) return true;
  /* Where there are no casts, what would have been cast is the result. */
  shoal_out o = l->m.of[l->p->rows[row].result], y = found_out(l, l->layer->result);
  if (!l->casts && o.node == y.node) return true;
  return !l->casts && l->back && o.node == found_node(l, "dx");
}

/* Nobody else reads it. */
static bool is_inner(const struct fusing_layers *f, const struct layer_found *l, const struct shoal_node *n) {
  FOR_CONSUMERS (c, &f->r->users, n)
    if (c->input < 0 || !is_row_of(l, c->node)) return false;
  return true;
}

static bool nobody_waits(const struct fusing_layers *f, const struct shoal_node *n) {
  FOR_CONSUMERS (c, &f->r->users, n)
    if (c->input < 0) return false;
  return true;
}

static bool may_go(const struct fusing_layers *f, const struct layer_found *l, int row, const char *assigned) {
  struct shoal_node *n = match_node(l->p, &l->m, l->casts, row);
  if (!n) return true;
  if (f->taken[n->id] || n->control.n || !node_is_pure(n) || !str_equal(n->assigned, assigned)) return false;
  return is_result(l, row) ? nobody_waits(f, n) : is_inner(f, l, n);
}

static bool all_may_go(const struct fusing_layers *f, const struct layer_found *l) {
  const char *assigned = found_node(l, l->layer->result)->assigned;
  for (int i = 0; i < l->p->n; i++)
    if (!may_go(f, l, i, assigned)) return false;
  return true;
}

/* ---- circles ---- */

typedef VEC(struct shoal_node *) node_list;

static void come_by(struct fusing_layers *f, node_list *todo, struct shoal_node *n) {
  if (f->walked[n->id] == f->walks) return;
  f->walked[n->id] = f->walks;
  vec_push(todo, n);
}

/* Is one of the rows from `first` on met on the way back from what is in the list? */
static bool meets(struct fusing_layers *f, const struct layer_found *l, int first, node_list *todo) {
  bool met = false;
  while (todo->n && !met) {
    struct shoal_node *n = vec_pop(todo);
    for (int i = first; i < l->p->n && !met; i++) met = match_node(l->p, &l->m, l->casts, i) == n;
    met |= --f->tries < 0;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node) come_by(f, todo, now(f, n->in[k]).node);
    for (size_t k = 0; k < n->control.n; k++) come_by(f, todo, now(f, (shoal_out){n->control.at[k], 0}).node);
  }
  vec_release(todo);
  return met;
}

/* Does something that these rows read from outside come from the layer itself? Its forward part may come into what its
 * gradient reads. */
static bool comes_from_itself(struct fusing_layers *f, const struct layer_found *l, int first, int last) {
  node_list todo = {0};
  f->walks++;
  for (int i = first; i < last; i++) {
    const struct shoal_node *n = match_node(l->p, &l->m, l->casts, i);
    for (int k = 0; n && k < n->n_in; k++)
      if (!is_row_of(l, n->in[k].node)) come_by(f, &todo, now(f, n->in[k]).node);
  }
  return meets(f, l, first, &todo);
}

static int forward_rows(const struct layer_found *l) {
  struct pattern forward = {0};
  pattern_add(&forward, l->layer->forward);
  return forward.n;
}

bool layer_makes(struct fusing_layers *f, const struct layer_found *l, shoal_out o) {
  node_list todo = {0};
  f->walks++;
  come_by(f, &todo, now(f, o).node);
  return meets(f, l, forward_rows(l), &todo);
}

static bool closes_a_circle(struct fusing_layers *f, const struct layer_found *l) {
  int n_forward = forward_rows(l);
  if (l->layer->needs_back) return comes_from_itself(f, l, 0, l->p->n);
  return comes_from_itself(f, l, 0, n_forward) || (l->back && comes_from_itself(f, l, n_forward, l->p->n));
}

/* ---- all of it ---- */

struct layer_patterns {
  struct pattern forward, both;
};

typedef VEC(struct layer_found *) found_list;

static bool find(struct fusing_layers *f, const struct layer *layer, const struct pattern *p, struct shoal_node *root,
                 bool casts, bool back, found_list *all) {
  struct layer_found l = {.f = f, .layer = layer, .p = p, .casts = casts, .back = back};
  if (!pattern_match(p, &f->r->users, root, casts, &f->tries, &l.m) || !layer->fits(&l) || !all_may_go(f, &l))
    return false;
  for (int i = 0; i < p->n; i++)
    if (match_node(p, &l.m, casts, i)) f->taken[match_node(p, &l.m, casts, i)->id] = true;
  if (back && layer->input) note_shape(f, &l);
  struct layer_found *keep = mem_zalloc(1, sizeof *keep);
  *keep = l;
  vec_push(all, keep);
  return true;
}

static bool has_casts(const struct pattern *p) {
  for (int i = 0; i < p->n; i++)
    if (p->rows[i].perhaps) return true;
  return false;
}

static void find_all(struct fusing_layers *f, const struct layer *layer, const struct layer_patterns *p,
                     struct shoal_node *const *order, int n, found_list *all) {
  for (int casts = has_casts(&p->both); casts >= 0; casts--)
    for (int back = 1; back >= layer->needs_back; back--) /* first those that tell shapes */
      for (int i = 0; i < n && f->tries >= 0; i++)
        if (!f->taken[order[i]->id]) find(f, layer, back ? &p->both : &p->forward, order[i], casts, back, all);
}

static void lead_edges(struct fusing_layers *f) {
  for (size_t i = 0; i < f->r->g->nodes.n; i++) {
    struct shoal_node *n = f->r->g->nodes.at[i];
    for (int k = 0; n && k < n->n_in; k++)
      if (n->in[k].node) n->in[k] = now(f, n->in[k]);
  }
}

static void make_all(struct fusing_layers *f, const found_list *all) {
  for (size_t i = 0; i < all->n; i++) {
    const struct layer_found *l = all->at[i];
    bool made = !closes_a_circle(f, l) && l->layer->make(f, l);
    const char *name = found_node(l, l->layer->result)->name;
    LOGD("%s: %s%s%s", name, l->layer->name, l->back ? ", and its gradient" : "", made ? "" : ", is not fused");
  }
  lead_edges(f);
}

static void fuse(struct fusing_layers *f, struct shoal_node *const *order, int n) {
  struct layer_patterns *p = mem_zalloc(COUNT_OF(layers), sizeof *p);
  found_list all = {0};
  for (size_t i = 0; i < COUNT_OF(layers); i++) {
    pattern_add(&p[i].forward, layers[i]->forward);
    pattern_add(&p[i].both, layers[i]->forward);
    pattern_add(&p[i].both, layers[i]->backward);
    find_all(f, layers[i], &p[i], order, n, &all);
  }
  make_all(f, &all);
  for (size_t i = 0; i < all.n; i++) free(all.at[i]);
  vec_release(&all);
  free(p);
}

void rewrite_fuse_layers(struct rewriting *r) {
  if (!r->o->own_ops) return;
  size_t n_ids = r->g->nodes.n;
  int n = r->g->n_nodes;
  struct fusing_layers f = {.r = r, .n_ids = n_ids, .tries = MOST_TRIES};
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  f.became = mem_zalloc(n_ids, sizeof *f.became);
  f.taken = mem_zalloc(n_ids, sizeof *f.taken);
  f.walked = mem_zalloc(2 * n_ids, sizeof *f.walked); /* what is added is less than what it replaces */
  shoal_status s = graph_topological_order(r->g, order);
  if (!s) fuse(&f, order, n);
  shoal_status_free(s);
  free(order);
  vec_release(&f.shapes);
  free(f.became);
  free(f.taken);
  free(f.walked);
}

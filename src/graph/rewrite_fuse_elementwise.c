/* Trees of elementwise ops, each read by the next alone, become one _Elementwise node: a small program that runs over
 * blocks that stay in the cache, so that only the tree's inputs and its result go through memory.
 *
 * Fused are only ops whose operands have the same shape or are scalars, as far as can be told: by full static shapes,
 * or because both come from the same tensor through elementwise ops. Broadcasting stays with the single ops.
 *
 * Programs are gathered from the end of the graph, so that each has the last of its ops at its root, and put in place
 * from the beginning, so that one whose input another computes reads what that has become. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"
#include "graph/rewrite.h"

enum { MAX_STEPS = 16, MAX_INPUTS = 16 };

struct fusing {
  struct rewriting *r;
  shoal_out *shape_of;        /* by node id: a tensor that has the shape of output 0 (itself, when nothing better) */
  bool *fusable;              /* by node id */
  bool *taken;                /* by node id: part of a program already */
  struct shoal_node **became; /* by node id: the program whose root it was; NULL: it stands as it was */
};

struct program {
  shoal_out in[MAX_INPUTS];
  int n_in;
  const struct shoal_node *steps[MAX_STEPS];
  int a[MAX_STEPS], b[MAX_STEPS]; /* operands: an input's number; 1000 + a step's; -1: none */
  int n;
  int begun; /* steps that are there or will be, when their producers are: so deep, and no deeper, is a tree walked */
};

static struct shape known(shoal_out o) { return o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown(); }

static bool is_scalar(shoal_out o) { return known(o).rank == 0; }

static shoal_out shape_source(const struct fusing *f, shoal_out o) {
  return o.index == 0 ? f->shape_of[o.node->id] : o;
}

static bool same_shape(const struct fusing *f, shoal_out a, shoal_out b) {
  shoal_out x = shape_source(f, a), y = shape_source(f, b);
  if (x.node == y.node && x.index == y.index) return true;
  struct shape s = known(a), t = known(b);
  return shape_known(&s) && shape_equal(&s, &t);
}

static bool can_fuse(const struct fusing *f, const struct shoal_node *n) {
  if (!node_is_pure(n) || n->n_out != 1 || n->n_in < 1 || n->n_in > 2) return false;
  if (!dtype_floating(n->out_types[0])) return false;
  for (int i = 0; i < n->n_in; i++)
    if (n->in_types[i] != n->out_types[0]) return false;
  if (!f->r->o->elementwise(n)) return false;
  if (n->n_in == 1) return true;
  return is_scalar(n->in[0]) || is_scalar(n->in[1]) || same_shape(f, n->in[0], n->in[1]);
}

static void find_shape(struct fusing *f, const struct shoal_node *n) {
  shoal_out *mine = &f->shape_of[n->id];
  if (!f->fusable[n->id]) return;
  int from = n->n_in == 2 && is_scalar(n->in[0]) ? 1 : 0;
  *mine = shape_source(f, n->in[from]);
}

static int add_input(struct program *p, shoal_out o) {
  for (int i = 0; i < p->n_in; i++)
    if (p->in[i].node == o.node && p->in[i].index == o.index) return i;
  if (p->n_in == MAX_INPUTS) return -1;
  p->in[p->n_in] = o;
  return p->n_in++;
}

/* Adds n and, before it, those of its producers that can come along and for which there is room: of a longer chain the
 * end, whose rest is the next program's. Its step's number, or -1: too many inputs. */
static int gather(struct fusing *f, struct program *p, struct shoal_node *n) {
  int operand[2] = {-1, -1};
  p->begun++;
  for (int i = 0; i < n->n_in; i++) {
    struct shoal_node *from = n->in[i].node;
    bool along = f->fusable[from->id] && !f->taken[from->id] && from->control.n == 0 &&
                 is_scalar(n->in[i]) == is_scalar((shoal_out){n, 0}) && rewrite_only_consumer(f->r, from) == n &&
                 str_equal(from->assigned, n->assigned) && from->out_types[0] == n->out_types[0] &&
                 p->begun < MAX_STEPS;
    if (along) {
      int step = gather(f, p, from);
      if (step < 0) return -1;
      operand[i] = 1000 + step;
    } else {
      operand[i] = add_input(p, n->in[i]);
      if (operand[i] < 0) return -1;
    }
  }
  p->steps[p->n] = n;
  p->a[p->n] = operand[0];
  p->b[p->n] = operand[1];
  return p->n++;
}

static void replace(struct fusing *f, struct program *p) {
  struct shoal_node *root = (struct shoal_node *)(uintptr_t)p->steps[p->n - 1];
  for (int i = 0; i < p->n_in; i++)
    if (f->became[p->in[i].node->id]) p->in[i].node = f->became[p->in[i].node->id];
  struct attr ops = attr_list(ATTR_STRING), a = attr_list(ATTR_INT), b = attr_list(ATTR_INT);
  for (int i = 0; i < p->n; i++) {
    attr_list_add(&ops, attr_string(p->steps[i]->op->name, strlen(p->steps[i]->op->name)));
    attr_list_add(&a, attr_int(p->a[i] >= 1000 ? p->n_in + p->a[i] - 1000 : p->a[i]));
    attr_list_add(&b, attr_int(p->b[i] >= 1000 ? p->n_in + p->b[i] - 1000 : p->b[i]));
  }
  struct named_attr *attrs = mem_zalloc(5, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("N"), attr_int(p->n_in)};
  attrs[1] = (struct named_attr){mem_strdup("T"), attr_type(root->out_types[0])};
  attrs[2] = (struct named_attr){mem_strdup("ops"), ops};
  attrs[3] = (struct named_attr){mem_strdup("a"), a};
  attrs[4] = (struct named_attr){mem_strdup("b"), b};
  char *base = mem_printf("%s/fused", root->name);
  struct shoal_node *one = rewrite_add(f->r, root, base, "_Elementwise", p->in, p->n_in, attrs, 5);
  free(base);
  if (!one) return;
  for (size_t k = 0; k < root->control.n; k++) graph_add_control(one, root->control.at[k]);
  for (int i = 0; i < p->n; i++) rewrite_stands_for(one, p->steps[i]);
  f->became[root->id] = one;
  rewrite_redirect(f->r, (shoal_out){root, 0}, (shoal_out){one, 0});
  rewrite_redirect_control(f->r, root, one);
}

void rewrite_fuse_elementwise(struct rewriting *r) {
  struct shoal_graph *g = r->g;
  if (!r->o->elementwise || !op_find("_Elementwise")) return;
  int n = g->n_nodes;
  struct shoal_node **order = mem_zalloc((size_t)n, sizeof *order);
  struct fusing f = {.r = r};
  size_t n_ids = g->nodes.n;
  f.shape_of = mem_zalloc(n_ids, sizeof *f.shape_of);
  f.fusable = mem_zalloc(n_ids, sizeof *f.fusable);
  f.taken = mem_zalloc(n_ids, sizeof *f.taken);
  f.became = mem_zalloc(n_ids, sizeof *f.became);
  VEC(struct program) programs = {0};
  shoal_status s = graph_topological_order(g, order);
  for (int i = 0; !s && i < n; i++) f.shape_of[order[i]->id] = (shoal_out){order[i], 0};
  for (int i = 0; !s && i < n; i++) {
    f.fusable[order[i]->id] = can_fuse(&f, order[i]);
    find_shape(&f, order[i]);
  }
  for (int i = n - 1; !s && i >= 0; i--) {
    if (!f.fusable[order[i]->id] || f.taken[order[i]->id]) continue;
    struct program p = {0};
    if (gather(&f, &p, order[i]) < 0 || p.n < 2) continue;
    for (int k = 0; k < p.n; k++) f.taken[p.steps[k]->id] = true;
    vec_push(&programs, p);
  }
  while (programs.n) {
    struct program p = vec_pop(&programs);
    replace(&f, &p);
  }
  vec_release(&programs);
  shoal_status_free(s);
  free(order);
  free(f.shape_of);
  free(f.fusable);
  free(f.taken);
  free(f.became);
}

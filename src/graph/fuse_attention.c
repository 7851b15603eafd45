/* Attention as train/attention.c builds it, without dropout: _ShoalAttention and _ShoalAttentionGrad, for what looks at
 * all keys, and what is causal (the mask is a constant, and every element of it is looked at); with any other mask
 * _ShoalMaskedAttention and _ShoalMaskedAttentionGrad. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/fuse_layers.h"

#define BEHIND_SCORES            \
  "y = Reshape ty *\n"           \
  "ty = Transpose mixed *\n"     \
  "mixed = BatchMatMulV2 w tv\n" \
  "w = Softmax masked\n"
#define BEFORE_SCORES              \
  "scores = BatchMatMulV2 tq tk\n" \
  "tq = Transpose rq *\n"          \
  "rq = Reshape qs *\n"            \
  "qs = Mul q scale\n"             \
  "tk = Transpose rk *\n"          \
  "rk = Reshape k *\n"             \
  "tv = Transpose rv *\n"          \
  "rv = Reshape v *\n"

static const char with_mask[] = BEHIND_SCORES "masked = AddV2 scores mask\n" BEFORE_SCORES;
static const char without_mask[] =
    "y = Reshape ty *\n"
    "ty = Transpose mixed *\n"
    "mixed = BatchMatMulV2 w tv\n"
    "w = Softmax scores\n" BEFORE_SCORES;

static const char backward[] =
    "dtv = BatchMatMulV2 w dmixed\n"
    "dmixed = Transpose dty *\n"
    "dty = Reshape dy *\n"
    "dw = BatchMatMulV2 dmixed tv\n"
    "p = Mul dw w\n"
    "sum = Sum p *\n"
    "less = Sub dw sum\n"
    "ds = Mul less w\n"
    "dtq = BatchMatMulV2 ds tk\n"
    "dtk = BatchMatMulV2 ds tq\n"
    "drq = Transpose dtq *\n"
    "dqs = Reshape drq *\n"
    "dq = Mul dqs scale\n"
    "drk = Transpose dtk *\n"
    "dk = Reshape drk *\n"
    "drv = Transpose dtv *\n"
    "dv = Reshape drv *\n";

/* ---- does it fit? ---- */

/* [batch, time, heads, width] to [batch, heads, time, width], or back. */
static bool swaps_heads(const struct layer_found *l, const char *name) {
  const struct tensor *perm = constant_of(found_node(l, name)->in[1]);
  static const double want[] = {0, 2, 1, 3};
  if (!perm || perm->n != 4) return false;
  for (int i = 0; i < 4; i++)
    if (!(constant_at(perm, i) == want[i])) return false;
  return true;
}

static bool turns(const struct layer_found *l, const char *name, bool x, bool y) {
  const struct attr *ax = node_attr(found_node(l, name), "adj_x"), *ay = node_attr(found_node(l, name), "adj_y");
  return ax && ay && ax->kind == ATTR_BOOL && ay->kind == ATTR_BOOL && ax->b == x && ay->b == y;
}

/* Is it 0 where key k may be seen by query q, and far below any score elsewhere? */
static bool is_causal(shoal_out mask, int64_t queries, int64_t keys) {
  const struct tensor *t = constant_of(mask);
  if (!t || t->rank != 2 || t->dims[0] != queries || t->dims[1] != keys || keys < queries) return false;
  for (int64_t i = 0; i < t->n; i++) {
    double v = constant_at(t, i);
    bool seen = i % keys <= i / keys + keys - queries;
    if (seen ? !(v == 0) : !(v < -30000)) return false;
  }
  return true;
}

static bool causal(const struct layer_found *l) {
  return is_causal(found_out(l, "mask"), found_shape(l, "rq").dims[1], found_shape(l, "rk").dims[1]);
}

/* Is it of a known shape that goes with the scores, and as long as their rows? */
static bool mask_fits(const struct layer_found *l) {
  struct shape mask = found_shape(l, "mask"), s = found_shape(l, "scores");
  if (s.rank != 4 || mask.rank < 1 || mask.rank > 4 || s.dims[3] < 1 || mask.dims[mask.rank - 1] != s.dims[3])
    return false;
  for (int i = 2, k = mask.rank - 2; k >= 0; i--, k--)
    if (mask.dims[k] != 1 && (mask.dims[k] < 0 || mask.dims[k] != s.dims[i])) return false;
  return true;
}

/* [batch, time, width] became this [batch, time, heads, width / heads]. */
static bool splits(const struct layer_found *l, const char *whole, const char *split, int64_t heads) {
  struct shape a = found_shape(l, whole), b = found_shape(l, split);
  if (b.rank != 4 || b.dims[1] < 1 || b.dims[2] != heads || b.dims[3] < 1) return false;
  struct shape joined = {.rank = 3, .dims = {b.dims[0], b.dims[1], heads * b.dims[3]}};
  return may_be(&a, &joined);
}

static bool forward_fits(const struct layer_found *l) {
  struct shape q = found_shape(l, "rq"), k = found_shape(l, "rk"), v = found_shape(l, "rv"), y = found_shape(l, "y");
  struct shape from = found_shape(l, "q");
  const struct tensor *scale = constant_of(found_out(l, "scale"));
  if (q.rank != 4 || !scale || scale->n != 1 || !(constant_at(scale, 0) > 0) || !may_be(&y, &from)) return false;
  if (!splits(l, "q", "rq", q.dims[2]) || !splits(l, "k", "rk", q.dims[2]) || !splits(l, "v", "rv", q.dims[2]))
    return false;
  if (q.dims[3] != k.dims[3] || q.dims[3] != v.dims[3] || k.dims[1] != v.dims[1]) return false;
  if (!turns(l, "scores", false, true) || !turns(l, "mixed", false, false)) return false;
  if (found_node(l, "mask") && !causal(l) && !mask_fits(l)) return false;
  return swaps_heads(l, "tq") && swaps_heads(l, "tk") && swaps_heads(l, "tv") && swaps_heads(l, "ty");
}

static bool backward_fits(const struct layer_found *l) {
  struct shape y = found_shape(l, "y"), k = found_shape(l, "k"), dy = found_shape(l, "dy"), dq = found_shape(l, "dqs"),
               dk = found_shape(l, "dk"), dv = found_shape(l, "dv");
  if (!shape_known(&y) || !may_be(&y, &dy) || !shape_equal(&y, &dq) || !may_be(&k, &dk) || !shape_equal(&dk, &dv))
    return false;
  if (!turns(l, "dtv", true, false) || !turns(l, "dw", false, true) || !turns(l, "dtq", false, false) ||
      !turns(l, "dtk", true, false) || !reduces(found_node(l, "sum"), 3, 4, true))
    return false;
  return swaps_heads(l, "dmixed") && swaps_heads(l, "drq") && swaps_heads(l, "drk") && swaps_heads(l, "drv");
}

static bool fits(const struct layer_found *l) { return forward_fits(l) && (!l->back || backward_fits(l)); }

/* ---- what stands for it ---- */

enum { ATTRS = 4 };

static struct named_attr *attributes(const struct layer_found *l) {
  struct named_attr *attrs = mem_zalloc(ATTRS, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("heads"), attr_int(found_shape(l, "rq").dims[2])};
  attrs[1] =
      (struct named_attr){mem_strdup("scale"), attr_float((float)constant_at(constant_of(found_out(l, "scale")), 0))};
  attrs[2] = (struct named_attr){mem_strdup("causal"), attr_bool(found_node(l, "mask") && causal(l))};
  attrs[3] = (struct named_attr){mem_strdup("depth"), attr_int(found_shape(l, "rq").dims[3])};
  return attrs;
}

/* Along the last of three dimensions? */
static bool is_last(shoal_out axis) {
  const struct tensor *t = constant_of(axis);
  return t && t->n == 1 && (constant_at(t, 0) == 2 || constant_at(t, 0) == -1);
}

/* Queries, keys and values are what one tensor was split into: that one; else node NULL. */
static shoal_out split_from(const struct layer_found *l) {
  shoal_out q = found_out(l, "q"), k = found_out(l, "k"), v = found_out(l, "v");
  struct shoal_node *n = q.node;
  if (!op_is(n->op, "Split") || k.node != n || v.node != n || n->n_out != 3 || !is_last(n->in[0]))
    return (shoal_out){0};
  return q.index == 0 && k.index == 1 && v.index == 2 ? n->in[1] : (shoal_out){0};
}

/* Gradients are joined as their tensors were split, and read by nothing else: the node that joins them. */
static struct shoal_node *joined(struct fusing_layers *f, const struct layer_found *l) {
  static const char *const names[] = {"dq", "dk", "dv"};
  struct shoal_node *n = rewrite_only_consumer(f->r, found_node(l, "dq"));
  if (!n || !op_is(n->op, "ConcatV2") || n->n_in != 4 || !is_last(n->in[3]) || n->control.n || f->became[n->id].node)
    return NULL;
  if (!str_equal(n->assigned, found_node(l, "dq")->assigned)) return NULL;
  for (int i = 0; i < 3; i++)
    if (n->in[i].node != found_node(l, names[i]) || rewrite_only_consumer(f->r, n->in[i].node) != n) return NULL;
  return n;
}

static bool make_of(struct fusing_layers *f, const struct layer_found *l, const shoal_out *of, int n,
                    struct shoal_node *join) {
  bool masked = found_node(l, "mask") && !causal(l);
  shoal_out in[7];
  memcpy(in, of, (size_t)n * sizeof *in);
  in[n] = found_out(l, "mask");
  struct shoal_node *back = NULL, *y = layer_node(f, l, "y", masked ? "_ShoalMaskedAttention" : "_ShoalAttention", in,
                                                  n + masked, attributes(l), ATTRS);
  if (!y) return false;
  in[n] = (shoal_out){y, 0};
  in[n + 1] = (shoal_out){y, 1};
  in[n + 2] = found_out(l, "dy");
  in[n + 3] = found_out(l, "mask");
  if (l->back)
    back = layer_node(f, l, "dq", masked ? "_ShoalMaskedAttentionGrad" : "_ShoalAttentionGrad", in, n + 3 + masked,
                      attributes(l), ATTRS);
  if (l->back && !back) {
    graph_remove(f->r->g, y);
    return false;
  }
  layer_becomes(f, l, "y", (shoal_out){y, 0});
  if (join) f->became[join->id] = (shoal_out){back, 0};
  if (!back || join) return true;
  layer_becomes(f, l, "dq", (shoal_out){back, 0});
  layer_becomes(f, l, "dk", (shoal_out){back, 1});
  layer_becomes(f, l, "dv", (shoal_out){back, 2});
  return true;
}

static bool make(struct fusing_layers *f, const struct layer_found *l) {
  shoal_out whole = split_from(l), parts[] = {found_out(l, "q"), found_out(l, "k"), found_out(l, "v")};
  struct shoal_node *join = whole.node && l->back ? joined(f, l) : NULL;
  bool packed = whole.node && (join || !l->back);
  return make_of(f, l, packed ? &whole : parts, packed ? 1 : 3, join);
}

#define ATTENTION(pattern)                                                                                 \
  {                                                                                                        \
    .name = "attention", .forward = pattern, .backward = backward, .result = "y", .gradients = "dq dk dv", \
    .fits = fits, .make = make                                                                             \
  }
const struct layer layer_of_attention = ATTENTION(without_mask), layer_of_causal_attention = ATTENTION(with_mask);

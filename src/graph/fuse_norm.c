/* Layer normalisation as train/layer_norm.c builds it: _ShoalLayerNorm and _ShoalLayerNormGrad. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/fuse_layers.h"

/* xf, dyf, dxf: in float32, where x and y are not. */
static const char forward[] =
    "y = Cast? o\n"
    "o = AddV2 s beta\n"
    "s = Mul n gamma\n"
    "n = Mul c r\n"
    "r = Rsqrt e\n"
    "e = AddV2 v eps\n"
    "v = Mean q *\n"
    "q = Square c\n"
    "c = Sub xf m\n"
    "m = Mean xf *\n"
    "xf = Cast? x\n";

static const char backward[] =
    "ng = Mul n dyf\n"
    "dg = Sum ng *\n"
    "db = Sum dyf *\n"
    "dn = Mul dyf gamma\n"
    "dc1 = Mul dn r\n"
    "pr = Mul c dn\n"
    "sr = Sum pr *\n"
    "dr = Reshape sr *\n"
    "de = RsqrtGrad r dr\n"
    "dv = Reshape de *\n"
    "bv = BroadcastTo dv *\n"
    "dq = RealDiv bv width\n"
    "c2 = Mul c two\n"
    "dc2 = Mul dq c2\n"
    "dc = AddN dc1 dc2\n"
    "nc = Neg dc\n"
    "sm = Sum nc *\n"
    "dm = Reshape sm *\n"
    "dm1 = Reshape dm *\n"
    "bm = BroadcastTo dm1 *\n"
    "dxm = RealDiv bm width2\n"
    "dxf = AddN& dc dxm\n"
    "dx = Cast? dxf\n"
    "dyf = Cast? dy\n";

static bool same_type(shoal_out a, shoal_out b) { return a.node->out_types[a.index] == b.node->out_types[b.index]; }

static bool gradient_fits(const struct layer_found *l, const struct shape *x) {
  int last = x->rank - 1;
  struct shape dy = found_shape(l, "dy"), bm = found_shape(l, "bm");
  double width = (double)x->dims[last];
  if (!shape_known(x) || !may_be(&dy, x) || !shape_equal(&bm, x)) return false;
  if (l->casts && (found_node(l, "dxf")->n_in != 2 || !same_type(found_out(l, "dy"), found_out(l, "dx")))) return false;
  return found_number(l, "width", width) && found_number(l, "width2", width) && found_number(l, "two", 2) &&
         reduces(found_node(l, "dg"), 0, last, false) && reduces(found_node(l, "db"), 0, last, false) &&
         reduces(found_node(l, "sr"), last, last + 1, false) && reduces(found_node(l, "sm"), last, last + 1, false);
}

static bool fits(const struct layer_found *l) {
  struct shape x = found_shape_anyhow(l, "x"), gamma = found_shape(l, "gamma"), beta = found_shape(l, "beta");
  const struct tensor *eps = constant_of(found_out(l, "eps"));
  if (l->back) {
    struct shape spread = found_shape(l, "bv"); /* as x was when the gradient was built */
    if (!may_be(&x, &spread)) return false;
    x = spread;
  }
  int last = x.rank - 1;
  if (x.rank < 1 || x.dims[last] < 1 || (!l->back && (gamma.rank != 1 || beta.rank != 1))) return false;
  struct shape width = shape_vector(x.dims[last]);
  if (!may_be(&gamma, &width) || !may_be(&beta, &width)) return false;
  if (!eps || eps->n != 1 || found_node(l, "o")->out_types[0] != SHOAL_FLOAT32) return false;
  if (!reduces(found_node(l, "v"), last, last + 1, true) || !reduces(found_node(l, "m"), last, last + 1, true))
    return false;
  if (l->casts && !same_type(found_out(l, "x"), found_out(l, "y"))) return false;
  return !l->back || gradient_fits(l, &x);
}

static struct shoal_node *make_forward(struct fusing_layers *f, const struct layer_found *l) {
  struct named_attr *attrs = mem_zalloc(1, sizeof *attrs);
  double eps = constant_at(constant_of(found_out(l, "eps")), 0);
  attrs[0] = (struct named_attr){mem_strdup("epsilon"), attr_float((float)eps)};
  return layer_node(f, l, "y", "_ShoalLayerNorm",
                    (shoal_out[]){found_out(l, "x"), found_out(l, "gamma"), found_out(l, "beta")}, 3, attrs, 1);
}

/* Where what is normalised goes past the layer too, as in every Transformer, its gradient is a sum of two: that sum,
 * which the layer's own gradient can make, and in *other the second term. NULL: it is none. */
static struct shoal_node *sum_of(struct fusing_layers *f, const struct layer_found *l, shoal_out *other) {
  struct shoal_node *dx = found_node(l, "dx"), *sum = l->casts ? rewrite_only_consumer(f->r, dx) : dx;
  if (!sum || !op_is(sum->op, "AddN") || sum->n_in != (l->casts ? 2 : 3) || sum->control.n) return NULL;
  if (l->casts && (f->taken[sum->id] || !str_equal(sum->assigned, dx->assigned))) return NULL;
  for (int i = 0; i < sum->n_in; i++) {
    const struct shoal_node *n = sum->in[i].node;
    if (n != dx && n != found_node(l, "dc") && n != found_node(l, "dxm")) *other = sum->in[i];
  }
  return other->node && !layer_makes(f, l, *other) ? sum : NULL;
}

static struct shoal_node *make_backward(struct fusing_layers *f, const struct layer_found *l, struct shoal_node *norm,
                                        shoal_out other) {
  struct named_attr *attrs = mem_zalloc(1, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("N"), attr_int(other.node != NULL)};
  const shoal_out in[] = {found_out(l, "x"), found_out(l, "gamma"), {norm, 1}, {norm, 2}, found_out(l, "dy"), other};
  return layer_node(f, l, "dx", "_ShoalLayerNormGrad", in, 5 + (other.node != NULL), attrs, 1);
}

static bool make(struct fusing_layers *f, const struct layer_found *l) {
  shoal_out other = {0};
  struct shoal_node *sum = l->back ? sum_of(f, l, &other) : NULL;
  if (!sum) other = (shoal_out){0};
  struct shoal_node *norm = make_forward(f, l), *back = norm && l->back ? make_backward(f, l, norm, other) : NULL;
  if (norm && l->back && !back) {
    graph_remove(f->r->g, norm);
    norm = NULL;
  }
  if (!norm) return false;
  layer_becomes(f, l, "y", (shoal_out){norm, 0});
  if (!back) return true;
  if (sum) f->became[sum->id] = (shoal_out){back, 0};
  else layer_becomes(f, l, "dx", (shoal_out){back, 0});
  layer_becomes(f, l, "dg", (shoal_out){back, 1});
  layer_becomes(f, l, "db", (shoal_out){back, 2});
  return true;
}

const struct layer layer_of_norm = {.name = "layer normalisation",
                                    .forward = forward,
                                    .backward = backward,
                                    .result = "y",
                                    .gradients = "dx dg db",
                                    .input = "x",
                                    .input_like = "bm",
                                    .fits = fits,
                                    .make = make};

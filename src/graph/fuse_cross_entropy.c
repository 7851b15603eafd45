/* Cross-entropy with sparse labels, and the gradient of its logits: _ShoalCrossEntropy, which makes both at once, of
 * logits as they come, in half precision or not.
 *
 * That needs what each loss counts for (its gradient) before the losses are known. It is known for a mean or a sum of
 * them, scaled or not; where it comes from the losses themselves the ops stay as they are. */
#include "graph/fuse_layers.h"

static const char forward[] =
    "xe = SparseSoftmaxCrossEntropyWithLogits lf labels\n"
    "lf = Cast? x\n";

static const char backward[] =
    "d = Mul each xe:1\n"
    "dx = Cast? d\n";

static bool fits(const struct layer_found *l) {
  struct shape x = found_shape(l, "x"), each = found_shape(l, "each");
  shoal_out from = found_out(l, "x");
  if (found_node(l, "xe")->out_types[0] != SHOAL_FLOAT32) return false;
  struct shape column = {.rank = 2, .dims = {x.rank == 2 ? x.dims[0] : -1, 1}};
  if (!may_be(&each, &column) || (each.rank != 2 && !op_is(found_node(l, "each")->op, "ExpandDims"))) return false;
  return !l->casts || found_node(l, "dx")->out_types[0] == from.node->out_types[from.index];
}

static bool make(struct fusing_layers *f, const struct layer_found *l) {
  shoal_out in[] = {found_out(l, "x"), found_out(l, "labels"), found_out(l, "each")};
  struct shoal_node *n = layer_node(f, l, "dx", "_ShoalCrossEntropy", in, 3, NULL, 0);
  if (!n) return false;
  layer_becomes(f, l, "xe", (shoal_out){n, 0});
  layer_becomes(f, l, "dx", (shoal_out){n, 1});
  return true;
}

const struct layer layer_of_cross_entropy = {.name = "cross entropy",
                                             .forward = forward,
                                             .backward = backward,
                                             .result = "xe",
                                             .gradients = "dx",
                                             .needs_back = true,
                                             .fits = fits,
                                             .make = make};

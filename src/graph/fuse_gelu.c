/* The activation of Transformers as train/layer_norm.c builds it: _ShoalGelu and _ShoalGeluGrad. */
#include "graph/fuse_layers.h"

static const char forward[] =
    "y = Mul x g\n"
    "g = Sigmoid u\n"
    "u = Mul x f\n"
    "f = AddV2 m slope\n"
    "m = Mul s cube\n"
    "s = Square x\n";

static const char backward[] =
    "du = SigmoidGrad g dg\n"
    "dg = Mul x dy\n"
    "dx1 = Mul dy g\n"
    "dx2 = Mul du f\n"
    "df = Mul x du\n"
    "ds = Mul df cube\n"
    "x2 = Mul x two\n"
    "dx3 = Mul ds x2\n"
    "dx = AddN& dx1 dx2 dx3\n";

/* Gradients of what is broadcast have sums in them: where this pattern is found, all shapes are one. */
static bool fits(const struct layer_found *l) {
  const double slope = 2 * 0.79788456080286535588;
  if (!found_number(l, "slope", slope) || !found_number(l, "cube", slope * 0.044715)) return false;
  return !l->back || found_number(l, "two", 2);
}

static bool make(struct fusing_layers *f, const struct layer_found *l) {
  shoal_out in[] = {found_out(l, "x"), found_out(l, "dy")};
  struct shoal_node *y = layer_node(f, l, "y", "_ShoalGelu", in, 1, NULL, 0);
  struct shoal_node *dx = y && l->back ? layer_node(f, l, "dx", "_ShoalGeluGrad", in, 2, NULL, 0) : NULL;
  if (y && l->back && !dx) {
    graph_remove(f->r->g, y);
    y = NULL;
  }
  if (!y) return false;
  layer_becomes(f, l, "y", (shoal_out){y, 0});
  if (dx) layer_becomes(f, l, "dx", (shoal_out){dx, 0});
  return true;
}

const struct layer layer_of_gelu = {.name = "GELU",
                                    .forward = forward,
                                    .backward = backward,
                                    .result = "y",
                                    .gradients = "dx",
                                    .fits = fits,
                                    .make = make};

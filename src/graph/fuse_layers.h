/* What the layers that are fused share (rewrite_fuse_layers.c): a layer is a row with two patterns and a function that
 * puts nodes of our own in their place. Adding one: its row, in a file of its own where it needs checks. */
#ifndef GRAPH_FUSE_LAYERS_H
#define GRAPH_FUSE_LAYERS_H

#include "graph/pattern.h"
#include "graph/rewrite.h"

struct layer;

struct known_shape { /* of a tensor, as a gradient that was found tells it */
  shoal_out of;
  struct shape shape;
};

struct fusing_layers {
  struct rewriting *r;
  size_t n_ids;      /* nodes that were there before */
  shoal_out *became; /* by id: what stands for output 0 now; node NULL: nothing else */
  bool *taken;       /* by id: part of a layer already */
  int *walked;       /* by id, of those added too: the last walk that came by */
  int walks;
  int64_t tries; /* left */
  VEC(struct known_shape) shapes;
};

struct layer_found {
  const struct fusing_layers *f;
  const struct layer *layer;
  const struct pattern *p; /* both ways, or forward alone */
  struct match m;
  bool casts, back;
};

struct layer {
  const char *name;
  const char *forward, *backward; /* patterns; of the first the results are: */
  const char *result, *gradients; /* names, a space between two */
  bool needs_back;                /* it is worth nothing without its gradient */
  const char *input, *input_like; /* (optional) of a gradient: the first has the shape of the second, which is known */
  /* Do constants, axes and shapes fit? */
  bool (*fits)(const struct layer_found *l);
  /* Adds what stands for it; false: nothing was added. */
  bool (*make)(struct fusing_layers *f, const struct layer_found *l);
};

extern const struct layer layer_of_norm, layer_of_gelu, layer_of_cross_entropy, layer_of_attention,
    layer_of_causal_attention;

/* ---- for layers ---- */

/* The tensor of a name; node NULL: there is none. */
shoal_out found_out(const struct layer_found *l, const char *name);
static inline struct shoal_node *found_node(const struct layer_found *l, const char *name) {
  return found_out(l, name).node;
}
/* What inference knows of it. */
struct shape found_shape(const struct layer_found *l, const char *name);
/* The same, or what gradients of other layers tell: of a layer that is computed once more for its gradient the first
 * time has none of its own. */
struct shape found_shape_anyhow(const struct layer_found *l, const char *name);
/* As far as is known, are they the same? What is fed has no known shape, and what is made of it has none; the
 * gradient's nodes say what it was when the graph was built, and kernels see what it is. */
bool may_be(const struct shape *a, const struct shape *b);
/* A constant number near to v. */
bool found_number(const struct layer_found *l, const char *name, double v);
bool number_is(shoal_out o, double v);
/* The value of a constant; NULL: it is none. */
const struct tensor *constant_of(shoal_out o);
double constant_at(const struct tensor *t, int64_t i);
/* Does the reduction go over the dimensions from first to last - 1, and keep them, or not? */
bool reduces(const struct shoal_node *n, int first, int last, bool keep);

/* Is a tensor that a node in place of the layer is to read made of the layer's own nodes? */
bool layer_makes(struct fusing_layers *f, const struct layer_found *l, shoal_out o);
/* A node like another, in its place; in: as they are now. */
struct shoal_node *layer_node(struct fusing_layers *f, const struct layer_found *l, const char *like, const char *op,
                              const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs);
/* From now on `to` stands for the tensor of a name. Of a sum that has other terms too it takes the place of its own. */
void layer_becomes(struct fusing_layers *f, const struct layer_found *l, const char *name, shoal_out to);

#endif

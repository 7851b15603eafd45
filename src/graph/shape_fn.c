/* Shape inference: runs the ops' shape functions over a graph, and the functions that many ops share. */
#include "graph/shape_fn.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* How far values are followed back through ops that pass them on: a long chain must not cost its square. */
enum { MAX_HOPS = 64 };

/* The value of an output where it can be told without running: constants, and Shape/Size/Rank of what is known
 * are common enough to matter; anything else is left to constant folding. */
static const struct tensor *constant_value(shoal_out o) {
  struct shoal_node *n = o.node;
  for (int hops = 0; n && hops < MAX_HOPS && n->n_in == 1; hops++) {
    if (!op_is(n->op, "Identity") && !op_is(n->op, "Snapshot")) break;
    n = n->in[0].node;
  }
  if (!n || !op_is(n->op, "Const")) return NULL;
  const struct attr *v = node_attr(n, "value");
  return v && v->kind == ATTR_TENSOR ? v->tensor : NULL;
}

/* For variables: the shape behind a resource handle is kept in the handle's own output shape attribute. */
static struct shape handle_shape(shoal_out o) {
  struct shoal_node *n = o.node;
  for (int hops = 0; n && hops < MAX_HOPS && n->n_in == 1; hops++) {
    if (!op_is(n->op, "Identity") && !op_is(n->op, "Enter")) break;
    n = n->in[0].node;
  }
  if (n && op_is(n->op, "VarHandleOp")) {
    const struct attr *s = node_attr(n, "shape");
    if (s && s->kind == ATTR_SHAPE) return *s->shape;
  }
  return shape_unknown();
}

shoal_status node_infer_shapes(struct shoal_node *n) {
  enum { INLINE = 8 };
  struct shape in_space[INLINE], handle_space[INLINE];
  const struct tensor *value_space[INLINE];
  bool big = n->n_in > INLINE;
  struct shape *in = big ? mem_alloc((size_t)n->n_in * sizeof *in) : in_space;
  struct shape *handles = big ? mem_alloc((size_t)n->n_in * sizeof *handles) : handle_space;
  const struct tensor **values = big ? mem_alloc((size_t)n->n_in * sizeof *values) : value_space;
  for (int i = 0; i < n->n_in; i++) {
    shoal_out o = n->in[i];
    in[i] = o.node && o.node->out_shapes ? o.node->out_shapes[o.index] : shape_unknown();
    handles[i] = n->in_types[i] == SHOAL_RESOURCE ? handle_shape(o) : shape_unknown();
    values[i] = constant_value(o);
  }
  struct shape *out = mem_alloc((size_t)MAX(n->n_out, 1) * sizeof *out);
  struct shape *handles_out = mem_alloc((size_t)MAX(n->n_out, 1) * sizeof *handles_out);
  for (int i = 0; i < n->n_out; i++) out[i] = handles_out[i] = shape_unknown();
  struct shape_ctx c = {
      .node = n, .in = in, .values = values, .out = out, .handle_in = handles, .handle_out = handles_out};
  shoal_status s = n->op->row->shape ? n->op->row->shape(&c) : NULL;
  free(n->out_shapes);
  n->out_shapes = out;
  free(handles_out);
  if (big) {
    free(in);
    free(handles);
    free(values);
  }
  return s;
}

shoal_status graph_infer_shapes(struct shoal_graph *g) {
  struct shoal_node **order = mem_zalloc((size_t)g->n_nodes, sizeof *order);
  shoal_status s = graph_topological_order(g, order);
  for (int i = 0; !s && i < g->n_nodes; i++) {
    struct shoal_node *n = order[i];
    bool loop = op_is(n->op, "Merge") || op_is(n->op, "RefMerge");
    s = node_infer_shapes(n);
    /* What comes round a loop may have another shape: only a shape every input agrees on is kept. */
    for (int k = 0; loop && !s && k < n->n_in; k++) {
      shoal_out from = n->in[k];
      if (from.node && op_is(from.node->op, "NextIteration")) n->out_shapes[0] = shape_unknown();
    }
    if (s) s = node_error(n, s);
  }
  free(order);
  return s;
}

/* ---- for shape functions ---- */

shoal_status shape_in_rank(struct shape_ctx *c, int i, int rank, struct shape *out) {
  const struct shape *s = &c->in[i];
  if (s->rank < 0) *out = shape_unknown_of_rank(rank);
  else if (s->rank != rank)
    return INVALID("Shape must be rank %d but is rank %d for '%s' (input %d has shape %s)", rank, s->rank,
                   c->node->name, i, shape_str(s));
  else *out = *s;
  return NULL;
}

shoal_status shape_in_rank_at_least(struct shape_ctx *c, int i, int rank, struct shape *out) {
  const struct shape *s = &c->in[i];
  if (s->rank >= 0 && s->rank < rank)
    return INVALID("Shape must be at least rank %d but is rank %d for '%s' (input %d has shape %s)", rank, s->rank,
                   c->node->name, i, shape_str(s));
  *out = *s;
  return NULL;
}

/* The dimensions that a vector holds, as far as they are known; false: not even how many they are. */
static bool dimensions_in(shoal_out o, struct shape *out) {
  const struct tensor *v = constant_value(o);
  if (v) {
    shoal_status s = tensor_get_shape(v, true, out);
    shoal_status_free(s);
    return !s && out->rank >= 0;
  }
  if (!o.node || !o.node->out_shapes) return false;
  if (op_is(o.node->op, "Shape") && o.node->in[0].node) {
    shoal_out x = o.node->in[0];
    *out = x.node->out_shapes ? x.node->out_shapes[x.index] : shape_unknown();
    return out->rank >= 0;
  }
  const struct shape *is = &o.node->out_shapes[o.index];
  if (is->rank != 1 || is->dims[0] < 0 || is->dims[0] > SHOAL_MAX_RANK) return false;
  *out = shape_unknown_of_rank((int)is->dims[0]);
  return true;
}

/* What a ConcatV2 of such vectors holds. */
static bool dimensions_joined(const struct shoal_node *concat, struct shape *out) {
  struct shape whole = shape_scalar(), part;
  for (int k = 0; k < concat->n_in - 1; k++) {
    if (!dimensions_in(concat->in[k], &part) || whole.rank + part.rank > SHOAL_MAX_RANK) return false;
    for (int d = 0; d < part.rank; d++) whole.dims[whole.rank++] = part.dims[d];
  }
  int64_t n;
  shoal_status s = shape_elements(&whole, &n);
  shoal_status_free(s);
  *out = whole;
  return !s;
}

shoal_status shape_in_value(struct shape_ctx *c, int i, struct shape *out) {
  *out = shape_unknown();
  if (c->values[i]) return tensor_get_shape(c->values[i], true, out);
  shoal_out o = c->node->in[i];
  /* Shape(x), and ConcatV2 and Pack of constants and pieces of shapes, are how shapes are mostly made. */
  if (o.node && op_is(o.node->op, "ConcatV2") && dimensions_joined(o.node, out)) return NULL;
  *out = shape_unknown();
  if (o.node && op_is(o.node->op, "Pack") && o.node->n_in <= SHOAL_MAX_RANK) {
    *out = shape_unknown_of_rank(o.node->n_in);
    for (int k = 0; k < o.node->n_in; k++) {
      const struct tensor *v = constant_value(o.node->in[k]);
      int64_t d;
      if (!v) continue;
      TRY(tensor_get_int(v, "dimension", &d));
      out->dims[k] = d < -1 ? -1 : d;
    }
    return NULL;
  }
  if (c->in[i].rank == 1 && c->in[i].dims[0] > SHOAL_MAX_RANK)
    return INVALID("Shapes of %" PRId64 " dimensions are not supported (at most %d)", c->in[i].dims[0], SHOAL_MAX_RANK);
  if (!dimensions_in(o, out)) *out = shape_unknown();
  return NULL;
}

bool shape_in_int(struct shape_ctx *c, int i, int64_t *out) {
  const struct tensor *v = c->values[i];
  if (!v || v->n != 1) return false;
  shoal_status s = tensor_get_int(v, "value", out);
  shoal_status_free(s);
  return !s;
}

shoal_status shape_unchanged(struct shape_ctx *c) {
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = c->in[0];
  return NULL;
}

shoal_status shape_scalar_out(struct shape_ctx *c) {
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = shape_scalar();
  return NULL;
}

shoal_status shape_unknown_out(struct shape_ctx *c) { return NULL; }

shoal_status shape_no_outputs(struct shape_ctx *c) { return NULL; }

shoal_status shape_broadcast_binary(struct shape_ctx *c) {
  TRY(shape_broadcast(&c->in[0], &c->in[1], &c->out[0]));
  for (int i = 1; i < c->node->n_out; i++) c->out[i] = c->out[0];
  return NULL;
}

shoal_status shape_reduction(struct shape_ctx *c) {
  const struct shape *in = &c->in[0];
  bool keep = false;
  if (node_attr(c->node, "keep_dims")) TRY(node_get_bool(c->node, "keep_dims", &keep));
  if (in->rank < 0) return NULL;
  if (!c->values[1]) {
    if (keep) c->out[0] = shape_unknown_of_rank(in->rank);
    return NULL;
  }
  int64_t axes[SHOAL_MAX_RANK];
  int n;
  bool reduced[SHOAL_MAX_RANK] = {false};
  TRY(tensor_get_ints(c->values[1], "reduction_indices", axes, SHOAL_MAX_RANK, &n));
  for (int i = 0; i < n; i++) {
    if (axes[i] < -in->rank || axes[i] >= in->rank)
      return INVALID("Invalid reduction dimension %" PRId64 " for input with %d dimensions", axes[i], in->rank);
    reduced[axes[i] < 0 ? axes[i] + in->rank : axes[i]] = true;
  }
  struct shape out = {.rank = 0};
  for (int i = 0; i < in->rank; i++) {
    if (!reduced[i]) out.dims[out.rank++] = in->dims[i];
    else if (keep) out.dims[out.rank++] = 1;
  }
  c->out[0] = out;
  return NULL;
}

shoal_status shape_merge_all(struct shape_ctx *c) {
  struct shape s = shape_unknown();
  for (int i = 0; i < c->node->n_in; i++) TRY(shape_merge(&s, &c->in[i], &s));
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = s;
  return NULL;
}

shoal_status shape_explicit(struct shape_ctx *c) {
  TRY(node_get_shape(c->node, "shape", &c->out[0]));
  for (int i = 1; i < c->node->n_out; i++) c->out[i] = c->out[0];
  return NULL;
}

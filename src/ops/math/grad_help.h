/* Short forms for writing gradients as expressions: g_mul(c, g_dy(c), g_op(c, "Cos", x)). */
#ifndef OPS_MATH_GRAD_HELP_H
#define OPS_MATH_GRAD_HELP_H

#include "graph/gradient.h"

static inline shoal_out g_op(struct grad_ctx *c, const char *op, shoal_out a) { return build_op1(c->g, op, a); }
static inline shoal_out g_op2(struct grad_ctx *c, const char *op, shoal_out a, shoal_out b) {
  return build_op2(c->g, op, a, b);
}
static inline shoal_out g_add(struct grad_ctx *c, shoal_out a, shoal_out b) { return build_op2(c->g, "AddV2", a, b); }
static inline shoal_out g_sub(struct grad_ctx *c, shoal_out a, shoal_out b) { return build_op2(c->g, "Sub", a, b); }
static inline shoal_out g_mul(struct grad_ctx *c, shoal_out a, shoal_out b) { return build_op2(c->g, "Mul", a, b); }
static inline shoal_out g_div(struct grad_ctx *c, shoal_out a, shoal_out b) { return build_op2(c->g, "RealDiv", a, b); }
static inline shoal_out g_neg(struct grad_ctx *c, shoal_out a) { return build_op1(c->g, "Neg", a); }
static inline shoal_out g_square(struct grad_ctx *c, shoal_out a) { return build_op1(c->g, "Square", a); }
/* The number v in a's type. */
static inline shoal_out g_num(struct grad_ctx *c, shoal_out a, double v) {
  return build_const_float(c->g, out_type(a), v);
}
static inline shoal_out g_scale(struct grad_ctx *c, shoal_out a, double v) { return g_mul(c, a, g_num(c, a, v)); }
/* The conjugate of complex tensors; real ones as they are. */
static inline shoal_out g_conj(struct grad_ctx *c, shoal_out a) {
  return dtype_complex(out_type(a)) ? build_op1(c->g, "Conj", a) : a;
}
static inline shoal_out g_zeros_like(struct grad_ctx *c, shoal_out a) { return build_op1(c->g, "ZerosLike", a); }
/* int32 */
static inline shoal_out g_shape(struct grad_ctx *c, shoal_out a) { return build_op1(c->g, "Shape", a); }
static inline shoal_out g_reshape(struct grad_ctx *c, shoal_out a, shoal_out shape) {
  return build_op2(c->g, "Reshape", a, shape);
}

/* Sets dx of inputs 0 and 1, which were broadcast against each other, from their gradients in the output's shape. */
static inline shoal_status g_set_broadcast(struct grad_ctx *c, shoal_out gx, shoal_out gy) {
  if (gx.node) grad_set(c, 0, grad_unbroadcast(c->g, gx, gin(c, 0), gin(c, 1), 0));
  if (gy.node) grad_set(c, 1, grad_unbroadcast(c->g, gy, gin(c, 1), gin(c, 0), 1));
  return NULL;
}

#endif

/* Einsum equations: "abc,cd->abd", with "..." for dimensions that broadcast. */
#ifndef OPS_LINALG_EINSUM_PARSE_H
#define OPS_LINALG_EINSUM_PARSE_H

#include "ops/nn/nn_util.h"

struct subscripts {
  int n; /* labels, the ellipsis not counted */
  char label[SHOAL_MAX_RANK];
  int ellipsis; /* labels before it; -1: none */
};

struct equation {
  int n_in;
  struct subscripts in[2], out;
};

/* Checks an equation as TensorFlow does, in its words. */
shoal_status equation_parse(const char *text, int n_in, struct equation *out);
/* As text, an ellipsis put in front when there is none and forced. */
void subscripts_print(const struct subscripts *s, bool forced, struct text *out);

/* One label (or one broadcasting dimension) and how the tensors step along it. */
struct axis {
  int label; /* a character, or BROADCAST + its place from the right */
  int64_t dim;
  int64_t stride[2]; /* of the inputs; 0 where one does not have it, or broadcasts */
  bool in[2];
  int64_t out_stride; /* 0: not in the output */
  bool in_out;
};
enum { BROADCAST = 256, MAX_AXES = 3 * SHOAL_MAX_RANK };

struct bound {
  struct axis axis[MAX_AXES];
  int n;
  struct shape out;
  bool repeats; /* a label stands twice in the output: what is not on the diagonal is zero */
};
/* The equation applied to inputs of these shapes. Unknown dimensions are allowed; ranks must be known. */
shoal_status equation_bind(const struct equation *e, const struct shape *in, struct bound *b);

#endif

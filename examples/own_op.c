/* An op of one's own, to be loaded: ScaledCube, factor * x^3 of every element, with its shape and its gradient.
 *
 *   cc -shared -fPIC examples/own_op.c -o own_op.so $(pkg-config --cflags --libs shoal)
 *   shoal server --op_library=./own_op.so ...
 *
 * examples/use_own_op.c is a program that runs it. */
#include <shoal/shoal.h>

/* What a node has of its own: its attribute, read once. */
struct cube {
  float factor;
};

static shoal_status cube_init(const shoal_op *node, void *state) {
  return shoal_op_attr_float(node, "factor", &((struct cube *)state)->factor);
}

struct piece {
  const float *x;
  float *y, factor;
};

static void cube_piece(void *arg, int64_t begin, int64_t end) {
  struct piece *p = (struct piece *)arg;
  for (int64_t i = begin; i < end; i++) p->y[i] = p->factor * p->x[i] * p->x[i] * p->x[i];
}

static shoal_status cube_run(shoal_op_run *r, void *state) {
  void *y;
  shoal_status error = shoal_op_output_like(r, 0, 0, &y);
  if (error) return error;
  struct piece p = {(const float *)shoal_op_input_data(r, 0), (float *)y, ((struct cube *)state)->factor};
  shoal_op_parallel(r, shoal_op_input_elements(r, 0), 10000, cube_piece, &p);
  return NULL;
}

static shoal_status cube_run_double(shoal_op_run *r, void *state) {
  void *y;
  shoal_status error = shoal_op_output_like(r, 0, 0, &y);
  if (error) return error;
  const double *x = (const double *)shoal_op_input_data(r, 0);
  double factor = (double)((struct cube *)state)->factor;
  for (int64_t i = 0; i < shoal_op_input_elements(r, 0); i++) ((double *)y)[i] = factor * x[i] * x[i] * x[i];
  return NULL;
}

/* dx = 3 * factor * x^2 * dy: nodes of the graph, like any model's. */
static shoal_status cube_grad(shoal_op_gradient *c) {
  float factor;
  shoal_status error = shoal_op_attr_float(shoal_op_gradient_node(c), "factor", &factor);
  if (error) return error;
  shoal_graph *g = shoal_op_gradient_graph(c);
  shoal_out x = shoal_op_gradient_in(c, 0);
  shoal_out slope = shoal_mul(g, shoal_constant_of(g, shoal_out_dtype(x), 3 * (double)factor), shoal_square(g, x));
  shoal_op_gradient_set(c, 0, shoal_mul(g, shoal_op_gradient_of(c, 0), slope));
  return NULL;
}

static const shoal_op_kernel kernels[] = {
    {"CPU", "T", SHOAL_OP_TYPE(SHOAL_FLOAT32), sizeof(struct cube), cube_init, NULL, cube_run},
    {"CPU", "T", SHOAL_OP_TYPE(SHOAL_FLOAT64), sizeof(struct cube), cube_init, NULL, cube_run_double},
};

/* A second one, whose output is made of nothing that the first has: how long each string is, and both ends of it. */
static shoal_status ends_run(shoal_op_run *r, void *state) {
  (void)state;
  void *length, *ends;
  shoal_status error = shoal_op_output(r, 0, shoal_op_input_rank(r, 0), shoal_op_input_dims(r, 0), &length);
  if (!error) error = shoal_op_output(r, 1, shoal_op_input_rank(r, 0), shoal_op_input_dims(r, 0), &ends);
  for (int64_t i = 0; !error && i < shoal_op_input_elements(r, 0); i++) {
    size_t size;
    const char *s = shoal_op_input_string(r, 0, i, &size);
    if (!size) return shoal_status_new(SHOAL_INVALID_ARGUMENT, "string %lld is empty: it has no ends", (long long)i);
    char both[2] = {s[0], s[size - 1]};
    ((int64_t *)length)[i] = (int64_t)size;
    error = shoal_op_output_string(r, 1, i, both, sizeof both);
  }
  return error;
}

static shoal_status ends_shape(shoal_op_shapes *s) { return shoal_op_same_shape(s); }

static const shoal_op_kernel ends_kernels[] = {{"CPU", NULL, 0, 0, NULL, NULL, ends_run}};

static const shoal_op_row rows[] = {
    {"ScaledCube", "x: T", "y: T", "T: {float, double}; factor: float = 1.0", 0, shoal_op_same_shape, cube_grad,
     kernels, 2},
    {"StringEnds", "text: string", "length: int64, ends: string", NULL, SHOAL_OP_NO_GRADIENT, ends_shape, NULL,
     ends_kernels, 1},
};
SHOAL_OP_LIBRARY(rows);

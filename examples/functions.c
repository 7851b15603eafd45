/* Functions of a graph: one that is called, one with a gradient of its own, a loop made of two, and a dataset whose
 * elements go through two. They go out with the graph: --graph writes it as a GraphDef that TensorFlow runs, --master
 * has a server run it, Shoal's or TensorFlow's. */
#include "common.h"

/* x * w, where w is of the graph around: it is captured. */
static shoal_out scaled(shoal_graph *g, shoal_out x, shoal_out w) {
  shoal_graph *f = shoal_function_begin(g, "scale");
  shoal_out in = shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "x");
  shoal_function_output(f, shoal_mul(f, in, w), "y");
  shoal_out y = {0};
  shoal_call(g, shoal_function_end(f), &x, 1, &y, 1);
  return y;
}

/* x as it is, whose gradient is never larger than 1. */
static shoal_out with_bounded_gradient(shoal_graph *g, shoal_out x) {
  shoal_graph *f = shoal_function_begin(g, "bounded");
  shoal_function_output(f, shoal_identity(f, shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "x")), "y");
  shoal_function *bounded = shoal_function_end(f);

  f = shoal_function_begin(g, "bounded_gradient");
  shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "x");
  shoal_out dy = shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "dy");
  shoal_function_output(f, shoal_minimum(f, dy, shoal_constant_float(f, 1)), "dx");
  shoal_function_set_gradient(g, bounded, shoal_function_end(f));

  shoal_out y = {0};
  shoal_call(g, bounded, &x, 1, &y, 1);
  return y;
}

/* Newton's way to the square root: r becomes (r + a / r) / 2 until r * r is a. */
static shoal_out square_root(shoal_graph *g, shoal_out a) {
  shoal_graph *f = shoal_function_begin(g, "far_off");
  shoal_out r = shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "r");
  shoal_out off = shoal_abs(f, shoal_sub(f, shoal_mul(f, r, r), a));
  shoal_function_output(f, shoal_greater(f, off, shoal_constant_float(f, 1e-3f)), "go_on");
  shoal_function *far_off = shoal_function_end(f);

  f = shoal_function_begin(g, "nearer");
  r = shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "r");
  shoal_out sum = shoal_add_v2(f, r, shoal_real_div(f, a, r));
  shoal_function_output(f, shoal_mul(f, sum, shoal_constant_float(f, 0.5f)), "r");
  shoal_out root = {0};
  shoal_call_while(g, far_off, shoal_function_end(f), &a, 1, &root);
  return root;
}

struct numbers {
  shoal_op *begin;
  shoal_out next;
};

/* The dataset of x * x + offset for the even x from 0 on. */
static struct numbers even_squares(shoal_graph *g, int64_t stop, shoal_out offset) {
  const shoal_dtype type = SHOAL_INT64;
  const shoal_dims shape = SHOAL_SCALAR;
  shoal_graph *f = shoal_function_begin(g, "is_even");
  shoal_out x = shoal_function_input(f, type, shape, "x");
  shoal_out rest = shoal_floor_mod(f, x, shoal_constant_int64(f, 2));
  shoal_function_output(f, shoal_equal(f, rest, shoal_constant_int64(f, 0)), "even");
  shoal_function *is_even = shoal_function_end(f);

  f = shoal_function_begin(g, "square");
  x = shoal_function_input(f, type, shape, "x");
  shoal_function_output(f, shoal_add_v2(f, shoal_mul(f, x, x), offset), "y");
  shoal_function *square = shoal_function_end(f);
  const shoal_out *captured;
  int n = shoal_function_captures(square, &captured); /* offset */

  shoal_out all = shoal_range_dataset(g, shoal_constant_int64(g, 0), shoal_constant_int64(g, stop),
                                      shoal_constant_int64(g, 1), &type, 1, &shape, 1);
  shoal_out even = shoal_filter_dataset(g, all, NULL, 0, shoal_function_name(is_even), &type, 1, &shape, 1);
  shoal_out squares = shoal_map_dataset(g, even, captured, n, shoal_function_name(square), &type, 1, &shape, 1);
  shoal_out iterator = shoal_iterator_v2(g, "", "", &type, 1, &shape, 1);
  struct numbers made;
  made.begin = shoal_make_iterator(g, squares, iterator);
  made.next.node = shoal_iterator_get_next(g, iterator, &type, 1, &shape, 1);
  made.next.index = 0;
  return made;
}

static void write_graph(const shoal_graph *g, const char *path) {
  shoal_bytes bytes;
  check(shoal_graph_export(g, &bytes));
  FILE *to = fopen(path, "wb");
  if (!to || fwrite(bytes.data, 1, bytes.size, to) != bytes.size || fclose(to)) {
    perror(path);
    exit(1);
  }
  shoal_bytes_free(&bytes);
}

int main(int argc, char **argv) {
  const char *device = NULL, *graph = NULL, *master = NULL;
  const struct flag flags[] = {flag_path("graph", "where to write the graph, as a GraphDef", &graph),
                               flag_text("master", "grpc://HOST:PORT of a server that runs it", &master),
                               DEVICE_FLAG(device), flags_end()};
  read_flags(argc, argv, "functions: calls, gradients, a loop and a dataset made of functions of a graph", flags);
  shoal_graph *g = shoal_graph_new();
  push_device(g, device);
  shoal_out x = shoal_constant_float(g, 3), w = shoal_constant_float(g, 5);
  shoal_out y = scaled(g, with_bounded_gradient(g, x), w);
  shoal_out xs[2];
  xs[0] = x, xs[1] = w;
  shoal_gradient d[2];
  shoal_gradients(g, &y, 1, xs, 2, NULL, d);
  shoal_push_scope(g, "results");
  shoal_out results[4];
  results[0] = shoal_identity(g, y);
  results[1] = shoal_identity(g, d[0].values);
  results[2] = shoal_identity(g, d[1].values);
  results[3] = shoal_identity(g, square_root(g, shoal_constant_float(g, 2)));
  shoal_pop_scope(g);
  shoal_pop_device(g);
  struct numbers numbers = even_squares(g, 8, shoal_constant_int64(g, 100));
  if (shoal_graph_error(g)) return shoal_report(g);
  if (graph) write_graph(g, graph);

  shoal_session *session;
  static shoal_session_options options;
  if (device) options = *device_session(device);
  options.size = sizeof options;
  options.target = master;
  check(shoal_session_open(g, &options, &session));
  float v[4];
  check(shoal_session_step(session, SHOAL_NO_FEEDS,
                           SHOAL_FETCH(results[0], &v[0], results[1], &v[1], results[2], &v[2], results[3], &v[3]),
                           NULL));
  printf("y = 3 * 5 = %g, its gradients are %g (bounded) and %g\n", (double)v[0], (double)v[1], (double)v[2]);
  printf("the square root of 2 is about %.4f\n", (double)v[3]);
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, numbers.begin));
  printf("even squares and 100:");
  shoal_status end;
  int64_t value;
  while (!(end = shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(numbers.next, &value), NULL)))
    printf(" %lld", (long long)value);
  printf("\n");
  if (shoal_status_code(end) != SHOAL_OUT_OF_RANGE) check(end);
  shoal_status_free(end);
  check(shoal_session_close(session));
  shoal_graph_free(g);
  return 0;
}

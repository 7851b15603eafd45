/* Uses an op of one's own (examples/own_op.c): loads the library it is in, and runs it in this process or on a cluster
 * whose servers have loaded it too (`shoal server --op_library=FILE`). */
#include "common.h"

int main(int argc, char **argv) {
  const char *library = "./own_op.so", *master = "", *device = NULL;
  const struct flag flags[] = {
      flag_path("op_library", "the library of ops", &library),
      flag_text("master", "target of a server that has loaded it, too; none: this process", &master),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "use_own_op: runs an op that was loaded", flags);
  check_flag(shoal_load_ops(library), "op_library", library);

  if (*master && device) refuse("--device is of this process: the server of --master has its own");
  shoal_graph *g = shoal_graph_new();
  push_device(g, device);
  shoal_builder *b = shoal_build(g, "ScaledCube", "cube");
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x");
  shoal_build_input(b, x);
  shoal_build_float(b, "factor", 2);
  shoal_out y = shoal_build_end_out(b);
  shoal_gradient dx;
  shoal_gradients(g, &y, 1, &x, 1, NULL, &dx);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_session *session;
  check(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .target = master, .allow_soft_placement = device != NULL), &session));
  const float values[] = {1, 2, 3};
  const int64_t three = 3;
  shoal_tensor *in, *cubes, *slopes;
  check(shoal_tensor_from(SHOAL_FLOAT32, 1, &three, values, sizeof values, &in));
  check(shoal_session_step(session, SHOAL_FEED(x, in), SHOAL_FETCH(y, &cubes, dx.values, &slopes), NULL));
  for (int i = 0; i < 3; i++)
    printf("x %g: 2 x^3 is %g, its slope %g\n", (double)values[i],
           (double)((const float *)shoal_tensor_const_data(cubes))[i],
           (double)((const float *)shoal_tensor_const_data(slopes))[i]);
  shoal_tensor_unref(in);
  shoal_tensor_unref(cubes);
  shoal_tensor_unref(slopes);
  check(shoal_session_close(session));
  shoal_graph_free(g);
  return 0;
}

/* The smallest program: a graph of two constants and their sum, and a session that runs it. */
#include "common.h"

int main(int argc, char **argv) {
  const char *device = NULL;
  const struct flag flags[] = {DEVICE_FLAG(device), flags_end()};
  read_flags(argc, argv, "hello: adds two numbers in a session", flags);
  shoal_graph *g = shoal_graph_new();
  push_device(g, device);
  shoal_out sum = shoal_add_v2(g, shoal_constant_float(g, 40), shoal_constant_float(g, 2));
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_session *session;
  check(shoal_session_open(g, device_session(device), &session));
  float value;
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(sum, &value), NULL));
  printf("40 + 2 = %g\n", (double)value);
  check(shoal_session_close(session));
  shoal_graph_free(g);
  return 0;
}

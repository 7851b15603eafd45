/* The smallest program: a graph of two constants and their sum, and a session that runs it. */
#include <shoal/shoal.h>
#include <stdio.h>

int main(void) {
  shoal_graph *g = shoal_graph_new();
  shoal_out sum = shoal_add_v2(g, shoal_constant_float(g, 40), shoal_constant_float(g, 2));
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_session *session;
  shoal_status s = shoal_session_open(g, NULL, &session);
  char fetch[128];
  snprintf(fetch, sizeof fetch, "%s:%d", shoal_op_name(sum.node), sum.index);
  shoal_tensor *value = NULL;
  if (!s) s = shoal_session_run(session, NULL, NULL, NULL, 0, (const char *[]){fetch}, &value, 1, NULL, 0, NULL);
  if (s) {
    fprintf(stderr, "hello: %s\n", shoal_status_message(s));
    shoal_status_free(s);
    return 1;
  }
  printf("40 + 2 = %g\n", (double)*(const float *)shoal_tensor_const_data(value));
  shoal_tensor_unref(value);
  shoal_status_free(shoal_session_close(session));
  shoal_graph_free(g);
  return 0;
}

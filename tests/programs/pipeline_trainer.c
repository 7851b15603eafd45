/* Trains a model of three stages, pipelined or not, and prints its variables and the order of the work.
 *
 *   pipeline_trainer TARGET MICRO_BATCHES DEVICE DEVICE DEVICE
 *
 * MICRO_BATCHES 0: without a pipeline, all on the first device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal/shoal.h>

enum { BATCH = 24, IN = 6, STEPS = 5 };

static shoal_out hidden(shoal_graph *g, shoal_out in, void *arg) {
  return shoal_tanh(g, shoal_dense(g, in, *(const int64_t *)arg, "dense"));
}
static shoal_out logits(shoal_graph *g, shoal_out in, void *arg) {
  return shoal_dense(g, in, *(const int64_t *)arg, "logits");
}
static shoal_out loss_of(shoal_graph *g, shoal_out out, shoal_out labels, void *arg) {
  return shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, out, labels));
}

/* Control edges between pieces of work, as "order STAGE PIECE after PIECE". */
static void print_order(shoal_graph *g, int micro) {
  shoal_bytes text;
  if (shoal_graph_export_text(g, &text)) return;
  char *all = strndup(text.data, text.size), *save = NULL, node[256] = "";
  for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    char name[256];
    if (sscanf(line, " name: \"%255[^\"]\"", name) == 1) strcpy(node, name);
    if (sscanf(line, " input: \"^%255[^\"]\"", name) == 1 && strstr(node, "ward_") && !strstr(node, "done"))
      printf("order %s after %s\n", node, name);
  }
  free(all);
  shoal_bytes_free(&text);
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  int micro = (int)strtol(argv[2], NULL, 10);
  static const int64_t units[] = {7, 5, 4};
  shoal_pipeline_stage stages[] = {
      {argv[3], hidden, (void *)&units[0]}, {argv[4], hidden, (void *)&units[1]}, {argv[5], logits, (void *)&units[2]}};
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 7);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y"), loss = {0};
  shoal_op *train;
  shoal_push_device(g, argv[3]);
  shoal_var step = shoal_global_step(g);
  shoal_pop_device(g);
  if (micro) {
    shoal_pipeline p = {.stages = stages, .n_stages = 3, .micro_batches = micro, .loss = loss_of};
    train = shoal_pipeline_minimize(g, &p, x, y, shoal_adam(0.05), step, &loss);
  } else {
    shoal_push_device(g, argv[3]);
    shoal_out h = x;
    for (int k = 0; k < 3; k++) {
      char name[16];
      snprintf(name, sizeof name, "stage_%d", k);
      shoal_push_scope(g, name);
      h = stages[k].forward(g, h, stages[k].arg);
      shoal_pop_scope(g);
    }
    loss = loss_of(g, h, y, NULL);
    train = shoal_minimize(g, shoal_adam(0.05), loss, step);
    shoal_pop_device(g);
  }
  if (shoal_report(g)) return 1;
  /* The same start for both, whatever seeds the ops have got. */
  int n = shoal_variables(g, true, NULL, 0);
  shoal_var vars[16];
  shoal_op *set[16];
  if (n > 16) return 1;
  shoal_variables(g, true, vars, n);
  shoal_op *init = shoal_initialize(g);
  for (int i = 0; i < n; i++) {
    int64_t dims[SHOAL_MAX_RANK], count = 1;
    float v[256];
    int rank = shoal_out_shape(vars[i].value, dims);
    for (int k = 0; k < rank; k++) count *= dims[k];
    for (int64_t k = 0; k < count; k++) v[k] = (float)((k * 37 + i * 11) % 50) / 50.0F - 0.5F;
    set[i] = shoal_variable_assign(g, vars[i], shoal_constant_floats(g, (shoal_dims){rank, dims}, v));
  }
  shoal_op *start = shoal_group(g, set, n, "start");
  print_order(g, micro);

  shoal_session *s;
  shoal_status e = shoal_session_open(g, &(shoal_session_options){.target = argv[1], .cpu_devices = 3}, &s);
  if (e) return shoal_train_exit(e);
  e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init);
  if (!e) e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, start);
  float xs[BATCH * IN];
  int64_t ys[BATCH];
  for (int i = 0; i < BATCH * IN; i++) xs[i] = (float)((i * 29) % 100) / 50.0F - 1.0F;
  for (int i = 0; i < BATCH; i++) ys[i] = i * i % 4;
  shoal_tensor *tx, *ty;
  if (!e) e = shoal_tensor_from(SHOAL_FLOAT32, 2, (const int64_t[]){BATCH, IN}, xs, sizeof xs, &tx);
  if (!e) e = shoal_tensor_from(SHOAL_INT64, 1, (const int64_t[]){BATCH}, ys, sizeof ys, &ty);
  for (int k = 0; k < STEPS && !e; k++) {
    float l = 0;
    e = shoal_session_step(s, SHOAL_FEED(x, tx, y, ty), SHOAL_FETCH(loss, &l), train);
    printf("loss %.7f\n", (double)l);
  }
  for (int i = 0; i < n && !e; i++) {
    shoal_tensor *t;
    e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(vars[i].value, &t), NULL);
    if (e) break;
    printf("%s", shoal_op_name(vars[i].handle.node));
    for (int64_t k = 0; k < shoal_tensor_elements(t); k++)
      printf(" %.9g", (double)((const float *)shoal_tensor_const_data(t))[k]);
    printf("\n");
    shoal_tensor_unref(t);
  }
  if (e) return shoal_train_exit(e);
  shoal_tensor_unref(tx);
  shoal_tensor_unref(ty);
  e = shoal_session_close(s);
  shoal_graph_free(g);
  return shoal_train_exit(e);
}

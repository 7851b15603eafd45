/* A small model's step on a card: Shoal's side of gpu.py.
 *
 *   gpu_step CASE [--device=/device:GPU:0] [--target=grpc://HOST:PORT] [--adam] [--values=FILE]
 *
 * Trained by gradient descent, or by Adam, on pictures of 28 by 28; in every step the loss is fetched, but for one.
 * Cases:
 *
 *   fed       the MLP 784-100-10 on batches of 100; images and labels are fed in every step
 *   resident  the same, but they are on the card already
 *   ahead     the same, and the loss is fetched after every 100 steps
 *   cnn       two rounds of convolution and pooling and two dense layers, on batches of 128 that are fed
 *   cnn_resident  the same, but they are on the card already
 *
 * With a target, whose task has what is fed and fetched, and a device of another task, values go between the two by
 * messages, as they do under TensorFlow's master.
 *
 * What it begins with is written to a file, for others to begin with the same: the variables, in the order in which the
 * model has them, then images and labels of each batch, all bare.
 *
 * Each line of input is a number of steps; the answer is a line with the seconds they took and the last loss. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../examples/common.h"

enum { HIDDEN = 100, SETS = 20, AHEAD = 100 };

static const char *device = "/device:GPU:0", *target, *values;
static bool fed = true, ahead, cnn, adam;
static int batch = 100;

/* ---- data: so many batches, the same in every run ---- */

static struct { shoal_tensor *images, *labels; } data[SETS];

static uint32_t next_random(void) {
  static uint32_t x = 1;
  x = x * 1664525u + 1013904223u;
  return x >> 8;
}

static void make_data(void) {
  for (int s = 0; s < SETS; s++) {
    check(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){batch, PIXELS}, &data[s].images));
    check(shoal_tensor_new(SHOAL_INT64, 1, (int64_t[]){batch}, &data[s].labels));
    float *x = shoal_tensor_data(data[s].images);
    int64_t *y = shoal_tensor_data(data[s].labels);
    for (int i = 0; i < batch * PIXELS; i++) x[i] = (float)(next_random() & 255) / 255;
    for (int i = 0; i < batch; i++) y[i] = next_random() % CLASSES;
  }
}

/* ---- the model ---- */

struct model {
  shoal_graph *g;
  shoal_session *s;
  shoal_out x, y, loss;
  shoal_op *train;
};

static shoal_out mlp(shoal_graph *g, shoal_out x) {
  return shoal_dense(g, shoal_relu(g, shoal_dense(g, x, HIDDEN, "hidden")), CLASSES, "logits");
}

static shoal_out convolutions(shoal_graph *g, shoal_out x) {
  const int64_t shape[] = {batch, 28, 28, 1};
  shoal_tensor *to;
  check(shoal_tensor_from(SHOAL_INT64, 1, (int64_t[]){4}, shape, sizeof shape, &to));
  shoal_out h = shoal_reshape(g, x, shoal_constant(g, to));
  shoal_tensor_unref(to);
  h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 16, 3, "conv1")));
  h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 32, 3, "conv2")));
  h = shoal_relu(g, shoal_dense(g, shoal_flatten(g, h), 128, "dense"));
  return shoal_dense(g, h, CLASSES, "logits");
}

static void make_model(struct model *m) {
  shoal_graph *g = m->g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_push_device(g, device);
  m->x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(batch, PIXELS), "x");
  m->y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(batch), "y");
  shoal_out x = m->x, y = m->y;
  if (!fed) {
    x = shoal_constant(g, data[0].images);
    y = shoal_constant(g, data[0].labels);
  }
  shoal_out logits = cnn ? convolutions(g, x) : mlp(g, x);
  m->loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  m->train = shoal_minimize(g, adam ? shoal_adam(0.001) : shoal_sgd(0.01), m->loss, (shoal_var){0});
  shoal_pop_device(g);
  shoal_op *init = shoal_initialize(g);
  shoal_session_options o = {.target = target, .allow_soft_placement = true};
  if (shoal_graph_error(g)) exit(shoal_report(g));
  check(shoal_session_open(g, &o, &m->s));
  check(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
}

static void write_bare(FILE *f, shoal_tensor *t) {
  size_t n = shoal_tensor_bytes(t);
  if (fwrite(shoal_tensor_data(t), 1, n, f) == n) return;
  perror(values);
  exit(1);
}

static void write_values(const struct model *m) {
  enum { MOST = 16 };
  shoal_var vars[MOST];
  int n = shoal_variables(m->g, true, vars, MOST);
  FILE *f = fopen(values, "wb");
  for (int i = 0; f && i < n; i++) {
    shoal_tensor *t = NULL;
    check(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_FETCH(vars[i].value, &t), NULL));
    write_bare(f, t);
    shoal_tensor_unref(t);
  }
  for (int i = 0; f && i < SETS; i++) {
    write_bare(f, data[i].images);
    write_bare(f, data[i].labels);
  }
  if (f && !fclose(f)) return;
  perror(values);
  exit(1);
}

static float step(struct model *m, int i) {
  float loss;
  if (fed)
    check(shoal_session_step(m->s, SHOAL_FEED(m->x, data[i % SETS].images, m->y, data[i % SETS].labels),
                             SHOAL_FETCH(m->loss, &loss), m->train));
  else check(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_FETCH(m->loss, &loss), m->train));
  return loss;
}

static float steps_ahead(struct model *m, int n) {
  float loss = 0;
  for (int done = 0; done < n; done += AHEAD)
    check(shoal_session_steps(m->s, n - done < AHEAD ? n - done : AHEAD, SHOAL_NO_FEEDS, SHOAL_FETCH(m->loss, &loss),
                              m->train));
  return loss;
}

int main(int argc, char **argv) {
  ahead = argc > 1 && !strcmp(argv[1], "ahead");
  fed = argc < 2 || (!ahead && !strstr(argv[1], "resident"));
  cnn = argc > 1 && !strncmp(argv[1], "cnn", 3);
  if (cnn) batch = 128;
  char line[64];
  struct model m;
  for (int i = 2; i < argc; i++)
    if (!strncmp(argv[i], "--device=", 9)) device = argv[i] + 9;
    else if (!strncmp(argv[i], "--target=", 9)) target = argv[i] + 9;
    else if (!strncmp(argv[i], "--values=", 9)) values = argv[i] + 9;
    else adam = !strcmp(argv[i], "--adam");
  make_data();
  make_model(&m);
  if (values) write_values(&m);
  while (fgets(line, sizeof line, stdin)) {
    int n = atoi(line);
    float loss = 0;
    double start = seconds();
    for (int i = 0; i < n && !ahead; i++) loss = step(&m, i);
    if (ahead) loss = steps_ahead(&m, n);
    printf("%.9f %.6f\n", seconds() - start, (double)loss);
    fflush(stdout);
  }
  check(shoal_session_close(m.s));
  shoal_graph_free(m.g);
  for (int i = 0; i < SETS; i++) {
    shoal_tensor_unref(data[i].images);
    shoal_tensor_unref(data[i].labels);
  }
  return 0;
}

/* A small model's step on a card: Shoal's side of gpu.py.
 *
 *   gpu_step CASE [--device=/device:GPU:0]
 *
 * The model is the MLP 784-100-10 on batches of 100, trained by gradient descent; in every step the loss is fetched.
 * Cases:
 *
 *   fed       images and labels are fed in every step
 *   resident  they are on the card already
 *
 * Each line of input is a number of steps; the answer is a line with the seconds they took and the last loss. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shoal/shoal.h>

enum { BATCH = 100, PIXELS = 784, HIDDEN = 100, CLASSES = 10, SETS = 20 };

static const char *device = "/device:GPU:0";

static void check(shoal_status s) {
  if (!s) return;
  shoal_status_print(s);
  exit(1);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- data: so many batches, the same in every run ---- */

static struct { shoal_tensor *images, *labels; } data[SETS];

static uint32_t next_random(void) {
  static uint32_t x = 1;
  x = x * 1664525u + 1013904223u;
  return x >> 8;
}

static void make_data(void) {
  for (int s = 0; s < SETS; s++) {
    check(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){BATCH, PIXELS}, &data[s].images));
    check(shoal_tensor_new(SHOAL_INT64, 1, (int64_t[]){BATCH}, &data[s].labels));
    float *x = shoal_tensor_data(data[s].images);
    int64_t *y = shoal_tensor_data(data[s].labels);
    for (int i = 0; i < BATCH * PIXELS; i++) x[i] = (float)(next_random() & 255) / 255;
    for (int i = 0; i < BATCH; i++) y[i] = next_random() % CLASSES;
  }
}

/* ---- the model ---- */

struct model {
  shoal_graph *g;
  shoal_session *s;
  shoal_out x, y, loss;
  shoal_op *train;
};

static void make_model(struct model *m, bool fed) {
  shoal_graph *g = m->g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_push_device(g, device);
  m->x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(BATCH, PIXELS), "x");
  m->y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(BATCH), "y");
  shoal_out x = m->x, y = m->y;
  if (!fed) {
    x = shoal_constant(g, data[0].images);
    y = shoal_constant(g, data[0].labels);
  }
  shoal_out h = shoal_relu(g, shoal_dense(g, x, HIDDEN, "hidden"));
  m->loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, shoal_dense(g, h, CLASSES, "logits"), y));
  m->train = shoal_minimize(g, shoal_sgd(0.01), m->loss, (shoal_var){0});
  shoal_pop_device(g);
  shoal_op *init = shoal_initialize(g);
  shoal_session_options o = {.allow_soft_placement = true};
  if (shoal_graph_error(g)) exit(shoal_report(g));
  check(shoal_session_open(g, &o, &m->s));
  check(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
}

static float step(struct model *m, bool fed, int i) {
  float loss;
  if (fed)
    check(shoal_session_step(m->s, SHOAL_FEED(m->x, data[i % SETS].images, m->y, data[i % SETS].labels),
                             SHOAL_FETCH(m->loss, &loss), m->train));
  else check(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_FETCH(m->loss, &loss), m->train));
  return loss;
}

int main(int argc, char **argv) {
  bool fed = argc > 1 && !strcmp(argv[1], "fed");
  char line[64];
  struct model m;
  for (int i = 2; i < argc; i++)
    if (!strncmp(argv[i], "--device=", 9)) device = argv[i] + 9;
  make_data();
  make_model(&m, fed);
  while (fgets(line, sizeof line, stdin)) {
    int n = atoi(line);
    float loss = 0;
    double start = seconds();
    for (int i = 0; i < n; i++) loss = step(&m, fed, i);
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

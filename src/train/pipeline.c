/* Pipelined model parallelism: shoal/pipeline.h.
 *
 * Everything is one graph. A piece of work is the forward or the backward pass of one micro-batch in one stage; it
 * begins at a node of its own (an Identity of what comes in), and a control edge from the end of the piece before makes
 * a stage do its pieces in the order of 1F1B. What the edges leave open, the executors do as early as they can. A
 * schedule in the client, with one step for each piece, was rejected: it would cost a round trip between any two
 * pieces. */
#include "shoal/pipeline.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/given.h"
#include "base/mem.h"
#include "base/options.h"
#include "shoal/replicate.h"
#include "train/variables.h"

/* One piece of work: where it begins, and a node that is done when it is. */
struct stage_piece {
  struct shoal_node *begin, *end;
};

struct stage {
  shoal_out *in, *out;                    /* [micro] */
  struct stage_piece *forward, *backward; /* [micro] */
  shoal_var *vars;
  int n_vars;
  shoal_gradient *grads; /* [micro * n_vars] */
};

struct pipeline {
  struct shoal_graph *g;
  const shoal_pipeline *p;
  struct stage *stages;
  shoal_out *losses; /* [micro] */
};

static void stage_init(struct stage *s, int micro) {
  size_t n = (size_t)micro;
  s->in = mem_zalloc(n, sizeof *s->in);
  s->out = mem_zalloc(n, sizeof *s->out);
  s->forward = mem_zalloc(n, sizeof *s->forward);
  s->backward = mem_zalloc(n, sizeof *s->backward);
}

static void stage_release(struct stage *s) {
  free(s->in);
  free(s->out);
  free(s->forward);
  free(s->backward);
  free(s->vars);
  free(s->grads);
}

static shoal_out begin_piece(struct shoal_graph *g, const char *what, int micro, shoal_out in,
                             struct stage_piece *piece) {
  char name[64];
  snprintf(name, sizeof name, "%s_%d", what, micro);
  struct build b = build_begin(g, "Identity", name);
  build_in(&b, in);
  shoal_out begun = build_end_out(&b);
  piece->begin = begun.node;
  return begun;
}

/* The trainable variables made since there were `before`. */
static void keep_new_variables(struct shoal_graph *g, struct stage *s, int before) {
  int n = shoal_variables(g, true, NULL, 0);
  shoal_var *all = mem_zalloc((size_t)n + 1, sizeof *all);
  shoal_variables(g, true, all, n);
  s->n_vars = n - before;
  s->vars = mem_zalloc((size_t)s->n_vars + 1, sizeof *s->vars);
  for (int i = 0; i < s->n_vars; i++) s->vars[i] = all[before + i];
  free(all);
}

static void build_forward(struct pipeline *w, int k, const shoal_out *inputs, const shoal_out *labels) {
  struct shoal_graph *g = w->g;
  const shoal_pipeline *p = w->p;
  struct stage *s = &w->stages[k];
  bool last = k == p->n_stages - 1;
  int before = shoal_variables(g, true, NULL, 0);
  shoal_sharing *copies = shoal_sharing_new();
  for (int m = 0; m < p->micro_batches && !graph_error(g); m++) {
    s->in[m] = begin_piece(g, "forward", m, k ? w->stages[k - 1].out[m] : inputs[m], &s->forward[m]);
    shoal_sharing_begin(g, copies);
    s->out[m] = p->stages[k].forward(g, s->in[m], p->stages[k].arg);
    if (last && !graph_error(g)) s->out[m] = w->losses[m] = p->loss(g, s->out[m], labels[m], p->loss_arg);
    shoal_sharing_end(g, copies);
    s->forward[m].end = s->out[m].node;
    if (!s->out[m].node && !graph_error(g)) graph_fail(g, INVALID("pipeline: stage %d gives nothing", k));
  }
  shoal_sharing_free(copies);
  if (!graph_error(g)) keep_new_variables(g, s, before);
}

/* The backward pass of one micro-batch in one stage; dy comes from the stage after. Returns what goes to the one
 * before.
 */
static shoal_out build_backward(struct pipeline *w, int k, int m, shoal_out dy) {
  struct shoal_graph *g = w->g;
  struct stage *s = &w->stages[k];
  dy = begin_piece(g, "backward", m, dy, &s->backward[m]);
  int n = s->n_vars + (k > 0);
  shoal_out *xs = mem_zalloc((size_t)n + 1, sizeof *xs);
  shoal_gradient *dxs = mem_zalloc((size_t)n + 1, sizeof *dxs);
  for (int i = 0; i < s->n_vars; i++) xs[i] = s->vars[i].handle;
  if (k > 0) xs[s->n_vars] = s->in[m];
  shoal_gradients(g, &s->out[m], 1, xs, n, &dy, dxs);
  VEC(struct shoal_node *) done = {0};
  for (int i = 0; i < n; i++) {
    if (i < s->n_vars) s->grads[m * s->n_vars + i] = dxs[i];
    if (dxs[i].values.node) vec_push(&done, dxs[i].values.node);
    if (dxs[i].indices.node) vec_push(&done, dxs[i].indices.node);
  }
  if (!done.n) vec_push(&done, s->backward[m].begin);
  s->backward[m].end = shoal_group(g, done.at, (int)done.n, "backward_done");
  shoal_out dx = k > 0 ? dxs[s->n_vars].values : (shoal_out){0};
  if (k > 0 && (!dx.node || dxs[s->n_vars].indices.node) && !graph_error(g))
    graph_fail(g, INVALID("pipeline: stage %d has no dense gradient to its input", k));
  vec_release(&done);
  free(xs);
  free(dxs);
  return dx;
}

static void follow(struct stage_piece *next, const struct stage_piece *before) {
  if (before && next->begin && before->end) graph_add_control(next->begin, before->end);
}

/* One forward, one backward: first as many forward passes as there are stages to come, then by turns. */
static void put_in_order(struct stage *s, int stages_after, int micro) {
  int ahead = stages_after < micro ? stages_after : micro;
  const struct stage_piece *before = NULL;
  for (int i = 0; i < micro + ahead; i++) {
    if (i < micro) {
      follow(&s->forward[i], before);
      before = &s->forward[i];
    }
    if (i >= ahead) {
      follow(&s->backward[i - ahead], before);
      before = &s->backward[i - ahead];
    }
  }
}

static struct shoal_node *cut(struct shoal_graph *g, shoal_out whole, int parts) {
  struct build b = build_begin(g, "Split", NULL);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  build_in(&b, whole);
  build_attr_int(&b, "num_split", parts);
  return build_end(&b);
}

static void build_stages(struct pipeline *w, shoal_out inputs, shoal_out labels) {
  struct shoal_graph *g = w->g;
  const shoal_pipeline *p = w->p;
  int micro = p->micro_batches;
  struct shoal_node *x = cut(g, inputs, micro), *y = cut(g, labels, micro);
  shoal_out *ins = mem_zalloc((size_t)micro, sizeof *ins), *marks = mem_zalloc((size_t)micro, sizeof *marks);
  for (int m = 0; m < micro; m++) ins[m] = node_out(x, m), marks[m] = node_out(y, m);
  for (int k = 0; k < p->n_stages && !graph_error(g); k++) {
    char name[32];
    snprintf(name, sizeof name, "stage_%d", k);
    graph_push_device(g, p->stages[k].device);
    if (!p->plain_names) graph_push_scope(g, name);
    build_forward(w, k, ins, marks);
    if (!p->plain_names) graph_pop_scope(g);
    graph_pop_device(g);
  }
  shoal_out *dy = marks; /* the labels are used up */
  for (int m = 0; m < micro && !graph_error(g); m++) dy[m] = build_op1(g, "OnesLike", w->losses[m]);
  for (int k = p->n_stages; k-- > 0 && !graph_error(g);) {
    struct stage *s = &w->stages[k];
    char name[32];
    snprintf(name, sizeof name, "stage_%d_back", k);
    s->grads = mem_zalloc((size_t)micro * (size_t)s->n_vars + 1, sizeof *s->grads);
    graph_push_device(g, p->stages[k].device);
    graph_push_scope(g, name);
    for (int m = 0; m < micro && !graph_error(g); m++) dy[m] = build_backward(w, k, m, dy[m]);
    graph_pop_scope(g);
    graph_pop_device(g);
    if (!graph_error(g)) put_in_order(s, p->n_stages - 1 - k, micro);
  }
  free(ins);
  free(marks);
}

static shoal_op *apply(struct pipeline *w, shoal_optimizer optimizer, shoal_var step) {
  struct shoal_graph *g = w->g;
  int n = 0, at = 0;
  for (int k = 0; k < w->p->n_stages; k++) n += w->stages[k].n_vars;
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_gradient *grads = mem_zalloc((size_t)n + 1, sizeof *grads);
  for (int k = 0; k < w->p->n_stages; k++) {
    struct stage *s = &w->stages[k];
    graph_push_device(g, w->p->stages[k].device);
    shoal_average_gradients(g, s->grads, w->p->micro_batches, s->n_vars, grads + at);
    graph_pop_device(g);
    for (int i = 0; i < s->n_vars; i++) vars[at++] = s->vars[i];
  }
  shoal_op *train = NULL;
  if (!graph_error(g))
    train = w->p->apply ? w->p->apply(g, vars, grads, n, step, w->p->apply_arg)
                        : shoal_apply_gradients(g, optimizer, vars, grads, n, step);
  free(vars);
  free(grads);
  return train;
}

static shoal_out mean_loss(struct pipeline *w) {
  struct build b = build_begin(w->g, "AddN", NULL);
  build_in_list(&b, w->losses, w->p->micro_batches);
  shoal_out sum = build_end_out(&b);
  return build_op2(w->g, "RealDiv", sum, build_const_float(w->g, out_type(sum), w->p->micro_batches));
}

/* What is given, as this version has it; stages are for the caller to free. */
static shoal_status take(const shoal_pipeline *given, shoal_pipeline *p, shoal_pipeline_stage **stages) {
  TRY(OPTIONS_TAKE(shoal_pipeline, loss_arg, p, given));
  if (p->n_stages < 1 || p->micro_batches < 1 || p->n_stages > 10000 || p->micro_batches > 10000)
    return INVALID("pipeline: %d stages and %d micro-batches", p->n_stages, p->micro_batches);
  TRY(given_array("shoal_pipeline_minimize", "stages", p->stages, p->n_stages));
  TRY(OPTIONS_TAKE_ARRAY(shoal_pipeline_stage, arg, stages, p->stages, p->n_stages, p->stage_size));
  p->stages = *stages;
  return NULL;
}

shoal_op *shoal_pipeline_minimize(shoal_graph *g, const shoal_pipeline *given, shoal_out inputs, shoal_out labels,
                                  shoal_optimizer optimizer, shoal_var step, shoal_out *loss) {
  shoal_pipeline taken = {0};
  const shoal_pipeline *p = &taken;
  shoal_pipeline_stage *stages = NULL;
  shoal_status e = take(given, &taken, &stages);
  if (e) graph_fail(g, e);
  if (loss) *loss = (shoal_out){0};
  if (graph_error(g)) {
    free(stages);
    return NULL;
  }
  struct pipeline w = {.g = g,
                       .p = p,
                       .stages = mem_zalloc((size_t)p->n_stages, sizeof *w.stages),
                       .losses = mem_zalloc((size_t)p->micro_batches, sizeof *w.losses)};
  for (int k = 0; k < p->n_stages; k++) stage_init(&w.stages[k], p->micro_batches);
  build_stages(&w, inputs, labels);
  shoal_op *train = graph_error(g) ? NULL : apply(&w, optimizer, step);
  if (loss && !graph_error(g)) *loss = mean_loss(&w);
  for (int k = 0; k < p->n_stages; k++) stage_release(&w.stages[k]);
  free(w.stages);
  free(w.losses);
  free(stages);
  return graph_error(g) ? NULL : train;
}

/* The strict mode's graph.
 *
 * On the parameter servers, shared by name:
 *   sync_rep_gradients_W_D   for worker W, on each device D that has variables: a queue of all its gradients for the
 *                            variables there, with the step they are for. One op puts them all, one takes them all.
 *   sync_rep_token_W         beside the step counter: the steps that W may go on to
 *   sync_rep_members         beside the step counter: who takes part
 * The chief takes one set of every worker, in the order of the tasks, and applies the mean of those that are for this
 * step. (Accumulators would do the adding as gradients come: in another order in each run.)
 *
 * Only task 0, which is the chief, has the chief's half. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/optimizer.h"
#include "train/sync_strict.h"
#include "train/variables.h"

/* Variables on one device. */
struct device_vars {
  struct shoal_node *at;
  VEC(int) vars;
  VEC(shoal_dtype) types; /* of a queue's components: step, then values (and indices) of each */
};

struct strict_graph {
  shoal_sync_replicas *s;
  struct shoal_graph *g;
  const shoal_var *vars;
  const shoal_gradient *grads;
  int n;
  VEC(struct device_vars) places;
};

static void sort_by_place(struct strict_graph *w) {
  for (int i = 0; i < w->n; i++) {
    if (!w->grads[i].values.node) continue;
    struct shoal_node *v = w->vars[i].handle.node;
    struct device_vars *p = NULL;
    for (size_t k = 0; k < w->places.n && !p; k++)
      if (!strcmp(w->places.at[k].at->device, v->device)) p = &w->places.at[k];
    if (!p) {
      vec_push(&w->places, (struct device_vars){.at = v});
      p = &vec_last(&w->places);
      vec_push(&p->types, SHOAL_INT64);
    }
    vec_push(&p->vars, i);
    vec_push(&p->types, out_type(w->grads[i].values));
    if (w->grads[i].indices.node) vec_push(&p->types, SHOAL_INT64);
  }
}

/* The queue of worker's gradients at places[k]; inside the place's device scope. */
static shoal_out gradient_queue(struct strict_graph *w, int worker, size_t k) {
  char name[64];
  snprintf(name, sizeof name, "sync_rep_gradients_%d_%zu", worker, k);
  return sync_queue(w->g, name, w->places.at[k].types.at, NULL, (int)w->places.at[k].types.n);
}

static shoal_out token_queue(struct strict_graph *w, int worker) {
  char name[64];
  shoal_dtype type = SHOAL_INT64;
  struct shape scalar = shape_scalar();
  snprintf(name, sizeof name, "sync_rep_token_%d", worker);
  return sync_queue(w->g, name, &type, &scalar, 1);
}

/* ---- a worker's half ---- */

static struct shoal_node *put_own(struct strict_graph *w, shoal_out tag, size_t k) {
  struct device_vars *p = &w->places.at[k];
  VEC(shoal_out) values = {0};
  sync_push_device_of(w->g, p->at);
  vec_push(&values, tag);
  for (size_t i = 0; i < p->vars.n; i++) {
    const shoal_gradient *gr = &w->grads[p->vars.at[i]];
    vec_push(&values, gr->values);
    if (gr->indices.node) vec_push(&values, build_cast(w->g, gr->indices, SHOAL_INT64));
  }
  struct shoal_node *put = sync_enqueue(w->g, gradient_queue(w, w->s->o.task, k), values.at, (int)values.n, false).node;
  graph_pop_device(w->g);
  vec_release(&values);
  return put;
}

static shoal_out read_members(struct strict_graph *w) {
  return variable_read_op(w->g, w->s->strict->members.handle, SHOAL_INT64, NULL);
}

/* Where this worker's number is. */
static shoal_out member_at(struct strict_graph *w, enum member what) {
  return build_const_int(w->g, SHOAL_INT32, (int64_t)what * w->s->o.total_replicas + w->s->o.task);
}

static struct shoal_node *set_member(struct strict_graph *w, const char *op, enum member what, shoal_out value) {
  return build_op3(w->g, op, w->s->strict->members.handle, member_at(w, what), value).node;
}

static void build_membership(struct strict_graph *w) {
  struct shoal_graph *g = w->g;
  struct strict *t = w->s->strict;
  int64_t total = w->s->o.total_replicas;
  t->members =
      variable_unsaved(g, "sync_rep_members", shoal_init_zeros(g, SHOAL_INT64, SHOAL_SHAPE(MEMBER_NUMBERS * total)));
  if (!t->members.handle.node) return;
  t->members_init = variable_initializer(g, t->members);
  t->members_there = build_op1(g, "VarIsInitializedOp", t->members.handle);
  struct shoal_node *fresh[] = {
      set_member(w, "ResourceScatterUpdate", MEMBER_ARRIVED, build_const_int(g, SHOAL_INT64, 0)),
      set_member(w, "ResourceScatterUpdate", MEMBER_HOLDS, build_const_int(g, SHOAL_INT64, -1))};
  graph_push_control(g, fresh, 2);
  t->join = set_member(w, "ResourceScatterAdd", MEMBER_JOINS, build_const_int(g, SHOAL_INT64, 1));
  graph_pop_control(g);
  t->beat = set_member(w, "ResourceScatterAdd", MEMBER_BEATS, build_const_int(g, SHOAL_INT64, 1));
  shoal_out joins =
      build_op3(g, "GatherV2", read_members(w), member_at(w, MEMBER_JOINS), build_const_int(g, SHOAL_INT32, 0));
  t->leave = set_member(w, "ResourceScatterUpdate", MEMBER_LEFT, joins);
  w->s->chief_beats = build_op3(g, "GatherV2", read_members(w), build_const_int(g, SHOAL_INT32, MEMBER_BEATS * total),
                                build_const_int(g, SHOAL_INT32, 0)); /* task 0's */
}

/* Waits for a token, says so, and keeps it. */
static struct shoal_node *take_token(struct strict_graph *w, shoal_out queue) {
  shoal_dtype type = SHOAL_INT64;
  struct shoal_node *taken = sync_dequeue(w->g, queue, &type, 1);
  if (!taken) return NULL;
  struct shoal_node *both[] = {set_member(w, "ResourceScatterUpdate", MEMBER_HOLDS, node_out(taken, 0)),
                               shoal_variable_assign(w->g, w->s->local_step, node_out(taken, 0))};
  return shoal_group(w->g, both, 2, "sync_rep_take_token");
}

static shoal_op *build_worker(struct strict_graph *w) {
  struct shoal_graph *g = w->g;
  shoal_sync_replicas *s = w->s;
  VEC(struct shoal_node *) put = {0};
  shoal_out tag = s->local_step.value;
  for (size_t k = 0; k < w->places.n; k++) vec_push(&put, put_own(w, tag, k));
  sync_push_device_of(g, s->step.handle.node);
  build_membership(w);
  shoal_out queue = token_queue(w, s->o.task);
  s->strict->take_token = take_token(w, queue);
  graph_push_control(g, put.at, (int)put.n);
  shoal_out after = build_op2(g, "AddV2", tag, build_const_int(g, SHOAL_INT64, 1));
  struct shoal_node *said = set_member(w, "ResourceScatterUpdate", MEMBER_ARRIVED, after);
  graph_push_control(g, &said, 1);
  shoal_op *train = take_token(w, queue);
  graph_pop_control(g);
  graph_pop_control(g);
  graph_pop_device(g);
  vec_release(&put);
  return train;
}

/* ---- the chief's half ---- */

/* Zeros that count for no step. */
static struct shoal_node *put_stand_in(struct strict_graph *w, shoal_out queue, size_t k) {
  struct shoal_graph *g = w->g;
  struct device_vars *p = &w->places.at[k];
  VEC(shoal_out) values = {0};
  vec_push(&values, build_const_int(g, SHOAL_INT64, -1));
  for (size_t i = 0; i < p->vars.n; i++) {
    const shoal_gradient *gr = &w->grads[p->vars.at[i]];
    struct shape shape = out_shape(w->vars[p->vars.at[i]].value);
    if (gr->indices.node) shape.dims[0] = 0;
    vec_push(&values, shoal_init_zeros(g, out_type(gr->values), (shoal_dims){shape.rank, shape.dims}));
    if (gr->indices.node) vec_push(&values, build_const_ints(g, SHOAL_INT64, NULL, 0));
  }
  struct shoal_node *put = sync_enqueue(g, queue, values.at, (int)values.n, false).node;
  vec_release(&values);
  return put;
}

/* For each worker, whether its set is for this step: a share of the mean, or nothing. */
static void weigh(struct strict_graph *w, struct shoal_node **sets, shoal_out step, shoal_out *shares) {
  struct shoal_graph *g = w->g;
  int total = w->s->o.total_replicas;
  struct build b = build_begin(g, "AddN", NULL);
  for (int i = 0; i < total; i++) {
    shares[i] = build_cast(g, build_op2(g, "Equal", node_out(sets[i], 0), step), SHOAL_FLOAT32);
    build_in(&b, shares[i]);
  }
  shoal_out count = build_op2(g, "Maximum", build_end_out(&b), build_const_float(g, SHOAL_FLOAT32, 1));
  for (int i = 0; i < total; i++) shares[i] = build_op2(g, "RealDiv", shares[i], count);
}

/* Component c of worker's set, for variable var, times its share. Queues do not know shapes. */
static shoal_out share_of(struct strict_graph *w, struct shoal_node *set, int c, int var, shoal_out share) {
  struct shape shape = out_shape(w->vars[var].value);
  if (w->grads[var].indices.node) shape.dims[0] = -1;
  struct build e = build_begin(w->g, "EnsureShape", NULL);
  build_in(&e, node_out(set, c));
  build_attr_shape(&e, "shape", &shape);
  return build_op2(w->g, "Mul", build_end_out(&e), build_cast(w->g, share, out_type(w->grads[var].values)));
}

/* The mean of one variable's gradients, whose values are component c of the sets. */
static shoal_gradient mean(struct strict_graph *w, struct shoal_node **sets, const shoal_out *shares, int c, int var) {
  struct shoal_graph *g = w->g;
  int total = w->s->o.total_replicas;
  bool sparse = w->grads[var].indices.node;
  if (sparse && total == 1) /* nothing to join */
    return (shoal_gradient){.values = share_of(w, sets[0], c, var, shares[0]), .indices = node_out(sets[0], c + 1)};
  struct build v = build_begin(g, sparse ? "ConcatV2" : "AddN", NULL);
  for (int i = 0; i < total; i++) build_in(&v, share_of(w, sets[i], c, var, shares[i]));
  if (!sparse) return (shoal_gradient){.values = build_end_out(&v)};
  shoal_out axis = build_const_int(g, SHOAL_INT32, 0);
  struct build x = build_begin(g, "ConcatV2", NULL);
  for (int i = 0; i < total; i++) build_in(&x, node_out(sets[i], c + 1));
  build_in(&v, axis);
  build_in(&x, axis);
  return (shoal_gradient){.values = build_end_out(&v), .indices = build_end_out(&x)};
}

static void build_place(struct strict_graph *w, size_t k, shoal_gradient *means, struct shoal_node **stand_ins,
                        struct shoal_node **drops, shoal_out *sizes) {
  struct shoal_graph *g = w->g;
  struct device_vars *p = &w->places.at[k];
  int total = w->s->o.total_replicas;
  struct shoal_node **sets = mem_zalloc((size_t)total, sizeof *sets);
  shoal_out *shares = mem_zalloc((size_t)total, sizeof *shares);
  sync_push_device_of(g, p->at);
  for (int i = 0; i < total && !graph_error(g); i++) {
    shoal_out queue = gradient_queue(w, i, k);
    sets[i] = sync_dequeue(g, queue, p->types.at, (int)p->types.n);
    drops[i] = sync_dequeue(g, queue, p->types.at, (int)p->types.n);
    stand_ins[i] = put_stand_in(w, queue, k);
    sizes[i] = build_op1(g, "QueueSizeV2", queue);
  }
  if (!graph_error(g)) weigh(w, sets, w->s->step.value, shares);
  int c = 1;
  for (size_t i = 0; i < p->vars.n && !graph_error(g); i++) {
    int var = p->vars.at[i];
    means[var] = mean(w, sets, shares, c, var);
    c += w->grads[var].indices.node ? 2 : 1;
  }
  graph_pop_device(g);
  free(sets);
  free(shares);
}

/* v[i:i+1] */
static shoal_out slice_one(struct shoal_graph *g, shoal_out v, int64_t i) {
  return build_op3(g, "Slice", v, build_const_ints(g, SHOAL_INT32, &i, 1),
                   build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
}

static void build_chief(struct strict_graph *w) {
  struct shoal_graph *g = w->g;
  shoal_sync_replicas *s = w->s;
  size_t total = (size_t)s->o.total_replicas, places = w->places.n;
  s->strict->workers = mem_zalloc(total, sizeof *s->strict->workers);
  shoal_gradient *means = mem_zalloc((size_t)w->n + 1, sizeof *means);
  struct shoal_node **stand_ins = mem_zalloc(total * places, sizeof *stand_ins);
  struct shoal_node **drops = mem_zalloc(total * places, sizeof *drops);
  shoal_out *sizes = mem_zalloc(total * places, sizeof *sizes);
  for (size_t k = 0; k < places && !graph_error(g); k++)
    build_place(w, k, means, stand_ins + k * total, drops + k * total, sizes + k * total);
  sync_push_device_of(g, s->step.handle.node);
  graph_push_scope_root(g);
  struct shoal_node *update = shoal_apply_gradients(g, s->optimizer, w->vars, means, w->n, s->step);
  s->strict->active_fed = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE((int64_t)total), "sync_rep_active");
  VEC(struct shoal_node *) invited = {0};
  VEC(struct shoal_node *) of_worker = {0};
  shoal_dtype type = SHOAL_INT64;
  for (size_t i = 0; i < total && !graph_error(g); i++) {
    struct strict_worker *one = &s->strict->workers[i];
    shoal_out queue = token_queue(w, (int)i);
    shoal_out now = variable_read_op(g, s->step.handle, SHOAL_INT64, NULL);
    one->invite = sync_enqueue(g, queue, &now, 1, false).node;
    graph_push_control(g, &update, 1);
    shoal_out next = variable_read_op(g, s->step.handle, SHOAL_INT64, NULL);
    next = build_op2(g, "Fill", slice_one(g, s->strict->active_fed, (int64_t)i), next);
    vec_push(&invited, sync_enqueue(g, queue, &next, 1, true).node);
    graph_pop_control(g);
    one->drop_token = sync_dequeue(g, queue, &type, 1);
    of_worker.n = 0;
    for (size_t k = 0; k < places; k++) vec_push(&of_worker, stand_ins[k * total + i]);
    one->stand_in = shoal_group(g, of_worker.at, (int)of_worker.n, "sync_rep_stand_in");
    of_worker.n = 0;
    for (size_t k = 0; k < places; k++) vec_push(&of_worker, drops[k * total + i]);
    one->drop = shoal_group(g, of_worker.at, (int)of_worker.n, "sync_rep_drop");
    struct build p = build_begin(g, "Pack", NULL);
    build_in(&p, sizes[i]);
    build_in(&p, build_op1(g, "QueueSizeV2", queue));
    one->waiting = build_end_out(&p);
  }
  s->chief_op = shoal_group(g, invited.at, (int)invited.n, "sync_rep_step");
  graph_pop_scope(g);
  graph_pop_device(g);
  vec_release(&invited);
  vec_release(&of_worker);
  free(means);
  free(stand_ins);
  free(drops);
  free(sizes);
}

shoal_op *strict_build(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n) {
  struct strict_graph w = {.s = s, .g = s->g, .vars = vars, .grads = grads, .n = n};
  s->strict = mem_zalloc(1, sizeof *s->strict);
  pthread_mutex_init(&s->strict->lock, NULL);
  if (out_type(s->step.value) != SHOAL_INT64) graph_fail(s->g, INVALID("strict training: the step must be int64"));
  s->local_step = shoal_variable_local(s->g, "sync_rep_local_step", build_const_int(s->g, SHOAL_INT64, 0));
  sort_by_place(&w);
  shoal_op *train = graph_error(s->g) ? NULL : build_worker(&w);
  if (s->o.task == 0 && !graph_error(s->g)) build_chief(&w);
  for (size_t k = 0; k < w.places.n; k++) {
    vec_release(&w.places.at[k].vars);
    vec_release(&w.places.at[k].types);
  }
  vec_release(&w.places);
  return train;
}

/* One program that trains one model anywhere: in this process, by several replicas in it, by replicas in several
 * workers (all-reduce), by workers that share parameter servers, or in stages on several workers (a pipeline).
 *
 * The model is two functions, `forward` for the stages and `loss` behind them; where there are no stages all of them
 * are built one behind the other in each replica, so the model is written once. What the trained model is used for at
 * the end is done by the chief, on a copy in its own process (struct own_copy), wherever the variables are. */
#ifndef EXAMPLES_ANYWHERE_H
#define EXAMPLES_ANYWHERE_H

#include "learning.h"

enum { MOST_DEVICES = 64, MOST_STAGES = 1000, MODEL_INPUTS = 2 };

/* ---- where ---- */

struct anywhere {
  struct cluster_flags flags;
  int64_t devices, stages, micro_batches;
  shoal_cluster *cluster;
  shoal_server *server;
  shoal_strategy *strategy; /* NULL: stages */
  bool is_chief;
  int task, tasks; /* that feed batches */
  bool on_servers; /* parameters are on parameter servers: every worker has a position of its own in the input */
  char label[64], device[DEVICE_NAME];
};
#define ANYWHERE_FLAGS(a)                                                                                    \
  CLUSTER_FLAGS((a).flags),                                                                                  \
      flag_between("devices", "replicas of this process, without a cluster", &(a).devices, 1, MOST_DEVICES), \
      flag_between("stages", "the layers in so many parts, on the workers in turn; 0: all of them in each",  \
                   &(a).stages, 0, MOST_STAGES),                                                             \
      flag_between("micro_batches", "into which a batch is cut, with --stages", &(a).micro_batches, 1, 1000)

static inline void check_anywhere(const struct anywhere *a, int64_t batch, int64_t most_stages) {
  if (a->stages > most_stages) refuse("--stages: a stage has a layer at least, and there are fewer");
  if (a->stages && batch % a->micro_batches) refuse("--batch must be a multiple of --micro_batches");
  if (a->stages && a->devices > 1) refuse("--devices is for replicas, --stages for parts of one model: one of them");
}

static inline shoal_strategy *replicas_here(const struct anywhere *a, const char *device) {
  shoal_strategy *strategy = NULL;
  static char names[MOST_DEVICES][DEVICE_NAME];
  const char *devices[MOST_DEVICES];
  for (int i = 0; i < (int)a->devices; i++) {
    name_device(device ? device : "CPU", "", i, names[i]);
    devices[i] = names[i];
  }
  if (a->devices == 1) check_given(shoal_strategy_new_one_device(devices[0], NULL, &strategy));
  else check_given(shoal_strategy_new_mirrored(devices, (int)a->devices, NULL, &strategy));
  return strategy;
}

static inline shoal_strategy *replicas_of_cluster(struct anywhere *a) {
  shoal_strategy *strategy = NULL;
  a->on_servers = shoal_cluster_tasks(a->cluster, "ps") > 0;
  a->tasks = shoal_cluster_tasks(a->cluster, "worker") + shoal_cluster_tasks(a->cluster, "chief");
  a->task = shoal_cluster_task(a->cluster);
  if (!strcmp(shoal_cluster_job(a->cluster), "worker")) a->task += shoal_cluster_tasks(a->cluster, "chief");
  check_given((a->on_servers ? shoal_strategy_new_parameter_server : shoal_strategy_new_multi_worker)(
      a->cluster, a->server, SHOAL_OPTIONS(shoal_strategy_options, .task_device = a->device), &strategy));
  return strategy;
}

/* Finds out what this task is, and tells the loop. Tasks that only serve stay in here. */
static inline void find_place(struct anywhere *a, struct steps *s) {
  a->cluster = find_cluster(&a->flags);
  a->is_chief = !a->cluster || shoal_cluster_is_chief(a->cluster);
  a->tasks = 1;
  check_task_device(a->cluster, s->device, (int)a->devices);
  name_device(s->device ? s->device : "CPU", "", 0, a->device);
  if (a->cluster && a->devices > 1) refuse("--devices is for a process without a cluster; start more workers");
  if (a->cluster && a->stages && shoal_cluster_tasks(a->cluster, "ps"))
    refuse("--stages needs no parameter servers: shoal launch --ps=0");
  if (a->cluster) {
    a->server = start_server(a->cluster, &a->flags);
    if (a->stages && !a->is_chief) exit(shoal_server_serve(a->server)); /* for the chief, until that is done */
    snprintf(a->label, sizeof a->label, "%s %d: ", shoal_cluster_job(a->cluster), shoal_cluster_task(a->cluster));
    s->label = a->label;
  }
  if (!a->stages) a->strategy = a->cluster ? replicas_of_cluster(a) : replicas_here(a, s->device);
  s->strategy = a->strategy;
  s->server = a->strategy ? NULL : a->server;
}

/* How many replicas' batches this task feeds in a step. */
static inline int replicas_fed(const struct anywhere *a) {
  return a->strategy ? shoal_strategy_local_replicas(a->strategy) : 1;
}

static inline void leave_place(struct anywhere *a) {
  if (a->stages && a->cluster) stop_others(a->cluster);
  shoal_strategy_free(a->strategy);
  shoal_server_stop(a->server);
  shoal_cluster_free(a->cluster);
}

/* ---- the model ---- */

struct model {
  /* Part number `part` of `parts`, from what the one before gives, or the input. */
  shoal_out (*forward)(shoal_graph *g, shoal_out in, int part, int parts, void *arg);
  void (*seed)(void *arg, shoal_out seed); /* for dropout; NULL: none */
  void *arg;
  const struct learning *learning;
  const char *device;         /* the flag --device */
  shoal_out in[MODEL_INPUTS]; /* what steps are fed, and its labels */
  struct watched watched;
  shoal_op *train;
};

static inline void give_seed(shoal_graph *g, const struct model *m) {
  if (m->seed) m->seed(m->arg, shoal_step_seed(g, shoal_global_step(g)));
}

enum { REPLICA_OUT = 3 };

/* One replica; out: the loss of all, the norm of its own gradients, the rate. */
static inline shoal_op *build_replica(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out,
                                      void *arg) {
  const struct model *m = (const struct model *)arg;
  struct watched w;
  memset(&w, 0, sizeof w);
  give_seed(g, m);
  shoal_out logits = m->forward(g, in[0], 0, 1, m->arg);
  shoal_push_scope(g, "logits");
  logits = shoal_identity(g, logits); /* logits/Identity, for whoever reads the graph */
  shoal_pop_scope(g);
  w.loss = mean_cross_entropy(g, logits, in[1], m->learning);
  out[0] = shoal_replica_reduce(r, SHOAL_REDUCE_MEAN, w.loss);
  shoal_op *train = minimize(g, m->learning, &w);
  out[1] = w.norm;
  out[2] = w.rate;
  return train;
}

static inline void build_replicas(shoal_graph *g, struct model *m, shoal_strategy *strategy) {
  int local = shoal_strategy_local_replicas(strategy);
  shoal_out *in = (shoal_out *)calloc((size_t)local * MODEL_INPUTS, sizeof *in);
  shoal_out *out = (shoal_out *)calloc((size_t)local * REPLICA_OUT, sizeof *out);
  if (!in || !out) refuse("no memory for so many replicas");
  for (int i = 0; i < MODEL_INPUTS; i++) shoal_strategy_split(g, strategy, m->in[i], in + i, MODEL_INPUTS);
  m->train = shoal_strategy_run(g, strategy, build_replica, m, in, MODEL_INPUTS, out, REPLICA_OUT);
  m->watched.loss = out[0];
  m->watched.norm = out[1];
  m->watched.rate = out[2];
  free(in);
  free(out);
}

struct stage {
  const struct model *model;
  int part, parts;
  char device[DEVICE_NAME];
};

static inline shoal_out stage_forward(shoal_graph *g, shoal_out in, void *arg) {
  const struct stage *s = (const struct stage *)arg;
  return s->model->forward(g, in, s->part, s->parts, s->model->arg);
}

static inline shoal_out stage_loss(shoal_graph *g, shoal_out logits, shoal_out labels, void *arg) {
  return mean_cross_entropy(g, logits, labels, ((const struct model *)arg)->learning);
}

static inline shoal_op *apply_stages(shoal_graph *g, const shoal_var *vars, shoal_gradient *grads, int n,
                                     shoal_var step, void *arg) {
  struct model *m = (struct model *)arg;
  return apply_clipped(g, m->learning, vars, grads, n, step, &m->watched);
}

static inline void build_stages(shoal_graph *g, struct model *m, const struct anywhere *a) {
  int n = (int)a->stages, workers = a->cluster ? shoal_cluster_tasks(a->cluster, "worker") : 1;
  struct stage *parts = (struct stage *)calloc((size_t)n, sizeof *parts);
  shoal_pipeline_stage *stages = (shoal_pipeline_stage *)calloc((size_t)n, sizeof *stages);
  if (!parts || !stages) refuse("no memory for so many --stages");
  for (int i = 0; i < n; i++) {
    char task[32] = "";
    if (a->cluster) snprintf(task, sizeof task, "/job:worker/task:%d", i * workers / n);
    parts[i].model = m;
    parts[i].part = i;
    parts[i].parts = n;
    name_device(m->device ? m->device : "CPU", task, 0, parts[i].device);
    stages[i].device = parts[i].device;
    stages[i].forward = stage_forward;
    stages[i].arg = &parts[i];
  }
  shoal_push_device(g, parts[0].device);
  shoal_var step = shoal_global_step(g);
  give_seed(g, m);
  m->train = shoal_pipeline_minimize(
      g,
      SHOAL_OPTIONS(shoal_pipeline, .stages = stages, .n_stages = n, .micro_batches = (int)a->micro_batches,
                    .loss = stage_loss, .loss_arg = m, .plain_names = 1, .apply = apply_stages, .apply_arg = m),
      m->in[0], m->in[1], shoal_sgd(0), step, &m->watched.loss);
  shoal_pop_device(g);
  free(parts);
  free(stages);
}

/* Builds what trains the model; m->in is made by the caller. */
static inline void build_anywhere(shoal_graph *g, struct model *m, const struct anywhere *a) {
  if (a->strategy) build_replicas(g, m, a->strategy);
  else build_stages(g, m, a);
}

/* Where this task is in its input: by the step that all share, or, on parameter servers, by its own count. */
static inline shoal_input input_anywhere(shoal_graph *g, const struct anywhere *a) {
  shoal_input position = {shoal_global_step(g).value, NULL};
  if (!a->on_servers) return position;
  shoal_push_strategy(g, a->strategy);
  position = shoal_input_position(g, a->task);
  shoal_pop_strategy(g, a->strategy);
  return position;
}

/* ---- the trained model, in this process ---- */

/* A copy in a graph of its own. Between own_begin and own_end the caller builds what it needs of the model. */
struct own_copy {
  shoal_graph *g;
  const shoal_graph *trained;
  shoal_var *vars;
  shoal_out *value; /* what sets them is fed here */
  shoal_op **set, *begin;
  int n;
};

static inline void own_begin(struct own_copy *o, const shoal_graph *trained, const char *device) {
  memset(o, 0, sizeof *o);
  o->trained = trained;
  o->g = shoal_graph_new();
  push_device(o->g, device);
}

static inline void own_end(struct own_copy *o) {
  o->n = shoal_variables(o->g, true, NULL, 0);
  o->vars = (shoal_var *)calloc((size_t)o->n + 1, sizeof *o->vars);
  o->value = (shoal_out *)calloc((size_t)o->n + 1, sizeof *o->value);
  o->set = (shoal_op **)calloc((size_t)o->n + 1, sizeof *o->set);
  if (!o->vars || !o->value || !o->set) refuse("no memory for a copy of the model");
  shoal_variables(o->g, true, o->vars, o->n);
  for (int i = 0; i < o->n; i++) {
    int64_t dims[SHOAL_MAX_RANK];
    shoal_dims shape = {shoal_out_shape(o->vars[i].value, dims), dims};
    o->value[i] = shoal_placeholder(o->g, shoal_out_dtype(o->vars[i].value), shape, NULL);
    o->set[i] = shoal_variable_assign(o->g, o->vars[i], o->value[i]);
  }
  o->begin = shoal_initialize_local(o->g);
  shoal_pop_device(o->g);
  if (shoal_graph_error(o->g)) exit(shoal_report(o->g));
}

/* A trained variable's value in the other graph, by its name. */
static inline shoal_out trained_value(const shoal_graph *g, const char *name) {
  static shoal_var vars[MOST_VARIABLES];
  int n = shoal_variables(g, true, vars, MOST_VARIABLES);
  for (int i = 0; i < n; i++)
    if (!strcmp(shoal_op_name(vars[i].handle.node), name)) return vars[i].value;
  fprintf(stderr, "%s: the trained model has no variable %s\n", program_name, name);
  exit(1);
}

/* A session with the values that the trained model has. */
static inline shoal_session *own_session(const struct own_copy *o, shoal_session *trained) {
  shoal_session *session = NULL;
  check(shoal_session_open(o->g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &session));
  for (int i = 0; i < o->n; i++) {
    shoal_tensor *value = NULL;
    const char *name = shoal_op_name(o->vars[i].handle.node);
    check(shoal_session_step(trained, SHOAL_NO_FEEDS, SHOAL_FETCH(trained_value(o->trained, name), &value), NULL));
    check(shoal_session_step(session, SHOAL_FEED(o->value[i], value), SHOAL_NO_FETCHES, o->set[i]));
    shoal_tensor_unref(value);
  }
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, o->begin));
  return session;
}

static inline void own_release(struct own_copy *o) {
  if (o->g) shoal_graph_free(o->g);
  free(o->vars);
  free(o->value);
  free(o->set);
}

#endif

/* A language model of bytes, as GPT-2 is built, trained on any text: in one process, by several of them, or with its
 * layers on several tasks. The same program is every task:
 *
 *   gpt --data=book.txt --checkpoint_dir=out --sample=500                        one process
 *   gpt --data=book.txt --devices=2                                              two replicas in it, all-reduce
 *   shoal launch --ps=0 --workers=2 -- gpt --data=book.txt                       a replica in each worker, all-reduce
 *   shoal launch --ps=1 --workers=2 -- gpt --data=book.txt                       on parameter servers, asynchronously
 *   shoal launch --ps=0 --workers=2 -- gpt --data=book.txt --stages=2            half of the layers in each (pipeline)
 *
 * Without --data it reads the King James Bible, where Debian's package bible-kjv is installed. Checkpoints are the same
 * in all of them, under GPT-2's published names (gpt2.h), and TensorFlow reads them. The chief writes the sample: on a
 * model of its own, in its own process, which gets the trained one's values, wherever those are.
 *
 * In a pipeline logits have a table of their own, since the tokens' is on another task (--untied has it elsewhere). */
#include "language.h"

struct settings {
  struct gpt2 model;
  struct steps steps;
  struct learning learning;
  struct writing writing;
  struct cluster_flags where;
  const char *dtype, *data, *init_checkpoint;
  int64_t batch, seed, devices, stages, micro_batches;
};

static void read_settings(int argc, char **argv, struct settings *s) {
  const struct flag flags[] = {
      flag_path("data", "any text; none: the King James Bible of Debian's package bible-kjv", &s->data),
      GPT2_FLAGS(s->model),
      flag_on("untied", "logits have a table of their own", &s->model.untied),
      flag_number("batch", "examples a step, each of --context bytes, of each replica", &s->batch, 1),
      flag_text("dtype", "float32 or bfloat16, of activations; variables are float32", &s->dtype),
      LEARNING_FLAGS(s->learning),
      STEPS_FLAGS(s->steps),
      CLUSTER_FLAGS(s->where),
      flag_between("devices", "replicas of this process, without a cluster", &s->devices, 1, 64),
      flag_between("stages", "the layers in so many parts, on the workers in turn; 0: all of them in each", &s->stages,
                   0, 1000),
      flag_between("micro_batches", "into which a batch is cut, with --stages", &s->micro_batches, 1, 1000),
      flag_path("init_checkpoint", "begin with the variables of this one, as published", &s->init_checkpoint),
      WRITING_FLAGS(s->writing),
      flag_number("seed", "of initial values, batches and samples", &s->seed, 0),
      flags_end(),
  };
  read_flags(argc, argv, "gpt: trains a language model of bytes, and writes text by it", flags);
  check_save(&s->steps.save, s->steps.checkpoint_dir);
  s->model.dtype = read_dtype(s->dtype);
  check_model(&s->model, &s->learning);
  s->learning.last = s->steps.last;
  s->writing.seed = s->seed;
  if (s->stages && s->stages > s->model.layers) refuse("--stages: a stage has a layer at least, and there are fewer");
  if (s->stages && s->batch % s->micro_batches) refuse("--batch must be a multiple of --micro_batches");
  if (s->stages && s->devices > 1) refuse("--devices is for replicas, --stages for parts of one model: one of them");
  s->model.untied = s->model.untied || s->stages > 1;
}

/* ---- the text ---- */

#define BIBLE "bible -f 'gen1:1-rev22:21' 2>/dev/null"

/* What that prints, without the number of each verse, to a file of no name. */
static bool copy_bible(FILE *to) {
  FILE *from = popen(BIBLE, "r"); /* NOLINT(cert-env33-c): a command that is written here */
  if (!from) return false;
  int c;
  for (bool number = true; (c = getc(from)) != EOF;) {
    if (!number) putc(c, to);
    number = c == '\n' || (number && c != ' ');
  }
  return pclose(from) == 0 && !fflush(to) && ftell(to) > 0;
}

static struct tokens open_text(const char *path, int64_t context) {
  if (path) {
    struct tokens t = open_tokens(path, 0, context);
    if (!t.text) refuse_file(path, "these are tokens, not text: gpt2 reads them");
    return t;
  }
  char name[32];
  FILE *f = tmpfile(); /* stays open: the text is mapped until the program ends */
  if (!f || !copy_bible(f)) refuse("no text: --data=FILE says one; Debian's package bible-kjv brings one of 4 MB");
  snprintf(name, sizeof name, "/proc/self/fd/%d", fileno(f));
  struct tokens t = open_tokens(name, 0, context);
  t.path = "the King James Bible";
  return t;
}

/* ---- where it runs ---- */

struct place {
  shoal_cluster *cluster;
  shoal_server *server;
  shoal_strategy *strategy; /* NULL: stages */
  bool is_chief;
  int task, tasks; /* that feed batches */
  bool on_servers; /* parameters are on parameter servers: every worker has a position of its own in the input */
  char label[64], device[DEVICE_NAME];
};

static shoal_strategy *replicas_here(const struct settings *s, const char *device) {
  shoal_strategy *strategy = NULL;
  static char names[64][DEVICE_NAME];
  const char *devices[64];
  if (s->devices == 1) check_given(shoal_strategy_new_one_device(device, NULL, &strategy));
  else {
    for (int i = 0; i < (int)s->devices; i++) {
      name_device(s->steps.device ? s->steps.device : "CPU", "", i, names[i]);
      devices[i] = names[i];
    }
    check_given(shoal_strategy_new_mirrored(devices, (int)s->devices, NULL, &strategy));
  }
  return strategy;
}

static shoal_strategy *replicas_of_cluster(struct place *p) {
  shoal_strategy *strategy = NULL;
  p->on_servers = shoal_cluster_tasks(p->cluster, "ps") > 0;
  p->tasks = shoal_cluster_tasks(p->cluster, "worker") + shoal_cluster_tasks(p->cluster, "chief");
  p->task = shoal_cluster_task(p->cluster);
  if (!strcmp(shoal_cluster_job(p->cluster), "worker")) p->task += shoal_cluster_tasks(p->cluster, "chief");
  check_given((p->on_servers ? shoal_strategy_new_parameter_server : shoal_strategy_new_multi_worker)(
      p->cluster, p->server, SHOAL_OPTIONS(shoal_strategy_options, .task_device = p->device), &strategy));
  return strategy;
}

/* Finds out what this task is. Tasks that only serve stay in here. */
static void find_place(struct settings *s, struct place *p) {
  memset(p, 0, sizeof *p);
  p->cluster = find_cluster(&s->where);
  p->is_chief = !p->cluster || shoal_cluster_is_chief(p->cluster);
  p->tasks = 1;
  check_device(s->steps.device, (int)s->devices);
  name_device(s->steps.device ? s->steps.device : "CPU", "", 0, p->device);
  if (p->cluster && s->devices > 1) refuse("--devices is for a process without a cluster; start more workers");
  if (p->cluster && s->stages && shoal_cluster_tasks(p->cluster, "ps"))
    refuse("--stages needs no parameter servers: shoal launch --ps=0");
  if (p->cluster) {
    p->server = start_server(p->cluster, &s->where);
    if (s->stages && !p->is_chief) exit(shoal_server_serve(p->server)); /* for the chief, until that is done */
    snprintf(p->label, sizeof p->label, "%s %d: ", shoal_cluster_job(p->cluster), shoal_cluster_task(p->cluster));
    s->steps.label = p->label;
  }
  if (!s->stages) p->strategy = p->cluster ? replicas_of_cluster(p) : replicas_here(s, p->device);
  s->steps.strategy = p->strategy;
  s->steps.server = p->strategy ? NULL : p->server;
}

/* ---- training ---- */

struct training {
  struct settings *s;
  shoal_out in[2]; /* bytes, and those that follow: [batch, context] */
  struct watched watched;
  shoal_op *train;
};

enum { REPLICA_OUT = 3 };

/* One replica; out: the loss of all, the norm of its own gradients, the rate. */
static shoal_op *replica(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  struct settings *s = ((struct training *)arg)->s;
  struct gpt2 m = s->model;
  if (m.dropout > 0) m.seed = shoal_step_seed(g, shoal_global_step(g));
  struct gpt2_copy c = gpt2_training(&m, g);
  struct watched w;
  memset(&w, 0, sizeof w);
  shoal_out logits = gpt2_logits(&c, in[0]);
  shoal_push_scope(g, "logits");
  logits = shoal_identity(g, logits); /* logits/Identity, for whoever reads the graph */
  shoal_pop_scope(g);
  w.loss = language_loss(g, logits, in[1], &s->learning);
  out[0] = shoal_replica_reduce(r, SHOAL_REDUCE_MEAN, w.loss);
  shoal_op *train = minimize(g, &s->learning, &w);
  out[1] = w.norm;
  out[2] = w.rate;
  return train;
}

static void build_replicas(shoal_graph *g, struct training *t, shoal_strategy *strategy) {
  int local = shoal_strategy_local_replicas(strategy);
  shoal_out *in = (shoal_out *)calloc((size_t)local * 2, sizeof *in);
  shoal_out *out = (shoal_out *)calloc((size_t)local * REPLICA_OUT, sizeof *out);
  if (!in || !out) refuse("no memory for so many replicas");
  for (int i = 0; i < 2; i++) shoal_strategy_split(g, strategy, t->in[i], in + i, 2);
  t->train = shoal_strategy_run(g, strategy, replica, t, in, 2, out, REPLICA_OUT);
  t->watched.loss = out[0];
  t->watched.norm = out[1];
  t->watched.rate = out[2];
  free(in);
  free(out);
}

/* ---- in stages ---- */

struct stage {
  struct gpt2 *model;
  int first, last; /* layers */
};

/* A stage of a micro-batch: bytes come into the first one, logits out of the last. */
static shoal_out forward(shoal_graph *g, shoal_out h, void *arg) {
  const struct stage *s = (const struct stage *)arg;
  struct gpt2_copy c = gpt2_training(s->model, g);
  shoal_var table = {{NULL, 0}, {NULL, 0}};
  if (!s->first) h = gpt2_begin(&c, h, &table);
  for (int i = s->first; i < s->last; i++) h = gpt2_layer(&c, h, i);
  return s->last == s->model->layers ? gpt2_end(&c, h, table) : h;
}

static shoal_out stage_loss(shoal_graph *g, shoal_out logits, shoal_out next, void *arg) {
  return language_loss(g, logits, next, (const struct learning *)arg);
}

static shoal_op *apply_stages(shoal_graph *g, const shoal_var *vars, shoal_gradient *grads, int n, shoal_var step,
                              void *arg) {
  struct training *t = (struct training *)arg;
  return apply_clipped(g, &t->s->learning, vars, grads, n, step, &t->watched);
}

static void build_stages(shoal_graph *g, struct training *t, const struct place *p) {
  struct settings *s = t->s;
  struct gpt2 *m = &s->model;
  int n = (int)s->stages, workers = p->cluster ? shoal_cluster_tasks(p->cluster, "worker") : 1;
  struct stage *parts = (struct stage *)calloc((size_t)n, sizeof *parts);
  shoal_pipeline_stage *stages = (shoal_pipeline_stage *)calloc((size_t)n, sizeof *stages);
  char(*devices)[DEVICE_NAME] = (char(*)[DEVICE_NAME])calloc((size_t)n, sizeof *devices);
  if (!parts || !stages || !devices) refuse("no memory for so many --stages");
  for (int i = 0; i < n; i++) {
    char task[32] = "";
    if (p->cluster) snprintf(task, sizeof task, "/job:worker/task:%d", i * workers / n);
    name_device(s->steps.device ? s->steps.device : "CPU", task, 0, devices[i]);
    struct stage part = {m, i * (int)m->layers / n, (i + 1) * (int)m->layers / n};
    shoal_pipeline_stage stage = {devices[i], forward, &parts[i]};
    parts[i] = part;
    stages[i] = stage;
  }
  shoal_push_device(g, devices[0]);
  shoal_var step = shoal_global_step(g);
  if (m->dropout > 0) m->seed = shoal_step_seed(g, step);
  t->train = shoal_pipeline_minimize(
      g,
      SHOAL_OPTIONS(shoal_pipeline, .stages = stages, .n_stages = n, .micro_batches = (int)s->micro_batches,
                    .loss = stage_loss, .loss_arg = &s->learning, .plain_names = true, .apply = apply_stages,
                    .apply_arg = t),
      t->in[0], t->in[1], shoal_sgd(0), step, &t->watched.loss);
  shoal_pop_device(g);
  free(parts);
  free(stages);
  free(devices);
}

/* ---- writing ---- */

/* The writer's model, in a graph and a session of its own. */
struct own_writer {
  struct writer writer;
  shoal_graph *g, *trained;
  shoal_var *vars;
  shoal_out *value; /* what sets them is fed here */
  shoal_op **set, *begin;
  int n;
  const char *device;
};

static void build_own(struct own_writer *o) {
  o->g = shoal_graph_new();
  push_device(o->g, o->device);
  build_writer(o->g, &o->writer, NULL);
  o->n = shoal_variables(o->g, true, NULL, 0);
  o->vars = (shoal_var *)calloc((size_t)o->n + 1, sizeof *o->vars);
  o->value = (shoal_out *)calloc((size_t)o->n + 1, sizeof *o->value);
  o->set = (shoal_op **)calloc((size_t)o->n + 1, sizeof *o->set);
  if (!o->vars || !o->value || !o->set) refuse("no memory for what is written");
  shoal_variables(o->g, true, o->vars, o->n);
  for (int i = 0; i < o->n; i++) {
    int64_t dims[SHOAL_MAX_RANK];
    int rank = shoal_out_shape(o->vars[i].value, dims);
    shoal_dims shape = {rank, dims};
    o->value[i] = shoal_placeholder(o->g, shoal_out_dtype(o->vars[i].value), shape, NULL);
    o->set[i] = shoal_variable_assign(o->g, o->vars[i], o->value[i]);
  }
  o->begin = shoal_initialize_local(o->g);
  shoal_pop_device(o->g);
}

/* A trained variable's value in the other graph, by its name. */
static shoal_out trained_value(const shoal_graph *g, const char *name) {
  static shoal_var vars[MOST_VARIABLES];
  int n = shoal_variables(g, true, vars, MOST_VARIABLES);
  for (int i = 0; i < n; i++)
    if (!strcmp(shoal_op_name(vars[i].handle.node), name)) return vars[i].value;
  fprintf(stderr, "%s: the trained model has no variable %s\n", program_name, name);
  exit(1);
}

static void write_own(shoal_session *trained, void *arg) {
  struct own_writer *o = (struct own_writer *)arg;
  shoal_session *session = NULL;
  shoal_session_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.allow_soft_placement = true;
  check(shoal_session_open(o->g, &options, &session));
  for (int i = 0; i < o->n; i++) {
    shoal_tensor *value = NULL;
    const char *name = shoal_op_name(o->vars[i].handle.node);
    check(shoal_session_step(trained, SHOAL_NO_FEEDS, SHOAL_FETCH(trained_value(o->trained, name), &value), NULL));
    check(shoal_session_step(session, SHOAL_FEED(o->value[i], value), SHOAL_NO_FETCHES, o->set[i]));
    shoal_tensor_unref(value);
  }
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, o->begin));
  write_text(session, &o->writer);
  shoal_status_free(shoal_session_close(session));
}

static void release_own(struct own_writer *o) {
  writer_release(&o->writer);
  if (o->g) shoal_graph_free(o->g);
  free(o->vars);
  free(o->value);
  free(o->set);
}

/* ---- all of it ---- */

/* Where this task is in its input: by the step that all share, or, on parameter servers, by its own count. */
static shoal_input input_of(shoal_graph *g, const struct place *p) {
  shoal_input position = {shoal_global_step(g).value, NULL};
  if (!p->on_servers) return position;
  shoal_push_strategy(g, p->strategy);
  position = shoal_input_position(g, p->task);
  shoal_pop_strategy(g, p->strategy);
  return position;
}

static shoal_status train(struct settings *s, const struct place *p, const struct tokens *tokens) {
  int local = p->strategy ? shoal_strategy_local_replicas(p->strategy) : 1;
  s->steps.consumed = s->batch * s->model.context * local;
  struct token_feeder feeder = token_feeder_of(tokens, s->batch * local, s->model.context, s->seed, p->task, p->tasks);
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s->seed);
  struct training t;
  memset(&t, 0, sizeof t);
  t.s = s;
  t.in[0] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(s->batch * local, s->model.context), "tokens");
  t.in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(s->batch * local, s->model.context), "next");
  if (p->strategy) build_replicas(g, &t, p->strategy);
  else build_stages(g, &t, p);
  shoal_op *load = s->init_checkpoint ? load_from(g, s->init_checkpoint) : NULL;
  shoal_input position = input_of(g, p);
  if (shoal_graph_error(g)) exit(shoal_report(g));

  struct own_writer writer;
  memset(&writer, 0, sizeof writer);
  writer.writer = writer_new(&s->writing, &s->model, tokens);
  writer.trained = g;
  writer.device = s->steps.device;
  const bool writes = p->is_chief && s->writing.sample;
  if (writes) build_own(&writer);
  shoal_scaffold scaffold;
  memset(&scaffold, 0, sizeof scaffold);
  scaffold.size = sizeof scaffold;
  scaffold.init_fn = load ? load_published : NULL;
  scaffold.init_arg = load;
  shoal_status error =
      run_steps(g, &s->steps, &t.watched, t.train, shoal_input_hook(position, t.in, 2, fill_tokens, &feeder), &scaffold,
                writes ? write_own : NULL, &writer);
  release_own(&writer);
  shoal_batches_free(feeder.batches);
  shoal_graph_free(g);
  return error;
}

int main(int argc, char **argv) {
  struct settings s;
  memset(&s, 0, sizeof s);
  struct gpt2 standard = {6, 6, 384, 256, BYTE_TOKENS, SHOAL_FLOAT32, 0, {NULL, 0}, false};
  s.model = standard;
  s.steps.unit = "bytes";
  s.steps.last = 2000;
  s.steps.log = 10;
  s.dtype = "float32";
  s.batch = 8;
  s.learning.rate = 1e-3;
  s.learning.weight_decay = 0.1;
  s.learning.clip = 1;
  s.learning.warmup = 100;
  s.writing.prompt = "";
  s.writing.temperature = 0.8;
  s.writing.top_k = 40;
  s.seed = 1;
  s.devices = 1;
  s.micro_batches = 2;
  read_settings(argc, argv, &s);
  struct place place;
  struct tokens tokens = open_text(s.data, s.model.context);
  find_place(&s, &place);
  shoal_status error = train(&s, &place, &tokens);
  if (s.stages && place.cluster) stop_others(place.cluster);
  shoal_strategy_free(place.strategy);
  shoal_server_stop(place.server);
  shoal_cluster_free(place.cluster);
  return shoal_train_exit(error);
}

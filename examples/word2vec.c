/* Word vectors by a graph, on a cluster: the vectors, and the weights they are trained against, are cut into parts on
 * the parameter servers; a step asks each part for the rows of its batch, and sends back their gradients, nothing else.
 *
 *   shoal word2vec train -train text.txt -save-vocab words.txt
 *   shoal launch --ps=2 --workers=2 -- word2vec --text=text.txt --vocab=words.txt --output=vectors.txt
 *   shoal word2vec neighbors --vectors=vectors.txt king
 *
 * Skip-gram, or a word from the mean of those around it (--cbow); with negative sampling, or with noise-contrastive
 * estimation (--loss=nce); asynchronous, or the workers'
 * gradients averaged (--sync_replicas). On one machine `shoal word2vec train` is many times as fast: this is for models
 * that one machine does not hold, and for those who change the model. */
#include <sys/stat.h>
#include <unistd.h>

#include "word_pairs.h"

struct settings {
  struct cluster_flags where;
  struct save_flags save;
  const char *text, *vocab, *loss, *output, *checkpoint_dir, *device;
  int64_t size, window, num_sampled, batch_size, train_steps, shards, seed;
  double learning_rate, negative, sample;
  bool cbow, sync_replicas;
};

struct tables {
  shoal_partitioned in, out, bias;
};

static void read_settings(int argc, char **argv, struct settings *s) {
  const struct flag flags[] = {
      CLUSTER_FLAGS(s->where),
      flag_path("text", "words between blanks", &s->text),
      flag_path("vocab", "lines \"WORD COUNT\", of `shoal word2vec train -save-vocab`", &s->vocab),
      flag_path("output", "where the chief writes the vectors, as text", &s->output),
      flag_between("size", "numbers in a vector", &s->size, 1, 65536),
      flag_between("window", "the most words on either side", &s->window, 1, 30),
      flag_on("cbow", "a word from the mean of those around it; without: those from it, skip-gram", &s->cbow),
      flag_text("loss", "negative (sampling) or nce", &s->loss),
      flag_between("num_sampled", "words drawn for each batch", &s->num_sampled, 1, 65536),
      flag_real("negative", "how much all of them weigh, in words; not for nce", &s->negative),
      flag_real("sample", "words more frequent than this are passed over now and then", &s->sample),
      flag_between("batch_size", "pairs a step, of each worker", &s->batch_size, 1, 1 << 20),
      flag_real("learning_rate", "of a pair, falls in a line to 0 at train_steps; 0: 0.05, for nce 1 / batch_size",
                &s->learning_rate),
      flag_number("train_steps", "global steps to end at", &s->train_steps, 1),
      flag_between("shards", "parts of each table; 0: one for each parameter server", &s->shards, 0, 1024),
      flag_on("sync_replicas", "apply the mean of the workers' gradients", &s->sync_replicas),
      flag_path("checkpoint_dir", "where the chief saves", &s->checkpoint_dir),
      SAVE_FLAGS(s->save),
      flag_number("seed", "of initial values and pairs", &s->seed, 0),
      DEVICE_FLAG(s->device),
      flags_end(),
  };
  read_flags(argc, argv, "word2vec: trains word vectors on parameter servers", flags);
  check_save(&s->save, s->checkpoint_dir);
  if (s->learning_rate <= 0) s->learning_rate = strcmp(s->loss, "nce") ? 0.05 : 1 / (double)s->batch_size;
  if (strcmp(s->loss, "negative") != 0 && strcmp(s->loss, "nce") != 0) refuse("--loss is negative or nce");
}

/* Is it the same file as another, which is there? */
static bool is_file(const char *path, const char *other) {
  struct stat a, b;
  return !stat(path, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* A file is replaced as a whole. Links, devices and pipes stay, and what they lead to is written as it is. */
static bool is_replaced(const char *path) {
  struct stat there;
  return lstat(path, &there) || S_ISREG(there.st_mode) || S_ISDIR(there.st_mode);
}

/* What is to be written at the end has its place before anything is trained, and takes nobody's. */
static void check_output(const struct settings *s) {
  struct stat there;
  if (!s->output) return;
  if (is_file(s->output, s->text) || is_file(s->output, s->vocab)) refuse("--output is a file that is read");
  if (!stat(s->output, &there) && S_ISDIR(there.st_mode)) refuse("--output is a folder, not a file");
  if (!is_replaced(s->output)) {
    if (access(s->output, W_OK)) refuse("--output cannot be written to, or is a link to what is not there");
    return;
  }
  char folder[4096];
  if (snprintf(folder, sizeof folder, "%s", s->output) >= (int)sizeof folder) refuse("--output is too long");
  char *end = strrchr(folder, '/');
  if (end) end[end == folder] = 0;
  if (access(end ? folder : ".", W_OK)) refuse("--output: its folder is not there, or cannot be written to");
}

/* ---- the model ---- */

static bool is_nce(const struct settings *s) { return !strcmp(s->loss, "nce"); }

/* Vectors begin as the original program has them, for NCE as TensorFlow's tutorial does. */
static shoal_out begin_vectors(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  const struct settings *s = (const struct settings *)arg;
  double most = is_nce(s) ? 1 : 0.5 / (double)s->size;
  return shoal_init_uniform(g, dtype, shape, -most, most);
}

static shoal_out begin_weights(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  const struct settings *s = (const struct settings *)arg;
  if (!is_nce(s)) return shoal_init_zeros(g, dtype, shape);
  return shoal_init_truncated_normal(g, dtype, shape, 0, 1 / sqrt((double)s->size));
}

static shoal_out begin_zero(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  (void)arg;
  return shoal_init_zeros(g, dtype, shape);
}

static struct tables make_tables(shoal_graph *g, struct settings *s, int64_t words, int ps_tasks) {
  shoal_partitioner cut = shoal_fixed_partitioner(s->shards ? s->shards : ps_tasks ? ps_tasks : 1, 0);
  const int64_t dims[] = {words, s->size};
  shoal_dims table = {2, dims};
  struct tables t;
  memset(&t, 0, sizeof t);
  t.in = shoal_partitioned_variable(g, "embeddings", SHOAL_FLOAT32, table, &cut, begin_vectors, s);
  t.out = shoal_partitioned_variable(g, "nce_weights", SHOAL_FLOAT32, table, &cut, begin_weights, s);
  if (is_nce(s))
    t.bias = shoal_partitioned_variable(g, "nce_biases", SHOAL_FLOAT32, SHOAL_SHAPE(words), &cut, begin_zero, s);
  return t;
}

static shoal_out rows_of(shoal_graph *g, const shoal_partitioned *table, shoal_out ids) {
  return shoal_embedding_lookup(g, table->parts, table->n, ids, "div");
}

/* A logit with its word's bias, less what chance alone would make of it. */
static shoal_out corrected(shoal_graph *g, const struct tables *t, shoal_out logits, shoal_out ids,
                           shoal_out expected) {
  if (!t->bias.n) return logits;
  logits = shoal_add_v2(g, logits, rows_of(g, &t->bias, ids));
  return shoal_sub(g, logits, shoal_log(g, expected));
}

/* log(1 + exp(x)): what a logit costs when the word was not there; of -x, when it was. */
static shoal_out cost(shoal_graph *g, shoal_out x) { return shoal_reduce_sum(g, shoal_softplus(g, x)); }

/* The mean of the vectors of words x [batch, around], each worth what stands in worth, which is of the same shape. */
static shoal_out mean_of(shoal_graph *g, const struct settings *s, const struct tables *t, shoal_out x,
                         shoal_out worth) {
  const int32_t rows[] = {(int32_t)s->batch_size, (int32_t)(2 * s->window), (int32_t)s->size};
  shoal_out flat = shoal_reshape(g, x, shoal_constant_int(g, -1));
  shoal_out at = shoal_reshape(g, rows_of(g, &t->in, flat), shoal_constant_ints(g, SHOAL_SHAPE(3), rows));
  at = shoal_mul(g, at, shoal_expand_dims(g, worth, shoal_constant_int(g, 2)));
  return shoal_sum(g, at, shoal_constant_int(g, 1));
}

/* The loss of a batch, summed over its pairs: of vectors at [batch, size] and words y [batch, 1]. */
static shoal_out make_loss(shoal_graph *g, const struct settings *s, const struct vocabulary *v, const struct tables *t,
                           shoal_out at, shoal_out y) {
  shoal_fixed_unigram_candidate_sampler_options o = SHOAL_FIXED_UNIGRAM_CANDIDATE_SAMPLER_DEFAULTS;
  o.distortion = 0.75f;
  o.unigrams = v->counts;
  o.n_unigrams = (int)v->n;
  o.seed = s->seed + 1;
  shoal_fixed_unigram_candidate_sampler_outs drawn =
      shoal_fixed_unigram_candidate_sampler_with(g, y, 1, s->num_sampled, false, v->n, &o);
  shoal_out true_ids = shoal_reshape(g, y, shoal_constant_int(g, -1));
  shoal_out there = rows_of(g, &t->out, true_ids);
  shoal_out others = rows_of(g, &t->out, drawn.sampled_candidates);
  shoal_out near = shoal_sum(g, shoal_mul(g, at, there), shoal_constant_int(g, 1));
  shoal_out far = shoal_mat_mul_with(g, at, others, SHOAL_OPTIONS(shoal_mat_mul_options, .transpose_b = true));
  near = corrected(g, t, near, true_ids, shoal_reshape(g, drawn.true_expected_count, shoal_constant_int(g, -1)));
  far = corrected(g, t, far, drawn.sampled_candidates, drawn.sampled_expected_count);
  double weight = t->bias.n ? 1 : s->negative / (double)s->num_sampled;
  return shoal_add_v2(g, cost(g, shoal_neg(g, near)),
                      shoal_mul(g, cost(g, far), shoal_constant_float(g, (float)weight)));
}

/* ---- the vectors, as the original program writes them ---- */

static void write_vectors(const char *path, const struct vocabulary *v, shoal_tensor *rows, int64_t size) {
  char temporary[4096];
  if (snprintf(temporary, sizeof temporary, "%s.part", path) >= (int)sizeof temporary) refuse("--output is too long");
  const bool replaced = is_replaced(path);
  FILE *f = fopen(replaced ? temporary : path, "w");
  if (!f) refuse_file(path, strerror(errno));
  const float *x = (const float *)shoal_tensor_const_data(rows);
  fprintf(f, "%lld %lld\n", (long long)v->n, (long long)size);
  for (int64_t i = 0; i < v->n; i++) {
    fprintf(f, "%s ", v->words[i]);
    for (int64_t j = 0; j < size; j++) fprintf(f, "%f ", (double)x[i * size + j]);
    fputc('\n', f);
  }
  if (fflush(f) || ferror(f) || fclose(f) || (replaced && rename(temporary, path))) refuse_file(path, strerror(errno));
  printf("vectors in %s\n", path);
}

int main(int argc, char **argv) {
  struct settings s;
  memset(&s, 0, sizeof s);
  s.loss = "negative";
  /* A drawn word has the sum of batch_size * negative / num_sampled pairs' gradients in a step: some ten go well at
   * this rate, eighty (batches of 1,024) diverge. */
  s.size = 100, s.window = 5, s.num_sampled = 64, s.batch_size = 128, s.train_steps = 80000, s.seed = 1;
  s.negative = 5, s.sample = 1e-3;
  read_settings(argc, argv, &s);

  shoal_cluster *cluster = find_cluster(&s.where);
  check_task_device(cluster, s.device, 1);
  if (!s.text || !s.vocab) refuse("--text and --vocab say what to train on");
  need_servers(cluster);
  if (s.sync_replicas && !cluster) refuse("--sync_replicas is for a cluster: shoal launch --ps=1 --workers=2 -- ...");
  int task = cluster ? shoal_cluster_task(cluster) : 0, workers = 1, ps_tasks = 0, number = task;
  bool is_chief = !cluster || shoal_cluster_is_chief(cluster);
  if (is_chief) check_output(&s);
  char here[64] = "", worker_device[DEVICE_NAME];
  shoal_server *server = NULL;
  if (cluster) {
    int chiefs = shoal_cluster_tasks(cluster, "chief");
    ps_tasks = shoal_cluster_tasks(cluster, "ps");
    workers = shoal_cluster_tasks(cluster, "worker") + chiefs;
    number = task + (is_chief ? 0 : chiefs);
    snprintf(here, sizeof here, "/job:%s/task:%d", shoal_cluster_job(cluster), task);
    server = start_server(cluster, &s.where); /* a ps stays in there */
  }
  name_device(s.device, here, 0, worker_device);

  struct vocabulary words = read_vocabulary(s.vocab);
  set_keep(&words, s.sample);
  struct word_pairs pairs;
  memset(&pairs, 0, sizeof pairs);
  pairs.vocabulary = &words;
  pairs.batch = s.batch_size;
  pairs.window = s.window;
  pairs.seed = (uint64_t)s.seed;
  open_text(&pairs, s.text, number, workers);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s.seed);
  push_worker(g, ps_tasks, worker_device);
  shoal_var step = shoal_global_step(g);
  shoal_input input = shoal_input_position(g, number);
  struct tables t = make_tables(g, &s, words.n, ps_tasks);
  shoal_out fed[3];
  int n_fed = s.cbow ? 3 : 2;
  const int64_t dims[] = {s.batch_size, 2 * s.window};
  shoal_dims around = {2, dims}, one = {1, dims};
  fed[0] = shoal_placeholder(g, SHOAL_INT64, s.cbow ? around : one, "x");
  fed[1] = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(s.batch_size, 1), "y");
  if (s.cbow) fed[2] = shoal_placeholder(g, SHOAL_FLOAT32, around, "worth");
  shoal_out at = s.cbow ? mean_of(g, &s, &t, fed[0], fed[2]) : rows_of(g, &t.in, fed[0]);
  shoal_out sum = make_loss(g, &s, &words, &t, at, fed[1]);
  shoal_out loss = shoal_div(g, sum, shoal_constant_float(g, (float)s.batch_size)); /* of a pair, to be printed */
  shoal_optimizer sgd = shoal_sgd(s.learning_rate);
  sgd.learning_rate_out =
      shoal_polynomial_decay(g, s.learning_rate, step.value, (double)s.train_steps, s.learning_rate * 1e-4, 1, false);
  shoal_sync_replicas *sync = NULL;
  if (s.sync_replicas)
    sync = shoal_sync_replicas_new(
        g, sgd,
        SHOAL_OPTIONS(shoal_sync_options, .replicas_to_aggregate = workers, .total_replicas = workers, .task = number));
  shoal_op *train = sync ? shoal_sync_minimize(sync, sum, step) : shoal_minimize(g, sgd, sum, step);
  shoal_out whole = shoal_partitioned_value(g, &t.in);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  char label[64];
  snprintf(label, sizeof label, "%s %d", cluster ? shoal_cluster_job(cluster) : "worker", task);
  shoal_hook hooks[3];
  int n_hooks = 0;
  hooks[n_hooks++] = shoal_input_hook(input, fed, n_fed, s.cbow ? fill_around : fill_pairs, &pairs);
  hooks[n_hooks++] = shoal_nan_tensor_hook(loss, true);
  if (sync) hooks[n_hooks++] = shoal_sync_hook(sync, is_chief);
  shoal_progress progress = {
      .label = label, .loss = loss, .examples_per_step = s.batch_size, .last_step = s.train_steps};
  shoal_status error = NULL;
  double start = seconds(), took = 0;
  int64_t steps = 0;
  float last = 0;
  SHOAL_TRAIN_SESSION(session, g, .server = server, .is_chief = is_chief, .checkpoint_dir = s.checkpoint_dir,
                      .save_steps = s.save.steps, .save_secs = save_secs(&s.save), .stop_at_step = s.train_steps,
                      .hooks = hooks, .n_hooks = n_hooks, .progress = &progress, .session = device_session(s.device),
                      .status = &error) {
    while (!shoal_should_stop(session)) steps += shoal_run(session, SHOAL_NO_FEEDS, SHOAL_FETCH(loss, &last), train);
    took = seconds() - start;
    if (is_chief && s.output && !shoal_preempted() && !shoal_train_session_error(session)) {
      shoal_tensor *rows = NULL;
      check(shoal_session_step(shoal_train_session_raw(session), SHOAL_NO_FEEDS, SHOAL_FETCH(whole, &rows), NULL));
      write_vectors(s.output, &words, rows, s.size);
      shoal_tensor_unref(rows);
    }
  }
  printf("%s: %lld local steps in %.1f s, %.0f pairs/s, loss %.4f\n", label, (long long)steps, took,
         took > 0 ? (double)(steps * s.batch_size) / took : 0, (double)last);
  shoal_sync_replicas_free(sync);
  shoal_partitioned_free(&t.in);
  shoal_partitioned_free(&t.out);
  shoal_partitioned_free(&t.bias);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  free_vocabulary(&words);
  return shoal_train_exit(error);
}

/* Feeds a training job from a directory of files: lines of numbers set apart by commas, of which the last is to be told
 * from the others. The files are shared out: each worker asks for the next one when it has none, so that fast ones do
 * more, a killed one goes on where it was when it comes again, and every line is used once in each epoch.
 *
 *   feed --data_dir=DIR                                                  all of it in this process, or
 *   shoal launch --ps=1 --workers=2 -- feed --data_dir=DIR --checkpoint_dir=RUN
 */
#include <glob.h>

#include "common.h"

enum { MOST_COLUMNS = 32 };

struct input {
  glob_t found;
  int64_t columns, batch_size;
};

/* The files, in the same order for every task. */
static void find_files(const char *data_dir, struct input *in) {
  char pattern[4096];
  if (!data_dir) refuse("--data_dir says where the files are, and is not given");
  snprintf(pattern, sizeof pattern, "%s/*.csv", data_dir);
  if (!glob(pattern, 0, NULL, &in->found) && in->found.gl_pathc) return;
  fprintf(stderr, "%s: --data_dir=%s: there are no .csv files\n", program_name, data_dir);
  exit(2);
}

/* What numbers of items and of used batches are about, as one number: the files, and how they are read. */
struct meaning {
  shoal_var saved;
  int64_t here;
};

static int64_t find_meaning(const struct input *in) {
  uint64_t h = 14695981039346656037u ^ (uint64_t)in->columns ^ (uint64_t)in->batch_size << 32;
  for (size_t i = 0; i < in->found.gl_pathc; i++)
    for (const char *c = strrchr(in->found.gl_pathv[i], '/'); *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  return (int64_t)h;
}

/* A run may go on with more epochs, but not with other files. */
static shoal_status check_meaning(void *state, const shoal_created *c) {
  struct meaning *m = (struct meaning *)state;
  int64_t saved;
  shoal_status e = shoal_session_step(c->session, SHOAL_NO_FEEDS, SHOAL_FETCH(m->saved.value, &saved), NULL);
  if (e || saved == m->here) return e;
  return shoal_status_new(
      SHOAL_INVALID_ARGUMENT,
      "this run was begun with other files, or another --columns or --batch_size: give it those, or "
      "another --checkpoint_dir");
}

/* Columns as one vector, and what is to be told from it. */
static shoal_out split(shoal_graph *g, shoal_out lines, int64_t columns) {
  shoal_out c[MOST_COLUMNS];
  shoal_graph *f = shoal_dataset_function(g, lines, NULL, c, (int)columns);
  shoal_function_output(f, shoal_pack(f, c, (int)columns - 1), "x");
  shoal_function_output(f, c[columns - 1], "y");
  return shoal_dataset_map(g, lines, shoal_function_end(f), NULL);
}

/* Item number i is file i; when all were had once, the first one again. */
static shoal_out batches_of(shoal_graph *g, shoal_out item, void *arg) {
  const struct input *in = (const struct input *)arg;
  shoal_out defaults[MOST_COLUMNS];
  int files = (int)in->found.gl_pathc;
  shoal_out names = shoal_constant_strings(g, (const char *const *)in->found.gl_pathv, files);
  shoal_out which = shoal_floor_mod(g, item, shoal_constant_int64(g, files));
  shoal_out file = shoal_gather_v2(g, names, which, shoal_constant_int(g, 0));
  for (int64_t i = 0; i < in->columns; i++) defaults[i] = shoal_csv_required(g, SHOAL_FLOAT32);
  shoal_out d = split(g, shoal_dataset_csv(g, file, defaults, (int)in->columns, NULL), in->columns);
  d = shoal_dataset_shuffle(g, d, 10000, 1, NULL);
  d = shoal_dataset_batch(g, d, in->batch_size, false);
  return shoal_dataset_prefetch(g, d, 2);
}

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  struct save_flags save = {0};
  struct input input = {{0}, 3, 32};
  const char *data_dir = NULL, *checkpoint_dir = NULL, *device = NULL;
  int64_t epochs = 1;
  double learning_rate = 0.1;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_path("data_dir", "where the .csv files are", &data_dir),
      flag_between("columns", "numbers in a line", &input.columns, 2, MOST_COLUMNS),
      flag_between("epochs", "how often each line is used", &epochs, 1, 1000000),
      flag_number("batch_size", "lines a step, of each worker", &input.batch_size, 1),
      flag_real("learning_rate", "Adam's", &learning_rate),
      flag_path("checkpoint_dir", "where the chief saves", &checkpoint_dir),
      SAVE_FLAGS(save),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "feed: trains on all files of a directory, shared out to any number of workers", flags);
  check_save(&save, checkpoint_dir);

  shoal_cluster *cluster = find_cluster(&where);
  check_task_device(cluster, device, 1);
  find_files(data_dir, &input);
  need_servers(cluster);
  int task = cluster ? shoal_cluster_task(cluster) : 0, ps_tasks = cluster ? shoal_cluster_tasks(cluster, "ps") : 0;
  bool is_chief = !cluster || shoal_cluster_is_chief(cluster);
  char here[64] = "", worker_device[DEVICE_NAME];
  shoal_server *server = NULL;
  if (cluster) {
    snprintf(here, sizeof here, "/job:%s/task:%d", shoal_cluster_job(cluster), task);
    server = start_server(cluster, &where); /* a ps stays in there */
  }
  name_device(device, here, 0, worker_device);

  shoal_graph *g = shoal_graph_new();
  push_worker(g, ps_tasks, worker_device);
  shoal_out in[2];
  int number = task + (cluster && !is_chief ? shoal_cluster_tasks(cluster, "chief") : 0);
  shoal_work *work = shoal_work_new(g,
                                    SHOAL_OPTIONS(shoal_work_options, .items = epochs * (int64_t)input.found.gl_pathc,
                                                  .worker = number, .dataset = batches_of, .arg = &input),
                                    in, 2);
  shoal_out told = shoal_dense(g, in[0], 1, "line");
  shoal_out y = shoal_reshape(g, told, shoal_constant_ints(g, SHOAL_SHAPE(1), (const int32_t[]){-1}));
  shoal_out loss = shoal_reduce_mean(g, shoal_squared_difference(g, y, in[1]));
  shoal_var step = shoal_global_step(g);
  struct meaning meaning = {.here = find_meaning(&input)};
  meaning.saved = shoal_variable_untrained(g, "feed_meaning", shoal_constant_int64(g, meaning.here));
  shoal_op *train = shoal_minimize(g, shoal_adam(learning_rate), loss, step);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  char label[64];
  snprintf(label, sizeof label, "%s %d", cluster ? shoal_cluster_job(cluster) : "worker", task);
  shoal_hook hooks[] = {{.state = &meaning, .after_create = check_meaning}, shoal_work_hook(work, train)};
  shoal_progress progress = {.label = label, .loss = loss, .examples_per_step = input.batch_size};
  shoal_status error = NULL;
  int64_t steps = 0, reached = 0;
  float last = 0;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = is_chief, .checkpoint_dir = checkpoint_dir,
                      .save_steps = save.steps, .save_secs = save_secs(&save), .hooks = hooks, .n_hooks = 2,
                      .progress = &progress, .session = device_session(device), .status = &error)
  while (!shoal_should_stop(s))
    steps += shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(loss, &last, step.value, &reached), train);
  if (steps)
    printf("%s: %lld batches, up to step %lld, last loss %.4f\n", label, (long long)steps, (long long)reached,
           (double)last);
  else if (!error) printf("%s: no line was left to train on\n", label);
  globfree(&input.found);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}

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
#include "anywhere.h"
#include "language.h"

struct settings {
  struct gpt2 model;
  struct steps steps;
  struct learning learning;
  struct writing writing;
  struct anywhere where;
  const char *dtype, *data, *init_checkpoint;
  int64_t batch, seed;
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
      ANYWHERE_FLAGS(s->where),
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
  check_anywhere(&s->where, s->batch, s->model.layers);
  s->model.untied = s->model.untied || s->where.stages > 1;
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

/* ---- the model ---- */

/* Bytes [batch, context] come into the first part, logits out of the last. */
static shoal_out forward(shoal_graph *g, shoal_out h, int part, int parts, void *arg) {
  const struct gpt2 *m = (const struct gpt2 *)arg;
  const int layers = (int)m->layers;
  struct gpt2_copy c = gpt2_training(m, g);
  shoal_var table = {{NULL, 0}, {NULL, 0}};
  if (part == 0) h = gpt2_begin(&c, h, &table);
  for (int i = part * layers / parts; i < (part + 1) * layers / parts; i++) h = gpt2_layer(&c, h, i);
  return part == parts - 1 ? gpt2_end(&c, h, table) : h;
}

static void set_seed(void *arg, shoal_out seed) { ((struct gpt2 *)arg)->seed = seed; }

/* ---- writing ---- */

struct own_writer {
  struct own_copy own;
  struct writer writer;
};

static void write_own(shoal_session *trained, void *arg) {
  struct own_writer *o = (struct own_writer *)arg;
  shoal_session *session = own_session(&o->own, trained);
  write_text(session, &o->writer);
  shoal_status_free(shoal_session_close(session));
}

static void build_own(struct own_writer *o, const shoal_graph *trained, const char *device) {
  own_begin(&o->own, trained, device);
  build_writer(o->own.g, &o->writer, NULL);
  own_end(&o->own);
}

/* ---- all of it ---- */

static shoal_status train(struct settings *s, const struct tokens *tokens) {
  const int64_t rows = s->batch * replicas_fed(&s->where);
  s->steps.consumed = rows * s->model.context;
  struct token_feeder feeder = token_feeder_of(tokens, rows, s->model.context, s->seed, s->where.task, s->where.tasks);
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s->seed);
  struct model m;
  memset(&m, 0, sizeof m);
  m.forward = forward;
  m.seed = s->model.dropout > 0 ? set_seed : NULL;
  m.arg = &s->model;
  m.learning = &s->learning;
  m.device = s->steps.device;
  m.in[0] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(rows, s->model.context), "tokens");
  m.in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(rows, s->model.context), "next");
  build_anywhere(g, &m, &s->where);
  struct published load = published_new(g, s->init_checkpoint);
  shoal_input position = input_anywhere(g, &s->where);
  if (shoal_graph_error(g)) exit(shoal_report(g));

  const bool writes = s->where.is_chief && s->writing.sample;
  struct own_writer writer;
  memset(&writer, 0, sizeof writer);
  writer.writer = writer_new(&s->writing, &s->model, tokens);
  if (writes) build_own(&writer, g, s->steps.device);
  shoal_scaffold scaffold;
  memset(&scaffold, 0, sizeof scaffold);
  scaffold.size = sizeof scaffold;
  scaffold.init_fn = load.saver ? load_published : NULL;
  scaffold.init_arg = &load;
  shoal_status error =
      run_steps(g, &s->steps, &m.watched, m.train, shoal_input_hook(position, m.in, MODEL_INPUTS, fill_tokens, &feeder),
                &scaffold, writes ? write_own : NULL, &writer);
  shoal_saver_free(load.saver);
  writer_release(&writer.writer);
  own_release(&writer.own);
  shoal_batches_free(feeder.batches);
  shoal_graph_free(g);
  return error;
}

int main(int argc, char **argv) {
  struct settings s;
  memset(&s, 0, sizeof s);
  struct gpt2 standard = {6, 6, 384, 256, BYTE_TOKENS, SHOAL_FLOAT32, 0, {NULL, 0}, false, false};
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
  s.where.devices = 1;
  s.where.micro_batches = 2;
  read_settings(argc, argv, &s);
  struct tokens tokens = open_text(s.data, s.model.context);
  find_place(&s.where, &s.steps);
  shoal_status error = train(&s, &tokens);
  leave_place(&s.where);
  return shoal_train_exit(error);
}

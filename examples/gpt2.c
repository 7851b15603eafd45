/* GPT-2: trains it on text, or on tokens, goes on from where it was, and writes text of its own.
 *
 *   gpt2 --data=book.txt --layers=6 --heads=6 --width=384 --context=256 --batch=8 --steps=1000 --checkpoint_dir=out
 *   gpt2 --data=book.txt --layers=6 --heads=6 --width=384 --context=256 --steps=0 --checkpoint_dir=out --sample=500
 *   gpt2 --data=tokens.bin --batch=64 --dtype=bfloat16 --device=GPU             (124M, as published)
 *   gpt2 --init_checkpoint=124M/model.ckpt --words=gpt2_tokenizer.bin --steps=0 --sample=50
 *
 * What files are read is at the head of tokens.h; which variables there are, at that of gpt2.h. */
#include "language.h"

struct settings {
  struct gpt2 model;
  struct steps steps;
  struct learning learning;
  struct writing writing;
  const char *dtype, *data, *init_checkpoint;
  int64_t batch, vocab, pad_vocab, seed;
};

static void read_settings(int argc, char **argv, struct settings *s) {
  const struct flag flags[] = {
      flag_path("data", "text, or tokens; none: made up", &s->data),
      GPT2_FLAGS(s->model),
      flag_between("vocab", "how many tokens there are; 0: 256 for text, else 50257", &s->vocab, 0, 1 << 24),
      flag_between("pad_vocab", "rounds that up to a multiple: 50304", &s->pad_vocab, 1, 65536),
      flag_number("batch", "examples a step, each of --context tokens", &s->batch, 1),
      flag_text("dtype", "float32 or bfloat16, of activations; variables are float32", &s->dtype),
      LEARNING_FLAGS(s->learning),
      STEPS_FLAGS(s->steps),
      flag_path("init_checkpoint", "begin with the variables of this one, as published", &s->init_checkpoint),
      WRITING_FLAGS(s->writing),
      flag_number("seed", "of initial values, batches and samples", &s->seed, 0),
      flags_end(),
  };
  read_flags(argc, argv, "gpt2: trains GPT-2, and writes text by it", flags);
  check_save(&s->steps.save, s->steps.checkpoint_dir);
  s->model.dtype = read_dtype(s->dtype);
  check_model(&s->model, &s->learning);
  s->learning.last = s->steps.last;
  s->writing.seed = s->seed;
}

struct training_copy {
  shoal_out in[2]; /* tokens, and those that follow: [batch, context] */
  struct watched watched;
  shoal_op *train;
};

static struct training_copy build_training(shoal_graph *g, struct settings *s, shoal_sharing *sharing) {
  struct training_copy t = {0};
  struct gpt2 *m = &s->model;
  t.in[0] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(s->batch, m->context), "tokens");
  t.in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(s->batch, m->context), "next");
  if (m->dropout > 0) m->seed = shoal_step_seed(g, shoal_global_step(g));
  struct gpt2_copy c = gpt2_training(m, g);
  shoal_sharing_begin(g, sharing);
  shoal_out logits = gpt2_logits(&c, t.in[0]);
  shoal_sharing_end(g, sharing);
  shoal_push_scope(g, "logits");
  logits = shoal_identity(g, logits); /* logits/Identity, for whoever reads the graph */
  shoal_pop_scope(g);
  t.watched.loss = mean_cross_entropy(g, logits, t.in[1], &s->learning);
  t.train = minimize(g, &s->learning, &t.watched);
  return t;
}

int main(int argc, char **argv) {
  struct settings s = {0};
  struct gpt2 standard = {12, 12, 768, 1024, 0, SHOAL_FLOAT32, 0, {NULL, 0}, false, false};
  s.model = standard;
  s.steps.unit = "tokens";
  s.steps.last = 100;
  s.steps.log = 1;
  s.dtype = "float32";
  s.writing.prompt = "";
  s.writing.temperature = 1;
  s.batch = 4;
  s.pad_vocab = 128;
  s.learning.rate = 6e-4;
  s.learning.weight_decay = 0.1;
  s.learning.clip = 1;
  s.seed = 1;
  read_settings(argc, argv, &s);
  struct tokens tokens = open_tokens(s.data, s.vocab, s.model.context);
  if (s.init_checkpoint) s.pad_vocab = 1; /* its table has no padding */
  s.model.vocab = (tokens.vocab + s.pad_vocab - 1) / s.pad_vocab * s.pad_vocab;
  s.steps.consumed = s.batch * s.model.context;
  struct token_feeder feeder = token_feeder_new(&tokens, s.batch, s.model.context, s.seed);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s.seed);
  push_device(g, s.steps.device);
  shoal_sharing *sharing = shoal_sharing_new();
  struct training_copy t = build_training(g, &s, sharing);
  struct writer writer = writer_new(&s.writing, &s.model, &tokens);
  if (s.writing.sample) build_writer(g, &writer, sharing);
  shoal_sharing_free(sharing);
  struct published load = published_new(g, s.init_checkpoint);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_input position = {shoal_global_step(g).value, NULL};
  shoal_scaffold scaffold = {0};
  scaffold.size = sizeof scaffold;
  scaffold.init_fn = load.saver ? load_published : NULL;
  scaffold.init_arg = &load;
  shoal_status error =
      run_steps(g, &s.steps, &t.watched, t.train, shoal_input_hook(position, t.in, 2, fill_tokens, &feeder), &scaffold,
                s.writing.sample ? write_text : NULL, &writer);
  shoal_batches_free(feeder.batches);
  shoal_saver_free(load.saver);
  writer_release(&writer);
  shoal_graph_free(g);
  return shoal_train_exit(error);
}

/* GPT-2: trains it on text, or on tokens, goes on from where it was, and writes text of its own.
 *
 *   gpt2 --data=book.txt --layers=6 --heads=6 --width=384 --context=256 --batch=8 --steps=1000 --checkpoint_dir=out
 *   gpt2 --data=book.txt --layers=6 --heads=6 --width=384 --context=256 --steps=0 --checkpoint_dir=out --sample=500
 *   gpt2 --data=tokens.bin --batch=64 --dtype=bfloat16 --device=GPU             (124M, as published)
 *   gpt2 --init_checkpoint=124M/model.ckpt --words=gpt2_tokenizer.bin --steps=0 --sample=50
 *
 * What files are read is at the head of tokens.h; which variables there are, at that of gpt2.h. */
#include "gpt2.h"
#include "steps.h"
#include "tokens.h"

enum { MOST_VARIABLES = 4096 };

struct settings {
  struct gpt2 model;
  struct steps steps;
  const char *dtype, *data, *init_checkpoint, *words, *prompt;
  int64_t batch, vocab, pad_vocab, warmup, sample, top_k, seed;
  double learning_rate, weight_decay, clip, label_smoothing, temperature;
};

static void read_settings(int argc, char **argv, struct settings *s) {
  const struct flag flags[] = {
      flag_path("data", "text, or tokens; none: made up", &s->data),
      flag_number("layers", "of attention and dense layers", &s->model.layers, 1),
      flag_number("heads", "of attention", &s->model.heads, 1),
      flag_number("width", "of what a layer passes on; a multiple of heads", &s->model.width, 1),
      flag_number("context", "tokens that the model looks at", &s->model.context, 1),
      flag_between("vocab", "how many tokens there are; 0: 256 for text, else 50257", &s->vocab, 0, 1 << 24),
      flag_between("pad_vocab", "rounds that up to a multiple: 50304", &s->pad_vocab, 1, 65536),
      flag_number("batch", "examples a step, each of --context tokens", &s->batch, 1),
      flag_text("dtype", "float32 or bfloat16, of activations; variables are float32", &s->dtype),
      flag_real("learning_rate", "the highest", &s->learning_rate),
      flag_number("warmup_steps", "it rises for so many steps, then falls to a tenth along a cosine", &s->warmup, 0),
      flag_real("weight_decay", "of matrices", &s->weight_decay),
      flag_real("clip", "the gradients' common norm; 0: none", &s->clip),
      flag_real("dropout", "behind embeddings, attention and layers", &s->model.dropout),
      flag_real("label_smoothing", "of the loss", &s->label_smoothing),
      STEPS_FLAGS(s->steps),
      flag_path("init_checkpoint", "begin with the variables of this one, as published", &s->init_checkpoint),
      flag_number("sample", "write so many tokens at the end", &s->sample, 0),
      flag_text("prompt", "what they follow on, as bytes", &s->prompt),
      flag_real("temperature", "of sampling; 0: the likeliest each time", &s->temperature),
      flag_number("top_k", "of so many tokens; 0: of all", &s->top_k, 0),
      flag_path("words", "a table of words, to write tokens as text", &s->words),
      flag_number("seed", "of initial values, batches and samples", &s->seed, 0),
      flags_end(),
  };
  read_flags(argc, argv, "gpt2: trains GPT-2, and writes text by it", flags);
  check_save(&s->steps.save, s->steps.checkpoint_dir);
  s->model.dtype = read_dtype(s->dtype);
  if (s->model.width % s->model.heads) refuse("--width must be a multiple of --heads");
  if (s->model.dropout >= 1 || s->label_smoothing > 1) refuse("--dropout is below 1, --label_smoothing at most that");
}

/* ---- training ---- */

/* Gradients, clipped together, and AdamW, which leaves vectors as they are. */
static shoal_op *minimize(shoal_graph *g, const struct settings *s, struct watched *w) {
  static shoal_var vars[MOST_VARIABLES];
  static shoal_gradient grads[MOST_VARIABLES];
  static bool no_decay[MOST_VARIABLES];
  int64_t dims[SHOAL_MAX_RANK];
  shoal_var step = shoal_global_step(g);
  int n = shoal_compute_gradients(g, w->loss, vars, grads, MOST_VARIABLES);
  if (n > MOST_VARIABLES) refuse("so many --layers are more than this program can train");
  for (int i = 0; i < n; i++) no_decay[i] = shoal_out_shape(vars[i].value, dims) < 2;
  w->norm = shoal_clip_by_global_norm(g, grads, n, s->clip > 0 ? s->clip : 1e30);
  w->rate = rising_rate(g, s->learning_rate, step, (double)s->warmup, (double)s->steps.last, 0.1);
  shoal_optimizer adam = shoal_adamw(s->learning_rate, s->weight_decay);
  adam.b = 0.95;
  adam.learning_rate_out = w->rate;
  return shoal_apply_gradients_with(g, adam, vars, grads, n, step,
                                    SHOAL_OPTIONS(shoal_apply_options, .no_decay = no_decay));
}

/* ---- a published checkpoint ---- */

struct published {
  shoal_op *load;
};

/* An op that gives each variable of the model its value from a checkpoint. */
static shoal_op *load_from(shoal_graph *g, const char *prefix) {
  static shoal_var vars[MOST_VARIABLES];
  static shoal_op *assigned[MOST_VARIABLES];
  int n = shoal_variables(g, true, vars, MOST_VARIABLES);
  shoal_out file = shoal_constant_string(g, prefix), all = shoal_constant_strings(g, (const char *const[]){""}, 1);
  for (int i = 0; i < n; i++) {
    const char *name = shoal_op_name(vars[i].handle.node);
    const shoal_dtype dtype = shoal_out_dtype(vars[i].value);
    shoal_builder *b = shoal_build(g, "RestoreV2", NULL);
    shoal_build_input(b, file);
    shoal_build_input(b, shoal_constant_strings(g, &name, 1));
    shoal_build_input(b, all);
    shoal_build_types(b, "dtypes", &dtype, 1);
    assigned[i] = shoal_variable_assign(g, vars[i], shoal_build_end_out(b));
  }
  return shoal_group(g, assigned, n, "load_published");
}

static shoal_status load_published(void *arg, shoal_session *session) {
  return shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, ((struct published *)arg)->load);
}

/* ---- writing ---- */

struct writer {
  const struct settings *s;
  const struct tokens *tokens;
  struct words words;
  shoal_var *kept;
  shoal_out in, place, logits; /* [1, 1], a token; [1], where it stands; [1, vocab], what may follow */
  uint64_t random;
  int32_t *token;       /* [context] */
  shoal_tensor *latest; /* logits of the last token */
  float *chance;        /* [vocab] */
};

static double draw(struct writer *w) {
  w->random ^= w->random << 13, w->random ^= w->random >> 7, w->random ^= w->random << 17;
  return (double)(w->random >> 11) * 0x1p-53;
}

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The logit that at least top_k have. */
static float smallest(const struct writer *w, const float *logit) {
  int64_t n = w->tokens->vocab, k = w->s->top_k;
  if (!k || k >= n) return -INFINITY;
  memcpy(w->chance, logit, (size_t)n * sizeof *logit);
  qsort(w->chance, (size_t)n, sizeof *w->chance, ascending);
  return w->chance[n - k];
}

/* The next token by its logits; padding has no part in it. */
static int32_t choose(struct writer *w, const float *logit) {
  int64_t n = w->tokens->vocab, best = 0;
  float least = smallest(w, logit);
  for (int64_t i = 1; i < n; i++)
    if (logit[i] > logit[best]) best = i;
  if (w->s->temperature == 0) return (int32_t)best;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double e = exp(((double)logit[i] - (double)logit[best]) / w->s->temperature);
    w->chance[i] = logit[i] < least ? 0 : (float)e;
    sum += (double)w->chance[i];
  }
  double at = draw(w) * sum;
  for (int64_t i = 0; i < n; i++) {
    at -= (double)w->chance[i];
    if (at < 0 && w->chance[i] > 0) return (int32_t)i;
  }
  return (int32_t)best;
}

/* The model reads token number i. */
static void read_token(struct writer *w, shoal_session *session, int64_t i) {
  const int64_t dims[] = {1, 1};
  const int32_t at = (int32_t)i;
  shoal_tensor *in, *place;
  check(shoal_tensor_from(SHOAL_INT32, 2, dims, &w->token[i], sizeof *w->token, &in));
  check(shoal_tensor_from(SHOAL_INT32, 1, dims, &at, sizeof at, &place));
  shoal_tensor_unref(w->latest);
  check(shoal_session_step(session, SHOAL_FEED(w->in, in, w->place, place), SHOAL_FETCH(w->logits, &w->latest), NULL));
  shoal_tensor_unref(in);
  shoal_tensor_unref(place);
}

/* One more token behind the n there are. Where there is no more room, the later half is read anew, as a beginning. */
static int64_t write_one(struct writer *w, shoal_session *session, int64_t n) {
  int32_t next = choose(w, (const float *)shoal_tensor_const_data(w->latest));
  print_token(&w->words, w->tokens->text, next);
  fflush(stdout);
  if (n == w->s->model.context) {
    int64_t half = n / 2;
    memmove(w->token, w->token + n - half, (size_t)half * sizeof *w->token);
    for (n = 0; n < half; n++) read_token(w, session, n);
  }
  w->token[n] = next;
  read_token(w, session, n);
  return n + 1;
}

/* What the text begins with: the end of the prompt, or what ends a text in a file of tokens, or token 0. */
static int64_t begin_text(struct writer *w) {
  int64_t n = (int64_t)strlen(w->s->prompt), skip = n > w->s->model.context ? n - w->s->model.context : 0;
  for (int64_t i = skip; i < n; i++) w->token[i - skip] = (unsigned char)w->s->prompt[i];
  if (!n && !w->tokens->text && w->tokens->vocab > 50256) w->token[0] = 50256;
  return n ? n - skip : 1;
}

static void write_text(shoal_session *session, void *arg) {
  struct writer *w = (struct writer *)arg;
  int64_t n = begin_text(w);
  for (int64_t i = 0; i < n; i++) read_token(w, session, i);
  printf("---\n%s", w->s->prompt);
  for (int64_t i = 0; i < w->s->sample; i++) n = write_one(w, session, n);
  printf("\n---\n");
}

/* A copy of the model for one text, without anything of training. What is kept is made by no copy. */
static void build_writer(shoal_graph *g, struct writer *w, shoal_sharing *sharing) {
  const struct gpt2 *m = &w->s->model;
  w->in = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(1, 1), "token");
  w->place = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(1), "place");
  w->kept = gpt2_room(m, g);
  w->token = (int32_t *)calloc((size_t)m->context, sizeof *w->token);
  w->chance = (float *)calloc((size_t)m->vocab, sizeof *w->chance);
  if (!w->kept || !w->token || !w->chance) refuse("no memory for what is written");
  struct gpt2_copy c = gpt2_writing(m, g, w->kept, w->place);
  shoal_var table;
  shoal_sharing_begin(g, sharing);
  shoal_out h = gpt2_body(&c, w->in, &table);
  shoal_sharing_end(g, sharing);
  w->logits = shoal_cast(g, shoal_embedding_logits(g, h, table), SHOAL_FLOAT32);
}

/* ---- all of it ---- */

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
  shoal_var table;
  shoal_sharing_begin(g, sharing);
  shoal_out h = gpt2_body(&c, t.in[0], &table);
  shoal_out logits = shoal_embedding_logits(g, h, table);
  shoal_sharing_end(g, sharing);
  shoal_push_scope(g, "logits");
  logits = shoal_identity(g, logits); /* logits/Identity, for whoever reads the graph */
  shoal_pop_scope(g);
  t.watched.loss = shoal_reduce_mean(
      g, shoal_cross_entropy(g, logits, t.in[1],
                             SHOAL_OPTIONS(shoal_cross_entropy_options, .label_smoothing = s->label_smoothing)));
  t.train = minimize(g, s, &t.watched);
  return t;
}

int main(int argc, char **argv) {
  struct settings s = {0};
  struct gpt2 standard = {12, 12, 768, 1024, 0, SHOAL_FLOAT32, 0, {NULL, 0}};
  s.model = standard;
  s.steps.unit = "tokens";
  s.steps.last = 100;
  s.steps.log = 1;
  s.dtype = "float32";
  s.prompt = "";
  s.batch = 4;
  s.pad_vocab = 128;
  s.learning_rate = 6e-4;
  s.weight_decay = 0.1;
  s.clip = 1;
  s.temperature = 1;
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
  struct writer writer = {0};
  writer.s = &s;
  writer.tokens = &tokens;
  writer.words = read_words(s.words);
  writer.random = (uint64_t)s.seed * 2654435769u + 88172645463325252ull;
  if (s.sample) build_writer(g, &writer, sharing);
  shoal_sharing_free(sharing);
  struct published published = {s.init_checkpoint ? load_from(g, s.init_checkpoint) : NULL};
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_input position = {shoal_global_step(g).value, NULL};
  shoal_scaffold scaffold = {0};
  scaffold.size = sizeof scaffold;
  scaffold.init_fn = s.init_checkpoint ? load_published : NULL;
  scaffold.init_arg = &published;
  shoal_status error =
      run_steps(g, &s.steps, &t.watched, t.train, shoal_input_hook(position, t.in, 2, fill_tokens, &feeder), &scaffold,
                s.sample ? write_text : NULL, &writer);
  shoal_batches_free(feeder.batches);
  free_words(&writer.words);
  free(writer.kept);
  free(writer.token);
  shoal_tensor_unref(writer.latest);
  free(writer.chance);
  shoal_graph_free(g);
  return shoal_train_exit(error);
}

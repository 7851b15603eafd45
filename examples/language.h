/* What programs that train language models share: a published checkpoint's values to begin with, and
 * text that the model writes.
 *
 * A text is written token by token. The model reads one at its place, keeps the keys and values of each layer, and
 * looks at those of the tokens before (gpt2_writing): the work for a token does not grow with the square of the text.
 * Where the context ends, its later half is read anew, as a beginning. */
#ifndef EXAMPLES_LANGUAGE_H
#define EXAMPLES_LANGUAGE_H

#include "gpt2.h"
#include "learning.h"
#include "tokens.h"

/* ---- the model's size ---- */

#define GPT2_FLAGS(m)                                                                        \
  flag_number("layers", "of attention and dense layers", &(m).layers, 1),                    \
      flag_number("heads", "of attention", &(m).heads, 1),                                   \
      flag_number("width", "of what a layer passes on; a multiple of heads", &(m).width, 1), \
      flag_number("context", "tokens that the model looks at", &(m).context, 1),             \
      flag_real("dropout", "behind embeddings, attention and layers", &(m).dropout),         \
      flag_on("recompute", "layers once more on the way back: less memory", &(m).recompute)

static inline void check_model(const struct gpt2 *m, const struct learning *l) {
  if (m->width % m->heads) refuse("--width must be a multiple of --heads");
  if (m->dropout >= 1 || l->label_smoothing > 1) refuse("--dropout is below 1, --label_smoothing at most that");
}

/* ---- a published checkpoint ---- */

/* Gives each variable of the model its value from a checkpoint. Free saver. */
struct published {
  const char *prefix; /* NULL: none */
  shoal_saver *saver;
};

static inline struct published published_new(shoal_graph *g, const char *prefix) {
  static shoal_var vars[MOST_VARIABLES];
  struct published p = {prefix, NULL};
  int n = shoal_variables(g, true, vars, MOST_VARIABLES);
  if (prefix) p.saver = shoal_saver_new(g, SHOAL_OPTIONS(shoal_saver_options, .vars = vars, .n_vars = n));
  return p;
}

/* A scaffold's init_fn; arg: that. */
static inline shoal_status load_published(void *arg, shoal_session *session) {
  const struct published *p = (const struct published *)arg;
  return shoal_saver_restore(p->saver, session, p->prefix);
}

/* ---- writing ---- */

struct writing {
  const char *prompt, *words, *logits;
  int64_t sample, top_k, seed;
  double temperature;
};
#define WRITING_FLAGS(w)                                                                                 \
  flag_number("sample", "write so many tokens at the end", &(w).sample, 0),                              \
      flag_text("prompt", "what they follow on; of tokens without --words: their numbers", &(w).prompt), \
      flag_real("temperature", "of sampling; 0: the likeliest each time", &(w).temperature),             \
      flag_number("top_k", "of so many tokens; 0: of all", &(w).top_k, 0),                               \
      flag_path("words", "a table of words, to write tokens as text", &(w).words),                       \
      flag_path("write_logits", "a file for the logits of each token that is read, float32", &(w).logits)

struct writer {
  const struct writing *how;
  const struct gpt2 *model;
  const struct tokens *tokens;
  struct words words;
  shoal_var *kept;
  shoal_out in, place, logits; /* [1, 1], a token; [1], where it stands; [1, vocab], what may follow */
  uint64_t random;
  int32_t *prompt; /* [n_prompt] */
  int64_t n_prompt;
  int32_t *token;       /* [context] */
  shoal_tensor *latest; /* logits of the last token */
  float *chance;        /* [vocab] */
  FILE *file;           /* for logits, or NULL */
};

/* The token whose word is the longest that text begins with; -1: there is none. */
static inline int64_t longest_word(const struct words *w, int64_t vocab, const char *text) {
  int64_t best = -1;
  size_t left = strlen(text), length = 0;
  for (int64_t i = 0; i < w->n && i < vocab; i++) {
    size_t n = (size_t)w->length[i];
    if (n <= length || n > left || memcmp(w->word[i], text, n) != 0) continue;
    best = i;
    length = n;
  }
  return best;
}

/* A token's number, and the blanks behind it; -1: there is none that the model has. */
static inline int64_t next_number(int64_t vocab, const char **text) {
  char *end;
  errno = 0;
  long long v = strtoll(*text, &end, 10);
  if (end == *text || errno || v < 0 || v >= vocab || (*end && *end != ' ')) return -1;
  *text = end + strspn(end, " ");
  return v;
}

/* The prompt as the model reads it: bytes where its tokens are bytes, else the words of the table, always the longest
 * that fits (which is not always how those who made the tokens cut a text), or their numbers. */
static inline void read_prompt(struct writer *w) {
  const char *at = w->how->prompt;
  const int64_t vocab = w->tokens->vocab;
  w->prompt = (int32_t *)calloc(strlen(at) + 1, sizeof *w->prompt);
  if (!w->prompt) refuse("no memory for the prompt");
  while (*at) {
    int64_t token;
    if (w->tokens->text) token = (unsigned char)*at++;
    else if (!w->words.word) token = next_number(vocab, &at);
    else if ((token = longest_word(&w->words, vocab, at)) >= 0) at += w->words.length[token];
    if (token < 0 && w->words.word) refuse("--prompt: it has bytes that no word of --words begins with");
    if (token < 0)
      refuse("--prompt: the model's tokens are not bytes: give numbers of tokens it has, \"464 3290\", or --words");
    if (token >= vocab) refuse("--prompt: it has a byte that --vocab does not have");
    w->prompt[w->n_prompt++] = (int32_t)token;
  }
}

static inline struct writer writer_new(const struct writing *how, const struct gpt2 *model,
                                       const struct tokens *tokens) {
  struct writer w;
  memset(&w, 0, sizeof w);
  w.how = how;
  w.model = model;
  w.tokens = tokens;
  w.words = read_words(how->words);
  if (!how->sample && (*how->prompt || how->logits)) refuse("--prompt and --write_logits are for what --sample writes");
  read_prompt(&w);
  w.random = (uint64_t)how->seed * 2654435769u + 88172645463325252ull;
  w.file = how->logits ? fopen(how->logits, "wb") : NULL;
  if (how->logits && !w.file) refuse_file(how->logits, strerror(errno));
  return w;
}

static inline void writer_release(struct writer *w) {
  if (w->file && fclose(w->file)) refuse_file(w->how->logits, strerror(errno));
  free_words(&w->words);
  free(w->kept);
  free(w->prompt);
  free(w->token);
  shoal_tensor_unref(w->latest);
  free(w->chance);
}

/* A copy of the model for one text, without anything of training. What is kept belongs to no copy; the variables are
 * those of the sharing, or (NULL) new ones. */
static inline void build_writer(shoal_graph *g, struct writer *w, shoal_sharing *sharing) {
  const struct gpt2 *m = w->model;
  w->in = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(1, 1), "token");
  w->place = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(1), "place");
  w->kept = gpt2_room(m, g);
  w->token = (int32_t *)calloc((size_t)m->context, sizeof *w->token);
  w->chance = (float *)calloc((size_t)m->vocab, sizeof *w->chance);
  if (!w->kept || !w->token || !w->chance) refuse("no memory for what is written");
  struct gpt2_copy c = gpt2_writing(m, g, w->kept, w->place);
  if (sharing) shoal_sharing_begin(g, sharing);
  shoal_out logits = gpt2_logits(&c, w->in);
  if (sharing) shoal_sharing_end(g, sharing);
  w->logits = shoal_cast(g, logits, SHOAL_FLOAT32);
}

static inline double draw(struct writer *w) {
  w->random ^= w->random << 13, w->random ^= w->random >> 7, w->random ^= w->random << 17;
  return (double)(w->random >> 11) * 0x1p-53;
}

static inline int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The logit that at least top_k have. */
static inline float smallest(const struct writer *w, const float *logit) {
  int64_t n = w->tokens->vocab, k = w->how->top_k;
  if (!k || k >= n) return -INFINITY;
  memcpy(w->chance, logit, (size_t)n * sizeof *logit);
  qsort(w->chance, (size_t)n, sizeof *w->chance, ascending);
  return w->chance[n - k];
}

/* The next token by its logits; padding has no part in it. */
static inline int32_t choose(struct writer *w, const float *logit) {
  int64_t n = w->tokens->vocab, best = 0;
  float least = smallest(w, logit);
  for (int64_t i = 1; i < n; i++)
    if (logit[i] > logit[best]) best = i;
  if (w->how->temperature == 0) return (int32_t)best;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double e = exp(((double)logit[i] - (double)logit[best]) / w->how->temperature);
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
static inline void read_token(struct writer *w, shoal_session *session, int64_t i) {
  const int64_t dims[] = {1, 1};
  const int32_t at = (int32_t)i;
  shoal_tensor *in, *place;
  check(shoal_tensor_from(SHOAL_INT32, 2, dims, &w->token[i], sizeof *w->token, &in));
  check(shoal_tensor_from(SHOAL_INT32, 1, dims, &at, sizeof at, &place));
  shoal_tensor_unref(w->latest);
  check(shoal_session_step(session, SHOAL_FEED(w->in, in, w->place, place), SHOAL_FETCH(w->logits, &w->latest), NULL));
  shoal_tensor_unref(in);
  shoal_tensor_unref(place);
  if (w->file) fwrite(shoal_tensor_const_data(w->latest), sizeof(float), (size_t)w->model->vocab, w->file);
}

/* One more token behind the n there are. */
static inline int64_t write_one(struct writer *w, shoal_session *session, int64_t n) {
  int32_t next = choose(w, (const float *)shoal_tensor_const_data(w->latest));
  print_token(&w->words, w->tokens->text, next);
  fflush(stdout);
  if (n == w->model->context) {
    int64_t half = n / 2;
    memmove(w->token, w->token + n - half, (size_t)half * sizeof *w->token);
    for (n = 0; n < half; n++) read_token(w, session, n);
  }
  w->token[n] = next;
  read_token(w, session, n);
  return n + 1;
}

/* What the text begins with: the end of the prompt; or else what ends a text in a file of tokens, a line in one of
 * bytes. */
static inline int64_t begin_text(struct writer *w) {
  int64_t n = w->n_prompt, skip = n > w->model->context ? n - w->model->context : 0;
  for (int64_t i = skip; i < n; i++) w->token[i - skip] = w->prompt[i];
  if (!n) w->token[0] = w->tokens->text ? (int32_t)10 : w->tokens->vocab > 50256 ? 50256 : 0;
  return n ? n - skip : 1;
}

static inline void write_text(shoal_session *session, void *arg) {
  struct writer *w = (struct writer *)arg;
  int64_t n = begin_text(w);
  for (int64_t i = 0; i < n; i++) read_token(w, session, i);
  printf("---\n%s%s", w->how->prompt, w->n_prompt && !w->tokens->text && !w->words.word ? " " : "");
  for (int64_t i = 0; i < w->how->sample; i++) n = write_one(w, session, n);
  printf("\n---\n");
}

#endif

/* Reads dates in many spellings and writes them as ISO 8601 does: a Transformer with an encoder, which reads, and a
 * decoder, which writes letter by letter. Days that the test asks for are in no training batch, so the accuracy at the
 * end is of what was learnt, not of what was seen.
 *
 *   dates --checkpoint_dir=out                                   one process; a few minutes
 *   dates --steps=0 --checkpoint_dir=out --ask='Wed the 18th of November 2026'
 *   shoal launch --ps=0 --workers=2 -- dates                     and all that anywhere.h has: --devices, ps, --stages
 *
 * What goes from layer to layer is one tensor, [batch, SOURCE + TARGET, width]: what the encoder knows of each letter
 * read, then what the decoder knows of each letter to be written. Layers of the encoder change the first part, those of
 * the decoder the second, looking at the first: so the model can be cut into stages behind any layer. */
#include <ctype.h>
#include <math.h>

#include "anywhere.h"

enum { SOURCE = 44, TARGET = 10, LETTERS = 128, BEGIN = 1, FIRST_DAY = -62091, DAYS = 146097, HELD_OUT = 16 };

/* ---- dates ---- */

struct date {
  int year, month, day, weekday;
};

/* Of a day counted from 1970-01-01. */
static struct date civil(int64_t days) {
  int64_t z = days + 719468, era = z / 146097, d = z % 146097; /* from 0000-03-01, in 400 years of 146097 days */
  int64_t y = (d - d / 1460 + d / 36524 - d / 146096) / 365, of_year = d - (365 * y + y / 4 - y / 100);
  int64_t m = (5 * of_year + 2) / 153;
  struct date r = {(int)(y + era * 400 + (m >= 10)), (int)(m < 10 ? m + 3 : m - 9),
                   (int)(of_year - (153 * m + 2) / 5 + 1), (int)(((days % 7) + 11) % 7)};
  return r;
}

static uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static bool held_out(int64_t day) { return mixed((uint64_t)day) % HELD_OUT == 0; }

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const roman[] = {"I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"};

static const char *ending(int day) {
  if (day / 10 == 1) return "th";
  return day % 10 == 1 ? "st" : day % 10 == 2 ? "nd" : day % 10 == 3 ? "rd" : "th";
}

enum { SPELLINGS = 12 };

static void spell(struct date d, int how, char out[SOURCE + 1]) {
  const char *month = months[d.month - 1], *weekday = weekdays[d.weekday], *th = ending(d.day);
  const size_t n = SOURCE + 1;
  switch (how) {
    case 0: snprintf(out, n, "%d%02d%02d", d.year, d.month, d.day); break;
    case 1: snprintf(out, n, "%d %s %d", d.day, month, d.year); break;
    case 2: snprintf(out, n, "%s %d, %d", month, d.day, d.year); break;
    case 3: snprintf(out, n, "%.3s %d %d", month, d.day, d.year); break;
    case 4: snprintf(out, n, "%d%s of %s, %d", d.day, th, month, d.year); break;
    case 5: snprintf(out, n, "%s, %d %s %d", weekday, d.day, month, d.year); break;
    case 6: snprintf(out, n, "%.3s %.3s %02d %d", weekday, month, d.day, d.year); break;
    case 7: snprintf(out, n, "%d.%d.%d", d.day, d.month, d.year); break;
    case 8: snprintf(out, n, "%d/%d/%d", d.month, d.day, d.year); break; /* as in America: the other has points */
    case 9: snprintf(out, n, "%d.%s.%d", d.day, roman[d.month - 1], d.year); break;
    case 10: snprintf(out, n, "%.3s the %d%s of %s %d", weekday, d.day, th, month, d.year); break;
    default: snprintf(out, n, "the %d%s day of %s in the year %d", d.day, th, month, d.year); break;
  }
}

/* Number n of all examples that there are: a day, held out or not, in one of so many spellings, in some case; and as
 * ISO 8601 has it. */
static void make_example(uint64_t seed, uint64_t n, bool test, int64_t spellings, char source[SOURCE + 1],
                         char target[16]) {
  uint64_t random = mixed(seed * 0x100000001b3u + n * 2 + test);
  int64_t day;
  do {
    random = mixed(random);
    day = FIRST_DAY + (int64_t)(random % DAYS);
  } while (held_out(day) != test);
  struct date d = civil(day);
  random = mixed(random);
  spell(d, (int)(random % (uint64_t)spellings), source);
  int which = (int)(random / SPELLINGS % 4); /* as it is, twice as often */
  for (char *c = source; *c; c++) {
    if (which == 0) *c = (char)tolower((unsigned char)*c);
    if (which == 1) *c = (char)toupper((unsigned char)*c);
  }
  snprintf(target, 16, "%04u-%02u-%02u", (unsigned)d.year % 10000, (unsigned)d.month % 100, (unsigned)d.day % 100);
}

/* A row of what the model gets: the text, filled up with spaces, and the letters written so far, behind BEGIN. */
static void put_row(int32_t *row, const char *source, const char *written) {
  size_t n = strlen(source), k = strlen(written);
  for (size_t i = 0; i < SOURCE; i++) row[i] = i < n ? (unsigned char)source[i] % LETTERS : ' ';
  row[SOURCE] = BEGIN;
  for (size_t i = 1; i < TARGET; i++) row[SOURCE + i] = i <= k ? written[i - 1] : ' ';
}

struct feeder {
  int64_t rows, seed, spellings;
  int task, tasks;
};

/* The examples of a step, which its number says: two tensors, [rows, SOURCE + TARGET] and [rows, TARGET]. */
static shoal_status fill(void *arg, int64_t position, shoal_tensor **values) {
  const struct feeder *f = (const struct feeder *)arg;
  const int64_t dims[] = {f->rows, SOURCE + TARGET}, label_dims[] = {f->rows, TARGET};
  check(shoal_tensor_new(SHOAL_INT32, 2, dims, &values[0]));
  check(shoal_tensor_new(SHOAL_INT32, 2, label_dims, &values[1]));
  int32_t *x = (int32_t *)shoal_tensor_data(values[0]), *y = (int32_t *)shoal_tensor_data(values[1]);
  for (int64_t i = 0; i < f->rows; i++) {
    char source[SOURCE + 1], target[16];
    make_example((uint64_t)f->seed, (uint64_t)((position * f->tasks + f->task) * f->rows + i), false, f->spellings,
                 source, target);
    put_row(x + i * (SOURCE + TARGET), source, target);
    for (int k = 0; k < TARGET; k++) y[i * TARGET + k] = target[k];
  }
  return NULL;
}

/* ---- the model ---- */

struct translator {
  int64_t layers, heads, width; /* layers: of the encoder, and of the decoder */
};

/* Letters [begin, begin + n) of what goes from layer to layer. */
static shoal_out letters(shoal_graph *g, shoal_out h, int begin, int n) {
  const int32_t from[] = {0, begin, 0}, size[] = {-1, n, -1};
  return shoal_slice(g, h, shoal_constant_ints(g, SHOAL_SHAPE(3), from), shoal_constant_ints(g, SHOAL_SHAPE(3), size));
}

static shoal_out both(shoal_graph *g, shoal_out read, shoal_out written) {
  const shoal_out parts[] = {read, written};
  return shoal_concat_v2(g, parts, 2, shoal_constant_int(g, 1));
}

/* x plus what attention of x's letters to those of `to` finds. */
static shoal_out look(shoal_graph *g, const struct translator *m, shoal_out x, shoal_out to, shoal_out mask,
                      const char *name) {
  shoal_push_scope(g, name);
  shoal_out from = shoal_layer_norm(g, x, "norm", NULL);
  if (to.node == x.node) to = from;
  shoal_out q = shoal_dense_with(g, from, m->width, "query", NULL), k = shoal_dense_with(g, to, m->width, "key", NULL),
            v = shoal_dense_with(g, to, m->width, "value", NULL);
  shoal_out y = shoal_attention(g, q, k, v, m->heads, SHOAL_OPTIONS(shoal_attention_options, .mask = mask));
  y = shoal_dense_with(g, y, m->width, "out", NULL);
  shoal_pop_scope(g);
  return shoal_add_v2(g, x, y);
}

static shoal_out think(shoal_graph *g, const struct translator *m, shoal_out x) {
  shoal_push_scope(g, "dense");
  shoal_out y = shoal_gelu(g, shoal_dense_with(g, shoal_layer_norm(g, x, "norm", NULL), 4 * m->width, "in", NULL));
  y = shoal_dense_with(g, y, m->width, "out", NULL);
  shoal_pop_scope(g);
  return shoal_add_v2(g, x, y);
}

/* Layer i of all, the encoder's first. */
static shoal_out one_layer(shoal_graph *g, const struct translator *m, shoal_out h, int i) {
  const shoal_out all = {NULL, 0};
  char name[32];
  bool encodes = i < m->layers;
  shoal_out read = letters(g, h, 0, SOURCE), written = letters(g, h, SOURCE, TARGET);
  snprintf(name, sizeof name, "%s/layer%d", encodes ? "encoder" : "decoder", encodes ? i : i - (int)m->layers);
  shoal_push_scope(g, name);
  if (encodes) read = think(g, m, look(g, m, read, read, all, "itself"));
  else {
    written = look(g, m, written, written, shoal_causal_mask(g, SHOAL_FLOAT32, TARGET, TARGET), "itself");
    written = think(g, m, look(g, m, written, read, all, "encoder"));
  }
  if (i == m->layers - 1) read = shoal_layer_norm(g, read, "last_norm", NULL);
  shoal_pop_scope(g);
  return both(g, read, written);
}

static shoal_out embed(shoal_graph *g, const struct translator *m, shoal_out in) {
  shoal_var letter = shoal_variable(
      g, "letters", shoal_init_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(LETTERS, m->width), 0, 1 / sqrt((double)m->width)));
  shoal_var place = shoal_variable(
      g, "places",
      shoal_init_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(SOURCE + TARGET, m->width), 0, 1 / sqrt((double)m->width)));
  return shoal_position_embedding(g, shoal_embedding(g, letter, in, SHOAL_FLOAT32), place);
}

/* From letters [batch, SOURCE + TARGET] to logits of those to be written, [batch, TARGET, LETTERS]. */
static shoal_out forward(shoal_graph *g, shoal_out h, int part, int parts, void *arg) {
  const struct translator *m = (const struct translator *)arg;
  int layers = 2 * (int)m->layers;
  if (part == 0) h = embed(g, m, h);
  for (int i = part * layers / parts; i < (part + 1) * layers / parts; i++) h = one_layer(g, m, h, i);
  if (part < parts - 1) return h;
  h = shoal_layer_norm(g, letters(g, h, SOURCE, TARGET), "last_norm", NULL);
  return shoal_dense_with(g, h, LETTERS, "logits_of", NULL);
}

/* ---- the test ---- */

struct test {
  struct own_copy own;
  struct translator *model;
  int64_t n, seed, spellings;
  const char *ask;
  shoal_out in, best; /* [rows, SOURCE + TARGET]; [rows, TARGET], the likeliest letters */
};

static void build_test(struct test *t, const shoal_graph *trained, const char *device) {
  own_begin(&t->own, trained, device);
  shoal_graph *g = t->own.g;
  t->in = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(-1, SOURCE + TARGET), "letters_in");
  t->best = shoal_arg_max(g, forward(g, t->in, 0, 1, t->model), shoal_constant_int(g, 2));
  own_end(&t->own);
}

/* Writes the dates of n texts, a letter of each at a time. */
static void translate(const struct test *t, shoal_session *s, const char (*source)[SOURCE + 1], char (*written)[16],
                      int64_t n) {
  const int64_t dims[] = {n, SOURCE + TARGET};
  for (int k = 0; k < TARGET; k++) {
    shoal_tensor *in = NULL, *best = NULL;
    check(shoal_tensor_new(SHOAL_INT32, 2, dims, &in));
    for (int64_t i = 0; i < n; i++)
      put_row((int32_t *)shoal_tensor_data(in) + i * (SOURCE + TARGET), source[i], written[i]);
    check(shoal_session_step(s, SHOAL_FEED(t->in, in), SHOAL_FETCH(t->best, &best), NULL));
    for (int64_t i = 0; i < n; i++)
      written[i][k] = (char)((const int64_t *)shoal_tensor_const_data(best))[i * TARGET + k];
    shoal_tensor_unref(in);
    shoal_tensor_unref(best);
  }
}

static void test_model(shoal_session *trained, void *arg) {
  enum { AT_ONCE = 64, SHOWN = 4 };
  struct test *t = (struct test *)arg;
  static char source[AT_ONCE][SOURCE + 1], written[AT_ONCE][16], target[AT_ONCE][16];
  shoal_session *s = own_session(&t->own, trained);
  int64_t right = 0;
  for (int64_t at = 0; at < t->n; at += AT_ONCE) {
    int64_t n = t->n - at < AT_ONCE ? t->n - at : AT_ONCE;
    memset(written, 0, sizeof written);
    for (int64_t i = 0; i < n; i++)
      make_example((uint64_t)t->seed, (uint64_t)(at + i), true, t->spellings, source[i], target[i]);
    translate(t, s, (const char(*)[SOURCE + 1]) source, written, n);
    for (int64_t i = 0; i < n; i++) right += !strcmp(written[i], target[i]);
    for (int64_t i = 0; !at && i < n && i < SHOWN; i++)
      printf("%s -> %s%s\n", source[i], written[i], strcmp(written[i], target[i]) ? " (wrong)" : "");
  }
  if (t->n)
    printf("accuracy %.4f: %lld of %lld dates, of days in no training batch\n", (double)right / (double)t->n,
           (long long)right, (long long)t->n);
  if (t->ask) {
    memset(written, 0, sizeof written);
    snprintf(source[0], sizeof source[0], "%s", t->ask);
    translate(t, s, (const char(*)[SOURCE + 1]) source, written, 1);
    printf("%s -> %s\n", t->ask, written[0]);
  }
  shoal_status_free(shoal_session_close(s));
}

/* ---- all of it ---- */

struct settings {
  struct translator model;
  struct steps steps;
  struct learning learning;
  struct anywhere where;
  const char *ask;
  int64_t batch, seed, spellings, test;
};

static void read_settings(int argc, char **argv, struct settings *s) {
  const struct flag flags[] = {
      flag_number("layers", "of the encoder, and of the decoder", &s->model.layers, 1),
      flag_number("heads", "of attention", &s->model.heads, 1),
      flag_number("width", "of what a layer passes on; a multiple of heads", &s->model.width, 1),
      flag_number("batch", "dates a step, of each replica", &s->batch, 1),
      flag_number("test", "dates that the model is tried on at the end", &s->test, 0),
      flag_text("ask", "a date to be read at the end", &s->ask),
      flag_between("spellings", "how many there are, from the simplest on", &s->spellings, 1, SPELLINGS),
      LEARNING_FLAGS(s->learning),
      STEPS_FLAGS(s->steps),
      ANYWHERE_FLAGS(s->where),
      flag_number("seed", "of initial values and dates", &s->seed, 0),
      flags_end(),
  };
  read_flags(argc, argv, "dates: reads dates in many spellings, writes them as 2026-11-18", flags);
  check_save(&s->steps.save, s->steps.checkpoint_dir);
  if (s->model.width % s->model.heads) refuse("--width must be a multiple of --heads");
  if (s->learning.label_smoothing > 1) refuse("--label_smoothing is at most 1");
  if (s->ask && strlen(s->ask) > SOURCE) refuse("--ask: a date of at most 44 letters");
  s->learning.last = s->steps.last;
  check_anywhere(&s->where, s->batch, 2 * s->model.layers);
}

static shoal_status train(struct settings *s) {
  const int64_t rows = s->batch * replicas_fed(&s->where);
  struct feeder feeder = {rows, s->seed, s->spellings, s->where.task, s->where.tasks};
  s->steps.consumed = rows;
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s->seed);
  struct model m;
  memset(&m, 0, sizeof m);
  m.forward = forward;
  m.arg = &s->model;
  m.learning = &s->learning;
  m.device = s->steps.device;
  m.in[0] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(rows, SOURCE + TARGET), "letters_in");
  m.in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(rows, TARGET), "letters_out");
  build_anywhere(g, &m, &s->where);
  shoal_input position = input_anywhere(g, &s->where);
  if (shoal_graph_error(g)) exit(shoal_report(g));
  struct test test;
  memset(&test, 0, sizeof test);
  test.model = &s->model;
  test.n = s->test;
  test.seed = s->seed;
  test.spellings = s->spellings;
  test.ask = s->ask;
  if (s->where.is_chief) build_test(&test, g, s->steps.device);
  shoal_status error =
      run_steps(g, &s->steps, &m.watched, m.train, shoal_input_hook(position, m.in, MODEL_INPUTS, fill, &feeder), NULL,
                s->where.is_chief ? test_model : NULL, &test);
  own_release(&test.own);
  shoal_graph_free(g);
  return error;
}

int main(int argc, char **argv) {
  struct settings s;
  memset(&s, 0, sizeof s);
  s.model.layers = 2;
  s.model.heads = 4;
  s.model.width = 64;
  s.steps.unit = "dates";
  s.steps.last = 2000;
  s.steps.log = 100;
  s.batch = 64;
  s.spellings = SPELLINGS;
  s.test = 512;
  s.learning.rate = 2e-3;
  s.learning.weight_decay = 0.01;
  s.learning.clip = 1;
  s.learning.warmup = 100;
  s.seed = 1;
  s.where.devices = 1;
  s.where.micro_batches = 2;
  read_settings(argc, argv, &s);
  find_place(&s.where, &s.steps);
  shoal_status error = train(&s);
  leave_place(&s.where);
  return shoal_train_exit(error);
}

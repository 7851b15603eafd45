/* Feature columns, made and checked. What makes no sense is said here, before any graph is made: a file of words that
 * is gone, bounds that do not rise, columns of the wrong kind inside others. */
#include "columns/column.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/strmap.h"
#include "base/text.h"
#include "graph/given.h"

/* TensorFlow's, of crosses that say none. */
static const uint64_t default_hash_key = 0xDECAFCAFFE;

const char *column_kind_name(const struct shoal_column *c) {
  static const char *const names[] = {"a numeric column", "a numeric sequence",  "a bucketized column",
                                      "a vocabulary",     "a hashed column",     "an identity column",
                                      "a crossed column", "a feature",           "a weighted column",
                                      "a sequence",       "an indicator column", "an embedding column"};
  return names[c->kind];
}

/* ---- the set ---- */

shoal_columns *shoal_columns_new(void) { return mem_zalloc(1, sizeof(shoal_columns)); }

static void column_free(struct shoal_column *c) {
  for (int64_t i = 0; c->words && i < c->n_words; i++) free(c->words[i]);
  free(c->words);
  free(c->numbers);
  free(c->path);
  free(c->bounds);
  free(c->of);
  free(c->table);
  free(c->key);
  free(c->name);
  free(c);
}

void shoal_columns_free(shoal_columns *c) {
  if (!c) return;
  for (size_t i = 0; i < c->all.n; i++) column_free(c->all.at[i]);
  vec_release(&c->all);
  shoal_status_free(c->error);
  free(c);
}

shoal_status shoal_columns_error(const shoal_columns *c) { return c->error; }
const char *shoal_column_name(const shoal_column *column) { return column ? column->name : ""; }

static void fail(shoal_columns *c, shoal_status s) {
  if (c->error) shoal_status_free(s);
  else c->error = status_kept(s);
}

/* ---- making one ---- */

/* Also where there is a mistake: whoever has the column then has one that does nothing. name is taken over. */
static struct shoal_column *begin(shoal_columns *c, enum column_kind kind, const char *key, char *name) {
  struct shoal_column *n = mem_zalloc(1, sizeof *n);
  n->set = c;
  n->kind = kind;
  n->key = key ? mem_strdup(key) : NULL;
  n->name = name;
  n->elements = 1;
  n->default_id = -1;
  vec_push(&c->all, n);
  return n;
}

static struct shoal_column *begin_keyed(shoal_columns *c, enum column_kind kind, const char *caller, const char *key) {
  if (!key || !*key) fail(c, INVALID("%s: the key of a column is %s", caller, key ? "empty" : "NULL"));
  return begin(c, kind, key ? key : "", mem_strdup(key ? key : ""));
}

/* A column over others. what: the kinds that it takes, for the message. */
static struct shoal_column *begin_of(shoal_columns *c, enum column_kind kind, const struct shoal_column *const *of,
                                     int n, char *name) {
  struct shoal_column *made = begin(c, kind, NULL, name);
  made->of = mem_zalloc((size_t)n + 1, sizeof *made->of);
  for (int i = 0; i < n; i++) made->of[i] = of[i];
  made->n_of = n;
  return made;
}

/* Is it there, of this set, and of a kind that is wanted? */
static bool check_part(shoal_columns *c, const char *caller, const struct shoal_column *part, bool right,
                       const char *wanted) {
  if (!part) fail(c, INVALID("%s: a column is NULL", caller));
  else if (part->set != c) fail(c, INVALID("%s: '%s' is a column of another set", caller, part->name));
  else if (!right) fail(c, INVALID("%s takes %s; '%s' is %s", caller, wanted, part->name, column_kind_name(part)));
  return !c->error;
}

static bool check_buckets(shoal_columns *c, const char *caller, const char *key, int64_t buckets) {
  if (buckets < 1 || buckets > INT32_MAX)
    fail(c, INVALID("%s: '%s' has %lld buckets; 1 to %d are possible", caller, key ? key : "", (long long)buckets,
                    INT32_MAX));
  return !c->error;
}

static struct shoal_column *numeric(shoal_columns *c, enum column_kind kind, const char *caller, const char *key,
                                    const shoal_numeric_options *options) {
  shoal_numeric_options o = {0};
  struct shoal_column *n = begin_keyed(c, kind, caller, key);
  shoal_status e = OPTIONS_TAKE(shoal_numeric_options, arg, &o, options);
  if (!e && (o.shape.rank < 0 || o.shape.rank > SHOAL_MAX_RANK - 2))
    e = INVALID("%s: '%s' has a shape of rank %d", caller, n->key, o.shape.rank);
  for (int i = 0; !e && i < o.shape.rank; i++) {
    n->dims[i] = o.shape.at[i];
    if (n->dims[i] < 1 || mul_overflows(n->elements, n->dims[i], &n->elements))
      e = INVALID("%s: a dimension of '%s' is %lld", caller, n->key, (long long)n->dims[i]);
  }
  n->dtype = o.dtype ? o.dtype : SHOAL_FLOAT32;
  if (!e && n->dtype != SHOAL_FLOAT32 && n->dtype != SHOAL_INT64 && n->dtype != SHOAL_FLOAT64 &&
      n->dtype != SHOAL_INT32)
    e = INVALID("%s: '%s' is of type %s; numbers are wanted", caller, n->key,
                shoal_dtype_name(n->dtype) ? shoal_dtype_name(n->dtype) : "unknown");
  if (e) fail(c, e);
  n->rank = MAX(o.shape.rank, 0);
  n->has_default = o.has_default;
  n->default_value = o.default_value;
  n->normalizer = o.normalizer;
  n->arg = o.arg;
  return n;
}

const shoal_column *shoal_column_numeric(shoal_columns *c, const char *key, const shoal_numeric_options *options) {
  return numeric(c, COLUMN_NUMERIC, __func__, key, options);
}
const shoal_column *shoal_column_sequence_numeric(shoal_columns *c, const char *key,
                                                  const shoal_numeric_options *options) {
  return numeric(c, COLUMN_SEQUENCE_NUMERIC, __func__, key, options);
}

const shoal_column *shoal_column_bucketized(shoal_columns *c, const shoal_column *source, const float *bounds, int n) {
  struct shoal_column *b =
      begin_of(c, COLUMN_BUCKETIZED, &source, 1, mem_printf("%s_bucketized", source ? source->name : ""));
  if (!check_part(c, __func__, source, source && source->kind == COLUMN_NUMERIC, "a numeric column")) return b;
  shoal_status e = given_array(__func__, "bounds", bounds, n);
  if (!e && source->rank > 1)
    e = INVALID("%s: '%s' has rank %d; 0 or 1 is possible", __func__, source->name, source->rank);
  if (!e && n < 1) e = INVALID("%s: no bounds for '%s'", __func__, source->name);
  for (int i = 0; !e && i < n; i++)
    if (!(i == 0 ? bounds[0] == bounds[0] : bounds[i - 1] < bounds[i]))
      e = INVALID("%s: the bounds of '%s' do not rise at %d", __func__, source->name, i);
  if (e) {
    fail(c, e);
    return b;
  }
  b->bounds = mem_zalloc((size_t)n, sizeof *b->bounds);
  memcpy(b->bounds, bounds, (size_t)n * sizeof *bounds);
  b->n_bounds = n;
  b->buckets = (n + 1) * source->elements;
  return b;
}

/* How many lines a file of words has, as TensorFlow counts them. */
static shoal_status count_lines(const char *path, int64_t *lines) {
  FILE *f = fopen(path, "r");
  if (!f) return ERRNO_STATUS(errno, "the vocabulary file %s", path);
  char block[65536];
  size_t got;
  char last = '\n';
  *lines = 0;
  while ((got = fread(block, 1, sizeof block, f)) > 0) {
    for (size_t i = 0; i < got; i++) *lines += block[i] == '\n';
    last = block[got - 1];
  }
  bool bad = ferror(f);
  fclose(f);
  if (bad) return STATUS(SHOAL_DATA_LOSS, "the vocabulary file %s cannot be read", path);
  *lines += last != '\n';
  return NULL;
}

static int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* A word has one id. (A file's are looked at when its table is filled.) */
static shoal_status check_once(const struct shoal_column *n, const shoal_vocabulary *v) {
  shoal_status e = NULL;
  if (v->numbers) {
    int64_t *sorted = mem_zalloc((size_t)v->n, sizeof *sorted);
    memcpy(sorted, v->numbers, (size_t)v->n * sizeof *sorted);
    qsort(sorted, (size_t)v->n, sizeof *sorted, by_size);
    for (int64_t i = 1; i < v->n && !e; i++)
      if (sorted[i] == sorted[i - 1])
        e = INVALID("the vocabulary of '%s' has %lld twice", n->key, (long long)sorted[i]);
    free(sorted);
    return e;
  }
  struct strmap seen = {0};
  for (int64_t i = 0; i < v->n && !e; i++)
    if (strmap_put(&seen, v->words[i], (void *)1))
      e = INVALID("the vocabulary of '%s' has '%s' twice", n->key, v->words[i]);
  strmap_release(&seen);
  return e;
}

static shoal_status take_words(struct shoal_column *n, const shoal_vocabulary *v) {
  int given = (v->words != NULL) + (v->numbers != NULL) + (v->path != NULL);
  if (given != 1) return INVALID("the vocabulary of '%s' is to be one of words, numbers and path", n->key);
  if (v->path) {
    int64_t lines;
    TRY(count_lines(v->path, &lines));
    n->n_words = v->n ? v->n : lines;
    if (n->n_words < 1 || n->n_words > lines)
      return INVALID("the vocabulary file %s of '%s' has %lld lines, where %lld are wanted", v->path, n->key,
                     (long long)lines, (long long)MAX(v->n, (int64_t)1));
    n->path = mem_strdup(v->path);
    return NULL;
  }
  if (v->n < 1 || v->n > INT32_MAX) return INVALID("the vocabulary of '%s' has %lld words", n->key, (long long)v->n);
  if (v->words) TRY(given_names("shoal_column_vocabulary", "words", v->words, v->n));
  TRY(check_once(n, v));
  if (v->numbers) {
    n->numbers = mem_zalloc((size_t)v->n, sizeof *n->numbers);
    memcpy(n->numbers, v->numbers, (size_t)v->n * sizeof *n->numbers);
  } else {
    n->words = mem_zalloc((size_t)v->n, sizeof *n->words);
    for (int64_t i = 0; i < v->n; i++) n->words[i] = mem_strdup(v->words[i]);
  }
  n->n_words = v->n;
  return NULL;
}

const shoal_column *shoal_column_vocabulary(shoal_columns *c, const char *key, const shoal_vocabulary *given) {
  shoal_vocabulary v = {0};
  struct shoal_column *n = begin_keyed(c, COLUMN_VOCABULARY, __func__, key);
  shoal_status e = given ? OPTIONS_TAKE(shoal_vocabulary, integers, &v, given)
                         : INVALID("%s: the vocabulary of '%s' is NULL", __func__, n->key);
  n->dtype = v.numbers || v.integers ? SHOAL_INT64 : SHOAL_STRING;
  if (!e) e = take_words(n, &v);
  if (!e && (v.oov_buckets < 0 || v.oov_buckets > INT32_MAX))
    e = INVALID("%s: '%s' has %lld buckets for other words", __func__, n->key, (long long)v.oov_buckets);
  if (!e && v.oov_buckets && v.has_default_id)
    e = INVALID("%s: '%s' has both a default id and buckets for other words", __func__, n->key);
  if (!e && v.has_default_id && (v.default_id < -1 || v.default_id >= n->n_words))
    e = INVALID("%s: the default id of '%s' is %lld of %lld", __func__, n->key, (long long)v.default_id,
                (long long)n->n_words);
  if (e) fail(c, e);
  n->oov_buckets = v.oov_buckets;
  n->default_id = v.has_default_id ? v.default_id : -1;
  n->buckets = n->n_words + n->oov_buckets;
  return n;
}

static bool check_word_type(shoal_columns *c, const char *caller, const char *key, shoal_dtype dtype) {
  if (dtype != SHOAL_STRING && dtype != SHOAL_INT64 && dtype != SHOAL_INT32)
    fail(c, INVALID("%s: '%s' is of type %s; strings or integers are wanted", caller, key,
                    shoal_dtype_name(dtype) ? shoal_dtype_name(dtype) : "unknown"));
  return !c->error;
}

const shoal_column *shoal_column_hashed(shoal_columns *c, const char *key, int64_t buckets, shoal_dtype dtype) {
  struct shoal_column *n = begin_keyed(c, COLUMN_HASHED, __func__, key);
  check_buckets(c, __func__, key, buckets);
  check_word_type(c, __func__, n->key, dtype);
  n->dtype = dtype;
  n->buckets = buckets;
  return n;
}

const shoal_column *shoal_column_identity(shoal_columns *c, const char *key, int64_t buckets, int64_t default_id) {
  struct shoal_column *n = begin_keyed(c, COLUMN_IDENTITY, __func__, key);
  if (check_buckets(c, __func__, key, buckets) && default_id >= buckets)
    fail(c, INVALID("%s: the default id of '%s' is %lld of %lld", __func__, key, (long long)default_id,
                    (long long)buckets));
  n->dtype = SHOAL_INT64;
  n->buckets = buckets;
  n->default_id = MAX(default_id, (int64_t)-1);
  return n;
}

const shoal_column *shoal_column_feature(shoal_columns *c, const char *key, shoal_dtype dtype) {
  struct shoal_column *n = begin_keyed(c, COLUMN_FEATURE, __func__, key);
  check_word_type(c, __func__, n->key, dtype);
  n->dtype = dtype;
  return n;
}

/* ---- columns of columns ---- */

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The names that a cross is of, crosses in it taken apart. */
static void leaf_names(const struct shoal_column *const *of, int n, const char **names, int *count) {
  for (int i = 0; i < n; i++) {
    if (of[i]->kind == COLUMN_CROSSED) leaf_names(of[i]->of, of[i]->n_of, names, count);
    else if (names) names[(*count)++] = of[i]->name;
    else (*count)++;
  }
}

static char *joined_names(const struct shoal_column *const *of, int n, const char *between, const char *end) {
  int count = 0;
  leaf_names(of, n, NULL, &count);
  const char **names = mem_zalloc((size_t)count + 1, sizeof *names);
  count = 0;
  leaf_names(of, n, names, &count);
  qsort(names, (size_t)count, sizeof *names, by_text);
  struct text t = {0};
  for (int i = 0; i < count; i++) text_addf(&t, "%s%s", i ? between : "", names[i]);
  text_addf(&t, "%s", end);
  free(names);
  return text_take(&t);
}

const shoal_column *shoal_column_crossed(shoal_columns *c, const shoal_column *const *of, int n, int64_t buckets,
                                         uint64_t hash_key) {
  shoal_status e = given_array(__func__, "of", of, n);
  if (!e && n < 2) e = INVALID("%s: a cross is of at least two", __func__);
  if (e) fail(c, e);
  for (int i = 0; i < n && of; i++) {
    enum column_kind k = of[i] ? of[i]->kind : COLUMN_NUMERIC;
    bool right = k == COLUMN_BUCKETIZED || k == COLUMN_VOCABULARY || k == COLUMN_IDENTITY || k == COLUMN_CROSSED ||
                 k == COLUMN_FEATURE;
    check_part(c, __func__, of[i], right,
               "bucketized columns, vocabularies, identities, crosses and features (of what would be hashed)");
  }
  if (c->error) return begin_of(c, COLUMN_CROSSED, NULL, 0, mem_strdup(""));
  struct shoal_column *x = begin_of(c, COLUMN_CROSSED, of, n, joined_names(of, n, "_X_", ""));
  check_buckets(c, __func__, x->name, buckets);
  x->buckets = buckets;
  x->hash_key = hash_key ? hash_key : default_hash_key;
  return x;
}

const shoal_column *shoal_column_weighted(shoal_columns *c, const shoal_column *category, const char *weights,
                                          shoal_dtype dtype) {
  bool right = category && column_is_category(category) && category->kind != COLUMN_WEIGHTED &&
               category->kind != COLUMN_SEQUENCE;
  if (!weights) fail(c, INVALID("%s: weights is NULL", __func__));
  struct shoal_column *w =
      begin_of(c, COLUMN_WEIGHTED, &category, 1,
               mem_printf("%s_weighted_by_%s", category ? category->name : "", weights ? weights : ""));
  w->key = mem_strdup(weights ? weights : "");
  w->dtype = dtype ? dtype : SHOAL_FLOAT32;
  if (w->dtype != SHOAL_FLOAT32 && w->dtype != SHOAL_INT64)
    fail(c, INVALID("%s: weights '%s' of type %s; float32 or int64 is possible", __func__, w->key,
                    shoal_dtype_name(w->dtype) ? shoal_dtype_name(w->dtype) : "unknown"));
  if (check_part(c, __func__, category, right, "a category without weights")) w->buckets = category->buckets;
  return w;
}

const shoal_column *shoal_column_sequence(shoal_columns *c, const shoal_column *category) {
  bool right = category && column_is_category(category) && category->kind != COLUMN_SEQUENCE &&
               category->kind != COLUMN_BUCKETIZED;
  struct shoal_column *s = begin_of(c, COLUMN_SEQUENCE, &category, 1, mem_strdup(category ? category->name : ""));
  if (check_part(c, __func__, category, right, "a category")) s->buckets = category->buckets;
  return s;
}

const shoal_column *shoal_column_indicator(shoal_columns *c, const shoal_column *category) {
  struct shoal_column *i =
      begin_of(c, COLUMN_INDICATOR, &category, 1, mem_printf("%s_indicator", category ? category->name : ""));
  if (check_part(c, __func__, category, category && column_is_category(category), "a category"))
    i->elements = category->buckets;
  return i;
}

const char *column_combiner(const char *name) {
  static const char *const known[] = {"mean", "sqrtn", "sum"};
  for (size_t i = 0; i < COUNT_OF(known); i++)
    if (!name || !strcmp(name, known[i])) return known[i];
  return NULL;
}

static const shoal_column *embedding(shoal_columns *c, const char *caller, const shoal_column *category,
                                     const shoal_embedding_options *options, char *name) {
  shoal_embedding_options o = {0};
  struct shoal_column *e = begin_of(c, COLUMN_EMBEDDING, &category, 1, name);
  shoal_status bad = OPTIONS_TAKE(shoal_embedding_options, shared_name, &o, options);
  if (!bad && (o.dimension < 1 || o.dimension > INT32_MAX))
    bad = INVALID("%s: the dimension of '%s' is %lld", caller, name, (long long)o.dimension);
  e->combiner = column_combiner(o.combiner);
  if (!bad && !e->combiner)
    bad = INVALID("%s: '%s' has the combiner \"%s\"; mean, sqrtn and sum are known", caller, name, o.combiner);
  if (!bad && !(o.max_norm >= 0 && o.stddev >= 0))
    bad = INVALID("%s: '%s' has a negative norm or deviation", caller, name);
  if (bad) fail(c, bad);
  if (!check_part(c, caller, category, category && column_is_category(category), "a category")) return e;
  e->dimension = e->elements = o.dimension;
  e->buckets = category->buckets;
  e->max_norm = o.max_norm;
  e->stddev = o.stddev > 0 ? o.stddev : 1 / sqrt((double)o.dimension);
  e->untrained = o.untrained;
  return e;
}

const shoal_column *shoal_column_embedding(shoal_columns *c, const shoal_column *category,
                                           const shoal_embedding_options *options) {
  return embedding(c, __func__, category, options, mem_printf("%s_embedding", category ? category->name : ""));
}

void shoal_column_shared_embeddings(shoal_columns *c, const shoal_column *const *categories, int n,
                                    const shoal_embedding_options *options, const shoal_column **out) {
  shoal_embedding_options o = {0};
  shoal_status e = given_array(__func__, "categories", categories, n);
  if (!e && (n < 1 || !out)) e = INVALID("%s: %s", __func__, out ? "no categories" : "out is NULL");
  if (!e) e = OPTIONS_TAKE(shoal_embedding_options, shared_name, &o, options);
  for (int i = 0; !e && i < n; i++) {
    if (!categories[i]) e = INVALID("%s: a column is NULL", __func__);
    else if (categories[0]->buckets != categories[i]->buckets)
      e = INVALID("%s: '%s' has %lld ids, '%s' %lld; one table has rows for as many", __func__, categories[0]->name,
                  (long long)categories[0]->buckets, categories[i]->name, (long long)categories[i]->buckets);
  }
  if (e) fail(c, e);
  for (int i = 0; out && i < n; i++) {
    const struct shoal_column *of = c->error ? NULL : categories[i];
    struct shoal_column *made = (struct shoal_column *)embedding(c, __func__, of, options,
                                                                 mem_printf("%s_shared_embedding", of ? of->name : ""));
    if (!c->error)
      made->table = o.shared_name ? mem_strdup(o.shared_name) : joined_names(categories, n, "_", "_shared_embedding");
    out[i] = made;
  }
}

/* ---- arrays of them ---- */

shoal_status columns_check(const char *caller, const struct shoal_column *const *columns, int n) {
  TRY(given_array(caller, "columns", columns, n));
  if (!n) return INVALID("%s: there are no columns", caller);
  for (int i = 0; i < n; i++) {
    if (!columns[i]) return INVALID("%s: column %d is NULL", caller, i);
    if (columns[i]->set->error) return status_copy(columns[i]->set->error);
  }
  return NULL;
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const struct shoal_column *const *)a)->name, (*(const struct shoal_column *const *)b)->name);
}

shoal_status columns_sorted(const char *caller, const struct shoal_column *const *columns, int n,
                            const struct shoal_column ***out) {
  TRY(columns_check(caller, columns, n));
  const struct shoal_column **sorted = mem_zalloc((size_t)n, sizeof *sorted);
  for (int i = 0; i < n; i++) sorted[i] = columns[i];
  qsort(sorted, (size_t)n, sizeof *sorted, by_name);
  for (int i = 1; i < n; i++)
    if (!strcmp(sorted[i - 1]->name, sorted[i]->name)) {
      shoal_status e = INVALID("%s: two columns are called '%s'", caller, sorted[i]->name);
      free(sorted);
      return e;
    }
  *out = sorted;
  return NULL;
}

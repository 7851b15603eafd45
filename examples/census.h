/* A table like that of a census, made up: people of an age, with hours of work, an education, an occupation and a
 * relation to their household, and whether they earn much, which follows from those and chance. Row i is always the
 * same; rows before a number are for tests. */
#ifndef EXAMPLES_CENSUS_H
#define EXAMPLES_CENSUS_H

#include <math.h>
#include <shoal/shoal.h>
#include <stdio.h>
#include <string.h>

static const char *const educations[] = {"school", "college", "bachelor", "master", "doctor"};
static const char *const relations[] = {"alone", "married", "child", "other"};
enum { EDUCATIONS = 5, RELATIONS = 4, OCCUPATIONS = 500, CENSUS_COMPONENTS = 6 };

struct person {
  float age, hours;
  int education, relation, occupation;
  bool earns;
};

static inline uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
/* From 0 to below 1. */
static inline double chance(uint64_t row, int what) {
  return (double)(mixed(row * 16 + (uint64_t)what) >> 11) / 9007199254740992.0;
}

static inline struct person person_at(uint64_t row) {
  struct person p;
  p.age = (float)(17 + 60 * chance(row, 0));
  p.hours = (float)(10 + 50 * chance(row, 1));
  p.education = (int)((double)EDUCATIONS * chance(row, 2));
  p.relation = (int)((double)RELATIONS * chance(row, 3));
  p.occupation = (int)((double)OCCUPATIONS * chance(row, 4));
  double skill = chance((uint64_t)p.occupation, 9); /* occupations earn more or less */
  double prime = 1 - fabs((double)p.age - 48) / 31; /* best in the middle of life */
  double score = 1.1 * p.education + 3 * prime + 0.04 * (double)p.hours + 4 * skill - 7.5 +
                 (p.relation == 1 && p.age > 30 ? 1.5 : 0); /* a cross: who is married, and not young */
  p.earns = chance(row, 5) < 1 / (1 + exp(-1.5 * score));
  return p;
}

/* Which rows a dataset has. */
struct census {
  uint64_t first;
  int64_t rows, batch;
  int worker, workers;
  bool forever;
};

/* How many batches of the table are this worker's: every n-th. */
static inline int64_t census_share(const struct census *c) {
  int64_t batches = (c->rows + c->batch - 1) / c->batch;
  return (batches - c->worker + c->workers - 1) / c->workers;
}

static inline void put_text(shoal_tensor *t, int64_t row, const char *text) {
  shoal_status_free(shoal_tensor_set_string(t, row, text, strlen(text)));
}

/* A batch: age, hours, education, relation, occupation, label; the workers take batches in turn, each the same ones
 * again and again. */
static inline shoal_status fill_batch(void *arg, int64_t position, shoal_tensor **values) {
  const struct census *c = (const struct census *)arg;
  const shoal_dtype types[CENSUS_COMPONENTS] = {SHOAL_FLOAT32, SHOAL_FLOAT32, SHOAL_STRING,
                                                SHOAL_STRING,  SHOAL_STRING,  SHOAL_INT64};
  int64_t batches = (c->rows + c->batch - 1) / c->batch, at = position * c->workers + c->worker;
  if (c->forever && census_share(c) > 0) at = position % census_share(c) * c->workers + c->worker;
  else if (c->forever) at %= batches; /* there are more workers than batches */
  if (at >= batches) return shoal_status_new(SHOAL_OUT_OF_RANGE, "the end of the table");
  int64_t begin = at * c->batch, n = c->rows - begin < c->batch ? c->rows - begin : c->batch, dims[2] = {n, 1};
  for (int i = 0; i < CENSUS_COMPONENTS; i++) {
    shoal_status s = shoal_tensor_new(types[i], 2, dims, &values[i]);
    if (s) return s;
  }
  float *age = (float *)shoal_tensor_data(values[0]), *hours = (float *)shoal_tensor_data(values[1]);
  int64_t *label = (int64_t *)shoal_tensor_data(values[5]);
  for (int64_t i = 0; i < n; i++) {
    struct person p = person_at(c->first + (uint64_t)(begin + i));
    char occupation[16];
    snprintf(occupation, sizeof occupation, "job%d", p.occupation);
    age[i] = p.age;
    hours[i] = p.hours;
    label[i] = p.earns;
    put_text(values[2], i, educations[p.education]);
    put_text(values[3], i, relations[p.relation]);
    put_text(values[4], i, occupation);
  }
  return NULL;
}

static const char *const census_names[CENSUS_COMPONENTS - 1] = {"age", "hours", "education", "relation", "occupation"};

/* The next rows, column by column; the last is the label. */
static inline void census_next(shoal_graph *g, struct census *c, shoal_out *out) {
  const shoal_dtype types[CENSUS_COMPONENTS] = {SHOAL_FLOAT32, SHOAL_FLOAT32, SHOAL_STRING,
                                                SHOAL_STRING,  SHOAL_STRING,  SHOAL_INT64};
  const int64_t column[2] = {-1, 1};
  shoal_dims shapes[CENSUS_COMPONENTS];
  for (int i = 0; i < CENSUS_COMPONENTS; i++) {
    shapes[i].rank = 2;
    shapes[i].at = column;
  }
  shoal_out d = shoal_dataset_from_callback(g, fill_batch, c, types, shapes, CENSUS_COMPONENTS);
  shoal_dataset_next(g, shoal_dataset_prefetch(g, d, 4), out, CENSUS_COMPONENTS, NULL);
}

/* The input function of an estimator; arg is a struct census. */
static inline void census_input(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg) {
  struct census *c = (struct census *)arg;
  c->worker = mode == SHOAL_MODE_TRAIN ? shoal_inputs_worker(in) : 0;
  c->workers = mode == SHOAL_MODE_TRAIN ? shoal_inputs_workers(in) : 1;
  c->forever = mode == SHOAL_MODE_TRAIN;
  shoal_out out[CENSUS_COMPONENTS];
  census_next(g, c, out);
  for (int i = 0; i < CENSUS_COMPONENTS - 1; i++) shoal_inputs_feature(in, census_names[i], out[i]);
  if (mode != SHOAL_MODE_PREDICT) shoal_inputs_labels(in, out[CENSUS_COMPONENTS - 1]);
}

/* ---- what the model is told of the table ---- */

enum { WIDE = 5, DEEP = 5 };
struct census_columns {
  shoal_columns *set;
  const shoal_column *wide[WIDE], *deep[DEEP];
};

static inline struct census_columns census_columns_new(void) {
  static const float ages[] = {18, 25, 30, 35, 40, 45, 50, 55, 60, 65};
  struct census_columns c;
  c.set = shoal_columns_new();
  const shoal_column *age = shoal_column_numeric(c.set, "age", NULL),
                     *hours = shoal_column_numeric(c.set, "hours", NULL);
  const shoal_column *bucket = shoal_column_bucketized(c.set, age, ages, 10);
  const shoal_column *education = shoal_column_vocabulary(
      c.set, "education", SHOAL_OPTIONS(shoal_vocabulary, .words = educations, .n = EDUCATIONS));
  const shoal_column *relation =
      shoal_column_vocabulary(c.set, "relation", SHOAL_OPTIONS(shoal_vocabulary, .words = relations, .n = RELATIONS));
  const shoal_column *occupation = shoal_column_hashed(c.set, "occupation", 1000, SHOAL_STRING);
  const shoal_column *const cross[] = {bucket, relation};
  const shoal_column *const wide[WIDE] = {bucket, education, relation, occupation,
                                          shoal_column_crossed(c.set, cross, 2, 1000, 0)};
  const shoal_column *const deep[DEEP] = {
      age, hours, shoal_column_indicator(c.set, education), shoal_column_indicator(c.set, relation),
      shoal_column_embedding(c.set, occupation, SHOAL_OPTIONS(shoal_embedding_options, .dimension = 8))};
  for (int i = 0; i < WIDE; i++) c.wide[i] = wide[i];
  for (int i = 0; i < DEEP; i++) c.deep[i] = deep[i];
  return c;
}

#endif

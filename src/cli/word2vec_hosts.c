/* `shoal word2vec train` as several tasks of one job (`shoal launch --ps=0 --workers=N -- shoal word2vec train ...`):
 * each trains a model of its own on its part of the text, and now and then all of them become one.
 *
 * What meets is what has changed since the last time, row by row, and how many have changed the row: the sum, divided
 * by the square root of that number, is added to the row as it was. A word that a single host has met gets all of what
 * it learned there. The mean was tried, which learns less in a pass, and the whole sum, which comes apart with more
 * hosts. By a dictionary's synonyms (bench/word2vec.py, one run each; one host alone 0.950): the mean 0.928 and 0.930
 * with two hosts that meet 3 and 10 times a pass, 0.903 with four that meet 4 times; the root 0.940 and 0.930 with two
 * and four that meet 4 times; the sum likewise 0.950 and 0.587.
 *
 * The sums are an all-reduce in a graph, over as many rows at once as fit a piece, with the number of changes as one
 * more column; pieces are of one size, and the last is filled up with zeros. Words are counted together, too
 * (word2vec_counts.c). A task that is lost ends all: nobody waits for it. What goes wrong in one task alone, all hear
 * of before they meet about anything else (word2vec_hosts_agree): who waited for it there would wait for ever. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/stop.h"
#include "cli/word2vec.h"
#include "word2vec/vectors.h"

enum { PIECE_BYTES = 8 << 20 };
/* What tasks meet about, each in a step of its own: sums of changes, the largest of a number, numbers of each. */
enum { SUM, LARGEST, GATHERED, MEETINGS };

struct word2vec_hosts {
  shoal_cluster *cluster;
  shoal_server *server;
  shoal_strategy *strategy;
  shoal_graph *graph;
  shoal_train_session *session;
  shoal_out given[MEETINGS], met[MEETINGS];
  shoal_tensor *piece; /* [rows, width + 1] */
  size_t rows, width;
  int64_t met_ns;   /* spent in meetings of models */
  float *before[3]; /* of the model's matrices: as they were when all met last; NULL: there is none */
};

static shoal_op *meet_all(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  (void)arg;
  shoal_global_step(g); /* a training session wants one; here it has all tasks' variables ready */
  out[SUM] = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, in[SUM]);
  out[LARGEST] = shoal_replica_reduce(r, SHOAL_REDUCE_MAX, in[LARGEST]);
  out[GATHERED] = shoal_replica_gather(r, in[GATHERED]);
  return NULL;
}

static shoal_status build(struct word2vec_hosts *h) {
  shoal_graph *g = h->graph = shoal_graph_new();
  h->given[SUM] = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, (int64_t)h->width + 1), "changes");
  h->given[LARGEST] = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(1), "number");
  h->given[GATHERED] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(WORD2VEC_GATHERED), "numbers");
  shoal_strategy_run(g, h->strategy, meet_all, NULL, h->given, MEETINGS, h->met, MEETINGS);
  return status_copy(shoal_graph_error(g));
}

static shoal_status connect(struct word2vec_hosts *h, const struct word2vec_task *t) {
  const shoal_cluster *c = h->cluster;
  TRY(shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(c), .job = shoal_cluster_job(c),
                    .task = shoal_cluster_task(c), .insecure_bind_all = t->insecure_bind_all, .tls_cert = t->tls.cert,
                    .tls_key = t->tls.key, .tls_ca = t->tls.ca),
      &h->server));
  TRY(shoal_strategy_new_multi_worker(c, h->server, NULL, &h->strategy));
  TRY(build(h));
  return shoal_train_session_open(
      h->graph,
      SHOAL_OPTIONS(shoal_train_session_options, .strategy = h->strategy, .no_signals = true,
                    .session = SHOAL_OPTIONS(shoal_session_options, .give_up = stop_told)),
      &h->session);
}

/* NULL: there is none. */
static shoal_status find_cluster(const struct word2vec_task *t, shoal_cluster **out) {
  const char *config = getenv("TF_CONFIG");
  *out = NULL;
  if (t->worker_hosts && *t->worker_hosts)
    return shoal_cluster_from_hosts(t->ps_hosts, t->worker_hosts, t->job_name, (int)t->task_index, out);
  return config && *config ? shoal_cluster_from_config(NULL, out) : NULL;
}

shoal_status word2vec_hosts_open(const struct word2vec_task *t, size_t width, struct word2vec_hosts **out) {
  shoal_cluster *c;
  *out = NULL;
  TRY(find_cluster(t, &c));
  bool several = c && shoal_cluster_tasks(c, "worker") + shoal_cluster_tasks(c, "chief") > 1;
  if (!several || shoal_cluster_tasks(c, "ps")) {
    shoal_cluster_free(c);
    return several ? INVALID("word2vec train needs no parameter servers, and there are some: shoal launch --ps=0")
                   : NULL;
  }
  struct word2vec_hosts *h = mem_zalloc(1, sizeof *h);
  h->cluster = c;
  h->width = width;
  shoal_status s = connect(h, t);
  if (s) word2vec_hosts_close(h);
  else *out = h;
  return s;
}

void word2vec_hosts_close(struct word2vec_hosts *h) {
  if (!h) return;
  if (h->session) shoal_status_free(shoal_train_session_close(h->session));
  for (size_t i = 0; i < COUNT_OF(h->before); i++) free(h->before[i]);
  shoal_tensor_unref(h->piece);
  shoal_graph_free(h->graph);
  shoal_strategy_free(h->strategy);
  shoal_server_stop(h->server);
  shoal_cluster_free(h->cluster);
  free(h);
}

bool word2vec_hosts_chief(const struct word2vec_hosts *h) { return !h || shoal_cluster_is_chief(h->cluster); }

/* A meeting takes as long as training some two words for each in the vocabulary (measured): a twentieth of the time. */
static int64_t meetings_of(const struct word_vocabulary *v, int workers) {
  enum { WORDS = 40, MOST = 100 };
  return MIN(MAX(v->total / workers / (WORDS * (int64_t)v->words.n), (int64_t)1), (int64_t)MOST);
}

void word2vec_hosts_share(struct word2vec_hosts *h, const struct word_vocabulary *v, struct training_options *o) {
  if (!h) return;
  o->workers = word2vec_hosts_tasks(h, &o->worker);
  if (!o->meetings) o->meetings = (int)meetings_of(v, o->workers);
  o->meet = word2vec_hosts_meet;
  o->meet_arg = h;
}

/* ---- meeting ---- */

/* A signal ends it, though others have not come: at once, or after patience_ns. */
static shoal_status meet_for(struct word2vec_hosts *h, int about, const shoal_tensor *given, shoal_tensor **met,
                             int64_t patience_ns) {
  enum { LOOK_MS = 100 };
  int64_t end = clock_ns() + patience_ns;
  shoal_async *run;
  TRY(shoal_run_async(shoal_train_session_raw(h->session), NULL, SHOAL_FEED(h->given[about], (shoal_tensor *)given),
                      SHOAL_FETCH(h->met[about], met), NULL, &run));
  bool gave_up = false;
  while (!shoal_async_done(run, LOOK_MS))
    if (stop_told() && clock_ns() > end) {
      gave_up = true;
      shoal_async_cancel(run);
    }
  shoal_status s = shoal_async_wait(run);
  shoal_async_free(run);
  if (!gave_up || shoal_status_code(s) != SHOAL_CANCELLED) return s;
  shoal_status_free(s);
  return STATUS(SHOAL_CANCELLED, "told to stop while the other tasks were waited for");
}

static shoal_status meet(struct word2vec_hosts *h, int about, const shoal_tensor *given, shoal_tensor **met) {
  return meet_for(h, about, given, met, 0);
}

int word2vec_hosts_tasks(const struct word2vec_hosts *h, int *task) {
  *task = shoal_strategy_first_replica(h->strategy);
  return shoal_strategy_replicas(h->strategy);
}

static shoal_status largest(struct word2vec_hosts *h, int64_t *number, int64_t patience_ns) {
  shoal_tensor *given, *most = NULL;
  TRY(shoal_tensor_from(SHOAL_INT64, 1, (int64_t[]){1}, number, sizeof *number, &given));
  shoal_status s = meet_for(h, LARGEST, given, &most, patience_ns);
  shoal_tensor_unref(given);
  TRY(s);
  *number = *(const int64_t *)shoal_tensor_const_data(most);
  shoal_tensor_unref(most);
  return NULL;
}

shoal_status word2vec_hosts_most(struct word2vec_hosts *h, int64_t *number) { return largest(h, number, 0); }

shoal_status word2vec_hosts_gather(struct word2vec_hosts *h, const shoal_tensor *numbers, shoal_tensor **all) {
  TRY(meet(h, GATHERED, numbers, all));
  if (shoal_tensor_elements(*all) == (int64_t)shoal_strategy_replicas(h->strategy) * WORD2VEC_GATHERED) return NULL;
  shoal_tensor_unref(*all);
  *all = NULL;
  return INTERNAL("pieces of other sizes");
}

/* Which task is it that something went wrong in: the last of them, of its number and 1. A task that was told to stop
 * has some time to say so. */
shoal_status word2vec_hosts_agree(struct word2vec_hosts *h, shoal_status mine) {
  const int64_t patience_ns = mine ? INT64_C(5000000000) : 0;
  if (!h) return mine;
  int64_t failed = mine ? shoal_strategy_first_replica(h->strategy) + 1 : 0;
  shoal_status s = largest(h, &failed, patience_ns);
  if (mine) {
    shoal_status_free(s);
    return mine;
  }
  TRY(s);
  return failed ? STATUS(SHOAL_ABORTED, "worker %" PRId64 " has failed: what it printed says why", failed - 1) : NULL;
}

/* The first line in which two texts differ, of either; they do. */
static shoal_status differ(const char *own, int task, const char *others, int other) {
  while (strcspn(own, "\n") == strcspn(others, "\n") && !strncmp(own, others, strcspn(own, "\n"))) {
    own += strcspn(own, "\n") + 1;
    others += strcspn(others, "\n") + 1;
  }
  return INVALID("worker %d has %.*s, worker %d %.*s: all must be started with the same flags and texts", task,
                 (int)strcspn(own, "\n"), own, other, (int)strcspn(others, "\n"), others);
}

shoal_status word2vec_hosts_same(struct word2vec_hosts *h, const char *lines) {
  enum { PIECE = WORD2VEC_PIECE };
  shoal_tensor *given, *all = NULL;
  int task, tasks = word2vec_hosts_tasks(h, &task);
  TRY(shoal_tensor_new(SHOAL_INT32, 1, (int64_t[]){WORD2VEC_GATHERED}, &given));
  memset(shoal_tensor_data(given), 0, PIECE);
  memcpy(shoal_tensor_data(given), lines, strnlen(lines, PIECE - 1));
  shoal_status s = word2vec_hosts_gather(h, given, &all);
  for (int i = 0; !s && i < tasks; i++) {
    char *others = (char *)shoal_tensor_data(all) + (size_t)i * PIECE;
    others[PIECE - 1] = 0;
    if (strcmp(lines, others)) s = differ(lines, task, others, i);
  }
  shoal_tensor_unref(given);
  shoal_tensor_unref(all);
  return s;
}

/* Rows' changes, and 1 behind those that have any. */
static void put_changes(struct word2vec_hosts *h, const float *now, const float *before, size_t n) {
  float *to = shoal_tensor_data(h->piece);
  size_t stride = rows_stride(h->width), width = h->width;
  for (size_t i = 0; i < n; i++, to += width + 1, now += stride, before += stride) {
    bool changed = memcmp(now, before, width * sizeof *now) != 0;
    to[width] = changed;
    if (!changed) memset(to, 0, width * sizeof *to);
    else
      for (size_t j = 0; j < width; j++) to[j] = now[j] - before[j];
  }
  memset(to, 0, (h->rows - n) * (width + 1) * sizeof *to);
}

static void take_changes(const struct word2vec_hosts *h, const float *sum, float *now, float *before, size_t n) {
  size_t stride = rows_stride(h->width);
  for (size_t i = 0; i < n; i++, sum += h->width + 1, now += stride, before += stride) {
    float share = sum[h->width] > 0 ? 1 / sqrtf(sum[h->width]) : 0;
    for (size_t j = 0; j < h->width; j++) now[j] = before[j] += sum[j] * share;
  }
}

static shoal_status meet_rows(struct word2vec_hosts *h, float *now, float *before, size_t n) {
  size_t stride = rows_stride(h->width);
  for (size_t at = 0; at < n; at += h->rows) {
    size_t some = MIN(h->rows, n - at);
    shoal_tensor *sum = NULL;
    put_changes(h, now + at * stride, before + at * stride, some);
    TRY(meet(h, SUM, h->piece, &sum));
    take_changes(h, shoal_tensor_const_data(sum), now + at * stride, before + at * stride, some);
    shoal_tensor_unref(sum);
  }
  return NULL;
}

/* What the models begin with, and room for a piece of them. */
static shoal_status take_note(struct word2vec_hosts *h, float *const *matrices, size_t n) {
  size_t pieces = n * (h->width + 1) * sizeof(float) / PIECE_BYTES + 1;
  h->rows = (n + pieces - 1) / pieces;
  TRY(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){(int64_t)h->rows, (int64_t)h->width + 1}, &h->piece));
  for (size_t i = 0; i < COUNT_OF(h->before); i++) {
    if (!matrices[i]) continue;
    TRY(rows_new(n, h->width, &h->before[i]));
    memcpy(h->before[i], matrices[i], n * rows_stride(h->width) * sizeof(float));
  }
  return NULL;
}

shoal_status word2vec_hosts_meet(void *arg, struct word_model *m, size_t words, shoal_status mine) {
  struct word2vec_hosts *h = arg;
  float *const matrices[] = {m->in, m->out, m->nodes};
  TRY(word2vec_hosts_agree(h, mine));
  if (!h->before[0]) return take_note(h, matrices, words);
  int64_t from = clock_ns();
  for (size_t i = 0; i < COUNT_OF(matrices); i++)
    if (matrices[i]) TRY(meet_rows(h, matrices[i], h->before[i], words));
  h->met_ns += clock_ns() - from;
  return NULL;
}

double word2vec_hosts_met(const struct word2vec_hosts *h) { return (double)h->met_ns / 1e9; }

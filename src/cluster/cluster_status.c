/* The state of a whole cluster in one table: every task is asked at once for its numbers, which go beside the text of
 * `shoal status` in the same answer.
 *
 *   message StatusResponse { string text = 1; int64 pid = 2; int64 up_ms = 3; int64 tensor_bytes = 4; int64 sessions =
 * 5; int64 runs = 6; int64 variables = 7; int64 variable_bytes = 8; int64 global_step = 9 (plus one); } */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/server.h"
#include "rpc/message.h"
#include "runtime/variable.h"
#include "tensor/buffer.h"

/* ---- the server's side ---- */

struct counted {
  int64_t variables, bytes, global_step;
};

static void count(void *arg, const char *container, const char *name, struct resource *r) {
  struct counted *c = arg;
  if (r->type != &variable_type && r->type != &variable_ref_type) return;
  struct variable *v = (struct variable *)r;
  struct tensor t;
  if (pthread_rwlock_tryrdlock(&v->lock) != 0) { /* being changed: counted without its bytes */
    c->variables++;
    return;
  }
  bool there = tensor_valid(&v->value);
  if (there) tensor_ref(&t, &v->value);
  pthread_rwlock_unlock(&v->lock);
  if (!there) return;
  c->variables++;
  c->bytes += (int64_t)tensor_bytes(&t);
  if (!strcmp(name, "global_step") && t.dtype == SHOAL_INT64 && t.n == 1) c->global_step = *T_DATA(&t, int64_t);
  tensor_release(&t);
}

void server_status_numbers(struct shoal_server *s, struct text *out) {
  struct counted c = {.global_step = -1};
  struct worker *w = s->worker;
  for (int i = 0; i < w->n_devices; i++) resource_each(w->resources[i], count, &c);
  int64_t runs = 0, sessions;
  pthread_mutex_lock(&w->lock);
  sessions = (int64_t)w->sessions.n;
  for (struct worker_run *r = w->runs; r; r = r->next) runs++;
  pthread_mutex_unlock(&w->lock);
  const int64_t numbers[] = {getpid(),
                             (clock_ns() - s->started) / 1000000,
                             (int64_t)buffer_bytes_in_use(),
                             sessions,
                             runs,
                             c.variables,
                             c.bytes,
                             c.global_step + 1};
  for (uint32_t i = 0; i < COUNT_OF(numbers); i++) wire_put_uint(out, i + 2, (uint64_t)numbers[i]);
}

/* ---- the asker's side ---- */

enum { NUMBERS = 8 };

struct asked {
  char *task, *address;
  int64_t timeout_ms;
  int64_t numbers[NUMBERS];
  shoal_status error;
  pthread_t thread;
  bool started;
};

static void *ask_one(void *arg) {
  struct asked *a = arg;
  struct rpc_body body = {0};
  const void *data;
  size_t size;
  a->error = server_ask(a->address, "/shoal.Server/Status", a->timeout_ms, &body);
  if (a->error) return NULL;
  a->error = rpc_body_flat(&body, &data, &size);
  struct wire w = a->error ? wire_from("", 0) : wire_from(data, size);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.type == WIRE_VARINT && f.number >= 2 && f.number < 2 + NUMBERS) a->numbers[f.number - 2] = (int64_t)f.value;
  rpc_body_release(&body);
  return NULL;
}

static void put_row(const struct asked *a, struct text *out) {
  const int64_t *n = a->numbers;
  text_addf(out, "%-22s %-24s ", a->task, a->address);
  if (shoal_status_code(a->error) == SHOAL_UNIMPLEMENTED) {
    text_adds(out, "up, but not Shoal's\n");
  } else if (a->error) {
    const char *why = shoal_status_message(a->error);
    text_addf(out, "no answer: %.*s\n", (int)strcspn(why, "\n"), why);
  } else {
    text_addf(out,
              "up %6.0f s  process %-7" PRId64 " %8.1f MB  %3" PRId64 " sessions %3" PRId64 " runs  %4" PRId64
              " variables %8.1f MB",
              (double)n[1] * 1e-3, n[0], (double)n[2] / 1e6, n[3], n[4], n[5], (double)n[6] / 1e6);
    if (n[7] > 0) text_addf(out, "  global_step %" PRId64, n[7] - 1);
    text_addc(out, '\n');
  }
}

shoal_status shoal_cluster_status(const char *cluster, int64_t timeout_ms, char **table) {
  struct cluster_spec spec = {0};
  VEC(struct asked) all = {0};
  shoal_status err = cluster_spec_from_json(&spec, "cluster_spec", cluster);
  if (!err) err = cluster_spec_check(&spec);
  for (size_t i = 0; i < spec.jobs.n && !err; i++)
    for (size_t k = 0; k < spec.jobs.at[i].tasks.n; k++)
      vec_push(&all, (struct asked){
                         .task = mem_printf("/job:%s/task:%d", spec.jobs.at[i].name, spec.jobs.at[i].tasks.at[k].index),
                         .address = mem_strdup(spec.jobs.at[i].tasks.at[k].address),
                         .timeout_ms = timeout_ms});
  for (size_t i = 0; i < all.n; i++) all.at[i].started = !pthread_create(&all.at[i].thread, NULL, ask_one, &all.at[i]);
  struct text out = {0};
  int missing = 0;
  for (size_t i = 0; i < all.n; i++) {
    struct asked *a = &all.at[i];
    if (a->started) pthread_join(a->thread, NULL);
    else ask_one(a);
    put_row(a, &out);
    missing += a->error && shoal_status_code(a->error) != SHOAL_UNIMPLEMENTED;
    shoal_status_free(a->error);
    free(a->task);
    free(a->address);
  }
  if (!err) text_addf(&out, "%zu tasks, %zu up\n", all.n, all.n - (size_t)missing);
  *table = text_take(&out);
  if (!err && missing) err = STATUS(SHOAL_UNAVAILABLE, "%d of %zu tasks do not answer", missing, all.n);
  vec_release(&all);
  cluster_spec_release(&spec);
  return err;
}

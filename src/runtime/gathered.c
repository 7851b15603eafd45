/* Steps between their receives and their sends; see gathered.h. */
#include "runtime/gathered.h"

#include <stdlib.h>
#include <string.h>

#include "base/join.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/plan_internal.h"

enum { MUCH = 4 << 20 }; /* bytes received and sent in a step: they take milliseconds, launching kernels does not */

struct gathered_plan {
  struct gathered_map map;
  struct plan *inner;
  atomic_bool heavy; /* a step carried too much */
};

/* ---- making ---- */

/* A node that would be waited for, or NULL. */
static const struct shoal_node *first_call(const struct shoal_graph *g, const struct device *d) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct kernel_def *def;
    if (!g->nodes.at[i]) continue;
    shoal_status s = kernel_find(g->nodes.at[i], d->type->name, &def);
    bool waits = !s && def->start;
    shoal_status_free(s);
    if (waits) return g->nodes.at[i];
  }
  return NULL;
}

/* NULL: it was made. */
static char *make(struct gathered_plan *x, const struct shoal_graph *g, const struct plan_options *o) {
  char *why;
  if (!gathered_map_init(&x->map, g, o->device, &why)) return why;
  const struct shoal_node *call = first_call(x->map.inner, o->device);
  if (call) return mem_printf("%s (%s) is waited for", call->name, call->op->name);
  shoal_status s = plan_compile(x->map.inner, o, &x->inner);
  graph_free(x->map.inner);
  x->map.inner = NULL;
  if (s) why = mem_strdup(shoal_status_message(s));
  else if (!plan_is_alone(x->inner)) why = mem_strdup("it has branches or loops");
  else if (!x->inner->replay) why = mem_strdup(""); /* which has been said */
  shoal_status_free(s);
  return why;
}

struct gathered_plan *gathered_new(const struct shoal_graph *g, const struct plan_options *o) {
  struct gathered_plan *x = mem_zalloc(1, sizeof *x);
  atomic_init(&x->heavy, false);
  char *why = make(x, g, o);
  if (why && *why) LOGD("a part of steps on %s is not captured: %s", o->device->name, why);
  free(why);
  if (x->inner && x->inner->replay) return x;
  gathered_free(x);
  return NULL;
}

void gathered_free(struct gathered_plan *g) {
  if (!g) return;
  plan_unref(g->inner);
  gathered_map_release(&g->map);
  free(g);
}

/* ---- one run ---- */

struct gathered_step;

struct gathered_value {
  struct gathered_step *of;
  bool is_dead;
};

struct gathered_step {
  struct gathered_plan *g;
  struct plan *plan;
  struct step *step, inner; /* the caller's, and one with the arguments and results of the inner plan */
  void (*done)(void *arg, shoal_status s);
  void *arg;
  struct join join;
  struct verdict verdict;
  struct rendezvous front;         /* for the plan as it was: it has what was received */
  struct gathered_value *arrivals; /* [n_recvs] */
  struct tensor *args, *rets;
};

static void finish(struct gathered_step *x, shoal_status s) {
  const struct gathered_map *m = &x->g->map;
  for (int i = 0; i < m->n_recvs; i++) tensor_release(&x->args[m->n_args + i]);
  for (int i = 0; i < m->n_rets + m->n_sends; i++) tensor_release(&x->rets[i]);
  void (*done)(void *, shoal_status) = x->done;
  void *arg = x->arg;
  pthread_mutex_destroy(&x->verdict.lock);
  free(x);
  done(arg, s);
}

/* ---- by the plan as it was ---- */

static struct gathered_step *of_front(struct rendezvous *r) {
  return (struct gathered_step *)((char *)r - offsetof(struct gathered_step, front));
}

static void front_send(struct rendezvous *r, const char *key, uint64_t hash, struct tensor *value, bool is_dead,
                       shoal_status *s) {
  *s = rendezvous_send(of_front(r)->step->rendezvous, key, hash, value, is_dead);
}

static void front_recv(struct rendezvous *r, const char *key, uint64_t hash, struct cancel *cancel,
                       rendezvous_done done, void *arg) {
  struct gathered_step *x = of_front(r);
  const struct gathered_map *m = &x->g->map;
  for (int i = 0; i < m->n_recvs; i++) {
    if (m->recvs[i].hash != hash || strcmp(m->recvs[i].key, key) != 0) continue;
    struct tensor value = tensor_none(), *held = &x->args[m->n_args + i];
    tensor_move(&value, held);
    held->buffer = NULL;
    done(arg, NULL, &value, x->arrivals[i].is_dead);
    return;
  }
  rendezvous_recv(x->step->rendezvous, key, hash, cancel, done, arg);
}

static void front_abort(struct rendezvous *r, shoal_status why) {
  rendezvous_abort(of_front(r)->step->rendezvous, why);
}

static void front_free(struct rendezvous *r) {}

static const struct rendezvous_ops front_ops = {
    .send = front_send, .recv = front_recv, .abort = front_abort, .free = front_free};

static void over_as_it_was(void *arg, shoal_status s) { finish(arg, s); }

static void run_as_it_was(struct gathered_step *x) {
  x->inner = *x->step;
  x->inner.here = false;
  x->front.ops = &front_ops;
  ref_init(&x->front.refs, 1);
  x->inner.rendezvous = &x->front;
  plan_run_whole(x->plan, &x->inner, over_as_it_was, x);
}

/* ---- by the inner plan ---- */

static void weigh(struct gathered_step *x) {
  const struct gathered_map *m = &x->g->map;
  size_t bytes = 0;
  for (int i = 0; i < m->n_recvs; i++) bytes += tensor_bytes(&x->args[m->n_args + i]);
  for (int i = 0; i < m->n_sends; i++) bytes += tensor_bytes(&x->rets[m->n_rets + i]);
  if (bytes <= MUCH || atomic_exchange(&x->g->heavy, true)) return;
  LOGD("a part of steps on %s is not captured: it receives and sends %zu bytes", x->plan->device->name, bytes);
}

static shoal_status send_all(struct gathered_step *x) {
  const struct gathered_map *m = &x->g->map;
  for (int i = 0; i < m->n_rets; i++) {
    if (!tensor_valid(&x->rets[i])) continue;
    tensor_release(&x->step->rets[i]);
    tensor_move(&x->step->rets[i], &x->rets[i]);
    x->rets[i].buffer = NULL;
  }
  for (int i = 0; i < m->n_sends; i++) {
    const struct gathered_edge *e = &m->sends[i];
    struct tensor value = tensor_none(), *from = &x->rets[m->n_rets + i];
    if (!tensor_valid(from)) return INTERNAL("Nothing was made for {{node %s}} to send", e->node);
    tensor_move(&value, from);
    from->buffer = NULL;
    TRY(rendezvous_send(x->step->rendezvous, e->key, e->hash, &value, false));
  }
  return NULL;
}

static void over(void *arg, shoal_status s) {
  struct gathered_step *x = arg;
  if (!s) weigh(x);
  finish(x, s ? s : send_all(x));
}

static void run_inner(struct gathered_step *x, bool here) {
  const struct gathered_map *m = &x->g->map;
  x->inner = *x->step;
  x->inner.here = here;
  x->inner.args = x->args;
  x->inner.n_args = m->n_args + m->n_recvs;
  x->inner.rets = x->rets;
  x->inner.n_rets = m->n_rets + m->n_sends;
  plan_run(x->g->inner, &x->inner, over, x);
}

/* ---- receiving ---- */

static void all_arrived(struct gathered_step *x, bool here) {
  bool any_dead = false;
  for (int i = 0; i < x->g->map.n_recvs; i++) any_dead |= x->arrivals[i].is_dead;
  if (x->verdict.status) finish(x, x->verdict.status);
  else if (any_dead) run_as_it_was(x);
  else run_inner(x, here);
}

static void next(void *arg, shoal_status s) { all_arrived(arg, false); }

static shoal_status take(struct gathered_step *x, int i, struct tensor *value) {
  const struct gathered_edge *e = &x->g->map.recvs[i];
  if (value->dtype != e->dtype)
    return INTERNAL("Output 0 of type %s does not match declared output type %s for node %s",
                    dtype_tf_name(value->dtype), dtype_tf_name(e->dtype), e->node);
  if (!tensor_valid(value) || value->buffer->device)
    return INTERNAL("A value was sent from other memory than it is received in");
  tensor_move(&x->args[x->g->map.n_args + i], value);
  return NULL;
}

static void arrived(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct gathered_value *a = arg;
  struct gathered_step *x = a->of;
  int i = (int)(a - x->arrivals);
  a->is_dead = !s && is_dead;
  if (!s && !is_dead) s = take(x, i, value);
  if (value && (s || is_dead)) tensor_release(value);
  if (s) verdict_fail(&x->verdict, x->step, status_suffix(s, "\n\t [[{{node %s}}]]", x->g->map.recvs[i].node));
  join_part(&x->join, NULL);
}

static struct gathered_step *gathering_new(struct gathered_plan *g) {
  const struct gathered_map *m = &g->map;
  size_t n_recvs = (size_t)m->n_recvs, n_args = (size_t)m->n_args + n_recvs;
  size_t n_rets = (size_t)m->n_rets + (size_t)m->n_sends;
  struct gathered_step *x =
      mem_zalloc(1, sizeof *x + (n_args + n_rets) * sizeof(struct tensor) + n_recvs * sizeof(struct gathered_value));
  x->g = g;
  x->args = (struct tensor *)(x + 1);
  x->rets = x->args + n_args;
  x->arrivals = (struct gathered_value *)(x->rets + n_rets);
  pthread_mutex_init(&x->verdict.lock, NULL);
  atomic_init(&x->verdict.failed, false);
  return x;
}

bool gathered_run(struct gathered_plan *g, struct plan *p, struct step *step, void (*done)(void *arg, shoal_status s),
                  void *arg) {
  const struct gathered_map *m = &g->map;
  if (step->stats || !step->rendezvous || step->n_args < m->n_args || step->n_rets < m->n_rets) return false;
  if (atomic_load_explicit(&g->heavy, memory_order_relaxed)) return false;
  struct gathered_step *x = gathering_new(g);
  x->plan = p;
  x->step = step;
  x->done = done;
  x->arg = arg;
  for (int i = 0; i < m->n_args; i++) tensor_move(&x->args[i], &step->args[i]);
  join_init(&x->join, (size_t)m->n_recvs + 1, next, x);
  for (int i = 0; i < m->n_recvs; i++) {
    x->arrivals[i].of = x;
    rendezvous_recv(step->rendezvous, m->recvs[i].key, m->recvs[i].hash, step->cancel, arrived, &x->arrivals[i]);
  }
  shoal_status none;
  if (join_ended_here(&x->join, &none)) all_arrived(x, step->here);
  else join_part(&x->join, NULL);
  return true;
}

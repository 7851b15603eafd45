/* A look: what has waited for long, with a question to each task that is missed there; when all have answered, or will
 * not, each wait is judged. The next look comes a while after, as long as anybody waits. */
#include "cluster/collective_missed.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/join.h"
#include "base/log.h"
#include "cluster/worker.h"
#include "collective/group.h"
#include "proto/shoal.wire.h"
#include "rpc/message.h"

struct missed_task {
  struct look *look;
  char *name;
  struct peer *peer;   /* a reference */
  bool met;            /* it had said something of itself before */
  shoal_status absent; /* NULL: it has answered, and takes part */
};

struct look {
  struct worker *worker;
  struct leader_gaps gaps;
  struct strmap tasks; /* a name -> struct missed_task * */
  struct join join;
};

static void look(void *arg);

/* With the lock held. */
static void look_later(struct worker *w) {
  alarm_set(&w->collectives.missed.alarm, clock_ns() + peers_quiet_ns(w->peers) / 2, look, w);
}

void collective_missed_watch(struct worker *w) {
  struct missed_watch *m = &w->collectives.missed;
  pthread_mutex_lock(&w->collectives.lock);
  m->again = true;
  if (!m->looks && !m->over) {
    m->looks = true;
    look_later(w);
  }
  pthread_mutex_unlock(&w->collectives.lock);
}

void collective_missed_stop(struct worker *w) {
  struct missed_watch *m = &w->collectives.missed;
  pthread_mutex_lock(&w->collectives.lock);
  m->over = true;
  pthread_mutex_unlock(&w->collectives.lock);
  alarm_clear(&m->alarm);
}

/* ---- judging ---- */

static const struct missed_task *task_of(const struct look *k, const char *device) {
  return strmap_getn(&k->tasks, device, device_task_length(device));
}

static shoal_status restarted(const struct missed_task *t, const char *what, const char *member) {
  return status_mark_restarted(STATUS(SHOAL_ABORTED, "%s waits for %s: Task %s at %s was restarted", what, member,
                                      t->name, peer_address(t->peer)));
}

static shoal_status gone(const struct missed_task *t, const char *what, const char *member) {
  return STATUS(shoal_status_code(t->absent), "%s waits for %s: %s", what, member, shoal_status_message(t->absent));
}

static shoal_status judge_instance(const struct look *k, const struct leader_gap *g) {
  shoal_status why = NULL;
  for (size_t i = 0; i < g->absent.n && !why; i++) {
    const struct leader_absent *a = &g->absent.at[i];
    const struct missed_task *t = task_of(k, a->device);
    if (!t) continue;
    uint64_t now = t->absent ? 0 : peer_device_incarnation(t->peer, a->device);
    char *member = mem_printf("%s (rank %d)", a->device, a->rank);
    if (t->absent) why = gone(t, g->what, member);
    else if (now && now != a->incarnation) why = restarted(t, g->what, member);
    free(member);
  }
  return why;
}

static bool is_lost(const struct missed_task *t, const struct leader_gap *g) {
  return t && t->met && (t->absent || peer_changed(t->peer) > g->began);
}

/* How many members a task has in it: as many as any that came. */
static intptr_t members_of_a_task(const struct leader_gap *g) {
  intptr_t most = 1;
  void *n;
  for (size_t i = 0; strmap_next(&g->tasks, &i, NULL, &n);) most = MAX(most, (intptr_t)n);
  return most;
}

static bool trains(const char *job) { return strcmp(job, "ps") != 0 && strcmp(job, "evaluator") != 0; }

/* Each task of the cluster, or each that trains. */
static void each_task(const struct worker *w, bool all, void (*see)(void *arg, const char *task), void *arg) {
  for (size_t j = 0; j < w->spec->jobs.n; j++) {
    const struct cluster_job *job = &w->spec->jobs.at[j];
    for (size_t i = 0; (all || trains(job->name)) && i < job->tasks.n; i++) {
      char *task = mem_printf("/job:%s/replica:0/task:%d", job->name, job->tasks.at[i].index);
      see(arg, task);
      free(task);
    }
  }
}

struct headcount {
  const struct look *look;
  const struct leader_gap *gap;
  const struct missed_task *lost; /* the first */
  size_t others;                  /* that have come, or may yet */
};

static void count_task(void *arg, const char *name) {
  struct headcount *h = arg;
  const struct missed_task *t = strmap_has(&h->gap->tasks, name) ? NULL : strmap_get(&h->look->tasks, name);
  if (!is_lost(t, h->gap)) h->others++;
  else if (!h->lost) h->lost = t;
}

/* Where people are told of it all are asked how many devices they have. Tasks that a client names may have others. */
static bool asks_all(const struct worker *w, const struct leader_gap *g) {
  return g->is_group && g->say && !w->client_clusters;
}

static shoal_status judge_group(const struct look *k, const struct leader_gap *g) {
  struct headcount h = {.look = k, .gap = g};
  each_task(k->worker, false, count_task, &h);
  if (!h.lost || (intptr_t)h.others * members_of_a_task(g) >= g->size) return NULL;
  char *what = mem_printf("%s has %d of %d members, and", g->what, g->came, g->size);
  shoal_status why = h.lost->absent ? gone(h.lost, what, h.lost->name) : restarted(h.lost, what, h.lost->name);
  free(what);
  return why;
}

struct device_count_of {
  const struct look *look;
  const char *type;
  int n;
  bool unknown;
};

static void add_devices(void *arg, const char *name) {
  struct device_count_of *c = arg;
  const struct worker *w = c->look->worker;
  const struct missed_task *t = strmap_get(&c->look->tasks, name);
  if (t && !t->absent) c->n += peer_count_devices(t->peer, c->type);
  else if (strcmp(name, w->task)) c->unknown = true;
  else
    for (int i = 0; i < w->n_devices; i++) c->n += !strcmp(w->devices[i]->type->name, c->type);
}

/* Do all tasks of the cluster have too few devices for it, as they all said? */
static shoal_status judge_size(const struct look *k, const struct leader_gap *g) {
  struct device_count_of c = {.look = k, .type = g->type, .unknown = !asks_all(k->worker, g)};
  each_task(k->worker, true, add_devices, &c);
  if (c.unknown || c.n >= g->size) return NULL;
  return INVALID("%s has %d of %d members, and can never be whole: its cluster has %d devices of type %s", g->what,
                 g->came, g->size, c.n, g->type);
}

/* ---- telling people ---- */

struct missed_names {
  const struct leader_gap *gap;
  struct text text;
  int n;
};

enum { MOST_NAMES = 8 };

static void add_name(struct missed_names *n, const char *name) {
  if (n->n++ < MOST_NAMES) text_addf(&n->text, "%s%s", n->n > 1 ? ", " : "", name);
}

static void add_task(void *arg, const char *task) {
  struct missed_names *n = arg;
  if (!strmap_has(&n->gap->tasks, task)) add_name(n, task);
}

static void say(const struct worker *w, const struct leader_gap *g) {
  struct missed_names n = {.gap = g};
  if (g->is_group) each_task(w, false, add_task, &n);
  for (size_t i = 0; i < g->absent.n; i++) add_name(&n, g->absent.at[i].device);
  if (n.n > MOST_NAMES) text_addf(&n.text, " and %d more", n.n - MOST_NAMES);
  LOGW("waiting for %.0f s: %s has %d of %d members%s%s", (double)(clock_ns() - g->began) * 1e-9, g->what, g->came,
       g->size, n.n ? ", and none of " : "", n.n ? text_cstr(&n.text) : "");
  text_release(&n.text);
}

/* ---- asking ---- */

static void free_look(struct look *k) {
  void *value;
  for (size_t i = 0; strmap_next(&k->tasks, &i, NULL, &value);) {
    struct missed_task *t = value;
    peer_unref(t->peer);
    shoal_status_free(t->absent);
    free(t->name);
    free(t);
  }
  strmap_release(&k->tasks);
  leader_gaps_release(&k->gaps);
  free(k);
}

static void answers_came(void *arg, shoal_status none) {
  enum { LINES = 20 }; /* of what strangers may begin by the thousand */
  struct look *k = arg;
  struct worker *w = k->worker;
  size_t said = 0;
  for (size_t i = 0; i < k->gaps.n; i++) {
    const struct leader_gap *g = &k->gaps.at[i];
    shoal_status why = g->is_group ? judge_group(k, g) : judge_instance(k, g);
    if (!why && g->is_group) why = judge_size(k, g);
    if (why) leader_gap_lose(w->collectives.tables, g, why);
    else if (g->say && said++ < LINES) say(w, g);
    shoal_status_free(why);
  }
  if (said > LINES) LOGW("waiting for members: %zu more groups and instances of collectives", said - LINES);
  free_look(k);
  pthread_mutex_lock(&w->collectives.lock);
  w->collectives.missed.looks = w->collectives.missed.again && !w->collectives.missed.over;
  if (w->collectives.missed.looks) look_later(w);
  pthread_mutex_unlock(&w->collectives.lock);
}

static void status_came(void *arg, shoal_status s, struct rpc_body *body) {
  struct missed_task *t = arg;
  const void *data;
  size_t size;
  t->absent = peer_absence(t->peer, s);
  if (shoal_status_code(s) == SHOAL_INVALID_ARGUMENT) t->absent = status_copy(s); /* it takes no part */
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (!s) peer_learn(t->peer, data, size);
  shoal_status_free(s);
  join_part(&t->look->join, NULL);
}

/* any: it need not have been met. */
static void add_missed(struct look *k, const char *name, bool any) {
  if (!strcmp(name, k->worker->task) || strmap_has(&k->tasks, name)) return;
  struct peer *peer = collectives_find_task(k->worker, name);
  bool met = peer && peer_incarnation(peer);
  if (!peer || (!any && !met)) {
    peer_unref(peer);
    return;
  }
  struct missed_task *t = mem_zalloc(1, sizeof *t);
  *t = (struct missed_task){.look = k, .name = mem_strdup(name), .peer = peer, .met = met};
  strmap_put(&k->tasks, name, t);
}

struct missing {
  struct look *look;
  const struct leader_gap *gap;
  bool all;
};

static void add_missing(void *arg, const char *task) {
  struct missing *m = arg;
  if (m->all || !strmap_has(&m->gap->tasks, task)) add_missed(m->look, task, m->all);
}

static void list_missed(struct look *k) {
  for (size_t i = 0; i < k->gaps.n; i++) {
    const struct leader_gap *g = &k->gaps.at[i];
    bool all = asks_all(k->worker, g);
    if (g->is_group) each_task(k->worker, all, add_missing, &(struct missing){k, g, all});
    for (size_t n = 0; n < g->absent.n; n++) {
      const char *device = g->absent.at[n].device;
      char *task = mem_strndup(device, device_task_length(device));
      add_missed(k, task, true);
      free(task);
    }
  }
}

static void look(void *arg) {
  struct worker *w = arg;
  struct collectives *c = &w->collectives;
  int64_t now = clock_ns();
  struct look *k = mem_zalloc(1, sizeof *k);
  k->worker = w;
  pthread_mutex_lock(&c->lock);
  c->missed.again = false;
  pthread_mutex_unlock(&c->lock);
  bool any = leader_gaps_find(c->tables, now - peers_quiet_ns(w->peers), &k->gaps);
  if (any) {
    pthread_mutex_lock(&c->lock);
    c->missed.again = true;
    pthread_mutex_unlock(&c->lock);
  }
  if (!c->coordinated) list_missed(k);
  join_init(&k->join, k->tasks.n + 1, answers_came, k);
  void *value;
  for (size_t i = 0; strmap_next(&k->tasks, &i, NULL, &value);) {
    struct missed_task *t = value;
    struct text asks = {0};
    put_GetStatusAsk_task(&asks, w->task);
    peer_start(t->peer, "/tensorflow.WorkerService/GetStatus", message_from_text(&asks),
               now + peers_patience_ns(w->peers), PEER_UNWATCHED, 0, "whether it comes to a collective", status_came, t,
               NULL);
  }
  join_part(&k->join, NULL);
}

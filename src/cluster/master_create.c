/* Making a session. A state machine, since it may last as long as the slowest task takes to come up, and nobody may
 * wait for that on a thread that others need:
 *
 *   begin   (a builder)   reads the configuration, names the tasks, imports the graph, asks every task for its devices
 *   met     (whoever is last to answer)   lists the devices, has every task make its half of the session
 *   halves_made           the session is entered, and the client told; or the halves are taken back
 *   finish                done
 *
 * While it waits in `begin` an alarm looks after it: says for whom it waits, with the cause as far as it is known, and
 * gives up when the client's deadline is near (so that the client learns who was missing, not only that time is up), at
 * --startup_timeout, or when a task is there but its certificate will not do. Giving up is cancelling the questions:
 * there is one way on, with the error or without. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/latch.h"
#include "base/list.h"
#include "base/log.h"
#include "base/ref.h"
#include "cluster/master.h"
#include "graph/import.h"

/* NEAR_MS: what is left of a client's deadline, at most, for the answer that says who is missing to reach it. STAY_MS:
 * how long one that has met a task that is not the one it meant stays, so that this one, which asks every second, meets
 * it too: its program ends with the error as a rule, and its server with that. */
enum { LOOK_MS = 100, FIRST_MS = 1000, TELL_MS = 5000, ANSWER_MS = 1000, NEAR_MS = 2000, STAY_MS = 1500 };

struct answer {
  struct creation *of;
  bool come;            /* of->lock */
  shoal_status refused; /* it is not the task that was meant, or takes no part */
  struct alarm alarm;
};

struct creation {
  struct ref refs;              /* its own, the roll's while it asks, a stopper's */
  struct creation *prev, *next; /* master->lock */
  struct latch *stopped;        /* master->lock: who waits for its end; NULL: nobody */
  struct master *master;
  struct account *account;
  uint64_t connection;
  struct wire config, graph_def;
  char *target;
  int64_t deadline;
  creation_done done;
  void *arg;
  struct master_session *session;
  struct cancel cancel; /* of all that is asked of other tasks */
  struct join join;
  struct answer *answers; /* [workers] */
  pthread_mutex_t lock;
  shoal_status why;      /* lock: it was given up */
  bool met;              /* lock: nothing is waited for any more */
  size_t counted, taken; /* 1: as one in the making; as a session */
  struct alarm alarm;
  int64_t start, limit, tell;
  const char *reason; /* what to call the limit */
  struct roll roll;
};

static void creation_unref(struct creation *k) {
  if (!ref_drop(&k->refs)) return;
  master_session_unref(k->session);
  account_unref(k->account);
  shoal_status_free(k->why);
  cancel_release(&k->cancel);
  pthread_mutex_destroy(&k->lock);
  free(k->answers);
  free(k->target);
  free(k);
}

struct creation *creation_new(struct master *m, struct wire config, struct wire graph_def, const char *target,
                              struct rpc_origin from, int64_t deadline, creation_done done, void *arg) {
  struct creation *k = mem_zalloc(1, sizeof *k);
  ref_init(&k->refs, 1);
  k->master = m;
  k->config = config;
  k->graph_def = graph_def;
  k->target = mem_strdup(target);
  k->connection = from.connection;
  k->account = account_get(m->server.limits, from);
  k->deadline = deadline;
  k->done = done;
  k->arg = arg;
  cancel_init(&k->cancel);
  pthread_mutex_init(&k->lock, NULL);
  return k;
}

void creation_cancel(struct creation *k, shoal_status why) {
  ref_take(&k->refs); /* what is cancelled may end it */
  pthread_mutex_lock(&k->lock);
  if (k->why) shoal_status_free(why);
  else k->why = why;
  pthread_mutex_unlock(&k->lock);
  cancel_start(&k->cancel, NULL);
  creation_unref(k);
}

void creations_stop(struct master *m) {
  VEC(struct creation *) all = {0};
  struct latch stopped;
  pthread_mutex_lock(&m->lock);
  for (struct creation *k = m->creations; k; k = k->next) {
    ref_take(&k->refs);
    k->stopped = &stopped;
    vec_push(&all, k);
  }
  latch_init(&stopped, (int)all.n);
  pthread_mutex_unlock(&m->lock);
  for (size_t i = 0; i < all.n; i++) {
    shoal_status why = startup_late(m->startup); /* what ends the server ends its sessions */
    creation_cancel(all.at[i], why ? why : STATUS(SHOAL_UNAVAILABLE, "the server %s is stopping", m->server.task));
    creation_unref(all.at[i]);
  }
  vec_release(&all);
  shoal_status_free(latch_finish(&stopped));
}

static void finish(struct creation *k, shoal_status s) {
  struct master *m = k->master;
  pthread_mutex_lock(&k->lock);
  account_give(k->account, LIMIT_CREATIONS, k->counted);
  if (s) account_give(k->account, LIMIT_SESSIONS, k->taken);
  shoal_status why = s ? k->why : NULL; /* what was cancelled for it is a consequence */
  if (why) k->why = NULL;
  pthread_mutex_unlock(&k->lock);
  if (why) {
    shoal_status_free(s);
    s = why;
  }
  k->done(k->arg, s, s ? NULL : k->session->handle);
  pthread_mutex_lock(&m->lock);
  LIST_REMOVE(m->creations, k);
  struct latch *stopped = k->stopped;
  pthread_mutex_unlock(&m->lock);
  creation_unref(k);
  if (stopped) latch_done(stopped, NULL);
}

/* ---- the workers' halves ---- */

static void taken_back(void *arg, shoal_status s) {
  struct creation *k = arg;
  shoal_status_free(s);
  s = k->join.status;
  k->join.status = NULL;
  finish(k, s);
}

static shoal_status enter(struct creation *k) {
  struct master *m = k->master;
  struct master_session *s = k->session;
  if (cancel_started(&k->cancel)) return STATUS(SHOAL_CANCELLED, "the client has gone"); /* nobody would close it */
  startup_used(m->startup);
  pthread_mutex_lock(&m->lock);
  shoal_status err = m->closing ? STATUS(SHOAL_UNAVAILABLE, "the server %s is stopping", m->server.task) : NULL;
  if (!err) {
    master_session_ref(s);
    strmap_put(&m->sessions, s->handle, s);
  }
  pthread_mutex_unlock(&m->lock);
  return err;
}

static void halves_made(void *arg, shoal_status s) {
  struct creation *k = arg;
  if (!s) s = enter(k);
  k->join.status = s;
  if (s) master_delete_halves(k->session, taken_back, k); /* of those that could be made */
  else finish(k, NULL);
}

static void make_halves(struct creation *k) {
  struct master_session *s = k->session;
  join_init(&k->join, s->workers.n + 1, halves_made, k);
  for (size_t i = 0; i < s->workers.n; i++) {
    struct worker_link *w = &s->workers.at[i];
    struct device_spec name;
    shoal_status bad = device_spec_parse(w->task, &name);
    shoal_status_free(bad);
    struct worker_session_options o = {.handle = s->half,
                                       .isolated = s->config.isolated,
                                       .master = s->task,
                                       .master_incarnation = (int64_t)s->master->own.devices.at[0].incarnation,
                                       .job = name.job,
                                       .task = name.task,
                                       .leader = s->config.leader,
                                       .spec = s->config.propagated ? &s->config.spec : NULL};
    w->ops->create_session(w, &o, k->deadline, &k->cancel, join_part, &k->join);
  }
  join_part(&k->join, NULL);
}

static void list_devices(struct master_session *s) {
  for (size_t i = 0; i < s->workers.n; i++)
    for (size_t k = 0; k < s->workers.at[i].devices.n; k++) {
      struct remote_device *d = &s->workers.at[i].devices.at[k];
      struct place_device p = {.name = d->name};
      shoal_status err = device_spec_parse(d->name, &p.spec);
      if (err) {
        LOGW("a device of %s is left out: %s", s->workers.at[i].task, shoal_status_message(err));
        shoal_status_free(err);
        continue;
      }
      vec_push(&s->places, p);
      vec_push(&s->devices, (struct master_device){d->name, &d->attributes, d->incarnation, (int)i});
      if (!strmap_has(&s->device_numbers, d->name))
        strmap_put(&s->device_numbers, d->name, (void *)(intptr_t)s->devices.n);
    }
}

/* ---- meeting the tasks ---- */

static void met(void *arg, shoal_status s) {
  struct creation *k = arg;
  pthread_mutex_lock(&k->lock);
  k->met = true;
  pthread_mutex_unlock(&k->lock);
  alarm_clear(&k->alarm);
  if (!s && cancel_started(&k->cancel)) s = STATUS(SHOAL_CANCELLED, "the client has gone");
  if (s) {
    finish(k, s);
    return;
  }
  list_devices(k->session);
  make_halves(k);
}

/* Nobody who comes yet would mend it. */
static void refuse(void *arg) {
  struct answer *a = arg;
  struct creation *k = a->of;
  creation_cancel(k, status_copy(a->refused));
  join_part(&k->join, a->refused);
}

static void answered(void *arg, shoal_status s) {
  struct answer *a = arg;
  struct creation *k = a->of;
  pthread_mutex_lock(&k->lock);
  a->come = true;
  pthread_mutex_unlock(&k->lock);
  if (shoal_status_code(s) != SHOAL_INVALID_ARGUMENT) {
    join_part(&k->join, s);
    return;
  }
  a->refused = s;
  alarm_set(&a->alarm, clock_ns() + STAY_MS * 1000000ll, refuse, a);
}

static void look(void *arg);

/* Call with the lock held, before `met`. */
static void look_again(struct creation *k) {
  alarm_set(&k->alarm, MIN(clock_ns() + LOOK_MS * 1000000ll, MAX(k->limit, clock_ns())), look, k);
}

/* Who is missed where our list has it may have asked us from elsewhere. */
static void add_elsewhere(const struct creation *k, struct text *out) {
  for (size_t i = 0; i < k->roll.all.n && !k->session->config.propagated; i++) {
    const struct roll_entry *e = &k->roll.all.at[i];
    char *at = e->here ? NULL : home_heard_address(k->master->server.home, e->task);
    if (at && strcmp(at, e->address) != 0)
      text_addf(out, "; %s has asked us, and by its list it is at %s: do the lists differ?", e->task, at);
    free(at);
  }
}

/* Those who had not answered have been asked what is the matter. */
static void asked(void *arg, shoal_status none) {
  struct creation *k = arg;
  struct text missing = {0};
  shoal_status err = NULL;
  int64_t now = clock_ns();
  char until[96] = "";
  if (k->limit != DEADLINE_NEVER)
    snprintf(until, sizeof until, "; it gives up after %.0f s (%s)", (double)(k->limit - k->start) * 1e-9, k->reason);
  if (roll_count_missing(&k->roll)) {
    roll_missing(&k->roll, &missing);
    add_elsewhere(k, &missing);
    err = roll_hopeless(&k->roll);
    if (!err && now >= k->limit)
      err = STATUS(SHOAL_DEADLINE_EXCEEDED, "no answer within %s (%.1f s) from: %s", k->reason,
                   (double)(k->limit - k->start) * 1e-9, text_cstr(&missing));
    if (!err && k->tell - k->start > FIRST_MS * 1000000ll)
      LOGW("CreateSession still waiting for response from worker: %s%s", text_cstr(&missing), until);
  }
  text_release(&missing);
  roll_release(&k->roll);
  pthread_mutex_lock(&k->lock);
  k->tell = now + TELL_MS * 1000000ll;
  if (!k->met && !err) look_again(k);
  pthread_mutex_unlock(&k->lock);
  if (err) creation_cancel(k, err);
  creation_unref(k);
}

/* Once the roll is asked there are no looks until it is answered. */
static void look(void *arg) {
  struct creation *k = arg;
  int64_t now = clock_ns();
  shoal_status err = startup_late(k->master->startup);
  if (err) {
    creation_cancel(k, err);
    return;
  }
  pthread_mutex_lock(&k->lock);
  bool ask = !k->met && (now >= k->tell || now >= k->limit);
  if (ask) {
    ref_take(&k->refs);
    roll_init(&k->roll);
    for (size_t i = 0; i < k->session->workers.n; i++) {
      const struct worker_link *w = &k->session->workers.at[i];
      if (!k->answers[i].come) w->ops->enroll(w, &k->roll);
    }
  } else if (!k->met) {
    look_again(k);
  }
  pthread_mutex_unlock(&k->lock);
  /* The answer must still reach the client. */
  int64_t left = k->deadline == DEADLINE_NEVER ? ANSWER_MS : (k->deadline - now) / 2000000;
  if (ask) roll_ask(&k->roll, MAX(1, MIN(ANSWER_MS, left)), asked, k);
}

/* The time at which to give up, and what to call it. */
static void set_limit(struct creation *k) {
  k->start = clock_ns();
  k->tell = k->start + FIRST_MS * 1000000ll;
  k->limit = deadline_after_ms(k->master->startup_timeout_ms);
  k->reason = "--startup_timeout";
  if (k->deadline == DEADLINE_NEVER) return;
  int64_t near = k->deadline - MIN((k->deadline - k->start) / 4, NEAR_MS * 1000000ll);
  if (near >= k->limit) return;
  k->reason = "the client's deadline";
  k->limit = near;
}

static void meet(struct creation *k) {
  struct master_session *s = k->session;
  k->answers = mem_zalloc(s->workers.n, sizeof *k->answers);
  set_limit(k);
  join_init(&k->join, s->workers.n + 1, met, k);
  pthread_mutex_lock(&k->lock);
  look_again(k);
  pthread_mutex_unlock(&k->lock);
  char *group = s->config.propagated ? NULL : home_group(s->master->server.home);
  struct status_asker asker = {s->master->server.task, group, group ? home_address(s->master->server.home) : NULL};
  for (size_t i = 0; i < s->workers.n; i++) {
    k->answers[i].of = k;
    s->workers.at[i].ops->get_status(&s->workers.at[i], &asker, k->deadline, &k->cancel, answered, &k->answers[i]);
  }
  free(group);
  join_part(&k->join, NULL);
}

/* ---- the beginning ---- */

/* With a propagated cluster: which of its tasks is this server? By the target's text. */
static shoal_status find_self(const struct cluster_spec *spec, const char *target, const char **job, int *task) {
  const char *address = str_starts(target, "grpc://") ? target + 7 : target;
  int found = 0;
  for (size_t i = 0; i < spec->jobs.n; i++)
    for (size_t k = 0; k < spec->jobs.at[i].tasks.n; k++)
      if (!strcmp(spec->jobs.at[i].tasks.at[k].address, address)) {
        *job = spec->jobs.at[i].name;
        *task = spec->jobs.at[i].tasks.at[k].index;
        found++;
      }
  if (found == 1) return NULL;
  if (found > 1) return INVALID("The master at %s appears in more than one place of the propagated cluster", target);
  return INVALID("The propagated cluster does not hold the master itself (%s): add its address, written alike", target);
}

static void add_remote(struct master_session *s, const char *job, int index, const char *address) {
  char *task = mem_printf("/job:%s/replica:0/task:%d", job, index);
  struct worker_link w;
  if (strcmp(task, s->task) != 0) {
    worker_link_remote(&w, peers_get(s->master->server.peers, task, address, !s->config.propagated), task);
    vec_push(&s->workers, w);
  }
  free(task);
}

static bool given_up(void *creation) { return cancel_started(&((struct creation *)creation)->cancel); }

static shoal_status prepare(struct creation *k) {
  struct master *m = k->master;
  TRY(account_take(k->account, LIMIT_SESSIONS, 1));
  k->taken = 1;
  struct master_session *s = k->session = master_session_new(m, k->account);
  atomic_init(&s->connection, k->connection);
  TRY(master_config_read(&s->config, m->server.config, k->config, limits_most(m->server.limits, LIMIT_PEERS)));
  const struct cluster_spec *spec = s->config.propagated ? &s->config.spec : m->server.spec;
  if (*s->config.said.leader)
    TRY(collectives_check_leader("collective_group_leader", s->config.said.leader, spec, &s->config.leader));
  if (s->config.propagated) {
    const char *job;
    int task;
    TRY(find_self(spec, k->target, &job, &task));
    if (!m->server.client_clusters)
      TRY(cluster_spec_admit(m->server.spec, spec, cluster_spec_find(spec, job, task), m->server.task));
    size_t peers = cluster_spec_count(spec);
    TRY(account_take(k->account, LIMIT_PEERS, peers));
    s->n_peers = peers;
    s->task = mem_printf("/job:%s/replica:0/task:%d", job, task);
  } else {
    s->task = mem_strdup(m->server.task);
  }
  struct worker_link own;
  worker_link_again(&own, &m->own, s->task);
  vec_push(&s->workers, own);
  for (size_t i = 0; i < spec->jobs.n; i++)
    for (size_t n = 0; n < spec->jobs.at[i].tasks.n; n++) {
      const struct cluster_job *j = &spec->jobs.at[i];
      if (device_filters_pass(s->config.said.filters.at, s->config.said.filters.n, j->name, j->tasks.at[n].index))
        add_remote(s, j->name, j->tasks.at[n].index, j->tasks.at[n].address);
    }
  return master_session_import(s, k->graph_def, true, given_up, k);
}

static void begin(void *arg) {
  struct creation *k = arg;
  shoal_status s = prepare(k);
  if (!s && !k->session->config.propagated) s = home_check_group(k->master->server.home);
  if (s) finish(k, s);
  else meet(k);
}

void creation_begin(struct creation *k) {
  struct master *m = k->master;
  pthread_mutex_lock(&m->lock);
  LIST_ADD(m->creations, k);
  bool closing = m->closing;
  pthread_mutex_unlock(&m->lock);
  shoal_status full = account_take(k->account, LIMIT_CREATIONS, 1);
  k->counted = !full;
  if (full) finish(k, full);
  else if (closing) finish(k, STATUS(SHOAL_UNAVAILABLE, "the server %s is stopping", m->server.task));
  else pool_submit(m->server.builders, begin, k);
}

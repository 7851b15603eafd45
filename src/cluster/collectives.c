/* A member of a collective goes through here once: who is in the group, what is the instance, then its program. Nobody
 * waits on a thread: each function goes on with the next when its answer comes, or ends the whole with finish(). */
#include "cluster/collectives.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/worker.h"
#include "collective/choose.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"
#include "tensor/tensor_proto.h"

void collectives_init(struct collectives *c, const char *leader, int64_t timeout_ms, bool shares) {
  c->leader = leader ? mem_strdup(leader) : NULL;
  c->timeout_ns = (timeout_ms > 0 ? timeout_ms : COLLECTIVE_TIMEOUT_MS) * 1000000;
  c->tables = leader_new();
  c->memory = collective_memory_new(shares);
  pthread_mutex_init(&c->lock, NULL);
}

static struct collectives_end *end_new(void) {
  struct collectives_end *e = mem_zalloc(1, sizeof *e);
  atomic_init(&e->refs, 1);
  cancel_init(&e->cancel);
  return e;
}

static void end_unref(struct collectives_end *e) {
  if (!e || atomic_fetch_sub(&e->refs, 1) != 1) return;
  cancel_release(&e->cancel);
  free(e);
}

void collectives_coordinate(struct collectives *c) {
  c->coordinated = true;
  c->end = end_new();
}

unsigned collectives_call_flags(const struct collectives *c) {
  return c->coordinated ? PEER_UNWATCHED | RPC_WAIT_FOR_READY : 0;
}

void collectives_break(struct collectives *c, shoal_status why) {
  struct collectives_end *next = end_new();
  pthread_mutex_lock(&c->lock);
  struct collectives_end *now = c->end;
  c->end = next;
  pthread_mutex_unlock(&c->lock);
  cancel_start(&now->cancel, why);
  end_unref(now);
}

/* A reference; NULL: nothing but its step ends a collective. */
static struct collectives_end *end_of_now(struct collectives *c) {
  if (!c->coordinated) return NULL;
  pthread_mutex_lock(&c->lock);
  struct collectives_end *e = c->end;
  atomic_fetch_add(&e->refs, 1);
  pthread_mutex_unlock(&c->lock);
  return e;
}

void collectives_release(struct collectives *c) {
  end_unref(c->end);
  void *sequence;
  for (size_t i = 0; strmap_next(&c->sequences, &i, NULL, &sequence);) free(sequence);
  strmap_release(&c->sequences);
  pthread_mutex_destroy(&c->lock);
  leader_free(c->tables);
  collective_memory_free(c->memory);
  free(c->leader);
}

char *collectives_leader(const struct collectives *c, const struct cluster_spec *spec) {
  if (c->leader) return mem_strdup(c->leader);
  const char *job = spec->jobs.at[0].name;
  static const char *const first[] = {"worker", "chief"};
  for (size_t k = 0; k < COUNT_OF(first); k++)
    if (cluster_spec_find(spec, first[k], 0)) job = first[k];
  return mem_printf("/job:%s/replica:0/task:0", job);
}

/* ---- what a session knows ---- */

struct known_instance {
  enum collective_kind kind;
  int dtype, source;
};

enum { MOST_KNOWN = 4096 }; /* groups, or instances: more are asked for again */

static void forget_groups(struct session_collectives *c) {
  void *value;
  for (size_t i = 0; strmap_next(&c->groups, &i, NULL, &value);) collective_group_unref(value);
  strmap_release(&c->groups);
  c->groups = (struct strmap){0};
}

static void forget_instances(struct session_collectives *c) {
  void *value;
  for (size_t i = 0; strmap_next(&c->instances, &i, NULL, &value);) free(value);
  strmap_release(&c->instances);
  c->instances = (struct strmap){0};
}

static void site_join(struct collective_site *s, struct step *step, struct collective_member *m);

void session_collectives_init(struct session_collectives *c, struct worker_session *s) {
  c->site.join = site_join;
  c->session = s;
  pthread_mutex_init(&c->lock, NULL);
}

void session_collectives_release(struct session_collectives *c) {
  forget_groups(c);
  forget_instances(c);
  pthread_mutex_destroy(&c->lock);
}

static struct collective_group *known_group(struct session_collectives *c, int key) {
  char name[32];
  snprintf(name, sizeof name, "%d", key);
  pthread_mutex_lock(&c->lock);
  struct collective_group *g = strmap_get(&c->groups, name);
  if (g) collective_group_ref(g);
  pthread_mutex_unlock(&c->lock);
  return g;
}

static void know_group(struct session_collectives *c, struct collective_group *g) {
  char name[32];
  snprintf(name, sizeof name, "%d", g->key);
  pthread_mutex_lock(&c->lock);
  if (c->groups.n >= MOST_KNOWN) forget_groups(c);
  collective_group_unref(strmap_put(&c->groups, name, collective_group_ref(g)));
  pthread_mutex_unlock(&c->lock);
}

static void instance_name(const struct collective_member *m, char *out, size_t n) {
  snprintf(out, n, "%d:%d", m->group_key, m->instance_key);
}

/* Of a broadcast: the source alone has something to send. */
static bool plays_its_part(const struct collective_member *m, int rank, int source) {
  return m->kind != COLLECTIVE_BROADCAST || m->is_source == (rank == source);
}

static bool known_instance(struct session_collectives *c, const struct collective_member *m, int rank, int *source) {
  char name[64];
  instance_name(m, name, sizeof name);
  pthread_mutex_lock(&c->lock);
  const struct known_instance *k = strmap_get(&c->instances, name);
  bool known = k && k->kind == m->kind && k->dtype == (int)m->dtype && plays_its_part(m, rank, k->source);
  if (known) *source = k->source;
  pthread_mutex_unlock(&c->lock);
  return known;
}

static void know_instance(struct session_collectives *c, const struct collective_member *m, int source) {
  char name[64];
  instance_name(m, name, sizeof name);
  struct known_instance *k = mem_zalloc(1, sizeof *k);
  *k = (struct known_instance){m->kind, (int)m->dtype, source};
  pthread_mutex_lock(&c->lock);
  if (c->instances.n >= MOST_KNOWN) forget_instances(c);
  free(strmap_put(&c->instances, name, k));
  pthread_mutex_unlock(&c->lock);
}

/* Something of it may have changed. */
static void forget(struct session_collectives *c, int group_key) {
  char name[32];
  snprintf(name, sizeof name, "%d", group_key);
  pthread_mutex_lock(&c->lock);
  collective_group_unref(strmap_remove(&c->groups, name));
  forget_instances(c);
  pthread_mutex_unlock(&c->lock);
}

/* ---- one member ---- */

struct joining {
  atomic_int refs; /* its own, and those of whoever is about to cancel it */
  struct collective_member *member;
  struct session_collectives *site;
  struct step *step;
  char *device; /* in the session's terms */
  char *leader; /* task */
  int64_t deadline;
  struct cancel cancel;
  struct cancel_hook hook;     /* of the step's cancellation */
  struct collectives_end *end; /* a reference; NULL: none */
  struct cancel_hook end_hook;
  struct alarm alarm;
  struct leader_wait wait; /* at our own tables */
  struct cancel_hook leaving;
  struct alarm again;      /* when to ask the leader once more */
  struct cancellable call; /* at another task's */
  struct collective_group *group;
  int rank, source;
  struct collective_wire wire;
  struct schedule program;
  struct schedule_request request;
  struct collective_run run;
  struct tensor out;
  struct memory_member *shared; /* NULL: it goes by messages */
  struct cancel_hook breaking;  /* of our cancellation: what goes on in shared memory */
  struct alarm look;            /* when to see for whom it waits */
  uint64_t watched;             /* the look's: ranks, by bit */
  struct cancel watching;       /* ends the watch over them */
  _Atomic(struct watch *) lost; /* one that has something to tell; the look's to take */
  shoal_status outcome;         /* of what another thread goes on with */
};

_Static_assert(SHARED_RANKS <= 64, "a bit for each");

/* Over a member that is waited for. */
struct watch {
  struct joining *joining;
  int rank;
  shoal_status told; /* why it does not come */
};

static void watch_free(struct watch *w) {
  if (!w) return;
  shoal_status_free(w->told);
  free(w);
}

static void unref(struct joining *j) {
  if (atomic_fetch_sub(&j->refs, 1) != 1) return;
  collective_group_unref(j->group);
  cancel_release(&j->cancel);
  cancel_release(&j->watching);
  watch_free(atomic_load(&j->lost));
  end_unref(j->end);
  free(j->device);
  free(j->leader);
  free(j);
}

/* Do its messages belong to no step in particular? */
static bool is_of_all(const struct joining *j) {
  return j->site->session->worker->collectives.coordinated && j->group && !j->group->all_ours;
}

/* s is consumed. */
static void finish(struct joining *j, shoal_status s) {
  struct collective_member *m = j->member;
  if (m->cancel) cancel_deregister(m->cancel, &j->hook);
  if (j->end) cancel_deregister(&j->end->cancel, &j->end_hook);
  alarm_clear(&j->alarm);
  if (s && cancel_started(&j->cancel)) { /* what follows from it says less */
    shoal_status_free(s);
    s = cancel_reason(&j->cancel);
  }
  if (s) {
    forget(j->site, m->group_key);
    tensor_release(&j->out);
    if (is_of_all(j)) steps_cleanup(j->site->session->worker->steps, STEP_OF_ALL); /* what was sent stays in no step */
    status_prefix(s, "Collective op %s (group %d, instance %d): ", m->name, m->group_key, m->instance_key);
  }
  m->done(m, s, s ? NULL : &j->out);
  unref(j);
}

/* Cancelling may end it on this very thread. */
static void stop(struct joining *j, shoal_status why) {
  atomic_fetch_add(&j->refs, 1);
  cancel_start(&j->cancel, why);
  unref(j);
}

static void on_end(void *arg) {
  struct joining *j = arg;
  stop(j, cancel_reason(&j->end->cancel));
}

static void on_cancel(void *arg) { stop(arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "it was cancelled"))); }

static void on_time_out(void *arg) {
  struct joining *j = arg;
  int rank =
      j->shared ? shared_group_missing(memory_member_group(j->shared), &j->run.id) : atomic_load(&j->wire.waits_for);
  const char *who = !j->group || j->rank < 0 ? j->leader : rank >= 0 ? j->group->places[rank].device : NULL;
  stop(j, STATUS(SHOAL_DEADLINE_EXCEEDED, "Collective has timed out waiting for other workers.%s%s",
                 who ? " It waited for " : "", who ? who : ""));
}

/* ---- running ---- */

static void run_over(struct collective_run *r, shoal_status s) {
  struct joining *j = (struct joining *)((char *)r - offsetof(struct joining, run));
  schedule_release(&j->program);
  rendezvous_unref(j->wire.rendezvous);
  finish(j, s);
}

/* Links of one host by the fast path, and of a network; measured on neither in particular, but their ratios hold. */
static const struct machine_cost usual_cost = {
    .inside = {2e-5, 5e-6, 2e-10}, .between = {5e-5, 1e-5, 1e-9}, .merge_per_byte = 1e-10, .copy_per_byte = 1e-10};

static struct schedule_request request_of(const struct joining *j) {
  static const enum collective_operation operations[] = {[COLLECTIVE_REDUCE] = OPERATION_ALL_REDUCE,
                                                         [COLLECTIVE_BROADCAST] = OPERATION_BROADCAST,
                                                         [COLLECTIVE_GATHER] = OPERATION_ALL_GATHER,
                                                         [COLLECTIVE_ALL_TO_ALL] = OPERATION_ALL_TO_ALL,
                                                         [COLLECTIVE_REDUCE_SCATTER] = OPERATION_REDUCE_SCATTER};
  const struct collective_member *m = j->member;
  struct schedule_request r = {.operation = operations[m->kind],
                               .rank = j->rank,
                               .size = j->group->size,
                               .root = m->kind == COLLECTIVE_BROADCAST ? j->source : 0,
                               .n = j->out.n};
  if (m->kind == COLLECTIVE_GATHER) r.n = m->in->n;
  if (m->kind == COLLECTIVE_ALL_TO_ALL) r.n /= r.size;
  return r;
}

/* By which messages. */
static void choose_algorithm(struct joining *j) {
  const struct collective_member *m = j->member;
  struct schedule_request *r = &j->request;
  size_t element = dtype_size(m->dtype);
  r->alignment = MAX((int64_t)(64 / element), 1);
  if (j->group->all_ours) {
    collective_choose(r, element, &usual_cost);
    if (m->algorithm >= 0) r->algorithm = (enum collective_algorithm)m->algorithm;
    return;
  }
  bool pairs = m->kind == COLLECTIVE_BROADCAST || m->kind == COLLECTIVE_ALL_TO_ALL;
  r->algorithm = pairs ? ALGORITHM_TASKS : ALGORITHM_RING;
  r->hosts = j->group->tasks;
}

static void begin_by_messages(struct joining *j) {
  choose_algorithm(j);
  shoal_status s = schedule_init(&j->program, &j->request);
  if (s) {
    run_over(&j->run, s);
    return;
  }
  atomic_fetch_add(&j->site->session->worker->collectives.by_messages, 1);
  j->run.program = &j->program;
  j->run.transport = &j->wire.head;
  j->run.done = run_over;
  collective_run_start(&j->run);
}

/* ---- in shared memory ---- */

static void memory_outcome(void *arg) {
  struct joining *j = arg;
  if (shoal_status_code(j->outcome) == SHOAL_UNIMPLEMENTED && !cancel_started(&j->cancel)) { /* nothing has happened */
    shoal_status_free(j->outcome);
    alarm_set(&j->alarm, j->deadline + LEADER_FIRST_MS * 1000000ll, on_time_out, j);
    begin_by_messages(j);
  } else {
    run_over(&j->run, j->outcome);
  }
}

/* On the group's own thread, which others may wait for, or on ours. */
static void memory_over(struct collective_run *r, shoal_status s) {
  struct joining *j = (struct joining *)((char *)r - offsetof(struct joining, run));
  cancel_deregister(&j->cancel, &j->breaking);
  alarm_clear(&j->look);
  cancel_start(&j->watching, NULL);
  alarm_clear(&j->alarm);
  struct memory_member *e = j->shared;
  j->shared = NULL;
  collective_memory_leave(j->site->session->worker->collectives.memory, e);
  j->outcome = s;
  if (pool_is_mine(j->step->inter)) memory_outcome(j);
  else pool_submit(j->step->inter, memory_outcome, j);
}

static void on_break(void *arg) {
  struct joining *j = arg;
  collective_run_fail(&j->run, cancel_reason(&j->cancel));
}

/* Has the step ended there, or is it gone? By now it may have done its part, and be past it: the look sees. */
static void watch_ended(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct watch *w = arg;
  struct joining *j = w->joining;
  tensor_release(value);
  w->told = s;
  if (s && !cancel_started(&j->watching)) w = atomic_exchange(&j->lost, w);
  watch_free(w);
  unref(j);
}

enum { LOOK_MS = 250 };

/* A process that is stopped is there, and does nothing, and one whose step was given up does not come: the network
 * knows. */
static void on_look(void *arg) {
  struct joining *j = arg;
  int rank = shared_group_missing(memory_member_group(j->shared), &j->run.id);
  bool elsewhere = rank >= 0 && j->group->tasks[rank] != j->group->tasks[j->rank];
  alarm_set(&j->look, deadline_after_ms(LOOK_MS), on_look, j);
  if (!elsewhere) return;
  /* What follows may end it there and then. */
  if (j->watched >> rank & 1) {
    struct watch *lost = atomic_exchange(&j->lost, NULL);
    if (lost && lost->rank == rank) stop(j, status_copy(lost->told));
    watch_free(lost);
    return;
  }
  struct watch *w = mem_zalloc(1, sizeof *w);
  *w = (struct watch){j, rank};
  j->watched |= (uint64_t)1 << rank;
  atomic_fetch_add(&j->refs, 1);
  collective_wire_watch(&j->wire, &j->run.id, rank, &j->watching, watch_ended, w);
}

static void begin_in_memory(struct joining *j) {
  enum { PATIENCE_NS = 50000 };
  atomic_fetch_add(&j->site->session->worker->collectives.in_memory, 1);
  j->run.transport = shared_group_transport(memory_member_group(j->shared));
  j->run.done = memory_over;
  if (pool_is_mine(j->step->inter)) j->run.patience_ns = PATIENCE_NS;
  if (!cancel_register(&j->cancel, &j->breaking, on_break, j)) {
    memory_over(&j->run, cancel_reason(&j->cancel));
    return;
  }
  alarm_set(&j->look, deadline_after_ms(LOOK_MS), on_look, j);
  collective_run_start(&j->run);
}

static void begin(struct joining *j) {
  struct collective_member *m = j->member;
  shoal_status s = m->make(m, &j->out);
  if (s) {
    finish(j, s);
    return;
  }
  struct collectives *c = &j->site->session->worker->collectives;
  j->wire.step = j->step;
  j->wire.session = j->site->session;
  j->wire.step_id = is_of_all(j) ? STEP_OF_ALL : j->step->id;
  j->wire.rendezvous = steps_get(j->site->session->worker->steps, j->wire.step_id);
  j->wire.group = j->group;
  j->wire.rank = j->rank;
  j->wire.cancel = &j->cancel;
  j->request = request_of(j);
  j->run = (struct collective_run){.request = &j->request,
                                   .id = {j->wire.step_id, m->group_key, m->instance_key, m->frame, m->iter},
                                   .arithmetic = m->arithmetic,
                                   .members = j->group->size,
                                   .element = dtype_size(m->dtype),
                                   .in = m->in ? m->in->data : NULL,
                                   .out = j->out.data,
                                   .in_owner = m->in ? m->in->buffer : NULL,
                                   .out_owner = j->out.buffer};
  if (m->algorithm < 0) j->shared = collective_memory_join(c->memory, j->group, j->rank, j->step->inter);
  if (j->shared) begin_in_memory(j);
  else begin_by_messages(j);
}

/* ---- asking ---- */

/* At our own tables. */
static void leave(void *arg) {
  struct joining *j = arg;
  if (leader_leave(j->site->session->worker->collectives.tables, &j->wait, NULL)) finish(j, cancel_reason(&j->cancel));
}

static void ask_here(struct joining *j, void (*ask)(struct joining *j, struct leader *l)) {
  j->wait.roll = NULL;
  if (!cancel_register(&j->cancel, &j->leaving, leave, j)) {
    finish(j, cancel_reason(&j->cancel));
    return;
  }
  atomic_fetch_add(&j->refs, 1);
  ask(j, j->site->session->worker->collectives.tables);
  /* Whoever cancelled between the two found nobody waiting. */
  if (cancel_started(&j->cancel)) leave(j);
  unref(j);
}

/* At another task's. The request is taken over. */
static void ask_there(struct joining *j, const char *method, struct text *request, rpc_done done) {
  static const char why[] = "the step has ended";
  const struct step_names *names = &j->site->session->names;
  struct peer *leader = names->find(names->arg, j->leader, strlen(j->leader));
  shoal_status s = NULL;
  if (!leader) s = INVALID("the leader of collectives, %s, is not in this task's cluster", j->leader);
  else if (!cancellable_begin(&j->call, &j->cancel, why)) s = cancel_reason(&j->cancel);
  if (s) {
    text_release(request);
    finish(j, s);
    return;
  }
  char *what = mem_printf("group %d, instance %d of collectives", j->member->group_key, j->member->instance_key);
  peer_start(leader, method, message_from_text(request), j->deadline + LEADER_FIRST_MS * 1000000ll,
             collectives_call_flags(&j->site->session->worker->collectives), j->step->id, what, done, j, &j->call.call);
  free(what);
  cancellable_begun(&j->call);
}

/* Instances. */

static void have_instance(struct joining *j, int source) {
  struct collective_member *m = j->member;
  if (m->kind == COLLECTIVE_BROADCAST && (source < 0 || source >= j->group->size)) {
    finish(j, INTERNAL("the leader %s tells of no source", j->leader));
    return;
  }
  if (!plays_its_part(m, j->rank, source)) {
    finish(j, INTERNAL("the leader %s tells of rank %d as the source, and this is rank %d, which %s", j->leader, source,
                       j->rank, m->is_source ? "sends" : "receives"));
    return;
  }
  j->source = source;
  know_instance(j->site, m, source);
  begin(j);
}

static void instance_told_here(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct joining *j = (struct joining *)((char *)w - offsetof(struct joining, wait));
  cancel_deregister(&j->cancel, &j->leaving);
  if (s) finish(j, s);
  else have_instance(j, source);
}

static void instance_told_there(void *arg, shoal_status s, struct rpc_body *body) {
  struct joining *j = arg;
  const void *data;
  size_t size;
  int source = 0; /* where a message says nothing, it says 0 */
  cancellable_end(&j->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (s) {
    finish(j, s);
    return;
  }
  struct wire w = wire_from(data, size);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == CompleteInstanceResponse_source_rank) source = (int)(int64_t)f.value;
  have_instance(j, source);
}

/* Sessions of this task are askers as connections are, with other numbers. */
static uint64_t asker_here(const struct joining *j) { return (uint64_t)j->site->session->names.session | 1ull << 63; }

static void ask_about_instance(struct joining *j, struct leader *l) {
  const struct collective_member *m = j->member;
  leader_ask_instance(l,
                      &(struct instance_question){.asker = asker_here(j),
                                                  .group_key = m->group_key,
                                                  .group_size = m->group_size,
                                                  .key = m->instance_key,
                                                  .kind = m->kind,
                                                  .dtype = m->dtype,
                                                  .shape = m->shape,
                                                  .is_source = m->is_source,
                                                  .device = j->device},
                      &j->wait);
}

static void find_instance(struct joining *j) {
  if (j->member->kind == COLLECTIVE_JOIN) {
    finish(j, NULL);
    return;
  }
  static const char *const kinds[] = {[COLLECTIVE_REDUCE] = "Reduce",
                                      [COLLECTIVE_BROADCAST] = "Broadcast",
                                      [COLLECTIVE_GATHER] = "Gather",
                                      [COLLECTIVE_ALL_TO_ALL] = "AllToAll",
                                      [COLLECTIVE_REDUCE_SCATTER] = "ReduceScatter"};
  struct collective_member *m = j->member;
  if (known_instance(j->site, m, j->rank, &j->source)) {
    begin(j);
    return;
  }
  if (!strcmp(j->leader, j->site->session->task)) {
    j->wait.done = instance_told_here;
    ask_here(j, ask_about_instance);
    return;
  }
  struct text t = {0}, shape = {0};
  char *name = mem_printf("%s: %s", m->name, kinds[m->kind]);
  put_CompleteInstanceRequest_name(&t, name);
  put_CompleteInstanceRequest_type(&t, m->kind);
  put_CompleteInstanceRequest_data_type(&t, m->dtype);
  shape_proto_encode(&m->shape, &shape);
  put_CompleteInstanceRequest_shape_n(&t, shape.at, shape.n);
  put_CompleteInstanceRequest_group_key(&t, m->group_key);
  put_CompleteInstanceRequest_group_size(&t, m->group_size);
  put_CompleteInstanceRequest_instance_key(&t, m->instance_key);
  put_CompleteInstanceRequest_device_type(&t, m->device->type->name);
  put_CompleteInstanceRequest_device(&t, j->device);
  put_CompleteInstanceRequest_is_source(&t, m->is_source);
  free(name);
  text_release(&shape);
  ask_there(j, "/tensorflow.WorkerService/CompleteInstance", &t, instance_told_there);
}

/* Groups. */

static void find_group(struct joining *j);

/* Has a member been restarted since it told the leader of itself? It will again, when it comes to its part of the step;
 * what was restarted is known from the session's beginning, and whatever was asked since. */
static bool is_out_of_date(const struct joining *j) {
  const struct step_names *names = &j->site->session->names;
  for (int i = 0; i < j->group->size; i++) {
    const struct collective_place *p = &j->group->places[i];
    size_t n = device_task_length(p->device);
    if (n == strlen(names->task) && !memcmp(p->device, names->task, n)) continue;
    struct peer *peer = names->find(names->arg, p->device, n);
    uint64_t now = peer ? peer_device_incarnation(peer, p->device) : 0;
    if (now && now != p->incarnation) return true;
  }
  return false;
}

static void ask_again(void *arg) {
  struct joining *j = arg;
  if (cancel_deregister(&j->cancel, &j->leaving)) find_group(j);
}

static void stop_waiting(void *arg) {
  struct joining *j = arg;
  alarm_clear(&j->again);
  finish(j, cancel_reason(&j->cancel));
}

static void wait_for_news(struct joining *j) {
  enum { BETWEEN_MS = 50 };
  collective_group_unref(j->group);
  j->group = NULL;
  j->rank = -1;
  if (cancel_register(&j->cancel, &j->leaving, stop_waiting, j))
    alarm_set(&j->again, deadline_after_ms(BETWEEN_MS), ask_again, j);
  else finish(j, cancel_reason(&j->cancel));
}

static void have_group(struct joining *j, shoal_status s, const void *data, size_t size) {
  if (!s) s = collective_group_read(data, size, j->member->group_size, &j->group);
  if (!s) {
    j->rank = collective_group_rank(j->group, j->device);
    if (j->rank < 0) s = INTERNAL("the leader %s tells of a group without %s", j->leader, j->device);
    else if (j->member->rank >= 0 && j->rank != j->member->rank)
      s = INTERNAL("the leader %s gives %s, which claims rank %d, rank %d", j->leader, j->device, j->member->rank,
                   j->rank);
  }
  if (s) {
    finish(j, s);
    return;
  }
  if (is_out_of_date(j)) {
    wait_for_news(j);
    return;
  }
  know_group(j->site, j->group);
  find_instance(j);
}

static void group_told_here(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct joining *j = (struct joining *)((char *)w - offsetof(struct joining, wait));
  cancel_deregister(&j->cancel, &j->leaving);
  have_group(j, s, s ? NULL : group->bytes.at, s ? 0 : group->bytes.n);
}

static void group_told_there(void *arg, shoal_status s, struct rpc_body *body) {
  struct joining *j = arg;
  const void *data = NULL;
  size_t size = 0;
  cancellable_end(&j->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  have_group(j, s, data, size);
}

static void describe_device(const struct joining *j, struct text *out) {
  const struct worker *w = j->site->session->worker;
  for (int i = 0; i < w->n_devices; i++)
    if (w->devices[i] == j->member->device) worker_device_attributes(w, i, j->device, out);
  struct shared_place memory = collective_memory_place(w->collectives.memory);
  collective_put_claim(out, j->member->rank, &memory);
}

static void ask_about_group(struct joining *j, struct leader *l) {
  struct text attributes = {0};
  describe_device(j, &attributes);
  leader_ask_group(l,
                   &(struct group_question){.asker = asker_here(j),
                                            .key = j->member->group_key,
                                            .size = j->member->group_size,
                                            .device_type = j->member->device->type->name,
                                            .device = j->device,
                                            .attributes = wire_from(attributes.at, attributes.n)},
                   &j->wait);
  text_release(&attributes);
}

static void find_group(struct joining *j) {
  struct collective_member *m = j->member;
  struct collective_group *known = known_group(j->site, m->group_key);
  int rank = known && known->size == m->group_size ? collective_group_rank(known, j->device) : -1;
  if (rank >= 0 && (m->rank < 0 || m->rank == rank)) {
    j->group = known;
    j->rank = rank;
    find_instance(j);
    return;
  }
  collective_group_unref(known);
  if (!strcmp(j->leader, j->site->session->task)) {
    j->wait.done = group_told_here;
    ask_here(j, ask_about_group);
    return;
  }
  struct text t = {0};
  put_CompleteGroupRequest_group_key(&t, m->group_key);
  put_CompleteGroupRequest_group_size(&t, m->group_size);
  put_CompleteGroupRequest_device_type(&t, m->device->type->name);
  put_CompleteGroupRequest_collective_type(&t, m->kind);
  size_t at = begin_CompleteGroupRequest_device_attributes(&t);
  describe_device(j, &t);
  wire_end(&t, at);
  ask_there(j, "/tensorflow.WorkerService/CompleteGroup", &t, group_told_there);
}

static void site_join(struct collective_site *site, struct step *step, struct collective_member *m) {
  struct session_collectives *c = (struct session_collectives *)site;
  struct worker_session *s = c->session;
  struct joining *j = mem_zalloc(1, sizeof *j);
  atomic_init(&j->refs, 1);
  j->member = m;
  j->site = c;
  j->step = step;
  j->rank = -1;
  cancel_init(&j->cancel);
  cancel_init(&j->watching);
  collective_wire_init(&j->wire);
  j->device = mem_printf("%s/device:%s:%d", s->task, m->device->type->name, m->device->ordinal);
  j->leader = collectives_leader(&s->worker->collectives, s->spec.jobs.n ? &s->spec : s->worker->spec);
  double given_s = MIN(m->timeout_s, 1e9);
  j->deadline = clock_ns() + (given_s > 0 ? (int64_t)(given_s * 1e9) : s->worker->collectives.timeout_ns);
  if (m->cancel && !cancel_register(m->cancel, &j->hook, on_cancel, j)) {
    m->cancel = NULL;
    finish(j, status_mark_derived(STATUS(SHOAL_CANCELLED, "it was cancelled")));
    return;
  }
  alarm_set(&j->alarm, j->deadline + LEADER_FIRST_MS * 1000000ll, on_time_out, j);
  j->end = end_of_now(&s->worker->collectives);
  atomic_fetch_add(&j->refs, 1); /* it may be ended before it has begun */
  if (j->end && !cancel_register(&j->end->cancel, &j->end_hook, on_end, j)) on_end(j);
  if (cancel_started(&j->cancel)) finish(j, cancel_reason(&j->cancel));
  else find_group(j);
  unref(j);
}

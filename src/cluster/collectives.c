/* A member of a collective goes through here once: who is in the group, what is the instance, then its program. Nobody
 * waits on a thread: each function goes on with the next when its answer comes, or ends the whole with finish(). */
#include "cluster/collectives.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/moment.h"
#include "cluster/collective_others.h"
#include "cluster/worker.h"
#include "collective/choose.h"
#include "collective/parcels.h"
#include "collective/refusals.h"
#include "collective/staged.h"
#include "ops/control/communicator.h"
#include "proto/shoal.wire.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"
#include "tensor/tensor_proto.h"

void collectives_init(struct collectives *c, const char *leader, int64_t timeout_ms, bool shares) {
  c->leader = leader ? mem_strdup(leader) : NULL;
  c->timeout_ns = (timeout_ms > 0 ? timeout_ms : COLLECTIVE_TIMEOUT_MS) * 1000000;
  c->tables = leader_new();
  c->memory = collective_memory_new(shares);
  failed_steps_init(&c->failed);
  met_sessions_init(&c->sessions);
  pthread_mutex_init(&c->lock, NULL);
}

void collectives_coordinate(struct collectives *c) {
  c->coordinated = true;
  c->end = collectives_end_new();
}

unsigned collectives_call_flags(const struct collectives *c) {
  return c->coordinated ? PEER_UNWATCHED | RPC_WAIT_FOR_READY : 0;
}

void collectives_break(struct collectives *c, shoal_status why) {
  struct collectives_end *next = collectives_end_new();
  pthread_mutex_lock(&c->lock);
  struct collectives_end *now = c->end;
  c->end = next;
  pthread_mutex_unlock(&c->lock);
  cancel_start(&now->cancel, why);
  collectives_end_unref(now);
}

void collectives_release(struct collectives *c) {
  collectives_end_unref(c->end);
  void *sequence;
  for (size_t i = 0; strmap_next(&c->sequences, &i, NULL, &sequence);) free(sequence);
  strmap_release(&c->sequences);
  free(c->refusal.leader);
  pthread_mutex_destroy(&c->lock);
  met_sessions_release(&c->sessions);
  failed_steps_release(&c->failed);
  leader_free(c->tables);
  collective_memory_free(c->memory);
  free(c->leader);
}

shoal_status collectives_check_leader(const char *option, const char *given, const struct cluster_spec *spec,
                                      char **out) {
  struct device_spec d;
  shoal_status unread = device_spec_parse(given, &d);
  bool read = !unread;
  shoal_status_free(unread);
  if (!read || !d.has_job || !d.has_task || d.has_type || !cluster_spec_find(spec, d.job, d.task))
    return INVALID("%s=%s: expected a task of the cluster, like /job:worker/replica:0/task:0", option, given);
  *out = mem_printf("/job:%s/replica:0/task:%d", d.job, d.task);
  return NULL;
}

char *collectives_leader(const struct collectives *c, const struct cluster_spec *spec) {
  if (c->leader) return mem_strdup(c->leader);
  const char *job = spec->jobs.at[0].name;
  static const char *const first[] = {"worker", "chief"};
  for (size_t k = 0; k < COUNT_OF(first); k++)
    if (cluster_spec_find(spec, first[k], 0)) job = first[k];
  return mem_printf("/job:%s/replica:0/task:0", job);
}

/* Two have both heard of it by then. */
static void note_refusal(struct collectives *c, const char *leader, int size, shoal_status s) {
  enum shoal_code code = shoal_status_code(s);
  if (size < 3 || (code != SHOAL_INVALID_ARGUMENT && code != SHOAL_INTERNAL)) return;
  pthread_mutex_lock(&c->lock);
  free(c->refusal.leader);
  c->refusal = (struct told_refusal){mem_strdup(leader), clock_ns()};
  pthread_mutex_unlock(&c->lock);
}

char *collectives_refused_by(struct collectives *c) {
  pthread_mutex_lock(&c->lock);
  bool lately = c->refusal.leader && clock_ns() - c->refusal.when < REFUSAL_KEPT_NS;
  char *leader = lately ? mem_strdup(c->refusal.leader) : NULL;
  pthread_mutex_unlock(&c->lock);
  return leader;
}

/* ---- one member ---- */

struct joining {
  struct collective_guard guard; /* first */
  struct collective_member *member;
  struct session_collectives *site;
  struct step *step;
  char *device;            /* in the session's terms */
  char *leader;            /* task */
  struct leader_wait wait; /* at our own tables */
  struct cancel_hook leaving;
  struct moment again;     /* when to ask the leader once more */
  struct cancellable call; /* at another task's */
  struct peer *restarted;  /* the session's: a task that is asked whether it was */
  struct others_check others;
  unsigned failures; /* of steps, before the others were looked at */
  struct collective_group *group;
  int rank, source;
  struct collective_wire wire;
  struct schedule program;
  struct schedule_request request;
  struct collective_run run;
  struct tensor out; /* made already where it could not go by way of memory */
};

static void release(struct collective_guard *g) {
  struct joining *j = (struct joining *)g;
  collective_group_unref(j->group);
  free(j->device);
  free(j->leader);
  free(j);
}

/* Do its messages belong to no step in particular? */
static bool is_of_all(const struct joining *j) {
  return j->site->session->worker->collectives.coordinated && j->group && !j->group->all_ours;
}

void collectives_tell(struct session_collectives *c, struct collective_member *m, shoal_status s, struct tensor *out) {
  if (s) {
    collectives_forget(c, m->group_key);
    tensor_release(out);
    status_prefix(s, "Collective op %s (group %d, instance %d): ", m->name, m->group_key, m->instance_key);
  }
  m->done(m, s, s ? NULL : out);
}

/* s is consumed. */
static void finish(struct joining *j, shoal_status s) {
  guard_end(&j->guard, &j->site->session->worker->collectives);
  if (s && cancel_started(&j->guard.cancel)) { /* what follows from it says less */
    shoal_status_free(s);
    s = cancel_reason(&j->guard.cancel);
  }
  if (s && is_of_all(j))
    steps_cleanup(j->site->session->worker->steps, STEP_OF_ALL); /* what was sent stays in no step */
  collectives_tell(j->site, j->member, s, &j->out);
  guard_unref(&j->guard);
}

shoal_status collectives_late(const char *who) {
  return STATUS(SHOAL_DEADLINE_EXCEEDED, "Collective has timed out waiting for other workers.%s%s",
                who ? " It waited for " : "", who ? who : "");
}

static shoal_status late(struct collective_guard *g) {
  const struct joining *j = (struct joining *)g;
  int rank = atomic_load(&j->wire.waits_for);
  return collectives_late(!j->group || j->rank < 0 ? j->leader : rank >= 0 ? j->group->places[rank].device : NULL);
}

/* ---- running ---- */

static void run_over(struct collective_run *r, shoal_status s) {
  struct joining *j = (struct joining *)((char *)r - offsetof(struct joining, run));
  schedule_release(&j->program);
  rendezvous_unref(j->wire.rendezvous);
  finish(j, s);
}

struct schedule_request collectives_request(const struct collective_member *m, const struct collective_group *g,
                                            int rank, int source, int64_t n) {
  static const enum collective_operation operations[] = {[COLLECTIVE_REDUCE] = OPERATION_ALL_REDUCE,
                                                         [COLLECTIVE_BROADCAST] = OPERATION_BROADCAST,
                                                         [COLLECTIVE_GATHER] = OPERATION_ALL_GATHER,
                                                         [COLLECTIVE_ALL_TO_ALL] = OPERATION_ALL_TO_ALL,
                                                         [COLLECTIVE_REDUCE_SCATTER] = OPERATION_REDUCE_SCATTER};
  struct schedule_request r = {.operation = operations[m->kind],
                               .rank = rank,
                               .size = g->size,
                               .root = m->kind == COLLECTIVE_BROADCAST ? source : 0,
                               .n = n};
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
    collective_choose(r, element, &collective_usual_cost);
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

/* It goes on in a party, where its step may end at once: nothing of this may be left there. */
static void go_to(struct party *p, struct joining *j) {
  guard_end(&j->guard, &j->site->session->worker->collectives);
  party_add(p, j->member, j->source, tensor_valid(&j->out) ? &j->out : NULL);
  guard_unref(&j->guard);
}

/* Whether messages of its own may be what it asks for: where there are none they may. */
static shoal_status check_wire(const struct joining *j) {
  const struct collective_group *g = j->group;
  if (!j->member->wire || g->size == 1 || !j->member->in->n) return NULL;
  if (!g->all_ours) return INVALID("messages of bfloat16: a member of the group is none of Shoal's tasks");
  return INVALID("messages of bfloat16 are for groups of at most %d, and this has %d", PARCELLED_RANKS, g->size);
}

/* Devices whose memory is their own: those of one task meet there, those of one host share it, others go by way of the
 * host's. */
static void leave_to_devices(struct joining *j) {
  struct collective_member *m = j->member;
  struct step *step = j->step;
  bool here = collective_group_is_one_task(j->group);
  struct party *p = here ? NULL : party_find(j->site, step, m, j->group, j->rank, false);
  if (p) {
    go_to(p, j);
    return;
  }
  if (here) m->rank = j->rank;
  guard_end(&j->guard, &j->site->session->worker->collectives);
  guard_unref(&j->guard);
  if (here) collective_meet_here(step, m);
  else collective_stage(step, m, collective_meet);
}

static void begin(struct joining *j) {
  struct collective_member *m = j->member;
  bool made = tensor_valid(&j->out);
  if (cancel_started(&j->guard.cancel)) {
    finish(j, cancel_reason(&j->guard.cancel));
    return;
  }
  if (m->on_device) {
    leave_to_devices(j);
    return;
  }
  struct party *p = party_find(j->site, j->step, m, j->group, j->rank, made);
  if (p) {
    go_to(p, j);
    return;
  }
  shoal_status s = check_wire(j);
  if (!s && !made) s = m->make(m, &j->out);
  if (s) {
    finish(j, s);
    return;
  }
  j->wire.step = j->step;
  j->wire.session = j->site->session;
  j->wire.step_id = is_of_all(j) ? STEP_OF_ALL : j->step->id;
  j->wire.rendezvous = steps_get(j->site->session->worker->steps, j->wire.step_id);
  j->wire.group = j->group;
  j->wire.rank = j->rank;
  j->wire.cancel = &j->guard.cancel;
  j->request = collectives_request(m, j->group, j->rank, j->source, j->out.n);
  j->run = (struct collective_run){.request = &j->request,
                                   .id = {j->wire.step_id, m->group_key, m->instance_key, m->frame, m->iter},
                                   .arithmetic = m->arithmetic,
                                   .members = j->group->size,
                                   .element = dtype_size(m->dtype),
                                   .in = m->in ? m->in->data : NULL,
                                   .out = j->out.data,
                                   .in_owner = m->in ? m->in->buffer : NULL,
                                   .out_owner = j->out.buffer};
  begin_by_messages(j);
}

/* ---- asking ---- */

/* At our own tables. */
static void leave(void *arg) {
  struct joining *j = arg;
  if (leader_leave(j->site->session->worker->collectives.tables, &j->wait, NULL))
    finish(j, cancel_reason(&j->guard.cancel));
}

static void ask_here(struct joining *j, void (*ask)(struct joining *j, struct leader *l)) {
  j->wait.roll = NULL;
  if (!cancel_register(&j->guard.cancel, &j->leaving, leave, j)) {
    finish(j, cancel_reason(&j->guard.cancel));
    return;
  }
  struct worker *w = j->site->session->worker;
  guard_ref(&j->guard);
  ask(j, w->collectives.tables);
  collective_missed_watch(w);
  /* Whoever cancelled between the two found nobody waiting. */
  if (cancel_started(&j->guard.cancel)) leave(j);
  guard_unref(&j->guard);
}

static const char step_ended[] = "the step has ended";

/* At another task's. The request is taken over. */
static void ask_there(struct joining *j, const char *method, struct text *request, rpc_done done) {
  const struct step_names *names = &j->site->session->names;
  struct peer *leader = names->find(names->arg, j->leader, strlen(j->leader));
  if (!leader) {
    text_release(request);
    finish(j, INVALID("the leader of collectives, %s, is not in this task's cluster", j->leader));
    return;
  }
  char *what = mem_printf("group %d, instance %d of collectives", j->member->group_key, j->member->instance_key);
  struct task_question q = {.peer = leader,
                            .method = method,
                            .request = message_from_text(request),
                            .deadline = j->guard.deadline + LEADER_FIRST_MS * 1000000ll,
                            .flags = collectives_call_flags(&j->site->session->worker->collectives),
                            .step = j->step->id,
                            .what = what,
                            .done = done,
                            .arg = j};
  if (!cancellable_start(&j->call, &j->guard.cancel, step_ended, &q)) finish(j, cancel_reason(&j->guard.cancel));
  free(what);
}

static void told_there(struct joining *j, shoal_status s) {
  cancellable_end(&j->call);
  if (s) note_refusal(&j->site->session->worker->collectives, j->leader, j->member->group_size, s);
}

/* Instances. */

static void have_instance(struct joining *j, int source) {
  struct collective_member *m = j->member;
  if (m->kind == COLLECTIVE_BROADCAST && (source < 0 || source >= j->group->size)) {
    finish(j, INTERNAL("the leader %s tells of no source", j->leader));
    return;
  }
  if (!collectives_plays_its_part(m, j->rank, source)) {
    finish(j, INTERNAL("the leader %s tells of rank %d as the source, and this is rank %d, which %s", j->leader, source,
                       j->rank, m->is_source ? "sends" : "receives"));
    return;
  }
  j->source = source;
  collectives_know_instance(j->site, m, source);
  begin(j);
}

/* Which step an error is of, where it does not say so itself. */
static shoal_status in_step(const struct joining *j, shoal_status s) {
  bool said = s && strstr(shoal_status_message(s), " in step ");
  return said ? s : status_suffix(s, " in step %" PRId64, j->step->id);
}

static void instance_told_here(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct joining *j = (struct joining *)((char *)w - offsetof(struct joining, wait));
  cancel_deregister(&j->guard.cancel, &j->leaving);
  if (s) finish(j, in_step(j, s));
  else have_instance(j, source);
}

static void instance_told_there(void *arg, shoal_status s, struct rpc_body *body) {
  struct joining *j = arg;
  const void *data;
  size_t size;
  int source = 0; /* where a message says nothing, it says 0 */
  told_there(j, s);
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

/* The step that all members are to be in; 0: none. */
static int64_t common_step(const struct joining *j) { return is_of_all(j) ? STEP_OF_ALL : j->step->id; }

static int arithmetic_of(const struct collective_member *m) {
  bool sums = m->kind == COLLECTIVE_REDUCE || m->kind == COLLECTIVE_REDUCE_SCATTER;
  return sums ? collective_arithmetic_code(m->arithmetic) : 0;
}

/* In a group with TensorFlow's tasks nothing comes of it. */
static int hint_of(const struct joining *j) {
  return j->group->all_ours ? collective_hint(j->member->algorithm, j->member->wire == SHOAL_BFLOAT16) : 0;
}

static void ask_about_instance(struct joining *j, struct leader *l) {
  const struct collective_member *m = j->member;
  leader_ask_instance(l,
                      &(struct instance_question){.asker = asker_here(j),
                                                  .group_key = m->group_key,
                                                  .group_size = m->group_size,
                                                  .key = m->instance_key,
                                                  .kind = m->kind,
                                                  .dtype = m->dtype,
                                                  .arithmetic = arithmetic_of(m),
                                                  .shape = m->shape,
                                                  .is_source = m->is_source,
                                                  .step = common_step(j),
                                                  .hint = hint_of(j),
                                                  .holds = m->holds,
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
  if (collectives_known_instance(j->site, m, j->rank, &j->source)) {
    begin(j);
    return;
  }
  if (!strcmp(j->leader, j->site->session->task)) {
    j->wait.done = instance_told_here;
    ask_here(j, ask_about_instance);
    return;
  }
  struct text t = {0}, shape = {0};
  const char *how = collective_arithmetic_name(arithmetic_of(m));
  char *name = mem_printf("%s: %s%s%s%s", m->name, kinds[m->kind], *how ? "(" : "", how, *how ? ")" : "");
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
  put_CompleteInstanceExtra_step_id(&t, common_step(j));
  put_CompleteInstanceExtra_hint(&t, hint_of(j));
  for (int i = 0; i < m->holds.n; i++) put_CompleteInstanceExtra_holds_back(&t, m->holds.keys[i]);
  free(name);
  text_release(&shape);
  ask_there(j, "/tensorflow.WorkerService/CompleteInstance", &t, instance_told_there);
}

/* Groups. */

static void find_group(struct joining *j);

/* Has a member been restarted since it told the leader of itself? It will again, when it comes to its part of the step.
 * What was restarted is known from the session's beginning, and whatever was asked since: NULL, or the task that this
 * is said of. */
static struct peer *find_restarted(const struct joining *j) {
  const struct step_names *names = &j->site->session->names;
  for (int i = 0; i < j->group->size; i++) {
    const struct collective_place *p = &j->group->places[i];
    size_t n = device_task_length(p->device);
    if (n == strlen(names->task) && !memcmp(p->device, names->task, n)) continue;
    struct peer *peer = names->find(names->arg, p->device, n);
    uint64_t now = peer ? peer_device_incarnation(peer, p->device) : 0;
    if (now && now != p->incarnation) return peer;
  }
  return NULL;
}

static void ask_again(void *arg, bool cancelled) {
  struct joining *j = arg;
  if (cancelled) finish(j, cancel_reason(&j->guard.cancel));
  else find_group(j);
}

static void status_came(void *arg, shoal_status s, struct rpc_body *body) {
  enum { BETWEEN_MS = 50 };
  struct joining *j = arg;
  const void *data;
  size_t size;
  cancellable_end(&j->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (!s) peer_learn(j->restarted, data, size);
  shoal_status absent = peer_absence(j->restarted, s);
  shoal_status_free(s);
  if (absent) finish(j, absent);
  else moment_wait(&j->again, &j->guard.cancel, BETWEEN_MS, ask_again, j);
}

/* From the leader; and from the task, which may have been restarted once more since it was last asked. */
static void wait_for_news(struct joining *j, struct peer *restarted) {
  enum { PATIENCE_MS = 5000 };
  collective_group_unref(j->group);
  j->group = NULL;
  j->rank = -1;
  j->restarted = restarted;
  struct text none = {0};
  struct task_question q = {.peer = restarted,
                            .method = "/tensorflow.WorkerService/GetStatus",
                            .request = message_from_text(&none),
                            .deadline = deadline_after_ms(PATIENCE_MS),
                            .step = j->step->id,
                            .what = "whether it was restarted",
                            .done = status_came,
                            .arg = j};
  if (!cancellable_start(&j->call, &j->guard.cancel, step_ended, &q)) finish(j, cancel_reason(&j->guard.cancel));
}

static void others_looked_at(struct others_check *o, shoal_status s, bool is_new) {
  struct joining *j = (struct joining *)((char *)o - offsetof(struct joining, others));
  if (s) {
    finish(j, s);
  } else if (is_new) {
    collectives_forget(j->site, j->group->key);
    wait_for_news(j, o->peer);
  } else {
    atomic_store(&j->group->looked, j->failures);
    find_instance(j);
  }
}

/* TensorFlow's among the members may not be what they were. */
static void look_at_others(struct joining *j) {
  struct collectives *c = &j->site->session->worker->collectives;
  if (j->group->all_ours || c->coordinated ||
      (j->failures = failed_steps_count(&c->failed)) == atomic_load(&j->group->looked)) {
    find_instance(j);
    return;
  }
  j->others = (struct others_check){.names = &j->site->session->names,
                                    .group = j->group,
                                    .device_type = j->member->device->type->name,
                                    .cancel = &j->guard.cancel,
                                    .done = others_looked_at};
  others_check_start(&j->others);
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
  struct peer *restarted = find_restarted(j);
  if (restarted) {
    wait_for_news(j, restarted);
    return;
  }
  collectives_know_group(j->site, j->group);
  look_at_others(j);
}

static void group_told_here(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct joining *j = (struct joining *)((char *)w - offsetof(struct joining, wait));
  cancel_deregister(&j->guard.cancel, &j->leaving);
  s = in_step(j, s);
  have_group(j, s, s ? NULL : group->bytes.at, s ? 0 : group->bytes.n);
}

static void group_told_there(void *arg, shoal_status s, struct rpc_body *body) {
  struct joining *j = arg;
  const void *data = NULL;
  size_t size = 0;
  told_there(j, s);
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
  struct collective_group *known = collectives_known_group(j->site, m);
  int rank = known ? collectives_rank(j->site, known, m) : -1;
  if (rank >= 0) {
    j->group = known;
    j->rank = rank;
    look_at_others(j);
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

static struct joining *join(struct session_collectives *c, struct step *step, struct collective_member *m) {
  struct worker_session *s = c->session;
  struct joining *j = mem_zalloc(1, sizeof *j);
  guard_init(&j->guard, &s->worker->collectives, m->timeout_s, late, release);
  j->member = m;
  j->site = c;
  j->step = step;
  j->rank = -1;
  collective_wire_init(&j->wire);
  j->device = collectives_device(c, m);
  j->leader = s->leader ? mem_strdup(s->leader)
                        : collectives_leader(&s->worker->collectives, s->spec.jobs.n ? &s->spec : s->worker->spec);
  return j;
}

static void start(struct joining *j) {
  guard_ref(&j->guard); /* it may be ended before it has begun */
  if (guard_begin(&j->guard, &j->site->session->worker->collectives, j->member->cancel, j->step->id)) find_group(j);
  else finish(j, cancel_reason(&j->guard.cancel));
  guard_unref(&j->guard);
}

void collectives_by_messages(struct session_collectives *c, struct step *step, struct collective_member *m,
                             struct tensor *out) {
  struct joining *j = join(c, step, m);
  tensor_move(&j->out, out);
  start(j);
}

static void site_join(struct collective_site *site, struct step *step, struct collective_member *m) {
  struct session_collectives *c = (struct session_collectives *)site;
  if (!party_take_known(c, step, m)) start(join(c, step, m));
}

void session_collectives_init(struct session_collectives *c, struct worker_session *s) {
  c->site.join = site_join;
  under_way_init(&c->site.under_way);
  c->session = s;
  pthread_mutex_init(&c->lock, NULL);
}

/* What other tasks ask of the leader of collectives; see collectives.h.
 *
 * Requests wait in the leader's tables until all members have asked. TensorFlow's tasks give no deadline, so the
 * server's own bounds the wait; the answer then says who came. A caller that goes takes its question back. Neither do
 * they say which step they ask for: but their masters, which have the numbers of their steps from here, ask over the
 * same connection. So who waits is told when a step of those graphs has failed elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/list.h"
#include "base/ref.h"
#include "base/vec.h"
#include "cluster/collectives.h"
#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "cluster/worker_service.h"
#include "proto/step_stats.wire.h"
#include "proto/shoal.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"
#include "tensor/tensor_proto.h"

struct question {
  struct ref refs;              /* the answer's, and those of whoever is about to end the wait */
  struct question *prev, *next; /* collectives->lock */
  struct collectives *collectives;
  struct leader_wait wait;
  struct rpc_call *call;
  struct leader *tables;
  uint64_t asker; /* the call's connection */
  struct alarm alarm;
  atomic_bool ended; /* somebody has wanted it to */
  const char *what;
  int key; /* group or instance */
};

static void question_unref(struct question *q) {
  if (ref_drop(&q->refs)) free(q);
}

static void reply(struct question *q, shoal_status s, struct rpc_message *m) {
  alarm_clear(&q->alarm);
  pthread_mutex_lock(&q->collectives->lock);
  LIST_REMOVE(q->collectives->questions, q);
  pthread_mutex_unlock(&q->collectives->lock);
  if (s) {
    rpc_message_free(m);
    rpc_call_fail(q->call, s);
  } else {
    rpc_call_reply(q->call, m);
  }
  question_unref(q);
}

/* From the alarm or the call's end, of which one may come while the other is at work, or after the answer. Thousands
 * may go at once, and nobody reads what they are told: who else came is written for the others alone. */
static void give_up(struct question *q, bool is_gone) {
  struct text who = {0};
  ref_take(&q->refs);
  atomic_store(&q->ended, true);
  if (leader_leave(q->tables, &q->wait, is_gone ? NULL : &who))
    reply(q,
          is_gone ? STATUS(SHOAL_CANCELLED, "The caller has gone")
                  : STATUS(SHOAL_DEADLINE_EXCEEDED,
                           "%s %d of collectives: Collective has timed out waiting for other workers; %s", q->what,
                           q->key, text_cstr(&who)),
          NULL);
  text_release(&who);
  question_unref(q);
}

static void on_time_out(void *arg) { give_up(arg, false); }
static void on_gone(void *arg) { give_up(arg, true); }

static struct question *question_new(struct worker *w, struct rpc_call *c, const char *what, int key,
                                     void (*told)(struct leader_wait *w, shoal_status s, struct leader_answer *group,
                                                  int source)) {
  struct question *q = mem_zalloc(1, sizeof *q);
  ref_init(&q->refs, 2); /* the second: the asker's, until it has asked */
  q->call = c;
  q->asker = rpc_call_connection(c);
  q->collectives = &w->collectives;
  q->tables = w->collectives.tables;
  q->what = what;
  q->key = key;
  q->wait.done = told;
  pthread_mutex_lock(&w->collectives.lock);
  LIST_ADD(w->collectives.questions, q);
  pthread_mutex_unlock(&w->collectives.lock);
  return q;
}

/* ---- TensorFlow's masters ---- */

/* The number was given to a master that does not hear of failures. */
static void remember_master(struct collectives *c, uint64_t connection, int64_t key) {
  unsigned i = 0;
  pthread_mutex_lock(&c->lock);
  while (i < MIN(c->n_masters, MASTERS_REMEMBERED) &&
         (c->masters[i].connection != connection || c->masters[i].key != key))
    i++;
  if (i == MIN(c->n_masters, MASTERS_REMEMBERED)) i = c->n_masters++ % MASTERS_REMEMBERED;
  c->masters[i] = (struct counting_master){connection, key, clock_ns()};
  pthread_mutex_unlock(&c->lock);
}

/* Has the step that the asker is in failed before it came here? It counts by itself, so which that is can only be
 * guessed: a step of its graphs has, not long ago. */
static shoal_status failed_before(struct collectives *c, uint64_t connection) {
  char *why = NULL;
  pthread_mutex_lock(&c->lock);
  for (unsigned i = 0; i < MIN(c->n_masters, MASTERS_REMEMBERED) && !why; i++)
    if (c->masters[i].connection == connection)
      why = failed_steps_since(&c->failed, c->masters[i].key, c->masters[i].since);
  pthread_mutex_unlock(&c->lock);
  shoal_status s = why ? STATUS(SHOAL_ABORTED, "%s", why) : NULL;
  free(why);
  return s;
}

/* With the lock held. */
static bool counts_by(const struct collectives *c, uint64_t connection, int64_t key) {
  for (unsigned i = 0; i < MIN(c->n_masters, MASTERS_REMEMBERED); i++)
    if (c->masters[i].connection == connection && c->masters[i].key == key) return true;
  return false;
}

void collective_questions_fail(struct collectives *c, int64_t key, shoal_status why) {
  VEC(struct question *) found = {0};
  pthread_mutex_lock(&c->lock);
  for (struct question *q = c->questions; q; q = q->next)
    if (counts_by(c, q->asker, key)) {
      ref_take(&q->refs);
      vec_push(&found, q);
    }
  pthread_mutex_unlock(&c->lock);
  for (size_t i = 0; i < found.n; i++) {
    struct question *q = found.at[i];
    if (leader_leave(q->tables, &q->wait, NULL))
      reply(q, STATUS(SHOAL_ABORTED, "%s %d of collectives: %s", q->what, q->key, shoal_status_message(why)), NULL);
    question_unref(q);
  }
  vec_release(&found);
}

/* ---- questions that wait ---- */

/* Before asking. */
static void watch(struct question *q, const struct worker *w) {
  int64_t end = clock_ns() + w->collectives.timeout_ns, deadline = rpc_call_deadline(q->call);
  if (deadline != DEADLINE_NEVER) end = MIN(end, deadline - LEADER_FIRST_MS * 1000000ll);
  alarm_set(&q->alarm, end, on_time_out, q);
  rpc_call_on_cancel(q->call, on_gone, q);
}

/* After it. Whoever wanted it to end before found nobody waiting. */
static void asked(struct worker *w, struct question *q) {
  collective_missed_watch(w);
  shoal_status failed = failed_before(q->collectives, q->asker);
  if (atomic_load(&q->ended)) on_time_out(q);
  else if (failed && leader_leave(q->tables, &q->wait, NULL)) reply(q, status_copy(failed), NULL);
  shoal_status_free(failed);
  question_unref(q);
}

static shoal_status check_end(enum wire_step step, const char *message) {
  return step == WIRE_BROKEN ? INVALID("%s does not parse as a protocol buffer", message) : NULL;
}

/* With certificates a task is a member by its own devices alone. What is no device's name the tables refuse. */
static shoal_status check_caller(struct rpc_call *c, const char *device) {
  struct device_spec d;
  shoal_status s = device_spec_parse(device, &d);
  bool of_a_task = !s && d.has_job && d.has_task;
  shoal_status_free(s);
  return of_a_task ? identity_check_task(c, device) : NULL;
}

/* ---- CompleteGroup ---- */

static void drop_answer(void *answer) { leader_answer_unref(answer); }

static void group_told(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct question *q = (struct question *)((char *)w - offsetof(struct question, wait));
  struct message m;
  message_init(&m);
  if (!s) message_reference(&m, group->bytes.at, group->bytes.n, drop_answer, leader_answer_ref(group));
  reply(q, s, message_finish(&m));
}

void worker_service_complete_group(struct worker *w, struct rpc_call *c) {
  struct wire m;
  struct group_question g = {.asker = rpc_call_connection(c), .attributes = wire_from("", 0)};
  char *type = mem_strdup(""), *device = mem_strdup("");
  enum wire_step step = WIRE_END;
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == CompleteGroupRequest_group_key) g.key = (int)f.value;
    if (f.tag == CompleteGroupRequest_group_size) g.size = (int)MIN((int64_t)f.value, INT32_MAX);
    if (f.tag == CompleteGroupRequest_device_type) free(type), type = mem_strndup((const char *)f.data, f.size);
    if (f.tag == CompleteGroupRequest_device_attributes) g.attributes = wire_inside(&f);
  }
  struct wire name;
  if (find_DeviceAttributes_name(g.attributes, &name)) {
    free(device);
    device = mem_strndup((const char *)name.at, wire_left(&name));
  }
  if (!s) s = check_end(step, "CompleteGroupRequest");
  if (!s) s = check_caller(c, device);
  if (!s) s = failed_before(&w->collectives, g.asker);
  if (s) {
    rpc_call_fail(c, s);
  } else {
    g.device_type = type;
    g.device = device;
    struct question *q = question_new(w, c, "group", g.key, group_told);
    watch(q, w);
    leader_ask_group(q->tables, &g, &q->wait);
    asked(w, q);
  }
  free(type);
  free(device);
}

/* ---- CompleteInstance ---- */

static void instance_told(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct question *q = (struct question *)((char *)w - offsetof(struct question, wait));
  struct text t = {0};
  if (!s) {
    put_CompleteInstanceResponse_instance_key(&t, q->key);
    put_CompleteInstanceResponse_source_rank(&t, source);
  }
  reply(q, s, message_from_text(&t));
}

static bool is_kind(int64_t n) {
  return (n >= COLLECTIVE_REDUCE && n <= COLLECTIVE_GATHER) || n == COLLECTIVE_ALL_TO_ALL ||
         n == COLLECTIVE_REDUCE_SCATTER;
}

void worker_service_complete_instance(struct worker *w, struct rpc_call *c) {
  struct wire m;
  struct instance_question i = {.asker = rpc_call_connection(c)};
  char *device = mem_strdup("");
  VEC(int64_t) holds = {0};
  int64_t kind = 0;
  enum wire_step step = WIRE_END;
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == CompleteInstanceRequest_name) i.arithmetic = collective_arithmetic_read((const char *)f.data, f.size);
    if (f.tag == CompleteInstanceRequest_type) kind = (int64_t)f.value;
    if (f.tag == CompleteInstanceRequest_data_type) i.dtype = (int)f.value;
    if (f.tag == CompleteInstanceRequest_shape) s = shape_proto_decode(f.data, f.size, &i.shape);
    if (f.tag == CompleteInstanceRequest_group_key) i.group_key = (int)f.value;
    if (f.tag == CompleteInstanceRequest_group_size) i.group_size = (int)MIN((int64_t)f.value, INT32_MAX);
    if (f.tag == CompleteInstanceRequest_instance_key) i.key = (int)f.value;
    if (f.tag == CompleteInstanceRequest_device) free(device), device = mem_strndup((const char *)f.data, f.size);
    if (f.tag == CompleteInstanceRequest_is_source) i.is_source = f.value != 0;
    if (f.tag == CompleteInstanceExtra_step_id) i.step = (int64_t)f.value;
    if (f.tag == CompleteInstanceExtra_hint) i.hint = (int)f.value;
    if (f.tag == CompleteInstanceExtra_holds_back && holds.n < MOST_HELD) vec_push(&holds, (int64_t)f.value);
  }
  if (!s) s = check_end(step, "CompleteInstanceRequest");
  if (!s) s = check_caller(c, device);
  if (!s && !is_kind(kind))
    s = UNIMPLEMENTED("Collective instance %d: operations of the type %d between tasks", i.key, (int)kind);
  if (!s) s = failed_before(&w->collectives, i.asker);
  if (s) {
    rpc_call_fail(c, s);
  } else {
    i.kind = (enum collective_kind)kind;
    i.device = device;
    i.holds = (struct order_held){holds.at, (int)holds.n};
    struct question *q = question_new(w, c, "instance", i.key, instance_told);
    watch(q, w);
    leader_ask_instance(q->tables, &i, &q->wait);
    asked(w, q);
  }
  free(device);
  vec_release(&holds);
}

/* ---- GetStepSequence ---- */

/* Numbers of keys for which an answer is made; TensorFlow's tasks ask for one at a time. */
enum { MOST_KEYS = 1024 };
/* Longer than any task has been up. */
static const int64_t MOST_MS = INT64_C(1) << 40;

static shoal_status answer_sequences(struct worker *w, uint64_t connection, struct wire m, struct text *t) {
  int n = 0;
  int64_t last = 0, up_ms = -1; /* TensorFlow's masters ask once: what has failed before is none of theirs */
  struct met_step met = {0};
  struct wire asks = m;
  for (struct wire_field f; wire_next(&asks, &f) == WIRE_FIELD;) {
    if (f.tag == GetStepSequenceAsk_last) last = (int64_t)f.value;
    if (f.tag == GetStepSequenceAsk_up_ms) up_ms = (int64_t)f.value;
    if (f.tag == GetStepSequenceAsk_met_key) met.key = (int64_t)f.value;
    if (f.tag == GetStepSequenceAsk_met_id) met.id = (int64_t)f.value;
  }
  /* What has failed before is past for the asker. */
  int64_t began = MAX(clock_ns() - MIN(MAX(up_ms, 0), MOST_MS) * 1000000, collective_met(&w->collectives, met));
  for (struct wire_field f; wire_next(&m, &f) == WIRE_FIELD;) {
    if (f.number != wire_tag_number(GetStepSequenceRequest_graph_key)) continue;
    struct wire packed = f.type == WIRE_BYTES ? wire_inside(&f) : wire_from("", 0);
    uint64_t key = f.value;
    while (f.type == WIRE_VARINT || wire_get_varint(&packed, &key)) {
      if (n++ == MOST_KEYS) return INVALID("GetStepSequence asks for more than %d numbers", MOST_KEYS);
      size_t at = begin_GetStepSequenceResponse_step_sequence(t);
      put_StepSequence_graph_key(t, (int64_t)key);
      int64_t next = collective_sequence(&w->collectives, (int64_t)key, began);
      put_StepSequence_next_step_id(t, next);
      if (up_ms < 0) remember_master(&w->collectives, connection, (int64_t)key);
      wire_end(t, at);
      char *why = next - 1 == last ? NULL : failed_steps_why(&w->collectives.failed, next - 1, began);
      if (why) put_GetStepSequenceExtra_failed(t, why);
      free(why);
      if (f.type == WIRE_VARINT) break;
    }
  }
  return NULL;
}

/* A task that does not lead counts its own steps in the same table, by what its leader said. */
static shoal_status check_leads(struct worker *w) {
  if (atomic_load(&w->collectives.named)) return NULL;
  char *leader = collectives_leader(&w->collectives, w->spec);
  bool own = !strcmp(leader, w->task);
  free(leader);
  return own ? NULL : INTERNAL("GetStepSequenceAsync called at non-group-leader");
}

void worker_service_step_sequence(struct worker *w, struct rpc_call *c) {
  struct wire m;
  struct text t = {0};
  shoal_status s = request_read(c, &m);
  if (!s) s = check_leads(w);
  if (!s) s = answer_sequences(w, rpc_call_connection(c), m, &t);
  if (!s) put_GetStepSequenceExtra_hears(&t, true);
  if (!s) put_GetStepSequenceExtra_incarnation(&t, w->devices[0]->incarnation);
  rpc_call_answer(c, s, &t);
}

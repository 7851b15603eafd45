/* See coordination_agent.h. One call follows another, each from the answer of the one before or from an alarm; nobody
 * waits on a thread. What is answered to a registration that was given up meanwhile (`turn`) is not listened to. */
#include "cluster/coordination_agent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/inside.h"
#include "base/log.h"
#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "cluster/worker.h"
#include "proto/any.wire.h"
#include "proto/coordination.wire.h"
#include "rpc/message.h"

#define SERVICE "/tensorflow.CoordinationService/"
enum { REGISTER_MS = 10000, AGAIN_MS = 1000, BEAT_MS = HEARTBEAT_TIMEOUT_MS / 5, REPORT_MS = 2000, LEAVE_MS = 2000 };

struct coordination_agent {
  struct worker *worker;
  struct peers *peers;
  const char *task; /* the worker's */
  char *leader;
  struct coordination *service; /* NULL: another task leads */
  struct peer *peer;            /* the leader; NULL: we do */
  struct peer *asked;           /* the leader, also where we do: for the program's own calls */
  uint64_t incarnation;         /* of this task */
  struct text devices;          /* a DeviceInfo */
  struct alarm alarm;           /* set by one call's end at a time; not while one is under way */
  pthread_mutex_t lock;
  struct inside calls;       /* under way */
  bool complained;           /* of the calls' own */
  bool stopping, registered; /* lock, as is what follows */
  bool whole;                /* all tasks are there, as far as we were told */
  bool told;                 /* of another task's error: the leader counts us again once we wait for the others anew */
  int64_t turn;              /* of registering */
  uint64_t leader_incarnation;
  shoal_status news;         /* the last error that we were told of, until the program asks for it */
  struct peer_call *waiting; /* for the other tasks */
};

/* ---- names ---- */

static void put_task(struct text *t, const char *task) {
  struct device_spec d;
  shoal_status s = device_spec_parse(task, &d);
  MUST(!s); /* names of our own cluster */
  put_CoordinatedTask_job_name(t, d.job);
  put_CoordinatedTask_task_id(t, d.task);
}

/* Who asks, in the field of a request that was begun at `at`. */
static void put_self(const struct coordination_agent *a, struct text *t, size_t at) {
  put_task(t, a->task);
  wire_end(t, at);
}

static void describe_devices(const struct worker *w, struct text *t) {
  for (int i = 0; i < w->n_devices; i++) {
    size_t any = begin_DeviceInfo_device(t);
    put_Any_type_url(t, "type.googleapis.com/tensorflow.DeviceAttributes");
    struct text device = {0};
    worker_device_attributes(w, i, w->devices[i]->name, &device);
    put_Any_value_n(t, device.at, device.n);
    text_release(&device);
    wire_end(t, any);
  }
}

/* ---- calls ---- */

struct agent_call {
  struct coordination_agent *agent;
  int64_t turn;
  void (*then)(struct coordination_agent *a, shoal_status s, struct wire answer);
};

static void answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct agent_call *call = arg;
  struct coordination_agent *a = call->agent;
  const void *data = NULL;
  size_t size = 0;
  if (!s) s = rpc_body_flat(body, &data, &size);
  pthread_mutex_lock(&a->lock);
  bool listened = call->turn == a->turn && !a->stopping;
  pthread_mutex_unlock(&a->lock);
  if (listened) call->then(a, s, wire_from(data, size));
  else shoal_status_free(s);
  free(call);
  inside_leave(&a->calls);
}

/* The request is taken over; then is called unless the agent stops or registers anew. handle: optional. */
static void start(struct coordination_agent *a, const char *method, struct text *request, int64_t timeout_ms,
                  void (*then)(struct coordination_agent *a, shoal_status s, struct wire answer),
                  struct peer_call **handle) {
  struct agent_call *call = mem_zalloc(1, sizeof *call);
  pthread_mutex_lock(&a->lock);
  bool goes = !a->stopping && inside_enter(&a->calls);
  *call = (struct agent_call){a, a->turn, then};
  pthread_mutex_unlock(&a->lock);
  if (!goes) {
    text_release(request);
    free(call);
    return;
  }
  peer_start(a->peer, method, message_from_text(request), deadline_after_ms(timeout_ms),
             PEER_UNWATCHED | RPC_WAIT_FOR_READY, 0, NULL, answered, call, handle);
}

static void at_alarm(struct coordination_agent *a, int64_t ms, void (*fn)(void *)) {
  pthread_mutex_lock(&a->lock);
  if (!a->stopping) alarm_set(&a->alarm, deadline_after_ms(ms), fn, a);
  pthread_mutex_unlock(&a->lock);
}

/* ---- registering and beating ---- */

static void do_register(void *agent);
static void beat(void *agent);

/* The leader is lost, or has lost us. A leader that tells us so, before all tasks were there, has told nobody else:
 * what waits for them goes on. */
static void lost(struct coordination_agent *a, shoal_status why) {
  pthread_mutex_lock(&a->lock);
  bool harmless = !a->whole && status_is_coordination(why);
  a->registered = a->whole = false;
  a->turn++;
  struct peer_call *waiting = a->waiting;
  a->waiting = NULL;
  pthread_mutex_unlock(&a->lock);
  if (waiting) {
    peer_cancel(waiting, STATUS(SHOAL_CANCELLED, "the leader is asked anew"));
    peer_call_unref(waiting);
  }
  status_prefix(why, "coordination by %s: ", a->leader);
  LOGW("%s", shoal_status_message(why));
  if (harmless) shoal_status_free(why);
  else collectives_break(&a->worker->collectives, why);
  at_alarm(a, AGAIN_MS, do_register);
}

/* A leader that says nothing, as one that stands still, is as lost as one that is gone. */
static shoal_status named_absent(const struct coordination_agent *a, shoal_status s) {
  shoal_status absent = status_is_coordination(s) ? NULL : peer_absence(a->peer, s);
  if (!absent) return s;
  shoal_status_free(s);
  return absent;
}

static void have_beaten(struct coordination_agent *a, shoal_status s, struct wire answer) {
  uint64_t incarnation = 0;
  for (struct wire_field f; !s && wire_next(&answer, &f) == WIRE_FIELD;)
    if (f.tag == HeartbeatResponse_leader_incarnation) incarnation = f.value;
  if (!s && incarnation != a->leader_incarnation) s = STATUS(SHOAL_ABORTED, "the leader has been restarted");
  pthread_mutex_lock(&a->lock);
  bool told = a->told;
  a->told = false;
  pthread_mutex_unlock(&a->lock);
  if (!s && told) {
    do_register(a);
    return;
  }
  if (s) lost(a, named_absent(a, s));
  else at_alarm(a, BEAT_MS, beat);
}

static void beat(void *agent) {
  struct coordination_agent *a = agent;
  struct text t = {0};
  put_HeartbeatRequest_incarnation(&t, a->incarnation);
  put_self(a, &t, begin_HeartbeatRequest_source_task(&t));
  start(a, SERVICE "Heartbeat", &t, HEARTBEAT_TIMEOUT_MS, have_beaten, NULL);
}

/* Beats go on meanwhile, and end the wait where the leader is lost. Where one of the tasks is, what waits for it ends;
 * we wait for all anew. A leader that leaves in order (CANCELLED) takes nothing from what is under way. */
static void are_gathered(struct coordination_agent *a, shoal_status s, struct wire answer) {
  pthread_mutex_lock(&a->lock);
  struct peer_call *waiting = a->waiting;
  a->waiting = NULL;
  a->whole = !s;
  a->told |= s != NULL;
  pthread_mutex_unlock(&a->lock);
  if (waiting) peer_call_unref(waiting);
  if (!s) {
    LOGI("coordination by %s: all tasks are there", a->leader);
    return;
  }
  status_prefix(s, "coordination by %s: waiting for all tasks: ", a->leader);
  LOGW("%s", shoal_status_message(s));
  if (shoal_status_code(s) == SHOAL_CANCELLED) shoal_status_free(s);
  else collectives_break(&a->worker->collectives, s);
}

static void gather(struct coordination_agent *a) {
  struct text t = {0};
  put_self(a, &t, begin_WaitForAllTasksRequest_source_task(&t));
  put_WaitForAllTasksRequest_device_info_n(&t, a->devices.at, a->devices.n);
  struct peer_call *handle = NULL;
  start(a, SERVICE "WaitForAllTasks", &t, GATHERING_TIMEOUT_MS, are_gathered, &handle);
  pthread_mutex_lock(&a->lock);
  struct peer_call *before = a->waiting;
  a->waiting = handle;
  bool stopping = a->stopping;
  pthread_mutex_unlock(&a->lock);
  if (before) peer_call_unref(before);
  if (stopping && handle) peer_cancel(handle, STATUS(SHOAL_CANCELLED, "the server is stopping"));
}

static void was_reset(struct coordination_agent *a, shoal_status s, struct wire answer) {
  shoal_status_free(s);
  at_alarm(a, AGAIN_MS, do_register);
}

/* A leader of TensorFlow's wants to hear this of a task that it has given up, before it may register again. */
static void reset(struct coordination_agent *a) {
  struct text t = {0};
  put_self(a, &t, begin_ResetTaskRequest_source_task(&t));
  start(a, SERVICE "ResetTask", &t, REGISTER_MS, was_reset, NULL);
}

static void not_registered(struct coordination_agent *a, shoal_status s) {
  bool aborted = shoal_status_code(s) == SHOAL_ABORTED && status_is_coordination(s);
  if (!a->complained) LOGW("coordination by %s: not registered yet: %s", a->leader, shoal_status_message(s));
  a->complained = true;
  shoal_status_free(s);
  if (aborted) reset(a);
  else at_alarm(a, AGAIN_MS, do_register);
}

static void have_registered(struct coordination_agent *a, shoal_status s, struct wire answer) {
  if (s) {
    not_registered(a, s);
    return;
  }
  pthread_mutex_lock(&a->lock);
  a->registered = true;
  a->complained = false;
  for (struct wire_field f; wire_next(&answer, &f) == WIRE_FIELD;)
    if (f.tag == RegisterTaskResponse_leader_incarnation) a->leader_incarnation = f.value;
  pthread_mutex_unlock(&a->lock);
  at_alarm(a, BEAT_MS, beat);
  gather(a);
}

static void do_register(void *agent) {
  struct coordination_agent *a = agent;
  struct text t = {0};
  put_RegisterTaskRequest_incarnation(&t, a->incarnation);
  put_self(a, &t, begin_RegisterTaskRequest_source_task(&t));
  start(a, SERVICE "RegisterTask", &t, REGISTER_MS, have_registered, NULL);
}

/* ---- errors of other tasks ---- */

static void told_of(struct coordination_agent *a, const char *source, shoal_status why) {
  coordination_log(source, why);
  status_prefix(why, "Error reported from %s: ", source);
  pthread_mutex_lock(&a->lock);
  a->told = true;
  a->whole = false;
  shoal_status_free(a->news);
  a->news = status_copy(why);
  pthread_mutex_unlock(&a->lock);
  collectives_break(&a->worker->collectives, why);
}

void coordination_agent_told(struct coordination_agent *a, struct rpc_call *call) {
  struct wire m;
  int64_t code = 0;
  char *message = mem_strdup(""), *job = mem_strdup("");
  int id = 0;
  shoal_status s = identity_check_task(call, a->leader); /* nobody else has errors to tell */
  if (!s) s = request_read(call, &m);
  for (struct wire_field f; !s && wire_next(&m, &f) == WIRE_FIELD;) {
    struct wire payload = wire_from("", 0), source = payload;
    if (f.tag == ReportErrorToTaskRequest_error_code) code = (int64_t)f.value;
    if (f.tag == ReportErrorToTaskRequest_error_message)
      free(message), message = mem_strndup((const char *)f.data, MIN(f.size, (size_t)COORDINATION_NAME));
    if (f.tag == ReportErrorToTaskRequest_error_payload) payload = wire_inside(&f);
    if (!find_CoordinationServiceError_source_task(payload, &source)) continue;
    for (struct wire_field k; wire_next(&source, &k) == WIRE_FIELD;) {
      if (k.tag == CoordinatedTask_job_name)
        free(job), job = mem_strndup((const char *)k.data, MIN(k.size, (size_t)COORDINATION_NAME));
      if (k.tag == CoordinatedTask_task_id) id = (int)k.value;
    }
  }
  if (!s) {
    bool known = cluster_spec_find(a->worker->spec, job, id);
    char *source = known ? mem_printf("/job:%s/task:%d", job, id) : mem_strdup("a task that is not of this cluster");
    told_of(a, source, coordination_error_read(code, message));
    free(source);
  }
  free(message);
  free(job);
  rpc_call_fail(call, s);
}

/* As the leader. Our own program may end as soon as it knows, and with it whoever still had to be told: so the other
 * tasks are told first, and we when they have heard, or cannot hear. Who did not hear it is told when it beats. */

struct telling {
  struct coordination_agent *agent;
  struct join heard; /* by each task, or not; and whoever tells them */
  char *source;
  shoal_status error;
  bool by_source, to_self;
};

struct report_call {
  struct telling *telling;
  char *task;
};

static void all_told(void *arg, shoal_status s) {
  struct telling *t = arg;
  if (t->to_self) {
    leader_lose_task(t->agent->worker->collectives.tables, t->source, t->error);
    told_of(t->agent, t->source, status_copy(t->error));
  }
  shoal_status_free(t->error);
  free(t->source);
  free(t);
}

static void report_over(void *arg, shoal_status s, struct rpc_body *body) {
  struct report_call *call = arg;
  struct telling *t = call->telling;
  struct coordination_agent *a = t->agent;
  if (s) {
    LOGI("coordination: %s did not hear of an error: %s", call->task, shoal_status_message(s));
    coordination_unheard(a->service, call->task, status_copy(t->error));
  }
  shoal_status_free(s);
  free(call->task);
  free(call);
  join_part(&t->heard, NULL);
  inside_leave(&a->calls);
}

/* What waits for a task that has left in order would wait in vain. */
static void left(void *agent, const char *task) {
  struct coordination_agent *a = agent;
  shoal_status why =
      coordination_error(STATUS(SHOAL_UNAVAILABLE, "%s has left, and does not come to this collective", task));
  leader_task_left(a->worker->collectives.tables, task, why);
  shoal_status_free(why);
}

static struct rpc_message *report_message(const struct telling *of) {
  struct text t = {0}, message = {0};
  text_add_utf8(&message, shoal_status_message(of->error), strlen(shoal_status_message(of->error)));
  put_ReportErrorToTaskRequest_error_code(&t, shoal_status_code(of->error));
  put_ReportErrorToTaskRequest_error_message(&t, text_cstr(&message));
  text_release(&message);
  size_t payload = begin_ReportErrorToTaskRequest_error_payload(&t);
  if (of->by_source) put_CoordinationServiceError_is_reported_error(&t, true);
  size_t at = begin_CoordinationServiceError_source_task(&t);
  put_task(&t, of->source);
  wire_end(&t, at);
  wire_end(&t, payload);
  return message_from_text(&t);
}

static void tell_task(struct coordination_agent *a, const char *task, struct telling *t) {
  struct device_spec d;
  shoal_status s = device_spec_parse(task, &d);
  const char *address = s ? NULL : cluster_spec_find(a->worker->spec, d.job, d.task);
  shoal_status_free(s);
  pthread_mutex_lock(&a->lock);
  bool goes = address && !a->stopping && inside_enter(&a->calls);
  pthread_mutex_unlock(&a->lock);
  if (!goes) return;
  struct report_call *call = mem_zalloc(1, sizeof *call);
  *call = (struct report_call){t, mem_strdup(task)};
  join_enter(&t->heard);
  struct peer *peer = peers_get(a->peers, task, address, true);
  peer_start(peer, SERVICE "ReportErrorToTask", report_message(t), deadline_after_ms(REPORT_MS), PEER_UNWATCHED, 0,
             NULL, report_over, call, NULL);
  peer_unref(peer);
}

static void report(void *agent, const char *const *tasks, size_t n, const char *source, shoal_status error,
                   bool by_source) {
  struct coordination_agent *a = agent;
  struct telling *t = mem_zalloc(1, sizeof *t);
  *t = (struct telling){.agent = a, .source = mem_strdup(source), .error = status_copy(error), .by_source = by_source};
  join_init(&t->heard, 1, all_told, t);
  for (size_t i = 0; i < n; i++) t->to_self |= !strcmp(tasks[i], a->task);
  for (size_t i = 0; i < n; i++)
    if (strcmp(tasks[i], a->task)) tell_task(a, tasks[i], t);
  join_part(&t->heard, NULL);
}

/* ---- beginning and end ---- */

struct coordination_agent *coordination_agent_new(struct worker *w, struct peers *peers, const char *leader) {
  struct coordination_agent *a = mem_zalloc(1, sizeof *a);
  struct device_spec d;
  a->worker = w;
  a->peers = peers;
  a->task = w->task;
  a->leader = mem_strdup(leader);
  a->incarnation = w->devices[0]->incarnation;
  pthread_mutex_init(&a->lock, NULL);
  inside_init(&a->calls);
  describe_devices(w, &a->devices);
  if (!strcmp(leader, w->task)) {
    a->service = coordination_new(&(struct coordination_options){.spec = w->spec,
                                                                 .self = w->task,
                                                                 .incarnation = a->incarnation,
                                                                 .devices = a->devices.at,
                                                                 .devices_size = a->devices.n,
                                                                 .report = report,
                                                                 .left = left,
                                                                 .arg = a});
  }
  shoal_status s = device_spec_parse(leader, &d);
  MUST(!s);
  a->asked = peers_get(peers, leader, cluster_spec_find(w->spec, d.job, d.task), true);
  if (!a->service) a->peer = a->asked;
  return a;
}

void coordination_agent_start(struct coordination_agent *a) {
  if (a && a->peer) do_register(a);
}

static void say_goodbye(struct coordination_agent *a) {
  struct text t = {0};
  put_self(a, &t, begin_ShutdownTaskRequest_source_task(&t));
  shoal_status_free(peer_wait(a->peer, SERVICE "ShutdownTask", message_from_text(&t), deadline_after_ms(LEAVE_MS),
                              PEER_UNWATCHED, NULL, NULL));
}

void coordination_agent_stop(struct coordination_agent *a) {
  if (!a) return;
  if (a->service) coordination_stop(a->service);
  pthread_mutex_lock(&a->lock);
  bool again = a->stopping, registered = a->registered;
  a->stopping = true;
  struct peer_call *waiting = a->waiting;
  a->waiting = NULL;
  pthread_mutex_unlock(&a->lock);
  alarm_clear(&a->alarm);
  if (waiting) {
    peer_cancel(waiting, STATUS(SHOAL_CANCELLED, "the server is stopping"));
    peer_call_unref(waiting);
  }
  if (!again && registered) say_goodbye(a);
  if (a->peer && !again) peer_cancel_all(a->peer, STATUS(SHOAL_CANCELLED, "the server is stopping"));
  if (!again) inside_wait(&a->calls);
}

void coordination_agent_free(struct coordination_agent *a) {
  if (!a) return;
  coordination_agent_stop(a);
  coordination_free(a->service);
  peer_unref(a->asked);
  shoal_status_free(a->news);
  text_release(&a->devices);
  pthread_mutex_destroy(&a->lock);
  free(a->leader);
  free(a);
}

struct coordination *coordination_agent_service(struct coordination_agent *a) {
  return a ? a->service : NULL;
}

/* ---- what programs ask ---- */

const char *coordination_agent_leader(const struct coordination_agent *a) { return a->leader; }

shoal_status coordination_agent_ask(struct coordination_agent *a, const char *method, struct text *request,
                                    int64_t timeout_ms, struct rpc_body *body) {
  return peer_wait(a->asked, method, message_from_text(request), deadline_after_ms(timeout_ms),
                   PEER_UNWATCHED | RPC_WAIT_FOR_READY, NULL, body);
}

shoal_status coordination_agent_fail(struct coordination_agent *a, shoal_status error, int64_t timeout_ms) {
  if (a->service) return coordination_fail_self(a->service, error);
  pthread_mutex_lock(&a->lock);
  bool whole = a->whole;
  a->whole = false;
  pthread_mutex_unlock(&a->lock);
  struct text t = {0};
  put_ReportErrorToServiceRequest_error_code(&t, shoal_status_code(error));
  put_ReportErrorToServiceRequest_error_message(&t, shoal_status_message(error));
  put_self(a, &t, begin_ReportErrorToServiceRequest_error_origin(&t));
  shoal_status_free(error);
  if (whole) return coordination_agent_ask(a, SERVICE "ReportErrorToService", &t, timeout_ms, NULL);
  text_release(&t);
  return coordination_not_whole();
}

shoal_status coordination_agent_news(struct coordination_agent *a) {
  pthread_mutex_lock(&a->lock);
  shoal_status news = a->news;
  a->news = NULL;
  pthread_mutex_unlock(&a->lock);
  return news;
}

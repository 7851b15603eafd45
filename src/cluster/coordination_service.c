/* CoordinationService on the wire: requests taken apart, answers put together; see coordination.h.
 *
 * A call that waits is answered when what it waits for comes, and given up when its caller goes. With certificates a
 * task speaks for itself alone. */
#include "cluster/coordination_service.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "proto/coordination.wire.h"
#include "rpc/message.h"

/* ---- reading ---- */

struct request {
  char *task; /* source_task, in full */
  char *key;  /* or a barrier's */
  struct wire body;
  uint64_t incarnation;
  int64_t number; /* a time-out, an error's code */
  VEC(char *) tasks;
};

static void request_release(struct request *r) {
  for (size_t i = 0; i < r->tasks.n; i++) free(r->tasks.at[i]);
  vec_release(&r->tasks);
  free(r->task);
  free(r->key);
}

/* The caller frees it. */
static char *name_of(struct wire w) {
  int id = 0;
  char *job = mem_strdup("");
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == CoordinatedTask_job_name) free(job), job = mem_strndup((const char *)f.data, f.size);
    if (f.tag == CoordinatedTask_task_id) id = (int)f.value;
  }
  char *name = mem_printf("/job:%s/replica:0/task:%d", job, id);
  free(job);
  return name;
}

static void set(char **to, char *value) {
  free(*to);
  *to = value;
}

/* Where a message's fields are; 0: it has none such. */
struct request_tags {
  uint32_t task, tasks, key, body, incarnation, number;
};

static shoal_status read_request(const struct coordination *c, struct rpc_call *call, const struct request_tags *tags,
                                 struct request *r) {
  struct wire m;
  *r = (struct request){.task = name_of(wire_from("", 0)), .key = mem_strdup(""), .body = wire_from("", 0)};
  TRY(request_read(call, &m));
  enum wire_step step;
  struct wire_field f;
  while ((step = wire_next(&m, &f)) == WIRE_FIELD) {
    if (f.tag == tags->task) set(&r->task, name_of(wire_inside(&f)));
    else if (f.tag == tags->tasks) vec_push(&r->tasks, name_of(wire_inside(&f)));
    else if (f.tag == tags->key) set(&r->key, mem_strndup((const char *)f.data, f.size));
    else if (f.tag == tags->body) r->body = wire_inside(&f);
    else if (f.tag == tags->incarnation) r->incarnation = f.value;
    else if (f.tag == tags->number) r->number = (int64_t)f.value;
  }
  if (step == WIRE_BROKEN) return INVALID("a request to the coordination service does not parse as a protocol buffer");
  if (r->tasks.n > c->tasks.n)
    return INVALID("a request to the coordination service names %zu tasks, where there are %zu", r->tasks.n,
                   c->tasks.n);
  return tags->task ? identity_check_task(call, r->task) : NULL;
}

/* ---- answering ---- */

static void answer(struct rpc_call *call, shoal_status s, struct request *r, struct text *t) {
  request_release(r);
  if (s) {
    text_release(t);
    rpc_call_fail(call, s);
  } else {
    rpc_call_reply(call, message_from_text(t));
  }
}

static void drop(void *value) { coordination_value_unref(value); }

/* A KeyValueEntry as a field of the answer; the value is referred to, and taken over. */
static void add_entry(struct message *m, uint32_t tag, const char *key, struct coordination_value *v) {
  size_t of_key = strlen(key);
  message_header(m, tag, message_field_size(KeyValueEntry_key, of_key) + message_field_size(KeyValueEntry_value, v->n));
  message_bytes(m, KeyValueEntry_key, key, of_key);
  message_header(m, KeyValueEntry_value, v->n);
  message_reference(m, v->bytes, v->n, drop, v);
}

/* ---- calls that wait ---- */

struct coordination_call {
  struct coordination_wait wait;
  struct coordination *service;
  struct rpc_call *call;
  char *key; /* of a value */
};

static void asking_end(struct coordination_call *a, shoal_status s, struct rpc_message *m) {
  struct rpc_call *call = a->call;
  if (s) {
    rpc_message_free(m);
    rpc_call_fail(call, s);
  } else {
    rpc_call_reply(call, m);
  }
  free(a->key); /* not before: a caller that goes may be looked at until it is answered */
  free(a);
}

static void on_gone(void *arg) {
  struct coordination_call *a = arg;
  if (coordination_give_up(a->service, &a->wait)) asking_end(a, STATUS(SHOAL_CANCELLED, "The caller has gone"), NULL);
}

static struct coordination_call *ask(struct coordination *c, struct rpc_call *call,
                                     void (*done)(struct coordination_wait *w, shoal_status s,
                                                  struct coordination_value *v)) {
  struct coordination_call *a = mem_zalloc(1, sizeof *a);
  a->wait.done = done;
  a->service = c;
  a->call = call;
  rpc_call_on_cancel(call, on_gone, a);
  return a;
}

static struct coordination_call *asking_of(struct coordination_wait *w) {
  return (struct coordination_call *)((char *)w - offsetof(struct coordination_call, wait));
}

static void barrier_told(struct coordination_wait *w, shoal_status s, struct coordination_value *v) {
  asking_end(asking_of(w), s, NULL);
}

static void devices_told(struct coordination_wait *w, shoal_status s, struct coordination_value *v) {
  struct coordination_call *a = asking_of(w);
  struct message m;
  struct text head = {0};
  message_init(&m);
  put_WaitForAllTasksResponse_leader_incarnation(&head, a->service->incarnation);
  message_raw(&m, head.at, head.n);
  text_release(&head);
  if (v) {
    message_header(&m, WaitForAllTasksResponse_device_info, v->n);
    message_reference(&m, v->bytes, v->n, drop, v);
  }
  asking_end(a, s, message_finish(&m));
}

static void value_told(struct coordination_wait *w, shoal_status s, struct coordination_value *v) {
  struct coordination_call *a = asking_of(w);
  struct message m;
  message_init(&m);
  if (v) add_entry(&m, GetKeyValueResponse_kv, a->key, v);
  asking_end(a, s, message_finish(&m));
}

/* ---- tasks ---- */

/* A task says which incarnation of it is here, and hears which of the leader is. */
static void hear(struct coordination *c, struct rpc_call *call, const struct request_tags *tags,
                 shoal_status (*take)(struct coordination *c, const char *task, uint64_t incarnation),
                 void (*put)(struct text *t, uint64_t incarnation)) {
  struct request r;
  struct text t = {0};
  shoal_status s = read_request(c, call, tags, &r);
  if (!s) s = take(c, r.task, r.incarnation);
  if (!s) put(&t, c->incarnation);
  answer(call, s, &r, &t);
}

void coordination_service_register(struct coordination *c, struct limits *l, struct rpc_call *call) {
  hear(c, call,
       &(struct request_tags){.task = RegisterTaskRequest_source_task, .incarnation = RegisterTaskRequest_incarnation},
       coordination_register, put_RegisterTaskResponse_leader_incarnation);
}

void coordination_service_heartbeat(struct coordination *c, struct limits *l, struct rpc_call *call) {
  hear(c, call,
       &(struct request_tags){.task = HeartbeatRequest_source_task, .incarnation = HeartbeatRequest_incarnation},
       coordination_beat, put_HeartbeatResponse_leader_incarnation);
}

void coordination_service_wait_for_all(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.task = WaitForAllTasksRequest_source_task,
                                           .body = WaitForAllTasksRequest_device_info};
  struct request r;
  shoal_status s = read_request(c, call, &tags, &r);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct account *a = account_get(l, rpc_call_origin(call));
  coordination_gather(c, r.task, r.body, a, &ask(c, call, devices_told)->wait);
  account_unref(a);
  request_release(&r);
}

static void leave(struct coordination *c, struct rpc_call *call, const struct request_tags *tags) {
  struct request r;
  shoal_status s = read_request(c, call, tags, &r);
  if (!s) s = coordination_disconnect(c, r.task);
  answer(call, s, &r, &(struct text){0});
}

void coordination_service_shutdown(struct coordination *c, struct limits *l, struct rpc_call *call) {
  leave(c, call, &(struct request_tags){.task = ShutdownTaskRequest_source_task});
}

void coordination_service_reset(struct coordination *c, struct limits *l, struct rpc_call *call) {
  leave(c, call, &(struct request_tags){.task = ResetTaskRequest_source_task});
}

void coordination_service_report_error(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.task = ReportErrorToServiceRequest_error_origin,
                                           .number = ReportErrorToServiceRequest_error_code,
                                           .key = ReportErrorToServiceRequest_error_message};
  struct request r;
  shoal_status s = read_request(c, call, &tags, &r);
  if (!s) s = coordination_fail(c, r.task, coordination_error_read(r.number, r.key));
  answer(call, s, &r, &(struct text){0});
}

void coordination_service_task_state(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.tasks = GetTaskStateRequest_source_task};
  struct request r;
  struct text t = {0};
  shoal_status s = read_request(c, call, &tags, &r);
  for (size_t i = 0; !s && i < r.tasks.n; i++) {
    size_t at = begin_GetTaskStateResponse_task_state(&t);
    s = coordination_state(c, r.tasks.at[i], &t);
    wire_end(&t, at);
  }
  answer(call, s, &r, &t);
}

/* ---- values ---- */

void coordination_service_insert(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.body = InsertKeyValueRequest_kv};
  struct request r;
  struct wire value = wire_from("", 0);
  shoal_status s = read_request(c, call, &tags, &r);
  for (struct wire_field f; !s && wire_next(&r.body, &f) == WIRE_FIELD;) {
    if (f.tag == KeyValueEntry_key) set(&r.key, mem_strndup((const char *)f.data, f.size));
    if (f.tag == KeyValueEntry_value) value = wire_inside(&f);
  }
  struct account *a = account_get(l, rpc_call_origin(call));
  if (!s) s = coordination_insert(c, r.key, value.at, wire_left(&value), a);
  account_unref(a);
  answer(call, s, &r, &(struct text){0});
}

void coordination_service_get(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.key = GetKeyValueRequest_key};
  struct request r;
  shoal_status s = read_request(c, call, &tags, &r);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct coordination_call *a = ask(c, call, value_told);
  a->key = mem_strdup(r.key);
  coordination_get(c, r.key, &a->wait);
  request_release(&r);
}

void coordination_service_try_get(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.key = TryGetKeyValueRequest_key};
  struct request r;
  struct coordination_value *v = NULL;
  shoal_status s = read_request(c, call, &tags, &r);
  if (!s) s = coordination_try_get(c, r.key, &v);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct message m;
  message_init(&m);
  add_entry(&m, TryGetKeyValueResponse_kv, r.key, v);
  request_release(&r);
  rpc_call_reply(call, message_finish(&m));
}

void coordination_service_get_directory(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.key = GetKeyValueDirRequest_directory_key};
  struct request r;
  coordination_list found = {0};
  shoal_status s = read_request(c, call, &tags, &r);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  coordination_directory(c, r.key, &found);
  struct message m;
  message_init(&m);
  message_bytes(&m, GetKeyValueDirResponse_directory_key, r.key, strlen(r.key));
  for (size_t i = 0; i < found.n; i++) add_entry(&m, GetKeyValueDirResponse_kv, found.at[i]->key, found.at[i]);
  vec_release(&found);
  request_release(&r);
  rpc_call_reply(call, message_finish(&m));
}

void coordination_service_delete(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.key = DeleteKeyValueRequest_key};
  struct request r;
  shoal_status s = read_request(c, call, &tags, &r);
  if (!s) coordination_delete(c, r.key);
  answer(call, s, &r, &(struct text){0});
}

/* ---- barriers ---- */

void coordination_service_barrier(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.task = BarrierRequest_source_task,
                                           .tasks = BarrierRequest_tasks,
                                           .key = BarrierRequest_barrier_id,
                                           .number = BarrierRequest_barrier_timeout_in_ms};
  struct request r;
  shoal_status s = read_request(c, call, &tags, &r);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct account *a = account_get(l, rpc_call_origin(call));
  coordination_barrier(c, r.key, r.number, r.task, r.tasks.at, r.tasks.n, a, &ask(c, call, barrier_told)->wait);
  account_unref(a);
  request_release(&r);
}

void coordination_service_cancel_barrier(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct request_tags tags = {.task = CancelBarrierRequest_source_task,
                                           .key = CancelBarrierRequest_barrier_id};
  struct request r;
  shoal_status s = read_request(c, call, &tags, &r);
  if (!s) s = coordination_cancel_barrier(c, r.key, r.task);
  answer(call, s, &r, &(struct text){0});
}

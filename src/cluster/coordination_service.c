/* CoordinationService on the wire: requests (coordination_request.h) and their answers; see coordination.h.
 *
 * A call that waits is answered when what it waits for comes, and given up when its caller goes. What an answer, or a
 * call that waits, takes beside the service's own tables is held with the request (--max_held_bytes), and taken before
 * it is made. */
#include "cluster/coordination_service.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/coordination_request.h"
#include "proto/coordination.wire.h"
#include "rpc/message.h"

/* ---- answering ---- */

static void answer(struct rpc_call *call, shoal_status s, struct coordination_request *r, struct text *t) {
  coordination_request_release(r);
  rpc_call_answer(call, s, t);
}

static void drop(void *value) { coordination_value_unref(value); }

static shoal_status take_room(struct rpc_call *call, size_t n, const char *what) {
  if (rpc_call_unpacks(call, n)) return NULL;
  return coordination_error(STATUS(SHOAL_RESOURCE_EXHAUSTED,
                                   "there is no room for %s of %zu bytes beside the requests that are held "
                                   "(--max_held_bytes)",
                                   what, n));
}

static size_t entry_size(const char *key, const struct coordination_value *v) {
  return message_field_size(KeyValueEntry_key, strlen(key)) + message_field_size(KeyValueEntry_value, v->n);
}

/* A KeyValueEntry as a field of the answer; the value is taken over. A small one is copied: a piece of a message takes
 * more. */
static void add_entry(struct message *m, uint32_t tag, const char *key, struct coordination_value *v) {
  enum { REFERRED_FROM = 4096 };
  message_header(m, tag, entry_size(key, v));
  message_bytes(m, KeyValueEntry_key, key, strlen(key));
  if (v->n < REFERRED_FROM) {
    message_bytes(m, KeyValueEntry_value, v->bytes, v->n);
    drop(v);
  } else {
    message_header(m, KeyValueEntry_value, v->n);
    message_reference(m, v->bytes, v->n, drop, v);
  }
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
static void hear(struct coordination *c, struct rpc_call *call, const struct coordination_tags *tags,
                 shoal_status (*take)(struct coordination *c, const char *task, uint64_t incarnation),
                 void (*put)(struct text *t, uint64_t incarnation)) {
  struct coordination_request r;
  struct text t = {0};
  shoal_status s = coordination_request_read(c, call, tags, &r);
  if (!s) s = take(c, r.task, r.incarnation);
  if (!s) put(&t, c->incarnation);
  answer(call, s, &r, &t);
}

void coordination_service_register(struct coordination *c, struct limits *l, struct rpc_call *call) {
  hear(c, call,
       &(struct coordination_tags){.task = RegisterTaskRequest_source_task,
                                   .incarnation = RegisterTaskRequest_incarnation},
       coordination_register, put_RegisterTaskResponse_leader_incarnation);
}

void coordination_service_heartbeat(struct coordination *c, struct limits *l, struct rpc_call *call) {
  hear(c, call,
       &(struct coordination_tags){.task = HeartbeatRequest_source_task, .incarnation = HeartbeatRequest_incarnation},
       coordination_beat, put_HeartbeatResponse_leader_incarnation);
}

void coordination_service_wait_for_all(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.task = WaitForAllTasksRequest_source_task,
                                                .body = WaitForAllTasksRequest_device_info};
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) s = coordination_devices_check(r.body);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct account *a = account_get(l, rpc_call_origin(call));
  coordination_gather(c, r.task, r.body, a, &ask(c, call, devices_told)->wait);
  account_unref(a);
  coordination_request_release(&r);
}

static void leave(struct coordination *c, struct rpc_call *call, const struct coordination_tags *tags) {
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, tags, &r);
  if (!s) s = coordination_disconnect(c, r.task);
  answer(call, s, &r, &(struct text){0});
}

void coordination_service_shutdown(struct coordination *c, struct limits *l, struct rpc_call *call) {
  leave(c, call, &(struct coordination_tags){.task = ShutdownTaskRequest_source_task});
}

void coordination_service_reset(struct coordination *c, struct limits *l, struct rpc_call *call) {
  leave(c, call, &(struct coordination_tags){.task = ResetTaskRequest_source_task});
}

void coordination_service_report_error(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.task = ReportErrorToServiceRequest_error_origin,
                                                .number = ReportErrorToServiceRequest_error_code,
                                                .text = ReportErrorToServiceRequest_error_message};
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) s = coordination_fail(c, r.task, coordination_error_read(r.number, r.text));
  answer(call, s, &r, &(struct text){0});
}

void coordination_service_task_state(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.tasks = GetTaskStateRequest_source_task};
  struct coordination_request r;
  struct text t = {0};
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  for (size_t i = 0; !s && i < r.tasks.n; i++) {
    size_t at = begin_GetTaskStateResponse_task_state(&t), before = t.n;
    s = coordination_state(c, r.tasks.at[i], &t);
    wire_end(&t, at);
    if (!s) s = take_room(call, t.n - before, "a task's state");
  }
  answer(call, s, &r, &t);
}

/* ---- values ---- */

void coordination_service_insert(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.body = InsertKeyValueRequest_kv};
  struct coordination_request r;
  struct wire value = wire_from("", 0);
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  for (struct wire_field f; !s && wire_next(&r.body, &f) == WIRE_FIELD;) {
    if (f.tag == KeyValueEntry_key) s = coordination_name_read(&f, "a key", &r.key);
    if (f.tag == KeyValueEntry_value) value = wire_inside(&f);
  }
  struct account *a = account_get(l, rpc_call_origin(call));
  if (!s) s = coordination_insert(c, r.key, value.at, wire_left(&value), a);
  account_unref(a);
  answer(call, s, &r, &(struct text){0});
}

void coordination_service_get(struct coordination *c, struct limits *l, struct rpc_call *call) {
  enum { COPIES = 3 }; /* of the key, beside the request's own */
  static const struct coordination_tags tags = {.key = GetKeyValueRequest_key};
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) s = take_room(call, sizeof(struct coordination_call) + COPIES * strlen(r.key), "a call that waits");
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct coordination_call *a = ask(c, call, value_told);
  a->key = mem_strdup(r.key);
  coordination_get(c, r.key, &a->wait);
  coordination_request_release(&r);
}

void coordination_service_try_get(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.key = TryGetKeyValueRequest_key};
  struct coordination_request r;
  struct coordination_value *v = NULL;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) s = coordination_try_get(c, r.key, &v);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct message m;
  message_init(&m);
  add_entry(&m, TryGetKeyValueResponse_kv, r.key, v);
  coordination_request_release(&r);
  rpc_call_reply(call, message_finish(&m));
}

void coordination_service_get_directory(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.key = GetKeyValueDirRequest_directory_key};
  struct coordination_request r;
  coordination_list found = {0};
  size_t bytes = 0;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) coordination_directory(c, r.key, &found);
  for (size_t i = 0; i < found.n; i++) bytes += sizeof *found.at + entry_size(found.at[i]->key, found.at[i]);
  if (!s) s = take_room(call, bytes, "a directory");
  if (s) {
    for (size_t i = 0; i < found.n; i++) drop(found.at[i]);
    vec_release(&found);
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct message m;
  message_init(&m);
  message_bytes(&m, GetKeyValueDirResponse_directory_key, r.key, strlen(r.key));
  for (size_t i = 0; i < found.n; i++) add_entry(&m, GetKeyValueDirResponse_kv, found.at[i]->key, found.at[i]);
  vec_release(&found);
  coordination_request_release(&r);
  rpc_call_reply(call, message_finish(&m));
}

void coordination_service_delete(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.key = DeleteKeyValueRequest_key};
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) coordination_delete(c, r.key);
  answer(call, s, &r, &(struct text){0});
}

/* ---- barriers ---- */

void coordination_service_barrier(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.task = BarrierRequest_source_task,
                                                .tasks = BarrierRequest_tasks,
                                                .key = BarrierRequest_barrier_id,
                                                .number = BarrierRequest_barrier_timeout_in_ms};
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (s) {
    answer(call, s, &r, &(struct text){0});
    return;
  }
  struct account *a = account_get(l, rpc_call_origin(call));
  coordination_barrier(c, r.key, r.number, r.task, r.tasks.at, r.tasks.n, a, &ask(c, call, barrier_told)->wait);
  account_unref(a);
  coordination_request_release(&r);
}

void coordination_service_cancel_barrier(struct coordination *c, struct limits *l, struct rpc_call *call) {
  static const struct coordination_tags tags = {.task = CancelBarrierRequest_source_task,
                                                .key = CancelBarrierRequest_barrier_id};
  struct coordination_request r;
  shoal_status s = coordination_request_read(c, call, &tags, &r);
  if (!s) s = coordination_cancel_barrier(c, r.key, r.task);
  answer(call, s, &r, &(struct text){0});
}

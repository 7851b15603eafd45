/* The coordination service for programs in C: shoal/coordination.h. Each function is one call to the leader, which a
 * leader makes to itself like any other task: there is one way in, with one set of limits.
 *
 * A call that waits has its deadline here; a barrier's is the service's own, which knows who is missing, so the call
 * has some seconds more. Calls that are answered at once wait a minute for the leader: a program in C is there long
 * before a leader in Python. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/given.h"
#include "cluster/coordination_agent.h"
#include "cluster/server.h"
#include "proto/coordination.wire.h"
#include "rpc/message.h"
#include "shoal/coordination.h"

#define SERVICE "/tensorflow.CoordinationService/"
enum { CALL_MS = 60000, DEFAULT_WAIT_MS = 60000, BARRIER_GRACE_MS = 5000 };

static shoal_status check_part(const struct shoal_server *s) {
  if (s->coordination) return NULL;
  return STATUS(SHOAL_FAILED_PRECONDITION,
                "%s has no part in coordination: it was started without .coordination_service", s->task);
}

/* The request is taken over. body NULL: nobody reads the answer. about: what an error is of. */
static shoal_status ask(const struct shoal_server *s, const char *method, struct text *request, int64_t timeout_ms,
                        const char *about, struct rpc_body *body) {
  shoal_status none = check_part(s);
  if (none) {
    text_release(request);
    return none;
  }
  shoal_status e = coordination_agent_ask(s->coordination, method, request, timeout_ms, body);
  return status_prefix(e, "coordination by %s: '%s': ", coordination_agent_leader(s->coordination), about);
}

static shoal_status wait_of(const char *func, int64_t timeout_ms, int64_t *out) {
  *out = timeout_ms ? timeout_ms : DEFAULT_WAIT_MS;
  return timeout_ms < 0 ? INVALID("%s: timeout_ms is %lld", func, (long long)timeout_ms) : NULL;
}

/* ---- values ---- */

static shoal_bytes copied(const void *data, size_t n) {
  shoal_bytes b = {mem_alloc(n + 1), n};
  if (n) memcpy(b.data, data, n);
  ((char *)b.data)[n] = 0; /* for who knows that it is a text */
  return b;
}

static void read_entry(struct wire w, char **key, shoal_bytes *value) {
  *value = (shoal_bytes){0};
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (key && f.tag == KeyValueEntry_key && !*key) *key = mem_strndup((const char *)f.data, f.size);
    if (f.tag == KeyValueEntry_value && !value->data) *value = copied(f.data, f.size);
  }
  if (!value->data) *value = copied("", 0);
  if (key && !*key) *key = mem_strdup("");
}

/* Slashes alone say nothing: all such keys would be one. */
static shoal_status check_key(const char *func, const char *key) {
  return key[strspn(key, "/")] ? NULL : INVALID("%s: the key \"%s\" is empty", func, key);
}

shoal_status shoal_coordination_set(const shoal_server *s, const char *key, const void *data, size_t size) {
  GIVEN(s);
  GIVEN(key);
  if (size) GIVEN(data);
  TRY(check_key(__func__, key));
  struct text t = {0};
  size_t at = begin_InsertKeyValueRequest_kv(&t);
  put_KeyValueEntry_key(&t, key);
  put_KeyValueEntry_value_n(&t, data, size);
  wire_end(&t, at);
  return ask(s, SERVICE "InsertKeyValue", &t, CALL_MS, key, NULL);
}

/* The one entry of an answer. */
static shoal_status ask_value(const shoal_server *s, const char *method, struct text *request, int64_t timeout_ms,
                              const char *key, uint32_t tag, shoal_bytes *out) {
  struct rpc_body body = {0};
  const void *data;
  size_t size;
  TRY(ask(s, method, request, timeout_ms, key, &body));
  shoal_status e = rpc_body_flat(&body, &data, &size);
  struct wire entry = wire_from("", 0), w = e ? entry : wire_from(data, size);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == tag) entry = wire_inside(&f);
  if (!e) read_entry(entry, NULL, out);
  rpc_body_release(&body);
  return e;
}

shoal_status shoal_coordination_get(const shoal_server *s, const char *key, int64_t timeout_ms, shoal_bytes *out) {
  GIVEN(s);
  GIVEN(key);
  GIVEN(out);
  int64_t wait;
  TRY(check_key(__func__, key));
  TRY(wait_of(__func__, timeout_ms, &wait));
  struct text t = {0};
  put_GetKeyValueRequest_key(&t, key);
  return ask_value(s, SERVICE "GetKeyValue", &t, wait, key, GetKeyValueResponse_kv, out);
}

shoal_status shoal_coordination_try_get(const shoal_server *s, const char *key, shoal_bytes *out) {
  GIVEN(s);
  GIVEN(key);
  GIVEN(out);
  TRY(check_key(__func__, key));
  struct text t = {0};
  put_TryGetKeyValueRequest_key(&t, key);
  return ask_value(s, SERVICE "TryGetKeyValue", &t, CALL_MS, key, TryGetKeyValueResponse_kv, out);
}

static int count_entries(struct wire w) {
  int n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) n += f.tag == GetKeyValueDirResponse_kv;
  return n;
}

shoal_status shoal_coordination_list(const shoal_server *s, const char *directory, shoal_value_list *out) {
  GIVEN(s);
  GIVEN(directory);
  GIVEN(out);
  struct text t = {0};
  struct rpc_body body = {0};
  const void *data;
  size_t size;
  put_GetKeyValueDirRequest_directory_key(&t, directory);
  TRY(ask(s, SERVICE "GetKeyValueDir", &t, CALL_MS, directory, &body));
  shoal_status e = rpc_body_flat(&body, &data, &size);
  struct wire w = e ? wire_from("", 0) : wire_from(data, size);
  size_t n = (size_t)count_entries(w);
  shoal_value_list list = {0, mem_zalloc(n + 1, sizeof *list.keys), mem_zalloc(n + 1, sizeof *list.values)};
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != GetKeyValueDirResponse_kv) continue;
    read_entry(wire_inside(&f), &list.keys[list.n], &list.values[list.n]);
    list.n++;
  }
  rpc_body_release(&body);
  if (e) shoal_value_list_free(&list);
  else *out = list;
  return e;
}

void shoal_value_list_free(shoal_value_list *list) {
  for (int i = 0; list && i < list->n; i++) {
    free(list->keys[i]);
    shoal_bytes_free(&list->values[i]);
  }
  if (!list) return;
  free(list->keys);
  free(list->values);
  *list = (shoal_value_list){0};
}

shoal_status shoal_coordination_delete(const shoal_server *s, const char *key) {
  GIVEN(s);
  GIVEN(key);
  struct text t = {0};
  put_DeleteKeyValueRequest_key(&t, key);
  return ask(s, SERVICE "DeleteKeyValue", &t, CALL_MS, key, NULL);
}

/* ---- barriers ---- */

static shoal_status put_task(struct text *t, size_t at, const char *func, const char *task) {
  struct device_spec d;
  TRY(device_spec_parse(task, &d));
  if (!d.has_job || !d.has_task)
    return INVALID("%s: '%s' names no task: \"/job:worker/task:1\" is expected", func, task);
  put_CoordinatedTask_job_name(t, d.job);
  put_CoordinatedTask_task_id(t, d.task);
  wire_end(t, at);
  return NULL;
}

shoal_status shoal_coordination_barrier(const shoal_server *s, const char *name, int64_t timeout_ms,
                                        const char *const *tasks, int n) {
  GIVEN(s);
  GIVEN(name);
  GIVEN_NAMES(tasks, n);
  int64_t wait;
  TRY(wait_of(__func__, timeout_ms, &wait));
  struct text t = {0};
  put_BarrierRequest_barrier_id(&t, name);
  put_BarrierRequest_barrier_timeout_in_ms(&t, wait);
  shoal_status e = put_task(&t, begin_BarrierRequest_source_task(&t), __func__, s->task);
  for (int i = 0; i < n && !e; i++) e = put_task(&t, begin_BarrierRequest_tasks(&t), __func__, tasks[i]);
  if (!e) return ask(s, SERVICE "Barrier", &t, wait + BARRIER_GRACE_MS, name, NULL);
  text_release(&t);
  return e;
}

/* ---- errors ---- */

shoal_status shoal_coordination_report_error(const shoal_server *s, shoal_code code, const char *message) {
  GIVEN(s);
  GIVEN(message);
  if (code == SHOAL_OK) return INVALID("%s: the code of an error is not 0", __func__);
  TRY(check_part(s));
  shoal_status e = coordination_agent_fail(s->coordination, coordination_error_read(code, message), CALL_MS);
  return status_prefix(e, "coordination by %s: ", coordination_agent_leader(s->coordination));
}

shoal_status shoal_coordination_error(const shoal_server *s) {
  return s && s->coordination ? coordination_agent_news(s->coordination) : NULL;
}

/* MasterService's calls about sessions; those that run steps are in master_service_run.c. */
#include "cluster/master_service.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/request_parts.h"
#include "proto/master.wire.h"
#include "proto/shoal.wire.h"

static void set_string(char **to, const struct wire_field *f) {
  free(*to);
  *to = mem_strndup((const char *)f->data, f->size);
}

static void reply_status(void *call, shoal_status s) { rpc_call_fail(call, s); }

/* ---- CreateSession ---- */

/* The creation lives until the call is answered, and is not cancelled after that. */
static void client_gone(void *creation) { creation_cancel(creation, STATUS(SHOAL_CANCELLED, "the client has gone")); }

static void created(void *call, shoal_status s, const char *handle) {
  struct text t = {0};
  if (!s) put_CreateSessionResponse_session_handle(&t, handle);
  rpc_call_answer(call, s, &t);
}

void master_service_create_session(struct master *m, struct rpc_call *c) {
  struct wire w, config = wire_from("", 0), graph = config;
  char *target = mem_strdup("");
  enum wire_step step = WIRE_END;
  shoal_status s = request_read(c, &w);
  for (struct wire_field f; !s && (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == CreateSessionRequest_graph_def) graph = wire_inside(&f);
    if (f.tag == CreateSessionRequest_config) config = wire_inside(&f);
    if (f.tag == CreateSessionRequest_target) set_string(&target, &f);
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("CreateSessionRequest does not parse as a protocol buffer");
  if (s) {
    rpc_call_fail(c, s);
  } else {
    struct creation *k = creation_new(m, config, graph, target, rpc_call_origin(c), rpc_call_deadline(c), created, c);
    rpc_call_on_cancel(c, client_gone, k);
    creation_begin(k);
  }
  free(target);
}

/* ---- the others ---- */

struct extending {
  struct rpc_call *call;
  struct master_session *session;
  atomic_bool gone;
};

static void extender_gone(void *arg) { atomic_store(&((struct extending *)arg)->gone, true); }

static void extended(void *arg, shoal_status s, int64_t version) {
  struct extending *e = arg;
  struct text t = {0};
  if (!s) put_ExtendSessionResponse_new_graph_version(&t, version);
  master_session_unref(e->session);
  rpc_call_answer(e->call, s, &t);
  free(e); /* after the answer nobody cancels */
}

void master_service_extend_session(struct master *m, struct rpc_call *c) {
  struct wire w, graph = wire_from("", 0);
  char *handle = mem_strdup("");
  int64_t expected = 0;
  enum wire_step step = WIRE_END;
  shoal_status s = request_read(c, &w);
  for (struct wire_field f; !s && (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == ExtendSessionRequest_session_handle) set_string(&handle, &f);
    if (f.tag == ExtendSessionRequest_graph_def) graph = wire_inside(&f);
    if (f.tag == ExtendSessionRequest_current_graph_version) expected = (int64_t)f.value;
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("ExtendSessionRequest does not parse as a protocol buffer");
  struct master_session *session = NULL;
  if (!s) s = master_find_session(m, handle, &session);
  free(handle);
  if (s) {
    rpc_call_fail(c, s);
    return;
  }
  struct extending *e = mem_zalloc(1, sizeof *e);
  e->call = c;
  e->session = session;
  rpc_call_on_cancel(c, extender_gone, e);
  master_extend(session, graph, expected, &e->gone, extended, e);
}

static shoal_status read_handle(struct rpc_call *c, char **handle) {
  struct wire w;
  TRY(request_read(c, &w));
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == CloseSessionRequest_session_handle) set_string(handle, &f);
  return NULL;
}

void master_service_close_session(struct master *m, struct rpc_call *c) {
  char *handle = mem_strdup(""), *why = NULL;
  struct wire w;
  shoal_status s = request_read(c, &w);
  for (struct wire_field f; !s && wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == CloseSessionRequest_session_handle) set_string(&handle, &f);
    if (f.tag == CloseSessionExtra_gives_up) set_string(&why, &f);
  }
  if (!s && why) master_give_up_session(m, handle, why);
  if (s) rpc_call_fail(c, s);
  else master_close_session(m, handle, reply_status, c);
  free(handle);
  free(why);
}

void master_service_list_devices(struct master *m, struct rpc_call *c) {
  char *handle = mem_strdup("");
  struct master_session *session = NULL;
  struct text t = {0};
  shoal_status s = read_handle(c, &handle);
  if (!s && *handle) {
    s = master_find_session(m, handle, &session);
    if (s) {
      shoal_status_free(s);
      s = INVALID("Session %s is not found. Possibly, this master has restarted.", handle);
    }
  }
  if (session) {
    for (size_t i = 0; i < session->devices.n; i++)
      put_ListDevicesResponse_local_device_n(&t, session->devices.at[i].attributes->at,
                                             session->devices.at[i].attributes->n);
  } else if (!s) {
    for (size_t i = 0; i < m->own.devices.n; i++)
      put_ListDevicesResponse_local_device_n(&t, m->own.devices.at[i].attributes.at, m->own.devices.at[i].attributes.n);
  }
  master_session_unref(session);
  free(handle);
  rpc_call_answer(c, s, &t);
}

void master_service_reset(struct master *m, struct rpc_call *c) {
  struct wire w;
  VEC(char *) containers = {0};
  VEC(char *) filters = {0};
  shoal_status s = request_read(c, &w);
  for (struct wire_field f; !s && wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == ResetRequest_container) vec_push(&containers, mem_strndup((const char *)f.data, f.size));
    if (f.tag == ResetRequest_device_filters) vec_push(&filters, mem_strndup((const char *)f.data, f.size));
  }
  if (s) rpc_call_fail(c, s);
  else master_reset(m, containers.at, (int)containers.n, filters.at, (int)filters.n, reply_status, c);
  for (size_t i = 0; i < containers.n; i++) free(containers.at[i]);
  for (size_t i = 0; i < filters.n; i++) free(filters.at[i]);
  vec_release(&containers);
  vec_release(&filters);
}

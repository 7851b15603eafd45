/* MasterService's calls about sessions; those that run steps are in master_service_run.c. */
#include "cluster/master_service.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/message.h"

static shoal_status request(struct rpc_call *c, struct wire *w) {
  const void *data;
  size_t size;
  TRY(rpc_call_request(c, &data, &size));
  *w = wire_from(data, size);
  return NULL;
}

static void set_string(char **to, const struct wire_field *f) {
  free(*to);
  *to = mem_strndup((const char *)f->data, f->size);
}

static void answer(struct rpc_call *c, shoal_status s, struct text *t) {
  if (s) {
    text_release(t);
    rpc_call_fail(c, s);
  } else {
    rpc_call_reply(c, message_from_text(t));
  }
}

/* ---- CreateSession ---- */

/* Waits for other tasks, so it has a thread of its own; the client's going away ends it. */
struct creating {
  struct master *master;
  struct rpc_call *call;
  struct cancel cancel;
};

static void creating_cancelled(void *arg) { cancel_start(&((struct creating *)arg)->cancel, NULL); }

static void *create(void *arg) {
  struct creating *k = arg;
  struct wire m, config = wire_from("", 0), graph = config;
  char *target = mem_strdup(""), handle[17] = "";
  enum wire_step step = WIRE_END;
  shoal_status s = request(k->call, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.type != WIRE_BYTES) continue;
    if (f.number == 1) graph = wire_inside(&f);
    if (f.number == 2) config = wire_inside(&f);
    if (f.number == 3) set_string(&target, &f);
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("CreateSessionRequest does not parse as a protocol buffer");
  if (!s) s = master_create_session(k->master, config, graph, target, rpc_call_deadline(k->call), &k->cancel, handle);
  struct text t = {0};
  if (!s) wire_put_str(&t, 1, handle);
  free(target);
  if (!s && cancel_started(&k->cancel)) { /* nobody will ever close it */
    shoal_status_free(master_close_session(k->master, handle));
  }
  answer(k->call, s, &t);
  cancel_release(&k->cancel);
  free(k);
  return NULL;
}

void master_service_create_session(struct master *m, struct rpc_call *c) {
  struct creating *k = mem_zalloc(1, sizeof *k);
  k->master = m;
  k->call = c;
  cancel_init(&k->cancel);
  pthread_t t;
  pthread_attr_t attr;
  rpc_call_on_cancel(c, creating_cancelled, k);
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&t, &attr, create, k)) create(k);
  pthread_attr_destroy(&attr);
}

/* ---- the others ---- */

void master_service_extend_session(struct master *m, struct rpc_call *c) {
  struct wire w, graph = wire_from("", 0);
  char *handle = mem_strdup("");
  int64_t expected = 0, version = 0;
  enum wire_step step = WIRE_END;
  shoal_status s = request(c, &w);
  for (struct wire_field f; !s && (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.number == 1 && f.type == WIRE_BYTES) set_string(&handle, &f);
    if (f.number == 2 && f.type == WIRE_BYTES) graph = wire_inside(&f);
    if (f.number == 3 && f.type == WIRE_VARINT) expected = (int64_t)f.value;
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("ExtendSessionRequest does not parse as a protocol buffer");
  struct master_session *session = NULL;
  if (!s) s = master_find_session(m, handle, &session);
  if (!s) s = master_extend(session, graph, expected, &version);
  master_session_unref(session);
  free(handle);
  struct text t = {0};
  if (!s) wire_put_uint(&t, 4, (uint64_t)version);
  answer(c, s, &t);
}

static shoal_status read_handle(struct rpc_call *c, char **handle) {
  struct wire w;
  TRY(request(c, &w));
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.number == 1 && f.type == WIRE_BYTES) set_string(handle, &f);
  return NULL;
}

void master_service_close_session(struct master *m, struct rpc_call *c) {
  char *handle = mem_strdup("");
  shoal_status s = read_handle(c, &handle);
  if (!s) s = master_close_session(m, handle);
  free(handle);
  rpc_call_fail(c, s);
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
    for (size_t i = 0; i < session->devices.n; i++) wire_put_text(&t, 1, session->devices.at[i].attributes);
  } else if (!s) {
    for (int i = 0; i < m->worker->n_devices; i++) {
      size_t at = wire_begin(&t, 1);
      worker_device_attributes(m->worker, i, m->worker->devices[i]->name, &t);
      wire_end(&t, at);
    }
  }
  master_session_unref(session);
  free(handle);
  answer(c, s, &t);
}

void master_service_reset(struct master *m, struct rpc_call *c) {
  struct wire w;
  VEC(char *) containers = {0};
  VEC(char *) filters = {0};
  shoal_status s = request(c, &w);
  for (struct wire_field f; !s && wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.type != WIRE_BYTES) continue;
    if (f.number == 1) vec_push(&containers, mem_strndup((const char *)f.data, f.size));
    if (f.number == 2) vec_push(&filters, mem_strndup((const char *)f.data, f.size));
  }
  if (!s) s = master_reset(m, containers.at, (int)containers.n, filters.at, (int)filters.n);
  for (size_t i = 0; i < containers.n; i++) free(containers.at[i]);
  for (size_t i = 0; i < filters.n; i++) free(filters.at[i]);
  vec_release(&containers);
  vec_release(&filters);
  rpc_call_fail(c, s);
}

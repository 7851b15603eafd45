#include "cluster/collective_others.h"

#include <string.h>

#include "base/clock.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"

/* A healthy one has both answers at hand. */
enum { PATIENCE_MS = 5000 };

static void go_on(struct others_check *o);

static shoal_status ended(struct others_check *o) { return cancel_reason(o->cancel); }

static void ask(struct others_check *o, const char *method, struct text *request, rpc_done answered) {
  struct task_question q = {.peer = o->peer,
                            .method = method,
                            .request = message_from_text(request),
                            .deadline = deadline_after_ms(PATIENCE_MS),
                            .what = "whether it takes part in collectives",
                            .done = answered,
                            .arg = o};
  if (!cancellable_start(&o->call, o->cancel, "the step has ended", &q)) o->done(o, ended(o), false);
}

static void group_answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct others_check *o = arg;
  cancellable_end(&o->call);
  if (cancel_started(o->cancel)) {
    shoal_status_free(s);
    o->done(o, ended(o), false);
    return;
  }
  if (s && shoal_status_code(s) != SHOAL_DEADLINE_EXCEEDED) {
    const char *device = o->group->places[o->rank].device;
    o->done(o,
            STATUS(SHOAL_ABORTED, "%.*s takes part in no collectives until it is started again: %s",
                   (int)device_task_length(device), device, shoal_status_message(s)),
            false);
    shoal_status_free(s);
    return;
  }
  shoal_status_free(s);
  o->rank++;
  go_on(o);
}

static void ask_about_group(struct others_check *o) {
  const struct collective_place *p = &o->group->places[o->rank];
  struct text t = {0};
  put_CompleteGroupRequest_group_key(&t, o->group->key);
  put_CompleteGroupRequest_group_size(&t, o->group->size);
  put_CompleteGroupRequest_device_type(&t, o->device_type);
  size_t at = begin_CompleteGroupRequest_device_attributes(&t);
  put_DeviceAttributes_name(&t, p->device);
  put_DeviceAttributes_device_type(&t, o->device_type);
  put_DeviceAttributes_incarnation(&t, p->incarnation);
  wire_end(&t, at);
  ask(o, "/tensorflow.WorkerService/CompleteGroup", &t, group_answered);
}

static void status_answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct others_check *o = arg;
  const struct collective_place *p = &o->group->places[o->rank];
  const void *data;
  size_t size;
  cancellable_end(&o->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (s) {
    o->done(o, s, false);
    return;
  }
  peer_learn(o->peer, data, size);
  uint64_t now = peer_device_incarnation(o->peer, p->device);
  if (now && now != p->incarnation) o->done(o, NULL, true);
  else ask_about_group(o);
}

/* From that rank on. */
static void go_on(struct others_check *o) {
  const struct collective_group *g = o->group;
  while (o->rank < g->size && (g->places[o->rank].is_ours || (o->rank && g->tasks[o->rank] == g->tasks[o->rank - 1])))
    o->rank++;
  if (o->rank == g->size) {
    o->done(o, NULL, false);
    return;
  }
  const char *device = g->places[o->rank].device;
  struct text none = {0};
  o->peer = o->names->find(o->names->arg, device, device_task_length(device));
  if (o->peer) ask(o, "/tensorflow.WorkerService/GetStatus", &none, status_answered);
  else o->done(o, INVALID("%s, a member of collective group %d, is not in this task's cluster", device, g->key), false);
}

void others_check_start(struct others_check *o) {
  o->rank = 0;
  go_on(o);
}

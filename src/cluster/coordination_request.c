#include "cluster/coordination_request.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "proto/any.wire.h"
#include "proto/coordination.wire.h"

static shoal_status unsound(const char *what) {
  return coordination_error(INVALID("%s does not parse as a protocol buffer", what));
}

shoal_status coordination_name_read(const struct wire_field *f, const char *what, char **to) {
  if (f->size > COORDINATION_NAME)
    return coordination_error(INVALID("%s has %zu bytes, where %d is the most", what, f->size, COORDINATION_NAME));
  if (memchr(f->data, 0, f->size) || !str_is_utf8((const char *)f->data, f->size))
    return coordination_error(INVALID("%s has a NUL inside, or is not UTF-8", what));
  free(*to);
  *to = mem_strndup((const char *)f->data, f->size);
  return NULL;
}

/* A CoordinatedTask's name in full, in place of *to. */
static shoal_status read_task(struct wire w, char **to) {
  int id = 0;
  enum wire_step step;
  char *job = mem_strdup("");
  shoal_status s = NULL;
  for (struct wire_field f; !s && (step = wire_next(&w, &f)) != WIRE_END;) {
    if (step == WIRE_BROKEN) s = unsound("a task's name");
    else if (f.tag == CoordinatedTask_job_name) s = coordination_name_read(&f, "the name of a job", &job);
    else if (f.tag == CoordinatedTask_task_id) id = (int)f.value;
  }
  free(*to);
  *to = mem_printf("/job:%s/replica:0/task:%d", job, id);
  free(job);
  return s;
}

static shoal_status add_task(const struct coordination *c, struct wire w, struct coordination_request *r) {
  if (r->tasks.n == c->tasks.n)
    return coordination_error(INVALID("a request names more tasks than the %zu that there are", c->tasks.n));
  char *name = NULL;
  shoal_status s = read_task(w, &name);
  vec_push(&r->tasks, name);
  return s;
}

static void read_text(const struct wire_field *f, char **to) {
  free(*to);
  *to = mem_strndup((const char *)f->data, MIN(f->size, (size_t)COORDINATION_NAME));
}

shoal_status coordination_request_read(const struct coordination *c, struct rpc_call *call,
                                       const struct coordination_tags *tags, struct coordination_request *r) {
  struct wire m;
  struct wire_field f;
  *r = (struct coordination_request){.key = mem_strdup(""), .text = mem_strdup(""), .body = wire_from("", 0)};
  TRY(read_task(wire_from("", 0), &r->task));
  TRY(request_read(call, &m));
  enum wire_step step;
  while ((step = wire_next(&m, &f)) == WIRE_FIELD) {
    if (f.tag == tags->task) TRY(read_task(wire_inside(&f), &r->task));
    else if (f.tag == tags->tasks) TRY(add_task(c, wire_inside(&f), r));
    else if (f.tag == tags->key) TRY(coordination_name_read(&f, "a key", &r->key));
    else if (f.tag == tags->text) read_text(&f, &r->text);
    else if (f.tag == tags->body) r->body = wire_inside(&f);
    else if (f.tag == tags->incarnation) r->incarnation = f.value;
    else if (f.tag == tags->number) r->number = (int64_t)f.value;
  }
  if (step == WIRE_BROKEN) return unsound("a request to the coordination service");
  return tags->task ? identity_check_task(call, r->task) : NULL;
}

void coordination_request_release(struct coordination_request *r) {
  for (size_t i = 0; i < r->tasks.n; i++) free(r->tasks.at[i]);
  vec_release(&r->tasks);
  free(r->task);
  free(r->key);
  free(r->text);
}

static bool is_sound_device(struct wire any) {
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&any, &f)) == WIRE_FIELD;)
    if (f.tag == Any_type_url && !str_is_utf8((const char *)f.data, f.size)) return false;
  return step == WIRE_END;
}

shoal_status coordination_devices_check(struct wire devices) {
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&devices, &f)) == WIRE_FIELD;)
    if (f.tag == DeviceInfo_device && !is_sound_device(wire_inside(&f))) return unsound("a device");
  return step == WIRE_END ? NULL : unsound("a list of devices");
}

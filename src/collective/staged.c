#include "collective/staged.h"

#include "base/block.h"

struct staged {
  struct collective_member member; /* first */
  struct collective_member *of;
  struct tensor in; /* the host's */
  struct step *step;
  void (*join)(struct step *step, struct collective_member *m);
};

/* Of a reduction it takes the place of what was brought, which is nobody else's. */
static shoal_status make(struct collective_member *m, struct tensor *out) {
  struct staged *s = (struct staged *)m;
  if (m->kind != COLLECTIVE_REDUCE) return tensor_new(out, m->dtype, &m->shape);
  tensor_ref(out, &s->in);
  return NULL;
}

static void finish(struct staged *s, shoal_status status, struct tensor *result) {
  struct collective_member *of = s->of;
  struct tensor out = tensor_none();
  if (!status) status = of->device->type->ops->from_host(of->device, of->name, result, &out);
  if (result) tensor_release(result);
  tensor_release(&s->in);
  block_free(s);
  of->done(of, status, status ? NULL : &out);
}

static void done(struct collective_member *m, shoal_status status, struct tensor *result) {
  finish((struct staged *)m, status, result);
}

static void arrived(void *arg, shoal_status status) {
  struct staged *s = arg;
  if (status) finish(s, status, NULL);
  else s->join(s->step, &s->member);
}

void collective_stage(struct step *step, struct collective_member *m,
                      void (*join)(struct step *step, struct collective_member *m)) {
  struct staged *s = block_zalloc(sizeof *s);
  *s = (struct staged){.member = *m, .of = m, .step = step, .join = join};
  s->member.on_device = false;
  s->member.make = make;
  s->member.done = done;
  if (m->in) s->member.in = &s->in;
  if (m->in) m->device->type->ops->to_host(m->device, m->in, &s->in, arrived, s);
  else arrived(s, NULL);
}

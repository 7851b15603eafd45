/* Borrowing the CPU's kernels; see kernel_borrow.h. */
#include "runtime/kernel_borrow.h"

#include <stdlib.h>
#include <string.h>

#include "base/denormals.h"
#include "base/mem.h"

/* ---- one kernel ---- */

shoal_status borrowing_init(struct kernel_init *ki, struct device *host, struct borrowing *b) {
  const struct kernel_def *def;
  TRY(kernel_find(ki->node, host->type->name, &def));
  b->inner = *ki->kernel;
  b->inner.def = def;
  b->inner.device = host;
  b->inner.host_out = NULL;
  b->inner.state = mem_zalloc(1, MAX(def->state_size, 1));
  struct kernel_init inner = *ki;
  inner.kernel = &b->inner;
  inner.device = host;
  return def->init ? def->init(&inner, b->inner.state) : NULL;
}

void borrowing_release(void *state) {
  struct borrowing *b = state;
  if (!b->inner.state) return;
  if (b->inner.def->release) b->inner.def->release(b->inner.state);
  free(b->inner.state);
}

shoal_status borrowing_run(struct kernel_ctx *ctx, const struct tensor *const *in, struct variable *const *refs) {
  struct borrowing *b = ctx->state;
  struct kernel_ctx inner = *ctx;
  inner.kernel = &b->inner;
  inner.state = b->inner.state;
  inner.in = in;
  inner.refs_in = refs;
  inner.steal = 0;
  uint64_t control = denormals_flush();
  shoal_status s = b->inner.def->run(&inner);
  denormals_restore(control);
  ctx->part = inner.part;
  return s;
}

/* ---- rows of tables ---- */

/* Is the op of plain numbers by this attribute whatever it says? */
static bool is_plain(const struct op *op, const char *attr) {
  const struct op_attr *a = op_attr_find(op, attr);
  return a && a->types && !(a->types & ~(uint64_t)DT_PLAIN);
}

/* Constrains a type attribute to plain numbers; false: there is no room to say so, or nothing is left. */
static bool constrain(const struct op *op, struct kernel_def *k, const char *attr) {
  if (!attr || is_plain(op, attr)) return true;
  if (k->type_attr && !strcmp(k->type_attr, attr)) return (k->types &= DT_PLAIN) != 0;
  if (k->type_attr2 && !strcmp(k->type_attr2, attr)) return (k->types2 &= DT_PLAIN) != 0;
  if (!k->type_attr) {
    k->type_attr = attr;
    k->types = DT_PLAIN;
  } else if (!k->type_attr2) {
    k->type_attr2 = attr;
    k->types2 = DT_PLAIN;
  } else {
    return false;
  }
  return true;
}

bool borrow_kernel(const struct op *op, const struct kernel_def *from, bool plain, const struct kernel_def *like,
                   struct kernel_def *out) {
  *out = *like;
  out->type_attr = from->type_attr;
  out->types = from->types;
  out->type_attr2 = from->type_attr2;
  out->types2 = from->types2;
  for (int i = 0; plain && i < op->n_in + op->n_out; i++) {
    const struct op_arg *a = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
    if (!constrain(op, out, a->type_attr) || !constrain(op, out, a->list_attr)) return false;
  }
  return true;
}

static struct kernel_def *make(const struct borrowed_lists *l, const struct op *op) {
  int n = 0, have = 0;
  for (const struct kernel_def *k = op->row->kernels; k && k->device; k++) n++;
  struct kernel_def *list = mem_zalloc((size_t)n + 1, sizeof *list);
  for (int i = 0; i < n; i++) have += l->one(op, &op->row->kernels[i], &list[have]);
  list[have] = (struct kernel_def){0};
  return list;
}

const struct kernel_def *borrow_all(struct borrowed_lists *l, const struct op *op) {
  pthread_mutex_lock(&l->lock);
  struct kernel_def *list = strmap_get(&l->by_op, op->name);
  if (!list) strmap_put(&l->by_op, op->name, list = make(l, op));
  pthread_mutex_unlock(&l->lock);
  return list;
}

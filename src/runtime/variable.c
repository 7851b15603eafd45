/* Variables: a value under a lock. */
#include "runtime/variable.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "device/device.h"
#include "runtime/variable_copy.h"
#include "runtime/variable_notes.h"

static void variable_free(struct resource *r) {
  struct variable *v = (struct variable *)r;
  tensor_release(&v->value);
  pthread_rwlock_destroy(&v->lock);
  free(v->name);
  free(v);
}

const struct resource_type variable_type = {"N10tensorflow3VarE", "variable", variable_free};
const struct resource_type variable_ref_type = {"N10tensorflow9LegacyVarE", "variable", variable_free};

struct variable *variable_new(const char *name, shoal_dtype dtype, const struct shape *shape) {
  struct variable *v = mem_zalloc(1, sizeof *v);
  resource_init(&v->head, &variable_type);
  pthread_rwlockattr_t attr;
  pthread_rwlockattr_init(&attr);
#ifdef __GLIBC__ /* many readers must not keep an update waiting for ever */
  pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
  pthread_rwlock_init(&v->lock, &attr);
  pthread_rwlockattr_destroy(&attr);
  v->dtype = dtype;
  v->shape = *shape;
  v->name = mem_strdup(name);
  return v;
}

void variable_read(struct variable *v, struct tensor *out) {
  pthread_rwlock_rdlock(&v->lock);
  variable_note(v, false);
  if (UNLIKELY(!tensor_valid(&v->value))) {
    *out = tensor_none();
  } else if (UNLIKELY(atomic_load_explicit(&v->copy_on_read, memory_order_relaxed)) && !v->value.buffer->device) {
    shoal_status s = tensor_copy(out, &v->value);
    if (s) { /* no memory for a copy: share, the next writer will need it then */
      shoal_status_free(s);
      tensor_ref(out, &v->value);
    }
  } else {
    tensor_ref(out, &v->value);
  }
  pthread_rwlock_unlock(&v->lock);
}

struct value_copy {
  char *to;
  const char *from;
};

static void copy_piece(void *arg, int64_t begin, int64_t end) {
  struct value_copy *c = arg;
  memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

/* A large value is copied by all threads: while a checkpoint is written, the first update of each variable does this.
 */
static shoal_status copy_value(struct tensor *to, const struct tensor *from, struct pool *pool) {
  enum { PIECE = 1 << 20 };
  size_t bytes = tensor_bytes(from);
  if (!pool || bytes < 2 * PIECE || !dtype_plain((shoal_dtype)from->dtype)) return tensor_copy(to, from);
  struct shape shape = tensor_shape(from);
  TRY(tensor_new(to, (shoal_dtype)from->dtype, &shape));
  struct value_copy c = {to->data, from->data};
  pool_for_pieces(pool, (int64_t)bytes, PIECE, copy_piece, &c);
  return NULL;
}

shoal_status variable_make_writable_on(struct variable *v, struct pool *pool) {
  if (LIKELY(tensor_valid(&v->value) && tensor_writable(&v->value))) return NULL;
  if (!tensor_valid(&v->value))
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  struct tensor own;
  TRY(copy_value(&own, &v->value, pool));
  tensor_release(&v->value);
  tensor_move(&v->value, &own);
  return NULL;
}

shoal_status variable_make_writable_in(struct variable *v, struct device *d) {
  struct tensor own;
  if (tensor_writable(&v->value)) return NULL;
  TRY(variable_may_move(v));
  struct shape shape = tensor_shape(&v->value);
  TRY(device_tensor_new(d, v->name, (shoal_dtype)v->value.dtype, &shape, &own));
  d->type->ops->copy(d, &v->value, &own, 0);
  tensor_release(&v->value);
  tensor_move(&v->value, &own);
  return NULL;
}

shoal_status variable_make_writable(struct variable *v) { return variable_make_writable_on(v, NULL); }

/* Mutexes: MutexLock waits for one and returns the lock as a variant; the lock is given up when the last tensor that
 * holds the variant goes. ConsumeMutexLock only keeps it alive until there, and makes sure that nobody else does. */
#include <stdlib.h>

#include "ops/array/array_util.h"
#include "ops/state/wait_list.h"

struct mutex {
  struct resource head;
  struct wait_list waiting;
  bool locked; /* waiting.lock */
};

static void free_mutex(struct resource *r) {
  struct mutex *m = (struct mutex *)r;
  wait_list_release(&m->waiting);
  free(m);
}

static const struct resource_type mutex_type = {"N10tensorflow12_GLOBAL__N_15MutexE", "mutex", free_mutex};

static shoal_status make_mutex(void *arg, struct resource **out) {
  (void)arg;
  struct mutex *m = mem_zalloc(1, sizeof *m);
  resource_init(&m->head, &mutex_type);
  wait_list_init(&m->waiting);
  *out = &m->head;
  return NULL;
}

static shoal_status maker_init(struct kernel_init *ki, void *state) {
  return state_maker_init(state, ki, &mutex_type, false);
}
static void maker_release(void *state) { state_maker_release(state); }
static shoal_status maker_run(struct kernel_ctx *ctx) {
  return state_maker_run(ctx->state, ctx, make_mutex, NULL, NULL);
}

/* ---- locks ---- */

struct mutex_lock {
  struct variant head;
  struct mutex *mutex; /* a reference */
};

static void free_held(struct variant *v) {
  struct mutex_lock *h = (struct mutex_lock *)v;
  struct mutex *m = h->mutex;
  free(h);
  pthread_mutex_lock(&m->waiting.lock);
  m->locked = false;
  pthread_mutex_unlock(&m->waiting.lock);
  wait_changed(&m->waiting);
  resource_unref(&m->head);
}

/* Not encodable: a lock is worth nothing in another process. */
static const struct variant_type held_type = {.name = "tensorflow::(anonymous namespace)::Mutex::SharedLockReleaser",
                                              .free = free_held};

static bool try_lock(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct mutex *m = (struct mutex *)r;
  if (m->locked) return false;
  struct shape scalar = shape_scalar();
  struct tensor *y;
  *s = ctx_out(ctx, 0, &scalar, &y);
  if (*s) return true;
  struct mutex_lock *h = mem_zalloc(1, sizeof *h);
  variant_init(&h->head, &held_type);
  h->mutex = m;
  resource_ref(r);
  m->locked = true;
  *T_DATA(y, struct variant *) = &h->head;
  return true;
}

static void lock_start(struct kernel_ctx *ctx) {
  struct resource *r;
  shoal_status s =
      resource_from_handle_or_make(ctx->kernel->resources, ctx_in(ctx, 0), &mutex_type, make_mutex, NULL, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  wait_start(&((struct mutex *)r)->waiting, r, ctx, try_lock);
  resource_unref(r);
}

static shoal_status consume_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0);
  if (t->rank) return INVALID("Expected input to be a scalar, saw shape: %s", tensor_shape_str(t));
  const struct variant *v = *T_DATA(t, struct variant *const);
  if (!v || v->type != &held_type)
    return INVALID("Expected input to contain a SharedLockReleaser object, but saw variant: '%s'",
                   v ? v->type->name : "");
  int users = ref_count(&v->refs);
  if (users != 1) return INVALID("Expected use count of lock to be 1, but saw: %d", users);
  return NULL;
}

static const struct kernel_def mutex_kernels[] = {{.device = "CPU",
                                                   .flags = KERNEL_ANYWHERE,
                                                   .state_size = sizeof(struct state_maker),
                                                   .init = maker_init,
                                                   .release = maker_release,
                                                   .run = maker_run},
                                                  {0}};
static const struct kernel_def lock_kernels[] = {{.device = "CPU", .flags = KERNEL_ANYWHERE, .start = lock_start}, {0}};
static const struct kernel_def consume_kernels[] = {{.device = "CPU", .flags = KERNEL_ANYWHERE, .run = consume_run},
                                                    {0}};

static const struct op_row rows[] = {
    {.name = "MutexV2",
     .out = "resource: resource",
     .attrs = "container: string = ''; shared_name: string = ''",
     .flags = OP_STATEFUL,
     .shape = shape_scalar_out,
     .kernels = mutex_kernels},
    {.name = "MutexLock",
     .in = "mutex: resource",
     .out = "mutex_lock: variant",
     .flags = OP_STATEFUL,
     .shape = shape_scalar_out,
     .kernels = lock_kernels},
    {.name = "ConsumeMutexLock",
     .in = "mutex_lock: variant",
     .flags = OP_STATEFUL,
     .shape = shape_no_outputs,
     .kernels = consume_kernels},
};
OP_FAMILY(mutex, rows);

/* The variables of a kernel that is borrowed from the CPU.
 *
 * Such a kernel finds its variables, locks them and changes their values itself, and is not to see the device's memory.
 * So it is given stand-ins: variables of its own with the values opened, behind references and handles that look like
 * those it was called with. The real ones are locked meanwhile, all before the kernel runs and in order of address, as
 * everybody locks several; when it is through they get what it left, put away.
 *
 * So nobody else sees a value that is open, and what the kernel must wait for was queued before the lock was got, on
 * streams whose work waits for no lock: borrowed kernels have one of their own. (The kernel was given the variables
 * themselves before, opened where they are, on the stream of queued work. Who set one in that moment gave it an address
 * that it could not read; and a value could be one that work queued behind the kernel was to write: both waited for
 * ever.) */
#include "device/soft/soft_variables.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/soft/soft.h"

/* What an input leads to. */
struct lead {
  struct variable *v; /* a reference; NULL: to no variable */
  bool missing;       /* to one that is not there */
};

static struct lead follow(const struct kernel_ctx *ctx, int i) {
  struct lead l = {.v = ctx->refs_in ? ctx->refs_in[i] : NULL};
  struct resource *r = NULL;
  if (l.v) {
    resource_ref(&l.v->head);
  } else if (dtype_base(ctx->kernel->in_types[i]) == SHOAL_RESOURCE) {
    shoal_status s = resource_from_handle(ctx->kernel->resources, ctx->in[i], &variable_type, &r);
    l.missing = s && shoal_status_code(s) == SHOAL_NOT_FOUND; /* other mistakes are the kernel's to tell */
    shoal_status_free(s);
    l.v = (struct variable *)r;
  }
  return l;
}

static void enter(struct soft_variables *vars, struct variable *v) {
  size_t at = vars->all.n;
  while (at > 0 && vars->all.at[at - 1].real > v) at--;
  if (at > 0 && vars->all.at[at - 1].real == v) return;
  resource_ref(&v->head);
  vec_push(&vars->all, (struct soft_variable){0});
  memmove(&vars->all.at[at + 1], &vars->all.at[at], (vars->all.n - 1 - at) * sizeof *vars->all.at);
  vars->all.at[at] = (struct soft_variable){.real = v};
}

/* Its lock is made anew: a lock of another kind than those of real variables, under which it is taken. */
static struct variable *stand_in_new(struct variable *v) {
  struct variable *open = variable_new(v->name, v->dtype, &v->shape);
  pthread_rwlock_destroy(&open->lock);
  pthread_rwlock_init(&open->lock, NULL);
  open->head.type = v->head.type;
  atomic_store(&open->copy_on_read, atomic_load(&v->copy_on_read));
  if (tensor_valid(&v->value)) soft_open(&v->value, &open->value);
  return open;
}

static void lock_and_open(struct soft_variables *vars, struct device *d) {
  for (size_t i = 0; i < vars->all.n; i++) pthread_rwlock_wrlock(&vars->all.at[i].real->lock);
  struct soft_turn replays = soft_turn_after_replays(((struct soft_device *)d->impl)->memory);
  soft_turn_begin(&replays);
  soft_turn_end(&replays);
  for (size_t i = 0; i < vars->all.n; i++) vars->all.at[i].stand_in = stand_in_new(vars->all.at[i].real);
}

static struct variable *stand_in_of(const struct soft_variables *vars, const struct variable *real) {
  size_t i = 0;
  while (vars->all.at[i].real != real) i++;
  return vars->all.at[i].stand_in;
}

/* The handle that the kernel is to see instead. One of what is not there stays so, whoever makes it meanwhile. */
static shoal_status change_handle(const struct kernel_ctx *ctx, struct variable *open, struct tensor *in) {
  struct tensor handle;
  if (open) resource_ref(&open->head);
  TRY(resource_handle_stand_in(ctx->kernel->resources, in, &variable_type, open ? &open->head : NULL, &handle));
  tensor_release(in);
  tensor_move(in, &handle);
  return NULL;
}

static shoal_status open_all(struct soft_variables *vars, const struct kernel_ctx *ctx, const struct lead *leads,
                             struct tensor *in) {
  int n = ctx->kernel->n_in;
  for (int i = 0; i < n; i++)
    if (leads[i].v) enter(vars, leads[i].v);
  lock_and_open(vars, ctx->kernel->device);
  if (ctx->refs_in) vars->refs = mem_zalloc((size_t)n, sizeof *vars->refs);
  for (int i = 0; i < n; i++) {
    struct variable *open = leads[i].v ? stand_in_of(vars, leads[i].v) : NULL;
    if (ctx->refs_in && ctx->refs_in[i]) vars->refs[i] = open;
    else if (open || leads[i].missing) TRY(change_handle(ctx, open, &in[i]));
  }
  return NULL;
}

shoal_status soft_variables_open(struct soft_variables *vars, const struct kernel_ctx *ctx, struct tensor *in) {
  int n = ctx->kernel->n_in;
  *vars = (struct soft_variables){0};
  struct lead *leads = mem_zalloc((size_t)n, sizeof *leads);
  for (int i = 0; i < n; i++) leads[i] = follow(ctx, i);
  shoal_status s = open_all(vars, ctx, leads, in);
  for (int i = 0; i < n; i++)
    if (leads[i].v) variable_unref(leads[i].v);
  free(leads);
  return s;
}

/* With the lock held. */
static shoal_status take_back(struct device *d, struct soft_variable *of) {
  struct variable *v = of->real, *open = of->stand_in;
  atomic_store(&v->copy_on_read, atomic_load(&open->copy_on_read));
  if (!tensor_valid(&open->value) || soft_is_of(&open->value, &v->value)) return NULL;
  TRY(soft_close_again(d, v->name, &open->value));
  tensor_release(&v->value);
  tensor_move(&v->value, &open->value);
  open->value = tensor_none();
  return NULL;
}

/* A reference that the kernel gave out: to a stand-in, or to a variable that it has made, in host memory. */
static shoal_status take_reference(const struct soft_variables *vars, struct device *d, struct variable **ref) {
  struct variable *v = *ref;
  for (size_t i = 0; i < vars->all.n; i++)
    if (vars->all.at[i].stand_in == v) {
      *ref = vars->all.at[i].real;
      resource_ref(&(*ref)->head);
      variable_unref(v);
      return NULL;
    }
  pthread_rwlock_wrlock(&v->lock);
  shoal_status s = soft_close_again(d, v->name, &v->value);
  pthread_rwlock_unlock(&v->lock);
  return s;
}

shoal_status soft_variables_close(struct soft_variables *vars, struct kernel_ctx *ctx) {
  shoal_status s = NULL, one;
  for (int i = 0; ctx->refs_out && i < ctx->kernel->n_out; i++)
    if (ctx->refs_out[i] && (one = take_reference(vars, ctx->kernel->device, &ctx->refs_out[i]))) status_merge(&s, one);
  for (size_t i = 0; i < vars->all.n; i++) {
    struct soft_variable *of = &vars->all.at[i];
    if ((one = take_back(ctx->kernel->device, of))) status_merge(&s, one);
    pthread_rwlock_unlock(&of->real->lock);
    variable_unref(of->stand_in);
    variable_unref(of->real);
  }
  vec_release(&vars->all);
  free(vars->refs);
  return s;
}

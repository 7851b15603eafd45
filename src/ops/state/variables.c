/* Variables: making, reading, assigning, destroying, in both kinds.
 *
 * A reference op and its resource twin are one kernel here: the first input is a variable whichever way it came
 * (ops/state/state.h). Assigning shares the value's buffer instead of copying it: whoever changes a shared buffer
 * copies it first, so the sharing never shows, and the usual case, a value nobody else needs, costs nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gradient.h"
#include "ops/state/state.h"
#include "runtime/resource_ahead.h"
#include "runtime/variable_copy.h"
#include "runtime/variable_notes.h"

/* ---- VariableV2, TemporaryVariable ---- */

struct ref_variable {
  char *container, *name;
  bool is_private;
  struct resource_entry *entry;
  shoal_dtype dtype;
  struct shape shape;
};

static shoal_status ref_shape(struct kernel_init *ki, struct shape *out) {
  TRY(node_get_shape(ki->node, "shape", out));
  if (out->rank < 0) *out = shape_scalar(); /* as TensorFlow reads "unknown" here; assigning sets the real one */
  if (!shape_known(out)) return INVALID("Shape %s is not fully defined", shape_str(out));
  return NULL;
}

static shoal_status variable_init(struct kernel_init *ki, void *state) {
  struct ref_variable *st = state;
  TRY(node_get_type(ki->node, "dtype", &st->dtype));
  TRY(ref_shape(ki, &st->shape));
  TRY(state_name(ki, false, &st->container, &st->name, &st->is_private));
  st->entry = resource_entry_get(ki->resources, st->container, &variable_ref_type, st->name);
  return NULL;
}

static void variable_release(void *state) {
  struct ref_variable *st = state;
  resource_entry_unref(st->entry);
  free(st->container);
  free(st->name);
}

static shoal_status make_ref(void *arg, struct resource **out) {
  const struct ref_variable *st = arg;
  *out = &variable_new(st->name, st->dtype, &st->shape)->head;
  (*out)->type = &variable_ref_type;
  return NULL;
}

static shoal_status variable_run(struct kernel_ctx *ctx) {
  struct ref_variable *st = ctx->state;
  struct resource *r;
  TRY(resource_entry_find_or_make(st->entry, make_ref, st, &r));
  struct variable *v = (struct variable *)r;
  if (UNLIKELY(v->dtype != st->dtype)) {
    shoal_dtype have = v->dtype;
    variable_unref(v);
    return INTERNAL("Output 0 of type %s does not match declared output type %s for node {{node %s}}",
                    dtype_tf_name(dtype_ref(have)), dtype_tf_name(dtype_ref(st->dtype)), ctx->kernel->name);
  }
  ctx_set_ref(ctx, 0, v);
  variable_unref(v);
  return NULL;
}

struct temporary {
  char *name;
  shoal_dtype dtype;
  struct shape shape;
};

static shoal_status temporary_init(struct kernel_init *ki, void *state) {
  struct temporary *st = state;
  const char *name;
  TRY(node_get_string(ki->node, "var_name", &name));
  st->name = mem_strdup(*name ? name : ki->node->name);
  if (!node_attr(ki->node, "shape")) return NULL; /* DestroyTemporaryVariable */
  TRY(node_get_type(ki->node, "dtype", &st->dtype));
  return ref_shape(ki, &st->shape);
}

static void temporary_release(void *state) { free(((struct temporary *)state)->name); }

static void free_temporary(struct resource *r);
/* In the step's container variables are a kind of their own, so that names cannot meet those of real variables. */
static const struct resource_type temporary_type = {"N10tensorflow19TemporaryVariableOp6TmpVarE", "temporary variable",
                                                    free_temporary};
struct temporary_resource {
  struct resource head;
  struct variable *v;
};
static void free_temporary(struct resource *r) {
  variable_unref(((struct temporary_resource *)r)->v);
  free(r);
}

static char *temporary_name(const struct kernel_ctx *ctx, const struct temporary *st) {
  return mem_printf("%s/frame:%" PRIu64 "/iter:%" PRIu64, st->name, ctx->frame, ctx->iter);
}

static shoal_status temporary_run(struct kernel_ctx *ctx) {
  struct temporary *st = ctx->state;
  struct temporary_resource *r = mem_zalloc(1, sizeof *r);
  resource_init(&r->head, &temporary_type);
  char *name = temporary_name(ctx, st);
  r->v = variable_new(st->name, st->dtype, &st->shape);
  shoal_status s = tensor_new(&r->v->value, st->dtype, &st->shape);
  if (!s) {
    tensor_zero(&r->v->value);
    resource_ref(&r->head);
    s = resource_add(ctx->step->step_resources, "", name, &r->head);
    if (s) resource_unref(&r->head);
  }
  if (!s) ctx_set_ref(ctx, 0, r->v);
  resource_unref(&r->head);
  free(name);
  return s;
}

static shoal_status destroy_temporary_run(struct kernel_ctx *ctx) {
  struct temporary *st = ctx->state;
  struct variable *v = ctx_ref(ctx, 0);
  if (!v) return INVALID("lhs input needs to be a ref type");
  struct tensor value;
  variable_read(v, &value);
  if (!tensor_valid(&value))
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  char *name = temporary_name(ctx, st);
  shoal_status s = resource_remove(ctx->step->step_resources, "", &temporary_type, name);
  free(name);
  if (s) tensor_release(&value);
  else ctx_set(ctx, 0, &value);
  return s;
}

/* ---- VarHandleOp ---- */

struct var_handles {
  int n;
  bool anonymous;
  struct tensor *at; /* [n] */
};

static shoal_status var_handle_init(struct kernel_init *ki, void *state) {
  struct var_handles *st = state;
  const char *container, *name;
  TRY(node_get_string(ki->node, "container", &container));
  TRY(node_get_string(ki->node, "shared_name", &name));
  st->anonymous = strcmp(name, RESOURCE_NAMELESS) == 0;
  if (st->anonymous) return NULL;
  st->at = mem_zalloc(1, sizeof *st->at);
  TRY(resource_handle_tensor(ki->resources, ki->device->name, container, name, &variable_type, &st->at[0]));
  st->n = 1;
  return NULL;
}

static shoal_status var_handles_init(struct kernel_init *ki, void *state) {
  struct var_handles *st = state;
  const struct attr *containers, *names;
  TRY(node_get_list(ki->node, "containers", ATTR_STRING, &containers));
  TRY(node_get_list(ki->node, "shared_names", ATTR_STRING, &names));
  int n = ki->kernel->n_out;
  if ((int)containers->list.n != n || (int)names->list.n != n)
    return INVALID("Invalid number of shared_names and containers for %d handles", n);
  st->at = mem_zalloc((size_t)MAX(n, 1), sizeof *st->at);
  for (; st->n < n; st->n++)
    TRY(resource_handle_tensor(ki->resources, ki->device->name, containers->list.at[st->n].s.data,
                               names->list.at[st->n].s.data, &variable_type, &st->at[st->n]));
  return NULL;
}

static void var_handle_release(void *state) {
  struct var_handles *st = state;
  for (int i = 0; i < st->n; i++) tensor_release(&st->at[i]);
  free(st->at);
}

static shoal_status var_handle_run(struct kernel_ctx *ctx) {
  struct var_handles *st = ctx->state;
  struct tensor t;
  if (UNLIKELY(st->anonymous)) {
    TRY(resource_handle_anonymous(ctx->kernel->resources, ctx->kernel->device->name, "_AnonymousVar", &variable_type,
                                  NULL, &t));
    ctx_set(ctx, 0, &t);
    return NULL;
  }
  for (int i = 0; i < st->n; i++) {
    tensor_ref(&t, &st->at[i]);
    ctx_set(ctx, i, &t);
  }
  return NULL;
}

/* ---- reading ---- */

static shoal_status not_found(const struct tensor *handle, shoal_status why) {
  const struct resource_handle *h = resource_handle_of(handle);
  if (shoal_status_code(why) != SHOAL_NOT_FOUND || !h) return why;
  shoal_status s =
      STATUS(SHOAL_FAILED_PRECONDITION,
             "Could not find variable %s. This could mean that the variable has been deleted. In TF1, it can "
             "also mean the variable is uninitialized. Debug info: container=%s, status error message=%s",
             h->name, h->container, shoal_status_message(why));
  shoal_status_free(why);
  return s;
}

static shoal_status read_variable(struct kernel_ctx *ctx, int i) {
  const struct tensor *handle = ctx_in(ctx, i);
  struct resource *r;
  shoal_status s = resource_from_handle(ctx->kernel->resources, handle, &variable_type, &r);
  if (UNLIKELY(s != NULL)) return not_found(handle, s);
  struct variable *v = (struct variable *)r;
  struct tensor t;
  variable_read(v, &t);
  if (UNLIKELY(!tensor_valid(&t))) {
    s = STATUS(
        SHOAL_FAILED_PRECONDITION,
        "Could not find variable %s. This could mean that the variable has been deleted. In TF1, it can also mean "
        "the variable is uninitialized. Debug info: container=%s, status error message=Resource has no value",
        v->name, resource_handle_of(handle)->container);
  } else if (UNLIKELY((shoal_dtype)t.dtype != ctx_out_type(ctx, i))) {
    s = INVALID("Trying to read variable with wrong dtype. Expected %s got %s", dtype_tf_name(ctx_out_type(ctx, i)),
                dtype_tf_name(t.dtype));
    tensor_release(&t);
  } else {
    ctx_set(ctx, i, &t);
  }
  resource_unref(r);
  return s;
}

static shoal_status differ_in_number(int n_in, int n_out) {
  return INVALID("Mismatched number of arguments to ReadVariablesOp (%d vs. %d)", n_in, n_out);
}

static shoal_status read_run(struct kernel_ctx *ctx) {
  if (ctx->kernel->n_in != ctx->kernel->n_out) return differ_in_number(ctx->kernel->n_in, ctx->kernel->n_out);
  enum { AHEAD = 16 };
  int n = ctx->kernel->n_out;
  for (int i = 0; i < n; i++) {
    if (i % AHEAD == 0 && n > 1) resource_fetch_ahead(ctx->in + i, MIN(AHEAD, n - i));
    shoal_status s = read_variable(ctx, i);
    if (LIKELY(!s)) continue;
    ctx->part = i;
    return s;
  }
  return NULL;
}

static shoal_status is_initialized_run(struct kernel_ctx *ctx) {
  struct tensor *out;
  bool yes = false;
  if (state_is_ref(ctx, 0)) {
    struct tensor t;
    variable_read(ctx_ref(ctx, 0), &t);
    yes = tensor_valid(&t);
    if (yes) tensor_release(&t);
  } else {
    struct resource *r;
    shoal_status s = resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r);
    if (s && shoal_status_code(s) != SHOAL_NOT_FOUND) return s;
    shoal_status_free(s);
    if (!s) {
      struct variable *v = (struct variable *)r;
      pthread_rwlock_rdlock(&v->lock);
      yes = tensor_valid(&v->value);
      pthread_rwlock_unlock(&v->lock);
      resource_unref(r);
    }
  }
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, bool) = yes;
  return NULL;
}

static shoal_status variable_shape_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  struct variable *v = (struct variable *)r;
  pthread_rwlock_rdlock(&v->lock);
  variable_note(v, false);
  struct shape shape = tensor_valid(&v->value) ? tensor_shape(&v->value) : v->shape;
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, (int64_t[]){MAX(shape.rank, 0)}, &out));
  for (int i = 0; i < shape.rank; i++) {
    if (out->dtype == SHOAL_INT64) T_DATA(out, int64_t)[i] = shape.dims[i];
    else if (shape.dims[i] <= INT32_MAX) T_DATA(out, int32_t)[i] = (int32_t)shape.dims[i];
    else return INVALID("Dimension %d of the variable's shape %s does not fit in int32", i, shape_str(&shape));
  }
  return NULL;
}

static shoal_status disable_copy_on_read_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  atomic_store(&((struct variable *)r)->copy_on_read, false);
  resource_unref(r);
  return NULL;
}

struct destroy {
  bool ignore_missing;
};
static shoal_status destroy_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "ignore_lookup_error", &((struct destroy *)state)->ignore_missing);
}
static shoal_status destroy_run(struct kernel_ctx *ctx) {
  return resource_destroy(ctx->kernel->resources, ctx_in(ctx, 0), ((struct destroy *)ctx->state)->ignore_missing);
}

/* ---- assigning ---- */

struct assign {
  bool validate_shape;
};

static shoal_status assign_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "validate_shape", &((struct assign *)state)->validate_shape);
}

static shoal_status assign_ref_run(struct kernel_ctx *ctx) {
  struct assign *st = ctx->state;
  struct variable *v = ctx_ref(ctx, 0);
  const struct tensor *value = ctx_in(ctx, 1);
  if (!v) return INVALID("lhs input needs to be a ref type");
  shoal_status s = NULL;
  pthread_rwlock_wrlock(&v->lock);
  variable_note(v, true);
  if (st->validate_shape) {
    struct shape have = tensor_valid(&v->value) ? tensor_shape(&v->value) : v->shape, now = tensor_shape(value);
    if (!shape_equal(&have, &now))
      s = INVALID("Assign requires shapes of both tensors to match. lhs shape= %s rhs shape= %s", shape_str(&have),
                  shape_str(&now));
  }
  if (!s) s = state_set_value(v, value);
  pthread_rwlock_unlock(&v->lock);
  if (!s) ctx_set_ref(ctx, 0, v);
  return s;
}

static shoal_status make_for_assign(void *arg, struct resource **out) {
  struct kernel_ctx *ctx = arg;
  const struct tensor *value = ctx_in(ctx, 1);
  struct shape shape = tensor_shape(value);
  *out = &variable_new(resource_handle_of(ctx_in(ctx, 0))->name, (shoal_dtype)value->dtype, &shape)->head;
  return NULL;
}

static shoal_status assign_resource_run(struct kernel_ctx *ctx) {
  struct assign *st = ctx->state;
  const struct tensor *value = ctx_in(ctx, 1);
  struct resource *r;
  TRY(resource_from_handle_or_make(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, make_for_assign, ctx, &r));
  struct variable *v = (struct variable *)r;
  shoal_status s = NULL;
  pthread_rwlock_wrlock(&v->lock);
  variable_note(v, true);
  if (v->dtype != (shoal_dtype)value->dtype) {
    s = INVALID("Trying to assign variable with wrong dtype. Expected %s got %s", dtype_tf_name(v->dtype),
                dtype_tf_name(value->dtype));
  } else if (st->validate_shape && tensor_valid(&v->value) && !tensor_same_shape(&v->value, value)) {
    struct shape have = tensor_shape(&v->value), now = tensor_shape(value);
    s = INVALID("Trying to assign to variable with tensor with wrong shape. Expected %s got %s", shape_str(&have),
                shape_str(&now));
  } else {
    s = state_set_value(v, value);
  }
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  return s;
}

static shoal_status assign_update(struct kernel_ctx *ctx, enum update op) {
  const struct tensor *by = ctx_in(ctx, 1);
  struct state_vars vars;
  TRY(state_vars_get(ctx, 1, NULL, &vars));
  struct variable *v = vars.v[0];
  update_fn fn = update_find(op, (shoal_dtype)by->dtype);
  shoal_status s = NULL;
  state_vars_lock(&vars);
  if (!tensor_valid(&v->value)) {
    s = STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  } else if (v->value.dtype != by->dtype) {
    s = INVALID("DType of variable handle and value does not match.");
  } else if (!tensor_same_shape(&v->value, by)) {
    struct shape have = tensor_shape(&v->value), now = tensor_shape(by);
    s = state_is_ref(ctx, 0) ? INVALID("Parameters and update must be the same size")
                             : INVALID(
                                   "Cannot update variable with shape %s using a Tensor with shape %s, shapes must be "
                                   "equal.",
                                   shape_str(&have), shape_str(&now));
  } else {
    s = variable_make_writable_on(v, ctx_pool(ctx));
    if (!s) update_run(ctx_pool(ctx), fn, (shoal_dtype)by->dtype, v->value.data, by->data, by->n);
  }
  if (!s) state_forward_ref(ctx, v);
  state_vars_release(&vars);
  return s;
}

static shoal_status assign_add_run(struct kernel_ctx *ctx) { return assign_update(ctx, UPDATE_ADD); }
static shoal_status assign_sub_run(struct kernel_ctx *ctx) { return assign_update(ctx, UPDATE_SUB); }

struct count_up_to {
  int64_t limit;
};

static shoal_status count_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "limit", &((struct count_up_to *)state)->limit);
}

static shoal_status count_run(struct kernel_ctx *ctx) {
  int64_t limit = ((struct count_up_to *)ctx->state)->limit;
  struct state_vars vars;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(state_vars_get(ctx, 1, NULL, &vars));
  struct variable *v = vars.v[0];
  state_vars_lock(&vars);
  shoal_status s = variable_make_writable(v);
  if (!s && (v->value.rank != 0 || v->value.dtype != out->dtype)) {
    struct shape shape = tensor_shape(&v->value);
    s = INVALID("input is not a scalar: %s", shape_str(&shape));
  }
  if (!s) {
    int64_t now = index_at(&v->value, 0);
    if (now >= limit) s = STATUS(SHOAL_OUT_OF_RANGE, "Reached limit of %" PRId64, limit);
    else if (out->dtype == SHOAL_INT32) {
      *T_DATA(out, int32_t) = (int32_t)now;
      ++*T_DATA(&v->value, int32_t);
    } else {
      *T_DATA(out, int64_t) = now;
      ++*T_DATA(&v->value, int64_t);
    }
  }
  state_vars_release(&vars);
  return s;
}

/* ---- shapes ---- */

static shoal_status shape_variable(struct shape_ctx *c) { return node_get_shape(c->node, "shape", &c->out[0]); }

static shoal_status shape_var_handle(struct shape_ctx *c) {
  c->out[0] = shape_scalar();
  return node_get_shape(c->node, "shape", &c->handle_out[0]);
}

static shoal_status shape_var_handles(struct shape_ctx *c) {
  const struct attr *shapes;
  TRY(node_get_list(c->node, "shapes", ATTR_SHAPE, &shapes));
  for (int i = 0; i < c->node->n_out; i++) {
    c->out[i] = shape_scalar();
    if (i < (int)shapes->list.n) c->handle_out[i] = *shapes->list.at[i].shape;
  }
  return NULL;
}

static shoal_status shape_read(struct shape_ctx *c) {
  if (c->node->n_in != c->node->n_out) return differ_in_number(c->node->n_in, c->node->n_out);
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = c->handle_in[i];
  return NULL;
}

static shoal_status shape_variable_shape(struct shape_ctx *c) {
  c->out[0] = shape_vector(c->handle_in[0].rank);
  return NULL;
}

static shoal_status shape_assign(struct shape_ctx *c) {
  bool validate;
  TRY(node_get_bool(c->node, "validate_shape", &validate));
  if (validate) return shape_merge(&c->in[0], &c->in[1], &c->out[0]);
  c->out[0] = c->in[1];
  return NULL;
}

static shoal_status shape_assign_variable(struct shape_ctx *c) {
  struct shape merged;
  bool validate = false;
  if (node_attr(c->node, "validate_shape")) TRY(node_get_bool(c->node, "validate_shape", &validate));
  return validate || !node_attr(c->node, "validate_shape") ? shape_merge(&c->handle_in[0], &c->in[1], &merged) : NULL;
}

static shoal_status shape_update(struct shape_ctx *c) { return shape_merge(&c->in[0], &c->in[1], &c->out[0]); }

/* ---- rows ---- */

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", .borrowable = true, __VA_ARGS__}, {0}}
KERNEL(variable_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_REPLAYS,
       .state_size = sizeof(struct ref_variable), .init = variable_init, .release = variable_release,
       .run = variable_run);
KERNEL(temporary_kernels, .state_size = sizeof(struct temporary), .init = temporary_init, .release = temporary_release,
       .run = temporary_run);
KERNEL(destroy_temporary_kernels, .state_size = sizeof(struct temporary), .init = temporary_init,
       .release = temporary_release, .run = destroy_temporary_run);
KERNEL(assign_kernels, .flags = KERNEL_ANYWHERE | KERNEL_REPLAYS, .state_size = sizeof(struct assign),
       .init = assign_init, .run = assign_ref_run);
KERNEL(assign_add_kernels, .type_attr = "T", .types = UPDATE_NUMBERS, .run = assign_add_run);
KERNEL(assign_sub_kernels, .type_attr = "T", .types = UPDATE_NUMBERS, .run = assign_sub_run);
KERNEL(is_initialized_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = is_initialized_run, .host_out = 1);
KERNEL(count_kernels, .type_attr = "T", .types = DT(INT32) | DT(INT64), .state_size = sizeof(struct count_up_to),
       .init = count_init, .run = count_run);
KERNEL(var_handle_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_REPLAYS,
       .state_size = sizeof(struct var_handles), .init = var_handle_init, .release = var_handle_release,
       .run = var_handle_run);
KERNEL(var_handles_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_REPLAYS,
       .state_size = sizeof(struct var_handles), .init = var_handles_init, .release = var_handle_release,
       .run = var_handle_run);
KERNEL(read_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_REPLAYS, .run = read_run);
KERNEL(destroy_kernels, .flags = KERNEL_ANYWHERE, .state_size = sizeof(struct destroy), .init = destroy_init,
       .run = destroy_run);
KERNEL(assign_resource_kernels, .flags = KERNEL_ANYWHERE | KERNEL_REPLAYS, .state_size = sizeof(struct assign),
       .init = assign_init, .run = assign_resource_run);
KERNEL(assign_add_resource_kernels, .type_attr = "dtype", .types = UPDATE_NUMBERS, .run = assign_add_run);
KERNEL(assign_sub_resource_kernels, .type_attr = "dtype", .types = UPDATE_NUMBERS, .run = assign_sub_run);
KERNEL(variable_shape_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_REPLAYS, .run = variable_shape_run,
       .host_out = 1);
KERNEL(disable_copy_on_read_kernels, .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = disable_copy_on_read_run);

#define ROW_VARIABLE(op)                                                                                          \
  {                                                                                                               \
    .name = op, .out = "ref: Ref(dtype)",                                                                         \
    .attrs = "shape: shape; dtype: type; container: string = ''; shared_name: string = ''", .flags = OP_STATEFUL, \
    .shape = shape_variable, .kernels = variable_kernels                                                          \
  }
static const struct op_row rows[] = {
    ROW_VARIABLE("VariableV2"),
    ROW_VARIABLE("Variable"),
    {.name = "TemporaryVariable",
     .out = "ref: Ref(dtype)",
     .attrs = "shape: shape; dtype: type; var_name: string = ''",
     .flags = OP_STATEFUL,
     .shape = shape_variable,
     .kernels = temporary_kernels},
    {.name = "DestroyTemporaryVariable",
     .in = "ref: Ref(T)",
     .out = "value: T",
     .attrs = "T: type; var_name: string",
     .shape = shape_unchanged,
     .kernels = destroy_temporary_kernels},
    {.name = "Assign",
     .in = "ref: Ref(T), value: T",
     .out = "output_ref: Ref(T)",
     .attrs = "T: type; validate_shape: bool = true; use_locking: bool = true",
     .flags = OP_UNINITIALIZED_OK | OP_NO_GRADIENT,
     .shape = shape_assign,
     .kernels = assign_kernels},
    {.name = "AssignAdd",
     .in = "ref: Ref(T), value: T",
     .out = "output_ref: Ref(T)",
     .attrs = "T: {numbertype}; use_locking: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = shape_update,
     .kernels = assign_add_kernels},
    {.name = "AssignSub",
     .in = "ref: Ref(T), value: T",
     .out = "output_ref: Ref(T)",
     .attrs = "T: {numbertype}; use_locking: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = shape_update,
     .kernels = assign_sub_kernels},
    {.name = "IsVariableInitialized",
     .in = "ref: Ref(dtype)",
     .out = "is_initialized: bool",
     .attrs = "dtype: type",
     .flags = OP_UNINITIALIZED_OK | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = is_initialized_kernels},
    {.name = "CountUpTo",
     .in = "ref: Ref(T)",
     .out = "output: T",
     .attrs = "limit: int; T: {int32, int64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = count_kernels},
    {.name = "VarHandleOp",
     .out = "resource: resource",
     .attrs = "container: string = ''; shared_name: string = ''; debug_name: string = ''; dtype: type; shape: shape; "
              "allowed_devices: list(string) = []",
     .flags = OP_STATEFUL,
     .shape = shape_var_handle,
     .kernels = var_handle_kernels},
    {.name = "_VarHandlesOp",
     .out = "resources: N * resource",
     .attrs = "containers: list(string); shared_names: list(string); N: int >= 0; dtypes: list(type); "
              "shapes: list(shape)",
     .flags = OP_STATEFUL,
     .shape = shape_var_handles,
     .kernels = var_handles_kernels},
    {.name = "ReadVariableOp",
     .in = "resource: resource",
     .out = "value: dtype",
     .attrs = "dtype: type",
     .flags = OP_STATEFUL,
     .shape = shape_read,
     .grad = grad_pass,
     .kernels = read_kernels},
    {.name = "_ReadVariablesOp",
     .in = "resources: N * resource",
     .out = "values: dtypes",
     .attrs = "N: int >= 0; dtypes: list(type) >= 1",
     .flags = OP_STATEFUL,
     .shape = shape_read,
     .kernels = read_kernels},
    {.name = "DestroyResourceOp",
     .in = "resource: resource",
     .attrs = "ignore_lookup_error: bool = true",
     .flags = OP_STATEFUL,
     .kernels = destroy_kernels},
    {.name = "AssignVariableOp",
     .in = "resource: resource, value: dtype",
     .attrs = "dtype: type; validate_shape: bool = false",
     .flags = OP_STATEFUL,
     .shape = shape_assign_variable,
     .kernels = assign_resource_kernels},
    {.name = "AssignAddVariableOp",
     .in = "resource: resource, value: dtype",
     .attrs = "dtype: type",
     .flags = OP_STATEFUL,
     .shape = shape_assign_variable,
     .kernels = assign_add_resource_kernels},
    {.name = "AssignSubVariableOp",
     .in = "resource: resource, value: dtype",
     .attrs = "dtype: type",
     .flags = OP_STATEFUL,
     .shape = shape_assign_variable,
     .kernels = assign_sub_resource_kernels},
    {.name = "VarIsInitializedOp",
     .in = "resource: resource",
     .out = "is_initialized: bool",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = is_initialized_kernels},
    {.name = "VariableShape",
     .in = "input: resource",
     .out = "output: out_type",
     .attrs = "out_type: {int32, int64} = int32",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_variable_shape,
     .kernels = variable_shape_kernels},
    {.name = "DisableCopyOnRead",
     .in = "resource: resource",
     .flags = OP_STATEFUL,
     .kernels = disable_copy_on_read_kernels},
    {.name = "ResourceCountUpTo",
     .in = "resource: resource",
     .out = "output: T",
     .attrs = "limit: int; T: {int32, int64}",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = count_kernels},
};
OP_FAMILY(variables, rows);

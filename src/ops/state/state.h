/* What the families of stateful ops share: reaching variables by reference or by handle, holding several of them
 * locked, arithmetic on rows in place, names of resources, and the two kinds of handles. */
#ifndef OPS_STATE_STATE_H
#define OPS_STATE_STATE_H

#include "base/mem.h"
#include "base/pool.h"
#include "graph/shape_fn.h"
#include "runtime/kernel.h"

/* ---- variables as inputs ---- */

enum { STATE_MAX_VARS = 4 };

/* The first n inputs of a kernel as variables, whichever kind they are; locked for writing in order of address,
 * each once. */
struct state_vars {
  struct variable *v[STATE_MAX_VARS]; /* by input; a reference is held */
  int n;
  bool locked;
};
/* missing (optional) replaces the error for a handle that names nothing. */
shoal_status state_vars_get(struct kernel_ctx *ctx, int n, const char *missing, struct state_vars *out);
void state_vars_lock(struct state_vars *s);
/* Unlocks and drops the references. */
void state_vars_release(struct state_vars *s);
/* With the lock held: a variable whose rows are about to be changed in place. Its buffer is ours alone afterwards, and
 * a resource variable's readers copy from now on. */
shoal_status state_sparse_access(struct kernel_ctx *ctx, int input, struct variable *v);
static inline bool state_is_ref(const struct kernel_ctx *ctx, int i) { return dtype_is_ref(ctx->kernel->in_types[i]); }
/* The kernel's reference output, where it has one, is the variable of input 0. */
static inline void state_forward_ref(struct kernel_ctx *ctx, struct variable *v) {
  if (ctx->kernel->n_out) ctx_set_ref(ctx, 0, v);
}
/* With the lock held: the value becomes *value, sharing its buffer unless that would pin memory of another kind. */
shoal_status state_set_value(struct variable *v, const struct tensor *value);

/* ---- arithmetic in place ---- */

enum update { UPDATE_SET, UPDATE_ADD, UPDATE_SUB, UPDATE_MUL, UPDATE_DIV, UPDATE_MIN, UPDATE_MAX, UPDATE_COUNT };
typedef void (*update_fn)(shoal_dtype dtype, void *to, const void *by, int64_t n);
/* NULL when there is none for the type. */
update_fn update_find(enum update op, shoal_dtype dtype);
#define UPDATE_NUMBERS (DT_NUMBER)
/* to[i] op= by[i] over n elements, on the pool when there are many. */
void update_run(struct pool *p, update_fn fn, shoal_dtype dtype, void *to, const void *by, int64_t n);

/* Element i of an int32 or int64 tensor. */
static inline int64_t index_at(const struct tensor *t, int64_t i) {
  return t->dtype == SHOAL_INT32 ? T_DATA(t, const int32_t)[i] : T_DATA(t, const int64_t)[i];
}
/* "[1,0]": where flat element i is, for errors ("" for scalars); one of a few thread-local buffers. */
const char *index_place(const struct tensor *t, int64_t i);
/* "[3,1]": the n integers from element `first` on. */
const char *index_values(const struct tensor *t, int64_t first, int64_t n);

/* Copies n tensors of one type into out, one after the other: tensor i to element offset[i], or, when they are all of
 * one size, offset NULL. An invalid tensor leaves its place alone. */
void tensors_join(struct pool *p, const struct tensor *from, int64_t n, const int64_t *offset, struct tensor *out);

/* ---- names ---- */

/* The container and name that a node's attributes give; without a shared name the node's own name, or a name that
 * only this node in this session has ("_0_queue") when private_name: *is_private then says so, and
 * state_name_drop() must be called. The caller frees container and name. */
shoal_status state_name(const struct kernel_init *ki, bool private_name, char **container, char **name,
                        bool *is_private);
/* True when no kernel uses the private name any more. */
bool state_name_drop(const char *name);

/* ---- handles of both generations ----
 *
 * V1 ops hand on a reference to a string tensor [container, name]; V2 ops a DT_RESOURCE scalar. A kernel that
 * makes a resource keeps one of these as its state's head. */
struct state_maker {
  const struct resource_type *type;
  struct resource_entry *entry;
  struct resource_mgr *mgr;
  char *container, *name;
  bool is_private;      /* removed with the last kernel of that node */
  struct variable *ref; /* V1: the string tensor */
  struct tensor handle; /* V2 */
};
shoal_status state_maker_init(struct state_maker *m, struct kernel_init *ki, const struct resource_type *type,
                              bool private_name);
void state_maker_release(struct state_maker *m);
/* Finds or makes, and sets output 0 to the handle. out (optional) gets a reference. */
shoal_status state_maker_run(struct state_maker *m, struct kernel_ctx *ctx,
                             shoal_status (*make)(void *arg, struct resource **out), void *arg, struct resource **out);
/* The resource behind a handle input of either kind. */
shoal_status state_from_handle(struct kernel_ctx *ctx, int i, const struct resource_type *type, struct resource **out);

/* What two partly known shapes say together, with the words TensorFlow's kernels have when they cannot be one. */
shoal_status state_merge_shapes(const struct shape *a, const struct shape *b, struct shape *out);

/* ---- shape functions ---- */

shoal_status shape_handle_v1(struct shape_ctx *c); /* [2] */

#endif

/* The TensorArray ops in their three generations. They differ in the handle alone: V3 a resource, V2 a string tensor
 * [container, name], V1 a reference to one. The arrays live with the step.
 *
 * Those of V3 are on every type of device, with their elements in its memory: they are joined and cleared by the device
 * (copy, zero), and parts are views. What is written twice in an array of gradients is added up in host memory: that is
 * rare. The flow's value means nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gradient.h"
#include "ops/state/tensor_array.h"

static const char arrays[] = "_tensor_arrays", grads[] = "_tensor_array_grads";

/* ---- handles ---- */

/* The array's full name, container and all, as the step's resources know it. */
static shoal_status handle_name(struct kernel_ctx *ctx, char **out) {
  const struct tensor *in = ctx_in(ctx, 0);
  struct tensor held = tensor_none();
  if (state_is_ref(ctx, 0)) {
    variable_read(ctx_ref(ctx, 0), &held);
    in = &held;
  }
  shoal_status s = NULL;
  if (tensor_valid(in) && in->dtype == SHOAL_RESOURCE) {
    const struct resource_handle *h = resource_handle_of(in);
    if (h) *out = mem_strdup(h->name);
    else s = INVALID("Empty resource handle");
  } else if (!tensor_valid(in) || in->n != 2) {
    s = INVALID("Tensor array handle must be 2-element vector, but had %d dimensions", in->rank);
  } else {
    const struct str *p = T_DATA(in, const struct str);
    *out = mem_printf("%.*s%.*s", (int)p[0].size, str_data(&p[0]), (int)p[1].size, str_data(&p[1]));
  }
  if (tensor_valid(&held)) tensor_release(&held);
  return s;
}

static shoal_status find(struct kernel_ctx *ctx, struct tensor_array **out) {
  struct resource *r;
  /* A name may be a constant, of which the op would be folded. */
  if (!ctx->step->step_resources) return NOT_FOUND("a TensorArray is of a step, and none runs");
  if (!state_is_ref(ctx, 0) && ctx_in(ctx, 0)->dtype == SHOAL_RESOURCE) {
    TRY(resource_from_handle(ctx->step->step_resources, ctx_in(ctx, 0), &tensor_array_type, &r));
  } else {
    char *name;
    TRY(handle_name(ctx, &name));
    shoal_status s = resource_find(ctx->step->step_resources, "", &tensor_array_type, name, &r);
    free(name);
    if (s) return s;
  }
  *out = (struct tensor_array *)r;
  return NULL;
}

/* Sets the outputs of an op that makes an array: the handle, and the flow where there is one. */
static shoal_status set_handle(struct kernel_ctx *ctx, const char *container, const char *name) {
  struct tensor t, *flow;
  bool is_ref = dtype_is_ref(ctx->kernel->out_types[0]);
  if (ctx_out_type(ctx, 0) == SHOAL_RESOURCE) {
    char *full = mem_printf("%s%s", container, name);
    shoal_status s =
        resource_handle_tensor(ctx->step->step_resources, ctx->kernel->device->name, "", full, &tensor_array_type, &t);
    free(full);
    if (s) return s;
  } else {
    TRY(tensor_new_dims(&t, SHOAL_STRING, 1, (int64_t[]){2}));
    str_set(&T_DATA(&t, struct str)[0], container, strlen(container));
    str_set(&T_DATA(&t, struct str)[1], name, strlen(name));
  }
  if (is_ref) {
    struct shape two = shape_vector(2);
    struct variable *v = variable_new(ctx->kernel->name, SHOAL_STRING, &two);
    tensor_move(&v->value, &t);
    ctx_set_ref(ctx, 0, v);
    variable_unref(v);
  } else {
    ctx_set(ctx, 0, &t);
  }
  if (ctx->kernel->n_out < 2) return NULL;
  TRY(ctx_out_dims(ctx, 1, 0, NULL, &flow));
  struct device *d = flow->buffer->device;
  if (d) d->type->ops->zero(d, flow);
  else *T_DATA(flow, float) = 0;
  return NULL;
}

static shoal_status set_flow(struct kernel_ctx *ctx) { return ctx_forward(ctx, 0, ctx->kernel->n_in - 1, NULL); }

/* ---- making ---- */

struct array_maker {
  shoal_dtype dtype;
  struct shape element_shape;
  bool dynamic, clear_after_read, identical_shapes;
  char *name;
};

static shoal_status maker_init(struct kernel_init *ki, void *state) {
  struct array_maker *st = state;
  const char *name;
  TRY(node_get_type(ki->node, "dtype", &st->dtype));
  TRY(node_get_shape(ki->node, "element_shape", &st->element_shape));
  TRY(node_get_bool(ki->node, "dynamic_size", &st->dynamic));
  TRY(node_get_bool(ki->node, "clear_after_read", &st->clear_after_read));
  if (node_attr(ki->node, "identical_element_shapes"))
    TRY(node_get_bool(ki->node, "identical_element_shapes", &st->identical_shapes));
  TRY(node_get_string(ki->node, "tensor_array_name", &name));
  st->name = mem_strdup(*name ? name : ki->node->name);
  return NULL;
}

static void maker_release(void *state) { free(((struct array_maker *)state)->name); }

static struct device *memory_of(const struct kernel_ctx *ctx) {
  struct device *d = ctx->kernel->device;
  return d->type->host ? NULL : d;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  static _Atomic uint64_t numbers;
  struct array_maker *st = ctx->state;
  const struct tensor *size = ctx_in(ctx, 0);
  if (size->rank != 0) {
    struct shape shape = tensor_shape(size);
    return INVALID("TensorArray size must be scalar, but had shape: %s", shape_str(&shape));
  }
  int32_t n = *T_DATA(size, const int32_t);
  if (n < 0) return INVALID("Size should be >= 0.");
  if (n > 1 << 28) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "A TensorArray of %d elements is too large", n);
  char *name = mem_printf("%s_%llu", st->name, (unsigned long long)atomic_fetch_add(&numbers, 1));
  char *full = mem_printf("%s%s", arrays, name);
  struct tensor_array *a = tensor_array_new(name, memory_of(ctx), st->dtype, &st->element_shape, n);
  a->dynamic = st->dynamic;
  a->clear_after_read = st->clear_after_read;
  a->identical_shapes = st->identical_shapes;
  shoal_status s = resource_add(ctx->step->step_resources, "", full, &a->head);
  if (s) resource_unref(&a->head);
  else s = set_handle(ctx, arrays, name);
  free(full);
  free(name);
  return s;
}

struct grad_maker {
  char *source;
};

static shoal_status grad_maker_init(struct kernel_init *ki, void *state) {
  const char *source;
  TRY(node_get_string(ki->node, "source", &source));
  ((struct grad_maker *)state)->source = mem_strdup(source);
  return NULL;
}

static void grad_maker_release(void *state) { free(((struct grad_maker *)state)->source); }

struct grad_making {
  struct tensor_array *of;
  const char *name;
  struct shape prefix;
};

/* With the forward array locked. */
static shoal_status make_grad(void *arg, struct resource **out) {
  struct grad_making *m = arg;
  struct tensor_array *of = m->of;
  struct shape element = of->element_shape;
  if (m->prefix.rank) {
    element = m->prefix;
    if (of->element_shape.rank < 0 || m->prefix.rank + of->element_shape.rank > SHOAL_MAX_RANK)
      element = shape_unknown();
    for (int d = 0; element.rank >= 0 && d < of->element_shape.rank; d++)
      element.dims[element.rank++] = of->element_shape.dims[d];
  }
  struct tensor_array *a = tensor_array_new(m->name, of->device, of->dtype, &element, (int32_t)of->items.n);
  a->aggregate = a->is_grad = a->clear_after_read = true;
  a->identical_shapes = of->identical_shapes;
  a->marked_size = of->marked_size;
  tensor_array_copy_shapes(a, of, &m->prefix);
  *out = &a->head;
  return NULL;
}

static shoal_status grad_maker_run(struct kernel_ctx *ctx) {
  struct grad_maker *st = ctx->state;
  struct grad_making m = {.prefix = shape_scalar()};
  if (ctx->kernel->n_in > 2) TRY(tensor_get_shape(ctx_in(ctx, 2), false, &m.prefix));
  char *of_name;
  TRY(handle_name(ctx, &of_name));
  if (!str_starts(of_name, arrays) || str_starts(of_name, grads)) {
    shoal_status s = INVALID("Wrong input container. %s", of_name);
    free(of_name);
    return s;
  }
  char *name = mem_printf("%s@%s", of_name + strlen(arrays), st->source), *full = mem_printf("%s%s", grads, name);
  m.name = name;
  shoal_status s = find(ctx, &m.of);
  if (!s) {
    struct resource *r;
    pthread_mutex_lock(&m.of->lock);
    m.of->dynamic = false;
    s = tensor_array_check_open(m.of);
    if (!s && m.of->no_gradients)
      s = INVALID(
          "Unable to create a gradients TensorArray for %s.  Perhaps you used the multiple_writes_aggregate flag on "
          "a previous write?  Gradient calculation is impossible when multiple writes are performed to the same "
          "index.",
          m.of->name);
    if (!s) s = resource_find_or_make(ctx->step->step_resources, "", &tensor_array_type, full, make_grad, &m, &r);
    pthread_mutex_unlock(&m.of->lock);
    resource_unref(&m.of->head);
    if (!s) resource_unref(r);
  }
  if (!s) s = set_handle(ctx, grads, name);
  free(name);
  free(full);
  free(of_name);
  return s;
}

/* ---- one element ---- */

static shoal_status check_index(const struct tensor *index) {
  struct shape shape = tensor_shape(index);
  return index->rank == 0 ? NULL : INVALID("TensorArray index must be scalar, but had shape: %s", shape_str(&shape));
}

/* Ops are placed with their array; a graph may say otherwise. */
static shoal_status elsewhere(const struct tensor_array *a) {
  return INVALID("TensorArray %s is used on another device than it was made on", a->name);
}

static shoal_status check_write_type(const struct tensor_array *a, const struct tensor *value) {
  if ((shoal_dtype)value->dtype != a->dtype)
    return INVALID("TensorArray dtype is %s but Op is trying to write dtype %s.", dtype_tf_name(a->dtype),
                   dtype_tf_name(value->dtype));
  return value->buffer->device == a->device ? NULL : elsewhere(a);
}

static shoal_status check_read_type(const struct kernel_ctx *ctx, const struct tensor_array *a) {
  if (ctx_out_type(ctx, 0) != a->dtype)
    return INVALID("TensorArray dtype is %s but Op requested dtype %s.", dtype_tf_name(a->dtype),
                   dtype_tf_name(ctx_out_type(ctx, 0)));
  return ctx_out_memory(ctx, 0) == a->device ? NULL : elsewhere(a);
}

static shoal_status add_up(struct tensor_array *a, const struct tensor *x, const struct tensor *y, struct tensor *sum) {
  struct tensor in_host[2] = {tensor_none(), tensor_none()};
  shoal_status s = device_to_host(x, &in_host[0]);
  if (!s) s = device_to_host(y, &in_host[1]);
  if (!s) {
    update_run(NULL, update_find(UPDATE_ADD, a->dtype), a->dtype, in_host[0].data, in_host[1].data, x->n);
    s = a->device->type->ops->from_host(a->device, a->name, &in_host[0], sum);
  }
  for (int i = 0; i < 2; i++) tensor_release(&in_host[i]);
  return s;
}

/* Call with the lock held; it is let go while a device adds. */
static shoal_status write_one(struct kernel_ctx *ctx, struct tensor_array *a, int64_t index,
                              const struct tensor *value) {
  for (;;) {
    struct tensor taken, sum;
    TRY(tensor_array_write(a, ctx_pool(ctx), index, value, &taken));
    if (!tensor_valid(&taken)) return NULL;
    pthread_mutex_unlock(&a->lock);
    shoal_status s = add_up(a, &taken, value, &sum);
    pthread_mutex_lock(&a->lock);
    bool done = s || tensor_array_replace(a, index, &taken, &sum);
    if (!s && !done) tensor_release(&sum);
    tensor_release(&taken);
    if (done) return s;
  }
}

static shoal_status write_run(struct kernel_ctx *ctx) {
  const struct tensor *index = ctx_in(ctx, 1), *value = ctx_in(ctx, 2);
  struct tensor_array *a;
  TRY(check_index(index));
  TRY(find(ctx, &a));
  shoal_status s = check_write_type(a, value);
  if (!s) {
    pthread_mutex_lock(&a->lock);
    s = write_one(ctx, a, *T_DATA(index, const int32_t), value);
    pthread_mutex_unlock(&a->lock);
  }
  resource_unref(&a->head);
  return s ? s : set_flow(ctx);
}

static shoal_status read_run(struct kernel_ctx *ctx) {
  const struct tensor *index = ctx_in(ctx, 1);
  struct tensor_array *a;
  struct tensor value;
  TRY(check_index(index));
  TRY(find(ctx, &a));
  shoal_status s = check_read_type(ctx, a);
  if (!s) {
    pthread_mutex_lock(&a->lock);
    s = tensor_array_read(a, *T_DATA(index, const int32_t), &value);
    pthread_mutex_unlock(&a->lock);
  }
  resource_unref(&a->head);
  if (!s) ctx_set(ctx, 0, &value);
  return s;
}

/* ---- many at once ---- */

struct shaped {
  struct shape element_shape;
};

static shoal_status gather_init(struct kernel_init *ki, void *state) {
  return node_get_shape(ki->node, "element_shape", &((struct shaped *)state)->element_shape);
}

static shoal_status concat_init(struct kernel_init *ki, void *state) {
  return node_get_shape(ki->node, "element_shape_except0", &((struct shaped *)state)->element_shape);
}

static void release_all(struct tensor *at, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (tensor_valid(&at[i])) tensor_release(&at[i]);
  free(at);
}

/* Reads n elements (indices NULL: the first n). */
static shoal_status read_many(struct tensor_array *a, const int32_t *indices, int64_t n, struct tensor **out) {
  struct tensor *at = mem_zalloc((size_t)MAX(n, 1), sizeof *at);
  shoal_status s = NULL;
  for (int64_t i = 0; i < n && !s; i++) s = tensor_array_read(a, indices ? indices[i] : i, &at[i]);
  if (s) release_all(at, n);
  else *out = at;
  return s;
}

static shoal_status empty_out(struct kernel_ctx *ctx, const struct shape *element, const char *what,
                              const char *doing) {
  if (!shape_known(element))
    return UNIMPLEMENTED(
        "TensorArray has size zero, but %s %s is not fully defined. Currently only static shapes are "
        "supported when %s zero-size TensorArrays.",
        what, shape_str(element), doing);
  struct shape s = {.rank = element->rank + 1};
  if (s.rank > SHOAL_MAX_RANK) return INVALID("The result would have too many dimensions");
  for (int d = 0; d < element->rank; d++) s.dims[d + 1] = element->dims[d];
  struct tensor *out;
  return ctx_out(ctx, 0, &s, &out);
}

static shoal_status gather_values(struct kernel_ctx *ctx, const struct tensor *at, int64_t n,
                                  const struct shape *want) {
  struct shape first = tensor_shape(&at[0]), s = {.rank = first.rank + 1, .dims = {n}};
  if (!shape_compatible(want, &first))
    return INVALID("TensorArray was passed element_shape %s which does not match the Tensor at index 0: %s",
                   shape_str(want), shape_str(&first));
  if (s.rank > SHOAL_MAX_RANK) return INVALID("The result would have too many dimensions");
  for (int d = 0; d < first.rank; d++) s.dims[d + 1] = first.dims[d];
  for (int64_t i = 1; i < n; i++) {
    if (tensor_same_shape(&at[0], &at[i])) continue;
    struct shape other = tensor_shape(&at[i]);
    return INVALID("TensorArray has inconsistent shapes.  Index 0 has shape: %s but index %" PRId64 " has shape: %s",
                   shape_str(&first), i, shape_str(&other));
  }
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &s, &out));
  tensors_join(ctx_pool(ctx), at, n, NULL, out);
  return NULL;
}

/* Gather, and Pack, which takes all. */
static shoal_status gather_run(struct kernel_ctx *ctx) {
  struct shaped *st = ctx->state;
  bool pack = op_is(ctx->kernel->op, "TensorArrayPack");
  const struct tensor *indices = pack ? NULL : ctx_in(ctx, 1);
  if (indices && indices->rank != 1) {
    struct shape shape = tensor_shape(indices);
    return INVALID("Expected indices to be a vector, but received shape: %s", shape_str(&shape));
  }
  struct tensor_array *a;
  TRY(find(ctx, &a));
  int64_t n = 0;
  struct tensor *at = NULL;
  shoal_status s = check_read_type(ctx, a);
  pthread_mutex_lock(&a->lock);
  if (!s) s = tensor_array_check_open(a);
  if (!s) {
    struct shape merged;
    s = state_merge_shapes(&a->element_shape, &st->element_shape, &merged);
    if (!s) a->element_shape = merged;
  }
  if (!s) {
    n = indices ? indices->n : tensor_array_pack_size(a);
    if (n) s = read_many(a, indices ? T_DATA(indices, const int32_t) : NULL, n, &at);
  }
  pthread_mutex_unlock(&a->lock);
  resource_unref(&a->head);
  if (s) return s;
  if (!n) return empty_out(ctx, &st->element_shape, "element shape", "packing");
  s = gather_values(ctx, at, n, &st->element_shape);
  release_all(at, n);
  return s;
}

static shoal_status concat_values(struct kernel_ctx *ctx, const struct tensor *at, int64_t n,
                                  const struct shape *want) {
  struct shape s = shape_scalar();
  struct tensor *out, *lengths;
  TRY(ctx_out_dims(ctx, 1, 1, &n, &lengths));
  int64_t *offset = mem_alloc((size_t)n * sizeof *offset), total = 0;
  shoal_status st = NULL;
  for (int64_t i = 0; i < n && !st; i++) {
    if (at[i].rank == 0) {
      st = INVALID("Concat saw a scalar shape at index %" PRId64
                   " but requires at least vectors.  Did you mean to call "
                   "pack?",
                   i);
      break;
    }
    T_DATA(lengths, int64_t)[i] = at[i].dims[0];
    offset[i] = total;
    total += at[i].n;
    struct shape rest = {.rank = at[i].rank - 1};
    for (int d = 0; d < rest.rank; d++) rest.dims[d] = at[i].dims[d + 1];
    if (i == 0) {
      s = rest;
      if (!shape_compatible(want, &rest))
        st = INVALID(
            "TensorArray was passed element_shape_except0 %s but index 0 has (excepting dimension 0) shape: %s "
            "which does not match.",
            shape_str(want), shape_str(&rest));
    } else if (!shape_equal(&s, &rest)) {
      st = INVALID(
          "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: %s but index %" PRId64
          " has (excepting dimension 0) shape: %s",
          shape_str(&s), i, shape_str(&rest));
    }
  }
  if (!st) {
    memmove(s.dims + 1, s.dims, (size_t)s.rank * sizeof *s.dims);
    s.rank++;
    s.dims[0] = 0;
    for (int64_t i = 0; i < n; i++) s.dims[0] += at[i].dims[0];
    st = ctx_out(ctx, 0, &s, &out);
  }
  if (!st) tensors_join(ctx_pool(ctx), at, n, offset, out);
  free(offset);
  return st;
}

static shoal_status concat_run(struct kernel_ctx *ctx) {
  struct shaped *st = ctx->state;
  struct tensor_array *a;
  TRY(find(ctx, &a));
  struct tensor *at = NULL, *lengths;
  int64_t n = 0;
  shoal_status s = check_read_type(ctx, a);
  pthread_mutex_lock(&a->lock);
  if (!s) s = tensor_array_check_open(a);
  if (!s) {
    n = tensor_array_pack_size(a);
    if (n) s = read_many(a, NULL, n, &at);
  }
  pthread_mutex_unlock(&a->lock);
  resource_unref(&a->head);
  if (s) return s;
  if (!n) {
    TRY(ctx_out_dims(ctx, 1, 1, &n, &lengths));
    return empty_out(ctx, &st->element_shape, "element_shape_except0", "concatenating");
  }
  s = concat_values(ctx, at, n, &st->element_shape);
  release_all(at, n);
  return s;
}

/* Element i of a batch as a tensor of its own, sharing the batch's buffer. */
static void row_view(struct tensor *to, const struct tensor *from, int64_t begin, int64_t end, bool drop) {
  tensor_rows(to, from, begin, end);
  if (!drop) return;
  to->rank--;
  memmove(to->dims, to->dims + 1, to->rank * sizeof *to->dims);
}

/* Scatter, and Unpack, which writes all. */
static shoal_status scatter_run(struct kernel_ctx *ctx) {
  bool unpack = op_is(ctx->kernel->op, "TensorArrayUnpack");
  const struct tensor *indices = unpack ? NULL : ctx_in(ctx, 1), *value = ctx_in(ctx, unpack ? 1 : 2);
  struct shape shape = tensor_shape(value);
  if (value->rank < 1)
    return INVALID("Input value for unpack must be at least a vector but received shape: %s", shape_str(&shape));
  if (indices && indices->rank != 1) {
    shape = tensor_shape(indices);
    return INVALID("Expected indices to be a vector, but received shape: %s", shape_str(&shape));
  }
  if (indices && indices->n != value->dims[0])
    return INVALID("Expected len(indices) == values.shape[0], but saw: %" PRId64 " vs. %" PRId64, indices->n,
                   value->dims[0]);
  int64_t n = value->dims[0], top = indices ? -1 : n - 1;
  for (int64_t i = 0; indices && i < n; i++) top = MAX(top, index_at(indices, i));
  struct tensor_array *a;
  TRY(find(ctx, &a));
  shoal_status s = check_write_type(a, value);
  pthread_mutex_lock(&a->lock);
  if (!s) s = tensor_array_check_open(a);
  int64_t size = a->dynamic ? MAX((int64_t)a->items.n, top + 1) : (int64_t)a->items.n;
  if (!s && unpack && n != size)
    s = INVALID("Input value must have first dimension equal to the array size (%" PRId64 " vs. %" PRId64 ")", n, size);
  if (!s && top >= size) s = INVALID("Max scatter index must be < array size (%" PRId64 " vs. %" PRId64 ")", top, size);
  if (!s && unpack && !a->is_grad) a->marked_size = (int32_t)size;
  for (int64_t i = 0; i < n && !s; i++) {
    struct tensor row;
    row_view(&row, value, i, i + 1, true);
    s = write_one(ctx, a, indices ? index_at(indices, i) : i, &row);
    tensor_release(&row);
  }
  pthread_mutex_unlock(&a->lock);
  resource_unref(&a->head);
  return s ? s : set_flow(ctx);
}

static shoal_status split_run(struct kernel_ctx *ctx) {
  const struct tensor *value = ctx_in(ctx, 1), *lengths = ctx_in(ctx, 2);
  struct shape vs = tensor_shape(value), ls = tensor_shape(lengths);
  if (lengths->rank != 1) return INVALID("Expected lengths to be a vector, received shape: %s", shape_str(&ls));
  if (value->rank < 1) return INVALID("Expected value to be at least a vector, but received shape: %s", shape_str(&vs));
  int64_t n = lengths->n, total = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t len = index_at(lengths, i);
    if (len < 0) return INVALID("Expected lengths to be >= 0, but lengths[%" PRId64 "] is %" PRId64, i, len);
    if (__builtin_add_overflow(total, len, &total)) return INVALID("The sum of lengths overflows");
  }
  if (total != value->dims[0])
    return INVALID("Expected sum of lengths to be equal to values.shape[0], but sum of lengths is %" PRId64
                   " and value's shape is: %s",
                   total, shape_str(&vs));
  struct tensor_array *a;
  TRY(find(ctx, &a));
  shoal_status s = check_write_type(a, value);
  pthread_mutex_lock(&a->lock);
  if (!s) s = tensor_array_check_open(a);
  int64_t size = a->dynamic ? MAX((int64_t)a->items.n, n) : (int64_t)a->items.n;
  if (!s && size != n)
    s = INVALID("TensorArray's size is not equal to the size of lengths (%" PRId64 " vs. %" PRId64
                "), and the TensorArray "
                "is not marked as dynamically resizeable",
                size, n);
  if (!s && !a->is_grad) a->marked_size = (int32_t)size;
  int64_t at = 0;
  for (int64_t i = 0; i < n && !s; i++) {
    struct tensor part;
    row_view(&part, value, at, at + index_at(lengths, i), false);
    at += index_at(lengths, i);
    s = write_one(ctx, a, i, &part);
    tensor_release(&part);
  }
  pthread_mutex_unlock(&a->lock);
  resource_unref(&a->head);
  return s ? s : set_flow(ctx);
}

static shoal_status size_run(struct kernel_ctx *ctx) {
  struct tensor_array *a;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(find(ctx, &a));
  pthread_mutex_lock(&a->lock);
  shoal_status s = tensor_array_check_open(a);
  *T_DATA(out, int32_t) = (int32_t)a->items.n;
  pthread_mutex_unlock(&a->lock);
  resource_unref(&a->head);
  return s;
}

static shoal_status close_run(struct kernel_ctx *ctx) {
  struct tensor_array *a;
  TRY(find(ctx, &a));
  pthread_mutex_lock(&a->lock);
  a->closed = true;
  for (size_t i = 0; i < a->items.n; i++)
    if (tensor_valid(&a->items.at[i].t)) tensor_release(&a->items.at[i].t);
  a->items.n = 0;
  pthread_mutex_unlock(&a->lock);
  resource_unref(&a->head);
  return NULL;
}

/* ---- on devices ---- */

struct later {
  struct kernel_ctx *ctx;
  shoal_status (*run)(struct kernel_ctx *ctx);
};

static void run_later(void *arg) {
  struct later l = *(struct later *)arg;
  free(arg);
  ctx_done(l.ctx, l.run(l.ctx));
}

/* Who adds waits for the device, and this thread may be one that it tells things by. */
static void start_write(struct kernel_ctx *ctx, shoal_status (*run)(struct kernel_ctx *ctx)) {
  struct tensor_array *a;
  shoal_status s = find(ctx, &a);
  bool adds = !s && a->aggregate && ctx->step->inter;
  if (!s) resource_unref(&a->head);
  if (!adds) {
    ctx_done(ctx, s ? s : run(ctx));
    return;
  }
  struct later *l = mem_alloc(sizeof *l);
  *l = (struct later){ctx, run};
  pool_submit(ctx->step->inter, run_later, l);
}

static void write_start(struct kernel_ctx *ctx) { start_write(ctx, write_run); }
static void scatter_start(struct kernel_ctx *ctx) { start_write(ctx, scatter_run); }
static void split_start(struct kernel_ctx *ctx) { start_write(ctx, split_run); }

/* ---- gradients: the same op on the array of gradients, which is found by the handle and the name of this call ---- */

/* The part of a node's name up to its last scope "gradients...": distinct for each call for gradients. */
static void grad_source(const struct shoal_node *n, struct build *b) {
  const char *end = NULL;
  for (const char *p = n->name; p; p = strchr(p, '/')) {
    if (*p == '/') p++;
    if (str_starts(p, "gradients")) end = p + strcspn(p, "/");
  }
  char *source = end ? mem_strndup(n->name, (size_t)(end - n->name)) : mem_strdup("gradients");
  build_attr_string(b, "source", source);
  free(source);
}

struct grad_array {
  shoal_out handle, flow;
};

static struct grad_array grad_array(struct grad_ctx *c, shoal_out handle, shoal_out flow, shoal_out dy) {
  struct build b = build_begin(c->g, "TensorArrayGradV3", NULL);
  build_in(&b, handle);
  build_in(&b, flow);
  if (dy.node) grad_source(dy.node, &b);
  else build_attr_string(&b, "source", "gradients");
  struct shoal_node *n = build_end(&b);
  if (!n) return (struct grad_array){0};
  b = build_begin(c->g, "Identity", "gradient_flow");
  build_in(&b, flow);
  build_control(&b, n);
  return (struct grad_array){node_out(n, 0), build_end_out(&b)};
}

static shoal_out grad_use(struct shoal_graph *g, const char *op, const shoal_out *in, int n, shoal_dtype dtype) {
  struct build b = build_begin(g, op, NULL);
  for (int i = 0; i < n; i++) build_in(&b, in[i]);
  if (dtype) build_attr_type(&b, "dtype", dtype);
  return build_end_out(&b);
}

static shoal_status grad_read(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  struct grad_array a = grad_array(c, gin(c, 0), gin(c, 2), dy);
  grad_set(c, 2, grad_use(c->g, "TensorArrayWriteV3", (shoal_out[]){a.handle, gin(c, 1), dy, a.flow}, 4, 0));
  return NULL;
}

static shoal_status grad_write(struct grad_ctx *c) {
  shoal_out flow = grad_dy(c, 0);
  struct grad_array a = grad_array(c, gin(c, 0), flow, flow);
  grad_set(c, 2,
           grad_use(c->g, "TensorArrayReadV3", (shoal_out[]){a.handle, gin(c, 1), a.flow}, 3, out_type(gin(c, 2))));
  grad_set(c, 3, flow);
  return NULL;
}

static shoal_status grad_gather(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  struct grad_array a = grad_array(c, gin(c, 0), gin(c, 2), dy);
  grad_set(c, 2, grad_use(c->g, "TensorArrayScatterV3", (shoal_out[]){a.handle, gin(c, 1), dy, a.flow}, 4, 0));
  return NULL;
}

static shoal_status grad_scatter(struct grad_ctx *c) {
  shoal_out flow = grad_dy(c, 0);
  struct grad_array a = grad_array(c, gin(c, 0), flow, flow);
  grad_set(c, 2,
           grad_use(c->g, "TensorArrayGatherV3", (shoal_out[]){a.handle, gin(c, 1), a.flow}, 3, out_type(gin(c, 2))));
  grad_set(c, 3, flow);
  return NULL;
}

static shoal_status grad_concat(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  struct grad_array a = grad_array(c, gin(c, 0), gin(c, 1), dy);
  grad_set(c, 1, grad_use(c->g, "TensorArraySplitV3", (shoal_out[]){a.handle, dy, gout(c, 1), a.flow}, 4, 0));
  return NULL;
}

static shoal_status grad_split(struct grad_ctx *c) {
  shoal_out flow = grad_dy(c, 0);
  struct grad_array a = grad_array(c, gin(c, 0), flow, flow);
  grad_set(c, 1, grad_use(c->g, "TensorArrayConcatV3", (shoal_out[]){a.handle, a.flow}, 2, out_type(gin(c, 1))));
  grad_set(c, 3, flow);
  return NULL;
}

/* ---- rows ---- */

static shoal_status shape_made(struct shape_ctx *c) {
  c->out[0] = dtype_base(c->node->out_types[0]) == SHOAL_RESOURCE ? shape_scalar() : shape_vector(2);
  if (c->node->n_out > 1) c->out[1] = shape_scalar();
  return NULL;
}

/* One for handles by name, one for resources; in_, out_: what of the latter is in host memory. */
#define KERNEL(id, in_, out_, ...)                                                                                  \
  static const struct kernel_def                                                                                    \
      id##_named[] = {{.device = "CPU", __VA_ARGS__}, {0}},                                                         \
      id##_kernels[] = {{.device = "CPU", .flags = KERNEL_ANYWHERE, .host_in = in_, .host_out = out_, __VA_ARGS__}, \
                        {0}}
KERNEL(maker, 1, 0, .state_size = sizeof(struct array_maker), .init = maker_init, .release = maker_release,
       .run = maker_run);
KERNEL(grad, 4, 0, .state_size = sizeof(struct grad_maker), .init = grad_maker_init, .release = grad_maker_release,
       .run = grad_maker_run);
KERNEL(read, 2, 0, .run = read_run);
KERNEL(gather, 2, 0, .state_size = sizeof(struct shaped), .init = gather_init, .run = gather_run);
KERNEL(concat, 0, 2, .state_size = sizeof(struct shaped), .init = concat_init, .run = concat_run);
KERNEL(size, 0, 1, .run = size_run);
KERNEL(close, 0, 0, .run = close_run);
#define KERNEL_WRITES(id, in_)                                                                                         \
  static const struct kernel_def id##_named[] = {{.device = "CPU", .run = id##_run}, {0}},                             \
                                 id##_kernels[] = {                                                                    \
                                     {.device = "CPU", .run = id##_run},                                               \
                                     {.device = "CPU", .flags = KERNEL_ANYWHERE, .host_in = in_, .start = id##_start}, \
                                     {0}}
KERNEL_WRITES(write, 2);
KERNEL_WRITES(scatter, 2);
KERNEL_WRITES(split, 4);

/* The ops that use an array, for one kind of handle; G marks those with a gradient (V3, which the gradients are made
 * of). */
#define USE(v, H, flags_, G, K)                                                            \
  {.name = "TensorArrayWrite" v,                                                           \
   .in = "handle: " H ", index: int32, value: T, flow_in: float",                          \
   .out = "flow_out: float",                                                               \
   .attrs = "T: type",                                                                     \
   .flags = flags_,                                                                        \
   .shape = shape_scalar_out,                                                              \
   .grad = G(grad_write),                                                                  \
   .kernels = K(write)},                                                                   \
      {.name = "TensorArrayRead" v,                                                        \
       .in = "handle: " H ", index: int32, flow_in: float",                                \
       .out = "value: dtype",                                                              \
       .attrs = "dtype: type",                                                             \
       .flags = flags_,                                                                    \
       .grad = G(grad_read),                                                               \
       .kernels = K(read)},                                                                \
      {.name = "TensorArrayGather" v,                                                      \
       .in = "handle: " H ", indices: int32, flow_in: float",                              \
       .out = "value: dtype",                                                              \
       .attrs = "dtype: type; element_shape: shape = {}",                                  \
       .flags = flags_,                                                                    \
       .grad = G(grad_gather),                                                             \
       .kernels = K(gather)},                                                              \
      {.name = "TensorArrayScatter" v,                                                     \
       .in = "handle: " H ", indices: int32, value: T, flow_in: float",                    \
       .out = "flow_out: float",                                                           \
       .attrs = "T: type",                                                                 \
       .flags = flags_,                                                                    \
       .shape = shape_scalar_out,                                                          \
       .grad = G(grad_scatter),                                                            \
       .kernels = K(scatter)},                                                             \
      {.name = "TensorArrayConcat" v,                                                      \
       .in = "handle: " H ", flow_in: float",                                              \
       .out = "value: dtype, lengths: int64",                                              \
       .attrs = "dtype: type; element_shape_except0: shape = {}",                          \
       .flags = flags_,                                                                    \
       .grad = G(grad_concat),                                                             \
       .kernels = K(concat)},                                                              \
      {.name = "TensorArraySplit" v,                                                       \
       .in = "handle: " H ", value: T, lengths: int64, flow_in: float",                    \
       .out = "flow_out: float",                                                           \
       .attrs = "T: type",                                                                 \
       .flags = flags_,                                                                    \
       .shape = shape_scalar_out,                                                          \
       .grad = G(grad_split),                                                              \
       .kernels = K(split)},                                                               \
      {.name = "TensorArraySize" v,                                                        \
       .in = "handle: " H ", flow_in: float",                                              \
       .out = "size: int32",                                                               \
       .flags = (flags_) | OP_NO_GRADIENT,                                                 \
       .shape = shape_scalar_out,                                                          \
       .kernels = K(size)},                                                                \
  {                                                                                        \
    .name = "TensorArrayClose" v, .in = "handle: " H, .flags = flags_, .kernels = K(close) \
  }
#define YES(f) f
#define NO(f) NULL
#define BY_NAME(id) id##_named
#define BY_RESOURCE(id) id##_kernels
#define MAKE_ATTRS(identical)                                                                                   \
  "dtype: type; element_shape: shape = {}; dynamic_size: bool = false; clear_after_read: bool = true" identical \
  "; tensor_array_name: string = ''"
static const struct op_row rows[] = {
    {.name = "TensorArrayV3",
     .in = "size: int32",
     .out = "handle: resource, flow: float",
     .attrs = MAKE_ATTRS("; identical_element_shapes: bool = false"),
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = maker_kernels},
    {.name = "TensorArrayV2",
     .in = "size: int32",
     .out = "handle: string",
     .attrs = MAKE_ATTRS(""),
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = maker_named},
    {.name = "TensorArray",
     .in = "size: int32",
     .out = "handle: Ref(string)",
     .attrs = "dtype: type; dynamic_size: bool = false; clear_after_read: bool = true; tensor_array_name: string = ''; "
              "element_shape: shape = {}",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = maker_named},
    {.name = "TensorArrayGradV3",
     .in = "handle: resource, flow_in: float",
     .out = "grad_handle: resource, flow_out: float",
     .attrs = "source: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = grad_kernels},
    {.name = "TensorArrayGradV2",
     .in = "handle: string, flow_in: float",
     .out = "grad_handle: string",
     .attrs = "source: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = grad_named},
    {.name = "TensorArrayGrad",
     .in = "handle: string, flow_in: float",
     .out = "grad_handle: Ref(string)",
     .attrs = "source: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = grad_named},
    {.name = "TensorArrayGradWithShape",
     .in = "handle: resource, flow_in: float, shape_to_prepend: int32",
     .out = "grad_handle: resource, flow_out: float",
     .attrs = "source: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_made,
     .kernels = grad_kernels},
    USE("V3", "resource", OP_STATEFUL, YES, BY_RESOURCE),
    USE("V2", "string", 0, NO, BY_NAME),
    USE("", "Ref(string)", 0, NO, BY_NAME),
    {.name = "TensorArrayPack",
     .in = "handle: Ref(string), flow_in: float",
     .out = "value: dtype",
     .attrs = "dtype: type; element_shape: shape = {}",
     .kernels = gather_named},
    {.name = "TensorArrayUnpack",
     .in = "handle: Ref(string), value: T, flow_in: float",
     .out = "flow_out: float",
     .attrs = "T: type",
     .shape = shape_scalar_out,
     .kernels = scatter_named},
};
OP_FAMILY(tensor_array_ops, rows);

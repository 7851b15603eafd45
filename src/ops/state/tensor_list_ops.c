/* The TensorList ops. Each makes a new list from the old one, sharing the elements; where the old list is needed by
 * nobody else, it is changed in place, so that a loop that pushes n times takes n steps and not n squared. Elements cut
 * from a tensor share its buffer.
 *
 * They are on every type of device, with numbers in its memory: elements are joined and cleared by the device, which
 * the host does not wait for. Lists of strings and of variants are the CPU's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gradient.h"
#include "ops/array/array_util.h"
#include "ops/state/tensor_list.h"

enum { MAX_ITEMS = 1 << 28 };

/* ---- inputs and outputs ---- */

static shoal_status list_in(const struct kernel_ctx *ctx, int i, struct tensor_list **out) {
  const struct tensor *t = ctx_in(ctx, i);
  struct shape shape = tensor_shape(t);
  if (t->rank != 0) return INVALID("Input list must be a scalar saw: %s", shape_str(&shape));
  struct variant *v = *T_DATA(t, struct variant *);
  if (!v || v->type != &tensor_list_type)
    return INVALID("Input handle is not a list. Saw: '%s'", v ? v->type->name : "<empty>");
  *out = (struct tensor_list *)v;
  return NULL;
}

/* Output o becomes the list, whose reference is taken over. */
static shoal_status list_out(struct kernel_ctx *ctx, int o, struct tensor_list *l) {
  struct tensor *out;
  shoal_status s = ctx_out_dims(ctx, o, 0, NULL, &out);
  if (s) variant_unref(&l->head);
  else *T_DATA(out, struct variant *) = &l->head;
  return s;
}

/* Output o is a list like l, which came as input i, for the kernel to change: l itself when nobody else sees it. */
static shoal_status list_change(struct kernel_ctx *ctx, int i, int o, struct tensor_list *l, struct tensor_list **out) {
  const struct tensor *in = ctx_in(ctx, i);
  bool alone = i < 64 && (ctx->steal >> i & 1) && tensor_writable(in) && ref_count(&l->head.refs) == 1;
  if (alone) {
    *out = l;
    return ctx_forward(ctx, o, i, NULL);
  }
  *out = tensor_list_copy(l);
  return list_out(ctx, o, *out);
}

static shoal_status check_type(const struct kernel_ctx *ctx, shoal_dtype dtype, const struct tensor_list *l) {
  if (dtype == l->dtype) return NULL;
  return INVALID("Invalid data types; op elements %s but list elements %s", dtype_tf_name(dtype),
                 dtype_tf_name(l->dtype));
}

static shoal_status shape_of(const struct tensor *t, struct shape *out) {
  if (t->rank == 0 && t->n == 1 && index_at(t, 0) != -1)
    return INVALID("The only valid scalar shape tensor is the fully unknown shape specified as -1.");
  return tensor_get_shape(t, true, out);
}

/* What input i and the list say of the elements' shape together. */
static shoal_status merged_shape(const struct kernel_ctx *ctx, int i, const struct tensor_list *l, struct shape *out) {
  struct shape asked;
  TRY(shape_of(ctx_in(ctx, i), &asked));
  return state_merge_shapes(&asked, &l->element_shape, out);
}

static shoal_status int_in(const struct kernel_ctx *ctx, int i, const char *what, int64_t *out) {
  struct shape shape = tensor_shape(ctx_in(ctx, i));
  if (shape.rank != 0) return INVALID("%s expected to be a scalar but got shape: %s", what, shape_str(&shape));
  *out = index_at(ctx_in(ctx, i), 0);
  return NULL;
}

static shoal_status check_size(int64_t n) {
  if (n < 0) return INVALID("The num_elements to reserve must be a non negative number, but got %" PRId64, n);
  if (n > MAX_ITEMS) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "A TensorList of %" PRId64 " elements is too large", n);
  return NULL;
}

/* Row i of a tensor, or rows [begin, end). */
static void view(struct tensor *to, const struct tensor *from, int64_t begin, int64_t end, bool drop) {
  tensor_rows(to, from, begin, end);
  if (!drop) return;
  to->rank--;
  memmove(to->dims, to->dims + 1, to->rank * sizeof *to->dims);
}

static void put(struct tensor_list *l, int64_t i, const struct tensor *t) {
  struct tensor *at = &l->items.at[i], fresh;
  tensor_ref(&fresh, t);
  if (tensor_valid(at)) tensor_release(at);
  tensor_move(at, &fresh);
}

/* ---- memory ---- */

/* An element as output o is to have it. */
static shoal_status take(const struct kernel_ctx *ctx, int o, const struct tensor *item, struct tensor *out) {
  struct device *d = ctx->kernel->device, *is = item->buffer->device;
  if (is != ctx_out_memory(ctx, o)) {
    TRY(tensor_on_host(item));
    return d->type->ops->from_host(d, ctx->kernel->name, item, out);
  }
  tensor_ref(out, item);
  return NULL;
}

static void clear(struct tensor *t) {
  struct device *d = t->buffer->device;
  if (d) d->type->ops->zero(d, t);
  else tensor_zero(t);
}

static shoal_status new_zeros(const struct kernel_ctx *ctx, int o, shoal_dtype dtype, const struct shape *shape,
                              struct tensor *out) {
  if (ctx_out_memory(ctx, o)) TRY(device_tensor_new(ctx->kernel->device, ctx->kernel->name, dtype, shape, out));
  else TRY(tensor_new(out, dtype, shape));
  clear(out);
  return NULL;
}

static bool all_in(const struct tensor *items, int64_t n, const struct device *memory) {
  for (int64_t i = 0; i < n; i++)
    if (tensor_valid(&items[i]) && items[i].buffer->device != memory) return false;
  return true;
}

/* Output 0 is made of the elements that are set; offset as for tensors_join. */
static shoal_status join(const struct kernel_ctx *ctx, const struct tensor *items, int64_t n, const int64_t *offset,
                         struct tensor *out) {
  if (LIKELY(all_in(items, n, ctx_out_memory(ctx, 0)))) {
    tensors_join(ctx_pool(ctx), items, n, offset, out);
    return NULL;
  }
  struct tensor *here = mem_zalloc((size_t)n, sizeof *here);
  shoal_status s = NULL;
  for (int64_t i = 0; i < n && !s; i++)
    if (tensor_valid(&items[i])) s = take(ctx, 0, &items[i], &here[i]);
  if (!s) tensors_join(ctx_pool(ctx), here, n, offset, out);
  for (int64_t i = 0; i < n; i++)
    if (tensor_valid(&here[i])) tensor_release(&here[i]);
  free(here);
  return s;
}

struct op_state {
  shoal_dtype dtype;
  int64_t num_elements;
  struct shape element_shape;
  bool resize;
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct op_state *st = state;
  const struct shoal_node *n = ki->node;
  st->num_elements = -1;
  st->element_shape = shape_unknown();
  if (node_attr(n, "element_dtype")) TRY(node_get_type(n, "element_dtype", &st->dtype));
  if (node_attr(n, "num_elements")) TRY(node_get_int(n, "num_elements", &st->num_elements));
  if (node_attr(n, "element_shape")) TRY(node_get_shape(n, "element_shape", &st->element_shape));
  if (node_attr(n, "resize_if_index_out_of_bounds"))
    TRY(node_get_bool(n, "resize_if_index_out_of_bounds", &st->resize));
  return NULL;
}

static shoal_dtype dtype_of(const struct kernel_ctx *ctx) { return ((struct op_state *)ctx->state)->dtype; }

/* ---- making, asking ---- */

static shoal_status empty_run(struct kernel_ctx *ctx) {
  struct shape shape;
  int64_t max;
  TRY(int_in(ctx, 1, "max_num_elements", &max));
  TRY(shape_of(ctx_in(ctx, 0), &shape));
  struct tensor_list *l = tensor_list_new(dtype_of(ctx), &shape, 0);
  l->max = max;
  return list_out(ctx, 0, l);
}

static shoal_status reserve_run(struct kernel_ctx *ctx) {
  struct shape shape;
  int64_t n;
  TRY(shape_of(ctx_in(ctx, 0), &shape));
  TRY(int_in(ctx, 1, "num_elements", &n));
  TRY(check_size(n));
  return list_out(ctx, 0, tensor_list_new(dtype_of(ctx), &shape, n));
}

static shoal_status length_run(struct kernel_ctx *ctx) {
  struct tensor_list *l;
  struct tensor *out;
  TRY(list_in(ctx, 0, &l));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, int32_t) = (int32_t)l->items.n;
  return NULL;
}

static shoal_status element_shape_run(struct kernel_ctx *ctx) {
  struct tensor_list *l;
  struct tensor *out;
  TRY(list_in(ctx, 0, &l));
  const struct shape *s = &l->element_shape;
  TRY(ctx_out_dims(ctx, 0, s->rank < 0 ? 0 : 1, (int64_t[]){s->rank}, &out));
  for (int i = 0; i < (s->rank < 0 ? 1 : s->rank); i++) {
    int64_t d = s->rank < 0 ? -1 : s->dims[i];
    if (out->dtype == SHOAL_INT32) T_DATA(out, int32_t)[i] = (int32_t)d;
    else T_DATA(out, int64_t)[i] = d;
  }
  return NULL;
}

static shoal_status resize_run(struct kernel_ctx *ctx) {
  struct tensor_list *l, *out;
  int64_t n;
  TRY(list_in(ctx, 0, &l));
  TRY(int_in(ctx, 1, "size", &n));
  if (n < 0) return INVALID("TensorListSlice expects size to be non-negative. Got: %" PRId64, n);
  TRY(check_size(n));
  TRY(list_change(ctx, 0, 0, l, &out));
  tensor_list_resize(out, n);
  return NULL;
}

/* ---- one element ---- */

static shoal_status push_run(struct kernel_ctx *ctx) {
  struct tensor_list *l, *out;
  const struct tensor *t = ctx_in(ctx, 1);
  struct shape shape = tensor_shape(t);
  if ((shoal_dtype)t->dtype != dtype_of(ctx))
    return INVALID("Invalid data types; list elements %s but tried to append %s", dtype_tf_name(dtype_of(ctx)),
                   dtype_tf_name(t->dtype));
  TRY(list_in(ctx, 0, &l));
  if (!shape_compatible(&l->element_shape, &shape))
    return INVALID("Tried to append a tensor with incompatible shape to a list. Op element shape: %s list shape: %s",
                   shape_str(&shape), shape_str(&l->element_shape));
  TRY(check_type(ctx, dtype_of(ctx), l));
  if (l->max >= 0 && (int64_t)l->items.n >= l->max)
    return INVALID("Tried to push item into a full list list size: %zu max_num_elements: %" PRId64, l->items.n, l->max);
  TRY(list_change(ctx, 0, 0, l, &out));
  vec_push(&out->items, tensor_none());
  put(out, (int64_t)out->items.n - 1, t);
  return NULL;
}

/* Zeros in place of an element that was never set; its shape is known from somewhere, or from another element. */
static shoal_status zeros_for(const struct kernel_ctx *ctx, const struct tensor_list *l, int shape_input, int o,
                              struct tensor *out) {
  struct shape shape;
  TRY(merged_shape(ctx, shape_input, l, &shape));
  for (size_t i = 0; !shape_known(&shape) && i < l->items.n; i++) {
    if (!tensor_valid(&l->items.at[i])) continue;
    struct shape other = tensor_shape(&l->items.at[i]), both;
    TRY(state_merge_shapes(&shape, &other, &both));
    shape = both;
  }
  if (!shape_known(&shape))
    return INVALID(
        "Trying to read an uninitialized tensor but element_shape is not fully defined: %s and no list element "
        "is set.",
        shape_str(&shape));
  return new_zeros(ctx, o, l->dtype, &shape, out);
}

static shoal_status pop_run(struct kernel_ctx *ctx) {
  struct tensor_list *l, *out;
  struct tensor t;
  TRY(list_in(ctx, 0, &l));
  TRY(check_type(ctx, dtype_of(ctx), l));
  if (!l->items.n) return INVALID("Trying to pop from an empty list.");
  const struct tensor *last = &vec_last(&l->items);
  if (tensor_valid(last)) TRY(take(ctx, 1, last, &t));
  else TRY(zeros_for(ctx, l, 1, 1, &t));
  ctx_set(ctx, 1, &t);
  TRY(list_change(ctx, 0, 0, l, &out));
  tensor_list_resize(out, (int64_t)out->items.n - 1);
  return NULL;
}

static shoal_status get_run(struct kernel_ctx *ctx) {
  struct tensor_list *l;
  struct tensor t;
  int64_t i;
  TRY(list_in(ctx, 0, &l));
  TRY(check_type(ctx, dtype_of(ctx), l));
  TRY(int_in(ctx, 1, "index", &i));
  if (i < 0 || i >= (int64_t)l->items.n)
    return INVALID("Trying to access element %" PRId64 " in a list with %zu elements.", i, l->items.n);
  if (tensor_valid(&l->items.at[i])) TRY(take(ctx, 0, &l->items.at[i], &t));
  else TRY(zeros_for(ctx, l, 2, 0, &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status set_run(struct kernel_ctx *ctx) {
  const struct op_state *st = ctx->state;
  const struct tensor *t = ctx_in(ctx, 2);
  struct tensor_list *l, *out;
  struct shape shape = tensor_shape(t);
  int64_t i;
  TRY(list_in(ctx, 0, &l));
  TRY(check_type(ctx, st->dtype, l));
  TRY(int_in(ctx, 1, "index", &i));
  if (i < 0 || (!st->resize && i >= (int64_t)l->items.n))
    return INVALID("Trying to modify element %" PRId64 " in a list with %zu elements.", i, l->items.n);
  if (!shape_compatible(&l->element_shape, &shape))
    return INVALID(
        "Tried to set a tensor with incompatible shape at a list index. Item element shape: %s list shape: %s",
        shape_str(&shape), shape_str(&l->element_shape));
  TRY(check_size(i));
  TRY(list_change(ctx, 0, 0, l, &out));
  if (i >= (int64_t)out->items.n) tensor_list_resize(out, i + 1);
  put(out, i, t);
  return NULL;
}

/* ---- to tensors ---- */

/* [n] + shape, filled from n elements, zeros for those not set. */
static shoal_status stack_items(struct kernel_ctx *ctx, const struct tensor *items, int64_t n,
                                const struct shape *shape, const char *what) {
  struct shape known = *shape, s;
  bool some_unset = false;
  for (int64_t i = 0; i < n; i++) {
    if (!tensor_valid(&items[i])) {
      some_unset = true;
      continue;
    }
    struct shape one = tensor_shape(&items[i]);
    TRY(state_merge_shapes(&known, &one, &s));
    known = s;
  }
  if (!shape_known(&known)) return INVALID("%s: %s", what, shape_str(&known));
  if (known.rank == SHOAL_MAX_RANK) return INVALID("The result would have too many dimensions");
  s = (struct shape){.rank = known.rank + 1, .dims = {n}};
  for (int d = 0; d < known.rank; d++) s.dims[d + 1] = known.dims[d];
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &s, &out));
  if (some_unset) clear(out);
  return join(ctx, items, n, NULL, out);
}

static shoal_status stack_run(struct kernel_ctx *ctx) {
  const struct op_state *st = ctx->state;
  struct tensor_list *l;
  struct shape shape;
  TRY(list_in(ctx, 0, &l));
  TRY(check_type(ctx, st->dtype, l));
  if (st->num_elements != -1 && st->num_elements != (int64_t)l->items.n)
    return INVALID("Operation expected a list with %" PRId64 " elements but got a list with %zu elements.",
                   st->num_elements, l->items.n);
  TRY(merged_shape(ctx, 1, l, &shape));
  return stack_items(ctx, l->items.at, (int64_t)l->items.n, &shape,
                     l->items.n ? "Tried to stack list which only contains uninitialized tensors and has a "
                                  "non-fully-defined element_shape"
                                : "Tried to stack elements of an empty list with non-fully-defined element_shape");
}

static shoal_status gather_run(struct kernel_ctx *ctx) {
  struct tensor_list *l;
  struct shape shape;
  const struct tensor *indices = ctx_in(ctx, 1);
  TRY(list_in(ctx, 0, &l));
  TRY(check_type(ctx, dtype_of(ctx), l));
  TRY(merged_shape(ctx, 2, l, &shape));
  struct tensor *items = mem_zalloc((size_t)indices->n + 1, sizeof *items);
  shoal_status s = NULL;
  for (int64_t i = 0; i < indices->n && !s; i++) {
    int64_t k = index_at(indices, i);
    if (k < 0 || k >= (int64_t)l->items.n)
      s = INVALID("Index %" PRId64 " out o range; list only has %zu elements.", k, l->items.n);
    else items[i] = l->items.at[k]; /* borrowed */
  }
  if (!s)
    s = stack_items(ctx, items, indices->n, &shape,
                    indices->n
                        ? "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape"
                        : "Tried to gather 0-elements from a list with non-fully-defined shape");
  free(items);
  return s;
}

/* The length of element i of a list to be concatenated. */
static shoal_status concat_length(const struct kernel_ctx *ctx, const struct tensor_list *l, size_t i, int64_t first,
                                  int64_t *out) {
  const struct tensor *t = &l->items.at[i];
  if (tensor_valid(t)) {
    *out = t->dims[0];
    return NULL;
  }
  if (first >= 0 && (ctx->kernel->n_in < 3 || (int64_t)i >= ctx_in(ctx, 2)->n)) {
    *out = first;
    return NULL;
  }
  if (ctx->kernel->n_in < 3)
    return INVALID(
        "Concating lists with uninitialized tensors is not supported in this version of TensorListConcat. "
        "Consider updating your GraphDef to run the newer version.");
  const struct tensor *dims = ctx_in(ctx, 2);
  if ((int64_t)i >= dims->n)
    return INVALID("List contains uninitialized tensor at index %zu but leading_dims has only %" PRId64 " elements.", i,
                   dims->n);
  *out = index_at(dims, (int64_t)i);
  return *out < 0 ? INVALID("leading_dims must not be negative") : NULL;
}

/* *rest is the elements' shape but for the first dimension; *common that one, when all that are set agree on it. */
static shoal_status concat_shape(const struct tensor_list *l, const struct shape *element, struct shape *rest,
                                 int64_t *common) {
  int64_t first = element->rank > 0 ? element->dims[0] : -1;
  bool agree = true;
  *common = first;
  if (element->rank == 0) return INVALID("Concat requires elements to be at least vectors, found scalars instead.");
  *rest = shape_unknown();
  if (element->rank > 0) {
    rest->rank = element->rank - 1;
    for (int d = 0; d < rest->rank; d++) rest->dims[d] = element->dims[d + 1];
  }
  if (!l->items.n && !shape_known(rest))
    return INVALID(
        "All except the first dimension must be fully defined when concating an empty tensor list. "
        "element_shape: %s",
        shape_str(element));
  for (size_t i = 0; i < l->items.n; i++) {
    const struct tensor *t = &l->items.at[i];
    if (!tensor_valid(t)) continue;
    if (t->rank < 1) return INVALID("Concat saw a scalar shape at index %zu but requires at least vectors.", i);
    if (first >= 0 && first != t->dims[0])
      return INVALID(
          "First entry of element_shape input does not match the first dim of list element at index: %zu "
          "Expected: %" PRId64 " Actual: %" PRId64,
          i, first, t->dims[0]);
    agree = agree && (*common < 0 || *common == t->dims[0]);
    *common = agree ? t->dims[0] : -1;
    struct shape own = {.rank = t->rank - 1}, both;
    for (int d = 0; d < own.rank; d++) own.dims[d] = t->dims[d + 1];
    TRY(state_merge_shapes(rest, &own, &both));
    *rest = both;
  }
  if (!shape_known(rest))
    return INVALID(
        "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim_ is not fully "
        "defined: %s",
        shape_str(rest));
  return NULL;
}

static shoal_status concat_run(struct kernel_ctx *ctx) {
  const struct op_state *st = ctx->state;
  struct tensor_list *l;
  struct shape element, rest;
  TRY(list_in(ctx, 0, &l));
  TRY(check_type(ctx, st->dtype, l));
  if (ctx->kernel->n_in > 1) TRY(merged_shape(ctx, 1, l, &element));
  else TRY(state_merge_shapes(&st->element_shape, &l->element_shape, &element));
  int64_t n = (int64_t)l->items.n, run, total = 0, first;
  TRY(concat_shape(l, &element, &rest, &first));
  struct tensor *lengths, *out;
  TRY(shape_elements(&rest, &run));
  TRY(ctx_out_dims(ctx, 1, 1, &n, &lengths));
  int64_t *offset = mem_alloc((size_t)(n + 1) * sizeof *offset);
  shoal_status s = NULL;
  bool some_unset = false;
  for (int64_t i = 0; i < n && !s; i++) {
    int64_t len = 0;
    s = concat_length(ctx, l, (size_t)i, first, &len);
    T_DATA(lengths, int64_t)[i] = len;
    offset[i] = total * run;
    if (!s && __builtin_add_overflow(total, len, &total)) s = INVALID("The concatenated list is too large");
    some_unset |= !tensor_valid(&l->items.at[i]);
  }
  struct shape shape = {.rank = rest.rank + 1, .dims = {total}};
  for (int d = 0; d < rest.rank; d++) shape.dims[d + 1] = rest.dims[d];
  if (!s) s = ctx_out(ctx, 0, &shape, &out);
  if (!s && some_unset) clear(out);
  if (!s) s = join(ctx, l->items.at, n, offset, out);
  free(offset);
  return s;
}

/* ---- from tensors ---- */

static shoal_status check_rows(const struct tensor *t, const struct shape *element) {
  struct shape shape = tensor_shape(t), row = {.rank = t->rank - 1};
  if (t->rank < 1) return INVALID("Tensor must be at least a vector, but saw shape: %s", shape_str(&shape));
  for (int d = 0; d < row.rank; d++) row.dims[d] = t->dims[d + 1];
  if (!shape_compatible(element, &row))
    return INVALID("Specified a list with shape %s from a tensor with shape %s", shape_str(element), shape_str(&row));
  return NULL;
}

static shoal_status from_tensor_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0);
  struct shape element;
  TRY(shape_of(ctx_in(ctx, 1), &element));
  TRY(check_rows(t, &element));
  TRY(check_size(t->dims[0]));
  struct tensor_list *l = tensor_list_new((shoal_dtype)t->dtype, &element, t->dims[0]);
  for (int64_t i = 0; i < t->dims[0]; i++) view(&l->items.at[i], t, i, i + 1, true);
  return list_out(ctx, 0, l);
}

/* Rows of t to the places that indices name. */
static void scatter(struct tensor_list *l, const struct tensor *t, const struct tensor *indices) {
  for (int64_t i = 0; i < indices->n; i++) {
    struct tensor row;
    view(&row, t, i, i + 1, true);
    put(l, index_at(indices, i), &row);
    tensor_release(&row);
  }
}

static shoal_status scatter_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0), *indices = ctx_in(ctx, 1);
  struct shape element;
  int64_t n = -1, top = -1;
  TRY(shape_of(ctx_in(ctx, 2), &element));
  if (ctx->kernel->n_in > 3) TRY(int_in(ctx, 3, "num_elements", &n));
  if (n < -1) return INVALID("TensorListScatter expects num_elements >= -1, found: %" PRId64, n);
  TRY(check_rows(t, &element));
  if (indices->n != t->dims[0])
    return INVALID("Invalid number of rows in input tensor. Expected: %" PRId64 " Actual: %" PRId64, indices->n,
                   t->dims[0]);
  for (int64_t i = 0; i < indices->n; i++) {
    int64_t k = index_at(indices, i);
    if (k < 0) return INVALID("Indices in TensorListScatter must all be non-negative.");
    if (n >= 0 && k >= n)
      return INVALID("TensorListScatter: Trying to scatter at index %" PRId64 " in list with size %" PRId64, k, n);
    top = MAX(top, k);
  }
  TRY(check_size(n >= 0 ? n : top + 1));
  struct tensor_list *l = tensor_list_new((shoal_dtype)t->dtype, &element, n >= 0 ? n : top + 1);
  scatter(l, t, indices);
  return list_out(ctx, 0, l);
}

static shoal_status scatter_into_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 1), *indices = ctx_in(ctx, 2);
  struct tensor_list *l, *out;
  struct shape is = tensor_shape(indices);
  TRY(list_in(ctx, 0, &l));
  if ((shoal_dtype)t->dtype != l->dtype)
    return INVALID("Invalid data types; input tensor type: %s list element_type: %s", dtype_tf_name(t->dtype),
                   dtype_tf_name(l->dtype));
  TRY(check_rows(t, &l->element_shape));
  if (indices->rank != 1) return INVALID("Expected indices to be a vector, but received shape: %s", shape_str(&is));
  if (indices->n != t->dims[0])
    return INVALID("Expected len(indices) == tensor.shape[0], but saw: %" PRId64 " vs. %" PRId64, indices->n,
                   t->dims[0]);
  int64_t top = -1;
  for (int64_t i = 0; i < indices->n; i++) {
    if (index_at(indices, i) < 0) return INVALID("Indices in TensorListScatter must all be non-negative.");
    top = MAX(top, index_at(indices, i));
  }
  TRY(check_size(top + 1));
  TRY(list_change(ctx, 0, 0, l, &out));
  if (top >= (int64_t)out->items.n) tensor_list_resize(out, top + 1);
  scatter(out, t, indices);
  return NULL;
}

static shoal_status split_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0), *lengths = ctx_in(ctx, 2);
  struct shape element, ts = tensor_shape(t), ls = tensor_shape(lengths);
  TRY(shape_of(ctx_in(ctx, 1), &element));
  if (element.rank == 0)
    return INVALID("TensorListSplit requires element_shape to be at least of rank 1, but saw: %s", shape_str(&element));
  if (t->rank < 1) return INVALID("Tensor must be at least a vector, but saw shape: %s", shape_str(&ts));
  struct shape any = element, row = ts;
  if (any.rank > 0) any.dims[0] = -1;
  if (!shape_compatible(&any, &row))
    return INVALID("tensor shape %s is not compatible with element_shape %s", shape_str(&ts), shape_str(&element));
  if (lengths->rank != 1) return INVALID("Expected lengths to be a vector, received shape: %s", shape_str(&ls));
  TRY(check_size(lengths->n));
  int64_t end = 0;
  for (int64_t i = 0; i < lengths->n; i++) {
    int64_t len = index_at(lengths, i);
    if (len < 0) return INVALID("Invalid value in lengths: %" PRId64, len);
    if (len > t->dims[0] - end)
      return INVALID("Attempting to slice [%" PRId64 ", %" PRId64 "] from tensor with length %" PRId64, end, end + len,
                     t->dims[0]);
    end += len;
  }
  if (end != t->dims[0])
    return INVALID("Unused values in tensor. Length of tensor: %" PRId64 " Values used: %" PRId64, t->dims[0], end);
  struct tensor_list *l = tensor_list_new((shoal_dtype)t->dtype, &element, lengths->n);
  end = 0;
  for (int64_t i = 0; i < lengths->n; i++) {
    view(&l->items.at[i], t, end, end + index_at(lengths, i), false);
    end += index_at(lengths, i);
  }
  return list_out(ctx, 0, l);
}

/* ---- several lists ---- */

static struct tensor_list *list_at(const struct tensor *t, int64_t i) {
  struct variant *v = T_DATA(t, struct variant *)[i];
  return v && v->type == &tensor_list_type ? (struct tensor_list *)v : NULL;
}

static shoal_status concat_lists_run(struct kernel_ctx *ctx) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  struct shape sa = tensor_shape(a), sb = tensor_shape(b);
  if (!tensor_same_shape(a, b))
    return INVALID("Incompatible input TensorList tensor shapes: %s vs. %s", shape_str(&sa), shape_str(&sb));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &sa, &out));
  for (int64_t i = 0; i < a->n; i++) {
    struct tensor_list *la = list_at(a, i), *lb = list_at(b, i);
    if (!la) return INVALID("input_a is not a TensorList at index %" PRId64, i);
    if (!lb) return INVALID("input_b is not a TensorList at index %" PRId64, i);
    if (la->dtype != dtype_of(ctx) || lb->dtype != dtype_of(ctx))
      return INVALID("input_%c[%" PRId64 "].dtype != element_dtype.  Saw: %s vs. %s",
                     la->dtype != dtype_of(ctx) ? 'a' : 'b', i,
                     dtype_tf_name(la->dtype != dtype_of(ctx) ? la->dtype : lb->dtype), dtype_tf_name(dtype_of(ctx)));
    if (!shape_equal(&la->element_shape, &lb->element_shape))
      return INVALID("input_a and input_b TensorList element shapes are not identical at index %" PRId64
                     ".  Saw %s vs. %s",
                     i, shape_str(&la->element_shape), shape_str(&lb->element_shape));
    struct tensor_list *l = tensor_list_copy(la);
    size_t at = l->items.n;
    tensor_list_resize(l, (int64_t)(at + lb->items.n));
    for (size_t k = 0; k < lb->items.n; k++)
      if (tensor_valid(&lb->items.at[k])) tensor_ref(&l->items.at[at + k], &lb->items.at[k]);
    T_DATA(out, struct variant *)[i] = &l->head;
  }
  return NULL;
}

static shoal_status push_batch_run(struct kernel_ctx *ctx) {
  const struct tensor *lists = ctx_in(ctx, 0), *t = ctx_in(ctx, 1);
  struct shape ts = tensor_shape(t), ls = tensor_shape(lists), row = {.rank = t->rank - 1};
  if (t->rank < 1) return INVALID("Expected tensor to be at least a vector, but saw shape: %s", shape_str(&ts));
  if (lists->rank != 1) return INVALID("Expected input_handles to be a vector, but saw shape: %s", shape_str(&ls));
  if (t->dims[0] != lists->n)
    return INVALID("Expected tensor.shape[0] == input_handles.size, but saw %" PRId64 " vs. %" PRId64, t->dims[0],
                   lists->n);
  for (int d = 0; d < row.rank; d++) row.dims[d] = t->dims[d + 1];
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &ls, &out));
  for (int64_t i = 0; i < lists->n; i++) {
    struct tensor_list *l = list_at(lists, i);
    if (!l) return INVALID("Input handle at index %" PRId64 " is not a list.", i);
    if (!shape_compatible(&l->element_shape, &row))
      return INVALID("Tried to append a tensor with incompatible shape to a list at index %" PRId64
                     ". Op element shape: %s list shape: %s",
                     i, shape_str(&row), shape_str(&l->element_shape));
    if (l->dtype != dtype_of(ctx))
      return INVALID("Invalid data type at index %" PRId64 "; op elements %s but list elements %s", i,
                     dtype_tf_name(dtype_of(ctx)), dtype_tf_name(l->dtype));
    l = tensor_list_copy(l);
    T_DATA(out, struct variant *)[i] = &l->head;
    vec_push(&l->items, tensor_none());
    view(&vec_last(&l->items), t, i, i + 1, true);
  }
  return NULL;
}

/* ---- gradients ---- */

static shoal_out use(struct shoal_graph *g, const char *op, const shoal_out *in, int n, shoal_dtype dtype) {
  struct build b = build_begin(g, op, NULL);
  for (int i = 0; i < n; i++) build_in(&b, in[i]);
  if (dtype) build_attr_type(&b, "element_dtype", dtype);
  return build_end_out(&b);
}
#define USE(g, op, dtype, ...) \
  use(g, op, (const shoal_out[]){__VA_ARGS__}, sizeof((const shoal_out[]){__VA_ARGS__}) / sizeof(shoal_out), dtype)

static shoal_out element_shape_of(struct shoal_graph *g, shoal_out list) {
  struct build b = build_begin(g, "TensorListElementShape", NULL);
  build_in(&b, list);
  build_attr_type(&b, "shape_type", SHOAL_INT32);
  return build_end_out(&b);
}

/* The shape of a tensor's rows. */
static shoal_out row_shape(struct shoal_graph *g, shoal_out t) {
  return array_slice(g, array_shape(g, t, SHOAL_INT32), build_const_ints(g, SHOAL_INT32, (int64_t[]){1}, 1),
                     build_const_ints(g, SHOAL_INT32, (int64_t[]){-1}, 1));
}

/* The gradient list that came back, or an empty one. */
static shoal_out list_dy(struct grad_ctx *c, int i, shoal_dtype dtype) {
  if (!grad_none(c->dy[i])) return grad_dy(c, i);
  return USE(c->g, "EmptyTensorList", dtype, element_shape_of(c->g, gout(c, i)),
             build_const_int(c->g, SHOAL_INT32, -1));
}

static shoal_status grad_push(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "TensorListPopBack", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, array_shape(c->g, gin(c, 1), SHOAL_INT32));
  build_attr_type(&b, "element_dtype", out_type(gin(c, 1)));
  struct shoal_node *n = build_end(&b);
  if (!n) return NULL;
  grad_set(c, 0, node_out(n, 0));
  grad_set(c, 1, node_out(n, 1));
  return NULL;
}

static shoal_status grad_pop(struct grad_ctx *c) {
  shoal_dtype dtype = out_type(gout(c, 1));
  grad_set(c, 0, USE(c->g, "TensorListPushBack", dtype, list_dy(c, 0, dtype), grad_dy(c, 1)));
  return NULL;
}

static shoal_status grad_stack(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, USE(c->g, "TensorListFromTensor", out_type(dy), dy, row_shape(c->g, dy)));
  return NULL;
}

static shoal_status grad_concat(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, USE(c->g, "TensorListSplit", out_type(dy), dy, element_shape_of(c->g, gin(c, 0)), gout(c, 1)));
  return NULL;
}

static shoal_status grad_split(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out parts[2] = {build_const_ints(g, SHOAL_INT32, (int64_t[]){-1}, 1), row_shape(g, gin(c, 0))};
  grad_set(c, 0,
           USE(g, "TensorListConcatV2", out_type(gin(c, 0)), grad_dy(c, 0), array_concat(g, parts, 2, 0), gin(c, 2)));
  return NULL;
}

static shoal_status grad_from_tensor(struct grad_ctx *c) {
  shoal_dtype dtype = out_type(gin(c, 0));
  struct shape s = out_shape(gin(c, 0));
  struct build b = build_begin(c->g, "TensorListStack", NULL);
  build_in(&b, list_dy(c, 0, dtype));
  build_in(&b, row_shape(c->g, gin(c, 0)));
  build_attr_type(&b, "element_dtype", dtype);
  build_attr_int(&b, "num_elements", s.rank > 0 ? s.dims[0] : -1);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static shoal_status grad_get(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), list = gin(c, 0);
  shoal_out empty = USE(c->g, "TensorListReserve", out_type(dy), element_shape_of(c->g, list),
                        build_op1(c->g, "TensorListLength", list));
  grad_set(c, 0, USE(c->g, "TensorListSetItem", out_type(dy), empty, gin(c, 1), dy));
  return NULL;
}

static shoal_status grad_set_item(struct grad_ctx *c) {
  shoal_out dlist = grad_dy(c, 0), item = gin(c, 2);
  grad_set(c, 0, USE(c->g, "TensorListSetItem", out_type(item), dlist, gin(c, 1), array_zeros_like(c->g, item)));
  grad_set(c, 2,
           USE(c->g, "TensorListGetItem", out_type(item), dlist, gin(c, 1), array_shape(c->g, item, SHOAL_INT32)));
  return NULL;
}

static shoal_status grad_resize(struct grad_ctx *c) {
  grad_set(c, 0, build_op2(c->g, "TensorListResize", grad_dy(c, 0), build_op1(c->g, "TensorListLength", gin(c, 0))));
  return NULL;
}

static shoal_status grad_gather(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), list = gin(c, 0);
  shoal_out empty = USE(c->g, "TensorListReserve", out_type(dy), element_shape_of(c->g, list),
                        build_op1(c->g, "TensorListLength", list));
  grad_set(c, 0, USE(c->g, "TensorListScatterIntoExistingList", out_type(dy), empty, dy, gin(c, 1)));
  return NULL;
}

static shoal_status grad_scatter(struct grad_ctx *c) {
  shoal_out t = gin(c, 0);
  grad_set(c, 0, USE(c->g, "TensorListGather", out_type(t), grad_dy(c, 0), gin(c, 1), row_shape(c->g, t)));
  return NULL;
}

static shoal_status grad_scatter_into(struct grad_ctx *c) {
  shoal_out t = gin(c, 1), dlist = grad_dy(c, 0);
  grad_set(c, 0,
           USE(c->g, "TensorListScatterIntoExistingList", out_type(t), dlist, array_zeros_like(c->g, t), gin(c, 2)));
  grad_set(c, 1, USE(c->g, "TensorListGather", out_type(t), dlist, gin(c, 2), row_shape(c->g, t)));
  return NULL;
}

/* ---- rows ---- */

static shoal_status shape_list_first(struct shape_ctx *c) {
  c->out[0] = shape_scalar();
  return NULL;
}

#define LIST_KERNEL(id, ...) \
  { .device = "CPU", .state_size = sizeof(struct op_state), .init = init, .run = id##_run, __VA_ARGS__ }
/* in_, out_: the arguments that are in host memory on every device. */
#define KERNEL(id, in_, out_)                       \
  static const struct kernel_def id##_kernels[] = { \
      LIST_KERNEL(id, .flags = KERNEL_ANYWHERE, .host_in = in_, .host_out = out_), {0}}
KERNEL(length, 0, 1);
KERNEL(element_shape, 0, 1);
KERNEL(resize, 2, 0);
/* The same for those with elements: what is not a number is the host's, and so is the list. */
#define KERNEL_OF(id, in_, out_)                                                                                 \
  static const struct kernel_def id##_kernels[] = {                                                              \
      LIST_KERNEL(id),                                                                                           \
      LIST_KERNEL(id, .type_attr = "element_dtype", .types = DT_PLAIN, .flags = KERNEL_ANYWHERE, .host_in = in_, \
                  .host_out = out_),                                                                             \
      {0}}
KERNEL_OF(empty, 3, 0);
KERNEL_OF(reserve, 3, 0);
KERNEL_OF(push, 0, 0);
KERNEL_OF(pop, 2, 0);
KERNEL_OF(get, 6, 0);
KERNEL_OF(set, 2, 0);
KERNEL_OF(stack, 2, 0);
KERNEL_OF(gather, 6, 0);
KERNEL_OF(concat, 6, 2);
KERNEL_OF(from_tensor, 2, 0);
KERNEL_OF(scatter, 14, 0);
KERNEL_OF(scatter_into, 4, 0);
KERNEL_OF(split, 6, 0);
KERNEL_OF(concat_lists, 0, 0);
KERNEL_OF(push_batch, 0, 0);

#define DTYPE "element_dtype: type"
#define DTYPE_SHAPE "element_dtype: type; shape_type: {int32, int64}"
static const struct op_row rows[] = {
    {.name = "EmptyTensorList",
     .in = "element_shape: shape_type, max_num_elements: int32",
     .out = "handle: variant",
     .attrs = DTYPE_SHAPE,
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = empty_kernels},
    {.name = "TensorListReserve",
     .in = "element_shape: shape_type, num_elements: int32",
     .out = "handle: variant",
     .attrs = DTYPE_SHAPE,
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = reserve_kernels},
    {.name = "TensorListPushBack",
     .in = "input_handle: variant, tensor: element_dtype",
     .out = "output_handle: variant",
     .attrs = DTYPE,
     .shape = shape_scalar_out,
     .grad = grad_push,
     .kernels = push_kernels},
    {.name = "TensorListPopBack",
     .in = "input_handle: variant, element_shape: int32",
     .out = "output_handle: variant, tensor: element_dtype",
     .attrs = DTYPE,
     .shape = shape_list_first,
     .grad = grad_pop,
     .kernels = pop_kernels},
    {.name = "TensorListGetItem",
     .in = "input_handle: variant, index: int32, element_shape: int32",
     .out = "item: element_dtype",
     .attrs = DTYPE,
     .grad = grad_get,
     .kernels = get_kernels},
    {.name = "TensorListSetItem",
     .in = "input_handle: variant, index: int32, item: element_dtype",
     .out = "output_handle: variant",
     .attrs = DTYPE "; resize_if_index_out_of_bounds: bool = false",
     .shape = shape_scalar_out,
     .grad = grad_set_item,
     .kernels = set_kernels},
    {.name = "TensorListStack",
     .in = "input_handle: variant, element_shape: int32",
     .out = "tensor: element_dtype",
     .attrs = DTYPE "; num_elements: int = -1",
     .grad = grad_stack,
     .kernels = stack_kernels},
    {.name = "TensorListGather",
     .in = "input_handle: variant, indices: int32, element_shape: int32",
     .out = "values: element_dtype",
     .attrs = DTYPE,
     .grad = grad_gather,
     .kernels = gather_kernels},
    {.name = "TensorListScatter",
     .in = "tensor: element_dtype, indices: int32, element_shape: shape_type",
     .out = "output_handle: variant",
     .attrs = DTYPE_SHAPE,
     .shape = shape_scalar_out,
     .grad = grad_scatter,
     .kernels = scatter_kernels},
    {.name = "TensorListScatterV2",
     .in = "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32",
     .out = "output_handle: variant",
     .attrs = DTYPE_SHAPE,
     .shape = shape_scalar_out,
     .grad = grad_scatter,
     .kernels = scatter_kernels},
    {.name = "TensorListScatterIntoExistingList",
     .in = "input_handle: variant, tensor: element_dtype, indices: int32",
     .out = "output_handle: variant",
     .attrs = DTYPE,
     .shape = shape_scalar_out,
     .grad = grad_scatter_into,
     .kernels = scatter_into_kernels},
    {.name = "TensorListFromTensor",
     .in = "tensor: element_dtype, element_shape: shape_type",
     .out = "output_handle: variant",
     .attrs = DTYPE_SHAPE,
     .shape = shape_scalar_out,
     .grad = grad_from_tensor,
     .kernels = from_tensor_kernels},
    {.name = "TensorListConcat",
     .in = "input_handle: variant",
     .out = "tensor: element_dtype, lengths: int64",
     .attrs = DTYPE "; element_shape: shape = {}",
     .grad = grad_concat,
     .kernels = concat_kernels},
    {.name = "TensorListConcatV2",
     .in = "input_handle: variant, element_shape: shape_type, leading_dims: int64",
     .out = "tensor: element_dtype, lengths: int64",
     .attrs = DTYPE_SHAPE,
     .grad = grad_concat,
     .kernels = concat_kernels},
    {.name = "TensorListConcatLists",
     .in = "input_a: variant, input_b: variant",
     .out = "output: variant",
     .attrs = DTYPE,
     .flags = OP_NO_GRADIENT,
     .shape = shape_merge_all,
     .kernels = concat_lists_kernels},
    {.name = "TensorListSplit",
     .in = "tensor: element_dtype, element_shape: shape_type, lengths: int64",
     .out = "output_handle: variant",
     .attrs = DTYPE_SHAPE,
     .shape = shape_scalar_out,
     .grad = grad_split,
     .kernels = split_kernels},
    {.name = "TensorListLength",
     .in = "input_handle: variant",
     .out = "length: int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = length_kernels},
    {.name = "TensorListResize",
     .in = "input_handle: variant, size: int32",
     .out = "output_handle: variant",
     .shape = shape_scalar_out,
     .grad = grad_resize,
     .kernels = resize_kernels},
    {.name = "TensorListElementShape",
     .in = "input_handle: variant",
     .out = "element_shape: shape_type",
     .attrs = "shape_type: {int32, int64}",
     .flags = OP_NO_GRADIENT,
     .kernels = element_shape_kernels},
    {.name = "TensorListPushBackBatch",
     .in = "input_handles: variant, tensor: element_dtype",
     .out = "output_handles: variant",
     .attrs = DTYPE,
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = push_batch_kernels},
};
OP_FAMILY(tensor_list_ops, rows);

/* Attributes as ops of one's own read them (shoal/op.h). A node has all that its op's signature has, of the kinds that
 * it says: what is asked of another kind or by another name is the library's mistake, and is told. */
#include "shoal/op.h"

#include <limits.h>

#include "base/given.h"
#include "graph/graph.h"

shoal_status shoal_op_attr_int(const shoal_op *node, const char *name, int64_t *out) {
  GIVEN(name);
  GIVEN(out);
  return node_get_int(node, name, out);
}
shoal_status shoal_op_attr_float(const shoal_op *node, const char *name, float *out) {
  GIVEN(name);
  GIVEN(out);
  return node_get_float(node, name, out);
}
shoal_status shoal_op_attr_bool(const shoal_op *node, const char *name, bool *out) {
  GIVEN(name);
  GIVEN(out);
  return node_get_bool(node, name, out);
}
shoal_status shoal_op_attr_type(const shoal_op *node, const char *name, shoal_dtype *out) {
  GIVEN(name);
  GIVEN(out);
  return node_get_type(node, name, out);
}
shoal_status shoal_op_attr_string(const shoal_op *node, const char *name, const char **out) {
  GIVEN(name);
  GIVEN(out);
  return node_get_string(node, name, out);
}

static void put_shape(const struct shape *s, int64_t *dims, int *rank) {
  *rank = s->rank;
  for (int i = 0; i < s->rank; i++) dims[i] = s->dims[i];
}

shoal_status shoal_op_attr_shape(const shoal_op *node, const char *name, int64_t *dims, int *rank) {
  GIVEN(name);
  GIVEN(dims);
  GIVEN(rank);
  struct shape s;
  TRY(node_get_shape(node, name, &s));
  put_shape(&s, dims, rank);
  return NULL;
}

static shoal_tensor *handle_of(const struct tensor *from) {
  struct tensor t;
  tensor_ref(&t, from);
  return tensor_handle_take(&t);
}

shoal_status shoal_op_attr_tensor(const shoal_op *node, const char *name, shoal_tensor **out) {
  GIVEN(name);
  GIVEN(out);
  const struct tensor *t;
  TRY(node_get_tensor(node, name, &t));
  *out = handle_of(t);
  return NULL;
}

/* ---- lists ---- */

static shoal_status list_of(const shoal_op *node, const char *name, enum attr_kind kind, int max, int *n,
                            const struct attr **list) {
  TRY(node_get_list(node, name, kind, list));
  if ((*list)->list.n > (size_t)max)
    return INVALID("attr '%s' of {{node %s}} has %zu elements, and there is room for %d", name, node->name,
                   (*list)->list.n, max);
  *n = (int)(*list)->list.n;
  return NULL;
}

shoal_status shoal_op_attr_ints(const shoal_op *node, const char *name, int64_t *out, int max, int *n) {
  GIVEN(name);
  GIVEN_ARRAY(out, max);
  GIVEN(n);
  const struct attr *a;
  TRY(list_of(node, name, ATTR_INT, max, n, &a));
  for (int i = 0; i < *n; i++) out[i] = a->list.at[i].i;
  return NULL;
}
shoal_status shoal_op_attr_floats(const shoal_op *node, const char *name, float *out, int max, int *n) {
  GIVEN(name);
  GIVEN_ARRAY(out, max);
  GIVEN(n);
  const struct attr *a;
  TRY(list_of(node, name, ATTR_FLOAT, max, n, &a));
  for (int i = 0; i < *n; i++) out[i] = a->list.at[i].f;
  return NULL;
}
shoal_status shoal_op_attr_bools(const shoal_op *node, const char *name, bool *out, int max, int *n) {
  GIVEN(name);
  GIVEN_ARRAY(out, max);
  GIVEN(n);
  const struct attr *a;
  TRY(list_of(node, name, ATTR_BOOL, max, n, &a));
  for (int i = 0; i < *n; i++) out[i] = a->list.at[i].b;
  return NULL;
}
shoal_status shoal_op_attr_types(const shoal_op *node, const char *name, shoal_dtype *out, int max, int *n) {
  GIVEN(name);
  GIVEN_ARRAY(out, max);
  GIVEN(n);
  const struct attr *a;
  TRY(list_of(node, name, ATTR_TYPE, max, n, &a));
  for (int i = 0; i < *n; i++) out[i] = (shoal_dtype)a->list.at[i].type;
  return NULL;
}
shoal_status shoal_op_attr_strings(const shoal_op *node, const char *name, const char **out, int max, int *n) {
  GIVEN(name);
  GIVEN_ARRAY(out, max);
  GIVEN(n);
  const struct attr *a;
  TRY(list_of(node, name, ATTR_STRING, max, n, &a));
  for (int i = 0; i < *n; i++) out[i] = a->list.at[i].s.data;
  return NULL;
}

shoal_status shoal_op_attr_length(const shoal_op *node, const char *name, int *n) {
  GIVEN(name);
  GIVEN(n);
  const struct attr *a = node_attr(node, name);
  enum attr_kind kind = a && a->kind == ATTR_LIST ? a->of : ATTR_NONE;
  return list_of(node, name, kind, INT_MAX, n, &a);
}

static shoal_status element_of(const shoal_op *node, const char *name, enum attr_kind kind, int i,
                               const struct attr **out) {
  const struct attr *a;
  int n;
  TRY(list_of(node, name, kind, INT_MAX, &n, &a));
  if (i < 0 || i >= n) return INVALID("attr '%s' of {{node %s}} has %d elements, and no %d", name, node->name, n, i);
  *out = &a->list.at[i];
  return NULL;
}

shoal_status shoal_op_attr_shape_at(const shoal_op *node, const char *name, int i, int64_t *dims, int *rank) {
  GIVEN(name);
  GIVEN(dims);
  GIVEN(rank);
  const struct attr *a;
  TRY(element_of(node, name, ATTR_SHAPE, i, &a));
  put_shape(a->shape, dims, rank);
  return NULL;
}
shoal_status shoal_op_attr_tensor_at(const shoal_op *node, const char *name, int i, shoal_tensor **out) {
  GIVEN(name);
  GIVEN(out);
  const struct attr *a;
  TRY(element_of(node, name, ATTR_TENSOR, i, &a));
  *out = handle_of(a->tensor);
  return NULL;
}

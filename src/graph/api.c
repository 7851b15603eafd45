/* The public half of graphs: shoal/graph.h on top of graph.h, builder.h and gradient.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/builder.h"
#include "graph/given.h"
#include "graph/gradient.h"
#include "graph/prune.h"

shoal_graph *shoal_graph_new(void) { return graph_new(); }

void shoal_graph_free(shoal_graph *g) { graph_free(g); }

shoal_status shoal_graph_error(const shoal_graph *g) { return graph_error(g); }

int shoal_report(const shoal_graph *g) {
  shoal_status s = graph_error(g);
  shoal_status_print(s);
  return s != NULL;
}

shoal_op *shoal_graph_op(const shoal_graph *g, const char *name) { return name ? graph_find(g, name) : NULL; }

shoal_out shoal_graph_out(const shoal_graph *g, const char *text) {
  char name[4096];
  int index;
  if (!text || !tensor_name_parse(text, name, sizeof name, &index)) return (shoal_out){0};
  struct shoal_node *n = graph_find(g, name);
  return n && index < n->n_out ? node_out(n, index) : (shoal_out){0};
}

const char *shoal_op_name(const shoal_op *op) { return op->name; }
const char *shoal_op_type(const shoal_op *op) { return op->op->name; }
int shoal_op_outputs(const shoal_op *op) { return op->n_out; }
shoal_dtype shoal_out_dtype(shoal_out o) { return out_type(o); }

int shoal_out_shape(shoal_out o, int64_t *dims) {
  struct shape s = out_shape(o);
  for (int i = 0; i < s.rank; i++) dims[i] = s.dims[i];
  return s.rank;
}

void shoal_push_scope(shoal_graph *g, const char *name) { graph_push_scope(g, name); }
void shoal_pop_scope(shoal_graph *g) { graph_pop_scope(g); }
void shoal_push_device(shoal_graph *g, const char *device) { graph_push_device(g, device); }
void shoal_pop_device(shoal_graph *g) { graph_pop_device(g); }

/* A caller's function. */
struct device_chooser {
  shoal_device_fn *fn;
  void *arg;
};

static const char *choose_device(void *arg, const struct shoal_node *n, const struct device_spec *inner) {
  const struct device_chooser *c = arg;
  char text[192];
  device_spec_print(inner, text, sizeof text);
  return c->fn(c->arg, n, text);
}

void shoal_push_device_fn(shoal_graph *g, shoal_device_fn *fn, void *arg) {
  if (!fn) {
    graph_fail(g, INVALID("%s: fn is NULL", __func__));
    graph_push_device(g, "");
    return;
  }
  struct device_chooser *c = mem_alloc(sizeof *c);
  *c = (struct device_chooser){fn, arg};
  graph_push_device_fn(g, choose_device, c, free);
}

void shoal_push_control(shoal_graph *g, shoal_op *const *ops, int n) {
  shoal_status s = n < 0 ? NULL : given_array(__func__, "ops", ops, n);
  if (s) graph_fail(g, s);
  graph_push_control(g, ops, s ? 0 : n);
}

void shoal_pop_control(shoal_graph *g) { graph_pop_control(g); }
void shoal_push_colocation(shoal_graph *g, const shoal_op *with) { graph_push_colocation(g, with); }
void shoal_pop_colocation(shoal_graph *g) { graph_pop_colocation(g); }
void shoal_set_random_seed(shoal_graph *g, int64_t seed) { graph_set_seed(g, seed); }

void shoal_gradients(shoal_graph *g, const shoal_out *ys, int n_ys, const shoal_out *xs, int n_xs, const shoal_out *dys,
                     shoal_gradient *dxs) {
  GRAPH_GIVEN_ARRAY(g, ys, n_ys);
  GRAPH_GIVEN_ARRAY(g, xs, n_xs);
  GRAPH_GIVEN_ARRAY(g, dxs, n_xs);
  memset(dxs, 0, (size_t)n_xs * sizeof *dxs);
  if (graph_error(g)) return;
  struct grad *weights = mem_zalloc((size_t)n_ys, sizeof *weights), *out = mem_zalloc((size_t)n_xs, sizeof *out);
  for (int i = 0; dys && i < n_ys; i++) weights[i].values = dys[i];
  shoal_status s = graph_gradients(g, ys, n_ys, dys ? weights : NULL, xs, n_xs, NULL, 0, true, out);
  for (int i = 0; !s && i < n_xs; i++) dxs[i] = (shoal_gradient){out[i].values, out[i].indices, out[i].dense_shape};
  if (s) graph_fail(g, s);
  free(weights);
  free(out);
}

/* ---- any op by name ---- */

struct shoal_builder {
  struct build b;
};

shoal_builder *shoal_build(shoal_graph *g, const char *op, const char *name) {
  shoal_builder *b = mem_zalloc(1, sizeof *b);
  if (!op) graph_fail(g, INVALID("%s: op is NULL", __func__));
  b->b = build_begin(g, op ? op : "NoOp", name);
  return b;
}

void shoal_build_input(shoal_builder *b, shoal_out in) { build_in(&b->b, in); }
void shoal_build_inputs(shoal_builder *b, const shoal_out *in, int n) { build_in_list(&b->b, in, n); }
void shoal_build_control(shoal_builder *b, shoal_op *from) { build_control(&b->b, from); }
void shoal_build_device(shoal_builder *b, const char *device) { build_device(&b->b, device); }
void shoal_build_int(shoal_builder *b, const char *attr, int64_t v) { build_attr_int(&b->b, attr, v); }
void shoal_build_float(shoal_builder *b, const char *attr, float v) { build_attr_float(&b->b, attr, v); }
void shoal_build_bool(shoal_builder *b, const char *attr, bool v) { build_attr_bool(&b->b, attr, v); }
void shoal_build_type(shoal_builder *b, const char *attr, shoal_dtype v) { build_attr_type(&b->b, attr, v); }
void shoal_build_string(shoal_builder *b, const char *attr, const char *v) {
  GRAPH_GIVEN(b->b.g, v);
  build_attr_string(&b->b, attr, v);
}
void shoal_build_func(shoal_builder *b, const char *attr, const char *function) {
  GRAPH_GIVEN(b->b.g, function);
  build_attr(&b->b, attr, attr_func(function));
}

void shoal_build_shape(shoal_builder *b, const char *attr, int rank, const int64_t *dims) {
  struct shape s = {.rank = rank};
  if (rank > SHOAL_MAX_RANK) {
    graph_fail(b->b.g, INVALID("attribute %s: a shape has at most %d dimensions", attr, SHOAL_MAX_RANK));
    return;
  }
  if (rank > 0) GRAPH_GIVEN(b->b.g, dims);
  for (int i = 0; i < rank; i++) s.dims[i] = dims[i];
  build_attr_shape(&b->b, attr, &s);
}

void shoal_build_tensor(shoal_builder *b, const char *attr, const shoal_tensor *v) {
  GRAPH_GIVEN(b->b.g, v);
  build_attr(&b->b, attr, attr_tensor(&v->t));
}

void shoal_build_ints(shoal_builder *b, const char *attr, const int64_t *v, int n) {
  build_attr_ints(&b->b, attr, v, n);
}

void shoal_build_floats(shoal_builder *b, const char *attr, const float *v, int n) {
  GRAPH_GIVEN_ARRAY(b->b.g, v, n);
  struct attr list = attr_list(ATTR_FLOAT);
  for (int i = 0; i < n; i++) attr_list_add(&list, attr_float(v[i]));
  build_attr(&b->b, attr, list);
}

void shoal_build_types(shoal_builder *b, const char *attr, const shoal_dtype *v, int n) {
  build_attr_types(&b->b, attr, v, n);
}

void shoal_build_strings(shoal_builder *b, const char *attr, const char *const *v, int n) {
  GRAPH_GIVEN_NAMES(b->b.g, v, n);
  struct attr list = attr_list(ATTR_STRING);
  for (int i = 0; i < n; i++) attr_list_add(&list, attr_string(v[i], strlen(v[i])));
  build_attr(&b->b, attr, list);
}

shoal_op *shoal_build_end(shoal_builder *b) {
  struct shoal_node *n = build_end(&b->b);
  free(b);
  return n;
}

shoal_out shoal_build_end_out(shoal_builder *b) { return node_out(shoal_build_end(b), 0); }

void shoal_bytes_free(shoal_bytes *b) {
  if (!b) return;
  free(b->data);
  *b = (shoal_bytes){0};
}

/* Graphs of pipelines.
 *
 * A node is added when all that it needs has been, and a dataset that several use is one node (but see
 * GRAPH_OWN_SEEDS): TensorFlow walks in the
 * same order, so that its graph and ours can be laid side by side. Datasets that an iterator made (windows) came from
 * no node; what only passes on its input (ModelDataset and its kin) is that input here and leaves no node. */
#include "data/dataset_graph.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/function.h"
#include "graph/import.h"

/* ---- where datasets come from ---- */

struct dataset_origin *dataset_origin_new(const struct shoal_node *n) {
  struct dataset_origin *o = mem_zalloc(1, sizeof *o);
  ref_init(&o->refs, 1);
  o->op = n->op;
  o->attrs = mem_zalloc((size_t)n->n_attrs, sizeof *o->attrs);
  for (int i = 0; i < n->n_attrs; i++)
    if (op_attr_find(n->op, n->attrs[i].name))
      o->attrs[o->n_attrs++] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  return o;
}

void dataset_origin_unref(struct dataset_origin *o) {
  if (!o || !ref_drop(&o->refs)) return;
  for (int i = 0; i < o->n_attrs; i++) {
    free(o->attrs[i].name);
    attr_release(&o->attrs[i].value);
  }
  free(o->attrs);
  free(o);
}

void dataset_set_origin(struct dataset *d, struct dataset_origin *o, struct function_runtime *functions,
                        const struct tensor *const *in, int n_in) {
  if (!o) return;
  ref_take(&o->refs);
  d->origin = o;
  for (int i = 0; functions && !d->functions && i < o->n_attrs; i++)
    if (attr_names_function(&o->attrs[i].value)) d->functions = function_runtime_ref(functions);
  d->args = mem_zalloc((size_t)n_in, sizeof *d->args);
  d->n_args = n_in;
  for (int i = 0; i < n_in; i++) tensor_ref(&d->args[i], in[i]);
}

/* ---- functions ---- */

typedef VEC(struct function_def *) function_list; /* added to the graph, their own names not yet looked for */

static shoal_status take_function(struct shoal_graph *g, struct function_runtime *r, const char *name,
                                  function_list *todo) {
  struct function_def *f = function_runtime_find(r, name);
  if (!f) return NULL;
  bool had = graph_function(g, name) != NULL;
  TRY(graph_add_function(g, f));
  if (!had) vec_push(todo, f);
  return NULL;
}

static shoal_status take_named(struct shoal_graph *g, struct function_runtime *r, const struct named_attr *attrs,
                               size_t n, function_list *todo);

static shoal_status take_attr(struct shoal_graph *g, struct function_runtime *r, const struct attr *a,
                              function_list *todo) {
  if (a->kind == ATTR_LIST && a->of == ATTR_FUNC)
    for (size_t i = 0; i < a->list.n; i++) TRY(take_attr(g, r, &a->list.at[i], todo));
  if (a->kind != ATTR_FUNC) return NULL;
  TRY(take_function(g, r, a->func->name, todo));
  return take_named(g, r, a->func->attrs, (size_t)a->func->n_attrs, todo);
}

/* (Attributes within attributes are at most ATTR_MAX_DEPTH deep.) */
static shoal_status take_named(struct shoal_graph *g, struct function_runtime *r, const struct named_attr *attrs,
                               size_t n, function_list *todo) {
  for (size_t i = 0; i < n; i++) TRY(take_attr(g, r, &attrs[i].value, todo));
  return NULL;
}

static shoal_status take_functions(struct shoal_graph *g, const struct dataset *d) {
  function_list todo = {0};
  shoal_status s = take_named(g, d->functions, d->origin->attrs, (size_t)d->origin->n_attrs, &todo);
  while (!s && todo.n) {
    const struct function_def *f = vec_pop(&todo);
    for (int i = 0; !s && i < f->n_nodes; i++) {
      char *op = mem_strndup(f->nodes[i].op.at, f->nodes[i].op.n);
      s = take_function(g, d->functions, op, &todo);
      free(op);
      if (!s) s = take_named(g, d->functions, f->nodes[i].attrs.at, f->nodes[i].attrs.n, &todo);
    }
  }
  vec_release(&todo);
  return s;
}

/* ---- nodes ---- */

struct writing {
  struct shoal_graph *g;
  struct strmap made; /* a dataset's address -> its node */
  unsigned flags;
  int next; /* number of the next node */
};

static shoal_status add_dataset(struct writing *w, const struct dataset *d, struct shoal_node **out);

/* attrs are taken over. */
static shoal_status add_node(struct writing *w, const char *op_name, const shoal_out *in, int n_in,
                             struct named_attr *attrs, int n_attrs, struct shoal_node **out) {
  const struct op *op = op_find(op_name);
  if (!op) return INTERNAL("the op %s is not there", op_name);
  char *name = mem_printf("%s/_%d", op_name, w->next++);
  shoal_status s = graph_add(w->g, name, op, in, n_in, attrs, n_attrs, out);
  free(name);
  return s;
}

static shoal_status add_constant(struct writing *w, const struct tensor *t, struct shoal_node **out) {
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("value"), attr_tensor(t)};
  attrs[1] = (struct named_attr){mem_strdup("dtype"), attr_type(t->dtype)};
  return add_node(w, "Const", NULL, 0, attrs, 2, out);
}

static const struct dataset *dataset_at(const struct tensor *t, int64_t i) {
  const struct variant *v = T_DATA(t, struct variant *const)[i];
  return v && v->type == &dataset_variant ? (const struct dataset *)v : NULL;
}

/* A tensor of datasets is packed of them; anything else is a constant. */
static shoal_status add_tensor(struct writing *w, const struct tensor *t, struct shoal_node **out) {
  bool datasets = t->dtype == SHOAL_VARIANT && t->rank <= 1 && t->n && t->n <= DATASET_MAX_PARTS;
  for (int64_t i = 0; datasets && i < t->n; i++) datasets = dataset_at(t, i) != NULL;
  if (!datasets || (t->rank && (w->flags & GRAPH_IN_PROCESS))) return add_constant(w, t, out);
  if (!t->rank) return add_dataset(w, dataset_at(t, 0), out);
  shoal_out *in = mem_zalloc((size_t)t->n, sizeof *in);
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < t->n; i++) s = add_dataset(w, dataset_at(t, i), &in[i].node);
  if (!s) s = add_node(w, "Pack", in, (int)t->n, NULL, 0, out);
  free(in);
  return s;
}

/* Of the datasets that a node is given those behind its inputs are for its functions. Where each use counts they stay
 * what they are: TensorFlow writes no captured values down to make them anew. seen: datasets given before. */
static bool is_capture(const struct writing *w, const struct dataset *d, const struct tensor *arg, int *seen) {
  if (!(w->flags & GRAPH_OWN_SEEDS) || arg->dtype != SHOAL_VARIANT || arg->n != 1 || !dataset_at(arg, 0)) return false;
  return (*seen)++ >= d->n_inputs;
}

static shoal_status add_fresh(struct writing *w, const struct dataset *d, struct shoal_node **out) {
  if (!d->origin) {
    if (!(w->flags & GRAPH_IN_PROCESS))
      return UNIMPLEMENTED("A dataset that was made by walking another (%s) cannot be written as a graph",
                           d->type->name);
    struct tensor t;
    TRY(dataset_to_tensor(dataset_ref((struct dataset *)(uintptr_t)d), &t));
    shoal_status s = add_constant(w, &t, out);
    tensor_release(&t);
    return s;
  }
  shoal_out *in = mem_zalloc((size_t)d->n_args, sizeof *in);
  shoal_status s = d->functions ? take_functions(w->g, d) : NULL;
  for (int i = 0, seen = 0; !s && i < d->n_args; i++)
    s = (is_capture(w, d, &d->args[i], &seen) ? add_constant : add_tensor)(w, &d->args[i], &in[i].node);
  if (!s) {
    const struct dataset_origin *o = d->origin;
    struct named_attr *attrs = mem_zalloc((size_t)o->n_attrs, sizeof *attrs);
    for (int i = 0; i < o->n_attrs; i++)
      attrs[i] = (struct named_attr){mem_strdup(o->attrs[i].name), attr_copy(&o->attrs[i].value)};
    s = add_node(w, o->op->name, in, d->n_args, attrs, o->n_attrs, out);
  }
  free(in);
  return s;
}

/* A node for one of several uses. What waits for something of its own is not merged with its like. */
static shoal_status add_use(struct writing *w, const struct dataset *d, struct shoal_node **out) {
  struct shoal_node *own;
  TRY(add_fresh(w, d, out));
  TRY(add_node(w, "NoOp", NULL, 0, NULL, 0, &own));
  graph_add_control(*out, own);
  return NULL;
}

/* (A dataset's depth is bounded when it is made.) */
static shoal_status add_dataset(struct writing *w, const struct dataset *d, struct shoal_node **out) {
  char key[32];
  if ((w->flags & GRAPH_OWN_SEEDS) && d->own_seeds) return add_use(w, d, out);
  snprintf(key, sizeof key, "%p", (const void *)d);
  *out = strmap_get(&w->made, key);
  if (*out) return NULL;
  TRY(add_fresh(w, d, out));
  strmap_put(&w->made, key, *out);
  return NULL;
}

shoal_status dataset_graph(const struct dataset *d, unsigned flags, struct shoal_graph *g, struct shoal_node **out) {
  struct writing w = {.g = g, .flags = flags};
  g->producer = GRAPH_VERSION;
  shoal_status s = add_dataset(&w, d, out);
  strmap_release(&w.made);
  return s;
}

/* ---- state outside ---- */

/* Ops with state that TensorFlow does not mind: datasets, what only reads tables or says something, and calls, whose
 * functions are looked at themselves. */
static bool is_allowed(const struct op *op) {
  static const char *const names[] = {"Assert",
                                      "Print",
                                      "PrintV2",
                                      "Timestamp",
                                      "LookupTableFindV2",
                                      "LookupTableSize",
                                      "LookupTableSizeV2",
                                      "If",
                                      "While",
                                      "StatefulPartitionedCall"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (!strcmp(op->name, names[i])) return true;
  return op->n_out == 1 && op->out[0].type == SHOAL_VARIANT && strstr(op->name, "Dataset");
}

shoal_status dataset_graph_check_state(const struct shoal_graph *g) {
  void *value;
  for (size_t i = 0; strmap_next(&g->functions, &i, NULL, &value);) {
    const struct function_def *f = value;
    for (int k = 0; (f->sig->flags & OP_STATEFUL) && k < f->n_nodes; k++) {
      char *name = mem_strndup(f->nodes[k].op.at, f->nodes[k].op.n);
      const struct op *op = op_find(name);
      free(name);
      if (op && (op->flags & OP_STATEFUL) && !is_allowed(op))
        return STATUS(SHOAL_FAILED_PRECONDITION, "Failed to serialize the input pipeline graph: %s is stateful.",
                      op->name);
    }
  }
  return NULL;
}

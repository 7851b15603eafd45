/* Graphs: adding nodes with their attributes completed and checked, and small passes over the whole.
 *
 * graph_add() is the one way in, for the builder and for imported GraphDefs alike, so that every node of a graph
 * is well-formed: all attributes of its op are there and allowed, and its inputs have the types they should. */
#include "graph/graph.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/builder.h"
#include "graph/function.h"
#include "graph/function_define.h"
#include "graph/prune.h"

enum { MAX_OUTPUTS = 1 << 20 }; /* of one node: a bound on what a hostile attribute can make us allocate */

struct shoal_graph *graph_new(void) {
  struct shoal_graph *g = mem_zalloc(1, sizeof *g);
  g->producer = 1645; /* TensorFlow 2.15's */
  return g;
}

static void node_free(struct shoal_node *n) {
  if (!n) return;
  for (int i = 0; i < n->n_attrs; i++) {
    free(n->attrs[i].name);
    attr_release(&n->attrs[i].value);
  }
  for (size_t i = 0; i < n->original_names.n; i++) free(n->original_names.at[i]);
  for (size_t i = 0; i < n->original_funcs.n; i++) free(n->original_funcs.at[i]);
  vec_release(&n->original_names);
  vec_release(&n->original_funcs);
  vec_release(&n->control);
  free(n->attrs);
  free(n->in);
  free(n->in_types);
  free(n->out_types);
  free(n->out_shapes);
  free(n->full_type);
  free(n->name);
  free(n->device);
  free(n->assigned);
  free(n);
}

void graph_free(struct shoal_graph *g) {
  if (!g) return;
  for (size_t i = 0; i < g->nodes.n; i++) node_free(g->nodes.at[i]);
  vec_release(&g->nodes);
  strmap_release(&g->by_name);
  strmap_release(&g->name_counts);
  void *value;
  for (size_t i = 0; strmap_next(&g->functions, &i, NULL, &value);) function_def_unref(value);
  strmap_release(&g->functions);
  for (size_t i = 0; strmap_next(&g->gradient_functions, &i, NULL, &value);) free(value);
  strmap_release(&g->gradient_functions);
  vec_release(&g->bad_consumers);
  graph_builder_free(g->builder);
  function_list_free(g->defined);
  free(g);
}

bool node_name_valid(const char *name, bool internal) {
  if (!isalnum((unsigned char)*name) && *name != '.' && !(internal && *name == '_')) return false;
  for (const char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("_>./\\-", *c)) return false;
  return true;
}

/* ---- attributes of a new node ---- */

/* The node while it is being made: attributes as given, inputs as given. */
struct making {
  const char *name;
  const struct op *op;
  const shoal_out *in;
  int n_in;
  struct named_attr *attrs;
  int n_attrs, cap_attrs;
};

static struct attr *given(const struct making *m, const char *name) {
  return named_attr_find(m->attrs, m->n_attrs, name);
}

static void give(struct making *m, const char *name, struct attr value) {
  if (m->n_attrs == m->cap_attrs) {
    m->cap_attrs = m->n_attrs + m->op->n_attrs + 1;
    m->attrs = mem_realloc(m->attrs, (size_t)m->cap_attrs, sizeof *m->attrs);
  }
  m->attrs[m->n_attrs++] = (struct named_attr){mem_strdup(name), value};
}

static shoal_dtype input_type(const struct making *m, int i) {
  const shoal_out *o = &m->in[i];
  return o->node ? dtype_base(o->node->out_types[o->index]) : SHOAL_DT_INVALID;
}

/* How many inputs an argument takes, as far as attributes tell; -1 when they do not. */
static int64_t arg_count(const struct making *m, const struct op_arg *arg) {
  if (arg->number_attr) {
    const struct attr *n = given(m, arg->number_attr);
    return n && n->kind == ATTR_INT ? n->i : -1;
  }
  if (arg->list_attr) {
    const struct attr *l = given(m, arg->list_attr);
    return l && l->kind == ATTR_LIST ? (int64_t)l->list.n : -1;
  }
  return 1;
}

/* Infers number, type and list attributes that were not given from the inputs. */
static void infer_attrs(struct making *m) {
  int64_t known = 0;
  int open = 0;
  for (int a = 0; a < m->op->n_in; a++) {
    int64_t n = arg_count(m, &m->op->in[a]);
    if (n < 0) open++;
    else if (n > m->n_in) return;
    else known += n;
  }
  int at = 0;
  for (int a = 0; a < m->op->n_in; a++) {
    const struct op_arg *arg = &m->op->in[a];
    int64_t n = arg_count(m, arg);
    if (n < 0 && open == 1) n = m->n_in - known;
    if (n < 0 || at + n > m->n_in) return;
    if (arg->number_attr && !given(m, arg->number_attr)) give(m, arg->number_attr, attr_int(n));
    if (arg->type_attr && n > 0 && !given(m, arg->type_attr) && input_type(m, at))
      give(m, arg->type_attr, attr_type(input_type(m, at)));
    if (arg->list_attr && !given(m, arg->list_attr)) {
      struct attr list = attr_list(ATTR_TYPE);
      for (int i = 0; i < n; i++) attr_list_add(&list, attr_type(input_type(m, at + i)));
      give(m, arg->list_attr, list);
    }
    at += (int)n;
  }
}

static shoal_status check_one(const struct making *m, const struct op_attr *def, const struct attr *v) {
  if (v->kind == ATTR_TYPE) {
    shoal_dtype t = (shoal_dtype)v->type;
    if (dtype_is_ref(t) && dtype_valid(dtype_base(t))) /* they have no size, and nobody expects them */
      return INVALID("AttrValue must not have reference type value of %s, for attr '%s'", dtype_tf_name(v->type),
                     def->name);
    if (!dtype_valid(t)) return INVALID("Value for attr '%s' of %d is not a type", def->name, v->type);
    if (def->types && !(def->types >> t & 1)) {
      struct text allowed = {0};
      for (int k = 1; k < DTYPE_COUNT; k++)
        if (def->types >> k & 1) text_addf(&allowed, "%s%s", allowed.n ? ", " : "", dtype_tf_name(k));
      shoal_status s = INVALID("Value for attr '%s' of %s is not in the list of allowed values: %s", def->name,
                               dtype_tf_name(v->type), text_cstr(&allowed));
      text_release(&allowed);
      return s;
    }
  }
  if (v->kind == ATTR_STRING && def->strings) {
    struct text allowed = {0};
    for (int k = 0; k < def->n_strings; k++) {
      if (strlen(def->strings[k]) == v->s.n && !memcmp(def->strings[k], v->s.data, v->s.n)) {
        text_release(&allowed);
        return NULL;
      }
      text_addf(&allowed, "%s\"%s\"", k ? ", " : "", def->strings[k]);
    }
    shoal_status s = INVALID("Value for attr '%s' of \"%.60s\" is not in the list of allowed values: %s", def->name,
                             v->s.data, text_cstr(&allowed));
    text_release(&allowed);
    return s;
  }
  return NULL;
}

static shoal_status check_attr(const struct making *m, const struct op_attr *def, struct attr *v) {
  bool empty_list = v->kind == ATTR_LIST && v->list.n == 0;
  if (v->kind != def->kind || (def->kind == ATTR_LIST && !empty_list && v->of != def->of)) {
    struct attr want = {.kind = def->kind, .of = def->of};
    return INVALID("AttrValue had value with type '%s' when '%s' expected, for attr '%s'", attr_kind_name(v),
                   attr_kind_name(&want), def->name);
  }
  if (empty_list) v->of = def->of;
  if (def->has_minimum) {
    if (v->kind == ATTR_INT && v->i < def->minimum)
      return INVALID("Value for attr '%s' of %" PRId64 " must be at least minimum %" PRId64, def->name, v->i,
                     def->minimum);
    if (v->kind == ATTR_LIST && (int64_t)v->list.n < def->minimum)
      return INVALID("Length for attr '%s' of %zu must be at least minimum %" PRId64, def->name, v->list.n,
                     def->minimum);
  }
  if (v->kind != ATTR_LIST) return check_one(m, def, v);
  for (size_t i = 0; i < v->list.n; i++) TRY(check_one(m, def, &v->list.at[i]));
  return NULL;
}

/* Puts the op's attributes first and in its order, completes and checks them. */
static shoal_status complete_attrs(struct making *m) {
  const struct op *op = m->op;
  bool all_given = true;
  for (int i = 0; i < op->n_attrs && all_given; i++) all_given = given(m, op->attrs[i].name) != NULL;
  if (!all_given) infer_attrs(m);
  struct text missing = {0};
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *def = &op->attrs[i];
    if (!given(m, def->name)) {
      if (!def->has_default) {
        text_addf(&missing, "%s'%s'", missing.n ? ", " : "", def->name);
        continue;
      }
      give(m, def->name, attr_copy(&def->dflt));
    }
  }
  if (missing.n) {
    struct text sig = {0};
    op_print(op, &sig);
    shoal_status s = INVALID("NodeDef missing attr%s %s from %s", strchr(missing.at, ',') ? "s" : "",
                             text_cstr(&missing), text_cstr(&sig));
    text_release(&missing);
    text_release(&sig);
    return s;
  }
  for (int i = 0; i < op->n_attrs; i++) {
    for (int k = i; k < m->n_attrs; k++) {
      if (strcmp(m->attrs[k].name, op->attrs[i].name)) continue;
      struct named_attr swap = m->attrs[k];
      memmove(&m->attrs[i + 1], &m->attrs[i], (size_t)(k - i) * sizeof swap);
      m->attrs[i] = swap;
      break;
    }
    TRY(check_attr(m, &op->attrs[i], &m->attrs[i].value));
  }
  return NULL;
}

/* Expands arguments to the types of single inputs or outputs. *types is allocated. */
static shoal_status expand(const struct making *m, const struct op_arg *args, int n_args, uint8_t **types, int *n) {
  VEC(uint8_t) v = {0};
  for (int a = 0; a < n_args; a++) {
    const struct op_arg *arg = &args[a];
    int ref = arg->is_ref ? DTYPE_REF_OFFSET : 0;
    if (arg->list_attr) {
      const struct attr *l = given(m, arg->list_attr);
      if (v.n + l->list.n > MAX_OUTPUTS) goto too_many;
      for (size_t i = 0; i < l->list.n; i++) vec_push(&v, (uint8_t)(l->list.at[i].type + ref));
      continue;
    }
    int64_t count = arg->number_attr ? given(m, arg->number_attr)->i : 1;
    int type = arg->type_attr ? given(m, arg->type_attr)->type : arg->type;
    if (count < 0) {
      vec_release(&v);
      return INVALID("Value for number_attr: \"%s\" %" PRId64 " < 0", arg->number_attr, count);
    }
    if (count > MAX_OUTPUTS - (int64_t)v.n) goto too_many;
    for (int64_t i = 0; i < count; i++) vec_push(&v, (uint8_t)(dtype_is_ref(type) ? type : type + ref));
  }
  *types = v.at;
  *n = (int)v.n;
  return NULL;
too_many:
  vec_release(&v);
  return INVALID("op %s has more than %d inputs or outputs", m->op->name, MAX_OUTPUTS);
}

static shoal_status check_edge(const char *name, int i, int want, shoal_out from) {
  if (!from.node) return NULL;
  if (from.index < 0 || from.index >= from.node->n_out)
    return STATUS(SHOAL_OUT_OF_RANGE, "Node '%s' (type: '%s', num of outputs: %d) does not have output %d",
                  from.node->name, from.node->op->name, from.node->n_out, from.index);
  int have = from.node->out_types[from.index];
  if (have != want && (int)dtype_base(have) != want)
    return INVALID("Input %d of node %s was passed %s from %s:%d incompatible with expected %s.", i, name,
                   dtype_tf_name(have), from.node->name, from.index, dtype_tf_name(want));
  return NULL;
}

static shoal_status check_inputs(const struct making *m, const uint8_t *types, int n) {
  if (n != m->n_in) {
    struct text sig = {0}, want = {0};
    op_print(m->op, &sig);
    for (int i = 0; i < n && i < 20; i++) text_addf(&want, "%s%s", i ? ", " : "", dtype_tf_name(types[i]));
    shoal_status s = INVALID("NodeDef expected inputs '%s%s' do not match %d inputs specified; %s", text_cstr(&want),
                             n > 20 ? ", ..." : "", m->n_in, text_cstr(&sig));
    text_release(&sig);
    text_release(&want);
    return s;
  }
  for (int i = 0; i < n; i++) TRY(check_edge(m->name, i, types[i], m->in[i]));
  return NULL;
}

static void release_attrs(struct making *m) {
  for (int i = 0; i < m->n_attrs; i++) {
    free(m->attrs[i].name);
    attr_release(&m->attrs[i].value);
  }
  free(m->attrs);
}

shoal_status graph_add(struct shoal_graph *g, const char *name, const struct op *op, const shoal_out *in, int n_in,
                       struct named_attr *attrs, int n_attrs, struct shoal_node **out) {
  struct making m = {
      .name = name, .op = op, .in = in, .n_in = n_in, .attrs = attrs, .n_attrs = n_attrs, .cap_attrs = n_attrs};
  uint8_t *in_types = NULL, *out_types = NULL;
  int want_in = 0, n_out = 0;
  shoal_status s = NULL;
  s = effort_spend(g->effort, 1);
  if (!s && strmap_has(&g->by_name, name)) s = INVALID("Node name '%s' already exists in the Graph", name);
  if (!s) s = complete_attrs(&m);
  if (!s) s = expand(&m, op->in, op->n_in, &in_types, &want_in);
  if (!s) s = check_inputs(&m, in_types, want_in);
  if (!s) s = expand(&m, op->out, op->n_out, &out_types, &n_out);
  if (s) {
    free(in_types);
    free(out_types);
    release_attrs(&m);
    return status_suffix(s, "; NodeDef: {{node %s}}", name);
  }
  struct shoal_node *n = mem_zalloc(1, sizeof *n);
  n->id = (int)g->nodes.n;
  n->name = mem_strdup(name);
  n->op = op;
  n->device = mem_strdup("");
  n->attrs = m.attrs;
  n->n_attrs = m.n_attrs;
  n->n_in = n_in;
  n->n_out = n_out;
  n->in = mem_zalloc((size_t)n_in, sizeof *n->in);
  if (n_in) memcpy(n->in, in, (size_t)n_in * sizeof *in);
  n->in_types = in_types;
  n->out_types = out_types;
  vec_push(&g->nodes, n);
  strmap_put(&g->by_name, name, n);
  g->n_nodes++;
  *out = n;
  return NULL;
}

shoal_status graph_set_input(struct shoal_graph *g, struct shoal_node *n, int i, shoal_out from) {
  MUST(i >= 0 && i < n->n_in);
  shoal_status s = check_edge(n->name, i, n->in_types[i], from);
  if (s) return status_suffix(s, "; NodeDef: {{node %s}}", n->name);
  n->in[i] = from;
  return NULL;
}

void graph_add_control(struct shoal_node *n, struct shoal_node *from) {
  if (n == from) return;
  for (size_t i = 0; i < n->control.n; i++)
    if (n->control.at[i] == from) return;
  vec_push(&n->control, from);
}

static int by_id(const void *a, const void *b) {
  const struct shoal_node *x = *(struct shoal_node *const *)a, *y = *(struct shoal_node *const *)b;
  return x->id < y->id ? -1 : x->id > y->id;
}

void graph_add_controls(struct shoal_node *n, struct shoal_node *const *from, size_t count) {
  enum { FEW = 16 };
  if (n->control.n + count <= FEW) {
    for (size_t i = 0; i < count; i++) graph_add_control(n, from[i]);
    return;
  }
  for (size_t i = 0; i < count; i++)
    if (from[i] != n) vec_push(&n->control, from[i]);
  if (!n->control.n) return;
  qsort(n->control.at, n->control.n, sizeof *n->control.at, by_id);
  size_t kept = 1;
  for (size_t i = 1; i < n->control.n; i++)
    if (n->control.at[i] != n->control.at[i - 1]) n->control.at[kept++] = n->control.at[i];
  n->control.n = kept;
}

void graph_set_device(struct shoal_node *n, const char *device) {
  char *copy = mem_strdup(device);
  free(n->device);
  n->device = copy;
}

void graph_remove(struct shoal_graph *g, struct shoal_node *n) {
  strmap_remove(&g->by_name, n->name);
  g->nodes.at[n->id] = NULL;
  g->n_nodes--;
  node_free(n);
}

struct shoal_node *graph_find(const struct shoal_graph *g, const char *name) {
  return strmap_get(&g->by_name, name);
}

char *graph_unique_name(struct shoal_graph *g, const char *base) {
  if (!strmap_has(&g->by_name, base)) return mem_strdup(base);
  for (intptr_t k = (intptr_t)strmap_get(&g->name_counts, base) + 1;; k++) {
    char *name = mem_printf("%s_%" PRIdPTR, base, k);
    if (!strmap_has(&g->by_name, name)) {
      strmap_put(&g->name_counts, base, (void *)k);
      return name;
    }
    free(name);
  }
}

/* ---- copies ---- */

static struct shoal_node *copy_node(const struct shoal_node *n) {
  struct shoal_node *c = mem_zalloc(1, sizeof *c);
  *c = *n;
  c->name = mem_strdup(n->name);
  c->device = mem_strdup(n->device);
  c->assigned = n->assigned ? mem_strdup(n->assigned) : NULL;
  c->attrs = mem_zalloc((size_t)n->n_attrs, sizeof *c->attrs);
  for (int i = 0; i < n->n_attrs; i++)
    c->attrs[i] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  c->in = mem_zalloc((size_t)n->n_in, sizeof *c->in);
  c->in_types = mem_alloc((size_t)n->n_in);
  c->out_types = mem_alloc((size_t)n->n_out);
  if (n->n_in) memcpy(c->in_types, n->in_types, (size_t)n->n_in);
  if (n->n_out) memcpy(c->out_types, n->out_types, (size_t)n->n_out);
  c->out_shapes = NULL;
  if (n->out_shapes) {
    c->out_shapes = mem_alloc((size_t)n->n_out * sizeof *c->out_shapes);
    memcpy(c->out_shapes, n->out_shapes, (size_t)n->n_out * sizeof *c->out_shapes);
  }
  memset(&c->control, 0, sizeof c->control);
  memset(&c->original_names, 0, sizeof c->original_names);
  memset(&c->original_funcs, 0, sizeof c->original_funcs);
  for (size_t i = 0; i < n->original_names.n; i++) vec_push(&c->original_names, mem_strdup(n->original_names.at[i]));
  for (size_t i = 0; i < n->original_funcs.n; i++) vec_push(&c->original_funcs, mem_strdup(n->original_funcs.at[i]));
  if (n->full_type) {
    size_t size = sizeof(size_t) + *(size_t *)n->full_type;
    c->full_type = mem_alloc(size);
    memcpy(c->full_type, n->full_type, size);
  }
  return c;
}

/* A copy of n in g, without inputs. */
static struct shoal_node *add_copy(struct shoal_graph *g, const struct shoal_node *n) {
  struct shoal_node *c = copy_node(n);
  c->id = (int)g->nodes.n;
  vec_push(&g->nodes, c);
  strmap_put(&g->by_name, c->name, c);
  g->n_nodes++;
  return c;
}

/* The copy's inputs: the copies of n's, to[id]; control inputs that were not copied are left out. */
static void connect_copy(const struct shoal_node *n, struct shoal_node *const *to) {
  struct shoal_node *c = to[n->id];
  for (int k = 0; k < n->n_in; k++)
    c->in[k] = (shoal_out){n->in[k].node ? to[n->in[k].node->id] : NULL, n->in[k].index};
  for (size_t k = 0; k < n->control.n; k++) {
    struct shoal_node *from = to[n->control.at[k]->id];
    if (from) vec_push(&c->control, from);
  }
}

struct shoal_graph *graph_copy(const struct shoal_graph *g, struct shoal_node **map) {
  return graph_subset(g, NULL, map);
}

struct shoal_graph *graph_subset(const struct shoal_graph *g, const bool *keep, struct shoal_node **map) {
  struct shoal_graph *c = graph_new();
  struct shoal_node **to = mem_zalloc(g->nodes.n, sizeof *to);
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n || (keep && !keep[i])) continue;
    to[i] = add_copy(c, n);
  }
  for (size_t i = 0; i < g->nodes.n; i++) {
    if (!to[i]) continue;
    connect_copy(g->nodes.at[i], to);
    if (map) map[i] = to[i];
  }
  const char *key;
  void *value;
  for (size_t i = 0; strmap_next(&g->functions, &i, &key, &value);)
    strmap_put(&c->functions, key, function_def_ref(value));
  for (size_t i = 0; strmap_next(&g->gradient_functions, &i, &key, &value);)
    strmap_put(&c->gradient_functions, key, mem_strdup(value));
  c->producer = g->producer;
  c->min_consumer = g->min_consumer;
  for (size_t i = 0; i < g->bad_consumers.n; i++) vec_push(&c->bad_consumers, g->bad_consumers.at[i]);
  free(to);
  return c;
}

shoal_status graph_add_new(struct shoal_graph *g, const struct shoal_graph *from) {
  struct shoal_node **to = mem_zalloc(from->nodes.n, sizeof *to);
  bool *is_new = mem_zalloc(from->nodes.n, sizeof *is_new);
  for (size_t i = 0; i < from->nodes.n; i++) {
    struct shoal_node *n = from->nodes.at[i];
    if (!n) continue;
    to[i] = graph_find(g, n->name);
    if (to[i]) continue;
    is_new[i] = true;
    to[i] = add_copy(g, n);
  }
  for (size_t i = 0; i < from->nodes.n; i++)
    if (is_new[i]) connect_copy(from->nodes.at[i], to);
  free(to);
  free(is_new);
  const char *key;
  void *value;
  shoal_status s = NULL;
  for (size_t i = 0; !s && strmap_next(&from->functions, &i, &key, &value);)
    s = graph_add_function(g, function_def_ref(value));
  for (size_t i = 0; !s && strmap_next(&from->gradient_functions, &i, &key, &value);)
    free(strmap_put(&g->gradient_functions, key, mem_strdup(value)));
  return s;
}

/* ---- order and consumers ---- */

static bool back_edge(const struct shoal_node *from, const struct shoal_node *to) {
  return (op_is(from->op, "NextIteration") || op_is(from->op, "RefNextIteration")) &&
         (op_is(to->op, "Merge") || op_is(to->op, "RefMerge"));
}

void consumers_init(struct consumers *c, const struct shoal_graph *g) {
  c->first = mem_zalloc(g->nodes.n + 1, sizeof *c->first);
  size_t total = 0;
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node) c->first[n->in[k].node->id + 1]++, total++;
    for (size_t k = 0; k < n->control.n; k++) c->first[n->control.at[k]->id + 1]++, total++;
  }
  for (size_t i = 0; i < g->nodes.n; i++) c->first[i + 1] += c->first[i];
  c->at = mem_zalloc(total, sizeof *c->at);
  int *next = mem_alloc((g->nodes.n + 1) * sizeof *next);
  memcpy(next, c->first, (g->nodes.n + 1) * sizeof *next);
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node) c->at[next[n->in[k].node->id]++] = (struct consumer){n, k, n->in[k].index};
    for (size_t k = 0; k < n->control.n; k++) c->at[next[n->control.at[k]->id]++] = (struct consumer){n, -1, -1};
  }
  free(next);
}

void consumers_release(struct consumers *c) {
  free(c->first);
  free(c->at);
}

shoal_status graph_topological_order(const struct shoal_graph *g, struct shoal_node **order) {
  int *pending = mem_zalloc(g->nodes.n, sizeof *pending);
  struct consumers users;
  consumers_init(&users, g);
  int head = 0, tail = 0;
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    pending[i] = (int)n->control.n;
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node && !back_edge(n->in[k].node, n)) pending[i]++;
    if (!pending[i]) order[tail++] = n;
  }
  while (head < tail) {
    struct shoal_node *n = order[head++];
    FOR_CONSUMERS (c, &users, n) {
      if (c->input >= 0 && back_edge(n, c->node)) continue;
      if (--pending[c->node->id] == 0) order[tail++] = c->node;
    }
  }
  shoal_status s = NULL;
  if (tail != g->n_nodes) {
    const char *name = "";
    for (size_t i = 0; i < g->nodes.n && !*name; i++)
      if (g->nodes.at[i] && pending[i] > 0) name = g->nodes.at[i]->name;
    s = INVALID("Graph is invalid, contains a cycle with %d nodes, including: {{node %s}}", g->n_nodes - tail, name);
  }
  consumers_release(&users);
  free(pending);
  return s;
}

/* ---- attributes of a node ---- */

struct attr *node_attr(const struct shoal_node *n, const char *name) {
  return named_attr_find(n->attrs, n->n_attrs, name);
}

void node_set_attr(struct shoal_node *n, const char *name, struct attr value) {
  struct attr *a = node_attr(n, name);
  if (a) {
    attr_release(a);
    *a = value;
    return;
  }
  n->attrs = mem_realloc(n->attrs, (size_t)n->n_attrs + 1, sizeof *n->attrs);
  n->attrs[n->n_attrs++] = (struct named_attr){mem_strdup(name), value};
}

static shoal_status get(const struct shoal_node *n, const char *name, enum attr_kind kind, const struct attr **out) {
  const struct attr *a = node_attr(n, name);
  struct attr want = {.kind = kind};
  if (!a) return STATUS(SHOAL_NOT_FOUND, "No attr named '%s' in NodeDef: {{node %s}}", name, n->name);
  if (a->kind != kind)
    return INVALID("AttrValue had value with type '%s' when '%s' expected, for attr '%s' of {{node %s}}",
                   attr_kind_name(a), attr_kind_name(&want), name, n->name);
  *out = a;
  return NULL;
}

#define GETTER(suffix, kind, type, field)                                                   \
  shoal_status node_get_##suffix(const struct shoal_node *n, const char *name, type *out) { \
    const struct attr *a;                                                                   \
    TRY(get(n, name, kind, &a));                                                            \
    *out = field;                                                                           \
    return NULL;                                                                            \
  }
GETTER(int, ATTR_INT, int64_t, a->i)
GETTER(float, ATTR_FLOAT, float, a->f)
GETTER(bool, ATTR_BOOL, bool, a->b)
GETTER(type, ATTR_TYPE, shoal_dtype, (shoal_dtype)a->type)
GETTER(string, ATTR_STRING, const char *, a->s.data)
GETTER(shape, ATTR_SHAPE, struct shape, *a->shape)
GETTER(tensor, ATTR_TENSOR, const struct tensor *, a->tensor)
GETTER(func, ATTR_FUNC, const struct func_attr *, a->func)

shoal_status node_get_list(const struct shoal_node *n, const char *name, enum attr_kind of, const struct attr **out) {
  TRY(get(n, name, ATTR_LIST, out));
  if ((*out)->list.n && (*out)->of != of) {
    struct attr want = {.kind = ATTR_LIST, .of = of};
    return INVALID("AttrValue had value with type '%s' when '%s' expected, for attr '%s' of {{node %s}}",
                   attr_kind_name(*out), attr_kind_name(&want), name, n->name);
  }
  return NULL;
}

shoal_status node_get_ints(const struct shoal_node *n, const char *name, int64_t *out, int max, int *count) {
  const struct attr *list;
  TRY(node_get_list(n, name, ATTR_INT, &list));
  if (list->list.n > (size_t)max)
    return INVALID("attr '%s' of {{node %s}} has %zu elements; at most %d make sense", name, n->name, list->list.n,
                   max);
  for (size_t i = 0; i < list->list.n; i++) out[i] = list->list.at[i].i;
  *count = (int)list->list.n;
  return NULL;
}

void node_in_range(const struct shoal_node *n, const char *arg, int *first, int *count) {
  struct making m = {.op = n->op, .attrs = n->attrs, .n_attrs = n->n_attrs};
  *first = *count = 0;
  for (int a = 0; a < n->op->n_in; a++) {
    *count = (int)arg_count(&m, &n->op->in[a]);
    if (!strcmp(n->op->in[a].name, arg)) return;
    *first += *count;
  }
  *count = 0;
}

shoal_status node_error(const struct shoal_node *n, shoal_status s) {
  return status_suffix(s, "\n\t [[{{node %s}}]]", n->name);
}

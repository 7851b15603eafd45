/* A function's body as a graph: attributes put in place, named inputs resolved, _Arg and _Retval nodes at the ends.
 *
 * Inside a body an input is written "arg" or "arg:1" (an argument, or one tensor of a list argument), "node:out" or
 * "node:out:1" (an output argument of a node, or one tensor of it), "^node". A list may stand for all its tensors
 * at once. An attribute may be a placeholder for one of the function's own. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/function.h"

struct function_instance {
  const struct shoal_graph *library;
  const struct function_def *f;
  struct named_attr *env; /* values of the function's attributes; borrowed values */
  int n_env;
  struct function_body *body;
  VEC(int) arg_first;                /* [sig->n_in + 1] where an argument's tensors begin among the args */
  struct strmap arg_numbers;         /* an argument's name -> its number + 1 */
  struct shoal_node **nodes;         /* [f->n_nodes] */
  VEC(struct shoal_node *) controls; /* of one node, while it is connected */
};

/* What an input text refers to: `count` consecutive outputs of one node, or as many argument nodes. */
struct source {
  struct shoal_node **args; /* set: argument nodes, one output each */
  struct shoal_node *node;
  int first, count;
};

static const struct attr *env_find(const struct function_instance *in, const char *name) {
  return named_attr_find(in->env, in->n_env, name);
}

/* ---- attributes ---- */

static shoal_status substitute(const struct function_instance *in, struct attr *a) {
  if (a->kind == ATTR_PLACEHOLDER) {
    const struct attr *v = env_find(in, a->s.data);
    if (!v) return INVALID("Attr %s is not set for function '%s'", a->s.data, in->f->name);
    struct attr copy = attr_copy(v);
    attr_release(a);
    *a = copy;
  } else if (a->kind == ATTR_FUNC) {
    for (int i = 0; i < a->func->n_attrs; i++) TRY(substitute(in, &a->func->attrs[i].value));
  } else if (a->kind == ATTR_LIST && a->of == ATTR_FUNC) {
    for (size_t i = 0; i < a->list.n; i++) TRY(substitute(in, &a->list.at[i]));
  }
  return NULL;
}

/* The attributes of the call, completed with the signature's defaults. The array is ours, the values are not. */
static shoal_status make_env(struct function_instance *in, const struct named_attr *attrs, int n_attrs) {
  const struct op *sig = in->f->sig;
  in->env = mem_zalloc((size_t)(n_attrs + sig->n_attrs), sizeof *in->env);
  for (int i = 0; i < n_attrs; i++) in->env[in->n_env++] = attrs[i];
  for (int i = 0; i < sig->n_attrs; i++) {
    struct op_attr *a = &sig->attrs[i];
    if (env_find(in, a->name)) continue;
    if (!a->has_default) return INVALID("Attr %s is not found from function '%s'", a->name, in->f->name);
    in->env[in->n_env++] = (struct named_attr){a->name, a->dflt};
  }
  return NULL;
}

/* The types of an argument's tensors. *types is allocated. */
static shoal_status arg_types(const struct function_instance *in, const struct op_arg *arg, int **types, int *n) {
  const struct attr *list = arg->list_attr ? env_find(in, arg->list_attr) : NULL;
  if (arg->list_attr) {
    if (!list || list->kind != ATTR_LIST || (list->list.n && list->of != ATTR_TYPE))
      return INVALID("Attr %s of function '%s' is not a list of types", arg->list_attr, in->f->name);
    *n = (int)list->list.n;
    *types = mem_zalloc(list->list.n, sizeof **types);
    for (int i = 0; i < *n; i++) (*types)[i] = list->list.at[i].type;
    return NULL;
  }
  int type = arg->type;
  int64_t count = 1;
  if (arg->type_attr) {
    const struct attr *t = env_find(in, arg->type_attr);
    if (!t || t->kind != ATTR_TYPE)
      return INVALID("Attr %s of function '%s' is not a type", arg->type_attr, in->f->name);
    type = t->type;
  }
  if (arg->number_attr) {
    const struct attr *c = env_find(in, arg->number_attr);
    if (!c || c->kind != ATTR_INT || c->i < 0 || c->i > 1 << 20)
      return INVALID("Attr %s of function '%s' is not a sensible number", arg->number_attr, in->f->name);
    count = c->i;
  }
  *n = (int)count;
  *types = mem_zalloc((size_t)count, sizeof **types);
  for (int i = 0; i < *n; i++) (*types)[i] = type;
  return NULL;
}

/* ---- nodes ---- */

static struct named_attr *two_attrs(int type, int64_t index) {
  struct named_attr *a = mem_zalloc(2, sizeof *a);
  a[0] = (struct named_attr){mem_strdup("T"), attr_type(type)};
  a[1] = (struct named_attr){mem_strdup("index"), attr_int(index)};
  return a;
}

static void copy_arg_attrs(const struct function_instance *in, uint32_t arg, struct shoal_node *n) {
  for (int i = 0; i < in->f->n_arg_attrs; i++) {
    const struct arg_attrs *a = &in->f->arg_attrs[i];
    for (int k = 0; a->arg == arg && k < a->n; k++)
      if (a->attrs[k].name[0] == '_') node_set_attr(n, a->attrs[k].name, attr_copy(&a->attrs[k].value));
  }
}

static shoal_status add_args(struct function_instance *in) {
  const struct op *sig = in->f->sig;
  const struct op *op = op_find("_Arg");
  if (!op) return INTERNAL("the op _Arg is not there");
  VEC(struct shoal_node *) args = {0};
  shoal_status s = NULL;
  for (int a = 0; a < sig->n_in && !s; a++) {
    int *types, n;
    s = arg_types(in, &sig->in[a], &types, &n);
    if (s) break;
    vec_push(&in->arg_first, (int)args.n);
    if (!strmap_has(&in->arg_numbers, sig->in[a].name))
      strmap_put(&in->arg_numbers, sig->in[a].name, (void *)(intptr_t)(a + 1));
    for (int i = 0; i < n && !s; i++) {
      char *name = n > 1 ? mem_printf("%s_%d", sig->in[a].name, i) : mem_strdup(sig->in[a].name);
      struct shoal_node *node;
      s = graph_add(in->body->graph, name, op, NULL, 0, two_attrs(types[i], (int64_t)args.n), 2, &node);
      free(name);
      if (s) break;
      copy_arg_attrs(in, (uint32_t)a, node);
      vec_push(&args, node);
    }
    free(types);
  }
  vec_push(&in->arg_first, (int)args.n);
  in->body->args = args.at;
  in->body->n_args = (int)args.n;
  return s;
}

/* How many tensors the op takes, from the node's attributes. */
static shoal_status count_inputs(const struct op *op, const struct named_attr *attrs, int n_attrs, int *out) {
  enum { MOST = 1 << 20 };
  int64_t total = 0;
  for (int i = 0; i < op->n_in; i++) {
    const struct op_arg *arg = &op->in[i];
    const char *name = arg->number_attr ? arg->number_attr : arg->list_attr;
    if (!name) {
      total++;
      continue;
    }
    const struct attr *a = named_attr_find((struct named_attr *)attrs, n_attrs, name);
    const struct op_attr *def = op_attr_find(op, name);
    if (!a && def && def->has_default) a = &def->dflt;
    if (!a || (arg->number_attr ? a->kind != ATTR_INT : a->kind != ATTR_LIST))
      return INVALID("NodeDef missing attr '%s'", name);
    int64_t n = arg->number_attr ? a->i : (int64_t)a->list.n;
    if (n < 0 || n > MOST - total) return INVALID("Attr '%s' asks for too many inputs", name);
    total += n;
  }
  *out = (int)total;
  return NULL;
}

/* Ends of a body are made of the signature, and of its types; one that a body brought itself would be another's. */
static bool is_end(const char *op) {
  static const char *const ends[] = {"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"};
  for (size_t i = 0; i < COUNT_OF(ends); i++)
    if (!strcmp(op, ends[i])) return true;
  return false;
}

static shoal_status add_body_node(struct function_instance *in, const struct node_def *d, struct shoal_node **out) {
  if (!d->name.n || !d->op.n || slice_has_nul(d->name) || slice_has_nul(d->op))
    return INVALID("Illegal op name '%s'", SLICE_CSTR(d->name));
  char *op_name = mem_strndup(d->op.at, d->op.n), *name = mem_strndup(d->name.at, d->name.n);
  const struct op *op = graph_op(in->library, op_name);
  shoal_status s = NULL;
  if (!op) s = NOT_FOUND("Op type not registered '%s' in function '%s'", op_name, in->f->name);
  if (!s && is_end(op_name))
    s = INVALID("'%s' (%s) is no node of a function: its signature has the ends", name, op_name);
  if (!s && !node_name_valid(name, true)) s = INVALID("Illegal op name '%s'", name);
  struct named_attr *attrs = NULL;
  int n = (int)d->attrs.n, n_in = 0;
  if (!s) {
    attrs = mem_zalloc((size_t)n, sizeof *attrs);
    for (int i = 0; i < n; i++)
      attrs[i] = (struct named_attr){mem_strdup(d->attrs.at[i].name), attr_copy(&d->attrs.at[i].value)};
    for (int i = 0; i < n && !s; i++) s = substitute(in, &attrs[i].value);
    if (!s) s = count_inputs(op, attrs, n, &n_in);
    if (s) {
      for (int i = 0; i < n; i++) {
        free(attrs[i].name);
        attr_release(&attrs[i].value);
      }
      free(attrs);
    }
  }
  if (!s) {
    shoal_out *open = mem_zalloc((size_t)n_in, sizeof *open);
    s = graph_add(in->body->graph, name, op, open, n_in, attrs, n, out);
    free(open);
  }
  if (!s && d->device.n) {
    char *device = mem_strndup(d->device.at, d->device.n);
    graph_set_device(*out, device);
    free(device);
  }
  free(op_name);
  free(name);
  return s;
}

/* ---- edges ---- */

/* Where output argument `name` of a node begins among its outputs. */
static bool out_range(const struct shoal_node *n, struct chars name, int *first, int *count) {
  int at = 0;
  for (int i = 0; i < n->op->n_out; i++) {
    const struct op_arg *arg = &n->op->out[i];
    int k = 1;
    if (arg->number_attr) k = (int)node_attr(n, arg->number_attr)->i;
    if (arg->list_attr) k = (int)node_attr(n, arg->list_attr)->list.n;
    if (slice_is(name, arg->name)) {
      *first = at;
      *count = k;
      return true;
    }
    at += k;
  }
  return false;
}

static bool read_index(struct chars s, int *out) {
  int64_t v = 0;
  for (size_t i = 0; i < s.n; i++) {
    if (s.at[i] < '0' || s.at[i] > '9' || v > INT32_MAX) return false;
    v = v * 10 + (s.at[i] - '0');
  }
  *out = v > INT32_MAX ? INT32_MAX : (int)v;
  return s.n > 0;
}

static bool find_arg(const struct function_instance *in, struct chars name, int *arg) {
  intptr_t number = (intptr_t)strmap_getn(&in->arg_numbers, name.at, name.n);
  *arg = (int)number - 1;
  return number > 0;
}

static shoal_status resolve(const struct function_instance *in, struct chars text, struct source *out) {
  *out = (struct source){0};
  struct chars part[3] = {text};
  int n = 1;
  for (size_t i = 0; i < text.n && n < 3; i++) {
    if (text.at[i] != ':') continue;
    size_t begin = (size_t)(part[n - 1].at - text.at);
    part[n] = (struct chars){text.at + i + 1, text.n - i - 1};
    part[n - 1].n = i - begin;
    n++;
  }
  int arg, index = 0;
  if (n < 3 && find_arg(in, part[0], &arg)) {
    int first = in->arg_first.at[arg], count = in->arg_first.at[arg + 1] - first;
    if (n == 2 && (!read_index(part[1], &index) || index >= count)) goto missing;
    out->args = in->body->args + first + index;
    out->count = n == 2 ? 1 : count;
    return NULL;
  }
  char *name = mem_strndup(part[0].at, part[0].n);
  struct shoal_node *node = graph_find(in->body->graph, name);
  free(name);
  int count;
  if (node) TRY(effort_spend(in->library->effort, node->op->n_out / 16));
  if (!node || op_is(node->op, "_Arg") || n < 2 || !out_range(node, part[1], &out->first, &count)) goto missing;
  if (n == 3 && (!read_index(part[2], &index) || index >= count)) goto missing;
  out->node = node;
  out->first += index;
  out->count = n == 3 ? 1 : count;
  return NULL;
missing:
  return INVALID("input %s is not found in function '%s'", SLICE_CSTR(text), in->f->name);
}

static shoal_out source_at(const struct source *s, int i) {
  return s->args ? (shoal_out){s->args[i], 0} : (shoal_out){s->node, s->first + i};
}

static struct shoal_node *control_source(const struct function_instance *in, struct chars name) {
  int arg;
  if (find_arg(in, name, &arg)) {
    int first = in->arg_first.at[arg];
    return first < in->arg_first.at[arg + 1] ? in->body->args[first] : NULL;
  }
  char *text = mem_strndup(name.at, name.n);
  struct shoal_node *n = graph_find(in->body->graph, text);
  free(text);
  return n;
}

static shoal_status connect(struct function_instance *in, const struct node_def *d, struct shoal_node *n) {
  int at = 0;
  /* Looking up attributes among the function's own is work, too. */
  TRY(effort_spend(in->library->effort, (int64_t)(d->in.n + d->attrs.n * (size_t)in->n_env) / 16));
  in->controls.n = 0;
  for (size_t i = 0; i < d->in.n; i++) {
    struct chars text = d->in.at[i];
    if (text.n && text.at[0] == '^') {
      struct shoal_node *from = control_source(in, (struct chars){text.at + 1, text.n - 1});
      if (!from) return INVALID("input[%zu] == '%s', is not found.", i, SLICE_CSTR(text));
      vec_push(&in->controls, from);
      continue;
    }
    struct source src;
    TRY(resolve(in, text, &src));
    if (src.count > n->n_in - at)
      return INVALID("Expected input[%zu] == '%s' to be a control input or fewer inputs for {{node %s}}", i,
                     SLICE_CSTR(text), n->name);
    for (int k = 0; k < src.count; k++) TRY(graph_set_input(in->body->graph, n, at++, source_at(&src, k)));
  }
  if (at != n->n_in)
    return INVALID("Attempt to instantiate {{node %s}} with %d of its %d inputs", n->name, at, n->n_in);
  graph_add_controls(n, in->controls.at, in->controls.n);
  return NULL;
}

static shoal_status add_rets(struct function_instance *in) {
  const struct op *sig = in->f->sig;
  const struct op *op = op_find("_Retval");
  if (!op) return INTERNAL("the op _Retval is not there");
  VEC(struct shoal_node *) rets = {0};
  shoal_status s = NULL;
  for (int a = 0; a < sig->n_out && !s; a++) {
    int *types = NULL, n = 0;
    struct source src;
    s = arg_types(in, &sig->out[a], &types, &n);
    if (!s) s = resolve(in, in->f->rets[a], &src);
    if (!s && src.count != n)
      s = INVALID("Output %s of function '%s' has %d tensors, not %d", sig->out[a].name, in->f->name, src.count, n);
    for (int i = 0; i < n && !s; i++) {
      char *base = n > 1 ? mem_printf("%s_RetVal_%d", sig->out[a].name, i) : mem_printf("%s_RetVal", sig->out[a].name);
      char *name = graph_unique_name(in->body->graph, base);
      shoal_out from = source_at(&src, i);
      struct shoal_node *node;
      s = graph_add(in->body->graph, name, op, &from, 1, two_attrs(types[i], (int64_t)rets.n), 2, &node);
      if (!s) vec_push(&rets, node);
      free(base);
      free(name);
    }
    free(types);
  }
  in->body->rets = rets.at;
  in->body->n_rets = (int)rets.n;
  return s;
}

static shoal_status add_controls(struct function_instance *in) {
  int n = in->f->n_control_rets;
  in->body->controls = mem_zalloc((size_t)n, sizeof *in->body->controls);
  for (int i = 0; i < n; i++) {
    struct shoal_node *node = control_source(in, in->f->control_rets[i].node);
    if (!node)
      return INVALID("Control output '%s' of function '%s' is not a node", SLICE_CSTR(in->f->control_rets[i].node),
                     in->f->name);
    in->body->controls[in->body->n_controls++] = node;
  }
  return NULL;
}

static shoal_status instantiate(struct function_instance *in, const struct named_attr *attrs, int n_attrs) {
  TRY(make_env(in, attrs, n_attrs));
  TRY(add_args(in));
  in->nodes = mem_zalloc((size_t)in->f->n_nodes, sizeof *in->nodes);
  for (int i = 0; i < in->f->n_nodes; i++) TRY(add_body_node(in, &in->f->nodes[i], &in->nodes[i]));
  for (int i = 0; i < in->f->n_nodes; i++) TRY(connect(in, &in->f->nodes[i], in->nodes[i]));
  TRY(add_rets(in));
  TRY(add_controls(in));
  struct shoal_node **order = mem_zalloc((size_t)in->body->graph->n_nodes, sizeof *order);
  shoal_status s = graph_topological_order(in->body->graph, order);
  free(order);
  return s;
}

shoal_status function_instantiate(const struct shoal_graph *library, const struct function_def *f,
                                  const struct named_attr *attrs, int n_attrs, struct function_body *out) {
  *out = (struct function_body){.graph = graph_new()};
  out->graph->producer = library->producer;
  out->graph->effort = library->effort;
  struct function_instance in = {.library = library, .f = f, .body = out};
  shoal_status s = instantiate(&in, attrs, n_attrs);
  free(in.env);
  free(in.nodes);
  vec_release(&in.arg_first);
  vec_release(&in.controls);
  strmap_release(&in.arg_numbers);
  out->graph->effort = NULL;
  if (s) {
    function_body_release(out);
    return status_prefix(s, "Function '%s': ", f->name);
  }
  return NULL;
}

void function_body_take_library(struct function_body *b, const struct shoal_graph *library) {
  const char *key;
  void *value;
  for (size_t i = 0; strmap_next(&library->functions, &i, &key, &value);)
    function_def_unref(strmap_put(&b->graph->functions, key, function_def_ref(value)));
  for (size_t i = 0; strmap_next(&library->gradient_functions, &i, &key, &value);)
    free(strmap_put(&b->graph->gradient_functions, key, mem_strdup(value)));
}

void function_body_release(struct function_body *b) {
  graph_free(b->graph);
  free(b->args);
  free(b->rets);
  free(b->controls);
  *b = (struct function_body){0};
}

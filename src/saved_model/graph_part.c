/* Parts of graphs as functions; see graph_part.h.
 *
 * The body is what outputs and effects need, followed backwards up to the arguments: tensors that the caller gives, and
 * those that somebody else has when the function is called (variables, tables, paths of files). It goes out node by
 * node as the graph has it, but for devices and colocation, which name what is not there when another program calls it.
 */
#include "saved_model/graph_part.h"

#include <ctype.h>
#include <string.h>

#include "base/wire.h"
#include "graph/function_define.h"
#include "graph/node_def.h"
#include "proto/graph.wire.h"
#include "tensor/tensor_proto.h"

void graph_part_init(struct graph_part *p, const struct shoal_graph *g, const char *name) {
  *p = (struct graph_part){
      .graph = g, .name = mem_strdup(name), .inside = mem_zalloc(g->nodes.n + 1, sizeof *p->inside)};
}

void graph_part_release(struct graph_part *p) {
  for (size_t i = 0; i < p->args.n; i++) free(p->args.at[i].name);
  vec_release(&p->args);
  vec_release(&p->outputs);
  vec_release(&p->effects);
  vec_release(&p->nodes);
  free(p->inside);
  free(p->name);
}

/* ---- the body ---- */

static const struct part_arg *find_arg(const struct graph_part *p, shoal_out from) {
  for (size_t i = 0; i < p->args.n; i++)
    if (p->args.at[i].from.node == from.node && p->args.at[i].from.index == from.index) return &p->args.at[i];
  return NULL;
}

static void add_arg(struct graph_part *p, shoal_out from, const char *name, int object) {
  struct part_arg a = {from, mem_strdup(name), object};
  vec_push(&p->args, a);
}

/* Letters in lower case, digits and underscores, a letter first: what OpDefs have. */
void graph_part_add_input(struct graph_part *p, shoal_out from, const char *name) {
  struct text t = {0};
  if (!isalpha((unsigned char)*name)) text_adds(&t, "input_");
  for (; *name; name++) text_addc(&t, isalnum((unsigned char)*name) ? (char)tolower((unsigned char)*name) : '_');
  add_arg(p, from, text_cstr(&t), -1);
  text_release(&t);
}

static void take_in(struct graph_part *p, struct shoal_node *n) {
  if (p->inside[n->id]) return;
  p->inside[n->id] = true;
  vec_push(&p->nodes, n);
}

static shoal_status follow(struct graph_part *p, shoal_out from, part_capture capture, void *arg) {
  int object;
  if (find_arg(p, from)) return NULL;
  TRY(capture(arg, from, &object));
  if (object < 0) {
    take_in(p, from.node);
    return NULL;
  }
  char *name = mem_printf("capture_%d", object);
  add_arg(p, from, name, object);
  free(name);
  return NULL;
}

/* What comes before by control alone: an argument's node has nothing to wait for. */
static shoal_status follow_control(struct graph_part *p, struct shoal_node *n, part_capture capture, void *arg) {
  int object = -1;
  for (size_t i = 0; i < p->args.n; i++)
    if (p->args.at[i].from.node == n) return NULL;
  if (n->n_out) TRY(capture(arg, (shoal_out){n, 0}, &object));
  if (object < 0) take_in(p, n);
  return NULL;
}

/* Nodes and arguments share their names. */
static bool taken(const struct graph_part *p, size_t arg) {
  const char *name = p->args.at[arg].name;
  for (size_t i = 0; i < p->nodes.n; i++)
    if (!strcmp(p->nodes.at[i]->name, name)) return true;
  for (size_t i = 0; i < p->args.n; i++)
    if (i != arg && !strcmp(p->args.at[i].name, name)) return true;
  return false;
}

shoal_status graph_part_find(struct graph_part *p, part_capture capture, void *arg) {
  for (size_t i = 0; i < p->outputs.n; i++) TRY(follow(p, p->outputs.at[i], capture, arg));
  for (size_t i = 0; i < p->effects.n; i++) take_in(p, p->effects.at[i]);
  for (size_t i = 0; i < p->nodes.n; i++) { /* it grows meanwhile */
    const struct shoal_node *n = p->nodes.at[i];
    for (int k = 0; k < n->n_in; k++) TRY(follow(p, n->in[k], capture, arg));
    for (size_t k = 0; k < n->control.n; k++) TRY(follow_control(p, n->control.at[k], capture, arg));
  }
  for (size_t i = p->args.n; i-- > 0;) /* of two that have one name the first keeps it */
    while (taken(p, i)) {
      char *longer = mem_printf("%s_given", p->args.at[i].name);
      free(p->args.at[i].name);
      p->args.at[i].name = longer;
    }
  return NULL;
}

/* ---- the message ---- */

static void put_arg(struct text *out, const char *name, shoal_out of) {
  put_OpDef_ArgDef_name(out, name);
  put_OpDef_ArgDef_type(out, (int)shoal_out_dtype(of));
}

static void put_input(struct text *out, const struct part_arg *a) {
  size_t at = begin_OpDef_input_arg(out);
  put_arg(out, a->name, a->from);
  wire_end(out, at);
}

static void put_output(struct text *out, size_t number, shoal_out from) {
  char *name = mem_printf("output_%zu", number);
  size_t at = begin_OpDef_output_arg(out);
  put_arg(out, name, from);
  wire_end(out, at);
  free(name);
}

static void put_source(const struct graph_part *p, shoal_out from, struct text *out) {
  const struct part_arg *a = find_arg(p, from);
  if (a) text_adds(out, a->name);
  else function_put_output(from, out);
}

/* A resource without a name has its node's; said aloud, since who loads functions makes names of its own of it. */
static shoal_status put_attr(const struct shoal_node *n, const struct named_attr *a, struct text *out) {
  if (!strcmp(a->name, "_class")) return NULL;
  if (strcmp(a->name, "shared_name") || a->value.kind != ATTR_STRING || a->value.s.n)
    return attr_proto_encode_map(a, 1, NodeDef_attr, out);
  struct named_attr named = {a->name, attr_string(n->name, strlen(n->name))};
  shoal_status s = attr_proto_encode_map(&named, 1, NodeDef_attr, out);
  attr_release(&named.value);
  return s;
}

static shoal_status put_node(const struct graph_part *p, const struct shoal_node *n, struct text *out) {
  put_NodeDef_name(out, n->name);
  put_NodeDef_op(out, n->op->name);
  for (int i = 0; i < n->n_in; i++) {
    size_t at = wire_open(out, NodeDef_input);
    put_source(p, n->in[i], out);
    wire_end(out, at);
  }
  for (size_t i = 0; i < n->control.n; i++) {
    if (!p->inside[n->control.at[i]->id]) continue;
    size_t at = wire_open(out, NodeDef_input);
    text_addf(out, "^%s", n->control.at[i]->name);
    wire_end(out, at);
  }
  for (int i = 0; i < n->n_attrs; i++) TRY(put_attr(n, &n->attrs[i], out));
  return NULL;
}

static void put_ret(struct text *out, size_t number, const char *source) {
  char *name = mem_printf("output_%zu", number);
  size_t at = begin_FunctionDef_ret(out);
  put_FunctionDef_RetEntry_key(out, name);
  put_FunctionDef_RetEntry_value(out, source);
  wire_end(out, at);
  free(name);
}

/* A node that runs in every call. */
static void put_effect(struct text *out, const char *name) {
  size_t at = begin_FunctionDef_control_ret(out);
  put_FunctionDef_ControlRetEntry_key(out, name);
  put_FunctionDef_ControlRetEntry_value(out, name);
  wire_end(out, at);
}

static shoal_status put_shape(struct text *out, int number, shoal_out of) {
  struct named_attr shapes = {"_output_shapes", attr_list(ATTR_SHAPE)};
  struct shape shape = {0};
  shape.rank = shoal_out_shape(of, shape.dims);
  attr_list_add(&shapes.value, attr_shape(&shape));
  size_t at = begin_FunctionDef_arg_attr(out);
  put_FunctionDef_ArgAttrEntry_key(out, (uint32_t)number);
  size_t value = begin_FunctionDef_ArgAttrEntry_value(out);
  shoal_status s = attr_proto_encode_map(&shapes, 1, FunctionDef_ArgAttrs_attr, out);
  wire_end(out, value);
  wire_end(out, at);
  attr_release(&shapes.value);
  return s;
}

/* Argument i, with the first n in another order. */
static const struct part_arg *arg_at(const struct graph_part *p, const int *order, int n, size_t i) {
  return &p->args.at[order && i < (size_t)n ? (size_t)order[i] : i];
}

static shoal_status put_shapes(const struct graph_part *p, const int *order, int n, struct text *out) {
  for (size_t i = 0; i < p->args.n; i++) TRY(put_shape(out, (int)i, arg_at(p, order, n, i)->from));
  return NULL;
}

shoal_status graph_part_encode(const struct graph_part *p, struct text *out) {
  size_t signature = begin_FunctionDef_signature(out);
  put_OpDef_name(out, p->name);
  for (size_t i = 0; i < p->args.n; i++) put_input(out, &p->args.at[i]);
  for (size_t i = 0; i < p->outputs.n; i++) put_output(out, i, p->outputs.at[i]);
  put_OpDef_is_stateful(out, true);
  for (size_t i = 0; i < p->effects.n; i++) put_OpDef_control_output(out, p->effects.at[i]->name);
  wire_end(out, signature);
  for (size_t i = 0; i < p->nodes.n; i++) {
    size_t at = begin_FunctionDef_node_def(out);
    TRY(put_node(p, p->nodes.at[i], out));
    wire_end(out, at);
  }
  for (size_t i = 0; i < p->outputs.n; i++) {
    struct text source = {0};
    put_source(p, p->outputs.at[i], &source);
    put_ret(out, i, text_cstr(&source));
    text_release(&source);
  }
  for (size_t i = 0; i < p->effects.n; i++) put_effect(out, p->effects.at[i]->name);
  return put_shapes(p, NULL, 0, out);
}

/* ---- a call of it ---- */

static const char CALL[] = "signature/call"; /* no argument has a slash */

static shoal_status put_call(const struct graph_part *p, struct text *out) {
  struct named_attr attrs[] = {
      {"Tin", attr_list(ATTR_TYPE)}, {"Tout", attr_list(ATTR_TYPE)}, {"f", attr_func(p->name)}};
  size_t at = begin_FunctionDef_node_def(out);
  put_NodeDef_name(out, CALL);
  put_NodeDef_op(out, "StatefulPartitionedCall");
  for (size_t i = 0; i < p->args.n; i++) {
    put_NodeDef_input(out, p->args.at[i].name);
    attr_list_add(&attrs[0].value, attr_type((int)shoal_out_dtype(p->args.at[i].from)));
  }
  for (size_t i = 0; i < p->outputs.n; i++)
    attr_list_add(&attrs[1].value, attr_type((int)shoal_out_dtype(p->outputs.at[i])));
  shoal_status s = attr_proto_encode_map(attrs, COUNT_OF(attrs), NodeDef_attr, out);
  wire_end(out, at);
  for (size_t i = 0; i < COUNT_OF(attrs); i++) attr_release(&attrs[i].value);
  return s;
}

shoal_status graph_part_encode_call(const struct graph_part *p, const char *name, const int *order, int n,
                                    struct text *out) {
  size_t signature = begin_FunctionDef_signature(out);
  put_OpDef_name(out, name);
  for (size_t i = 0; i < p->args.n; i++) put_input(out, arg_at(p, order, n, i));
  for (size_t i = 0; i < p->outputs.n; i++) put_output(out, i, p->outputs.at[i]);
  put_OpDef_is_stateful(out, true);
  put_OpDef_control_output(out, CALL);
  wire_end(out, signature);
  TRY(put_call(p, out));
  for (size_t i = 0; i < p->outputs.n; i++) {
    char *source = mem_printf("%s:output:%zu", CALL, i);
    put_ret(out, i, source);
    free(source);
  }
  put_effect(out, CALL);
  return put_shapes(p, order, n, out);
}

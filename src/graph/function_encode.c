/* A function that was built from C as a FunctionDef. Its inputs, Placeholders in the body, become the signature's
 * arguments; every other node goes out as it is, with inputs in the form that bodies have: "node:output:0". Nodes with
 * effects are results of control, so that they run in every call. Shapes of inputs are told as TensorFlow tells them,
 * in an attribute of the argument. */
#include <string.h>

#include "base/wire.h"
#include "graph/builder.h"
#include "graph/function_define.h"
#include "graph/import.h"
#include "proto/graph.wire.h"

/* The output argument that holds output `index` of a node, and which of its tensors that is. */
static const char *output_arg(const struct shoal_node *n, int index, int *which) {
  int at = 0;
  for (int i = 0; i < n->op->n_out; i++) {
    const struct op_arg *arg = &n->op->out[i];
    int k = 1;
    if (arg->number_attr) k = (int)node_attr(n, arg->number_attr)->i;
    if (arg->list_attr) k = (int)node_attr(n, arg->list_attr)->list.n;
    *which = index - at;
    if (index < at + k) return arg->name;
    at += k;
  }
  return "";
}

void function_put_output(shoal_out from, struct text *out) {
  int which = 0;
  const char *arg = output_arg(from.node, from.index, &which);
  text_addf(out, "%s:%s:%d", from.node->name, arg, which);
}

void function_put_source(shoal_out from, struct text *out) {
  bool is_input = op_is(from.node->op, "Placeholder"); /* there are no others in a body */
  if (is_input) text_adds(out, from.node->name);
  else function_put_output(from, out);
}

static void put_signature(const struct shoal_function *f, struct text *out) {
  size_t signature = begin_FunctionDef_signature(out);
  put_OpDef_name(out, f->name);
  for (int i = 0; i < function_n_in(f); i++) {
    size_t at = begin_OpDef_input_arg(out);
    put_OpDef_ArgDef_name(out, function_in(f, i)->name);
    put_OpDef_ArgDef_type(out, function_in(f, i)->out_types[0]);
    wire_end(out, at);
  }
  for (size_t i = 0; i < f->outputs.n; i++) {
    size_t at = begin_OpDef_output_arg(out);
    put_OpDef_ArgDef_name(out, f->outputs.at[i].name);
    put_OpDef_ArgDef_type(out, out_type(f->outputs.at[i].from));
    wire_end(out, at);
  }
  if (f->stateful) put_OpDef_is_stateful(out, 1);
  for (size_t i = 0; i < f->effects.n; i++) put_OpDef_control_output(out, f->effects.at[i]->name);
  wire_end(out, signature);
}

static shoal_status put_nodes(const struct shoal_function *f, struct text *out) {
  const struct export_options options = {.in_function = true};
  for (size_t i = 0; i < f->body->nodes.n; i++) {
    const struct shoal_node *n = f->body->nodes.at[i];
    if (!n || op_is(n->op, "Placeholder")) continue;
    size_t at = begin_FunctionDef_node_def(out);
    TRY(node_export(n, &options, out));
    wire_end(out, at);
  }
  return NULL;
}

static void put_results(const struct shoal_function *f, struct text *out) {
  for (size_t i = 0; i < f->outputs.n; i++) {
    size_t at = begin_FunctionDef_ret(out);
    put_FunctionDef_RetEntry_key(out, f->outputs.at[i].name);
    size_t value = wire_open(out, FunctionDef_RetEntry_value);
    function_put_source(f->outputs.at[i].from, out);
    wire_end(out, value);
    wire_end(out, at);
  }
  for (size_t i = 0; i < f->effects.n; i++) {
    size_t at = begin_FunctionDef_control_ret(out);
    put_FunctionDef_ControlRetEntry_key(out, f->effects.at[i]->name);
    put_FunctionDef_ControlRetEntry_value(out, f->effects.at[i]->name);
    wire_end(out, at);
  }
}

static shoal_status put_shape(const struct shoal_node *input, int number, struct text *out) {
  struct named_attr shapes = {"_output_shapes", attr_list(ATTR_SHAPE)};
  struct shape shape = out_shape(node_out((struct shoal_node *)input, 0));
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

shoal_status function_encode(const struct shoal_function *f, struct text *out) {
  put_signature(f, out);
  TRY(put_nodes(f, out));
  put_results(f, out);
  TRY(attr_proto_encode_map(f->attrs.at, (int)f->attrs.n, FunctionDef_attr, out));
  for (int i = 0; i < function_n_in(f); i++) TRY(put_shape(function_in(f, i), i, out));
  return NULL;
}

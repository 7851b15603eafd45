/* Writes the op wrappers of the C API and the table of ops, from the rows that register the ops.
 *
 *   gen_ops --header FILE   shoal/ops.h: a function for each op
 *   gen_ops --source FILE   their definitions
 *   gen_ops --docs          docs/ops.md, on standard output
 *   gen_ops --defs          a serialized OpList, on standard output: for comparing signatures with TensorFlow's
 *
 * The build runs this program, which is linked with the rows themselves; so there is no second list of ops. The
 * signature of a wrapper follows from the row:
 *   inputs                          shoal_out; a list is a pointer and a count
 *   attributes without default      parameters, unless the inputs tell them (types, counts)
 *   attributes with default         fields of SHOAL_OP_options; such an op has two functions: shoal_op(), which takes
 *                                   the defaults, and shoal_op_with(), which takes options
 *   outputs                         shoal_op * for none and for lists, shoal_out for one, a struct for several
 * Ops whose name starts with '_' are the runtime's own and get none. A file is rewritten only when it changes, so that
 * touching a kernel does not rebuild every user of the header. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/wire.h"
#include "graph/gradient.h"
#include "graph/import.h"
#include "graph/op.h"
#include "proto/graph.wire.h"
#include "runtime/kernel.h"

/* These have a function of their own, of the same name, in shoal/layers.h, which does more. */
static const char *const by_hand[] = {"Placeholder", "Variable"};

static bool has_wrapper(const struct op *op) {
  for (size_t i = 0; i < COUNT_OF(by_hand); i++)
    if (op_is(op, by_hand[i])) return false;
  return op->name[0] != '_';
}

/* ---- names ---- */

/* MatMul -> mat_mul, Conv2DBackpropInput -> conv2d_backprop_input, TopKV2 -> top_k_v2, LRNGrad -> lrn_grad. */
static char *snake(const char *name) {
  struct text t = {0};
  for (const char *p = name; *p; p++) {
    bool upper = isupper((unsigned char)*p);
    bool version = *p == 'V' && isdigit((unsigned char)p[1]);
    if (upper && p > name) {
      unsigned char before = (unsigned char)p[-1];
      bool ends_acronym = isupper(before) && islower((unsigned char)p[1]);
      bool dimension = isdigit(before) && *p == 'D';
      if (version || ends_acronym || (!isupper(before) && before != '_' && !dimension)) text_addc(&t, '_');
    }
    text_addc(&t, (char)tolower((unsigned char)*p));
  }
  return text_take(&t);
}

/* An argument's or attribute's name as a C identifier. */
static const char *c_name(const char *name, char *room, size_t size) {
  static const char *const taken[] = {"auto",  "break",  "case",   "char",     "const",   "default", "do",     "double",
                                      "else",  "enum",   "extern", "float",    "for",     "goto",    "if",     "int",
                                      "long",  "return", "short",  "signed",   "sizeof",  "static",  "struct", "switch",
                                      "union", "void",   "while",  "unsigned", "options", "name",    "g",      "delete",
                                      "new",   "class",  "this",   "operator", "template"};
  for (size_t i = 0; i < COUNT_OF(taken); i++) {
    if (strcmp(name, taken[i])) continue;
    snprintf(room, size, "%s_", name);
    return room;
  }
  return name;
}
#define C_NAME(s) c_name(s, (char[128]){0}, 128)

static void add_type_name(struct text *t, int type) {
  text_adds(t, "SHOAL_");
  for (const char *p = shoal_dtype_name((shoal_dtype)type); *p; p++) text_addc(t, (char)toupper((unsigned char)*p));
}

/* ---- what a wrapper takes ---- */

static bool is_inferred(const struct op *op, const struct op_attr *a) {
  for (int i = 0; i < op->n_in; i++)
    if (str_equal(op->in[i].type_attr, a->name) || str_equal(op->in[i].number_attr, a->name) ||
        str_equal(op->in[i].list_attr, a->name))
      return true;
  return false;
}

static bool is_parameter(const struct op *op, const struct op_attr *a) {
  return !a->has_default && !is_inferred(op, a);
}
static bool is_option(const struct op *op, const struct op_attr *a) { return a->has_default && !is_inferred(op, a); }

static bool has_options(const struct op *op) {
  for (int i = 0; i < op->n_attrs; i++)
    if (is_option(op, &op->attrs[i])) return true;
  return false;
}

/* Random ops that give no seeds draw them from the graph's. */
static bool has_seeds(const struct op *op) {
  const struct op_attr *a = op_attr_find(op, "seed"), *b = op_attr_find(op, "seed2");
  return a && b && a->kind == ATTR_INT && b->kind == ATTR_INT && is_option(op, a) && is_option(op, b);
}

static bool is_list(const struct op_arg *a) { return a->number_attr || a->list_attr; }

static int list_outputs(const struct op *op) {
  int n = 0;
  for (int i = 0; i < op->n_out; i++) n += is_list(&op->out[i]);
  return n;
}

static const char *kind_type(enum attr_kind kind) {
  switch (kind) {
    case ATTR_STRING: return "const char *";
    case ATTR_INT: return "int64_t ";
    case ATTR_FLOAT: return "float ";
    case ATTR_BOOL: return "bool ";
    case ATTR_TYPE: return "shoal_dtype ";
    case ATTR_SHAPE: return "shoal_dims ";
    case ATTR_TENSOR: return "const shoal_tensor *";
    case ATTR_FUNC: return "const char *";
    default: must_failed("a kind of attribute", __FILE__, __LINE__, __func__);
  }
}

/* One attribute as parameters or fields, with `end` after each. In options a shape is a pointer, so that it has a NULL.
 */
static void add_declaration(struct text *t, const struct op_attr *a, bool option, const char *end) {
  if (a->kind != ATTR_LIST) {
    if (option && a->kind == ATTR_SHAPE) text_addf(t, "const shoal_dims *%s%s", C_NAME(a->name), end);
    else text_addf(t, "%s%s%s", kind_type(a->kind), C_NAME(a->name), end);
    return;
  }
  bool pointer = strchr(kind_type(a->of), '*') != NULL;
  text_addf(t, "%s%s*%s%sint n_%s%s", pointer ? kind_type(a->of) : "const ", pointer ? "const " : kind_type(a->of),
            C_NAME(a->name), end, a->name, end);
}

static void add_result(struct text *t, const struct op *op, const char *name) {
  if (op->n_out == 0 || list_outputs(op)) text_adds(t, "shoal_op *");
  else if (op->n_out == 1) text_adds(t, "shoal_out ");
  else text_addf(t, "shoal_%s_outs ", name);
}

static void add_prototype(struct text *t, const struct op *op, const char *name, bool with) {
  add_result(t, op, name);
  text_addf(t, "shoal_%s%s(shoal_graph *g", name, with ? "_with" : "");
  for (int i = 0; i < op->n_in; i++) {
    if (is_list(&op->in[i])) text_addf(t, ", const shoal_out *%s, int n_%s", C_NAME(op->in[i].name), op->in[i].name);
    else text_addf(t, ", shoal_out %s", C_NAME(op->in[i].name));
  }
  for (int i = 0; i < op->n_attrs; i++) {
    if (!is_parameter(op, &op->attrs[i])) continue;
    struct text one = {0};
    add_declaration(&one, &op->attrs[i], false, ", ");
    text_addf(t, ", %.*s", (int)one.n - 2, one.at);
    text_release(&one);
  }
  if (with) text_addf(t, ", const shoal_%s_options *options", name);
  text_adds(t, ")");
}

/* ---- the header ---- */

/* Long declarations are broken at commas. */
static void add_wrapped(struct text *t, const char *line) {
  size_t column = 0;
  for (const char *p = line; *p; p++) {
    const char *next = strchr(p, ',');
    size_t piece = next ? (size_t)(next - p) + 1 : strlen(p);
    if (column && column + piece > 118) {
      text_adds(t, "\n    ");
      column = 4;
      if (*p == ' ') p++, piece--;
    }
    text_add(t, p, piece);
    column += piece;
    p += piece - 1;
  }
}

/* Fields one after another, without their names: that is C, and C++ of any year. */
static void add_default(struct text *t, const struct op_attr *a) {
  switch (a->kind) {
    case ATTR_LIST: text_adds(t, ", NULL, 0"); break;
    case ATTR_INT: text_addf(t, ", %lld", (long long)a->dflt.i); break;
    case ATTR_BOOL: text_adds(t, a->dflt.b ? ", true" : ", false"); break;
    case ATTR_FLOAT:
      if (isinf(a->dflt.f)) text_addf(t, ", %s__builtin_inff()", a->dflt.f < 0 ? "-" : "");
      else text_addf(t, ", (float)%.9g", (double)a->dflt.f);
      break;
    case ATTR_TYPE:
      text_adds(t, ", ");
      add_type_name(t, a->dflt.type);
      break;
    default: text_adds(t, ", NULL");
  }
}

static void add_options(struct text *t, const struct op *op, const char *name) {
  text_addf(t,
            "typedef struct shoal_%s_options {\n  size_t size; /* the macro below sets it */\n  const char *name; /* "
            "of the node; NULL: the op's */\n",
            name);
  struct text defaults = {0};
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *a = &op->attrs[i];
    if (!is_option(op, a)) continue;
    struct text line = {0}, value = {0};
    add_declaration(&line, a, true, "; ");
    attr_print(&a->dflt, &value);
    bool by_null = a->kind == ATTR_LIST || strchr(kind_type(a->kind), '*') || a->kind == ATTR_SHAPE;
    if (!strstr(text_cstr(&value), "*/"))
      text_addf(t, "  %s/* %s%s */\n", text_cstr(&line), by_null ? "NULL: " : "", text_cstr(&value));
    add_default(&defaults, a);
    text_release(&line);
    text_release(&value);
  }
  text_addf(t, "} shoal_%s_options;\n#define SHOAL_", name);
  for (const char *p = name; *p; p++) text_addc(t, (char)toupper((unsigned char)*p));
  text_addf(t, "_DEFAULTS {sizeof(shoal_%s_options), NULL%s}\n", name, text_cstr(&defaults));
  text_release(&defaults);
}

static void add_plain_call(struct text *t, const struct op *op, const char *name) {
  struct text line = {0};
  text_adds(&line, "static inline ");
  add_prototype(&line, op, name, false);
  add_wrapped(t, text_cstr(&line));
  vec_clear(&line);
  text_addf(&line, " {\n  return shoal_%s_with(g", name);
  for (int i = 0; i < op->n_in; i++) {
    text_addf(&line, ", %s", C_NAME(op->in[i].name));
    if (is_list(&op->in[i])) text_addf(&line, ", n_%s", op->in[i].name);
  }
  for (int i = 0; i < op->n_attrs; i++) {
    if (!is_parameter(op, &op->attrs[i])) continue;
    text_addf(&line, ", %s", C_NAME(op->attrs[i].name));
    if (op->attrs[i].kind == ATTR_LIST) text_addf(&line, ", n_%s", op->attrs[i].name);
  }
  text_adds(&line, ", NULL);\n}\n");
  add_wrapped(t, text_cstr(&line));
  text_release(&line);
}

static void add_header_op(struct text *t, const struct op *op) {
  char *name = snake(op->name);
  struct text line = {0};
  text_addf(t, "\n/* %s */\n", op->name);
  if (op->n_out > 1 && !list_outputs(op)) {
    text_addf(t, "typedef struct shoal_%s_outs {\n  shoal_out ", name);
    for (int i = 0; i < op->n_out; i++) text_addf(t, "%s%s", i ? ", " : "", C_NAME(op->out[i].name));
    text_addf(t, ";\n} shoal_%s_outs;\n", name);
  }
  bool with = has_options(op);
  if (with) add_options(t, op, name);
  text_adds(&line, "SHOAL_API ");
  add_prototype(&line, op, name, with);
  text_adds(&line, ";\n");
  add_wrapped(t, text_cstr(&line));
  if (with) add_plain_call(t, op, name);
  text_release(&line);
  free(name);
}

static void write_header(struct text *t, const struct op *const *ops, int n) {
  text_adds(
      t,
      "/* Op wrappers, written by tools/gen_ops.c from the op rows: do not edit.\n"
      " *\n"
      " * One function for each op, named after it: MatMul is shoal_mat_mul. Inputs come first, then attributes that\n"
      " * have no default. Where some have one, shoal_OP() takes the defaults and shoal_OP_with() takes options,\n"
      " * which start from SHOAL_OP_DEFAULTS:\n"
      " *\n"
      " *   shoal_mat_mul_options o = SHOAL_MAT_MUL_DEFAULTS;\n"
      " *   o.transpose_a = true;\n"
      " *   shoal_out y = shoal_mat_mul_with(g, a, b, &o);\n"
      " *\n"
      " * Mistakes are kept in the graph (shoal_graph_error). An op with a list of outputs gives the op itself. */\n"
      "#ifndef SHOAL_OPS_H\n#define SHOAL_OPS_H\n\n#include <shoal/graph.h>\n\n"
      "#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
  for (int i = 0; i < n; i++)
    if (has_wrapper(ops[i])) add_header_op(t, ops[i]);
  text_adds(t, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

/* ---- the source ---- */

static const char *element_of(enum attr_kind kind) {
  switch (kind) {
    case ATTR_STRING: return "attr_string(%s, strlen(%s))";
    case ATTR_INT: return "attr_int(%s)";
    case ATTR_FLOAT: return "attr_float(%s)";
    case ATTR_BOOL: return "attr_bool(%s)";
    case ATTR_TYPE: return "attr_type(%s)";
    case ATTR_SHAPE: return "to_shape(g, %s)";
    case ATTR_TENSOR: return "attr_tensor(&%s->t)";
    case ATTR_FUNC: return "attr_func(%s)";
    default: must_failed("a kind of attribute", __FILE__, __LINE__, __func__);
  }
}

static void add_value(struct text *t, enum attr_kind kind, const char *expression) {
  for (const char *p = element_of(kind); *p; p++) {
    if (p[0] == '%' && p[1] == 's') text_adds(t, expression), p++;
    else text_addc(t, *p);
  }
}

static const char *const kind_words[] = {
    [ATTR_STRING] = "ATTR_STRING", [ATTR_INT] = "ATTR_INT",   [ATTR_FLOAT] = "ATTR_FLOAT",
    [ATTR_BOOL] = "ATTR_BOOL",     [ATTR_TYPE] = "ATTR_TYPE", [ATTR_SHAPE] = "ATTR_SHAPE",
    [ATTR_TENSOR] = "ATTR_TENSOR", [ATTR_FUNC] = "ATTR_FUNC",
};

static void add_attribute(struct text *t, const struct op_attr *a, bool option) {
  const char *from = option ? "options->" : "";
  char field[160], value[192];
  snprintf(field, sizeof field, "%s%s", from, C_NAME(a->name));
  bool list = a->kind == ATTR_LIST;
  bool nullable = option && (list || strchr(kind_type(a->kind), '*') || a->kind == ATTR_SHAPE);
  text_adds(t, "  ");
  if (nullable) text_addf(t, "if (%s) ", field);
  if (list) {
    snprintf(value, sizeof value, "%s[i]", field);
    text_addf(t, "{\n    struct attr list = attr_list(%s);\n", kind_words[a->of]);
    text_addf(t, "    for (int i = 0; i < %sn_%s; i++) attr_list_add(&list, ", from, a->name);
    add_value(t, a->of, value);
    text_addf(t, ");\n    build_attr(&build_, \"%s\", list);\n  }\n", a->name);
    return;
  }
  snprintf(value, sizeof value, "%s%s", option && a->kind == ATTR_SHAPE ? "*" : "", field);
  text_addf(t, "build_attr(&build_, \"%s\", ", a->name);
  add_value(t, a->kind, value);
  text_adds(t, ");\n");
}

/* Where several inputs are lists, how many tensors belong to which cannot be told from the inputs: the attributes that
 * say so are set. */
static void add_list_attributes(struct text *t, const struct op *op) {
  int lists = 0;
  for (int i = 0; i < op->n_in; i++) lists += is_list(&op->in[i]);
  for (int i = 0; i < op->n_in && lists > 1; i++) {
    const struct op_arg *a = &op->in[i];
    const char *attr = a->list_attr ? a->list_attr : a->number_attr;
    bool first = attr != NULL;
    for (int k = 0; first && k < i; k++)
      first = !str_equal(op->in[k].list_attr, attr) && !str_equal(op->in[k].number_attr, attr);
    if (!first) continue;
    if (a->list_attr) text_addf(t, "  add_types_of(&build_, \"%s\", %s, n_%s);\n", attr, C_NAME(a->name), a->name);
    else text_addf(t, "  build_attr_int(&build_, \"%s\", n_%s);\n", attr, a->name);
  }
}

static void add_source_op(struct text *t, const struct op *op) {
  char *name = snake(op->name);
  bool with = has_options(op);
  struct text line = {0};
  add_prototype(&line, op, name, with);
  text_addc(t, '\n');
  add_wrapped(t, text_cstr(&line));
  text_adds(t, " {\n");
  if (with) {
    text_addf(t, "  shoal_%s_options options_ = SHOAL_", name);
    for (const char *p = name; *p; p++) text_addc(t, (char)toupper((unsigned char)*p));
    text_addf(t, "_DEFAULTS;\n  take_options(g, &options_, sizeof options_, options, \"shoal_%s_options\");\n", name);
    text_adds(t, "  options = &options_;\n");
  }
  text_addf(t, "  struct build build_ = build_begin(g, \"%s\", %s);\n", op->name, with ? "options->name" : "NULL");
  for (int i = 0; i < op->n_in; i++) {
    const char *in = C_NAME(op->in[i].name);
    if (is_list(&op->in[i])) text_addf(t, "  build_in_list(&build_, %s, n_%s);\n", in, op->in[i].name);
    else text_addf(t, "  build_in(&build_, %s);\n", in);
  }
  add_list_attributes(t, op);
  bool seeds = has_seeds(op);
  if (seeds) text_adds(t, "  add_seeds(&build_, options->seed, options->seed2);\n");
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *a = &op->attrs[i];
    if (seeds && (str_equal(a->name, "seed") || str_equal(a->name, "seed2"))) continue;
    if (is_parameter(op, a)) add_attribute(t, a, false);
    else if (is_option(op, a)) add_attribute(t, a, true);
  }
  if (op->n_out == 0 || list_outputs(op)) {
    text_adds(t, "  return build_end(&build_);\n}\n");
  } else if (op->n_out == 1) {
    text_adds(t, "  return build_end_out(&build_);\n}\n");
  } else {
    text_addf(t, "  struct shoal_node *node_ = build_end(&build_);\n  return (shoal_%s_outs){", name);
    for (int i = 0; i < op->n_out; i++) text_addf(t, "%s{node_, %d}", i ? ", " : "", i);
    text_adds(t, "};\n}\n");
  }
  text_release(&line);
  free(name);
}

static void write_source(struct text *t, const struct op *const *ops, int n) {
  text_adds(
      t,
      "/* Op wrappers, written by tools/gen_ops.c from the op rows: do not edit. */\n"
      "#include <shoal/ops.h>\n\n#include <string.h>\n\n#include \"base/options.h\"\n#include \"graph/builder.h\"\n\n"
      "/* A shape that is none is kept as the graph's error. */\n"
      "static __attribute__((unused)) struct attr to_shape(struct shoal_graph *g, shoal_dims d) {\n"
      "  struct shape s = shape_unknown();\n"
      "  if (d.rank > SHOAL_MAX_RANK) graph_fail(g, INVALID(\"a shape of rank %d\", d.rank));\n"
      "  else if (d.rank >= 0) {\n    s.rank = d.rank;\n    for (int i = 0; i < d.rank; i++) s.dims[i] = "
      "d.at[i];\n  }\n"
      "  return attr_shape(&s);\n}\n\n"
      "/* The options of a call, over the defaults in *to. */\n"
      "static void take_options(shoal_graph *g, void *to, size_t size, const void *from, const char *type) {\n"
      "  shoal_status e = options_take(to, size, 0, from, type);\n"
      "  if (e) graph_fail(g, e);\n}\n\n"
      "/* The types of a list of inputs. */\n"
      "static __attribute__((unused)) void add_types_of(struct build *b, const char *attr, const shoal_out *in, int n) "
      "{\n"
      "  struct attr list = attr_list(ATTR_TYPE);\n"
      "  for (int i = 0; in && i < n; i++) attr_list_add(&list, attr_type(out_type(in[i])));\n"
      "  build_attr(b, attr, list);\n}\n\n"
      "/* Seeds that are both 0 come from the graph's (shoal_set_random_seed). */\n"
      "static __attribute__((unused)) void add_seeds(struct build *b, int64_t seed, int64_t seed2) {\n"
      "  if (!seed && !seed2) graph_next_seeds(b->g, &seed, &seed2);\n"
      "  build_attr_int(b, \"seed\", seed);\n"
      "  build_attr_int(b, \"seed2\", seed2);\n}\n");
  for (int i = 0; i < n; i++)
    if (has_wrapper(ops[i])) add_source_op(t, ops[i]);
}

/* ---- the table of ops ---- */

static const struct {
  const char *word;
  uint32_t types;
} groups[] = {{"all", DT_ALL},         {"plain", DT_PLAIN},     {"number", DT_NUMBER},
              {"real", DT_REAL},       {"integer", DT_INTEGER}, {"floating", DT_FLOATING},
              {"complex", DT_COMPLEX}, {"signed", DT_SIGNED},   {"quantized", DT_QUANTIZED}};

static void add_types(struct text *t, uint32_t types) {
  bool first = true;
  for (size_t i = 0; i < COUNT_OF(groups); i++) {
    if ((types & groups[i].types) != groups[i].types) continue;
    text_addf(t, "%s*%s*", first ? "" : ", ", groups[i].word);
    types &= ~groups[i].types;
    first = false;
  }
  for (int i = 1; i < 32; i++) {
    const char *name = types >> i & 1 ? shoal_dtype_name((shoal_dtype)i) : NULL;
    if (!name) continue;
    text_addf(t, "%s%s", first ? "" : ", ", name);
    first = false;
  }
}

/* The dtypes of an op's kernels on the CPU. */
static void add_kernel_types(struct text *t, const struct op *op) {
  const char *attr = NULL;
  uint32_t types = 0;
  bool any = false, all = false; /* one takes whatever the signature allows */
  for (const struct kernel_def *k = op->row->kernels; k && k->device; k++) {
    if (strcmp(k->device, "CPU")) continue;
    any = true;
    all |= !k->type_attr;
    if (!attr) attr = k->type_attr;
    if (str_equal(attr, k->type_attr)) types |= k->types;
  }
  const struct op_attr *a = attr ? op_attr_find(op, attr) : NULL;
  if (a && a->types) types &= (uint32_t)a->types;
  if (!any) text_adds(t, "graph only");
  else if (all) text_adds(t, "");
  else add_types(t, types);
}

static void write_docs(struct text *t, const struct op *const *ops, int n) {
  int with_kernel = 0, with_gradient = 0;
  for (int i = 0; i < n; i++) {
    with_kernel += ops[i]->row->kernels != NULL;
    with_gradient += ops[i]->row->grad && ops[i]->row->grad != grad_stop;
  }
  text_addf(
      t,
      "# Ops\n\nWritten by `make docs` from the op rows; do not edit.\n\n"
      "%d ops, %d with a CPU kernel, %d with a gradient. Signatures (arguments, attributes, defaults, allowed types)\n"
      "are TensorFlow 2.15's. Dtypes are those of the kernels:\n\n",
      n, with_kernel, with_gradient);
  for (size_t i = 0; i < COUNT_OF(groups); i++) {
    text_addf(t, "- *%s*: ", groups[i].word);
    bool first = true;
    for (int k = 1; k < 32; k++) {
      const char *name = groups[i].types >> k & 1 ? shoal_dtype_name((shoal_dtype)k) : NULL;
      if (name) text_addf(t, "%s%s", first ? "" : " ", name), first = false;
    }
    text_addc(t, '\n');
  }
  text_adds(
      t,
      "\nAn empty cell: the op has one signature of types. Gradient: *yes*; *stops* where TensorFlow defines that\n"
      "none flows back; empty where asking for one is an error. Control flow of both generations and calls of\n"
      "functions have no gradient of their own: `shoal_gradients` takes them as a whole.\n\n"
      "| op | file in src/ops | dtypes | gradient |\n|---|---|---|---|\n");
  for (int i = 0; i < n; i++) {
    const struct op *op = ops[i];
    const char *file = strstr(op->family, "src/ops/");
    text_addf(t, "| %s | %s | ", op->name, file ? file + strlen("src/ops/") : op->family);
    add_kernel_types(t, op);
    bool stops = op->row->grad == grad_stop || op->flags & OP_NO_GRADIENT;
    text_addf(t, " | %s |\n", stops ? "stops" : op->row->grad ? "yes" : "");
  }
}

/* ---- the signatures as messages ---- */

static void write_defs(struct text *t, const struct op *const *ops, int n) {
  for (int i = 0; i < n; i++) {
    struct text def = {0};
    shoal_status s = op_export(ops[i], &def);
    if (s) must_failed(shoal_status_message(s), __FILE__, __LINE__, __func__);
    put_OpList_op_n(t, def.at, def.n);
    text_release(&def);
  }
}

/* ---- files ---- */

static bool same_as_file(const char *path, const struct text *t) {
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  char *old = mem_alloc(t->n + 1);
  size_t n = fread(old, 1, t->n + 1, f);
  bool same = n == t->n && memcmp(old, t->at, n) == 0;
  free(old);
  fclose(f);
  return same;
}

static int put(const char *path, const struct text *t) {
  if (path && same_as_file(path, t)) return 0;
  FILE *f = path ? fopen(path, "wb") : stdout;
  if (!f || fwrite(t->at, 1, t->n, f) != t->n || fflush(f) || (path && fclose(f))) {
    perror(path ? path : "standard output");
    return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  int n;
  const struct op *const *ops = op_all(&n);
  struct text t = {0};
  if (argc == 3 && !strcmp(argv[1], "--header")) write_header(&t, ops, n);
  else if (argc == 3 && !strcmp(argv[1], "--source")) write_source(&t, ops, n);
  else if (argc == 2 && !strcmp(argv[1], "--docs")) write_docs(&t, ops, n);
  else if (argc == 2 && !strcmp(argv[1], "--defs")) write_defs(&t, ops, n);
  else {
    fprintf(stderr, "usage: gen_ops --header FILE | --source FILE | --docs | --defs\n");
    return 2;
  }
  int rc = put(argc == 3 ? argv[2] : NULL, &t);
  text_release(&t);
  return rc;
}

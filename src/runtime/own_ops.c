/* Ops of one's own (shoal/op.h): libraries that are loaded, their rows put into the registry beside the built-in ones,
 * and what their kernels, shape functions and gradients see of ours (of attributes: own_attrs.c).
 *
 * A public row becomes an op_row whose functions are adapters. They find the public row from the op that they run for:
 * the op_row is the first field of struct own_op. The opaque types of the public header are our own contexts under
 * another name, so that nothing is copied on the way; accessors check what a kernel could get wrong (an index) and
 * leave the rest to it: it is code of this process.
 *
 * Arrays of rows and kernels are walked by the sizes that the library gives: one that was compiled with an older header
 * has smaller ones, whose missing fields are zero. Nothing is unloaded, so names and rows stay where they are. */
#include "shoal/op.h"

#include <dlfcn.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/given.h"
#include "base/mem.h"
#include "base/vec.h"
#include "graph/builder.h"
#include "graph/function_define.h"
#include "graph/given.h"
#include "graph/gradient.h"
#include "graph/op_register.h"
#include "graph/shape_fn.h"
#include "runtime/kernel.h"

enum { MOST_STATE = 1 << 20 }; /* bytes of a kernel's state: what is larger it takes itself */

struct own_op {
  struct op_row row; /* first: the registry knows this one */
  shoal_op_row is;
  shoal_op_kernel *kernels;
  struct kernel_def *defs; /* [is.n_kernels + 1] */
};

static const struct own_op *own_of(const struct op *op) { return (const struct own_op *)(const void *)op->row; }

/* ---- errors of the program's own ---- */

shoal_status shoal_status_new(shoal_code code, const char *format, ...) {
  if (code == SHOAL_OK) return NULL;
  if (code < 0 || code > SHOAL_UNAUTHENTICATED) code = SHOAL_UNKNOWN;
  va_list ap;
  va_start(ap, format);
  char *text = NULL;
  if (vasprintf(&text, format, ap) < 0) text = NULL;
  va_end(ap);
  shoal_status s = STATUS(code, "%s", text ? text : format);
  free(text);
  return s;
}

/* ---- kernels ---- */

struct own_state {
  const shoal_op_kernel *kernel;
  struct shape *promised; /* [outputs]: what the op's shape function said; NULL: it has none */
  alignas(max_align_t) char of_user[];
};

static void keep_promises(struct own_state *s, const struct shoal_node *n) {
  if (!n->op->row->shape || !n->out_shapes) return;
  s->promised = mem_zalloc((size_t)n->n_out + 1, sizeof *s->promised);
  for (int i = 0; i < n->n_out; i++) s->promised[i] = n->out_shapes[i];
}

static shoal_status own_init(struct kernel_init *ki, void *state) {
  const struct own_op *own = own_of(ki->kernel->op);
  struct own_state *s = state;
  ptrdiff_t which = ki->kernel->def - own->defs;
  MUST(which >= 0 && which < own->is.n_kernels);
  s->kernel = &own->kernels[which];
  shoal_status e = s->kernel->init ? s->kernel->init(ki->node, s->of_user) : NULL;
  if (e) s->kernel = NULL; /* nothing to release */
  else keep_promises(s, ki->node);
  return e;
}

static void own_release(void *state) {
  struct own_state *s = state;
  if (s->kernel && s->kernel->release) s->kernel->release(s->of_user);
  free(s->promised);
}

/* Whoever reads an output goes by what was inferred of it. */
static shoal_status check_made(const struct kernel_ctx *ctx, const struct shape *promised) {
  const char *op = ctx->kernel->op->name;
  for (int i = 0; i < ctx->kernel->n_out; i++) {
    if (!tensor_valid(&ctx->out[i])) return INTERNAL("the kernel of %s did not make output %d", op, i);
    if (!promised) continue;
    struct shape made = tensor_shape(&ctx->out[i]);
    if (!shape_compatible(&made, &promised[i]))
      return INTERNAL("the kernel of %s made output %d of shape %s, and its shape function had said %s", op, i,
                      shape_str(&made), shape_str(&promised[i]));
  }
  return NULL;
}

static shoal_status own_run(struct kernel_ctx *ctx) {
  struct own_state *s = ctx->state;
  TRY(s->kernel->run((shoal_op_run *)(void *)ctx, s->of_user));
  return check_made(ctx, s->promised);
}

static struct kernel_ctx *ctx_of(shoal_op_run *r) { return (struct kernel_ctx *)(void *)r; }
static const struct kernel_ctx *const_ctx(const shoal_op_run *r) { return (const struct kernel_ctx *)(const void *)r; }

/* NULL: there is no such input. */
static const struct tensor *input(const shoal_op_run *r, int i) {
  const struct kernel_ctx *ctx = const_ctx(r);
  return i >= 0 && i < ctx->kernel->n_in ? ctx->in[i] : NULL;
}

static shoal_status check_output(const shoal_op_run *r, int i) {
  const struct kernel *k = const_ctx(r)->kernel;
  if (i < 0 || i >= k->n_out) return INVALID("%s has %d outputs, and none has the number %d", k->op->name, k->n_out, i);
  return NULL;
}

/* Each output is made once. */
static shoal_status check_unmade(const shoal_op_run *r, int i) {
  TRY(check_output(r, i));
  const struct kernel_ctx *ctx = const_ctx(r);
  if (tensor_valid(&ctx->out[i])) return INVALID("%s made its output %d before", ctx->kernel->op->name, i);
  return NULL;
}

static shoal_status check_input(const shoal_op_run *r, int i) {
  const struct kernel *k = const_ctx(r)->kernel;
  if (!input(r, i)) return INVALID("%s has %d inputs, and none has the number %d", k->op->name, k->n_in, i);
  return NULL;
}

int shoal_op_inputs(const shoal_op_run *r) { return const_ctx(r)->kernel->n_in; }
int shoal_op_run_outputs(const shoal_op_run *r) { return const_ctx(r)->kernel->n_out; }

shoal_dtype shoal_op_input_dtype(const shoal_op_run *r, int i) {
  const struct tensor *t = input(r, i);
  return t ? (shoal_dtype)t->dtype : SHOAL_DT_INVALID;
}

int shoal_op_input_rank(const shoal_op_run *r, int i) {
  const struct tensor *t = input(r, i);
  return t ? t->rank : 0;
}

const int64_t *shoal_op_input_dims(const shoal_op_run *r, int i) {
  const struct tensor *t = input(r, i);
  return t ? t->dims : NULL;
}

int64_t shoal_op_input_elements(const shoal_op_run *r, int i) {
  const struct tensor *t = input(r, i);
  return t ? t->n : 0;
}

const void *shoal_op_input_data(const shoal_op_run *r, int i) {
  const struct tensor *t = input(r, i);
  return t && dtype_size((shoal_dtype)t->dtype) ? t->data : NULL;
}

const char *shoal_op_input_string(const shoal_op_run *r, int i, int64_t element, size_t *size) {
  const struct tensor *t = input(r, i);
  *size = 0;
  if (!t || t->dtype != SHOAL_STRING || element < 0 || element >= t->n) return "";
  const struct str *s = &T_DATA(t, struct str)[element];
  *size = s->size;
  return str_data(s);
}

static void give_data(const struct tensor *t, void **data) {
  if (data) *data = dtype_size((shoal_dtype)t->dtype) ? t->data : NULL;
}

shoal_status shoal_op_output(shoal_op_run *r, int i, int rank, const int64_t *dims, void **data) {
  TRY(check_unmade(r, i));
  if (rank < 0 || rank > SHOAL_MAX_RANK) return INVALID("an output of rank %d", rank);
  GIVEN_ARRAY(dims, rank);
  struct tensor *t;
  TRY(ctx_out_dims(ctx_of(r), i, rank, dims, &t));
  give_data(t, data);
  return NULL;
}

shoal_status shoal_op_output_like(shoal_op_run *r, int i, int j, void **data) {
  TRY(check_unmade(r, i));
  TRY(check_input(r, j));
  struct tensor *t;
  TRY(ctx_out_like(ctx_of(r), i, j, &t));
  give_data(t, data);
  return NULL;
}

/* Who reads an output goes by its type: of another one input j's elements would be taken for what they are not. */
static shoal_status check_same_type(const shoal_op_run *r, int i, int j) {
  const struct kernel *k = const_ctx(r)->kernel;
  shoal_dtype in = dtype_base(k->in_types[j]), out = dtype_base(k->out_types[i]);
  if (in == out) return NULL;
  return INVALID("%s: output %d is %s, and cannot be input %d, which is %s", k->op->name, i, dtype_tf_name(out), j,
                 dtype_tf_name(in));
}

shoal_status shoal_op_output_same(shoal_op_run *r, int i, int j) {
  TRY(check_unmade(r, i));
  TRY(check_input(r, j));
  TRY(check_same_type(r, i, j));
  if (!tensor_valid(input(r, j)))
    return INVALID("%s: input %d cannot be output %d any more: another output is in its memory",
                   ctx_of(r)->kernel->op->name, j, i);
  return ctx_forward(ctx_of(r), i, j, NULL);
}

shoal_status shoal_op_output_string(shoal_op_run *r, int i, int64_t element, const char *data, size_t size) {
  TRY(check_output(r, i));
  GIVEN_ARRAY(data, size ? 1 : 0);
  struct tensor *t = &ctx_of(r)->out[i];
  if (!tensor_valid(t) || t->dtype != SHOAL_STRING || element < 0 || element >= t->n)
    return INVALID("output %d has no string %lld", i, (long long)element);
  if (!str_try_set(&T_DATA(t, struct str)[element], data, size)) return NO_MEMORY(size, "a string");
  return NULL;
}

void shoal_op_parallel(shoal_op_run *r, int64_t n, int64_t grain, void (*fn)(void *arg, int64_t begin, int64_t end),
                       void *arg) {
  pool_for(ctx_pool(ctx_of(r)), n, grain > 0 ? grain : 1, fn, arg);
}

bool shoal_op_cancelled(const shoal_op_run *r) {
  const struct step *step = const_ctx(r)->step;
  step_check_deadline(step);
  return step->cancel && cancel_started(step->cancel);
}

/* ---- shapes ---- */

static struct shape_ctx *shapes_of(shoal_op_shapes *s) { return (struct shape_ctx *)(void *)s; }
static const struct shape_ctx *const_shapes(const shoal_op_shapes *s) {
  return (const struct shape_ctx *)(const void *)s;
}

static shoal_status own_shape(struct shape_ctx *c) {
  return own_of(c->node->op)->is.shape((shoal_op_shapes *)(void *)c);
}

const shoal_op *shoal_op_shapes_node(const shoal_op_shapes *s) { return const_shapes(s)->node; }

int shoal_op_shapes_in(const shoal_op_shapes *s, int i, int64_t *dims) {
  const struct shape_ctx *c = const_shapes(s);
  if (i < 0 || i >= c->node->n_in) return -1;
  for (int k = 0; dims && k < c->in[i].rank; k++) dims[k] = c->in[i].dims[k];
  return c->in[i].rank;
}

shoal_status shoal_op_shapes_out(shoal_op_shapes *s, int i, int rank, const int64_t *dims) {
  struct shape_ctx *c = shapes_of(s);
  if (i < 0 || i >= c->node->n_out || rank > SHOAL_MAX_RANK)
    return INVALID("%s has no output %d of rank %d", c->node->op->name, i, rank);
  GIVEN_ARRAY(dims, MAX(rank, 0));
  struct shape shape = {.rank = rank < 0 ? -1 : rank};
  for (int k = 0; k < shape.rank; k++) shape.dims[k] = dims[k] < 0 ? -1 : dims[k];
  c->out[i] = shape;
  return NULL;
}

shoal_status shoal_op_same_shape(shoal_op_shapes *s) { return shape_unchanged(shapes_of(s)); }

/* ---- gradients ---- */

static struct grad_ctx *gradient_of(shoal_op_gradient *c) { return (struct grad_ctx *)(void *)c; }
static const struct grad_ctx *const_gradient(const shoal_op_gradient *c) {
  return (const struct grad_ctx *)(const void *)c;
}

static shoal_status own_grad(struct grad_ctx *c) {
  return own_of(c->node->op)->is.grad((shoal_op_gradient *)(void *)c);
}

shoal_graph *shoal_op_gradient_graph(shoal_op_gradient *c) { return gradient_of(c)->g; }
const shoal_op *shoal_op_gradient_node(const shoal_op_gradient *c) { return const_gradient(c)->node; }

shoal_out shoal_op_gradient_in(const shoal_op_gradient *c, int i) {
  const struct shoal_node *n = const_gradient(c)->node;
  return i >= 0 && i < n->n_in ? n->in[i] : (shoal_out){0};
}

shoal_out shoal_op_gradient_out(const shoal_op_gradient *c, int i) {
  const struct grad_ctx *g = const_gradient(c);
  return i >= 0 && i < g->node->n_out ? gout(g, i) : (shoal_out){0};
}

shoal_out shoal_op_gradient_of(shoal_op_gradient *c, int i) {
  struct grad_ctx *g = gradient_of(c);
  return i >= 0 && i < g->node->n_out ? grad_dy(g, i) : (shoal_out){0};
}

static shoal_status check_gradient(const struct grad_ctx *c, int i, shoal_out gradient) {
  const struct shoal_node *n = c->node;
  if (i < 0 || i >= n->n_in) return INVALID("%s has no input %d to give a gradient to", n->op->name, i);
  if (!gradient.node) return NULL;
  if (!graph_has(c->g, gradient.node))
    return INVALID("%s: the gradient of input %d is of another graph", n->op->name, i);
  if (gradient.index < 0 || gradient.index >= gradient.node->n_out)
    return INVALID("%s: the gradient of input %d is output %d of %s, which has %d", n->op->name, i, gradient.index,
                   gradient.node->name, gradient.node->n_out);
  shoal_dtype is = dtype_base(gradient.node->out_types[gradient.index]), wanted = dtype_base(n->in_types[i]);
  if (is != wanted)
    return INVALID("%s: the gradient of input %d is %s, and the input %s", n->op->name, i, dtype_tf_name(is),
                   dtype_tf_name(wanted));
  struct shape mine = out_shape(n->in[i]), given = out_shape(gradient);
  if (shape_compatible(&mine, &given)) return NULL;
  return INVALID("%s: the gradient of input %d has shape %s, and the input %s", n->op->name, i, shape_str(&given),
                 shape_str(&mine));
}

void shoal_op_gradient_set(shoal_op_gradient *c, int i, shoal_out gradient) {
  struct grad_ctx *g = gradient_of(c);
  gradient = function_see(g->g, gradient); /* in a function's body: what is taken from around it */
  shoal_status e = check_gradient(g, i, gradient);
  if (e) graph_fail(g->g, e);
  else grad_set(g, i, gradient);
}

/* ---- libraries ---- */

/* Element i of an array whose elements may be shorter than ours (an older library's). */
static void take(void *to, size_t size, const void *array, size_t stride, int i) {
  memset(to, 0, size);
  memcpy(to, (const char *)array + (size_t)i * stride, stride < size ? stride : size);
}

static shoal_status check_types(const char *op, size_t i, const shoal_op_kernel *k) {
  if (k->type_attr && !k->types) return INVALID("op %s: kernel %zu is for no type", op, i);
  if (!k->type_attr && k->types)
    return INVALID("op %s: kernel %zu has types, and no type_attr that they are of", op, i);
  for (int type = 0; type < 64; type++)
    if (k->types >> type & 1 && (type == SHOAL_DT_INVALID || type >= 32 || !dtype_valid(type)))
      return INVALID("op %s: kernel %zu is for type %d, which there is not", op, i, type);
  return NULL;
}

static shoal_status make_kernels(struct own_op *own, const shoal_op_library *library) {
  size_t n = (size_t)own->is.n_kernels;
  own->kernels = mem_zalloc(n + 1, sizeof *own->kernels);
  own->defs = mem_zalloc(n + 1, sizeof *own->defs);
  for (size_t i = 0; i < n; i++) {
    shoal_op_kernel *k = &own->kernels[i];
    take(k, sizeof *k, own->is.kernels, library->kernel_size, (int)i);
    if (!k->device || !k->run)
      return INVALID("op %s: kernel %zu has no device, or no function to run", own->is.name, i);
    /* Data of another device is not for the host to read. */
    const char *host = device_type_host()->name;
    if (strcmp(k->device, host) != 0)
      return INVALID("op %s: kernel %zu is for '%s'; those of libraries are for \"%s\"", own->is.name, i, k->device,
                     host);
    if (k->state_size > MOST_STATE)
      return INVALID("op %s: kernel %zu has a state of %zu bytes; the most is %d", own->is.name, i, k->state_size,
                     MOST_STATE);
    TRY(check_types(own->is.name, i, k));
    own->defs[i] = (struct kernel_def){.device = k->device,
                                       .type_attr = k->type_attr,
                                       .types = (uint32_t)k->types,
                                       .state_size = sizeof(struct own_state) + k->state_size,
                                       .init = own_init,
                                       .release = own_release,
                                       .run = own_run};
  }
  return NULL;
}

static bool has_type_attr(const struct op *op, const char *name) {
  const struct op_attr *a = op_attr_find(op, name);
  return a && (a->kind == ATTR_TYPE || (a->kind == ATTR_LIST && a->of == ATTR_TYPE));
}

/* What a row says of its signature. Nothing would ever choose a kernel for types of what is no type. What does not
 * parse is told of when it is registered. */
static shoal_status check_signature(const struct own_op *own) {
  struct op *op;
  shoal_status e = op_parse(&own->row, "loaded", &op);
  if (e) {
    shoal_status_free(e);
    return NULL;
  }
  if (own->is.flags & SHOAL_OP_COMMUTATIVE && op->n_in != 2)
    e = INVALID("op %s is SHOAL_OP_COMMUTATIVE, and has %d inputs: it must have two", op->name, op->n_in);
  for (int i = 0; i < own->is.n_kernels && !e; i++) {
    const char *attr = own->kernels[i].type_attr;
    if (attr && !has_type_attr(op, attr))
      e = INVALID("op %s: kernel %d is for types of '%s', which is no type attribute of it", op->name, i, attr);
  }
  op_free(op);
  return e;
}

static void own_free(struct own_op *own) {
  free(own->kernels);
  free(own->defs);
  free(own);
}

static unsigned flags_of(unsigned is) {
  return (is & SHOAL_OP_STATEFUL ? OP_STATEFUL : 0) | (is & SHOAL_OP_COMMUTATIVE ? OP_COMMUTATIVE : 0) |
         (is & SHOAL_OP_NO_GRADIENT ? OP_NO_GRADIENT : 0);
}

static shoal_status make_op(const shoal_op_library *library, int i, struct own_op **out) {
  struct own_op *own = mem_zalloc(1, sizeof *own);
  *out = own;
  take(&own->is, sizeof own->is, library->rows, library->row_size, i);
  const shoal_op_row *is = &own->is;
  if (!is->name || is->name[0] < 'A' || is->name[0] > 'Z' ||
      is->name[strspn(is->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_>")])
    return INVALID("row %d: '%s' is no name of an op: a capital letter, then letters, digits and '_'", i,
                   is->name ? is->name : "");
  unsigned unknown = is->flags & ~(unsigned)(SHOAL_OP_STATEFUL | SHOAL_OP_COMMUTATIVE | SHOAL_OP_NO_GRADIENT);
  if (unknown) return INVALID("op %s has flags that are not known here: %#x", is->name, unknown);
  if (is->grad && is->flags & SHOAL_OP_NO_GRADIENT)
    return INVALID("op %s is SHOAL_OP_NO_GRADIENT, and has a gradient", is->name);
  if (is->n_kernels < 1 || !is->kernels) return INVALID("op %s has no kernel", is->name);
  TRY(make_kernels(own, library));
  own->row = (struct op_row){.name = is->name,
                             .in = is->in,
                             .out = is->out,
                             .attrs = is->attrs,
                             .flags = flags_of(is->flags),
                             .shape = is->shape ? own_shape : NULL,
                             .grad = is->grad ? own_grad : NULL,
                             .kernels = own->defs};
  return check_signature(own);
}

static shoal_status check_library(const shoal_op_library *l) {
  /* The first release that has libraries gives all fields; a smaller one is none. */
  if (l->size < sizeof *l) return INVALID("it is no library of ops");
  if (l->version / 1000 > SHOAL_VERSION_NUMBER / 1000)
    return STATUS(SHOAL_FAILED_PRECONDITION, "it was made for Shoal %d.%d, and this is %s", l->version / 1000000,
                  l->version / 1000 % 1000, SHOAL_VERSION);
  if (l->bound != shoal_load_ops)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "it is linked to another copy of libshoal than this program: both must use the shared library");
  if (l->n_rows < 1 || !l->rows || l->row_size < sizeof(void *) || l->kernel_size < sizeof(void *))
    return INVALID("it has no ops");
  return NULL;
}

/* All rows or none. */
static shoal_status add_ops(const shoal_op_library *library) {
  TRY(check_library(library));
  VEC(struct own_op *) made = {0};
  VEC(const struct op_row *) rows = {0};
  shoal_status e = NULL;
  for (int i = 0; i < library->n_rows && !e; i++) {
    struct own_op *own;
    e = make_op(library, i, &own);
    vec_push(&made, own);
    vec_push(&rows, &own->row);
  }
  if (!e) e = op_register(rows.at, (int)rows.n);
  if (e)
    for (size_t i = 0; i < made.n; i++) own_free(made.at[i]);
  vec_release(&made);
  vec_release(&rows);
  return e;
}

/* What the loader says where a file is no library may be the same as where there is none. */
static shoal_status open_library(const char *path, void **handle) {
  char *here = mem_printf("%s%s", strchr(path, '/') ? "" : "./", path); /* a file, not a name in the loader's path */
  *handle = dlopen(here, RTLD_NOW | RTLD_LOCAL);
  shoal_code code = *handle ? SHOAL_OK : file_exists(here) ? SHOAL_INVALID_ARGUMENT : SHOAL_NOT_FOUND;
  free(here);
  return code == SHOAL_OK ? NULL : STATUS(code, "op library %s: %s", path, dlerror());
}

shoal_status shoal_load_ops(const char *path) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static VEC(void *) loaded; /* lock: what is here stays */
  if (!path) return INVALID("op library: its path is NULL");
  void *handle;
  TRY(open_library(path, &handle));
  const shoal_op_library *library = dlsym(handle, "shoal_op_library_");
  pthread_mutex_lock(&lock);
  bool again = false;
  for (size_t i = 0; i < loaded.n; i++) again |= loaded.at[i] == handle;
  shoal_status e = NULL;
  if (!library) e = INVALID("it is no library of ops: it has no SHOAL_OP_LIBRARY");
  else if (!again) e = add_ops(library);
  if (!e && !again) vec_push(&loaded, handle);
  pthread_mutex_unlock(&lock);
  if (e || again) dlclose(handle);
  return status_prefix(e, "op library %s: ", path);
}

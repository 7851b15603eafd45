/* Kernels: choosing one for a node, and what a running kernel asks of its context. */
#include "runtime/kernel.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strmap.h"
#include "graph/lower.h"
#include "runtime/kernel_why.h"
#include "runtime/plan.h"

/* ---- choosing ---- */

/* Each type's own table, by op. Made at the first question. */
static struct {
  pthread_once_t once;
  struct strmap
      by_name; /* "TYPE OP", the type by its address, since names may be shared -> const struct kernel_def * */
} tables = {.once = PTHREAD_ONCE_INIT};

static void read_tables(void) {
  for (const struct device_type *const *t = device_types; *t; t++)
    for (const struct device_kernels *k = (*t)->kernels; k && k->op; k++) {
      char *key = mem_printf("%p %s", (const void *)*t, k->op);
      strmap_put(&tables.by_name, key, (void *)(uintptr_t)k->kernels);
      free(key);
    }
}

/* The kernels of an op that a type of device brings itself; NULL: none. */
static const struct kernel_def *own_kernels(const struct op *op, const struct device_type *type) {
  if (!type || (!type->kernels && !type->more_kernels)) return NULL;
  pthread_once(&tables.once, read_tables);
  char key[256];
  snprintf(key, sizeof key, "%p %s", (const void *)type, op->name);
  const struct kernel_def *k = strmap_get(&tables.by_name, key);
  return k || !type->more_kernels ? k : type->more_kernels(op);
}

static bool type_fits(const struct shoal_node *n, const char *attr, uint32_t types) {
  if (!attr) return true;
  const struct attr *a = node_attr(n, attr);
  if (!a) return false;
  if (a->kind == ATTR_TYPE) return types >> dtype_base(a->type) & 1;
  if (a->kind != ATTR_LIST) return false;
  for (size_t i = 0; i < a->list.n; i++)
    if (!(types >> dtype_base(a->list.at[i].type) & 1)) return false;
  return true;
}

static void print_types(const char *attr, uint32_t types, struct text *out) {
  const char *comma = "";
  text_addf(out, "; %s in [", attr);
  for (int t = 1; t < DTYPE_COUNT; t++) {
    if (!(types >> t & 1)) continue;
    struct attr a = attr_type(t);
    text_adds(out, comma);
    attr_print(&a, out);
    comma = ", ";
  }
  text_addc(out, ']');
}

static void print_kernels(const struct kernel_def *k, struct text *out) {
  for (; k && k->device; k++) {
    text_addf(out, "  device='%s'", k->device);
    if (k->type_attr) print_types(k->type_attr, k->types, out);
    if (k->type_attr2) print_types(k->type_attr2, k->types2, out);
    text_addc(out, '\n');
  }
}

static shoal_status no_kernel(const struct shoal_node *n, const char *device_type) {
  struct text attrs = {0}, have = {0};
  for (int i = 0; i < n->op->n_attrs; i++) {
    text_addf(&attrs, "%s%s=", i ? ", " : "", n->attrs[i].name);
    attr_print(&n->attrs[i].value, &attrs);
  }
  print_kernels(own_kernels(n->op, device_type_find(device_type)), &have);
  print_kernels(n->op->row->kernels, &have);
  shoal_status s = INVALID(
      "No OpKernel was registered to support Op '%s' used by {{node %s}} with these attrs: [%s]\n"
      "Registered devices: [%s]\nRegistered kernels:\n%s",
      n->op->name, n->name, text_cstr(&attrs), device_type, have.n ? text_cstr(&have) : "  <no registered kernels>\n");
  text_release(&attrs);
  text_release(&have);
  return s;
}

/* The first of a list that serves this type of device and the node's types. */
static const struct kernel_def *fitting(const struct kernel_def *k, const struct shoal_node *n, const char *type) {
  for (; k && k->device; k++)
    if ((k->flags & KERNEL_ANYWHERE || !strcmp(k->device, type)) && type_fits(n, k->type_attr, k->types) &&
        type_fits(n, k->type_attr2, k->types2) && (!k->fits || k->fits(n)))
      return k;
  return NULL;
}

static const struct kernel_def *find(const struct shoal_node *n, const char *type) {
  const struct kernel_def *own = fitting(own_kernels(n->op, device_type_find(type)), n, type);
  return own ? own : fitting(n->op->row->kernels, n, type);
}

static const struct kernel_def *find_if_asked(const struct shoal_node *n, const char *type) {
  const struct kernel_def *k = find(n, type);
  const struct device_type *t = device_type_find(type);
  return k || !t || !t->lent ? k : fitting(t->lent(n->op), n, type);
}

/* What of a node's types a kernel does not take; false: it takes them. */
static bool refuses(const struct shoal_node *n, const char *attr, uint32_t types, struct text *out) {
  if (type_fits(n, attr, types)) return false;
  const struct attr *a = node_attr(n, attr);
  text_addf(out, "%s is ", attr);
  if (a) attr_print(a, out);
  else text_adds(out, "missing");
  return true;
}

/* The kernels of a list for a type of device: what the first of them refuses. Returns how many there are. */
static int refusals(const struct kernel_def *k, const struct shoal_node *n, const char *type, struct text *out) {
  int seen = 0;
  for (; k && k->device; k++) {
    if (!(k->flags & KERNEL_ANYWHERE) && strcmp(k->device, type) != 0) continue;
    if (!seen++ && !refuses(n, k->type_attr, k->types, out)) refuses(n, k->type_attr2, k->types2, out);
  }
  return seen;
}

char *kernel_why_none(const struct shoal_node *n, const char *device_type) {
  struct text why = {0};
  int seen = refusals(own_kernels(n->op, device_type_find(device_type)), n, device_type, &why);
  if (!seen) seen = refusals(n->op->row->kernels, n, device_type, &why);
  char *text = !seen   ? mem_printf("there is no kernel for %s", device_type)
               : why.n ? mem_printf("no kernel for %s where %s", device_type, text_cstr(&why))
                       : mem_printf("the kernel for %s does not do this case of it", device_type);
  text_release(&why);
  return text;
}

shoal_status kernel_find(const struct shoal_node *n, const char *device_type, const struct kernel_def **out) {
  *out = find_if_asked(n, device_type);
  if (*out) return NULL;
  const struct attr *why = node_attr(n, LOWER_ERROR);
  if (why && why->kind == ATTR_STRING) return INVALID("%s", why->s.data);
  return no_kernel(n, device_type);
}

bool kernel_supports(const struct shoal_node *n, const char *device_type) {
  return !device_type_find(device_type) || find(n, device_type);
}

bool kernel_supports_if_asked(const struct shoal_node *n, const char *device_type) {
  return !device_type_find(device_type) || find_if_asked(n, device_type);
}

/* The type of the device a node is on: the host's where nothing says. */
static const char *type_of(const struct shoal_node *n, struct device_spec *spec) {
  shoal_status s = device_spec_parse(n->assigned ? n->assigned : n->device, spec);
  bool known = !s && spec->has_type;
  shoal_status_free(s);
  return known ? spec->type : device_type_host()->name;
}

bool kernel_is_here(const struct shoal_node *n) {
  struct device_spec spec;
  return kernel_supports(n, type_of(n, &spec));
}

bool kernel_is_of_host(const struct shoal_node *n) {
  struct device_spec spec;
  return !strcmp(type_of(n, &spec), device_type_host()->name);
}

bool kernel_is_elementwise(const struct shoal_node *n) {
  struct device_spec spec;
  const struct kernel_def *k = find(n, type_of(n, &spec));
  return k && k->flags & KERNEL_ELEMENTWISE;
}

/* ---- memory ---- */

static int width(const struct shoal_node *n, const struct op_arg *arg) {
  const struct attr *a = NULL;
  if (arg->number_attr) a = node_attr(n, arg->number_attr);
  if (arg->list_attr) a = node_attr(n, arg->list_attr);
  if (!a) return 1;
  return a->kind == ATTR_LIST ? (int)a->list.n : (int)a->i;
}

static void find_host(const struct shoal_node *n, const struct op_arg *args, int n_args, uint32_t bits,
                      const uint8_t *types, int n_types, uint8_t *host) {
  int at = 0;
  for (int a = 0; a < n_args; a++)
    for (int k = width(n, &args[a]); k > 0 && at < n_types; k--, at++)
      host[at] = (bits >> MIN(a, 31) & 1) || !dtype_plain(dtype_base(types[at]));
}

void kernel_memory(const struct shoal_node *n, const struct kernel_def *def, uint8_t *host_in, uint8_t *host_out) {
  find_host(n, n->op->in, n->op->n_in, def->host_in, n->in_types, n->n_in, host_in);
  find_host(n, n->op->out, n->op->n_out, def->host_out, n->out_types, n->n_out, host_out);
}

static bool is_plain(shoal_dtype t) { return t != SHOAL_STRING && t != SHOAL_RESOURCE && t != SHOAL_VARIANT; }

bool dtype_is_harmless(shoal_dtype is, shoal_dtype said) {
  return is_plain(is) && is_plain(said) && dtype_size(is) == dtype_size(said);
}

/* References are read through elsewhere; types of one size that are numbers do no harm (quantized ones, say). */
shoal_status ctx_type_error(const struct kernel_ctx *ctx, int i) {
  shoal_dtype is = (shoal_dtype)ctx->out[i].dtype, said = dtype_base(ctx->kernel->out_types[i]);
  if (is == said || dtype_is_harmless(is, said)) return NULL;
  return INTERNAL("output %d of %s is %s where the graph says %s", i, ctx->kernel->op->name, shoal_dtype_name(is),
                  shoal_dtype_name(said));
}

shoal_status ctx_error(const struct kernel_ctx *ctx, shoal_status s) {
  const char *name = ctx->kernel->parts;
  for (int i = 0; *name && i < ctx->part; i++) name += strlen(name) + 1;
  return status_suffix(s, "\n\t [[{{node %s}}]]", *name ? name : ctx->kernel->name);
}

/* ---- outputs ---- */

static bool on_host(const struct kernel *k, int output) { return LIKELY(!k->host_out) || k->host_out[output]; }

/* Gives a tensor of the kernel's device (or of the host) its memory. */
static shoal_status allocate(struct kernel_ctx *ctx, bool host, shoal_dtype dtype, const struct shape *shape,
                             struct tensor *t) {
  if (LIKELY(host)) return tensor_new(t, dtype, shape);
  return device_tensor_new(ctx->kernel->device, ctx->kernel->name, dtype, shape, t);
}

/* An output that has its place already (placed_outputs.c). */
static bool takes_place(struct kernel_ctx *ctx, int i, int64_t n, int rank, const int64_t *dims) {
  struct tensor *place = ctx->place, *out = &ctx->out[i];
  if (i || place->n != n || (shoal_dtype)place->dtype != ctx_out_type(ctx, i)) return false;
  ctx->place = NULL;
  tensor_move(out, place);
  out->rank = (uint8_t)rank;
  for (int k = 0; k < rank; k++) out->dims[k] = dims[k];
  return true;
}

static bool takes_place_shaped(struct kernel_ctx *ctx, int i, const struct shape *s) {
  int64_t n = -1;
  shoal_status_free(shape_elements(s, &n));
  return takes_place(ctx, i, n, s->rank, s->dims);
}

shoal_status ctx_out(struct kernel_ctx *ctx, int i, const struct shape *shape, struct tensor **out) {
  *out = &ctx->out[i];
  if (UNLIKELY(ctx->place != NULL) && takes_place_shaped(ctx, i, shape)) return NULL;
  TRY(allocate(ctx, on_host(ctx->kernel, i), ctx_out_type(ctx, i), shape, &ctx->out[i]));
  return NULL;
}

shoal_status ctx_out_dims(struct kernel_ctx *ctx, int i, int rank, const int64_t *dims, struct tensor **out) {
  if (rank > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions, not %d", SHOAL_MAX_RANK, rank);
  struct shape s = {.rank = rank};
  for (int k = 0; k < rank; k++) s.dims[k] = dims[k];
  return ctx_out(ctx, i, &s, out);
}

/* Moves input j's buffer to output i when no one else needs it, the bytes fit, and they are in the memory the output
 * shall be in. What others own (a message, a file) is not ours to write into. */
static bool reuse(struct kernel_ctx *ctx, int i, int j, int64_t elements) {
  if (j > 63 || !(ctx->steal >> j & 1)) return false;
  struct tensor *in = (struct tensor *)(uintptr_t)ctx->in[j];
  struct buffer *b = in->buffer;
  shoal_dtype type = ctx_out_type(ctx, i);
  if (!b || buffer_shared(b) || b->elements_of) return false;
  if (UNLIKELY(b->release) && !(b->device && b->device == ctx->kernel->device)) return false;
  if (UNLIKELY(ctx->kernel->host_out != NULL) && on_host(ctx->kernel, i) != !b->device) return false;
  bool alike = (uint8_t)type == in->dtype && elements == in->n; /* else: do the bytes fit? */
  if (!alike && (!dtype_plain(type) || (size_t)elements * dtype_size(type) != tensor_bytes(in))) return false;
  struct tensor *out = &ctx->out[i];
  /* On the host the input keeps the address, and no reference: the executor finds nothing to drop. Kernels of other
   * devices ask an input's buffer where it is, and those that end later may lose the output before they are through
   * with the input: these keep theirs. Nobody else has a reference: no need for an atomic addition. */
  if (LIKELY(!ctx->kernel->host_out && ctx->kernel->def->run)) in->buffer = NULL;
  else ref_take_alone(&b->refs);
  out->buffer = b;
  out->data = in->data;
  out->dtype = (uint8_t)type;
  out->n = elements;
  ctx->steal &= ~(1ull << j);
  return true;
}

shoal_status ctx_out_like(struct kernel_ctx *ctx, int i, int j, struct tensor **out) {
  const struct tensor *in = ctx->in[j];
  *out = &ctx->out[i];
  if (UNLIKELY(ctx->place != NULL) && takes_place(ctx, i, in->n, in->rank, in->dims)) return NULL;
  if (reuse(ctx, i, j, in->n)) {
    struct tensor *o = *out;
    o->rank = in->rank;
    for (int k = 0; k < in->rank; k++) o->dims[k] = in->dims[k];
    return NULL;
  }
  if (LIKELY(on_host(ctx->kernel, i))) return tensor_new_like(*out, ctx_out_type(ctx, i), in);
  struct shape s = tensor_shape(in);
  return ctx_out(ctx, i, &s, out);
}

shoal_status ctx_forward(struct kernel_ctx *ctx, int i, int j, const struct shape *shape) {
  if (shape) return tensor_reshape(&ctx->out[i], ctx->in[j], shape);
  tensor_ref(&ctx->out[i], ctx->in[j]);
  return NULL;
}

void ctx_set(struct kernel_ctx *ctx, int i, struct tensor *t) {
  tensor_move(&ctx->out[i], t);
  t->buffer = NULL;
  t->dtype = 0;
}

shoal_status ctx_temp(struct kernel_ctx *ctx, shoal_dtype dtype, const struct shape *shape, struct tensor *out) {
  return allocate(ctx, ctx->kernel->device->type->host, dtype, shape, out);
}

void ctx_set_ref(struct kernel_ctx *ctx, int i, struct variable *v) {
  resource_ref(&v->head);
  ctx->refs_out[i] = v;
}

/* ---- checks ---- */

shoal_status ctx_check_scalar(const struct kernel_ctx *ctx, int i, const char *name) {
  const struct tensor *t = ctx->in[i];
  if (t->rank == 0) return NULL;
  struct shape s = tensor_shape(t);
  return INVALID("%s must be a scalar, got shape %s", name, shape_str(&s));
}

shoal_status ctx_check_vector(const struct kernel_ctx *ctx, int i, const char *name) {
  const struct tensor *t = ctx->in[i];
  if (t->rank == 1) return NULL;
  struct shape s = tensor_shape(t);
  return INVALID("%s must be a vector, got shape %s", name, shape_str(&s));
}

/* ---- names of resources ---- */

shoal_status resource_name_init(struct resource_name *n, const struct kernel_init *ki) {
  const char *container = "", *shared = "";
  if (node_attr(ki->node, "container")) TRY(node_get_string(ki->node, "container", &container));
  if (node_attr(ki->node, "shared_name")) TRY(node_get_string(ki->node, "shared_name", &shared));
  if (*container && !node_name_valid(container, false))
    return INVALID("container contains invalid characters: %s", container);
  n->container = mem_strdup(container);
  n->name = mem_strdup(*shared ? shared : ki->node->name);
  return NULL;
}

void resource_name_release(struct resource_name *n) {
  free(n->container);
  free(n->name);
  n->container = n->name = NULL;
}

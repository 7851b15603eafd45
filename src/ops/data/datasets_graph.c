/* DatasetToGraph and its V2, DatasetFromGraph: a dataset as the GraphDef that makes it, and back.
 *
 * The GraphDef has the dataset's nodes, its functions, and a node "dataset" (_Retval) that says which of them it is. To
 * make a dataset of one, the graph is imported, pruned and run as any function is, with a library of its own in front
 * of the session's; what it needs of that stays with the datasets that it makes. */
#include <stdlib.h>
#include <string.h>

#include "base/device_name.h"
#include "base/mem.h"
#include "base/wire.h"
#include "data/dataset_graph.h"
#include "graph/import.h"
#include "graph/prune.h"
#include "ops/data/dataset_state.h"
#include "proto/graph.wire.h"

/* ---- to a graph ---- */

/* TensorFlow's messages end at 2 GiB; nobody sends more, and a tensor may be named often. */
#define MAX_GRAPH_BYTES ((size_t)1 << 30)
enum { POLICY_WARN, POLICY_IGNORE, POLICY_FAIL };

struct to_graph_state {
  struct dataset_state s;
  bool fail, strip;
};

static shoal_status to_graph_init(struct kernel_init *ki, void *state) {
  struct to_graph_state *s = state;
  TRY(node_get_bool(ki->node, "strip_device_assignment", &s->strip));
  if (node_attr(ki->node, "external_state_policy")) {
    int64_t policy;
    TRY(node_get_int(ki->node, "external_state_policy", &policy));
    if (policy < POLICY_WARN || policy > POLICY_FAIL)
      return INVALID("external_state_policy must be 0 (warn), 1 (ignore) or 2 (fail), not %lld", (long long)policy);
    s->fail = policy == POLICY_FAIL;
    return NULL;
  }
  bool allow;
  TRY(node_get_bool(ki->node, "allow_stateful", &allow));
  s->fail = !allow;
  return NULL;
}

static shoal_status mark_result(struct shoal_graph *g, struct shoal_node *d) {
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("T"), attr_type(SHOAL_VARIANT)};
  attrs[1] = (struct named_attr){mem_strdup("index"), attr_int(0)};
  struct shoal_node *end;
  return graph_add(g, "dataset", op_find("_Retval"), &(shoal_out){d, 0}, 1, attrs, 2, &end);
}

static shoal_status check_size(const struct shoal_graph *g) {
  size_t bytes = 0;
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct attr *value = g->nodes.at[i] ? node_attr(g->nodes.at[i], "value") : NULL;
    if (value && value->kind == ATTR_TENSOR) bytes += (size_t)value->tensor->n * dtype_size(value->tensor->dtype);
    if (bytes > MAX_GRAPH_BYTES)
      return INVALID("The dataset's graph would have more than %zu bytes of constants", MAX_GRAPH_BYTES);
  }
  return NULL;
}

/* A device without its task: "/device:CPU:0"; nothing when it names no more than a task. */
static void put_local_device(struct text *out, const struct wire_field *f) {
  struct device_spec spec, local = {0};
  char *name = mem_strndup((const char *)f->data, f->size), text[192];
  shoal_status bad = device_spec_parse(name, &spec);
  free(name);
  if (!bad && spec.has_type) {
    local = (struct device_spec){.has_type = true, .has_id = true, .id = spec.has_id ? spec.id : 0};
    memcpy(local.type, spec.type, sizeof local.type);
    device_spec_print(&local, text, sizeof text);
    wire_add_str(out, f->tag, text);
  }
  shoal_status_free(bad);
}

/* Copies a message with local devices: path leads to the field that has them (0 ends it). */
static void copy_local(struct wire w, const uint32_t *path, struct text *out) {
  struct wire_field f;
  for (const uint8_t *from = w.at; wire_next(&w, &f) == WIRE_FIELD; from = w.at) {
    if (f.tag != path[0]) {
      text_add(out, (const char *)from, (size_t)(w.at - from));
    } else if (path[1]) {
      size_t at = wire_open(out, f.tag);
      copy_local(wire_inside(&f), path + 1, out);
      wire_end(out, at);
    } else {
      put_local_device(out, &f);
    }
  }
}

static shoal_status write_graph(const struct dataset *d, const struct to_graph_state *s, struct shoal_graph *g,
                                struct text *out) {
  static const uint32_t devices[] = {GraphDef_library, FunctionDefLibrary_function, FunctionDef_node_def,
                                     NodeDef_device, 0};
  struct shoal_node *end;
  TRY(dataset_graph(d, 0, g, &end));
  if (s->fail) TRY(dataset_graph_check_state(g));
  TRY(mark_result(g, end));
  TRY(check_size(g));
  if (!s->strip) return graph_export(g, NULL, out);
  struct text all = {0};
  shoal_status bad = graph_export(g, NULL, &all);
  if (!bad) copy_local(wire_from(text_cstr(&all), all.n), devices, out);
  text_release(&all);
  return bad;
}

static shoal_status to_graph_run(struct kernel_ctx *ctx) {
  struct dataset *in;
  struct tensor *out;
  TRY(dataset_in(ctx, 0, &in));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  struct shoal_graph *g = graph_new();
  struct text t = {0};
  shoal_status s = write_graph(in, ctx->state, g, &t);
  if (!s) str_set(out->data, text_cstr(&t), t.n);
  text_release(&t);
  graph_free(g);
  return s;
}

/* ---- from a graph ---- */

enum { MAX_NODES = 200000 };

static bool nobody_waits(void *cancel) { return cancel_started(cancel); }

/* The name of the value that the last _Retval is given. */
static shoal_status result_name(const struct shoal_graph *g, char **out) {
  const struct shoal_node *end = NULL;
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && !strcmp(g->nodes.at[i]->op->name, "_Retval")) end = g->nodes.at[i];
  if (!end) return NOT_FOUND("The graph has no _Retval node, which would say which node is the dataset");
  shoal_out from = end->in[0];
  if (from.node->out_types[from.index] != SHOAL_VARIANT)
    return INVALID("Type mismatch: actual %s vs. expect variant",
                   dtype_tf_name(dtype_base(from.node->out_types[from.index])));
  *out = mem_printf("%s:%d", from.node->name, from.index);
  return NULL;
}

/* Runs the graph for that value; runtime (taken over) has its functions. */
struct dataset_making {
  dataset_made done;
  void *arg;
  struct function_runtime *runtime;
};

static void made(void *arg, shoal_status s, struct tensor *rets) {
  struct dataset_making m = *(struct dataset_making *)arg;
  struct dataset *d = NULL;
  free(arg);
  if (!s) s = dataset_from_tensor(&rets[0], &d);
  if (!s) dataset_ref(d);
  if (rets) tensor_release(&rets[0]);
  function_runtime_unref(m.runtime);
  m.done(m.arg, s, d);
}

void dataset_give_made(void *arg, shoal_status s, struct dataset *d) {
  struct kernel_ctx *ctx = arg;
  if (!s) s = dataset_give(ctx, d);
  ctx_done(ctx, s);
}

shoal_status dataset_run_graph(struct kernel_ctx *ctx, const struct shoal_graph *g, const char *fetch,
                               dataset_made done, void *arg) {
  const struct dataset_state *st = ctx->state;
  const struct kernel *k = ctx->kernel;
  struct shoal_graph *part;
  const char *fetches[] = {fetch};
  struct step_signature sig = {.fetches = fetches, .n_fetches = 1};
  TRY(graph_prune(g, &sig, &(struct prune_options){.style = FEED_ARGS, .device = k->device->name}, &part));
  struct function_runtime *r = function_runtime_new(g);
  if (st->functions) function_runtime_inherit(r, st->functions);
  struct function *f;
  shoal_status s = function_of_graph(r, k->device, k->resources, part, vec_last(&part->nodes), &f);
  if (s) {
    function_runtime_unref(r);
    return s;
  }
  struct dataset_making *m = mem_zalloc(1, sizeof *m);
  *m = (struct dataset_making){done, arg, r};
  function_call(f, ctx->step, NULL, 0, made, m);
  return NULL;
}

static shoal_status read_graph(struct kernel_ctx *ctx, struct shoal_graph *g, char **fetch) {
  const struct tensor *t = ctx_in(ctx, 0);
  if (t->rank) return INVALID("graph_def must be a scalar");
  const struct str *bytes = t->data;
  struct effort effort = {.left = EFFORT_UNBOUNDED, .over = nobody_waits, .arg = ctx->step->cancel};
  struct import_options o = {
      .internal = true, .max_nodes = MAX_NODES, .effort = &effort, .max_repeated = MAX_GRAPH_BYTES};
  TRY(graph_import(g, str_data(bytes), bytes->size, &o, NULL));
  return result_name(g, fetch);
}

static void from_graph_start(struct kernel_ctx *ctx) {
  struct shoal_graph *g = graph_new();
  char *fetch = NULL;
  shoal_status s = read_graph(ctx, g, &fetch);
  if (!s) s = dataset_run_graph(ctx, g, fetch, dataset_give_made, ctx);
  graph_free(g);
  free(fetch);
  if (s) ctx_done(ctx, s);
}

/* ---- rows ---- */

#define TO_GRAPH                                  \
  (const struct kernel_def[]) {                   \
    {.device = "CPU",                             \
     .flags = KERNEL_EXPENSIVE,                   \
     .state_size = sizeof(struct to_graph_state), \
     .init = to_graph_init,                       \
     .release = dataset_state_release,            \
     .run = to_graph_run},                        \
    {                                             \
      0                                           \
    }                                             \
  }

static const struct op_row rows[] = {
    {.name = "DatasetToGraph",
     .in = "input_dataset: variant",
     .out = "graph: string",
     .attrs =
         "stateful_whitelist: list(string) >= 0 = []; allow_stateful: bool = false; strip_device_assignment: bool = "
         "false",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = TO_GRAPH},
    {.name = "DatasetToGraphV2",
     .in = "input_dataset: variant",
     .out = "graph: string",
     .attrs = "external_state_policy: int = 0; strip_device_assignment: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = TO_GRAPH},
    DATASET_ROW("DatasetFromGraph", "graph_def: string", NULL, 0,
                DATASET_KERNELS(.flags = KERNEL_EXPENSIVE, .start = from_graph_start)),
};
OP_FAMILY(datasets_graph, rows);

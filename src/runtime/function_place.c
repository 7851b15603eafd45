/* Bodies of functions on devices.
 *
 * A body runs where it is called, its home, as long as everything in it can: then it is one plan, and most are. Nodes
 * that ask for another device of the task, or that have no kernel at home (a queue, a string), make it a graph that is
 * placed and cut as a step's is, by the same parts: what is not asked for stays at home where it can, and the pieces
 * meet in a rendezvous of the call's own, since many calls of one function may be under way in one step.
 *
 * Arguments and results cross in the memory of the home device (_DeviceArg, _DeviceRetval): a value that a loop carries
 * from call to call never leaves it. The caller may say of some that they are in host memory: a loop's condition, which
 * the host must see. Handles come along with what they lead to: the call was placed where its resources are.
 *
 * Once every node has its device, the body is rewritten as a step's graph is. */
#include "runtime/function_place.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/place.h"
#include "runtime/plan_rewrite.h"

void function_places_init(struct function_places *p, struct device *const *devices, char *const *names,
                          struct resource_mgr *const *resources, int n, const char *rewrites_off) {
  *p = (struct function_places){.n = n, .rewrites_off = rewrites_off ? mem_strdup(rewrites_off) : NULL};
  p->devices = mem_zalloc((size_t)n, sizeof *p->devices);
  p->names = mem_zalloc((size_t)n, sizeof *p->names);
  p->resources = mem_zalloc((size_t)n, sizeof *p->resources);
  for (int i = 0; i < n; i++) {
    p->devices[i] = devices[i];
    p->names[i] = mem_strdup(names ? names[i] : devices[i]->name);
    p->resources[i] = resource_mgr_ref(resources[i]);
  }
}

void function_places_release(struct function_places *p) {
  for (int i = 0; i < p->n; i++) {
    free(p->names[i]);
    resource_mgr_unref(p->resources[i]);
  }
  free(p->devices);
  free(p->names);
  free(p->resources);
  free(p->rewrites_off);
  *p = (struct function_places){0};
}

/* ---- memory ---- */

static bool crosses(const struct shoal_node *n, const char *op, shoal_dtype type, uint32_t host) {
  if (!op_is(n->op, op) || !(dtype_plain(dtype_base(type)) || type == SHOAL_VARIANT)) return false;
  const struct attr *index = node_attr(n, "index");
  return index && index->kind == ATTR_INT && !(host >> MIN((uint64_t)index->i, 31) & 1);
}

/* The ends of the body that are in the memory of its device; of variants, the tensors in them. The ops differ in
 * nothing else. */
static void use_device_memory(struct shoal_graph *g, uint32_t host_args, uint32_t host_rets) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    if (n->n_out && crosses(n, "_Arg", n->out_types[0], host_args)) n->op = op_find("_DeviceArg");
    else if (n->n_in && crosses(n, "_Retval", n->in_types[0], host_rets)) n->op = op_find("_DeviceRetval");
  }
}

/* ---- placing ---- */

struct body_placing {
  const struct function_places *p;
  const struct function_call_place *call;
  int home;
  struct place_device *devices; /* [p->n] */
};

/* The device a node asks for: NULL when it asks for none of this task. */
static const struct place_device *asked(const struct body_placing *b, const struct shoal_node *n) {
  struct device_spec want;
  shoal_status s = *n->device ? device_spec_parse(n->device, &want) : NULL;
  bool asks = *n->device && !s;
  shoal_status_free(s);
  if (!asks) return NULL;
  if (device_spec_matches(&want, &b->devices[b->home].spec)) return &b->devices[b->home];
  for (int i = 0; i < b->p->n; i++)
    if (device_spec_matches(&want, &b->devices[i].spec)) return &b->devices[i];
  return NULL;
}

static bool is_end(const struct shoal_node *n) {
  return op_is(n->op, "_Arg") || op_is(n->op, "_Retval") || op_is(n->op, "_DeviceArg") || op_is(n->op, "_DeviceRetval");
}

/* Where an end of the body is: at home, unless it is a handle of another device, which what uses it follows. */
static const char *place_of_end(const struct body_placing *b, const struct shoal_node *n) {
  const struct attr *index = node_attr(n, "index");
  bool arg = b->call->handles && n->n_out && index && index->kind == ATTR_INT && index->i < b->call->n_args;
  int at = arg ? b->call->handles[index->i] : -1;
  return b->devices[at < 0 ? b->home : at].name;
}

/* Can all of it run at home? What no device has is said there too. */
static bool stays(const struct body_placing *b, const struct shoal_graph *g) {
  const struct place_device *home = &b->devices[b->home];
  bool host = b->p->devices[b->home]->type->host;
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (!n || is_end(n)) continue;
    const struct place_device *to = asked(b, n);
    if (to && to != home) return false;
    if (!host && !kernel_supports(n, home->spec.type)) return false;
  }
  return true;
}

/* What a node does not ask for is to be at home, if that has a kernel for it. */
static shoal_status place(const struct body_placing *b, struct shoal_graph *g) {
  const struct place_device *home = &b->devices[b->home];
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    const struct place_device *to = asked(b, n);
    if (!to && kernel_supports(n, home->spec.type)) to = home;
    const char *end = is_end(n) ? place_of_end(b, n) : NULL;
    graph_set_device(n, end ? end : to ? to->name : "");
    free(n->assigned);
    n->assigned = end ? mem_strdup(end) : NULL;
  }
  struct place_options o = {.devices = b->devices,
                            .n_devices = b->p->n,
                            .own_task = home->name,
                            .allow_soft_placement = true,
                            .has_kernel = kernel_supports,
                            .priority = device_type_priority};
  return graph_place(g, &o);
}

static void place_here(const struct device *home, struct shoal_graph *g) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    free(n->assigned);
    n->assigned = mem_strdup(home->name);
  }
}

/* ---- rewriting ---- */

/* What is known beforehand is computed on the host, the first of the devices. */
static shoal_status rewrite(const struct function_places *p, const struct plan_options *home, struct shoal_graph *g) {
  struct plan_options host = {.device = p->n ? p->devices[0] : home->device,
                              .resources = p->n ? p->resources[0] : home->resources};
  return plan_rewrite_body(g, p->rewrites_off, &host);
}

/* ---- compiling ---- */

static int place_of(void *arg, const char *device) {
  const struct function_places *p = arg;
  for (int i = 0; i < p->n; i++)
    if (!strcmp(p->names[i], device)) return i;
  return -1;
}

static shoal_status compile_parts(const struct function_places *p, const struct plan_options *home,
                                  struct shoal_graph *g, struct plan_set *out) {
  TRY(rewrite(p, home, g));
  int64_t next_name = 0;
  struct plan_places places = {.devices = p->devices,
                               .resources = p->resources,
                               .n_devices = p->n,
                               .functions = home->functions,
                               .place_of = place_of,
                               .arg = (void *)(uintptr_t)p,
                               .next_name = &next_name};
  struct shoal_graph **parts = mem_zalloc((size_t)p->n, sizeof *parts);
  shoal_status s = plan_set_compile(out, &places, g, parts);
  for (int i = 0; i < p->n; i++)
    if (parts[i]) graph_free(parts[i]);
  free(parts);
  return s;
}

static shoal_status compile_here(const struct function_places *p, const struct plan_options *home,
                                 struct shoal_graph *g, struct plan_set *out) {
  place_here(home->device, g);
  TRY(rewrite(p, home, g));
  struct device *device = home->device;
  struct resource_mgr *resources = home->resources;
  struct plan_places here = {.devices = &device, .resources = &resources, .n_devices = 1, .functions = home->functions};
  return plan_set_add(out, &here, 0, g);
}

static int find_home(const struct function_places *p, const struct device *home) {
  int i = p->n - 1;
  while (i >= 0 && p->devices[i] != home) i--;
  return i;
}

int *function_find_handles(const struct function_places *p, const struct device *home, const struct tensor *args,
                           int n) {
  int at = p->n > 1 ? find_home(p, home) : -1, *all = NULL;
  for (int i = 0; at >= 0 && i < n; i++) {
    int of = args[i].dtype == SHOAL_RESOURCE ? resource_handle_among(&args[i], p->resources, p->names, p->n) : -1;
    if (of < 0 || of == at) continue;
    if (!all) all = memset(mem_alloc((size_t)n * sizeof *all), 0xff, (size_t)n * sizeof *all); /* -1 */
    all[i] = of;
  }
  return all;
}

shoal_status function_place(const struct function_places *p, const struct plan_options *home,
                            const struct function_call_place *call, struct shoal_graph *g, struct plan_set *out) {
  struct body_placing b = {.p = p, .call = call, .home = find_home(p, home->device)};
  if (!home->device->type->host) use_device_memory(g, call->host_args, call->host_rets);
  if (b.home < 0 || p->n == 1) return compile_here(p, home, g, out);
  b.devices = mem_zalloc((size_t)p->n, sizeof *b.devices);
  for (int i = 0; i < p->n; i++) {
    b.devices[i].name = p->names[i];
    shoal_status_free(device_spec_parse(p->names[i], &b.devices[i].spec));
  }
  bool here = !call->handles && stays(&b, g);
  shoal_status s = here ? compile_here(p, home, g, out) : place(&b, g);
  if (!here && !s) s = compile_parts(p, home, g, out);
  free(b.devices);
  return s;
}

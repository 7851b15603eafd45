/* Compiling a partition into a plan: frames, kernels, slots, last uses. */
#include "runtime/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/denormals.h"
#include "base/file_root.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/strmap.h"
#include "base/text.h"
#include "base/vec.h"
#include "device/gate.h"
#include "graph/frames.h"
#include "runtime/function.h"
#include "runtime/gathered.h"
#include "runtime/memory_edges.h"
#include "runtime/plan_internal.h"
#include "runtime/replay.h"
#include "tensor/strings.h"

/* ---- stateful kernels ---- */

struct kernel_cache {
  pthread_mutex_t lock;
  struct strmap kernels; /* lock: node name -> struct kernel * */
};

struct kernel_cache *kernel_cache_new(void) {
  struct kernel_cache *c = mem_zalloc(1, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  return c;
}

/* What a kernel refers to is copied, so that it outlives the graph it was made for: one block of memory holds the
 * kernel, its state, the types and the name, since a step reads the first three of every node. */
struct owned_kernel {
  struct kernel k;
  struct ref refs;                    /* of the plans that have it, and of the cache */
  struct function_runtime *functions; /* in the cache: whose functions its state points to, which outlive their graph */
  _Alignas(max_align_t) char rest[];
};

void kernel_free(struct kernel *k) {
  struct owned_kernel *o = (struct owned_kernel *)k;
  if (!ref_drop(&o->refs)) return;
  if (k->def->release && k->state) k->def->release(k->state);
  function_runtime_unref(o->functions);
  free(o);
}

void kernel_cache_free(struct kernel_cache *c) {
  if (!c) return;
  void *k;
  for (size_t i = 0; strmap_next(&c->kernels, &i, NULL, &k);) kernel_free(k);
  strmap_release(&c->kernels);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

/* For whoever wants to know what runs where, and in which types: SHOAL_LOG=debug. */
static void tell(const struct shoal_node *n, const struct device *d) {
  struct text types = {0};
  if (d->type->host || log_get_level() > LOG_DEBUG) return;
  for (int i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].value.kind == ATTR_TYPE)
      text_addf(&types, " %s=%s", n->attrs[i].name, shoal_dtype_name(dtype_base((shoal_dtype)n->attrs[i].value.type)));
  LOGD("%s makes %s%s", d->type->name, n->op->name, text_cstr(&types));
  text_release(&types);
}

shoal_status kernel_make(const struct shoal_node *n, const struct plan_options *o, struct kernel **out) {
  const struct kernel_def *def;
  TRY(kernel_find(n, o->device->type->name, &def));
  enum { ALIGNED = sizeof(max_align_t) };
  size_t n_in = (size_t)n->n_in, n_out = (size_t)n->n_out, name_size = strlen(n->name) + 1, parts_size = 1;
  size_t n_parts = n->op->name[0] == '_' ? n->original_names.n : 0;
  for (size_t i = 0; i < n_parts; i++) parts_size += strlen(n->original_names.at[i]) + 1;
  size_t n_memory = o->device->type->host ? 0 : n_in + n_out;
  size_t before_state = (n_in + n_out + n_memory + ALIGNED - 1) / ALIGNED * ALIGNED; /* types are next to the kernel */
  struct owned_kernel *own = mem_zalloc(1, sizeof *own + before_state + def->state_size + name_size + parts_size);
  uint8_t *types = (uint8_t *)own->rest, *memory = types + n_in + n_out;
  char *state = (char *)own->rest + before_state;
  char *name = memcpy(state + def->state_size, n->name, name_size), *part = name + name_size;
  ref_init(&own->refs, 1);
  if (n_in) memcpy(types, n->in_types, n_in);
  if (n_out) memcpy(types + n_in, n->out_types, n_out);
  if (n_memory) kernel_memory(n, def, memory, memory + n_in);
  struct kernel *k = &own->k;
  *k = (struct kernel){.def = def,
                       .op = n->op,
                       .name = name,
                       .parts = part,
                       .n_in = n->n_in,
                       .n_out = n->n_out,
                       .in_types = types,
                       .out_types = types + n_in,
                       .host_out = n_memory ? memory + n_in : NULL,
                       .device = o->device,
                       .resources = o->resources,
                       .state = def->state_size ? state : NULL};
  for (size_t i = 0; i < n_parts; i++) part = stpcpy(part, n->original_names.at[i]) + 1;
  struct kernel_init ki = {
      .node = n, .kernel = k, .device = o->device, .resources = o->resources, .functions = o->functions};
  if (getrandom(&ki.random_seed, sizeof ki.random_seed, 0) < 0) ki.random_seed = (uint64_t)(uintptr_t)k;
  shoal_status s = def->init ? def->init(&ki, k->state) : NULL;
  if (s) {
    kernel_free(k);
    return node_error(n, s);
  }
  tell(n, o->device);
  *out = k;
  return NULL;
}

static bool names_function(const struct shoal_node *n) {
  for (int i = 0; i < n->n_attrs; i++)
    if (attr_names_function(&n->attrs[i].value)) return true;
  return false;
}

static shoal_status kernel_get(const struct shoal_node *n, const struct plan_options *o, struct kernel **out) {
  /* Ops that start with _ are made anew for each step signature, under names that mean nothing beyond it. */
  if (!o->kernels || !(n->op->flags & OP_STATEFUL) || n->op->name[0] == '_') return kernel_make(n, o, out);
  char *key = mem_printf("%s@%s", n->name, o->device->name);
  pthread_mutex_lock(&o->kernels->lock);
  *out = strmap_get(&o->kernels->kernels, key);
  shoal_status s = NULL;
  if (!*out) {
    s = kernel_make(n, o, out);
    if (!s) {
      if (o->functions && names_function(n))
        ((struct owned_kernel *)*out)->functions = function_runtime_ref(o->functions);
      strmap_put(&o->kernels->kernels, key, *out);
    }
  }
  if (!s) ref_take(&((struct owned_kernel *)*out)->refs);
  pthread_mutex_unlock(&o->kernels->lock);
  free(key);
  return s;
}

/* ---- compiling ---- */

struct compiler {
  const struct shoal_graph *g;
  const struct plan_options *o;
  struct plan *p;
  struct shoal_node **order; /* [n_nodes] */
  int *at;                   /* node id -> plan index */
};

static unsigned control_flags(const struct shoal_node *n) {
  if (node_is_switch(n)) return NODE_SWITCH | NODE_MAY_SKIP;
  if (node_is_merge(n)) return NODE_MERGE;
  if (node_is_exit(n)) return NODE_EXIT;
  if (node_is_next_iteration(n)) return NODE_NEXT;
  if (op_is(n->op, "_Recv") || op_is(n->op, "_HostRecv") || op_is(n->op, "_DeviceRecv")) return NODE_MAY_SKIP;
  if (op_is(n->op, "ControlTrigger")) return NODE_TRIGGER;
  if (!node_is_enter(n)) return 0;
  const struct attr *constant = node_attr(n, "is_constant");
  return NODE_ENTER | (constant && constant->kind == ATTR_BOOL && constant->b ? NODE_ENTER_CONST : 0);
}

static shoal_status assign_frames(struct compiler *c) {
  struct plan *p = c->p;
  struct frames frames;
  TRY(frames_init(&frames, c->g, c->order));
  p->n_frames = (int)frames.at.n;
  p->frames = mem_zalloc(frames.at.n, sizeof *p->frames);
  for (int i = 0; i < p->n_frames; i++) {
    struct frame_def *def = &frames.at.at[i];
    p->frames[i] = (struct frame_info){.name = mem_strdup(def->name),
                                       .parent = def->parent,
                                       .n_enters = def->n_enters,
                                       .parallel = def->parallel_iterations};
  }
  for (int i = 0; i < p->n_nodes; i++) {
    struct plan_node *pn = &p->nodes[i];
    pn->frame = frames.runs_in[c->order[i]->id];
    pn->out_frame = frames.output_in[c->order[i]->id];
    pn->local = p->frames[pn->frame].n_nodes++;
  }
  frames_release(&frames);
  return NULL;
}

static void assign_slots(struct compiler *c) {
  struct plan *p = c->p;
  int total_in = 0, total_edges = 0;
  for (int i = 0; i < p->n_nodes; i++) {
    struct plan_node *pn = &p->nodes[i];
    pn->out_slot = p->frames[pn->out_frame].n_slots;
    p->frames[pn->out_frame].n_slots += pn->n_out;
    pn->first_in = total_in;
    total_in += pn->n_in;
  }
  p->total_in = total_in;
  p->in_slots = mem_zalloc((size_t)total_in, sizeof *p->in_slots);
  for (int f = 0; f < p->n_frames; f++) {
    p->frames[f].slot_uses = mem_zalloc((size_t)p->frames[f].n_slots, sizeof(int));
    p->frames[f].nodes = mem_zalloc((size_t)p->frames[f].n_nodes, sizeof(int));
  }
  for (int i = 0; i < p->n_nodes; i++) {
    struct plan_node *pn = &p->nodes[i];
    struct shoal_node *n = c->order[i];
    p->frames[pn->frame].nodes[pn->local] = i;
    for (int k = 0; k < n->n_in; k++) {
      struct plan_node *from = &p->nodes[c->at[n->in[k].node->id]];
      int slot = from->out_slot + n->in[k].index;
      p->in_slots[pn->first_in + k] = slot;
      p->frames[pn->frame].slot_uses[slot]++;
      from->n_edges++;
      total_edges++;
    }
    for (size_t k = 0; k < n->control.n; k++) {
      p->nodes[c->at[n->control.at[k]->id]].n_edges++;
      total_edges++;
    }
    pn->n_data = n->n_in;
    pn->n_control = (int)n->control.n;
    pn->pending = n->n_in + (int)n->control.n;
  }
  p->edges = mem_zalloc((size_t)total_edges, sizeof *p->edges);
  int at = 0;
  for (int i = 0; i < p->n_nodes; i++) {
    p->nodes[i].first_edge = at;
    at += p->nodes[i].n_edges;
    p->nodes[i].n_edges = 0;
  }
  for (int i = 0; i < p->n_nodes; i++) {
    struct shoal_node *n = c->order[i];
    for (int k = 0; k < n->n_in; k++) {
      struct plan_node *from = &p->nodes[c->at[n->in[k].node->id]];
      p->edges[from->first_edge + from->n_edges++] = (struct plan_edge){i, n->in[k].index};
    }
    for (size_t k = 0; k < n->control.n; k++) {
      struct plan_node *from = &p->nodes[c->at[n->control.at[k]->id]];
      p->edges[from->first_edge + from->n_edges++] = (struct plan_edge){i, -1};
    }
  }
}

/* 0 where the shape is not known. */
static int64_t elements_of(const struct shoal_node *n, int out) {
  int64_t elements = 0;
  if (out >= n->n_out || !n->out_shapes || !shape_known(&n->out_shapes[out])) return 0;
  shoal_status s = shape_elements(&n->out_shapes[out], &elements);
  shoal_status_free(s);
  return s ? 0 : MIN(elements, 1ll << 40);
}

/* Does it make a list of some length? */
static bool is_long(const struct shoal_node *n) {
  enum { LONG = 256 };
  return elements_of(n, 0) >= LONG;
}

static void count_elements(struct compiler *c, const int *segment) {
  for (int i = c->p->n_once; i < c->p->n_nodes; i++) {
    const struct shoal_node *n = c->order[i];
    for (int k = 0; k < n->n_in; k++) c->p->segments[segment[i]].elements += elements_of(n->in[k].node, n->in[k].index);
  }
}

static void node_flags(struct compiler *c, int i) {
  struct shoal_node *n = c->order[i];
  struct plan_node *pn = &c->p->nodes[i];
  const struct kernel_def *def = pn->kernel->def;
  if (def->start) pn->flags |= NODE_ASYNC;
  if (is_long(n)) pn->flags |= NODE_LONG;
  if (def->flags & KERNEL_EXPENSIVE) {
    pn->flags |= NODE_EXPENSIVE;
    atomic_init(&pn->slow, true); /* it may also block */
  }
  if (def->flags & KERNEL_DEAD_OK) pn->flags |= NODE_DEAD_OK;
  if (n->op->flags & OP_UNINITIALIZED_OK) pn->flags |= NODE_UNINITIALIZED_OK;
  for (int k = 0; k < n->n_in; k++)
    if (n->in[k].node && dtype_is_ref(n->in[k].node->out_types[n->in[k].index])) pn->flags |= NODE_REFS;
  for (int k = 0; k < n->n_out; k++)
    if (dtype_is_ref(n->out_types[k])) pn->flags |= NODE_REFS;
  if (pn->flags & NODE_REFS) c->p->has_refs = true;
}

/* A handle is the same in every step, unless it is made for a variable that has no name. */
static bool is_handle(const struct shoal_node *n) {
  const char *name = RESOURCE_NAMELESS;
  if (!op_is(n->op, "VarHandleOp")) return false;
  shoal_status_free(node_get_string(n, "shared_name", &name));
  return strcmp(name, RESOURCE_NAMELESS) != 0;
}

/* Constants and handles are run once, here. They come first in the order, having no inputs. What a constant waits for,
 * those that read it wait for too, perhaps through it alone: in a plan that waits for nothing the order sees to that.
 */
static bool runs_once(const struct shoal_node *n, bool waits) {
  return (op_is(n->op, "Const") || is_handle(n)) && n->n_in == 0 && (!waits || n->control.n == 0);
}

static shoal_status run_once(struct plan *p) {
  for (int i = 0; i < p->n_once; i++) p->n_once_slots += p->nodes[i].n_out;
  p->once = mem_zalloc((size_t)p->n_once_slots, sizeof *p->once);
  struct step step = {.deadline = DEADLINE_NEVER, .session = ""};
  for (int i = 0; i < p->n_once; i++) {
    struct plan_node *n = &p->nodes[i];
    struct kernel_ctx ctx = {
        .kernel = n->kernel, .state = n->kernel->state, .step = &step, .out = &p->once[n->out_slot]};
    uint64_t lost = strings_lost();
    TRY(n->kernel->def->run(&ctx));
    TRY(strings_kept(lost));
    TRY(ctx_error(&ctx, ctx_check_types(&ctx)));
  }
  return NULL;
}

/* The constants first, then the rest as it was. */
static void once_first(struct compiler *c, struct shoal_node **topological, bool waits) {
  struct plan *p = c->p;
  int n = 0;
  for (int i = 0; i < p->n_nodes; i++)
    if (runs_once(topological[i], waits)) c->order[n++] = topological[i];
  p->n_once = n;
  for (int i = 0; i < p->n_nodes; i++)
    if (!runs_once(topological[i], waits)) c->order[n++] = topological[i];
}

/* A node without a kernel says so when it gets one. */
static bool is_async(const struct compiler *c, const struct shoal_node *n, bool *early) {
  const struct kernel_def *def;
  shoal_status s = kernel_find(n, c->o->device->type->name, &def);
  shoal_status_free(s);
  *early = !s && def->start && stages_wanted(n);
  return !s && def->start;
}

/* Cuts the plan into segments, unless it has frames, or too much that it waits for. */
static void cut(struct compiler *c, struct shoal_node **topological, int *segment) {
  enum { FRAMES = NODE_SWITCH | NODE_MERGE | NODE_ENTER | NODE_EXIT | NODE_NEXT };
  struct plan *p = c->p;
  bool framed = false, waits = false, any_early = false;
  for (int i = 0; i < p->n_nodes; i++) framed |= (control_flags(topological[i]) & FRAMES) != 0;
  if (!framed) {
    bool *async = mem_zalloc((size_t)p->n_nodes, sizeof *async), *early = mem_zalloc((size_t)p->n_nodes, sizeof *early);
    for (int i = 0; i < p->n_nodes; i++) waits |= is_async(c, topological[i], &early[i]);
    once_first(c, topological, waits);
    for (int i = 0; waits && i < p->n_nodes; i++) {
      async[i] = is_async(c, c->order[i], &early[i]);
      any_early |= early[i];
    }
    p->straight = segments_cut(p, c->order, async, c->g->nodes.n, segment);
    if (p->straight && any_early) stages_cut(p, c->order, early, c->g->nodes.n, segment);
    free(async);
    free(early);
  }
  if (p->straight) {
    segments_order(p, c->order, segment);
  } else {
    p->n_once = 0;
    memcpy(c->order, topological, (size_t)p->n_nodes * sizeof *c->order);
  }
  for (int i = 0; i < p->n_nodes; i++) c->at[c->order[i]->id] = i;
}

static shoal_status check_whole(const struct shoal_graph *g) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    for (int k = 0; n && k < n->n_in; k++)
      if (!n->in[k].node) return INVALID("input %d of {{node %s}} is not connected", k, n->name);
  }
  return NULL;
}

static shoal_status compile(struct compiler *c, struct shoal_node **topological, int *segment) {
  struct plan *p = c->p;
  TRY(check_whole(c->g));
  TRY(graph_topological_order(c->g, topological));
  cut(c, topological, segment);
  for (int i = 0; i < p->n_nodes; i++) {
    struct shoal_node *n = c->order[i];
    p->nodes[i] = (struct plan_node){.flags = control_flags(n), .n_in = n->n_in, .n_out = n->n_out};
    TRY(kernel_get(n, c->o, &p->nodes[i].kernel));
    node_flags(c, i);
  }
  TRY(assign_frames(c));
  assign_slots(c);
  if (!p->straight) return NULL;
  TRY(run_once(p));
  segments_link(p, segment);
  count_elements(c, segment);
  segments_last_uses(p, segment);
  segments_find_drops(p);
  places_find(p, c->order, c->at);
  if (c->o->step && plan_is_alone(p) && p->device->type->ops->replay) p->replay = replay_new(p, c->order);
  return NULL;
}

/* Inlined functions may not produce what their callers said: whoever reads it would take its memory for something else.
 */
static shoal_status check_edges(const struct shoal_graph *g) {
  for (size_t k = 0; k < g->nodes.n; k++) {
    const struct shoal_node *n = g->nodes.at[k];
    for (int i = 0; n && i < n->n_in; i++) {
      const struct shoal_node *from = n->in[i].node;
      if (!from) continue;
      shoal_dtype is = dtype_base(from->out_types[n->in[i].index]), wants = dtype_base(n->in_types[i]);
      if (is != wants && !dtype_is_harmless(is, wants))
        return INVALID("Input %d of node %s was passed %s from %s:%d incompatible with expected %s.", i, n->name,
                       shoal_dtype_name(is), from->name, n->in[i].index, shoal_dtype_name(wants));
    }
  }
  return NULL;
}

static shoal_status compile_for(const struct shoal_graph *g, const struct plan_options *options, struct plan **out) {
  TRY(check_edges(g));
  struct plan *p = mem_zalloc(1, sizeof *p);
  ref_init(&p->refs, 1);
  pthread_mutex_init(&p->lock, NULL);
  p->device = options->device;
  p->resources = resource_mgr_ref(options->resources);
  p->n_nodes = g->n_nodes;
  p->nodes = mem_zalloc((size_t)g->n_nodes, sizeof *p->nodes);
  struct compiler c = {.g = g, .o = options, .p = p};
  c.order = mem_zalloc((size_t)g->n_nodes, sizeof *c.order);
  c.at = mem_zalloc(g->nodes.n, sizeof *c.at);
  struct shoal_node **topological = mem_zalloc((size_t)g->n_nodes, sizeof *topological);
  int *segment = mem_zalloc((size_t)g->n_nodes, sizeof *segment); /* of each node of a straight plan */
  const struct file_roots *before = file_roots_use(p->device->files);
  shoal_status s = compile(&c, topological, segment);
  file_roots_use(before);
  free(segment);
  free(topological);
  free(c.order);
  free(c.at);
  if (s) {
    plan_unref(p);
    return s;
  }
  *out = p;
  return NULL;
}

shoal_status plan_compile(const struct shoal_graph *g, const struct plan_options *options, struct plan **out) {
  if (options->device->type->host) return compile_for(g, options, out);
  struct shoal_graph *copy = graph_copy(g, NULL);
  shoal_status s = memory_edges_add(copy, options->device, options->step);
  if (!s) s = compile_for(copy, options, out);
  graph_free(copy);
  if (!s && options->step && options->device->type->ops->replay && !(*out)->replay)
    (*out)->gathered = gathered_new(g, options);
  return s;
}

struct plan *plan_ref(struct plan *p) {
  ref_take(&p->refs);
  return p;
}

void plan_unref(struct plan *p) {
  if (!p || !ref_drop(&p->refs)) return;
  replay_free(p->replay);
  gathered_free(p->gathered);
  straight_free(p->execs, p);
  dataflow_free(p->flows, p);
  for (int i = 0; i < p->n_once_slots; i++) tensor_release(&p->once[i]);
  for (int i = 0; i < p->n_nodes; i++) {
    if (p->nodes[i].kernel) kernel_free(p->nodes[i].kernel);
  }
  for (int f = 0; f < p->n_frames; f++) {
    free(p->frames[f].name);
    free(p->frames[f].slot_uses);
    free(p->frames[f].nodes);
  }
  resource_mgr_unref(p->resources);
  pthread_mutex_destroy(&p->lock);
  free(p->frames);
  free(p->nodes);
  free(p->in_slots);
  free(p->edges);
  free(p->segments);
  free(p->nexts);
  free(p->last_use);
  free(p->readers);
  free(p->steals);
  free(p->drops);
  free(p->first_drop);
  free(p->once);
  free(p->wholes);
  free(p->places);
  free(p);
}

shoal_status plan_evaluate(const struct plan_options *o, const struct shoal_node *n, const struct tensor *const *in,
                           struct cancel *cancel, struct tensor *out) {
  struct kernel *k;
  if (cancel && cancel_started(cancel)) return cancel_reason(cancel);
  const struct file_roots *before = file_roots_use(o->device->files);
  shoal_status s = kernel_make(n, o, &k);
  if (s) {
    file_roots_use(before);
    return s;
  }
  struct cancel own;
  cancel_init(&own);
  struct step step = {.deadline = DEADLINE_NEVER, .session = "", .cancel = cancel ? cancel : &own};
  struct kernel_ctx ctx = {.kernel = k, .state = k->state, .step = &step, .in = in, .out = out};
  uint64_t control = denormals_flush();
  uint64_t lost = strings_lost();
  s = k->def->run ? k->def->run(&ctx) : UNIMPLEMENTED("{{node %s}} is asynchronous", n->name);
  if (!s) s = strings_kept(lost);
  if (!s) s = ctx_check_types(&ctx);
  if (!s && cancel_started(step.cancel)) s = cancel_reason(step.cancel);
  denormals_restore(control);
  for (int i = 0; s && i < n->n_out; i++) tensor_release(&out[i]);
  cancel_release(&own);
  kernel_free(k);
  file_roots_use(before);
  return s;
}

bool plan_is_alone(const struct plan *p) { return p->straight && !p->n_calls; }

bool plan_is_straight(const struct plan *p) { return plan_is_alone(p) && p->device->type->host; }

/* ---- the end of a step on a device that may still have work queued ---- */

struct queue_end {
  struct plan *plan;
  struct step *step;
  void (*done)(void *, shoal_status);
  void *arg;
  shoal_status status; /* the plan's */
};

static void queue_over(void *arg, shoal_status s) {
  struct queue_end e = *(struct queue_end *)arg;
  free(arg);
  if (s) status_merge(&e.status, s);
  device_gate_leave(e.plan->device->gate);
  s = e.step->late ? atomic_exchange(e.step->late, NULL) : NULL;
  if (s) status_merge(&e.status, s);
  e.done(e.arg, e.status);
}

/* The run that this thread has begun and not yet left. */
static _Thread_local const struct queue_end *launching;

/* Also after an error: what is queued refers to the step. Who began the step and waits for it waits for the device
 * itself, where the plan is over on that thread: nobody has to wake it. */
static void plan_over(void *arg, shoal_status s) {
  struct queue_end *e = arg;
  struct device *d = e->plan->device;
  bool here = e->step->here && launching == e && d->type->ops->finish;
  e->status = s;
  if (launching == e) launching = NULL;
  if (here) queue_over(e, d->type->ops->finish(d));
  else d->type->ops->when_done(d, queue_over, e);
}

static void run_and_wait(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg) {
  struct queue_end *e = mem_alloc(sizeof *e);
  const struct queue_end *before = launching;
  *e = (struct queue_end){p, step, done, arg, NULL};
  launching = e;
  if (p->straight) straight_run(p, step, plan_over, e);
  else dataflow_run(p, step, plan_over, e);
  launching = before;
}

void plan_run_whole(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg) {
  shoal_status s = NULL;
  device_gate_enter(p->device->gate);
  enum replay_outcome how = p->replay ? replay_run(p->replay, step, done, arg, &s) : REPLAY_NOT;
  if (how == REPLAY_NOT) run_and_wait(p, step, done, arg);
  if (how != REPLAY_OVER) return;
  device_gate_leave(p->device->gate);
  done(arg, s);
}

void plan_run(struct plan *p, struct step *step, void (*done)(void *, shoal_status), void *arg) {
  if (p->gathered && step->waits && gathered_run(p->gathered, p, step, done, arg)) return;
  if (step->waits && UNLIKELY(!p->device->type->host)) plan_run_whole(p, step, done, arg);
  else if (p->straight) straight_run(p, step, done, arg);
  else dataflow_run(p, step, done, arg);
}

void verdict_fail(struct verdict *v, struct step *step, shoal_status s) {
  shoal_status root = status_copy(s);
  pthread_mutex_lock(&v->lock);
  status_merge(&v->status, s);
  bool first = !atomic_exchange(&v->failed, true);
  pthread_mutex_unlock(&v->lock);
  if (first) {
    if (step->rendezvous) rendezvous_abort(step->rendezvous, status_copy(root));
    if (step->cancel) cancel_start(step->cancel, status_mark_derived(status_copy(root)));
  }
  shoal_status_free(root);
}

shoal_status missing_output(const struct plan_node *n, const struct kernel_ctx *ctx) {
  if (n->flags & NODE_MAY_SKIP) return NULL;
  for (int i = 0; i < n->n_out; i++)
    if (!ctx->out[i].buffer && !(ctx->refs_out && ctx->refs_out[i]))
      return INTERNAL("Missing %d-th output from {{node %s}}", i, n->kernel->name);
  return NULL;
}

shoal_status missing_strings(const struct plan_node *n, const struct kernel_ctx *ctx, uint64_t before) {
  if (LIKELY(strings_lost() == before)) return NULL;
  bool found = !(n->flags & NODE_ASYNC);
  for (int i = 0; i < n->n_in && !found; i++) found = ctx->in[i] && ctx->in[i]->dtype == SHOAL_STRING;
  for (int i = 0; i < n->n_out && !found; i++) found = ctx->out[i].dtype == SHOAL_STRING;
  return found ? strings_kept(before) : NULL;
}

shoal_status refs_prepare(const struct plan_node *n, struct variable *const *slot_refs, const int *in_slots,
                          const struct tensor **in, struct variable **refs_in, struct tensor *temps) {
  static const struct tensor nothing;
  for (int i = 0; i < n->n_in; i++) {
    struct variable *v = slot_refs[in_slots[i]];
    refs_in[i] = NULL;
    temps[i].buffer = NULL;
    if (!v) continue;
    bool as_ref = dtype_is_ref(n->kernel->in_types[i]);
    bool initialized;
    if (as_ref) {
      pthread_rwlock_rdlock(&v->lock);
      initialized = tensor_valid(&v->value);
      pthread_rwlock_unlock(&v->lock);
      refs_in[i] = v;
      in[i] = &nothing;
    } else {
      variable_read(v, &temps[i]);
      initialized = tensor_valid(&temps[i]);
      in[i] = &temps[i];
    }
    if (!initialized && !(n->flags & NODE_UNINITIALIZED_OK))
      return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  }
  return NULL;
}

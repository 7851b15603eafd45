/* Functions at run time: bodies instantiated at look-up, compiled at the first call, kept per (name, attributes,
 * device, resources). Compiling late lets functions call themselves inside conditionals; a bound on the depth of calls
 * keeps them from doing so for ever. What uses a handle runs where that belongs: a body is compiled once more for calls
 * with handles of other devices. */
#include "runtime/function.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/latch.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/strmap.h"
#include "graph/function.h"
#include "graph/lower.h"
#include "graph/prune.h"
#include "runtime/function_place.h"
#include "runtime/plan_set.h"

enum { MAX_DEPTH = 100, MAX_VERSIONS = 64 };

struct function_runtime {
  struct ref refs;
  pthread_mutex_t lock;
  struct shoal_graph *library; /* lock: functions only */
  struct strmap functions;     /* lock: key -> struct function * */
  struct function_places places;
};

struct function_version { /* the body, compiled for handles of these devices */
  struct function_version *next;
  int *handles; /* function_call_place's; NULL: of no other device */
  struct plan_set set;
};

struct function {
  struct function_runtime *runtime;
  char *name;
  struct device *device;
  struct resource_mgr *resources;
  struct function_memory memory;
  pthread_mutex_t lock;
  struct function_body body;         /* lock: until compiled for the last time */
  struct function_version *versions; /* lock: for changes; each stays as it is */
  int n_versions;                    /* lock */
  bool has_handles;                  /* among the arguments, and there are several devices */
  int n_args, n_rets;
  shoal_dtype *types; /* [n_args + n_rets] */
};

struct function_runtime *function_runtime_new(const struct shoal_graph *library) {
  struct function_runtime *r = mem_zalloc(1, sizeof *r);
  ref_init(&r->refs, 1);
  pthread_mutex_init(&r->lock, NULL);
  r->library = graph_new();
  shoal_status_free(function_runtime_add(r, library)); /* nothing is there yet that could be in the way */
  return r;
}

shoal_status function_runtime_add(struct function_runtime *r, const struct shoal_graph *library) {
  shoal_status s = NULL;
  void *def;
  pthread_mutex_lock(&r->lock);
  for (size_t i = 0; !s && strmap_next(&library->functions, &i, NULL, &def);)
    s = graph_add_function(r->library, function_def_ref(def));
  pthread_mutex_unlock(&r->lock);
  return s;
}

void function_runtime_inherit(struct function_runtime *r, struct function_runtime *from) {
  void *def;
  pthread_mutex_lock(&from->lock); /* r is new: nobody else has it, and its lock is not needed */
  for (size_t i = 0; strmap_next(&from->library->functions, &i, NULL, &def);)
    if (!graph_function(r->library, ((struct function_def *)def)->name))
      shoal_status_free(graph_add_function(r->library, function_def_ref(def)));
  pthread_mutex_unlock(&from->lock);
}

struct function_def *function_runtime_find(struct function_runtime *r, const char *name) {
  pthread_mutex_lock(&r->lock);
  struct function_def *f = graph_function(r->library, name);
  if (f) function_def_ref(f);
  pthread_mutex_unlock(&r->lock);
  return f;
}

/* What is deeper than this, or calls itself, counts by its name; so does the rest, once so much has been seen (nodes,
 * and each HASH_UNIT bytes of their attributes): functions that each name another twice would be more than there is
 * time for. */
enum { HASH_DEPTH = 32, HASH_MOST = 1 << 20, HASH_UNIT = 1024 };

struct hashing {
  const struct shoal_graph *library;
  int64_t seen;
};

static uint64_t hash_body(struct hashing *to, const struct function_def *f, int depth);

static uint64_t hash_named(struct hashing *to, const char *name, int depth) {
  bool deeper = depth < HASH_DEPTH && to->seen < HASH_MOST;
  const struct function_def *f = deeper ? graph_function(to->library, name) : NULL;
  return f ? hash_body(to, f, depth + 1) : hash64_stable(name, strlen(name));
}

static uint64_t hash_attr(struct hashing *to, const struct attr *a, int depth) {
  if (a->kind == ATTR_FUNC) return hash_named(to, a->func->name, depth);
  struct text t = {0};
  shoal_status_free(attr_proto_encode(a, &t));
  uint64_t h = hash64_stable(text_cstr(&t), t.n);
  to->seen += (int64_t)(t.n / HASH_UNIT);
  text_release(&t);
  return h;
}

static uint64_t hash_body(struct hashing *to, const struct function_def *f, int depth) {
  uint64_t h = (uint64_t)f->n_nodes;
  to->seen += f->n_nodes + 1;
  for (int i = 0; i < f->n_nodes; i++) {
    const struct node_def *n = &f->nodes[i];
    char *op = mem_strndup(n->op.at, n->op.n);
    h = hash64_combine(h, hash_named(to, op, depth));
    free(op);
    h = hash64_combine(h, hash64_stable(n->name.at, n->name.n));
    for (size_t k = 0; k < n->in.n; k++) h = hash64_combine(h, hash64_stable(n->in.at[k].at, n->in.at[k].n));
    uint64_t attrs = 0; /* in no order */
    for (size_t k = 0; k < n->attrs.n; k++)
      if (n->attrs.at[k].name[0] != '_')
        attrs += hash64_combine(hash64_stable(n->attrs.at[k].name, strlen(n->attrs.at[k].name)),
                                hash_attr(to, &n->attrs.at[k].value, depth));
    h = hash64_combine(h, attrs);
  }
  for (int i = 0; i < f->sig->n_out; i++) h = hash64_combine(h, hash64_stable(f->rets[i].at, f->rets[i].n));
  return h;
}

uint64_t function_runtime_hash(struct function_runtime *r, const char *name) {
  pthread_mutex_lock(&r->lock);
  struct hashing to = {.library = r->library};
  uint64_t h = graph_function(r->library, name) ? hash_named(&to, name, 0) : 0;
  pthread_mutex_unlock(&r->lock);
  return h;
}

struct function_runtime *function_runtime_ref(struct function_runtime *r) {
  ref_take(&r->refs);
  return r;
}

void function_runtime_place(struct function_runtime *r, struct device *const *devices, char *const *names,
                            struct resource_mgr *const *resources, int n, const char *rewrites_off) {
  function_places_init(&r->places, devices, names, resources, n, rewrites_off);
}

static void function_free(struct function *f) {
  for (struct function_version *v = f->versions, *next; v; v = next) {
    next = v->next;
    plan_set_release(&v->set);
    free(v->handles);
    free(v);
  }
  if (f->body.graph) function_body_release(&f->body);
  resource_mgr_unref(f->resources);
  pthread_mutex_destroy(&f->lock);
  free(f->types);
  free(f->name);
  free(f);
}

void function_runtime_unref(struct function_runtime *r) {
  if (!r || !ref_drop(&r->refs)) return;
  void *f;
  for (size_t i = 0; strmap_next(&r->functions, &i, NULL, &f);) function_free(f);
  strmap_release(&r->functions);
  graph_free(r->library);
  function_places_release(&r->places);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static char *key_of(const struct func_attr *f, const struct kernel_init *ki, const struct function_memory *m) {
  struct text t = {0};
  text_addf(&t, "%s|%s|%p|%x,%x", f->name, ki->device->name, (void *)ki->resources, m->host_args, m->host_rets);
  uint64_t h = 0;
  for (int i = 0; i < f->n_attrs; i++) {
    text_addf(&t, "|%s=", f->attrs[i].name);
    attr_print(&f->attrs[i].value, &t);
    h ^= attr_hash(&f->attrs[i].value, (uint64_t)i);
  }
  text_addf(&t, "|%llx", (unsigned long long)h);
  return text_take(&t);
}

/* The body is taken over. */
static shoal_status adopt(struct function_runtime *r, struct device *device, struct resource_mgr *resources,
                          const char *name, struct function_body body, struct function **out) {
  function_body_take_library(&body, r->library);
  shoal_status s = graph_try_lower(body.graph);
  if (s) {
    function_body_release(&body);
    return s;
  }
  struct function *f = mem_zalloc(1, sizeof *f);
  pthread_mutex_init(&f->lock, NULL);
  f->runtime = r;
  f->name = mem_strdup(name);
  f->device = device;
  f->resources = resource_mgr_ref(resources);
  f->body = body;
  f->n_args = body.n_args;
  f->n_rets = body.n_rets;
  f->types = mem_zalloc((size_t)(f->n_args + f->n_rets), sizeof *f->types);
  for (int i = 0; i < f->n_args; i++) {
    f->types[i] = dtype_base(body.args[i]->out_types[0]);
    f->has_handles |= f->types[i] == SHOAL_RESOURCE && r->places.n > 1;
  }
  for (int i = 0; i < f->n_rets; i++) f->types[f->n_args + i] = dtype_base(body.rets[i]->in_types[0]);
  *out = f;
  return NULL;
}

static shoal_status make(struct function_runtime *r, struct kernel_init *ki, const struct func_attr *attr,
                         struct function **out) {
  const struct function_def *def = graph_function(r->library, attr->name);
  if (!def) return NOT_FOUND("Function %s is not defined.", attr->name);
  struct function_body body;
  TRY(function_instantiate(r->library, def, attr->attrs, attr->n_attrs, &body));
  return adopt(r, ki->device, ki->resources, attr->name, body, out);
}

shoal_status function_of_graph(struct function_runtime *r, struct device *device, struct resource_mgr *resources,
                               struct shoal_graph *g, struct shoal_node *ret, struct function **out) {
  struct function_body body = {.graph = g, .rets = mem_alloc(sizeof *body.rets), .n_rets = 1};
  body.rets[0] = ret;
  pthread_mutex_lock(&r->lock);
  shoal_status s = adopt(r, device, resources, "graph", body, out);
  if (!s) strmap_put(&r->functions, "graph", *out); /* no key of a named function is without a '|' */
  pthread_mutex_unlock(&r->lock);
  return s;
}

shoal_status function_get(struct kernel_init *ki, const struct func_attr *attr, struct function **out) {
  return function_get_with(ki, attr, (struct function_memory){0}, out);
}

shoal_status function_get_with(struct kernel_init *ki, const struct func_attr *attr, struct function_memory memory,
                               struct function **out) {
  struct function_runtime *r = ki->functions;
  if (!r) return NOT_FOUND("Function %s is not defined: the graph has no library.", attr->name);
  char *key = key_of(attr, ki, &memory);
  pthread_mutex_lock(&r->lock);
  *out = strmap_get(&r->functions, key);
  shoal_status s = NULL;
  if (!*out) {
    s = make(r, ki, attr, out);
    if (!s) (*out)->memory = memory;
    if (!s) strmap_put(&r->functions, key, *out);
  }
  pthread_mutex_unlock(&r->lock);
  free(key);
  return s;
}

int function_args(const struct function *f) { return f->n_args; }
int function_rets(const struct function *f) { return f->n_rets; }
shoal_dtype function_ret_type(const struct function *f, int i) { return f->types[f->n_args + i]; }

/* ---- compiling ---- */

static void mark(const struct shoal_node *n, bool *keep, struct shoal_node **todo, int *n_todo) {
  if (keep[n->id]) return;
  keep[n->id] = true;
  todo[(*n_todo)++] = (struct shoal_node *)(uintptr_t)n;
}

/* What the results need, what must run for its effect, and the arguments. */
static struct shoal_graph *needed(const struct function_body *b) {
  const struct shoal_graph *g = b->graph;
  bool *keep = mem_zalloc(g->nodes.n, sizeof *keep);
  struct shoal_node **todo = mem_zalloc(g->nodes.n, sizeof *todo);
  int n = 0;
  for (int i = 0; i < b->n_rets; i++) mark(b->rets[i], keep, todo, &n);
  for (int i = 0; i < b->n_controls; i++) mark(b->controls[i], keep, todo, &n);
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && (g->nodes.at[i]->op->flags & OP_STATEFUL)) mark(g->nodes.at[i], keep, todo, &n);
  while (n) {
    struct shoal_node *node = todo[--n];
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i].node) mark(node->in[i].node, keep, todo, &n);
    for (size_t i = 0; i < node->control.n; i++) mark(node->control.at[i], keep, todo, &n);
  }
  struct shoal_graph *out = graph_subset(g, keep, NULL);
  free(keep);
  free(todo);
  return out;
}

static struct function_version *find_version(const struct function *f, const int *handles) {
  struct function_version *v = f->versions;
  for (; v; v = v->next) {
    if (!v->handles && !handles) return v;
    if (v->handles && handles && !memcmp(v->handles, handles, (size_t)f->n_args * sizeof *handles)) return v;
  }
  return v;
}

static shoal_status add_version(struct function *f, const int *handles, struct function_version **out) {
  if (f->n_versions == MAX_VERSIONS)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "It is called with handles of devices in more than %d orders",
                  MAX_VERSIONS);
  struct shoal_graph *g = needed(&f->body);
  struct plan_options o = {.device = f->device, .resources = f->resources, .functions = f->runtime};
  struct function_call_place call = {f->memory.host_args, f->memory.host_rets, handles, f->n_args};
  struct plan_set set = {0};
  shoal_status s = function_place(&f->runtime->places, &o, &call, g, &set);
  graph_free(g);
  if (s) {
    plan_set_release(&set);
    return s;
  }
  struct function_version *v = *out = mem_zalloc(1, sizeof *v);
  v->set = set;
  size_t size = (size_t)f->n_args * sizeof *handles;
  if (handles) v->handles = memcpy(mem_alloc(size), handles, size);
  v->next = f->versions;
  f->versions = v;
  f->n_versions++;
  if (f->has_handles) return NULL;
  function_body_release(&f->body);
  f->body = (struct function_body){0};
  return NULL;
}

/* The version for a call with these arguments. */
static shoal_status compile(struct function *f, const struct tensor *args, struct function_version **out) {
  int *handles = f->has_handles ? function_find_handles(&f->runtime->places, f->device, args, f->n_args) : NULL;
  pthread_mutex_lock(&f->lock);
  shoal_status s = NULL;
  *out = find_version(f, handles);
  if (!*out) s = add_version(f, handles, out);
  pthread_mutex_unlock(&f->lock);
  free(handles);
  if (s) status_suffix(s, "\n\t [[in function %s]]", f->name);
  return s;
}

/* ---- calling ---- */

struct function_call {
  struct set_run run;
  const struct function *of;
  function_done done;
  void *arg;
  struct tensor *args, *rets;
  struct cancel own_cancel; /* without a caller */
  bool has_own_cancel;
  struct rendezvous *own_rendezvous; /* of a body on several devices */
  int n_args, n_rets;
};

static void call_free(struct function_call *c) {
  for (int i = 0; i < c->n_args; i++) tensor_release(&c->args[i]);
  if (c->has_own_cancel) {
    resource_mgr_unref(c->run.step.step_resources);
    cancel_release(&c->own_cancel);
  }
  rendezvous_unref(c->own_rendezvous);
  free(c->args);
  free(c->rets);
  free(c);
}

/* Each result where the caller looks for it? Bodies come from anyone, and may have ends of other kinds. */
static shoal_status check_rets(const struct function_call *c) {
  const struct function *f = c->of;
  for (int i = 0; i < c->n_rets; i++) {
    bool host = f->device->type->host || f->memory.host_rets >> MIN(i, 31) & 1 || !dtype_plain(f->types[f->n_args + i]);
    if (tensor_valid(&c->rets[i]) && c->rets[i].buffer->device != (host ? NULL : f->device))
      return INTERNAL("Result %d of function %s is in other memory than its caller's", i, f->name);
    if (tensor_valid(&c->rets[i]) && c->rets[i].dtype != f->types[f->n_args + i])
      return INTERNAL("Result %d of function %s is %s where its signature says %s", i, f->name,
                      dtype_tf_name(c->rets[i].dtype), dtype_tf_name(f->types[f->n_args + i]));
  }
  return NULL;
}

static void call_done(void *arg, shoal_status s) {
  struct function_call *c = arg;
  if (!s) s = check_rets(c);
  if (s)
    for (int i = 0; i < c->n_rets; i++) tensor_release(&c->rets[i]);
  c->done(c->arg, s, c->rets);
  call_free(c);
}

static shoal_status check_args(const struct function *f, const struct tensor *args, int n_args) {
  if (n_args != f->n_args)
    return INVALID("Expected %d arguments for function %s, but got %d", f->n_args, f->name, n_args);
  for (int i = 0; i < n_args; i++)
    if (args[i].dtype != f->types[i])
      return INVALID("Expects arg[%d] of %s to be %s but %s is provided", i, f->name, dtype_tf_name(f->types[i]),
                     dtype_tf_name(args[i].dtype));
  return NULL;
}

void function_call(struct function *f, struct step *caller, const struct tensor *args, int n_args, function_done done,
                   void *arg) {
  shoal_status s = check_args(f, args, n_args);
  if (!s && caller && caller->depth >= MAX_DEPTH)
    s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "Function %s is called %d levels deep; it seems to call itself for ever",
               f->name, caller->depth);
  struct function_version *version = NULL;
  if (!s) s = compile(f, args, &version);
  if (s) {
    done(arg, s, NULL);
    return;
  }
  struct function_call *c = mem_zalloc(1, sizeof *c);
  struct step *step = &c->run.step;
  if (caller) {
    *step = *caller;
    step->waits = false;
  } else {
    cancel_init(&c->own_cancel);
    c->has_own_cancel = true;
    *step = (struct step){.cancel = &c->own_cancel,
                          .step_resources = resource_mgr_new("function"),
                          .deadline = DEADLINE_NEVER,
                          .session = "",
                          .waits = true,
                          .late = &c->run.late};
  }
  c->args = mem_zalloc((size_t)n_args, sizeof *c->args);
  c->n_args = n_args;
  for (int i = 0; i < n_args; i++) tensor_ref(&c->args[i], &args[i]);
  c->rets = mem_zalloc((size_t)f->n_rets, sizeof *c->rets);
  c->n_rets = f->n_rets;
  step->args = c->args;
  step->n_args = n_args;
  step->rets = c->rets;
  step->n_rets = f->n_rets;
  step->depth = caller ? caller->depth + 1 : 1;
  c->of = f;
  c->done = done;
  c->arg = arg;
  if (version->set.n == 1) {
    plan_run(version->set.plans[0], step, call_done, c);
    return;
  }
  step->rendezvous = c->own_rendezvous = rendezvous_local_new();
  plan_set_start(&version->set, &c->run, call_done, c);
  join_part(&c->run.join, NULL);
}

struct waiting {
  struct latch ended;
  struct tensor *rets;
  int n_rets;
};

static void wake(void *arg, shoal_status s, struct tensor *rets) {
  struct waiting *w = arg;
  for (int i = 0; !s && i < w->n_rets; i++) tensor_move(&w->rets[i], &rets[i]);
  latch_done(&w->ended, s);
}

shoal_status function_call_sync(struct function *f, struct step *caller, const struct tensor *args, int n_args,
                                struct tensor *rets, int n_rets) {
  if (f->n_rets != n_rets)
    return INVALID("Function %s returns %d values, where %d are expected", f->name, f->n_rets, n_rets);
  struct waiting w = {.rets = rets, .n_rets = f->n_rets};
  latch_init(&w.ended, 1);
  function_call(f, caller, args, n_args, wake, &w);
  return latch_finish(&w.ended);
}

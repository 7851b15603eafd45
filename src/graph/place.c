/* Placement: groups by union-find, one pass to choose their devices, one for nodes that follow neighbours.
 *
 * A large cluster has thousands of devices, and a graph as many nodes for each: devices are found by their names and by
 * their tasks, and a request that names neither (which may mean any of them) is answered once for all groups that have
 * it. */
#include "graph/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "graph/place_why.h"
#include "base/mem.h"

struct placing {
  struct shoal_graph *g;
  const struct place_options *o;
  int *parent;                /* union-find by node id */
  struct device_spec *wanted; /* by group root */
  const char **given;         /* by group root: a device already assigned */
  int *device;                /* by group root: chosen, -1 before */
  struct device_spec own;
  struct strmap by_name;   /* a device's name -> its number + 1 */
  struct strmap by_task;   /* "JOB/TASK" -> the number + 1 of its first device */
  int *next_of_task;       /* by device: the next of its task; -1: none */
  struct strmap answered;  /* a request and its device types -> the number + 2 of the device that is best for it */
  VEC(const char *) types; /* of devices, each once: bits of a group's types are in this order */
  int *type_of;            /* by device: its type's number */
};

/* Names no task: false. */
static bool task_key(const struct device_spec *d, char *out, size_t size) {
  if (d->has_job && d->has_task) snprintf(out, size, "%s/%d", d->job, d->task);
  return d->has_job && d->has_task;
}

static void index_devices(struct placing *p) {
  p->next_of_task = mem_zalloc((size_t)p->o->n_devices, sizeof *p->next_of_task);
  p->type_of = mem_zalloc((size_t)p->o->n_devices, sizeof *p->type_of);
  for (int d = p->o->n_devices - 1; d >= 0; d--) { /* backwards: the first of equals is found */
    const struct place_device *dev = &p->o->devices[d];
    char key[192];
    strmap_put(&p->by_name, dev->name, (void *)(intptr_t)(d + 1));
    p->next_of_task[d] = -1;
    if (task_key(&dev->spec, key, sizeof key))
      p->next_of_task[d] = (int)(intptr_t)strmap_put(&p->by_task, key, (void *)(intptr_t)(d + 1)) - 1;
    size_t i = 0;
    while (i < p->types.n && strcmp(p->types.at[i], dev->spec.type)) i++;
    if (i == p->types.n) vec_push(&p->types, dev->spec.type);
    p->type_of[d] = (int)i;
  }
}

static int root_of(struct placing *p, int i) {
  while (p->parent[i] != i) i = p->parent[i] = p->parent[p->parent[i]];
  return i;
}

static shoal_status cannot(const struct placing *p, const struct shoal_node *n, const char *what) {
  struct text names = {0};
  enum { MOST_NAMED = 100 };
  for (int i = 0; i < MIN(p->o->n_devices, MOST_NAMED); i++)
    text_addf(&names, "%s%s", i ? ", " : " ", p->o->devices[i].name);
  if (p->o->n_devices > MOST_NAMED) text_addf(&names, " and %d more", p->o->n_devices - MOST_NAMED);
  shoal_status s = INVALID(
      "Cannot assign a device for operation %s: {{node %s}} %s but available devices are [%s ]. "
      "Make sure the device specification refers to a valid device.",
      n->name, n->name, what, text_cstr(&names));
  text_release(&names);
  return s;
}

/* Two groups become one; conflicting requests are an error unless placement is soft, or b follows a (it takes a's
 * variable: then what b asked for gives way). */
static shoal_status join(struct placing *p, const struct shoal_node *a, const struct shoal_node *b, bool follows) {
  int x = root_of(p, a->id), y = root_of(p, b->id);
  if (x == y) return NULL;
  struct device_spec merged = p->wanted[x];
  if (!device_spec_fill(&merged, &p->wanted[y])) {
    /* Jobs and tasks must agree; the rest may give way. */
    struct device_spec task = p->wanted[y];
    task.has_type = task.has_id = false;
    merged = p->wanted[x];
    if (!follows && (!p->o->allow_soft_placement || !device_spec_fill(&merged, &task))) {
      char one[192], two[192];
      device_spec_print(&p->wanted[x], one, sizeof one);
      device_spec_print(&p->wanted[y], two, sizeof two);
      return INVALID(
          "Cannot colocate nodes {{colocation_node %s}} and {{colocation_node %s}} because no device type "
          "supports both of those nodes and the other nodes colocated with them: '%s' and '%s'",
          a->name, b->name, one, two);
    }
  }
  p->parent[y] = x;
  p->wanted[x] = merged;
  if (!p->given[x]) p->given[x] = p->given[y];
  return NULL;
}

/* TensorFlow's placer looks into the functions that these two call. */
static shoal_status check_called(const struct placing *p, const struct shoal_node *n) {
  if (!op_is(n->op, "PartitionedCall") && !op_is(n->op, "StatefulPartitionedCall")) return NULL;
  const struct attr *f = node_attr(n, "f");
  if (!f || f->kind != ATTR_FUNC || strmap_has(&p->g->functions, f->func->name)) return NULL;
  return INVALID("Failed to find function \"%s\" in function library", f->func->name);
}

static shoal_status request(struct placing *p, const struct shoal_node *n) {
  TRY(check_called(p, n));
  TRY(device_spec_parse(n->device, &p->wanted[n->id]));
  if (n->assigned) {
    p->given[n->id] = n->assigned;
    TRY(device_spec_parse(n->assigned, &p->wanted[n->id]));
  }
  return NULL;
}

static bool calls_functions(const struct op *op) {
  for (int i = 0; i < op->n_attrs; i++)
    if (op->attrs[i].kind == ATTR_FUNC || op->attrs[i].of == ATTR_FUNC) return true;
  return false;
}

/* A node that calls functions hands handles on to their bodies, which are placed by them: it need not be where they
 * are, if that is another device of its task. */
static bool may_be_apart(struct placing *p, const struct shoal_node *handle, const struct shoal_node *n) {
  struct device_spec a = p->wanted[root_of(p, handle->id)], b = p->wanted[root_of(p, n->id)], both = a;
  if (!calls_functions(n->op) || device_spec_fill(&both, &b)) return false;
  a.has_type = a.has_id = b.has_type = b.has_id = false;
  return device_spec_fill(&a, &b);
}

static shoal_status group(struct placing *p, struct shoal_node *n) {
  const struct attr *c = node_attr(n, "_class");
  for (size_t i = 0; c && c->kind == ATTR_LIST && i < c->list.n; i++) {
    const struct attr *s = &c->list.at[i];
    if (s->kind != ATTR_STRING || !str_starts(s->s.data, "loc:@")) continue;
    struct shoal_node *with = graph_find(p->g, s->s.data + 5);
    /* The other node may have been pruned; then its name alone ties nothing. */
    if (with) TRY(join(p, with, n, false));
  }
  for (int i = 0; i < n->n_in; i++) {
    shoal_out from = n->in[i];
    if (!from.node || !(dtype_is_ref(n->in_types[i]) || n->in_types[i] == SHOAL_RESOURCE)) continue;
    if (!may_be_apart(p, from.node, n)) TRY(join(p, from.node, n, true));
  }
  return NULL;
}

static bool is_own(const struct placing *p, const struct place_device *d) {
  struct device_spec task = d->spec;
  task.has_type = task.has_id = false;
  return device_spec_matches(&p->own, &task);
}

/* Is one device better for a group than another: by its type, then by its task? */
static bool beats(const struct placing *p, const struct place_device *a, const struct place_device *b) {
  int x = p->o->priority ? p->o->priority(a->spec.type) : 0, y = p->o->priority ? p->o->priority(b->spec.type) : 0;
  return x != y ? x > y : is_own(p, a) && !is_own(p, b);
}

static bool supports(const struct placing *p, const struct shoal_node *n, const char *type) {
  return !p->o->has_kernel || p->o->has_kernel(n, type);
}

enum { MAX_TYPES = 31 }; /* all from there on are one bit */
static const unsigned any_type = UINT32_MAX;

/* The device types that all members of a group have kernels for, as bits; and those if they are asked for. */
struct group_types {
  unsigned good, asked;
};

static void find_types(struct placing *p, struct group_types *types) {
  for (size_t i = 0; i < p->g->nodes.n; i++) types[i] = (struct group_types){any_type, any_type};
  for (size_t i = 0; i < p->g->nodes.n; i++) {
    struct shoal_node *n = p->g->nodes.at[i];
    if (!n) continue;
    struct group_types have = {0}, *of = &types[root_of(p, (int)i)];
    for (size_t k = 0; k < p->types.n; k++) {
      unsigned bit = 1u << MIN(k, MAX_TYPES);
      if (supports(p, n, p->types.at[k])) have.good |= bit;
      else if (p->o->has_if_asked && p->o->has_if_asked(n, p->types.at[k])) have.asked |= bit;
    }
    of->good &= have.good;
    of->asked &= have.good | have.asked;
  }
}

/* The better of device d, when it will do, and the one found before. */
static int better(const struct placing *p, const struct device_spec *wanted, unsigned types, int found, int d) {
  const struct place_device *dev = &p->o->devices[d];
  if (!device_spec_matches(wanted, &dev->spec)) return found;
  if (!(types >> MIN(p->type_of[d], MAX_TYPES) & 1)) return found;
  return found < 0 || beats(p, dev, &p->o->devices[found]) ? d : found;
}

static int best(struct placing *p, const struct device_spec *wanted, unsigned types) {
  char key[224];
  int found = -1;
  if (task_key(wanted, key, sizeof key)) {
    int d = (int)(intptr_t)strmap_get(&p->by_task, key) - 1;
    for (; d >= 0; d = p->next_of_task[d]) found = better(p, wanted, types, found, d);
    return found;
  }
  size_t n = (size_t)snprintf(key, sizeof key, "%x", types);
  device_spec_print(wanted, key + n, sizeof key - n);
  intptr_t known = (intptr_t)strmap_get(&p->answered, key);
  if (known) return (int)known - 2;
  for (int d = 0; d < p->o->n_devices; d++) found = better(p, wanted, types, found, d);
  strmap_put(&p->answered, key, (void *)(intptr_t)(found + 2));
  return found;
}

/* The member of a group that has no kernel for a type of device, whatever is asked for. */
static const struct shoal_node *without_kernel(struct placing *p, int root, const char *type) {
  for (size_t i = 0; i < p->g->nodes.n; i++) {
    const struct shoal_node *n = p->g->nodes.at[i];
    if (n && root_of(p, (int)i) == root && !supports(p, n, type) &&
        !(p->o->has_if_asked && p->o->has_if_asked(n, type)))
      return n;
  }
  return NULL;
}

static shoal_status choose(struct placing *p, const struct shoal_node *n, int root, struct group_types types) {
  struct device_spec wanted = p->wanted[root];
  if (p->given[root]) {
    p->device[root] = (int)(intptr_t)strmap_get(&p->by_name, p->given[root]) - 1;
    if (p->device[root] >= 0) return NULL;
  }
  TRY(effort_spend(p->g->effort, 1 + p->o->n_devices / 64));
  int d = best(p, &wanted, types.good);
  if (d < 0 && p->o->allow_soft_placement) { /* another device of the same task */
    wanted.has_type = wanted.has_id = false;
    d = best(p, &wanted, types.good);
  }
  if (d < 0 && wanted.has_type) d = best(p, &wanted, types.asked);
  if (d < 0) { /* an op without any kernel: let the task that gets it say so */
    if (!types.good) d = best(p, &wanted, any_type);
    else {
      struct device_spec any = wanted;
      any.has_type = any.has_id = false;
      if (best(p, &any, any_type) >= 0 && best(p, &wanted, any_type) >= 0) {
        const struct shoal_node *lacks = without_kernel(p, root, wanted.type);
        if (lacks) n = lacks;
        char asked[192];
        device_spec_print(&wanted, asked, sizeof asked);
        return INVALID(
            "Could not satisfy explicit device specification '%s' because no supported kernel for %s devices "
            "is available for {{node %s}} (op %s).",
            asked, wanted.type, n->name, n->op->name);
      }
    }
  }
  if (d < 0) {
    char asked[256] = "was explicitly assigned to ";
    size_t k = strlen(asked);
    device_spec_print(&p->wanted[root], asked + k, sizeof asked - k);
    return cannot(p, n, asked);
  }
  p->device[root] = d;
  return NULL;
}

static bool held(const struct placing *p, const struct shoal_node *n) {
  return *n->device || n->assigned || node_attr(n, "_class");
}

/* Sources without a request follow their consumers when these share a device; Shape and the like their input. */
static void follow(struct placing *p) {
  struct consumers users;
  consumers_init(&users, p->g);
  for (size_t i = 0; i < p->g->nodes.n; i++) {
    struct shoal_node *n = p->g->nodes.at[i];
    if (!n || held(p, n)) continue;
    if (n->n_in == 0 && n->n_out == 1 && !dtype_is_ref(n->out_types[0]) && n->out_types[0] != SHOAL_RESOURCE &&
        !(n->op->flags & OP_STATEFUL)) {
      int to = -1;
      bool same = true;
      FOR_CONSUMERS (c, &users, n) {
        if (c->input < 0) continue;
        int theirs = p->device[root_of(p, c->node->id)];
        if (to >= 0 && theirs != to) same = false;
        to = theirs;
      }
      if (to >= 0 && same && supports(p, n, p->o->devices[to].spec.type)) p->device[root_of(p, n->id)] = to;
    } else if (n->n_in == 1 && n->in[0].node &&
               (op_is(n->op, "Shape") || op_is(n->op, "Size") || op_is(n->op, "Rank"))) {
      int to = p->device[root_of(p, n->in[0].node->id)];
      if (supports(p, n, p->o->devices[to].spec.type)) p->device[root_of(p, n->id)] = to;
    }
  }
  consumers_release(&users);
}

static shoal_status place(struct placing *p) {
  struct shoal_graph *g = p->g;
  if (!p->o->n_devices) return INVALID("No devices are registered");
  if (p->o->own_task) TRY(device_spec_parse(p->o->own_task, &p->own));
  for (size_t i = 0; i < g->nodes.n; i++) {
    p->parent[i] = (int)i;
    p->device[i] = -1;
    if (g->nodes.at[i]) TRY(request(p, g->nodes.at[i]));
  }
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i]) TRY(group(p, g->nodes.at[i]));
  struct group_types *types = mem_alloc((g->nodes.n + 1) * sizeof *types);
  find_types(p, types);
  shoal_status s = NULL;
  for (size_t i = 0; i < g->nodes.n && !s; i++) {
    int root = g->nodes.at[i] ? root_of(p, (int)i) : -1;
    if (root >= 0 && p->device[root] < 0) s = choose(p, g->nodes.at[i], root, types[root]);
  }
  free(types);
  TRY(s);
  follow(p);
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n || n->assigned) continue;
    n->assigned = mem_strdup(p->o->devices[p->device[root_of(p, (int)i)]].name);
    if (p->o->log) log_write(LOG_INFO, __FILE__, __LINE__, "%s: (%s): %s", n->name, n->op->name, n->assigned);
  }
  if (p->o->log) place_tell_why(g, p->o);
  return NULL;
}

shoal_status graph_place(struct shoal_graph *g, const struct place_options *o) {
  struct placing p = {.g = g, .o = o};
  p.parent = mem_zalloc(g->nodes.n, sizeof *p.parent);
  p.wanted = mem_zalloc(g->nodes.n, sizeof *p.wanted);
  p.given = mem_zalloc(g->nodes.n, sizeof *p.given);
  p.device = mem_zalloc(g->nodes.n, sizeof *p.device);
  index_devices(&p);
  shoal_status s = place(&p);
  strmap_release(&p.by_name);
  strmap_release(&p.by_task);
  strmap_release(&p.answered);
  vec_release(&p.types);
  free(p.next_of_task);
  free(p.type_of);
  free(p.parent);
  free(p.wanted);
  free(p.given);
  free(p.device);
  return s;
}

/* Placement: groups by union-find, one pass to choose their devices, one for nodes that follow neighbours. */
#include "graph/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

struct placing {
  struct graph *g;
  const struct place_options *o;
  int *parent;                /* union-find by node id */
  struct device_spec *wanted; /* by group root */
  const char **given;         /* by group root: a device already assigned */
  int *device;                /* by group root: chosen, -1 before */
  struct device_spec own;
};

static int root_of(struct placing *p, int i) {
  while (p->parent[i] != i) i = p->parent[i] = p->parent[p->parent[i]];
  return i;
}

static shoal_status cannot(const struct placing *p, const struct node *n, const char *what) {
  struct text names = {0};
  for (int i = 0; i < p->o->n_devices; i++) text_addf(&names, "%s%s", i ? ", " : " ", p->o->devices[i].name);
  shoal_status s = INVALID(
      "Cannot assign a device for operation %s: {{node %s}} %s but available devices are [%s ]. "
      "Make sure the device specification refers to a valid device.",
      n->name, n->name, what, text_cstr(&names));
  text_release(&names);
  return s;
}

/* Two groups become one; conflicting requests are an error unless placement is soft, or b follows a (it takes a's
 * variable: then what b asked for gives way). */
static shoal_status join(struct placing *p, const struct node *a, const struct node *b, bool follows) {
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
static shoal_status check_called(const struct placing *p, const struct node *n) {
  if (!op_is(n->op, "PartitionedCall") && !op_is(n->op, "StatefulPartitionedCall")) return NULL;
  const struct attr *f = node_attr(n, "f");
  if (!f || f->kind != ATTR_FUNC || strmap_has(&p->g->functions, f->func->name)) return NULL;
  return INVALID("Failed to find function \"%s\" in function library", f->func->name);
}

static shoal_status request(struct placing *p, const struct node *n) {
  TRY(check_called(p, n));
  TRY(device_spec_parse(n->device, &p->wanted[n->id]));
  if (n->assigned) {
    p->given[n->id] = n->assigned;
    TRY(device_spec_parse(n->assigned, &p->wanted[n->id]));
  }
  return NULL;
}

static shoal_status group(struct placing *p, struct node *n) {
  const struct attr *c = node_attr(n, "_class");
  for (size_t i = 0; c && c->kind == ATTR_LIST && i < c->list.n; i++) {
    const struct attr *s = &c->list.at[i];
    if (s->kind != ATTR_STRING || !str_starts(s->s.data, "loc:@")) continue;
    struct node *with = graph_find(p->g, s->s.data + 5);
    /* The other node may have been pruned; then its name alone ties nothing. */
    if (with) TRY(join(p, with, n, false));
  }
  for (int i = 0; i < n->n_in; i++) {
    struct out from = n->in[i];
    if (from.node && (dtype_is_ref(n->in_types[i]) || n->in_types[i] == SHOAL_RESOURCE))
      TRY(join(p, from.node, n, true));
  }
  return NULL;
}

/* How good is a device for a group? Lower is better. */
static int rank(const struct placing *p, const struct place_device *d) {
  struct device_spec task = d->spec;
  task.has_type = task.has_id = false;
  return (strcmp(d->spec.type, "CPU") == 0 ? 2 : 0) + (device_spec_matches(&p->own, &task) ? 0 : 1);
}

static bool supports(const struct placing *p, const struct node *n, const char *type) {
  return !p->o->has_kernel || p->o->has_kernel(n->op, type);
}

/* For each group the device types all members have kernels for: bit 0 CPU, bit 1 others. */
static void find_types(struct placing *p, unsigned *types) {
  for (size_t i = 0; i < p->g->nodes.n; i++) types[i] = 3;
  for (size_t i = 0; i < p->g->nodes.n; i++) {
    struct node *n = p->g->nodes.at[i];
    if (!n) continue;
    unsigned have = 0;
    if (supports(p, n, "CPU")) have |= 1;
    for (int d = 0; d < p->o->n_devices && !(have & 2); d++)
      if (strcmp(p->o->devices[d].spec.type, "CPU") && supports(p, n, p->o->devices[d].spec.type)) have |= 2;
    types[root_of(p, (int)i)] &= have;
  }
}

static int best(const struct placing *p, const struct device_spec *wanted, unsigned types) {
  int found = -1;
  for (int d = 0; d < p->o->n_devices; d++) {
    const struct place_device *dev = &p->o->devices[d];
    if (!device_spec_matches(wanted, &dev->spec)) continue;
    if (!(types & (strcmp(dev->spec.type, "CPU") ? 2u : 1u))) continue;
    if (found < 0 || rank(p, dev) < rank(p, &p->o->devices[found])) found = d;
  }
  return found;
}

static shoal_status choose(struct placing *p, const struct node *n, int root, unsigned types) {
  struct device_spec wanted = p->wanted[root];
  if (p->given[root]) {
    for (int d = 0; d < p->o->n_devices; d++)
      if (!strcmp(p->o->devices[d].name, p->given[root])) p->device[root] = d;
    if (p->device[root] >= 0) return NULL;
  }
  int d = best(p, &wanted, types);
  if (d < 0 && p->o->allow_soft_placement) { /* another device of the same task */
    wanted.has_type = wanted.has_id = false;
    d = best(p, &wanted, types);
  }
  if (d < 0) { /* an op without any kernel: let the task that gets it say so */
    if (!types) d = best(p, &wanted, 3);
    else if (types == 2 || types == 1) {
      struct device_spec any = wanted;
      any.has_type = any.has_id = false;
      if (best(p, &any, 3) >= 0 && best(p, &wanted, 3) >= 0) {
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

static bool held(const struct placing *p, const struct node *n) {
  return *n->device || n->assigned || node_attr(n, "_class");
}

/* Sources without a request follow their consumers when these share a device; Shape and the like their input. */
static void follow(struct placing *p) {
  struct consumers users;
  consumers_init(&users, p->g);
  for (size_t i = 0; i < p->g->nodes.n; i++) {
    struct node *n = p->g->nodes.at[i];
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
  struct graph *g = p->g;
  if (!p->o->n_devices) return INVALID("No devices are registered");
  if (p->o->own_task) TRY(device_spec_parse(p->o->own_task, &p->own));
  for (size_t i = 0; i < g->nodes.n; i++) {
    p->parent[i] = (int)i;
    p->device[i] = -1;
    if (g->nodes.at[i]) TRY(request(p, g->nodes.at[i]));
  }
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i]) TRY(group(p, g->nodes.at[i]));
  unsigned *types = mem_alloc((g->nodes.n + 1) * sizeof *types);
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
    struct node *n = g->nodes.at[i];
    if (!n || n->assigned) continue;
    n->assigned = mem_strdup(p->o->devices[p->device[root_of(p, (int)i)]].name);
    if (p->o->log) log_write(LOG_INFO, __FILE__, __LINE__, "%s: (%s): %s", n->name, n->op->name, n->assigned);
  }
  return NULL;
}

shoal_status graph_place(struct graph *g, const struct place_options *o) {
  struct placing p = {.g = g, .o = o};
  p.parent = mem_zalloc(g->nodes.n, sizeof *p.parent);
  p.wanted = mem_zalloc(g->nodes.n, sizeof *p.wanted);
  p.given = mem_zalloc(g->nodes.n, sizeof *p.given);
  p.device = mem_zalloc(g->nodes.n, sizeof *p.device);
  shoal_status s = place(&p);
  free(p.parent);
  free(p.wanted);
  free(p.given);
  free(p.device);
  return s;
}

/* What a graph's collectives say before they run. Groups and instances are attributes of the first generation of ops,
 * and inputs of the second, constants as a rule; what is not constant, or inside a function, may be anybody's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/device_name.h"
#include "base/vec.h"
#include "cluster/collectives.h"
#include "graph/function.h"
#include "graph/graph.h"

static bool is_collective(const char *op, size_t n) {
  return n > 10 && !memcmp(op, "Collective", 10) && !(n >= 21 && !memcmp(op, "CollectiveAssignGroup", 21));
}

/* An attribute, or a constant input. */
static bool read_number(const struct shoal_node *n, const char *name, int64_t *out) {
  shoal_status s = NULL;
  if (op_attr_find(n->op, name)) {
    s = node_get_int(n, name, out);
    shoal_status_free(s);
    return !s;
  }
  for (int i = 0; i < n->op->n_in && i < n->n_in; i++) {
    if (strcmp(n->op->in[i].name, name)) continue; /* the arguments before it are single tensors */
    const struct shoal_node *from = n->in[i].node;
    const struct tensor *t;
    if (!from || !op_is(from->op, "Const")) return false;
    s = node_get_tensor(from, "value", &t);
    bool fits = !s && t->dtype == SHOAL_INT32 && t->n == 1;
    if (fits) *out = T_DATA(t, const int32_t)[0];
    shoal_status_free(s);
    return fits;
  }
  return false;
}

bool collective_keys(const struct shoal_node *n, int64_t *group, int64_t *instance) {
  return is_collective(n->op->name, strlen(n->op->name)) && read_number(n, "group_key", group) &&
         read_number(n, "instance_key", instance);
}

struct sighting {
  int64_t group, size;
  const char *device;
};

struct sights {
  VEC(struct sighting) members;
  VEC(int64_t) instances; /* of the first generation */
  bool any, unclear, branches;
};

static int by_group(const void *a, const void *b) {
  const struct sighting *x = a, *y = b;
  if (x->group != y->group) return x->group < y->group ? -1 : 1;
  return strcmp(x->device, y->device);
}

static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void see_node(struct sights *t, const struct shoal_node *n) {
  struct sighting m = {.device = n->assigned ? n->assigned : n->device};
  int64_t instance;
  t->any = true;
  if (op_attr_find(n->op, "instance_key") && read_number(n, "instance_key", &instance))
    vec_push(&t->instances, instance);
  if (read_number(n, "group_key", &m.group) && read_number(n, "group_size", &m.size)) vec_push(&t->members, m);
  else t->unclear = true;
}

/* ---- functions that the graph calls ---- */

struct calls {
  const struct shoal_graph *graph;
  struct strmap seen;
  VEC(const struct function_def *) todo;
};

static void call(struct calls *c, const char *name, size_t n) {
  const struct function_def *f = strmap_getn(&c->graph->functions, name, n);
  if (!f || strmap_put(&c->seen, f->name, c)) return;
  vec_push(&c->todo, f);
}

static void call_attrs(struct calls *c, const struct named_attr *attrs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const struct attr *a = &attrs[i].value;
    if (a->kind == ATTR_FUNC) call(c, a->func->name, strlen(a->func->name));
    for (size_t k = 0; a->kind == ATTR_LIST && a->of == ATTR_FUNC && k < a->list.n; k++)
      call(c, a->list.at[k].func->name, strlen(a->list.at[k].func->name));
  }
}

static bool calls_collectives(const struct shoal_graph *g) {
  struct calls c = {.graph = g};
  for (size_t i = 0; g->functions.n && i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    call(&c, n->op->name, strlen(n->op->name));
    call_attrs(&c, n->attrs, (size_t)n->n_attrs);
  }
  bool found = false;
  while (c.todo.n && !found) {
    const struct function_def *f = vec_pop(&c.todo);
    for (int k = 0; k < f->n_nodes && !found; k++) {
      const struct node_def *d = &f->nodes[k];
      found = is_collective(d->op.at, d->op.n);
      call(&c, d->op.at, d->op.n);
      call_attrs(&c, d->attrs.at, d->attrs.n);
    }
  }
  strmap_release(&c.seen);
  vec_release(&c.todo);
  return found;
}

/* Can the group that the member is of ever be whole? */
static shoal_status check_size(const struct sighting *m, const struct device_census *there) {
  struct device_spec d;
  shoal_status bad = there ? device_spec_parse(m->device, &d) : NULL;
  bool known = there && !bad && d.has_type;
  shoal_status_free(bad);
  int n = known ? there->count(there, d.type) : 0;
  if (!known || m->size <= n) return NULL;
  return INVALID("Device %s is joining a group with size %" PRId64 " (group_key=%" PRId64
                 "), which can never be whole: its cluster has %d devices of type %s",
                 m->device, m->size, m->group, n, d.type);
}

bool collective_may_be_dead(const struct shoal_node *n) {
  static const char *const ops[] = {"Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "_XlaMerge"};
  for (size_t i = 0; i < COUNT_OF(ops); i++)
    if (op_is(n->op, ops[i])) return true;
  return false;
}

/* Could the two be in one group? More members than its size is an error, as it would be when they run. */
static shoal_status check_member(const struct sighting *m, const struct sighting *first, int64_t devices) {
  if (m->size != first->size)
    return INTERNAL("Device %s is joining a group with size %" PRId64 ", but that group has size %" PRId64
                    " (group_key=%" PRId64 ")",
                    m->device, m->size, first->size, m->group);
  if (devices > m->size)
    return INTERNAL("Device %s is joining a group that is already full (group_key=%" PRId64 ")", m->device, m->group);
  return NULL;
}

/* Is each group as large as the devices that are in it here? Of graphs with branches that is all that is asked: those
 * that are not taken may have what they like. *wrong: what does not fit; the first. */
static bool count_members(struct sights *t, const struct device_census *there, shoal_status *wrong) {
  bool all_here = !t->unclear;
  if (t->members.n) qsort(t->members.at, t->members.n, sizeof *t->members.at, by_group);
  for (size_t i = 0, end; i < t->members.n; i = end) {
    const struct sighting *first = &t->members.at[i];
    int64_t devices = 1, largest = first->size;
    if (!t->branches && !*wrong) *wrong = check_size(first, there);
    for (end = i + 1; end < t->members.n && t->members.at[end].group == first->group; end++) {
      const struct sighting *m = &t->members.at[end];
      devices += strcmp(m->device, m[-1].device) != 0;
      largest = MAX(largest, m->size);
      if (!t->branches && !*wrong) *wrong = check_member(m, first, devices);
    }
    all_here &= devices == largest || (*wrong && devices > largest);
  }
  return all_here;
}

/* As TensorFlow's masters make it. */
static int64_t hash_instances(struct sights *t) {
  uint64_t hash = 0x8774aa605c729c72u;
  if (t->instances.n) qsort(t->instances.at, t->instances.n, sizeof *t->instances.at, by_number);
  for (size_t i = 0; i < t->instances.n; i++) {
    if (i && t->instances.at[i] == t->instances.at[i - 1]) continue;
    uint64_t a = (uint64_t)t->instances.at[i];
    hash = a ^ (hash + 0x9e3779b97f4a7800u + (a << 10) + (a >> 4));
  }
  return (int64_t)hash;
}

struct collective_survey collective_survey(const struct shoal_graph *g, const struct device_census *there) {
  struct sights t = {0};
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (n && is_collective(n->op->name, strlen(n->op->name))) see_node(&t, n);
    t.branches |= n && collective_may_be_dead(n);
  }
  if (calls_collectives(g)) t.any = t.unclear = true;
  struct collective_survey found = {.any = t.any, .whole = true};
  if (t.any) {
    found.key = hash_instances(&t);
    found.whole = count_members(&t, there, &found.wrong);
  }
  vec_release(&t.members);
  vec_release(&t.instances);
  return found;
}

/* Nothing passes through the host's memory, and nobody waits: all that is done here is queued.
 *
 * Devices on one card (virtual ones) read each other's memory where it is: a reduction is one kernel, which reads what
 * each has once and writes all results, in place of what was brought where nobody else needs that. From other cards
 * values are copied first (from_peer), and each card does the same sum: with the same bits, since all add in the order
 * of pairs (schedule.h). Where a session asks for it (collective_nccl), sums of groups with one member a card are the
 * type's library's (merge_across), which copies less, and adds in an order of its own. */
#include "collective/device_exchange.h"

#include "base/block.h"

static const struct device_ops *ops_of(const struct collective_member *m) { return m->device->type->ops; }

static bool is_near(const struct collective_member *a, const struct collective_member *b) {
  return a->device->card == b->device->card;
}

/* n elements of a value, from one on: no reference of its own. */
static struct tensor part(const struct tensor *t, int64_t from, int64_t n) {
  struct tensor p = *t;
  p.data = (char *)t->data + (size_t)from * dtype_size((shoal_dtype)t->dtype);
  p.n = p.dims[0] = n;
  p.rank = 1;
  return p;
}

/* ---- sums ---- */

struct exchange_sum {
  struct collective_member *const *members;
  int n;
  int64_t from, count; /* of each input: these elements are merged */
  struct tensor views[MOST_MERGED], brought[MOST_MERGED];
  const struct tensor *in[MOST_MERGED], *out[MOST_MERGED];
};

/* What all have, on the card of member i. */
static shoal_status bring(struct exchange_sum *g, int i) {
  const struct collective_member *at = g->members[i];
  for (int k = 0; k < g->n; k++) {
    const struct collective_member *m = g->members[k];
    g->views[k] = part(m->in, g->from, g->count);
    g->in[k] = &g->views[k];
    if (is_near(m, at)) continue;
    TRY(ops_of(at)->from_peer(at->device, at->name, &g->views[k], &g->brought[k]));
    g->in[k] = &g->brought[k];
  }
  return NULL;
}

static shoal_status merge(struct exchange_sum *g, int i, int n_out) {
  const struct collective_member *at = g->members[i];
  const struct collective_arithmetic *a = at->arithmetic;
  struct device_merging m = {
      .merge = a->op, .mean_of = a->final ? g->n : 0, .n_in = g->n, .n_out = n_out, .in = g->in, .out = g->out};
  return ops_of(at)->merge(at->device, &m);
}

static void let_go(struct exchange_sum *g) {
  for (int k = 0; k < g->n; k++) tensor_release(&g->brought[k]);
}

/* The sum of some elements becomes results[i], and the others' on its card if all get the same. */
static shoal_status merge_at(struct collective_member *const *members, int n, int i, int64_t from, bool all,
                             struct tensor *results) {
  struct exchange_sum *g = block_zalloc(sizeof *g);
  int n_out = 0;
  *g = (struct exchange_sum){.members = members, .n = n, .from = from, .count = results[i].n};
  shoal_status s = g->count ? bring(g, i) : NULL;
  for (int k = 0; k < n; k++)
    if (k == i || (all && is_near(members[k], members[i]))) g->out[n_out++] = &results[k];
  if (!s && g->count) s = merge(g, i, n_out);
  let_go(g);
  block_free(g);
  return s;
}

/* Is it the first of its card? */
static bool leads(struct collective_member *const *members, int i) {
  for (int k = 0; k < i; k++)
    if (is_near(members[k], members[i])) return false;
  return true;
}

/* Where others copy what is brought, nothing may be put in its place. */
static shoal_status make(struct collective_member *m, bool near, struct tensor *out) {
  if (near || m->kind != COLLECTIVE_REDUCE) return m->make(m, out);
  return device_tensor_new(m->device, m->name, m->dtype, &m->shape, out);
}

static shoal_status make_all(struct collective_member *const *members, int n, struct tensor *results) {
  bool near = true;
  for (int i = 1; i < n; i++) near &= is_near(members[i], members[0]);
  for (int i = 0; i < n; i++) TRY(make(members[i], near, &results[i]));
  return NULL;
}

static void release_all(struct tensor *results, int n) {
  for (int i = 0; i < n; i++) tensor_release(&results[i]);
}

static bool is_apart(struct collective_member *const *members, int n) {
  bool apart = members[0]->device->across && ops_of(members[0])->merge_across;
  for (int i = 1; i < n; i++) apart &= leads(members, i);
  return apart;
}

/* By the type's library, each in place of what it brings; UNIMPLEMENTED: it cannot. */
static shoal_status reduce_across(struct collective_member *const *members, int n, struct tensor *results) {
  struct device *devices[MOST_MERGED];
  const struct tensor *in[MOST_MERGED], *out[MOST_MERGED];
  for (int i = 0; i < n; i++) {
    TRY(members[i]->make(members[i], &results[i]));
    devices[i] = members[i]->device;
    in[i] = members[i]->in;
    out[i] = &results[i];
  }
  const struct collective_arithmetic *a = members[0]->arithmetic;
  struct device_merging m = {.merge = a->op, .mean_of = a->final ? n : 0, .n_in = n, .n_out = n, .in = in, .out = out};
  return ops_of(members[0])->merge_across(devices, &m);
}

static shoal_status reduce(struct collective_member *const *members, int n, struct tensor *results) {
  if (is_apart(members, n)) {
    shoal_status s = reduce_across(members, n, results);
    if (shoal_status_code(s) != SHOAL_UNIMPLEMENTED) return s;
    shoal_status_free(s);
    release_all(results, n);
  }
  TRY(make_all(members, n, results));
  for (int i = 0; i < n; i++)
    if (leads(members, i)) TRY(merge_at(members, n, i, 0, true, results));
  return NULL;
}

static shoal_status reduce_scatter(struct collective_member *const *members, int n, struct tensor *results) {
  TRY(make_all(members, n, results));
  for (int i = 0; i < n; i++) TRY(merge_at(members, n, i, i * results[i].n, false, results));
  return NULL;
}

/* ---- copies ---- */

/* Elements of what member k brings, to a place of member i's result. */
static shoal_status place(struct collective_member *const *members, int i, int k, int64_t from, int64_t count,
                          const struct tensor *to, int64_t at) {
  const struct collective_member *m = members[i];
  struct tensor view = part(members[k]->in, from, count), brought = tensor_none();
  if (!count) return NULL;
  if (k != i) TRY(ops_of(m)->from_peer(m->device, m->name, &view, &brought));
  ops_of(m)->copy(m->device, k == i ? &view : &brought, to, (size_t)at * dtype_size(m->dtype));
  tensor_release(&brought);
  return NULL;
}

static shoal_status gather(struct collective_member *const *members, int n, struct tensor *results) {
  for (int i = 0; i < n; i++) {
    TRY(members[i]->make(members[i], &results[i]));
    for (int64_t k = 0, at = 0; k < n; at += members[k++]->in->n)
      TRY(place(members, i, (int)k, 0, members[k]->in->n, &results[i], at));
  }
  return NULL;
}

static shoal_status all_to_all(struct collective_member *const *members, int n, struct tensor *results) {
  for (int i = 0; i < n; i++) {
    TRY(members[i]->make(members[i], &results[i]));
    int64_t each = results[i].n / n;
    for (int k = 0; k < n; k++) TRY(place(members, i, k, i * each, each, &results[i], k * each));
  }
  return NULL;
}

static shoal_status broadcast(struct collective_member *const *members, int n, struct tensor *results) {
  int source = 0;
  while (!members[source]->is_source) source++;
  const struct tensor *value = members[source]->in;
  tensor_ref(&results[source], value);
  for (int i = 0; i < n; i++)
    if (i != source) TRY(ops_of(members[i])->from_peer(members[i]->device, members[i]->name, value, &results[i]));
  return NULL;
}

static shoal_status run(struct collective_member *const *members, int n, struct tensor *results) {
  switch (members[0]->kind) {
    case COLLECTIVE_REDUCE: return reduce(members, n, results);
    case COLLECTIVE_REDUCE_SCATTER: return reduce_scatter(members, n, results);
    case COLLECTIVE_GATHER: return gather(members, n, results);
    case COLLECTIVE_ALL_TO_ALL: return all_to_all(members, n, results);
    default: return broadcast(members, n, results);
  }
}

shoal_status device_exchange_run(struct collective_member *const *members, int n, struct tensor *results) {
  shoal_status s = NULL;
  if (n > MOST_MERGED) s = UNIMPLEMENTED("a group of %d devices of one task: %d is the most", n, MOST_MERGED);
  if (!s) s = run(members, n, results);
  if (s) release_all(results, n);
  return s;
}

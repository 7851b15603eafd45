/* From a signature to registered partitions: lower and place the whole graph (once for each extension), prune it to the
 * signature, cut it by task, register each part with its worker. The result is kept for the session's life. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/latch.h"
#include "cluster/master.h"
#include "graph/import.h"
#include "graph/lower.h"
#include "graph/partition.h"
#include "graph/rewrite.h"

void compiled_unref(struct compiled *c) {
  if (!c || atomic_fetch_sub(&c->refs, 1) != 1) return;
  for (size_t i = 0; i < c->feeds.n; i++) free(c->feeds.at[i]);
  for (size_t i = 0; i < c->fetches.n; i++) free(c->fetches.at[i]);
  vec_release(&c->feeds);
  vec_release(&c->fetches);
  vec_release(&c->parts);
  text_release(&c->partition_graphs);
  if (c->pruned) graph_free(c->pruned);
  free(c);
}

static int find_device(const struct master_session *s, const char *name) {
  for (size_t i = 0; i < s->devices.n; i++)
    if (!strcmp(s->devices.at[i].name, name)) return (int)i;
  return -1;
}

static int place_of(void *arg, const char *device) {
  struct master_session *s = arg;
  int i = find_device(s, device);
  return i < 0 ? -1 : s->devices.at[i].worker;
}

static uint64_t incarnation_of(void *arg, const char *device) {
  struct master_session *s = arg;
  int i = find_device(s, device);
  return i < 0 ? 0 : s->devices.at[i].incarnation;
}

/* Call with graph_lock held. */
static shoal_status prepare(struct master_session *s) {
  if (!s->unprepared) return NULL;
  graph_try_lower(s->graph);
  struct place_options o = {.devices = s->places.at,
                            .n_devices = (int)s->places.n,
                            .own_task = s->task,
                            .allow_soft_placement = s->config.soft_placement,
                            .log = s->config.log_placement};
  TRY(graph_place(s->graph, &o));
  s->unprepared = false;
  return NULL;
}

/* Which workers have nodes? */
static int survey(struct master_session *s, const struct graph *g, bool *used) {
  int n = 0;
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct node *node = g->nodes.at[i];
    int w = node && node->assigned ? place_of(s, node->assigned) : -1;
    if (w >= 0 && !used[w]) {
      used[w] = true;
      n++;
    }
  }
  return n;
}

/* The group that a collective node is in, where the graph says so: an attribute, or a constant input. */
static bool group_key_of(const struct node *n, int64_t *key) {
  if (op_attr_find(n->op, "group_key")) {
    shoal_status s = node_get_int(n, "group_key", key);
    shoal_status_free(s);
    return !s;
  }
  for (int i = 0; i < n->op->n_in; i++) {
    if (strcmp(n->op->in[i].name, "group_key")) continue;
    const struct node *from = n->in[i].node; /* the arguments before it are single tensors */
    const struct tensor *t;
    if (!from || !op_is(from->op, "Const")) return false;
    shoal_status s = node_get_tensor(from, "value", &t);
    shoal_status_free(s);
    if (s || t->dtype != SHOAL_INT32 || t->n != 1) return false;
    *key = T_DATA(t, const int32_t)[0];
    return true;
  }
  return false;
}

/* A group of devices of several tasks would wait for ever: each task meets its own members alone. */
static shoal_status check_groups(struct master_session *s, const struct graph *g) {
  VEC(const struct node *) seen = {0};
  shoal_status err = NULL;
  for (size_t i = 0; i < g->nodes.n && !err; i++) {
    const struct node *n = g->nodes.at[i];
    int64_t key, other;
    if (!n || strncmp(n->op->name, "Collective", 10) || !group_key_of(n, &key)) continue;
    const struct node *first = NULL; /* of that group: one will do */
    for (size_t j = 0; j < seen.n && !first; j++)
      if (group_key_of(seen.at[j], &other) && other == key) first = seen.at[j];
    if (!first) vec_push(&seen, n);
    else if (place_of(s, first->assigned) != place_of(s, n->assigned))
      err = UNIMPLEMENTED("Collective ops %s on %s and %s on %s are in one group (%" PRId64
                          "); groups that span tasks are not implemented",
                          first->name, first->assigned, n->name, n->assigned, key);
  }
  vec_release(&seen);
  return err;
}

static shoal_status register_parts(struct master_session *s, struct graph **parts, unsigned flags, struct compiled *c) {
  for (size_t i = 0; i < s->workers.n; i++)
    if (parts[i]) vec_push(&c->parts, (struct compiled_part){.worker = (int)i});
  struct latch l;
  latch_init(&l, (int)c->parts.n);
  for (size_t i = 0; i < c->parts.n; i++) {
    struct worker_link *w = &s->workers.at[c->parts.at[i].worker];
    w->ops->register_graph(w, s->handle, parts[c->parts.at[i].worker], &s->config.bytes, c->parts.at[i].graph,
                           latch_done, &l);
  }
  shoal_status err = latch_finish(&l);
  for (size_t i = 0; i < c->parts.n && !err && flags & COMPILE_GRAPHS; i++) {
    size_t at = wire_begin(&c->partition_graphs, 3);
    err = graph_export(parts[c->parts.at[i].worker], &(struct export_options){.assigned = true}, &c->partition_graphs);
    wire_end(&c->partition_graphs, at);
  }
  return err;
}

/* Folds on this process's own CPU, wherever the node was placed: host values are the same everywhere. */
static shoal_status evaluate(void *arg, const struct node *n, const struct tensor *const *in, struct tensor *out) {
  struct worker *w = ((struct master_session *)arg)->master->worker;
  return plan_evaluate(&(struct plan_options){.device = w->devices[0], .resources = w->resources[0]}, n, in, out);
}

static shoal_status compile(struct master_session *s, const struct step_signature *sig, unsigned flags,
                            struct compiled *c) {
  TRY(prepare(s));
  struct prune_options po = {.style = flags & COMPILE_PARTIAL ? FEED_WIRES : FEED_ARGS,
                             .device = s->devices.at[0].name,
                             .incarnation = s->devices.at[0].incarnation};
  struct graph *pruned = NULL;
  TRY(graph_prune(s->graph, sig, &po, &pruned));
  shoal_status err =
      graph_rewrite(pruned, &(struct rewrite_options){.off = s->config.rewrites_off, .evaluate = evaluate, .arg = s});
  if (!(flags & COMPILE_PARTIAL)) graph_drop_joins(pruned); /* partial runs ask by name what a target needs */
  bool *used = mem_zalloc(s->workers.n, sizeof *used);
  struct graph **parts = mem_zalloc(s->workers.n, sizeof *parts);
  bool whole = survey(s, pruned, used) <= 1; /* all on one task: nothing to cut */
  if (whole) {
    for (size_t i = 0; i < s->workers.n; i++)
      if (used[i]) parts[i] = pruned;
  } else if (!err && !(err = check_groups(s, pruned))) {
    struct partition_options o = {.place_of = place_of,
                                  .n_places = (int)s->workers.n,
                                  .incarnation = incarnation_of,
                                  .arg = s,
                                  .next_name = &s->next_name};
    err = graph_partition(pruned, &o, parts);
  }
  if (!err) err = register_parts(s, parts, flags, c);
  for (size_t i = 0; !whole && i < s->workers.n; i++)
    if (parts[i]) graph_free(parts[i]);
  if (flags & COMPILE_PARTIAL) c->pruned = pruned;
  else graph_free(pruned);
  free(parts);
  free(used);
  return err;
}

/* The count first, in base 64 and without printf: this is done for every step. */
static void add_names(struct text *key, const char *const *names, int n) {
  unsigned count = (unsigned)n;
  do text_addc(key, (char)('0' + count % 64));
  while (count /= 64);
  text_addc(key, '\n');
  for (int i = 0; i < n; i++) {
    text_adds(key, names[i]);
    text_addc(key, ';');
  }
}

shoal_status master_compile(struct master_session *s, const struct step_signature *sig, unsigned flags,
                            struct compiled **out) {
  struct text key = {0};
  text_addc(&key, (char)('0' + flags));
  add_names(&key, sig->feeds, sig->n_feeds);
  add_names(&key, sig->fetches, sig->n_fetches);
  add_names(&key, sig->targets, sig->n_targets);
  pthread_mutex_lock(&s->lock);
  struct compiled *c = strmap_get(&s->compiled, text_cstr(&key));
  if (c) atomic_fetch_add(&c->refs, 1);
  pthread_mutex_unlock(&s->lock);
  shoal_status err = NULL;
  if (!c) {
    pthread_mutex_lock(&s->graph_lock);
    pthread_mutex_lock(&s->lock);
    c = strmap_get(&s->compiled, text_cstr(&key)); /* perhaps made while we waited */
    if (c) atomic_fetch_add(&c->refs, 1);
    pthread_mutex_unlock(&s->lock);
    if (!c) {
      c = mem_zalloc(1, sizeof *c);
      atomic_init(&c->refs, 1);
      for (int i = 0; i < sig->n_feeds; i++) vec_push(&c->feeds, mem_strdup(sig->feeds[i]));
      for (int i = 0; i < sig->n_fetches; i++) vec_push(&c->fetches, mem_strdup(sig->fetches[i]));
      err = compile(s, sig, flags, c);
      if (err) {
        compiled_unref(c);
        c = NULL;
      } else {
        atomic_fetch_add(&c->refs, 1);
        pthread_mutex_lock(&s->lock);
        strmap_put(&s->compiled, text_cstr(&key), c);
        pthread_mutex_unlock(&s->lock);
      }
    }
    pthread_mutex_unlock(&s->graph_lock);
  }
  text_release(&key);
  *out = c;
  return err;
}

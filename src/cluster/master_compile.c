/* From a signature to registered partitions: lower and place the whole graph (once for each extension), prune it to the
 * signature, cut it by task, register each part with its worker. The result is kept, MOST_KEPT of them a session: of
 * more the one that was not used for the longest time is forgotten, here and by the workers, as it is where the limits
 * on graphs and nodes would be passed. TensorFlow keeps them all, so a program that fetches something else every time
 * grows its servers for ever.
 *
 * The computing is a task of the session's strand, on a builder; the registrations are answered when the workers
 * answer, and hold nobody up. Whoever asks for a signature that is being compiled waits for that, and gets its outcome:
 * one worker that does not answer fails them all at once, instead of each in turn. Steps are then begun on threads of
 * the network, as if their requests had just come, in the line of their connection: builders do not run steps, and
 * steps that compute for long take no thread that news of others needs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/block.h"
#include "base/clock.h"
#include "cluster/master.h"
#include "graph/import.h"
#include "graph/lower.h"
#include "graph/late_reads.h"
#include "graph/partition.h"
#include "proto/config.wire.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "runtime/kernel.h"
#include "runtime/kernel_why.h"
#include "runtime/plan_rewrite.h"

enum { MOST_KEPT = 2000 };

void compiled_unref(struct compiled *c) {
  if (!c || !ref_drop(&c->head.refs)) return;
  for (size_t i = 0; i < c->feeds.n; i++) free(c->feeds.at[i]);
  for (size_t i = 0; i < c->fetches.n; i++) free(c->fetches.at[i]);
  vec_release(&c->feeds);
  vec_release(&c->fetches);
  vec_release(&c->parts);
  text_release(&c->partition_graphs);
  if (c->pruned) graph_free(c->pruned);
  shoal_status_free(c->collectives.wrong);
  account_give(c->account, LIMIT_GRAPHS, 1);
  account_give(c->account, LIMIT_NODES, c->n_nodes);
  account_unref(c->account);
  free(c);
}

/* The workers forget its parts, as far as they have them. */
static void deregister(struct master_session *s, const struct compiled *c) {
  for (size_t i = 0; i < c->parts.n; i++) {
    struct worker_link *w = &s->workers.at[c->parts.at[i].worker];
    if (*c->parts.at[i].graph) w->ops->deregister_graph(w, s->half, c->parts.at[i].graph);
  }
}

/* A compiled step has left the table: the workers forget it too. */
static void forget(void *session, struct signature *old) {
  deregister(session, (struct compiled *)old);
  compiled_unref((struct compiled *)old);
}

static void let_go(struct signature *old) { compiled_unref((struct compiled *)old); }

void master_compiled_init(struct master_session *s) { signatures_init(&s->compiled, MOST_KEPT, forget, s); }

void master_compiled_release(struct master_session *s) { signatures_release(&s->compiled, let_go); }

/* Takes n of the limit; what is not used makes room. */
static shoal_status take(struct master_session *s, enum limit which, size_t n) {
  shoal_status full;
  while ((full = account_take(s->account, which, n)) && signatures_make_room(&s->compiled)) shoal_status_free(full);
  return full;
}

static int find_device(const struct master_session *s, const char *name) {
  return (int)(intptr_t)strmap_get(&s->device_numbers, name) - 1;
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

/* What lowering added counts too. */
static shoal_status count_lowered(struct master_session *s) {
  size_t more = s->graph->nodes.n - MIN(s->graph->nodes.n, s->n_nodes);
  TRY(take(s, LIMIT_NODES, more));
  s->n_nodes += more;
  return NULL;
}

/* A graph whose lowering was broken off is in order, and gone on with by the next who asks; the effort that is left
 * then is what was left now. */
static shoal_status lower(struct master_session *s, bool (*over)(void *arg), void *arg) {
  struct effort effort = {.left = s->effort, .what = "Inlining functions", .over = over, .arg = arg};
  s->graph->effort = &effort;
  shoal_status err = graph_try_lower(s->graph);
  s->graph->effort = NULL;
  s->effort = effort.left;
  shoal_status full = count_lowered(s);
  return status_merge(&err, full), err;
}

static shoal_status prepare(struct master_session *s, bool (*over)(void *arg), void *arg) {
  if (!s->unprepared) return NULL;
  TRY(lower(s, over, arg));
  struct effort effort = {.left = EFFORT_UNBOUNDED, .over = over, .arg = arg};
  struct place_options o = {.devices = s->places.at,
                            .n_devices = (int)s->places.n,
                            .own_task = s->task,
                            .allow_soft_placement = s->config.said.soft_placement,
                            .log = s->config.said.log_placement,
                            .has_kernel = kernel_supports,
                            .has_if_asked = kernel_supports_if_asked,
                            .why_no_kernel = kernel_why_none,
                            .priority = device_type_priority};
  s->graph->effort = &effort;
  shoal_status err = graph_place(s->graph, &o);
  s->graph->effort = NULL;
  TRY(err);
  s->unprepared = false;
  s->effort = LOWER_MAX_WORK;
  return NULL;
}

/* Which workers have nodes? */
static int survey(struct master_session *s, const struct shoal_graph *g, bool *used) {
  int n = 0;
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *node = g->nodes.at[i];
    int w = node && node->assigned ? place_of(s, node->assigned) : -1;
    if (w >= 0 && !used[w]) {
      used[w] = true;
      n++;
    }
  }
  return n;
}

/* ---- compiling ---- */

/* Who asked; is told on a thread of the network. */
struct asker {
  struct signature_asker head;
  struct rpc_event event;
  struct rpc_call *call; /* NULL: none */
  compile_done done;
  void *arg;
  struct compiled *compiled;
  shoal_status status;
};

struct compiling {
  struct strand_task task;
  struct signature_work work;
  struct master_session *session;   /* a reference */
  const struct step_signature *sig; /* the first asker's, who waits */
  unsigned flags;
  struct cancel folding;
  struct compiled *made;
  bool whole;                 /* all on one task: its part is `pruned` itself */
  struct shoal_graph *pruned; /* NULL: not yet */
  struct shoal_graph **parts; /* [workers] */
  struct join join;
};

static void tell(struct rpc_event *e) {
  struct asker *a = (struct asker *)((char *)e - offsetof(struct asker, event)), told = *a;
  free(a);
  told.done(told.arg, told.status, told.compiled);
}

static void tell_soon(struct signature_asker *asker, shoal_status err, struct signature *made) {
  struct asker *a = (struct asker *)asker;
  a->compiled = (struct compiled *)made;
  a->status = err;
  if (a->call) rpc_call_goes_on(a->call, &a->event);
  else rpc_loop_post(&a->event);
}

static void parts_free(struct compiling *k) {
  for (size_t i = 0; k->parts && !k->whole && i < k->session->workers.n; i++)
    if (k->parts[i]) graph_free(k->parts[i]);
  free(k->parts);
  if (k->flags & COMPILE_PARTIAL) k->made->pruned = k->pruned;
  else if (k->pruned) graph_free(k->pruned);
}

static shoal_status export_parts(struct compiling *k) {
  struct compiled *c = k->made;
  for (size_t i = 0; i < c->parts.n; i++) {
    size_t at = begin_RunMetadata_partition_graphs(&c->partition_graphs);
    TRY(graph_export(k->parts[c->parts.at[i].worker], &(struct export_options){.assigned = true},
                     &c->partition_graphs));
    wire_end(&c->partition_graphs, at);
  }
  return NULL;
}

/* All is registered, or something failed: whoever asked is told. */
static void compiled(void *arg, shoal_status err) {
  struct compiling *k = arg;
  struct master_session *s = k->session;
  if (!err && k->flags & COMPILE_GRAPHS) err = export_parts(k);
  parts_free(k);
  if (err) { /* some workers may have taken their parts */
    deregister(s, k->made);
    compiled_unref(k->made);
  }
  signatures_end(&s->compiled, &k->work, err ? NULL : &k->made->head, err);
  free(k);
  master_session_unref(s);
}

static void register_parts(struct compiling *k) {
  struct master_session *s = k->session;
  struct compiled *c = k->made;
  for (size_t i = 0; i < s->workers.n; i++)
    if (k->parts[i]) vec_push(&c->parts, (struct compiled_part){.worker = (int)i});
  join_init(&k->join, c->parts.n + 1, compiled, k);
  for (size_t i = 0; i < c->parts.n; i++) {
    struct worker_link *w = &s->workers.at[c->parts.at[i].worker];
    struct graph_registration r = {.session = s->half,
                                   .graph = k->parts[c->parts.at[i].worker],
                                   .config = &s->config.bytes,
                                   .as_is = s->config.said.as_is,
                                   .collective_key = c->collectives.key,
                                   .handle = c->parts.at[i].graph};
    w->ops->register_graph(w, &r, &s->ending, join_part, &k->join);
  }
  join_part(&k->join, NULL);
}

/* Folds on this process's own CPU, wherever the node was placed: host values are the same everywhere. */
static shoal_status evaluate(void *arg, const struct shoal_node *n, const struct tensor *const *in,
                             struct tensor *out) {
  struct compiling *k = arg;
  return home_evaluate(k->session->master->server.home, n, in, &k->folding, out);
}

static void end_folding(void *arg) { cancel_start(&((struct compiling *)arg)->folding, NULL); }

/* What takes long to compute, or never ends, is left to the steps, which can be cancelled. */
static shoal_status rewrite(struct compiling *k) {
  enum { FOLDING_MS = 2000 };
  struct alarm alarm = {NULL};
  cancel_init(&k->folding);
  alarm_set(&alarm, deadline_after_ms(FOLDING_MS), end_folding, k);
  shoal_status s = plan_rewrite_abroad(k->pruned, plan_rewrites_off(k->session->config.said.as_is), evaluate, k);
  alarm_clear(&alarm);
  cancel_release(&k->folding);
  return s;
}

static bool is_deserted(void *arg) {
  struct compiling *k = arg;
  struct master_session *s = k->session;
  pthread_mutex_lock(&s->lock);
  bool closed = s->closed;
  pthread_mutex_unlock(&s->lock);
  return signatures_deserted(&s->compiled, &k->work, closed);
}

struct session_census {
  struct device_census head;
  const struct master_session *session;
};

static int count_devices(const struct device_census *c, const char *type) {
  const struct master_session *s = ((const struct session_census *)c)->session;
  int n = 0;
  for (size_t i = 0; i < s->places.n; i++) n += !strcmp(s->places.at[i].spec.type, type);
  return n;
}

/* A session with filters does not see all devices of its cluster. What is wrong with groups that have members elsewhere
 * each step says, when it has its number. */
static shoal_status find_collectives(struct compiling *k) {
  struct session_census all = {{count_devices}, k->session};
  bool sees_all = !k->session->config.said.filters.n;
  struct collective_survey *found = &k->made->collectives;
  *found = collective_survey(k->pruned, sees_all ? &all.head : NULL);
  return found->wrong && (found->whole || k->flags & COMPILE_PARTIAL) ? status_copy(found->wrong) : NULL;
}

/* Cuts the graph to the signature, and by task. */
static shoal_status cut(struct compiling *k) {
  struct master_session *s = k->session;
  TRY(prepare(s, is_deserted, k));
  struct prune_options po = {.style = k->flags & COMPILE_PARTIAL ? FEED_WIRES : FEED_ARGS,
                             .device = s->devices.at[0].name,
                             .incarnation = s->devices.at[0].incarnation};
  TRY(graph_prune(s->graph, k->sig, &po, &k->pruned));
  TRY(take(s, LIMIT_NODES, k->pruned->nodes.n));
  k->made->n_nodes = k->pruned->nodes.n;
  TRY(rewrite(k));
  if (!(k->flags & COMPILE_PARTIAL)) graph_drop_joins(k->pruned); /* partial runs ask by name what a target needs */
  TRY(find_collectives(k));
  bool *used = mem_zalloc(s->workers.n, sizeof *used);
  k->parts = mem_zalloc(s->workers.n, sizeof *k->parts);
  k->whole = survey(s, k->pruned, used) <= 1;
  for (size_t i = 0; k->whole && i < s->workers.n; i++)
    if (used[i]) k->parts[i] = k->pruned;
  free(used);
  if (k->whole) return NULL;
  graph_late_reads(k->pruned);
  struct partition_options o = {.place_of = place_of,
                                .n_places = (int)s->workers.n,
                                .incarnation = incarnation_of,
                                .arg = s,
                                .next_name = &s->next_name};
  return graph_partition(k->pruned, &o, k->parts);
}

static void compile(struct strand_task *t) {
  struct compiling *k = (struct compiling *)t;
  shoal_status err = cut(k);
  if (err) compiled(k, err);
  else register_parts(k);
}

/* It takes its place among the graphs; what is not used makes room. */
static shoal_status compiling_new(struct master_session *s, const struct step_signature *sig, unsigned flags,
                                  struct compiling **out) {
  TRY(take(s, LIMIT_GRAPHS, 1));
  struct compiling *k = *out = mem_zalloc(1, sizeof *k);
  k->task.fn = compile;
  k->session = s;
  k->sig = sig;
  k->flags = flags;
  k->made = mem_zalloc(1, sizeof *k->made);
  ref_init(&k->made->head.refs, 1);
  k->made->account = account_ref(s->account);
  for (int i = 0; i < sig->n_feeds; i++) vec_push(&k->made->feeds, mem_strdup(sig->feeds[i]));
  for (int i = 0; i < sig->n_fetches; i++) vec_push(&k->made->fetches, mem_strdup(sig->fetches[i]));
  return NULL;
}

/* Waits for the step, or has it compiled; false: it is there after all, or may not be made. */
static bool await(struct master_session *s, const char *key, const struct step_signature *sig, unsigned flags,
                  struct asker *a, struct signature **found, shoal_status *full) {
  struct compiling *fresh = NULL;
  enum signature_state state = signatures_find(&s->compiled, key, NULL, &a->head, found);
  if (state == SIGNATURE_ABSENT) {
    if ((*full = compiling_new(s, sig, flags, &fresh))) return false;
    state = signatures_find(&s->compiled, key, &fresh->work, &a->head, found);
  }
  if (state == SIGNATURE_ABSENT) {
    master_session_ref(s);
    strand_run(&s->strand, &fresh->task);
  } else if (fresh) { /* somebody was quicker */
    compiled_unref(fresh->made);
    free(fresh);
  }
  return state != SIGNATURE_KEPT;
}

void master_compile(struct master_session *s, const struct step_signature *sig, unsigned flags,
                    const struct compile_client *client, compile_done done, void *arg) {
  char *key = signature_key((char)('0' + flags), sig);
  struct signature *found = NULL;
  shoal_status full = NULL;
  bool waits = false;
  if (signatures_find(&s->compiled, key, NULL, NULL, &found) != SIGNATURE_KEPT) {
    struct asker *a = mem_zalloc(1, sizeof *a);
    *a = (struct asker){.head = {.tell = tell_soon, .gone = client ? client->gone : NULL},
                        .event.fn = tell,
                        .call = client ? client->call : NULL,
                        .done = done,
                        .arg = arg};
    waits = await(s, key, sig, flags, a, &found, &full);
    if (!waits) free(a);
  }
  block_free(key);
  if (!waits) done(arg, full, (struct compiled *)found);
}

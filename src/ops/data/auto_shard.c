/* ops/data: what comes from files and goes to them: datasets, iterators, readers, parsers, checkpoints, summaries. */

/* AutoShardDataset: a part of a pipeline for each worker.
 *
 * By data, elements are dealt out in turn at its end: right for every pipeline, but each worker reads everything. By
 * file, the names of files are dealt out where the pipeline opens them: it is written as a graph
 * (data/dataset_graph.h), a ShardDataset is put before the op whose function reads a file, and the graph is run. A
 * shuffle of the names goes behind the new node: all workers must deal from one order. AUTO is by file where there are
 * files, else by data. By hint, ShardDatasets of SHARD_HINT shards become those of the worker. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset_graph.h"
#include "graph/function.h"
#include "ops/data/dataset_state.h"

enum { POLICY_OFF = -1, POLICY_AUTO, POLICY_FILE, POLICY_DATA, POLICY_HINT };
enum { MAX_NESTED = 32 }; /* functions that are looked into */

static const char *const readers[] = {"FixedLengthRecordDataset", "TextLineDataset", "TFRecordDataset", NULL};
static const char *const several[] = {"ConcatenateDataset", "ZipDataset", NULL};
static const char *const shuffles[] = {"ShuffleDataset", NULL};
static const char *const opening[] = {"ExperimentalParallelInterleaveDataset",
                                      "FlatMapDataset",
                                      "InterleaveDataset",
                                      "LegacyParallelInterleaveDataset",
                                      "ParallelInterleaveDataset",
                                      NULL};
static const char *const passing[] = {"AssertCardinalityDataset",
                                      "AssertNextDataset",
                                      "BatchDataset",
                                      "CacheDataset",
                                      "ExperimentalMapAndBatchDataset",
                                      "ExperimentalRebatchDataset",
                                      "FilterDataset",
                                      "MapAndBatchDataset",
                                      "MapDataset",
                                      "OptionsDataset",
                                      "PaddedBatchDataset",
                                      "ParallelBatchDataset",
                                      "ParallelFilterDataset",
                                      "ParallelMapDataset",
                                      "ParseExampleDataset",
                                      "PrefetchDataset",
                                      "RebatchDataset",
                                      "RepeatDataset",
                                      "ShardDataset",
                                      "ShuffleAndRepeatDataset",
                                      "ShuffleDataset",
                                      "SkipDataset",
                                      "TakeDataset",
                                      "UnbatchDataset",
                                      "WindowDataset",
                                      NULL};

struct sharding {
  struct shoal_graph *g;
  int64_t workers, index;
  int added;
};

/* ---- files ---- */

static bool slice_is_any(struct chars op, const char *const *list) {
  char name[SLICE_SHOWN];
  return dataset_op_is(slice_shown(op, name), list);
}

/* Does the function read the file that its argument names, or another that it gives the name to? */
static bool reads_file(const struct shoal_graph *g, const char *function, int depth) {
  const struct function_def *f = depth < MAX_NESTED ? graph_function(g, function) : NULL;
  for (int i = 0; f && i < f->n_nodes; i++) {
    const struct node_def *n = &f->nodes[i];
    if (slice_is_any(n->op, readers) && n->in.n && n->in.at[0].n >= 6 && !memcmp(n->in.at[0].at, "args_0", 6))
      return true;
    if (!slice_is_any(n->op, opening)) continue;
    const struct attr *inner = named_attr_find(n->attrs.at, (int)n->attrs.n, "f");
    if (inner && inner->kind == ATTR_FUNC && reads_file(g, inner->func->name, depth + 1)) return true;
  }
  return false;
}

static shoal_status add_number(struct sharding *s, int64_t value, shoal_out *out) {
  struct tensor t;
  TRY(tensor_new_scalar(&t, SHOAL_INT64));
  *T_DATA(&t, int64_t) = value;
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("value"), attr_tensor(&t)};
  attrs[1] = (struct named_attr){mem_strdup("dtype"), attr_type(SHOAL_INT64)};
  tensor_release(&t);
  char *name = graph_unique_name(s->g, "shard/number");
  *out = (shoal_out){0};
  shoal_status bad = graph_add(s->g, name, op_find("Const"), NULL, 0, attrs, 2, &out->node);
  free(name);
  return bad;
}

static void bypass(struct shoal_graph *g, const struct shoal_node *n) {
  for (size_t i = 0; i < g->nodes.n; i++)
    for (int k = 0; g->nodes.at[i] && k < g->nodes.at[i]->n_in; k++)
      if (g->nodes.at[i]->in[k].node == n) g->nodes.at[i]->in[k] = n->in[0];
}

/* Deals out what n is given, before any shuffle of it. */
static shoal_status shard_input(struct sharding *s, struct shoal_node *n) {
  struct shoal_node *shuffle = NULL, *shard;
  for (struct shoal_node *up = n->in[0].node; up->n_in && strstr(up->op->name, "Dataset"); up = up->in[0].node)
    if (dataset_op_is(up->op->name, shuffles)) {
      shuffle = up;
      bypass(s->g, up);
    }
  const struct shoal_node *from = n->in[0].node;
  const struct attr *types = node_attr(from, "output_types"), *shapes = node_attr(from, "output_shapes");
  if (!types) types = node_attr(from, "Toutput_types");
  if (!types || !shapes)
    return NOT_FOUND(
        "Unable to shard this input. You may need to wrap the inputs to your reader dataset in a "
        "TensorSliceDataset. Input node is %s",
        from->name);
  shoal_out in[3] = {n->in[0]};
  TRY(add_number(s, s->workers, &in[1]));
  TRY(add_number(s, s->index, &in[2]));
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  attrs[0] = (struct named_attr){mem_strdup("output_types"), attr_copy(types)};
  attrs[1] = (struct named_attr){mem_strdup("output_shapes"), attr_copy(shapes)};
  char *name = graph_unique_name(s->g, "shard");
  shoal_status bad = graph_add(s->g, name, op_find("ShardDataset"), in, 3, attrs, 2, &shard);
  free(name);
  TRY(bad);
  n->in[0] = (shoal_out){shard, 0};
  if (shuffle) {
    shuffle->in[0] = (shoal_out){shard, 0};
    n->in[0] = (shoal_out){shuffle, 0};
  }
  s->added++;
  return NULL;
}

static shoal_status shard_files(struct sharding *s, struct shoal_node *n) {
  while (dataset_op_is(n->op->name, passing)) n = n->in[0].node;
  if (dataset_op_is(n->op->name, several)) {
    for (int i = 0; i < n->n_in; i++) TRY(shard_files(s, n->in[i].node));
    return NULL;
  }
  const struct attr *f = dataset_op_is(n->op->name, opening) ? node_attr(n, "f") : NULL;
  if (f && f->kind == ATTR_FUNC && reads_file(s->g, f->func->name, 0)) return shard_input(s, n);
  return NOT_FOUND("Found an unshardable source dataset: %s (%s)", n->name, n->op->name);
}

/* ---- hints ---- */

static bool is_hint(const struct shoal_node *n) {
  const struct attr *value = !strcmp(n->op->name, "ShardDataset") ? node_attr(n->in[1].node, "value") : NULL;
  return value && value->kind == ATTR_TENSOR && value->tensor->dtype == SHOAL_INT64 && value->tensor->n == 1 &&
         *T_DATA(value->tensor, const int64_t) == SHARD_HINT;
}

static shoal_status shard_hints(struct sharding *s) {
  for (size_t i = 0, n = s->g->nodes.n; i < n; i++) {
    struct shoal_node *at = s->g->nodes.at[i];
    if (!at || !is_hint(at)) continue;
    TRY(add_number(s, s->workers, &at->in[1]));
    TRY(add_number(s, s->index, &at->in[2]));
    s->added++;
  }
  return NULL;
}

/* ---- the op ---- */

struct shard_state {
  struct dataset_state s;
  int64_t policy;
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct shard_state *s = state;
  TRY(dataset_state_init(ki, &s->s));
  TRY(node_get_int(ki->node, "auto_shard_policy", &s->policy));
  if (s->policy < POLICY_OFF || s->policy > POLICY_HINT)
    return INVALID("auto_shard_policy %" PRId64 " is not one of -1 to 3", s->policy);
  return NULL;
}

static shoal_status read_inputs(struct kernel_ctx *ctx, struct dataset **in, struct sharding *s) {
  TRY(dataset_in(ctx, 0, in));
  TRY(dataset_in_int(ctx, 1, "num_workers", &s->workers));
  TRY(dataset_in_int(ctx, 2, "index", &s->index));
  if (s->workers < 1) return INVALID("`num_workers` must be greater than zero: %" PRId64, s->workers);
  if (s->index < 0 || s->index >= s->workers)
    return INVALID("`index` must be between 0 and %" PRId64 ": %" PRId64, s->workers - 1, s->index);
  return NULL;
}

/* Rewrites the pipeline and has it made; *begun: ctx_done will be called. */
static shoal_status rewrite(struct kernel_ctx *ctx, struct dataset *in, struct sharding *s, bool *begun) {
  const struct shard_state *st = ctx->state;
  struct shoal_node *end;
  TRY(dataset_graph(in, GRAPH_IN_PROCESS, s->g, &end));
  if (st->policy == POLICY_HINT) TRY(shard_hints(s));
  else TRY(shard_files(s, end));
  if (!s->added) return dataset_give(ctx, dataset_ref(in));
  char *fetch = mem_printf("%s:0", end->name);
  shoal_status bad = dataset_run_graph(ctx, s->g, fetch, dataset_give_made, ctx);
  free(fetch);
  *begun = !bad;
  return bad;
}

static shoal_status shard(struct kernel_ctx *ctx, bool *begun) {
  const struct shard_state *st = ctx->state;
  struct sharding s = {0};
  struct dataset *in;
  TRY(read_inputs(ctx, &in, &s));
  if (st->policy == POLICY_OFF || (s.workers == 1 && st->policy != POLICY_HINT))
    return dataset_give(ctx, dataset_ref(in));
  shoal_status bad = NULL;
  if (st->policy != POLICY_DATA) {
    s.g = graph_new();
    bad = rewrite(ctx, in, &s, begun);
    graph_free(s.g);
    if (!bad || st->policy != POLICY_AUTO) return bad;
    shoal_status_free(bad); /* there are no files to deal out */
  }
  return dataset_give(ctx, dataset_shard(in, s.workers, s.index, false));
}

static void start(struct kernel_ctx *ctx) {
  bool begun = false;
  shoal_status s = shard(ctx, &begun);
  if (!begun) ctx_done(ctx, s);
}

static const struct kernel_def kernels[] = {{.device = "CPU",
                                             .state_size = sizeof(struct shard_state),
                                             .init = init,
                                             .release = dataset_state_release,
                                             .start = start},
                                            {0}};

static const struct op_row rows[] = {
    DATASET_ROW("AutoShardDataset", "input_dataset: variant, num_workers: int64, index: int64",
                "auto_shard_policy: int = 0; " DATASET_SPEC "; num_replicas: int = 0", 0, kernels),
    DATASET_ROW("ExperimentalAutoShardDataset", "input_dataset: variant, num_workers: int64, index: int64",
                "auto_shard_policy: int = 0; " DATASET_SPEC, 0, kernels),
};
OP_FAMILY(auto_shard, rows);

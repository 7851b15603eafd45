/* Ops of datasets in files: SaveDataset and its V2, LoadDataset, SnapshotDatasetV2, and the parts of snapshots alone.
 *
 * A snapshot lies in a folder named by a hash of the pipeline that made it, so that another pipeline makes another. The
 * hash is of all that stands above the op in its graph, functions and constants included. TensorFlow hashes in a way of
 * its own, so that neither uses the other's snapshots; what is saved is loaded by both. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/data_thread.h"
#include "data/dataset_rows.h"
#include "data/snapshot.h"
#include "graph/graph.h"
#include "graph/node_def.h"
#include "ops/data/dataset_state.h"

struct saved_state {
  struct dataset_state base; /* must be first */
  enum record_compression compression;
  struct function *reader, *shard;                  /* NULL: none */
  int first_reader, n_reader, first_shard, n_shard; /* what they captured, among the inputs */
  char *hash, *reader_prefix, *writer_prefix;       /* SnapshotDatasetV2 */
};

/* ---- the hash of a pipeline ---- */

static bool counts(const struct named_attr *a) {
  return a->name[0] != '_' && strcmp(a->name, "send_device_incarnation") && strcmp(a->name, "metadata");
}

/* Nodes are numbered as they are found, from n upwards; each says what it is and where its inputs come from. */
static shoal_status pipeline_hash(const struct kernel_init *ki, uint64_t *hash) {
  const struct shoal_node *n = ki->node;
  VEC(const struct shoal_node *) found = {0};
  struct strmap numbers = {0}; /* name -> number + 1 */
  struct text t = {0};
  shoal_status s = NULL;
  vec_push(&found, n);
  strmap_put(&numbers, n->name, (void *)(uintptr_t)1);
  for (size_t i = 0; !s && i < found.n; i++) {
    const struct shoal_node *at = found.at[i];
    vec_clear(&t);
    text_adds(&t, at->op->name);
    for (int k = 0; !s && k < at->n_attrs; k++) {
      if (!counts(&at->attrs[k])) continue;
      text_addf(&t, ";%s=", at->attrs[k].name);
      if (at->attrs[k].value.kind == ATTR_FUNC)
        text_addf(&t, "%" PRIx64, function_runtime_hash(ki->functions, at->attrs[k].value.func->name));
      else s = attr_proto_encode(&at->attrs[k].value, &t);
    }
    for (int k = 0; k < at->n_in; k++) {
      const struct shoal_node *from = at->in[k].node;
      uintptr_t number = (uintptr_t)strmap_get(&numbers, from->name);
      if (!number) {
        vec_push(&found, from);
        number = found.n;
        strmap_put(&numbers, from->name, (void *)number);
      }
      text_addf(&t, ";%zu:%d", (size_t)number, at->in[k].index);
    }
    *hash = hash64_combine(*hash, hash64_stable(t.at, t.n));
  }
  vec_release(&found);
  strmap_release(&numbers);
  text_release(&t);
  return s;
}

/* ---- state ---- */

static shoal_status get_function(struct kernel_init *ki, const char *name, struct function **f, int *first, int *n) {
  const struct func_attr *attr;
  if (!node_attr(ki->node, name)) return NULL;
  char *arguments = mem_printf("%s_other_args", name);
  node_in_range(ki->node, arguments, first, n);
  free(arguments);
  TRY(node_get_func(ki->node, name, &attr));
  return function_get(ki, attr, f);
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct saved_state *s = state;
  const char *text;
  TRY(dataset_state_init(ki, &s->base));
  TRY(node_get_string(ki->node, "compression", &text));
  TRY(snapshot_compression_parse(str_equal(text, "AUTO") ? "SNAPPY" : text, &s->compression));
  TRY(get_function(ki, "reader_func", &s->reader, &s->first_reader, &s->n_reader));
  bool use_shard = true;
  if (node_attr(ki->node, "use_shard_func")) TRY(node_get_bool(ki->node, "use_shard_func", &use_shard));
  if (use_shard) TRY(get_function(ki, "shard_func", &s->shard, &s->first_shard, &s->n_shard));
  if (!node_attr(ki->node, "hash_valid")) return NULL;
  bool given;
  int64_t value;
  TRY(node_get_bool(ki->node, "hash_valid", &given));
  TRY(node_get_int(ki->node, "hash", &value));
  TRY(node_get_string(ki->node, "reader_prefix", &text));
  s->reader_prefix = mem_strdup(text);
  TRY(node_get_string(ki->node, "writer_prefix", &text));
  s->writer_prefix = mem_strdup(text);
  uint64_t hash = (uint64_t)value;
  if (!given) {
    hash = 0;
    TRY(pipeline_hash(ki, &hash));
  }
  s->hash = mem_printf("%" PRIu64, hash);
  return NULL;
}

static void release(void *state) {
  struct saved_state *s = state;
  free(s->hash);
  free(s->reader_prefix);
  free(s->writer_prefix);
  dataset_state_release(&s->base);
}

static struct captured reader_of(const struct kernel_ctx *ctx) {
  const struct saved_state *s = ctx->state;
  struct captured c;
  captured_init(&c, s->reader, s->base.functions, ctx->in + s->first_reader, s->n_reader);
  return c;
}

static struct captured shard_of(const struct kernel_ctx *ctx) {
  const struct saved_state *s = ctx->state;
  struct captured c = {0};
  if (s->shard) captured_init(&c, s->shard, s->base.functions, ctx->in + s->first_shard, s->n_shard);
  return c;
}

static shoal_status check_reader(const struct saved_state *s) {
  if (function_rets(s->reader) == 1 && function_ret_type(s->reader, 0) == SHOAL_VARIANT) return NULL;
  return INVALID("`reader_func` must return one dataset");
}

/* ---- saving ---- */

static shoal_status make_saving(struct kernel_ctx *ctx, struct dataset **out) {
  const struct saved_state *s = ctx->state;
  struct dataset *in;
  char *path;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_string(ctx, 1, "path", &path));
  struct captured shard = shard_of(ctx);
  *out = dataset_saving(in, path, (int)s->compression, &shard);
  free(path);
  return NULL;
}

static shoal_status saving_run(struct kernel_ctx *ctx) {
  struct dataset *d;
  TRY(make_saving(ctx, &d));
  return dataset_give(ctx, d);
}

struct save_walk {
  struct kernel_ctx *ctx;
  struct dataset *d; /* owned */
};

/* To the end: everything is written then. */
static void save_all(void *arg) {
  struct save_walk *w = arg;
  struct data_ctx dc = {.cancel = w->ctx->step->cancel};
  struct tensor *element = mem_zalloc((size_t)MAX(w->d->n, 1), sizeof *element);
  struct data_iterator *it = NULL;
  bool end = false;
  shoal_status s = dataset_iterate(w->d, &it);
  while (!s && !end) {
    s = iterator_next(it, &dc, element, &end);
    tensors_release(element, w->d->n);
  }
  free(element);
  iterator_free(it);
  struct kernel_ctx *ctx = w->ctx;
  dataset_unref(w->d);
  free(w);
  ctx_done(ctx, s);
}

static void save_start(struct kernel_ctx *ctx) {
  struct dataset *d;
  shoal_status s = make_saving(ctx, &d);
  if (!s) {
    struct save_walk *w = mem_zalloc(1, sizeof *w);
    *w = (struct save_walk){ctx, d};
    s = data_thread_start(save_all, w);
    if (!s) return;
    dataset_unref(d);
    free(w);
  }
  ctx_done(ctx, s);
}

/* ---- loading ---- */

static shoal_status loading_run(struct kernel_ctx *ctx) {
  const struct saved_state *s = ctx->state;
  struct dataset *d;
  char *path;
  TRY(check_reader(s));
  TRY(dataset_in_string(ctx, 0, "path", &path));
  struct captured reader = reader_of(ctx);
  shoal_status bad = dataset_loading(path, (int)s->compression, &reader, &s->base.spec, &d);
  if (bad) captured_release(&reader);
  free(path);
  TRY(bad);
  return dataset_give(ctx, d);
}

static shoal_status snapshot_run(struct kernel_ctx *ctx) {
  const struct saved_state *s = ctx->state;
  struct dataset *in;
  char *path;
  TRY(check_reader(s));
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_string(ctx, 1, "path", &path));
  if (!str_equal(s->reader_prefix, s->writer_prefix)) {
    free(path);
    return UNIMPLEMENTED("SnapshotDatasetV2: a reader_prefix that is not the writer_prefix");
  }
  char *folder =
      *s->writer_prefix ? mem_printf("%s/%s/%s", s->writer_prefix, path, s->hash) : mem_printf("%s/%s", path, s->hash);
  struct captured reader = reader_of(ctx), shard = shard_of(ctx);
  struct dataset *d = dataset_snapshot(in, folder, s->hash, (int)s->compression, &reader, &shard);
  free(folder);
  free(path);
  return dataset_give(ctx, d);
}

/* ---- parts of snapshots ---- */

static shoal_status chunk_run(struct kernel_ctx *ctx) {
  const struct saved_state *s = ctx->state;
  char *path;
  TRY(dataset_in_string(ctx, 0, "chunk_file", &path));
  struct dataset *d = dataset_snapshot_file(path, s->compression, &s->base.spec);
  free(path);
  return dataset_give(ctx, d);
}

static shoal_status shard_init(struct kernel_init *ki, void *state) {
  int64_t version;
  TRY(init(ki, state));
  TRY(node_get_int(ki->node, "version", &version));
  if (version != 2)
    return UNIMPLEMENTED("Snapshots of version %" PRId64 " are not read, only those of version 2", version);
  return NULL;
}

static shoal_status shard_run(struct kernel_ctx *ctx) {
  const struct saved_state *s = ctx->state;
  char *path;
  int64_t first;
  TRY(dataset_in_int(ctx, 1, "start_index", &first));
  TRY(dataset_in_string(ctx, 0, "shard_dir", &path));
  struct dataset *d = dataset_snapshot_shard(path, s->compression, &s->base.spec, MAX(first, 0));
  free(path);
  return dataset_give(ctx, d);
}

static shoal_status nested_run(struct kernel_ctx *ctx) {
  shoal_dtype type = SHOAL_VARIANT;
  struct shape scalar = shape_scalar();
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    struct dataset *in;
    TRY(dataset_in(ctx, i, &in));
  }
  struct dataset *d = elements_new(1, &type, &scalar);
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    struct tensor t;
    tensor_ref(&t, ctx_in(ctx, i));
    elements_add(d, &t);
  }
  return dataset_give(ctx, d);
}

/* ---- rows ---- */

#define KERNEL(init_, ...)                                                                                             \
  (const struct kernel_def[]) {                                                                                        \
    {.device = "CPU", .state_size = sizeof(struct saved_state), .init = init_, .release = release, __VA_ARGS__}, { 0 } \
  }
#define SHARDS                                                                                  \
  "compression: string = ''; shard_func: func; use_shard_func: bool = true; Tshard_func_args: " \
  "list(type) >= 0"

static const struct op_row rows[] = {
    {.name = "SaveDataset",
     .in = "input_dataset: variant, path: string, shard_func_other_args: Tshard_func_args",
     .attrs = SHARDS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = KERNEL(init, .start = save_start)},
    DATASET_ROW("SaveDatasetV2", "input_dataset: variant, path: string, shard_func_other_args: Tshard_func_args",
                SHARDS "; " DATASET_SPEC, OP_STATEFUL, KERNEL(init, .run = saving_run)),
    DATASET_ROW("LoadDataset", "path: string, reader_func_other_args: Treader_func_args",
                DATASET_SPEC "; compression: string = ''; reader_func: func; Treader_func_args: list(type) >= 0",
                OP_STATEFUL, KERNEL(init, .run = loading_run)),
    DATASET_ROW("SnapshotDatasetV2",
                "input_dataset: variant, path: string, reader_func_other_args: Treader_func_args, "
                "shard_func_other_args: Tshard_func_args",
                DATASET_SPEC "; compression: string = ''; reader_prefix: string = ''; writer_prefix: string = ''; "
                             "hash_valid: bool = false; hash: int = 0; reader_func: func; shard_func: func; "
                             "Treader_func_args: list(type) >= 0; Tshard_func_args: list(type) >= 0; "
                             "metadata: string = ''",
                0, KERNEL(init, .run = snapshot_run)),
    DATASET_ROW("SnapshotChunkDataset", "chunk_file: string", DATASET_SPEC "; compression: string = ''", OP_LOCAL,
                KERNEL(init, .run = chunk_run)),
    DATASET_ROW("SnapshotDatasetReader", "shard_dir: string, start_index: int64",
                DATASET_SPEC "; compression: string = ''; version: int", OP_LOCAL,
                KERNEL(shard_init, .run = shard_run)),
    DATASET_ROW("SnapshotNestedDatasetReader", "inputs: N * variant", DATASET_SPEC "; N: int >= 1", 0,
                DATASET_KERNELS(.run = nested_run)),
};
OP_FAMILY(datasets_saved, rows);

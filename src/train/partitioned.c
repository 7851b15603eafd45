/* Variables in parts, and rows looked up in them.
 *
 * How many parts there are, how long each is, what they are called and where a row is found are TensorFlow's rules to
 * the letter: workers of both kinds must agree on them, and checkpoints hold the whole under one name with each part as
 * a slice of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"
#include "shoal/replicate.h"
#include "graph/given.h"
#include "train/variables.h"

shoal_partitioner shoal_fixed_partitioner(int64_t parts, int axis) {
  return (shoal_partitioner){SHOAL_PARTS_FIXED, axis, parts, 0};
}
shoal_partitioner shoal_max_bytes_partitioner(int64_t max_bytes, int axis, int64_t max_parts) {
  return (shoal_partitioner){SHOAL_PARTS_MAX_BYTES, axis, max_parts, max_bytes};
}
shoal_partitioner shoal_min_bytes_partitioner(int64_t min_bytes, int axis, int64_t max_parts) {
  return (shoal_partitioner){SHOAL_PARTS_MIN_BYTES, axis, max_parts, min_bytes};
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* 0: the partitioner and the shape do not go together. */
int64_t shoal_partition_count(const shoal_partitioner *p, shoal_dtype dtype, shoal_dims shape) {
  if (!p || p->axis < 0 || p->axis >= shape.rank) return 0;
  int64_t length = shape.at[p->axis], row = (int64_t)dtype_size(dtype);
  for (int i = 0; i < shape.rank; i++) {
    if (shape.at[i] <= 0) return 0;
    if (i != p->axis && __builtin_mul_overflow(row, shape.at[i], &row)) return 0;
  }
  int64_t all;
  if (__builtin_mul_overflow(row, length, &all)) return 0;
  switch (p->kind) {
    case SHOAL_PARTS_FIXED: return p->parts < 1 ? 0 : least(p->parts, length);
    case SHOAL_PARTS_MAX_BYTES: {
      if (p->bytes < 1 || p->parts < 0) return 0;
      int64_t rows = p->bytes / row > 1 ? p->bytes / row : 1;
      int64_t parts = ceil_div(length, rows);
      return p->parts ? least(parts, p->parts) : parts;
    }
    case SHOAL_PARTS_MIN_BYTES:
      return p->bytes < 1 || p->parts < 1 ? 0 : least(least(length, p->parts), ceil_div(all, p->bytes));
  }
  return 0;
}

/* "10 4 0,5:0,4" */
static char *slice_text(shoal_dims full, const int64_t *start, const int64_t *length) {
  struct text t = {0};
  for (int i = 0; i < full.rank; i++) text_addf(&t, "%lld ", (long long)full.at[i]);
  for (int i = 0; i < full.rank; i++)
    text_addf(&t, "%s%lld,%lld", i ? ":" : "", (long long)start[i], (long long)length[i]);
  return text_take(&t);
}

/* 0: it cannot be cut so. */
static int64_t count_parts(const shoal_partitioning *p, shoal_dtype dtype, shoal_dims shape) {
  const shoal_partitioner whole = {SHOAL_PARTS_FIXED, p->partitioner.axis, 1, 0};
  if (!p->count) return shoal_partition_count(&p->partitioner, dtype, shape);
  if (!shoal_partition_count(&whole, dtype, shape)) return 0;
  int64_t n = p->count(p->count_arg, dtype, shape);
  return n <= shape.at[whole.axis] ? n : 0;
}

/* n was counted. */
static shoal_partitioned make_parts(shoal_graph *g, const char *name, shoal_dtype dtype, shoal_dims shape, int64_t n,
                                    const shoal_partitioning *p) {
  shoal_partitioned out = {.axis = p->partitioner.axis};
  out.parts = mem_zalloc((size_t)n, sizeof *out.parts);
  graph_push_scope(g, name);
  int64_t start[SHOAL_MAX_RANK] = {0}, length[SHOAL_MAX_RANK];
  memcpy(length, shape.at, (size_t)shape.rank * sizeof *length);
  int64_t whole = shape.at[out.axis];
  for (int64_t i = 0; i < n && !graph_error(g); i++) {
    length[out.axis] = whole / n + (i < whole % n);
    char part[32];
    snprintf(part, sizeof part, "part_%lld", (long long)i);
    shoal_var v = shoal_variable(g, part, p->init(g, dtype, (shoal_dims){shape.rank, length}, p->init_arg));
    if (v.handle.node) {
      char *full = mem_strdup(v.handle.node->name), *slice = slice_text(shape, start, length);
      *strrchr(full, '/') = 0;
      variable_set_slice(v, full, slice);
      free(full);
      free(slice);
    }
    out.parts[out.n++] = v;
    start[out.axis] += length[out.axis];
  }
  graph_pop_scope(g);
  return out;
}

shoal_partitioned shoal_partitioned_variable_with(shoal_graph *g, const char *name, shoal_dtype dtype, shoal_dims shape,
                                                  const shoal_partitioning *given) {
  shoal_partitioning p = {0};
  GRAPH_GIVEN(g, name, (shoal_partitioned){0});
  GRAPH_GIVEN(g, given, (shoal_partitioned){0});
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_partitioning, init_arg, &p, given), (shoal_partitioned){0});
  GRAPH_GIVEN(g, p.init, (shoal_partitioned){0});
  int64_t n = count_parts(&p, dtype, shape);
  if (n >= 1 && n <= 100000 && shape.rank <= SHOAL_MAX_RANK) return make_parts(g, name, dtype, shape, n, &p);
  graph_fail(
      g, INVALID("partitioned variable '%s': cannot be cut along axis %d of %d", name, p.partitioner.axis, shape.rank));
  return (shoal_partitioned){.axis = p.partitioner.axis};
}

shoal_partitioned shoal_partitioned_variable(shoal_graph *g, const char *name, shoal_dtype dtype, shoal_dims shape,
                                             const shoal_partitioner *partitioner, shoal_part_init *init, void *arg) {
  GRAPH_GIVEN(g, name, (shoal_partitioned){0});
  GRAPH_GIVEN(g, partitioner, (shoal_partitioned){0});
  GRAPH_GIVEN(g, init, (shoal_partitioned){0});
  return shoal_partitioned_variable_with(
      g, name, dtype, shape,
      SHOAL_OPTIONS(shoal_partitioning, .partitioner = *partitioner, .init = init, .init_arg = arg));
}

shoal_out shoal_partitioned_value(shoal_graph *g, const shoal_partitioned *p) {
  GRAPH_GIVEN(g, p, (shoal_out){0});
  if (p->n == 1) return p->parts[0].value;
  struct build b = build_begin(g, "ConcatV2", NULL);
  for (int i = 0; i < p->n; i++) build_in(&b, p->parts[i].value);
  build_in(&b, build_const_int(g, SHOAL_INT32, p->axis));
  return build_end_out(&b);
}

void shoal_partitioned_free(shoal_partitioned *p) {
  if (!p) return;
  free(p->parts);
  *p = (shoal_partitioned){0};
}

/* ---- lookup ---- */

static shoal_out gather_rows(struct shoal_graph *g, shoal_var v, shoal_out ids) {
  graph_push_colocation(g, v.handle.node);
  if (variable_is_ref(v.handle)) {
    shoal_out found = build_op3(g, "GatherV2", v.value, ids, build_const_int(g, SHOAL_INT32, 0));
    graph_pop_colocation(g);
    return found;
  }
  struct build b = build_begin(g, "ResourceGather", NULL);
  build_in(&b, v.handle);
  build_in(&b, ids);
  build_attr_type(&b, "dtype", out_type(v.value));
  shoal_out rows = build_end_out(&b);
  graph_pop_colocation(g);
  return rows;
}

/* For each id its shard and its row there. */
static void assign_mod(struct shoal_graph *g, shoal_out ids, int n, shoal_out *shard, shoal_out *row) {
  shoal_out count = build_const_int(g, out_type(ids), n);
  *shard = build_op2(g, "FloorMod", ids, count);
  *row = build_op2(g, "FloorDiv", ids, count);
}

/* The first `extra` shards have one row more. */
static void assign_div(struct shoal_graph *g, const shoal_var *shards, shoal_out ids, int n, shoal_out *shard,
                       shoal_out *row) {
  int64_t rows = 0;
  for (int i = 0; i < n; i++) rows += out_shape(shards[i].value).dims[0];
  shoal_dtype t = out_type(ids);
  int64_t each = rows / n, extra = rows % n;
  shoal_out longer = build_const_int(g, t, each + 1), shorter = build_const_int(g, t, each > 0 ? each : 1);
  shoal_out past = build_op2(g, "Sub", ids, build_const_int(g, t, extra));
  *shard = build_op2(g, "Maximum", build_op2(g, "FloorDiv", ids, longer), build_op2(g, "FloorDiv", past, shorter));
  *row = build_op3(g, "SelectV2", build_op2(g, "Less", *shard, build_const_int(g, t, extra)),
                   build_op2(g, "FloorMod", ids, longer), build_op2(g, "FloorMod", past, shorter));
}

static struct shoal_node *split_by(struct shoal_graph *g, shoal_out data, shoal_out shard, int n) {
  struct build b = build_begin(g, "DynamicPartition", NULL);
  build_in(&b, data);
  build_in(&b, shard);
  build_attr_int(&b, "num_partitions", n);
  return build_end(&b);
}

static bool check_lookup(struct shoal_graph *g, const shoal_var *shards, int n, shoal_out ids, const char *strategy) {
  if (graph_error(g)) return false;
  bool whole = n > 0 && (out_type(ids) == SHOAL_INT32 || out_type(ids) == SHOAL_INT64);
  for (int i = 0; i < n && whole; i++) whole = shards[i].handle.node && out_shape(shards[i].value).rank >= 1;
  if (!whole)
    graph_fail(g, INVALID("shoal_embedding_lookup takes at least one table of rows, and ids of int32 or int64"));
  else if (strcmp(strategy, "mod") && strcmp(strategy, "div"))
    graph_fail(g, INVALID("Unrecognized partition strategy: %s", strategy));
  return !graph_error(g);
}

shoal_out shoal_embedding_lookup(shoal_graph *g, const shoal_var *shards, int n, shoal_out ids, const char *strategy) {
  if (!check_lookup(g, shards, n, ids, strategy)) return (shoal_out){0};
  graph_push_scope(g, "embedding_lookup");
  shoal_out rows = {0};
  if (n == 1) {
    rows = build_op1(g, "Identity", gather_rows(g, shards[0], ids));
  } else {
    shoal_out flat = build_op2(g, "Reshape", ids, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
    shoal_out shard, row;
    if (!strcmp(strategy, "mod")) assign_mod(g, flat, n, &shard, &row);
    else assign_div(g, shards, flat, n, &shard, &row);
    shoal_out places = build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), build_op1(g, "Size", flat),
                                 build_const_int(g, SHOAL_INT32, 1));
    shard = build_cast(g, shard, SHOAL_INT32);
    struct shoal_node *wanted = split_by(g, row, shard, n), *back = split_by(g, places, shard, n);
    shoal_out *found = mem_zalloc((size_t)n, sizeof *found);
    for (int i = 0; i < n && wanted; i++) found[i] = gather_rows(g, shards[i], node_out(wanted, i));
    struct build b = build_begin(g, "ParallelDynamicStitch", NULL);
    for (int i = 0; i < n && back; i++) build_in(&b, node_out(back, i));
    build_in_list(&b, found, n);
    build_attr_int(&b, "N", n);
    build_attr_type(&b, "T", out_type(shards[0].value));
    shoal_out stitched = build_end_out(&b);
    free(found);
    struct shape row_shape = out_shape(shards[0].value);
    struct build c = build_begin(g, "ConcatV2", NULL);
    build_in(&c, build_op1(g, "Shape", ids));
    build_in(&c, build_const_ints(g, SHOAL_INT32, row_shape.dims + 1, row_shape.rank - 1));
    build_in(&c, build_const_int(g, SHOAL_INT32, 0));
    rows = build_op2(g, "Reshape", stitched, build_end_out(&c));
  }
  graph_pop_scope(g);
  return rows;
}

/* ---- towers ---- */

static shoal_out mean_of(struct shoal_graph *g, const shoal_gradient *grads, int towers, int n, int i, int have) {
  struct build b = build_begin(g, "AddN", NULL);
  for (int t = 0; t < towers; t++)
    if (grads[t * n + i].values.node) build_in(&b, grads[t * n + i].values);
  shoal_out sum = build_end_out(&b);
  return build_op2(g, "RealDiv", sum, build_const_float(g, out_type(sum), have));
}

static shoal_out joined(struct shoal_graph *g, const shoal_gradient *grads, int towers, int n, int i, bool indices) {
  struct build b = build_begin(g, "ConcatV2", NULL);
  for (int t = 0; t < towers; t++)
    if (grads[t * n + i].values.node) build_in(&b, indices ? grads[t * n + i].indices : grads[t * n + i].values);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  return build_end_out(&b);
}

void shoal_average_gradients(shoal_graph *g, const shoal_gradient *grads, int towers, int n, shoal_gradient *out) {
  GRAPH_GIVEN_ARRAY(g, grads, n);
  GRAPH_GIVEN_ARRAY(g, out, n);
  for (int i = 0; i < n; i++) {
    int have = 0, sparse = 0;
    out[i] = (shoal_gradient){0};
    for (int t = 0; t < towers; t++) {
      have += grads[t * n + i].values.node != NULL;
      sparse += grads[t * n + i].indices.node != NULL;
    }
    if (!have || graph_error(g)) continue;
    if (sparse && sparse != have) {
      graph_fail(g, INVALID("gradient %d is sparse in %d of %d towers", i, sparse, have));
    } else if (have == 1) {
      for (int t = 0; t < towers; t++)
        if (grads[t * n + i].values.node) out[i] = grads[t * n + i];
    } else if (!sparse) {
      out[i].values = mean_of(g, grads, towers, n, i, have);
    } else {
      shoal_out all = joined(g, grads, towers, n, i, false);
      out[i] = (shoal_gradient){build_op2(g, "RealDiv", all, build_const_float(g, out_type(all), have)),
                                joined(g, grads, towers, n, i, true), grads[i].dense_shape};
    }
  }
}

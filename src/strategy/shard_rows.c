/* Shared out state where gradients are rows and the optimizer changes those rows alone (momentum, Adagrad and so on):
 * whole tables are neither copied nor sent.
 *
 * Each replica has the slots of so many rows of the table. All have the rows of everybody's gradients, gathered. Of
 * each row that was looked up its owner takes the value and the slots out, as small variables, which are changed as the
 * whole ones would be; puts the slots back, and tells the others what the rows have become: by a sum in which everybody
 * else brings -0 (to which whatever is added stays what it is, -0 too). All then write the rows that were looked up.
 *
 * So a step takes as many bytes as the gathered gradients again, whatever the size of the table. */
#include "graph/gradient.h"
#include "strategy/strategy.h"
#include "train/pieces.h"

/* One behind the other; the nodes are on the replica's device. */
static shoal_out gather_rows(struct shoal_graph *g, shoal_out rows, shoal_out which) {
  return build_op3(g, "GatherV2", rows, which, build_const_int(g, SHOAL_INT32, 0));
}

static shoal_out gather_of(struct shoal_graph *g, shoal_var v, shoal_out which) {
  if (variable_is_ref(v.handle)) return gather_rows(g, v.value, which);
  struct build b = build_begin(g, "ResourceGather", NULL);
  build_in(&b, v.handle);
  build_in(&b, which);
  build_attr_type(&b, "dtype", out_type(v.value));
  return node_out(build_end(&b), 0);
}

/* Each row once, with the sum of what it has. */
static void unite(struct shoal_graph *g, shoal_gradient *gr) {
  struct build b = build_begin(g, "Unique", NULL);
  build_in(&b, gr->indices);
  struct shoal_node *u = build_end(&b);
  if (!u) return;
  gr->indices = node_out(u, 0);
  gr->values = build_op3(g, "UnsortedSegmentSum", gr->values, node_out(u, 1), build_op1(g, "Size", node_out(u, 0)));
}

/* A variable for this step, with that value. */
static shoal_var rows_variable(struct shoal_graph *g, const char *name, shoal_out value, struct shoal_node **ready) {
  shoal_dtype dtype = out_type(value);
  struct shape shape = out_shape(value);
  graph_push_scope_root(g);
  shoal_var v = {.handle = node_out(handle_alone(g, name, dtype, &shape), 0)};
  graph_pop_scope(g);
  *ready = variable_update_op(g, "Assign", v.handle, value);
  graph_push_control(g, ready, 1);
  v.value = variable_read_op(g, v.handle, dtype, NULL);
  graph_pop_control(g);
  return v;
}

/* What became of it, which is no variable any more when *gone has run. */
static shoal_out take_back(struct shoal_graph *g, shoal_var v, struct shoal_node *done, struct shoal_node **gone) {
  graph_push_control(g, &done, 1);
  shoal_out value = variable_read_op(g, v.handle, out_type(v.value), NULL);
  graph_pop_control(g);
  struct build d = build_begin(g, "DestroyResourceOp", NULL);
  build_in(&d, v.handle);
  build_control(&d, value.node);
  *gone = build_end(&d);
  return value;
}

void shard_looked_up(struct shoal_replica *r, int which, struct replica_gradients *all) {
  struct shoal_graph *g = r->maker.g;
  shoal_var v = all->vars[which];
  struct row_shard s = {.which = which, .piece = out_shape(v.value)};
  s.piece.dims[0] = (s.piece.dims[0] + r->strategy->replicas - 1) / r->strategy->replicas;
  int64_t first = shard_rank(r) * s.piece.dims[0];
  shoal_gradient *gr = &all->grads[which];
  shoal_dtype dtype = out_type(gr->indices);
  unite(g, gr);
  s.rows = gr->indices;
  shoal_out at = build_op2(g, "Sub", gr->indices, build_const_int(g, dtype, first));
  shoal_out from = build_op2(g, "GreaterEqual", at, build_const_int(g, dtype, 0));
  shoal_out below = build_op2(g, "Less", at, build_const_int(g, dtype, s.piece.dims[0]));
  s.own = flat_of(g, build_op1(g, "Where", build_op2(g, "LogicalAnd", from, below)));
  s.at = gather_rows(g, at, s.own);
  s.like = gr->values;
  char *name = mem_printf("%s/rows", v.handle.node->name);
  struct shoal_node *ready;
  shoal_var rows = rows_variable(g, name, gather_of(g, v, gather_rows(g, s.rows, s.own)), &ready);
  free(name);
  if (graph_error(g)) return;
  shard_name_piece(r, v, rows, &s.piece);
  s.handle = rows.handle.node;
  graph_push_control(g, &ready, 1);
  gr->values = gather_rows(g, gr->values, s.own);
  graph_pop_control(g);
  gr->indices = build_op3(g, "Range", build_const_int(g, dtype, 0), build_cast(g, build_op1(g, "Size", s.at), dtype),
                          build_const_int(g, dtype, 1));
  all->changed[which] = rows;
  vec_push(&r->rows, s);
}

struct row_shard *row_shard_of(struct shoal_replica *r, shoal_var v) {
  for (size_t i = 0; i < r->rows.n; i++)
    if (r->rows.at[i].handle == v.handle.node) return &r->rows.at[i];
  return NULL;
}

shoal_var row_shard_slot(struct shoal_replica *r, struct row_shard *s, shoal_var slot) {
  struct shoal_graph *g = r->maker.g;
  if (!slot.handle.node || s->n_slots == MOST_ROW_SLOTS) return slot;
  char *name = mem_printf("%s/rows", slot.handle.node->name);
  struct row_slot *one = &s->slots[s->n_slots++];
  one->whole = slot;
  one->rows = rows_variable(g, name, gather_of(g, slot, s->at), &one->ready);
  free(name);
  return one->rows;
}

static struct shoal_node *put_rows(struct shoal_graph *g, shoal_var v, shoal_out at, shoal_out rows) {
  return build_op3(g, variable_op_name(v.handle, "ResourceScatterUpdate"), v.handle, at, rows).node;
}

/* The own rows where they stand among those of all; elsewhere -0. */
static shoal_out among_all(struct shoal_graph *g, const struct row_shard *s, shoal_out rows) {
  shoal_out none = build_op2(g, "Fill", build_op1(g, "Shape", s->like), build_const_float(g, out_type(rows), -0.0));
  shoal_out at = build_op2(g, "ExpandDims", s->own, build_const_int(g, SHOAL_INT32, 1));
  return build_op3(g, "TensorScatterUpdate", none, at, rows);
}

void row_shard_spread(struct shoal_replica *r, const struct row_shard *s, shoal_var v, shoal_var rows,
                      struct shoal_node **done) {
  enum { MOST = 2 * MOST_ROW_SLOTS + 2 };
  struct shoal_graph *g = r->maker.g;
  struct shoal_node *ends[MOST];
  int n = 0;
  for (int i = 0; i < s->n_slots; i++) {
    graph_add_control(*done, s->slots[i].ready);
    shoal_out slot = take_back(g, s->slots[i].rows, *done, &ends[n++]);
    ends[n++] = put_rows(g, s->slots[i].whole, s->at, slot);
  }
  shoal_out own = take_back(g, rows, *done, &ends[n++]);
  shoal_out all = reduce_member(g, r->strategy, GROUP_REPLICAS, r->key++, SHOAL_REDUCE_SUM, among_all(g, s, own));
  ends[n++] = put_rows(g, v, s->rows, all);
  if (!graph_error(g)) *done = shoal_group(g, ends, n, "rows");
}

/* The optimizer's state shared out over replicas.
 *
 * Of every variable, laid out flat, each replica has one piece to change: it gets the sum of that piece's gradients
 * (reduce-scatter), has slots for it alone, changes it, and all pieces are put together again in every replica
 * (all-gather). Both collectives are done for a bucket of gradients at a time: as a table of one row for each replica,
 * in which every variable has some columns. Each element is summed and changed as it would be in the whole variable, so
 * the bits are the same.
 *
 * The piece of the variable itself is there in a step only: the ops that apply gradients change variables, so it is
 * made one, and destroyed when it was read.
 *
 * Slots are pieces for savers (train/pieces.h), all of them the chief's business: it initialises, restores and saves
 * those of other tasks too, straight on their servers. What it gives another task is put beside the piece, and taken
 * from there by that task itself when it initialises its local variables: by then no step of an earlier session is
 * still changing the piece.
 *
 *   NAME/Adam             a node that keeps the name; the checkpoint has the whole slot under it
 *   NAME/Adam/piece_2     the slot of replica 2
 *   NAME/Adam/given_2     where the chief puts it, when replica 2 is in another task; empty once it was taken
 *
 * Where gradients are rows (embeddings) and the optimizer changes all rows in every step, as Adam does, a piece is so
 * many rows, and its gradient those of the gathered ones that fall into it. Under optimizers that change only the rows
 * of the gradient the variable is not put together from pieces: see shard_rows.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/device_name.h"
#include "graph/gradient.h"
#include "strategy/strategy.h"
#include "train/pieces.h"

/* ---- ranks ---- */

static int device_number(const char *name) {
  struct device_spec d;
  shoal_status e = device_spec_parse(name, &d);
  int id = e ? 0 : d.id;
  shoal_status_free(e);
  return id;
}

/* A replica's place in the order of devices, in which collectives have their members. */
static int rank_of(const struct shoal_strategy *s, int index) {
  int before = 0;
  for (int i = 0; i < s->local; i++) before += device_number(s->devices[i]) < device_number(s->devices[index]);
  return s->first + before;
}

int shard_rank(const struct shoal_replica *r) { return rank_of(r->strategy, r->index); }

static bool is_here(const struct shoal_strategy *s, int rank) { return rank >= s->first && rank < s->first + s->local; }

/* For the caller to free. */
static char *device_of(const struct shoal_strategy *s, int rank) {
  for (int i = 0; i < s->local; i++)
    if (rank_of(s, i) == rank) return mem_strdup(s->devices[i]);
  return mem_printf("%s/device:%s:%d", s->rules.tasks[rank / s->local], s->task_device.type,
                    s->task_device.id + rank % s->local);
}

/* ---- pieces ---- */

static int64_t columns_of(const struct shoal_strategy *s, int64_t elements) {
  return (elements + s->replicas - 1) / s->replicas;
}

static struct piece piece_at(shoal_var whole, int64_t columns, int rank) {
  int64_t all = variable_elements(whole), first = MIN(rank * columns, all);
  return (struct piece){out_shape(whole.value), first, MIN(columns, all - first)};
}

struct shoal_node *handle_alone(struct shoal_graph *g, const char *name, shoal_dtype dtype, const struct shape *shape) {
  struct build b = build_begin(g, "VarHandleOp", name);
  build_attr_type(&b, "dtype", dtype);
  build_attr_shape(&b, "shape", shape);
  struct shoal_node *n = build_end(&b);
  if (n) node_set_attr(n, "shared_name", attr_string(n->name, strlen(n->name)));
  return n;
}

void shard_name_piece(struct shoal_replica *r, shoal_var v, shoal_var rows, const struct shape *shape) {
  int64_t elements = 0;
  shoal_status_free(shape_elements(shape, &elements)); /* a part of a variable's: there is such a number */
  struct piece p = piece_at(v, elements, shard_rank(r));
  piece_set(rows, v.handle.node->name, "", &p, NULL);
}

static shoal_out shaped_list(struct shoal_graph *g, shoal_out list, const struct shape *shape) {
  return shape->rank == 1 ? list : flat_shaped(g, list, shape);
}

/* This replica's piece of a variable, as a variable of that shape; *ready is what has given it its value. */
static shoal_var own_piece(struct shoal_replica *r, shoal_var v, const struct shape *shape, struct shoal_node **ready) {
  struct shoal_graph *g = r->maker.g;
  shoal_dtype dtype = out_type(v.value);
  int64_t columns = 0;
  shoal_status_free(shape_elements(shape, &columns)); /* a part of a variable's: there is such a number */
  struct piece p = piece_at(v, columns, rank_of(r->strategy, r->index));
  char *name = mem_printf("%s/piece", v.handle.node->name);
  graph_push_scope_root(g);
  shoal_var piece = {.handle = node_out(handle_alone(g, name, dtype, shape), 0)};
  graph_pop_scope(g);
  free(name);
  piece_set(piece, v.handle.node->name, "", &p, NULL);
  shoal_out value = flat_pad(g, flat_part(g, flat_of(g, v.value), p.first, p.n), columns - p.n, 0);
  *ready = variable_update_op(g, "Assign", piece.handle, shaped_list(g, value, shape));
  graph_push_control(g, ready, 1);
  piece.value = flat_shaped(g, variable_read_op(g, piece.handle, dtype, NULL), shape);
  graph_pop_control(g);
  return piece;
}

/* ---- gradients ---- */

/* A variable's columns of the bucket's table. */
static shoal_out table_of(struct shoal_graph *g, const struct shoal_strategy *s, shoal_out values, int64_t elements) {
  int64_t columns = columns_of(s, elements);
  struct shape table = {.rank = 2, .dims = {s->replicas, columns}};
  return flat_shaped(g, flat_pad(g, flat_of(g, values), columns * s->replicas - elements, 0), &table);
}

static shoal_out after(struct shoal_graph *g, shoal_out x, struct shoal_node *first) {
  graph_push_control(g, &first, 1);
  shoal_out later = build_op1(g, "Identity", x);
  graph_pop_control(g);
  return later;
}

void shard_bucket(struct shoal_replica *r, const struct gradient_bucket *k, struct replica_gradients *all) {
  struct shoal_graph *g = r->maker.g;
  int n = (int)k->which.n;
  shoal_out *tables = mem_zalloc((size_t)n, sizeof *tables);
  struct shard_bucket kept = {.n = n, .which = mem_zalloc((size_t)n, sizeof *kept.which)};
  int64_t *columns = mem_zalloc((size_t)n, sizeof *columns);
  for (int i = 0; i < n; i++) {
    int at = kept.which[i] = k->which.at[i];
    columns[i] = columns_of(r->strategy, variable_elements(all->vars[at]));
    tables[i] = table_of(g, r->strategy, all->grads[at].values, variable_elements(all->vars[at]));
  }
  shoal_out own = scatter_member(g, r->strategy, r->key++, r->strategy->gradients, flat_join(g, tables, n, 1));
  struct shoal_node *pieces = cut_list(g, flat_of(g, own), columns, n, 0);
  for (int i = 0; pieces && i < n && !graph_error(g); i++) {
    struct shoal_node *ready;
    struct shape list = shape_vector(columns[i]);
    all->changed[kept.which[i]] = own_piece(r, all->vars[kept.which[i]], &list, &ready);
    all->grads[kept.which[i]].values = after(g, node_out(pieces, i), ready);
  }
  vec_push(&r->shards, kept);
  free(tables);
  free(columns);
}

/* Those of the rows that have numbers below `rows` once `first` is taken from them, in the order they stand in. */
static shoal_gradient rows_from(struct shoal_graph *g, shoal_gradient gr, int64_t first, int64_t rows) {
  shoal_dtype dtype = out_type(gr.indices);
  shoal_out at = build_op2(g, "Sub", gr.indices, build_const_int(g, dtype, first));
  shoal_out after_first = build_op2(g, "GreaterEqual", at, build_const_int(g, dtype, 0));
  shoal_out before_end = build_op2(g, "Less", at, build_const_int(g, dtype, rows));
  shoal_out which = flat_of(g, build_op1(g, "Where", build_op2(g, "LogicalAnd", after_first, before_end)));
  shoal_out axis = build_const_int(g, SHOAL_INT32, 0);
  gr.indices = build_op3(g, "GatherV2", at, which, axis);
  gr.values = build_op3(g, "GatherV2", gr.values, which, axis);
  return gr;
}

void shard_rows(struct shoal_replica *r, int which, struct replica_gradients *all) {
  struct shoal_graph *g = r->maker.g;
  struct shape shape = out_shape(all->vars[which].value);
  struct shoal_node *ready;
  struct shard_bucket kept = {.n = 1, .which = mem_zalloc(1, sizeof *kept.which)};
  kept.which[0] = which;
  vec_push(&r->shards, kept);
  shape.dims[0] = columns_of(r->strategy, shape.dims[0]);
  all->changed[which] = own_piece(r, all->vars[which], &shape, &ready);
  int64_t first = rank_of(r->strategy, r->index) * shape.dims[0];
  all->grads[which] = rows_from(g, all->grads[which], first, shape.dims[0]);
  all->grads[which].values = after(g, all->grads[which].values, ready);
}

/* ---- variables made whole ---- */

/* Gathering knows few types. */
static shoal_dtype gathered_as(shoal_dtype t) { return t == SHOAL_BFLOAT16 ? SHOAL_FLOAT32 : t; }

/* What became of a piece, which is no variable any more when *gone has run. */
static shoal_out take_piece(struct shoal_graph *g, shoal_var piece, struct shoal_node *done, struct shoal_node **gone) {
  graph_push_control(g, &done, 1);
  shoal_out value = variable_read_op(g, piece.handle, out_type(piece.value), NULL);
  graph_pop_control(g);
  struct build d = build_begin(g, "DestroyResourceOp", NULL);
  build_in(&d, piece.handle);
  build_control(&d, value.node);
  *gone = build_end(&d);
  if (out_shape(piece.value).rank != 1) value = flat_of(g, value);
  return build_cast(g, value, gathered_as(out_type(value)));
}

static struct shoal_node *assign_whole(struct shoal_graph *g, shoal_var v, shoal_out table, struct shoal_node *gone) {
  struct shape shape = out_shape(v.value);
  shoal_out list = flat_part(g, flat_of(g, table), 0, variable_elements(v));
  shoal_out value = build_cast(g, flat_shaped(g, list, &shape), out_type(v.value));
  graph_push_control(g, &gone, 1);
  struct shoal_node *assign = variable_update_op(g, "Assign", v.handle, value);
  graph_pop_control(g);
  return assign;
}

static void spread_bucket(struct shoal_replica *r, const struct shard_bucket *k, const shoal_var *vars,
                          const shoal_var *changed, struct shoal_node **done) {
  struct shoal_graph *g = r->maker.g;
  shoal_out *parts = mem_zalloc((size_t)k->n, sizeof *parts);
  struct shoal_node **gone = mem_zalloc((size_t)k->n, sizeof *gone);
  int64_t *columns = mem_zalloc((size_t)k->n, sizeof *columns);
  struct shape table = {.rank = 2, .dims = {r->strategy->replicas, 0}};
  for (int i = 0; i < k->n; i++) {
    int at = k->which[i];
    columns[i] = variable_elements(changed[at]);
    table.dims[1] += columns[i];
    parts[i] = take_piece(g, changed[at], done[at], &gone[i]);
  }
  shoal_out all = gather_member(g, r->strategy, r->key++, flat_join(g, parts, k->n, 0));
  struct shoal_node *tables = cut_list(g, flat_shaped(g, all, &table), columns, k->n, 1);
  for (int i = 0; tables && i < k->n; i++)
    done[k->which[i]] = assign_whole(g, vars[k->which[i]], node_out(tables, i), gone[i]);
  free(parts);
  free(gone);
  free(columns);
}

void shards_spread(struct variable_maker *m, const shoal_var *vars, const shoal_var *changed, struct shoal_node **done,
                   int n) {
  struct shoal_replica *r = (struct shoal_replica *)m;
  for (size_t i = 0; i < r->shards.n && !graph_error(m->g); i++)
    spread_bucket(r, &r->shards.at[i], vars, changed, done);
  for (size_t i = 0; i < r->rows.n && !graph_error(m->g); i++) {
    int at = r->rows.at[i].which;
    row_shard_spread(r, &r->rows.at[i], vars[at], changed[at], &done[at]);
  }
  shards_forget(r);
}

void shards_forget(struct shoal_replica *r) {
  for (size_t i = 0; i < r->shards.n; i++) free(r->shards.at[i].which);
  vec_release(&r->shards);
  vec_release(&r->rows);
}

/* ---- slots ---- */

/* One to be made: for all ranks that are this task's business. */
struct slot_set {
  struct shoal_graph *g;
  struct shoal_strategy *s;
  const struct shoal_node *name; /* begins with `under` and the variable's */
  const char *under;
  shoal_var whole;    /* the variable it belongs to */
  struct shape shape; /* of a piece */
  int64_t columns;    /* its elements */
  double fill;
};

static shoal_out filled(const struct slot_set *w) {
  return shoal_init_constant(w->g, out_type(w->whole.value), (shoal_dims){w->shape.rank, w->shape.dims}, w->fill);
}

static char *slot_name(const struct slot_set *w, const char *part, int rank) {
  return mem_printf("%s/%s_%d", w->name->name, part, rank);
}

/* Initialised, restored and saved as other variables are; a part's as the same part of the whole variable's slot. */
static void make_slot(const struct slot_set *w, const char *part, int rank, const struct shoal_node *live) {
  const struct shoal_node *whole = w->whole.handle.node;
  char *name = slot_name(w, part, rank);
  char *saved = mem_printf("%s%s%s", w->under, variable_save_name(w->whole),
                           w->name->name + strlen(w->under) + strlen(whole->name));
  struct piece p = piece_at(w->whole, w->columns, rank);
  piece_set(variable_make(w->g, name, filled(w), 0), saved, variable_save_slice(w->whole), &p, live);
  free(saved);
  free(name);
}

/* Of another task: the chief knows it by name, and has a place beside it. */
static void make_slot_there(const struct slot_set *w, int rank) {
  char *name = slot_name(w, "piece", rank);
  struct shoal_node *live = handle_alone(w->g, name, out_type(w->whole.value), &w->shape);
  free(name);
  make_slot(w, "given", rank, live);
}

/* Empties the place that the chief gave a value in. */
static struct shoal_node *empty(const struct slot_set *w, shoal_out given, struct shoal_node *after_this) {
  graph_push_control(w->g, &after_this, 1);
  struct shape none = w->shape;
  none.dims[0] = 0;
  shoal_out nothing = shoal_init_constant(w->g, out_type(w->whole.value), (shoal_dims){none.rank, none.dims}, 0);
  struct shoal_node *emptied = variable_update_op(w->g, "Assign", given, nothing);
  graph_pop_control(w->g);
  return emptied;
}

/* Of a task that is not the chief: taken from there, once the chief has sent something else. */
static void make_slot_taken(const struct slot_set *w, int rank) {
  struct shoal_graph *g = w->g;
  struct shoal_node *sent = initial_value(g, w->s, w->whole).node;
  char *place = slot_name(w, "given", rank), *name = slot_name(w, "piece", rank);
  shoal_out given = node_out(handle_alone(g, place, out_type(w->whole.value), &w->shape), 0);
  graph_push_control(g, &sent, 1);
  shoal_out value = flat_shaped(g, variable_read_op(g, given, out_type(w->whole.value), NULL), &w->shape);
  graph_pop_control(g);
  shoal_var slot = variable_make(g, name, value, VARIABLE_LOCAL);
  if (!graph_error(g)) vec_push(&w->s->emptied, empty(w, given, variable_initializer(g, slot)));
  free(place);
  free(name);
}

static void make_slots(const struct slot_set *w) {
  for (int rank = 0; rank < w->s->replicas; rank++) {
    bool here = is_here(w->s, rank);
    if (!here && strategy_receives(w->s)) continue;
    char *device = device_of(w->s, rank);
    graph_push_device(w->g, device);
    if (strategy_receives(w->s)) make_slot_taken(w, rank);
    else if (here) make_slot(w, "piece", rank, NULL);
    else make_slot_there(w, rank);
    graph_pop_device(w->g);
    free(device);
  }
}

/* The first replica makes the slots of all; it is the node that has their name. */
static struct shoal_node *begin_slots(struct shoal_replica *r, shoal_var piece, const struct shape *shape,
                                      const char *under, const char *slot, double fill) {
  struct shoal_graph *g = r->maker.g;
  int64_t columns = 0;
  shoal_status_free(shape_elements(shape, &columns)); /* a part of a variable's: there is such a number */
  char *name = mem_printf("%s%s/%s", under, variable_save_name(piece), slot);
  graph_push_control(g, NULL, -1);
  graph_push_scope_root(g);
  struct build b = build_begin(g, "NoOp", name);
  struct shoal_node *keeper = build_end(&b);
  struct slot_set w = {.g = g,
                       .s = r->strategy,
                       .name = keeper,
                       .under = under,
                       .whole = variable_find(g, variable_save_name(piece)),
                       .shape = *shape,
                       .columns = columns,
                       .fill = fill};
  if (keeper) make_slots(&w);
  graph_pop_scope(g);
  graph_pop_control(g);
  free(name);
  return keeper;
}

bool shards_slot(struct variable_maker *m, shoal_var v, const char *under, const char *name, double fill,
                 shoal_var *out) {
  struct shoal_replica *r = (struct shoal_replica *)m;
  struct piece p;
  *out = (shoal_var){0};
  if (!piece_get(v, &p)) return false;
  struct row_shard *of_rows = row_shard_of(r, v);
  struct shape shape = of_rows ? of_rows->piece : out_shape(v.value);
  if (!r->index) vec_push(&r->run->slots, begin_slots(r, v, &shape, under, name, fill));
  if (r->next_slot >= r->run->slots.n || graph_error(m->g)) {
    if (!graph_error(m->g)) graph_fail(m->g, INVALID("slot '%s': the first replica has no such one", name));
    return true;
  }
  char *own = mem_printf("%s/piece_%d", r->run->slots.at[r->next_slot++]->name, rank_of(r->strategy, r->index));
  *out = variable_find(m->g, own);
  if (of_rows) *out = row_shard_slot(r, of_rows, *out);
  free(own);
  return true;
}

void shards_taken(struct shoal_graph *g, struct shoal_strategy *s) {
  if (!s->emptied.n) return;
  graph_push_scope(g, "initial_values");
  graph_push_control(g, s->emptied.at, (int)s->emptied.n);
  strategy_push_device(g, s, 0);
  shoal_out yes = build_op1(g, "Identity", build_const_int(g, SHOAL_BOOL, 1));
  variable_make(g, "taken", yes, VARIABLE_LOCAL);
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  vec_clear(&s->emptied);
}

/* MetaGraphDefs; see meta_graph.h. Collections are found in the graph, which knows its variables by their nodes
 * (variables.h) and its summaries by their ops; there is no second list. The list of ops (stripped_op_list) is left
 * out: readers need it only for ops that have other attributes than theirs, and ours are TensorFlow's. */
#include "train/meta_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "checkpoint/slice.h"
#include "shoal/layers.h"
#include "train/train_session.h"
#include "train/variables.h"

static void put_out(struct text *t, uint32_t field, shoal_out o) {
  char *name = mem_printf("%s:%d", o.node->name, o.index);
  wire_put_str(t, field, name);
  free(name);
}

/* SaveSliceInfoDef: of which tensor in a checkpoint the variable is a part, and which. */
static void put_slice(struct text *t, shoal_var v) {
  const char *spec = variable_save_slice(v);
  struct shape full, part;
  struct slice slice;
  if (!*spec) return;
  shoal_status bad = slice_parse(spec, strlen(spec), &full, &slice, &part);
  if (!bad) {
    size_t at = wire_begin(t, 4);
    wire_put_str(t, 1, variable_save_name(v));
    for (int i = 0; i < full.rank; i++) wire_put_uint(t, 2, (uint64_t)full.dims[i]);
    for (int i = 0; i < full.rank; i++) wire_put_uint(t, 3, (uint64_t)MAX(slice.start[i], 0));
    for (int i = 0; i < full.rank; i++) wire_put_uint(t, 4, (uint64_t)part.dims[i]);
    wire_end(t, at);
  }
  shoal_status_free(bad);
}

static void put_variable(struct text *t, const struct shoal_graph *g, shoal_var v, bool trainable) {
  const struct shoal_node *init = variable_initializer(g, v);
  size_t at = wire_begin(t, 1);
  put_out(t, 1, v.handle);
  if (init) wire_put_str(t, 2, init->name);
  put_out(t, 3, v.value);
  put_slice(t, v);
  if (!variable_is_ref(v.handle)) wire_put_uint(t, 5, 1);
  if (init && init->n_in > 1) put_out(t, 6, init->in[1]);
  if (trainable) wire_put_uint(t, 7, 1);
  wire_end(t, at);
}

/* An entry of the map of collections. */
struct collection {
  size_t entry, value, list;
};

static struct collection begin(struct text *t, const char *key, uint32_t kind) {
  struct collection c;
  c.entry = wire_begin(t, 4);
  wire_put_str(t, 1, key);
  c.value = wire_begin(t, 2);
  c.list = wire_begin(t, kind);
  return c;
}

static void end(struct text *t, struct collection c) {
  wire_end(t, c.list);
  wire_end(t, c.value);
  wire_end(t, c.entry);
}

enum { NODES = 1, BYTES = 2 }; /* kinds of collections */

static bool among(shoal_var v, const shoal_var *vars, int n) {
  for (int i = 0; i < n; i++)
    if (vars[i].handle.node == v.handle.node) return true;
  return false;
}

static void put_variables(struct text *t, const struct shoal_graph *g, const char *key, const shoal_var *vars, int n,
                          const shoal_var *trainable, int n_trainable) {
  if (!n) return;
  struct collection c = begin(t, key, BYTES);
  for (int i = 0; i < n; i++) put_variable(t, g, vars[i], among(vars[i], trainable, n_trainable));
  end(t, c);
}

static void put_collections(struct text *t, const struct shoal_graph *g) {
  int all = shoal_variables(g, false, NULL, 0), trainable = shoal_variables(g, true, NULL, 0);
  int local = shoal_local_variables(g, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)(all + trainable + local) + 1, sizeof *vars);
  shoal_var *trained = vars + all, *locals = trained + trainable;
  shoal_variables(g, false, vars, all);
  shoal_variables(g, true, trained, trainable);
  shoal_local_variables(g, locals, local);
  put_variables(t, g, "variables", vars, all, trained, trainable);
  put_variables(t, g, "trainable_variables", trained, trainable, trained, trainable);
  put_variables(t, g, "local_variables", locals, local, NULL, 0);
  shoal_var step = variable_find(g, "global_step");
  if (step.handle.node) put_variables(t, g, "global_step", &step, 1, trained, trainable);
  free(vars);
  struct collection c = begin(t, "summaries", NODES);
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && node_is_summary(g->nodes.at[i])) put_out(t, 1, node_out(g->nodes.at[i], 0));
  end(t, c);
}

static void put_saver(struct text *t, const struct meta_saver *s) {
  enum { V2 = 2 };
  size_t at = wire_begin(t, 3);
  put_out(t, 1, s->filename);
  put_out(t, 2, s->save);
  wire_put_str(t, 3, s->restore->name);
  if (s->max_to_keep > 0) wire_put_uint(t, 4, (uint64_t)s->max_to_keep);
  wire_put_float(t, 6, (float)s->keep_every_hours);
  wire_put_uint(t, 7, V2);
  wire_end(t, at);
}

shoal_status meta_graph_encode(struct shoal_graph *g, const struct meta_saver *saver, struct text *out) {
  shoal_bytes def;
  TRY(shoal_graph_export(g, &def));
  wire_put_bytes(out, 2, def.data, def.size);
  shoal_bytes_free(&def);
  put_saver(out, saver);
  put_collections(out, g);
  return NULL;
}

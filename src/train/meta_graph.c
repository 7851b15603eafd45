/* MetaGraphDefs; see meta_graph.h. Collections are found in the graph, which knows its variables by their nodes
 * (variables.h) and its summaries by their ops; there is no second list. The list of ops (stripped_op_list) is left
 * out: readers need it only for ops that have other attributes than theirs, and ours are TensorFlow's. */
#include "train/meta_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "checkpoint/slice.h"
#include "proto/meta_graph.wire.h"
#include "shoal/layers.h"
#include "train/pieces.h"
#include "train/train_session.h"
#include "train/variables.h"

void meta_graph_put_out(struct text *t, uint32_t tag, shoal_out o) {
  char *name = mem_printf("%s:%d", o.node->name, o.index);
  wire_add_str(t, tag, name);
  free(name);
}

/* SaveSliceInfoDef: of which tensor in a checkpoint the variable is a part, and which. */
static void put_slice(struct text *t, shoal_var v) {
  const char *spec = variable_save_slice(v);
  struct shape full, part;
  struct slice slice;
  struct piece piece; /* of a slice: it is not what readers expect to find there */
  if (!*spec || piece_get(v, &piece)) return;
  shoal_status bad = slice_parse(spec, strlen(spec), &full, &slice, &part);
  if (!bad) {
    size_t at = begin_VariableDef_save_slice_info_def(t);
    put_SaveSliceInfoDef_full_name(t, variable_save_name(v));
    for (int i = 0; i < full.rank; i++) put_SaveSliceInfoDef_full_shape(t, full.dims[i]);
    for (int i = 0; i < full.rank; i++) put_SaveSliceInfoDef_var_offset(t, MAX(slice.start[i], 0));
    for (int i = 0; i < full.rank; i++) put_SaveSliceInfoDef_var_shape(t, part.dims[i]);
    wire_end(t, at);
  }
  shoal_status_free(bad);
}

static void put_variable(struct text *t, const struct shoal_graph *g, shoal_var v, bool trainable) {
  const struct shoal_node *init = variable_initializer(g, v);
  size_t at = wire_open(t, CollectionDef_BytesList_value);
  meta_graph_put_out(t, VariableDef_variable_name, v.handle);
  if (init) put_VariableDef_initializer_name(t, init->name);
  meta_graph_put_out(t, VariableDef_snapshot_name, v.value);
  put_slice(t, v);
  if (!variable_is_ref(v.handle)) put_VariableDef_is_resource(t, 1);
  if (init && init->n_in > 1) meta_graph_put_out(t, VariableDef_initial_value_name, init->in[1]);
  if (trainable) put_VariableDef_trainable(t, 1);
  wire_end(t, at);
}

/* An entry of the map of collections. */
struct collection {
  size_t entry, value, list;
};

static struct collection begin(struct text *t, const char *key, uint32_t kind) {
  struct collection c;
  c.entry = begin_MetaGraphDef_collection_def(t);
  put_MetaGraphDef_CollectionDefEntry_key(t, key);
  c.value = begin_MetaGraphDef_CollectionDefEntry_value(t);
  c.list = wire_open(t, kind);
  return c;
}

static void end(struct text *t, struct collection c) {
  wire_end(t, c.list);
  wire_end(t, c.value);
  wire_end(t, c.entry);
}

static bool among(shoal_var v, const shoal_var *vars, int n) {
  for (int i = 0; i < n; i++)
    if (vars[i].handle.node == v.handle.node) return true;
  return false;
}

static void put_variables(struct text *t, const struct shoal_graph *g, const char *key, const shoal_var *vars, int n,
                          const shoal_var *trainable, int n_trainable) {
  if (!n) return;
  struct collection c = begin(t, key, CollectionDef_bytes_list);
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
  struct collection c = begin(t, "summaries", CollectionDef_node_list);
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && node_is_summary(g->nodes.at[i]))
      meta_graph_put_out(t, CollectionDef_NodeList_value, node_out(g->nodes.at[i], 0));
  end(t, c);
}

static void put_saver(struct text *t, const struct meta_saver *s) {
  size_t at = begin_MetaGraphDef_saver_def(t);
  meta_graph_put_out(t, SaverDef_filename_tensor_name, s->filename);
  meta_graph_put_out(t, SaverDef_save_tensor_name, s->save);
  put_SaverDef_restore_op_name(t, s->restore->name);
  if (s->max_to_keep > 0) put_SaverDef_max_to_keep(t, s->max_to_keep);
  put_SaverDef_keep_checkpoint_every_n_hours(t, (float)s->keep_every_hours);
  put_SaverDef_version(t, SaverDef_CheckpointFormatVersion_V2);
  wire_end(t, at);
}

shoal_status meta_graph_encode(struct shoal_graph *g, const struct meta_saver *saver, struct text *out) {
  shoal_bytes def;
  TRY(shoal_graph_export(g, &def));
  put_MetaGraphDef_graph_def_n(out, def.data, def.size);
  shoal_bytes_free(&def);
  if (saver) put_saver(out, saver);
  put_collections(out, g);
  return NULL;
}

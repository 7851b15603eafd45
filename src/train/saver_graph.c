/* What a saver adds to the graph.
 *
 * Taking a snapshot assigns every variable's value to a second variable beside it. Both kinds of servers share the
 * buffer then, and copy it when the first variable is next changed: so the snapshot itself costs no copying, and needs
 * no op that TensorFlow's servers do not have. Keeping tensors by session handles was rejected: TensorFlow's
 * distributed workers have no session state.
 *
 * Writing and reading are there twice. Sharded: each task writes its own variables, and the master merges the indices
 * (the data files are renamed, not copied). Gathered: the values come to the master, which writes them. The saver
 * chooses when it knows who sees the directory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/bundle.h"
#include "base/device_name.h"
#include "train/saver.h"
#include "train/variables.h"

/* The task part of a device name. */
static void task_of(const char *device, char *out, size_t size) {
  struct device_spec spec;
  shoal_status s = device_spec_parse(device, &spec);
  if (s) {
    shoal_status_free(s);
    spec = (struct device_spec){0};
  }
  spec.has_type = spec.has_id = false;
  device_spec_print(&spec, out, size);
}

static void add_to_group(struct saver_nodes *s, int i) {
  char task[192];
  task_of(s->values[i].vars[0].handle.node->device, task, sizeof task);
  for (size_t k = 0; k < s->groups.n; k++)
    if (!strcmp(s->groups.at[k].device, task)) {
      vec_push(&s->groups.at[k].values, i);
      return;
    }
  struct saver_group fresh = {0};
  snprintf(fresh.device, sizeof fresh.device, "%s", task);
  vec_push(&s->groups, fresh);
  vec_push(&vec_last(&s->groups).values, i);
}

/* ---- pieces ---- */

/* Names and slices of values as two string vectors, for SaveV2 and RestoreV2. */
static void add_names(shoal_graph *g, const struct saver_nodes *s, const int *which, int n, bool before,
                      struct build *b) {
  const char **names = mem_zalloc((size_t)n + 1, sizeof *names), **slices = mem_zalloc((size_t)n + 1, sizeof *slices);
  for (int i = 0; i < n; i++) {
    names[i] = before ? saved_name_before(&s->values[which[i]]) : saved_name(&s->values[which[i]]);
    slices[i] = saved_slice(&s->values[which[i]]);
  }
  build_in(b, shoal_constant_strings(g, names, n));
  build_in(b, shoal_constant_strings(g, slices, n));
  free(names);
  free(slices);
}

static shoal_op *write_op(shoal_graph *g, const struct saver_nodes *s, shoal_out prefix, const int *which, int n,
                          const shoal_out *snaps) {
  struct build b = build_begin(g, "SaveV2", NULL);
  build_in(&b, prefix);
  add_names(g, s, which, n, false, &b);
  for (int i = 0; i < n; i++) build_in(&b, snaps[which[i]]);
  return build_end(&b);
}

/* Reads the values of `which` and assigns them; the assignments are pushed to out. before: from a checkpoint that has
 * stand-ins alone. */
static void read_ops(shoal_graph *g, const struct saver_nodes *s, const int *which, int n, bool before, shoal_op **out,
                     int *n_out) {
  shoal_dtype *types = mem_zalloc((size_t)n + 1, sizeof *types);
  for (int i = 0; i < n; i++) types[i] = out_type(s->values[which[i]].vars[0].value);
  struct build b = build_begin(g, "RestoreV2", NULL);
  build_in(&b, s->prefix);
  add_names(g, s, which, n, before, &b);
  build_attr_types(&b, "dtypes", types, n);
  struct shoal_node *values = build_end(&b);
  free(types);
  for (int i = 0; i < n && values; i++) {
    saved_assign(g, &s->values[which[i]], node_out(values, i), out + *n_out);
    *n_out += s->values[which[i]].n;
  }
}

/* ---- the snapshot ---- */

static shoal_out snapshot_of(shoal_graph *g, const struct saved_value *value, int i, shoal_op **take, shoal_op **drop) {
  shoal_var v = value->vars[i];
  struct shape shape = out_shape(v.value);
  graph_push_colocation(g, saved_home(g, value, i));
  struct build b = build_begin(g, "VarHandleOp", "snapshot");
  build_attr_type(&b, "dtype", out_type(v.value));
  build_attr_shape(&b, "shape", &shape);
  struct shoal_node *snap = build_end(&b);
  shoal_out kept = {0};
  *take = *drop = NULL;
  if (snap) {
    char *shared = mem_printf("%s/%s", snap->name, v.handle.node->name);
    node_set_attr(snap, "shared_name", attr_string(shared, strlen(shared)));
    free(shared);
    *take = shoal_variable_assign(g, (shoal_var){node_out(snap, 0), v.value}, saved_read(g, value, i));
    kept = variable_read_op(g, node_out(snap, 0), out_type(v.value), NULL);
    struct build d = build_begin(g, "DestroyResourceOp", NULL);
    build_in(&d, node_out(snap, 0));
    build_attr_bool(&d, "ignore_lookup_error", true);
    *drop = build_end(&d);
  }
  graph_pop_colocation(g);
  return kept;
}

static void build_snapshot(struct saver_nodes *s, shoal_graph *g, shoal_out *snaps) {
  shoal_op **take = mem_zalloc((size_t)s->n + 1, sizeof *take), **drop = mem_zalloc((size_t)s->n + 1, sizeof *drop);
  shoal_out *parts = mem_zalloc((size_t)s->n + 1, sizeof *parts);
  for (int k = 0, at = 0; k < s->n_values; at += s->values[k++].n) {
    for (int i = 0; i < s->values[k].n; i++) parts[i] = snapshot_of(g, &s->values[k], i, &take[at + i], &drop[at + i]);
    snaps[k] = saved_join(g, &s->values[k], parts);
  }
  s->take = shoal_group(g, take, s->n, "take");
  s->drop = shoal_group(g, drop, s->n, "drop");
  free(parts);
  free(take);
  free(drop);
}

/* ---- sharded and gathered ---- */

static bool any_stand_in(const struct saver_nodes *s) {
  for (int i = 0; i < s->n; i++)
    if (variable_stand_in(s->vars[i])) return true;
  return false;
}

/* Each task reads its own. */
static shoal_op *read_sharded(const struct saver_nodes *s, shoal_graph *g, bool before) {
  shoal_op **assigns = mem_zalloc((size_t)s->n + 1, sizeof *assigns);
  int n = 0;
  for (size_t k = 0; k < s->groups.n; k++) {
    graph_push_device(g, s->groups.at[k].device);
    read_ops(g, s, s->groups.at[k].values.at, (int)s->groups.at[k].values.n, before, assigns, &n);
    graph_pop_device(g);
  }
  shoal_op *all = shoal_group(g, assigns, n, "restore_shards");
  free(assigns);
  return all;
}

static void build_sharded(struct saver_nodes *s, shoal_graph *g, const shoal_out *snaps) {
  int shards = (int)s->groups.n;
  shoal_op **writes = mem_zalloc((size_t)shards + 1, sizeof *writes);
  shoal_out *names = mem_zalloc((size_t)shards + 1, sizeof *names);
  for (int k = 0; k < shards; k++) {
    struct saver_group *group = &s->groups.at[k];
    graph_push_device(g, group->device);
    names[k] = build_op3(g, "ShardedFilename", s->parts, build_const_int(g, SHOAL_INT32, k),
                         build_const_int(g, SHOAL_INT32, shards));
    writes[k] = write_op(g, s, names[k], group->values.at, (int)group->values.n, snaps);
    group->sees_files = build_op1(g, "MatchingFiles", s->pattern);
    graph_pop_device(g);
  }
  graph_push_control(g, writes, shards);
  struct build pack = build_begin(g, "Pack", NULL);
  build_in_list(&pack, names, shards);
  build_attr_int(&pack, "N", shards);
  shoal_out all = build_end_out(&pack);
  struct build merge = build_begin(g, "MergeV2Checkpoints", NULL);
  build_in(&merge, all);
  build_in(&merge, s->prefix);
  s->write_sharded = build_end(&merge);
  graph_pop_control(g);
  s->read_sharded = read_sharded(s, g, false);
  if (any_stand_in(s)) s->read_sharded_before = read_sharded(s, g, true);
  free(writes);
  free(names);
}

static shoal_op *read_gathered(const struct saver_nodes *s, shoal_graph *g, const int *all, bool before) {
  shoal_op **assigns = mem_zalloc((size_t)s->n + 1, sizeof *assigns);
  int n = 0;
  read_ops(g, s, all, s->n_values, before, assigns, &n);
  shoal_op *done = shoal_group(g, assigns, n, "restore_all");
  free(assigns);
  return done;
}

static void build_gathered(struct saver_nodes *s, shoal_graph *g, const shoal_out *snaps) {
  int *all = mem_zalloc((size_t)s->n_values + 1, sizeof *all);
  for (int i = 0; i < s->n_values; i++) all[i] = i;
  s->write_gathered = write_op(g, s, s->prefix, all, s->n_values, snaps);
  s->read_gathered = read_gathered(s, g, all, false);
  if (any_stand_in(s)) s->read_gathered_before = read_gathered(s, g, all, true);
  free(all);
}

/* Saving in one op, without a snapshot: what programs do that have taken the graph from PREFIX.meta. */
static void build_plain(struct saver_nodes *s, shoal_graph *g) {
  int *all = mem_zalloc((size_t)s->n_values + 1, sizeof *all);
  shoal_out *values = mem_zalloc((size_t)s->n_values + 1, sizeof *values);
  for (int i = 0; i < s->n_values; i++) {
    all[i] = i;
    values[i] = saved_now(g, &s->values[i]);
  }
  shoal_op *written = write_op(g, s, s->prefix, all, s->n_values, values);
  graph_push_control(g, &written, 1);
  struct build b = build_begin(g, "Identity", "control_dependency");
  build_in(&b, s->prefix);
  s->saved = build_end_out(&b);
  graph_pop_control(g);
  free(all);
  free(values);
}

void saver_nodes_build(struct saver_nodes *s, shoal_graph *g, const shoal_var *vars, int n) {
  *s = (struct saver_nodes){.n = vars ? n : shoal_variables(g, false, NULL, 0)};
  s->vars = mem_zalloc((size_t)s->n + 1, sizeof *s->vars);
  if (vars) memcpy(s->vars, vars, (size_t)n * sizeof *vars);
  else shoal_variables(g, false, s->vars, s->n);
  if (!s->n) graph_fail(g, INVALID("No variables to save"));
  if (graph_error(g)) return;
  s->values = mem_zalloc((size_t)s->n + 1, sizeof *s->values);
  s->n_values = saved_values(g, s->vars, s->n, s->values);
  for (int i = 0; i < s->n_values; i++) {
    shoal_dtype dtype = out_type(s->values[i].vars[0].value);
    struct shape shape = saved_shape(&s->values[i]);
    int64_t elements;
    size_t bytes = 0;
    if (shape_known(&shape)) shoal_status_free(tensor_bytes_for(dtype, &shape, &elements, &bytes));
    s->bytes += (int64_t)bytes;
    add_to_group(s, i);
  }
  graph_push_scope(g, "save");
  graph_push_control(g, NULL, -1);
  graph_push_device(g, ""); /* what is not colocated is the master's */
  s->prefix = shoal_placeholder(g, SHOAL_STRING, SHOAL_SCALAR, "prefix");
  s->parts = shoal_placeholder(g, SHOAL_STRING, SHOAL_SCALAR, "parts");
  s->pattern = shoal_placeholder(g, SHOAL_STRING, SHOAL_SCALAR, "pattern");
  shoal_out *snaps = mem_zalloc((size_t)s->n_values + 1, sizeof *snaps);
  build_snapshot(s, g, snaps);
  build_sharded(s, g, snaps);
  build_gathered(s, g, snaps);
  build_plain(s, g);
  free(snaps);
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
}

void saver_nodes_release(struct saver_nodes *s) {
  for (size_t i = 0; i < s->groups.n; i++) vec_release(&s->groups.at[i].values);
  vec_release(&s->groups);
  free(s->values);
  free(s->vars);
}

/* ---- is it a checkpoint of this model? ---- */

/* The shape of the whole tensor that a value is, or is a slice of. */
static shoal_status full_shape(const struct saved_value *v, struct shape *out) {
  const char *spec = saved_slice(v);
  struct slice slice;
  struct shape part;
  *out = saved_shape(v);
  return *spec ? slice_parse(spec, strlen(spec), out, &slice, &part) : NULL;
}

static shoal_status compare(const struct bundle *b, const struct saved_value *v, struct text *wrong) {
  const char *name = saved_name(v);
  shoal_dtype dtype = out_type(v->vars[0].value);
  struct shape want;
  TRY(full_shape(v, &want));
  struct bundle_entry e;
  shoal_status s = bundle_find(b, name, strlen(name), &e);
  if (shoal_status_code(s) == SHOAL_NOT_FOUND && strcmp(name, saved_name_before(v)) != 0) {
    shoal_status_free(s);
    name = saved_name_before(v);
    s = bundle_find(b, name, strlen(name), &e);
  }
  if (shoal_status_code(s) == SHOAL_NOT_FOUND) {
    shoal_status_free(s);
    text_addf(wrong, "\n  %s: %s %s, not in the checkpoint", name, dtype_tf_name(dtype), shape_str(&want));
    return NULL;
  }
  TRY(s);
  if (e.dtype != dtype || !shape_compatible(&e.shape, &want))
    text_addf(wrong, "\n  %s: %s %s, in the checkpoint %s %s", name, dtype_tf_name(dtype), shape_str(&want),
              dtype_tf_name(e.dtype), shape_str(&e.shape));
  bundle_entry_release(&e);
  return NULL;
}

/* What the checkpoint holds and the model does not know: most likely the other half of a renaming. */
static void list_unknown(const struct saver_nodes *s, const struct bundle *b, struct text *out) {
  enum { SHOWN = 20 };
  struct strmap known = {0};
  for (int i = 0; i < s->n; i++) strmap_put(&known, variable_save_name(s->vars[i]), (void *)1);
  int n = 0;
  for (size_t i = 0; i < b->items.n; i++) {
    const struct bundle_item *it = &b->items.at[i];
    if (memchr(it->key, 0, it->key_n) || strmap_getn(&known, it->key, it->key_n)) continue; /* NUL: a slice's key */
    struct bundle_entry e;
    if (n++ >= SHOWN) continue;
    shoal_status err = bundle_find(b, it->key, it->key_n, &e);
    if (err) {
      shoal_status_free(err);
      continue;
    }
    text_addf(out, "\n  %.*s: %s %s", (int)it->key_n, it->key, dtype_tf_name(e.dtype), shape_str(&e.shape));
    bundle_entry_release(&e);
  }
  if (n > SHOWN) text_addf(out, "\n  and %d more", n - SHOWN);
  strmap_release(&known);
}

shoal_status saver_check_model(const struct saver_nodes *s, const char *prefix) {
  struct bundle b;
  shoal_status e = bundle_open(&b, prefix);
  if (shoal_status_code(e) == SHOAL_NOT_FOUND) { /* the first format, or a disk of the servers': they will tell */
    shoal_status_free(e);
    return NULL;
  }
  TRY(e);
  struct text wrong = {0}, unknown = {0};
  for (int i = 0; i < s->n_values && !e; i++) e = compare(&b, &s->values[i], &wrong);
  if (!e && wrong.n) {
    list_unknown(s, &b, &unknown);
    e = INVALID(
        "checkpoint %s is of another model: give another folder, or make the model as it was. What the model "
        "has:%s%s%s",
        prefix, text_cstr(&wrong), unknown.n ? "\nWhat the checkpoint has besides:" : "", text_cstr(&unknown));
  }
  text_release(&wrong);
  text_release(&unknown);
  bundle_close(&b);
  return e;
}

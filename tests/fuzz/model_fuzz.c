/* A whole SavedModel from anyone: it is outlined as `shoal saved_model show` does, loaded, asked, frozen, or refused.
 *
 *   u32 size, saved_model.pb   u32 size, variables/variables.index   variables/variables.data-00000-of-00001
 *
 * Only models of the ops below are run. What an op makes of hostile arguments is for the op harness; here it is
 * functions, objects, the checkpoint and signatures, and among others there are ops whose work has no bound. Files are
 * confined to the model's folder, and a step to two seconds. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_root.h"
#include "fuzz_file.h"
#include "saved_model/outline.h"
#include "saved_model/structured.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char allowed[] =
    " AddV2 Assign AssignVariableOp BiasAdd Const DisableCopyOnRead HashTableV2 Identity IdentityN LookupTableFindV2 "
    "LookupTableImportV2 MatMul MergeV2Checkpoints Mul NoOp Pack PartitionedCall Placeholder PlaceholderWithDefault "
    "ReadVariableOp Relu RestoreV2 SaveV2 Select ShardedFilename Softmax StatefulPartitionedCall StaticRegexFullMatch "
    "StringJoin Sub VarHandleOp VarIsInitializedOp VariableV2 ";

static bool is_allowed(const char *op) {
  char *word = mem_printf(" %s ", op);
  bool is = !strchr(op, ' ') && strstr(allowed, word);
  free(word);
  return is;
}

/* All arguments of all functions, as text. */
static void show(const struct outline *o) {
  struct text lines = {0};
  for (size_t i = 0; i < o->functions.n; i++)
    for (size_t k = 0; k < o->functions.at[i].forms.n; k++) {
      structured_list both = structured_items(o->functions.at[i].forms.at[k]);
      for (size_t j = 0; j < both.n; j++) structured_add(&lines, both.at[j].value, 2);
      vec_release(&both);
      lines.n = 0;
    }
  text_release(&lines);
}

/* Outlines every graph; true: the one to be served has no other ops. */
static bool outline(const char *dir) {
  struct meta_file f;
  const struct meta_model *serve = NULL;
  shoal_status s = meta_file_read(&f, dir);
  if (!s) s = meta_file_find(&f, dir, "serve", &serve);
  bool runs = false;
  for (size_t i = 0; i < f.models.n && !s; i++) {
    struct outline o;
    s = outline_read(&o, &f.models.at[i]);
    if (!s) show(&o);
    if (&f.models.at[i] == serve) {
      runs = !s;
      for (size_t k = 0; k < o.ops.n; k++) runs = runs && is_allowed(o.ops.at[k]);
    }
    outline_release(&o);
  }
  shoal_status_free(s);
  meta_file_release(&f);
  return runs;
}

/* A small value of an input's type and shape; NULL: there is none. */
static shoal_tensor *small_value(const shoal_signature_value *v) {
  int64_t dims[SHOAL_MAX_RANK], n = 1;
  shoal_tensor *t = NULL;
  for (int i = 0; i < v->rank; i++) {
    dims[i] = v->dims[i] < 0 ? 2 : v->dims[i];
    if (dims[i] > 4096 || (n *= dims[i]) > 4096) return NULL;
  }
  if (!shoal_dtype_name(v->dtype) || (int)v->dtype > 100 || v->dtype == SHOAL_RESOURCE || v->dtype == SHOAL_VARIANT)
    return NULL;
  shoal_status_free(shoal_tensor_new(v->dtype, v->rank < 0 ? 0 : v->rank, dims, &t));
  return t;
}

enum { MOST_VALUES = 16 };

static void ask(const shoal_saved_model *m, const shoal_signature *s) {
  const char *in_keys[MOST_VALUES], *out_keys[MOST_VALUES];
  shoal_tensor *in[MOST_VALUES] = {0}, *out[MOST_VALUES] = {0};
  bool small = s->n_inputs <= MOST_VALUES && s->n_outputs <= MOST_VALUES;
  for (int i = 0; i < s->n_inputs && small; i++) {
    in_keys[i] = s->inputs[i]->key;
    in[i] = small_value(s->inputs[i]);
    small = in[i] != NULL;
  }
  for (int i = 0; i < s->n_outputs && small; i++) out_keys[i] = s->outputs[i]->key;
  if (small) shoal_status_free(shoal_saved_model_run(m, s->key, in_keys, in, s->n_inputs, out_keys, out, s->n_outputs));
  for (int i = 0; i < MOST_VALUES; i++) {
    shoal_tensor_unref(in[i]);
    shoal_tensor_unref(out[i]);
  }
}

static void use(const char *dir) {
  shoal_saved_model *m = NULL;
  shoal_graph *frozen = NULL;
  shoal_status s = shoal_saved_model_load(
      dir, NULL,
      SHOAL_OPTIONS(shoal_session_options, .inter_op_threads = 1, .intra_op_threads = 1, .operation_timeout_ms = 2000),
      &m);
  const shoal_signature *signature;
  for (int i = 0; !s && i < 4 && (signature = shoal_saved_model_signature_at(m, i)); i++) {
    ask(m, signature);
    shoal_status e = shoal_saved_model_freeze(m, signature->key, &frozen);
    if (!e) shoal_graph_free(frozen);
    shoal_status_free(e);
  }
  shoal_status_free(s);
  shoal_saved_model_free(m);
}

static size_t take(const uint8_t **data, size_t *left, const char *path, bool rest) {
  size_t n = *left;
  if (!rest) {
    if (*left < 4) return 0;
    n = (size_t)(*data)[0] | (size_t)(*data)[1] << 8 | (size_t)(*data)[2] << 16 | (size_t)(*data)[3] << 24;
    *data += 4, *left -= 4;
    if (n > *left) n = *left;
  }
  fuzz_put(path, *data, n);
  *data += n, *left -= n;
  return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char dir[80], variables[96], file[96], index[128], values[128];
  static struct file_roots *roots;
  if (!dir[0]) {
    snprintf(dir, sizeof dir, "%s", fuzz_path("model_fuzz"));
    snprintf(variables, sizeof variables, "%s/variables", dir);
    snprintf(file, sizeof file, "%s/saved_model.pb", dir);
    snprintf(index, sizeof index, "%s/variables.index", variables);
    snprintf(values, sizeof values, "%s/variables.data-00000-of-00001", variables);
    mkdir(dir, 0700);
    if (file_roots_new(dir, &roots)) abort();
  }
  mkdir(variables, 0700); /* again: the model may have removed it */
  take(&data, &size, file, false);
  take(&data, &size, index, false);
  take(&data, &size, values, true);
  const struct file_roots *before = file_roots_use(roots);
  if (outline(dir)) use(dir);
  file_roots_use(before);
  return 0;
}

#include "word2vec/projector.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/bundle.h"
#include "checkpoint/state.h"

static const char rows_name[] = "word2vec/embeddings";

/* Rows without what they are filled up with. */
static shoal_status add_rows(struct bundle_writer *w, const char *name, const float *rows, size_t n,
                             const struct word_model *m) {
  if (!rows) return NULL;
  struct tensor t;
  TRY(tensor_new_dims(&t, SHOAL_FLOAT32, 2, (int64_t[]){(int64_t)n, (int64_t)m->width}));
  for (size_t i = 0; i < n; i++) memcpy((float *)t.data + i * m->width, rows + i * m->stride, m->width * sizeof *rows);
  shoal_status s = bundle_writer_add(w, name, strlen(name), &t);
  tensor_release(&t);
  return s;
}

static shoal_status add_words(struct bundle_writer *w, const struct words *words) {
  struct tensor t;
  bool all = true;
  TRY(tensor_new_dims(&t, SHOAL_STRING, 1, (int64_t[]){(int64_t)words->n}));
  for (size_t i = 0; i < words->n && all; i++)
    all = str_try_set((struct str *)t.data + i, word_text(words, i), words->at[i].n);
  static const char name[] = "word2vec/words";
  shoal_status s = all ? bundle_writer_add(w, name, strlen(name), &t) : NO_MEMORY(words->used, "words");
  tensor_release(&t);
  return s;
}

static shoal_status write_bundle(const char *prefix, const struct words *words, const struct word_model *m) {
  struct bundle_writer w;
  TRY(bundle_writer_open(&w, prefix));
  shoal_status s = add_rows(&w, rows_name, m->in, words->n, m);
  if (!s) s = add_rows(&w, "word2vec/nodes", m->nodes, words->n, m);
  if (!s) s = add_rows(&w, "word2vec/output", m->out, words->n, m);
  if (!s) s = add_words(&w, words);
  if (!s) return bundle_writer_finish(&w);
  bundle_writer_abort(&w);
  return s;
}

static shoal_status write_metadata(const char *folder, const struct words *words) {
  struct text t = {0};
  for (size_t i = 0; i < words->n; i++) {
    text_add_utf8(&t, word_text(words, i), words->at[i].n);
    text_addc(&t, '\n');
  }
  char *path = mem_printf("%s/metadata.tsv", folder);
  shoal_status s = file_write(path, t.at, t.n);
  free(path);
  text_release(&t);
  return s;
}

static shoal_status write_config(const char *folder) {
  char *path = mem_printf("%s/projector_config.pbtxt", folder);
  char *config = mem_printf("embeddings {\n  tensor_name: \"%s\"\n  metadata_path: \"metadata.tsv\"\n}\n", rows_name);
  shoal_status s = file_write(path, config, strlen(config));
  free(config);
  free(path);
  return s;
}

static shoal_status write_state(const char *folder) {
  struct checkpoint_state state = {.latest = mem_strdup("model.ckpt")};
  vec_push(&state.all, mem_strdup("model.ckpt"));
  shoal_status s = checkpoint_state_write(folder, NULL, &state);
  checkpoint_state_release(&state);
  return s;
}

shoal_status projector_save(const char *folder, const struct word_vocabulary *v, const struct word_model *m) {
  TRY(directory_make(folder));
  char *prefix = mem_printf("%s/model.ckpt", folder);
  shoal_status s = write_bundle(prefix, &v->words, m);
  free(prefix);
  if (!s) s = write_metadata(folder, &v->words);
  if (!s) s = write_config(folder);
  return s ? s : write_state(folder);
}

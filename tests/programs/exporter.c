/* Writes a SavedModel with a variable, a table that a file fills, and four signatures; or asks one.
 *
 *   exporter save DIR VOCABULARY     words -> their numbers, and the rows of a matrix that these name
 *   exporter save_ref DIR VOCABULARY     the same with a variable of TensorFlow 1's kind
 *   exporter save_as DIR VOCABULARY KEY  the same with an input of that key in the place of "by"
 *   exporter save_constant DIR VOCABULARY KEY      no variable: the table, a constant, and an output that is an input
 *   exporter ask DIR WORD...         prints number and row of each word, by the signature */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal/ops.h>
#include <shoal/shoal.h>

static void check(shoal_status s) {
  if (!s) return;
  shoal_status_print(s);
  exit(1);
}

/* factor: the key of an input. */
static int save(const char *dir, const char *vocabulary, bool ref, const char *factor) {
  shoal_graph *g = shoal_graph_new();
  shoal_use_ref_variables(g, ref);
  shoal_out words = shoal_placeholder(g, SHOAL_STRING, SHOAL_SHAPE(-1), "words");
  shoal_out file = shoal_constant_string(g, vocabulary);
  shoal_out table = shoal_hash_table_v2(g, SHOAL_STRING, SHOAL_INT64);
  shoal_op *fill = shoal_initialize_table_from_text_file_v2(g, table, file, -2, -1); /* a line is a word; its number */
  shoal_out numbers = shoal_lookup_table_find_v2(g, table, words, shoal_constant_int64(g, 0));
  shoal_var rows = shoal_variable(
      g, "rows", shoal_constant_floats(g, SHOAL_SHAPE(4, 2), (const float[]){0, 1, 10, 11, 20, 21, 30, 31}));
  shoal_out found = shoal_gather_v2(g, rows.value, numbers, shoal_constant_int(g, 0));
  shoal_out by = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(2), "by");
  shoal_out product = shoal_mul(g, found, by), again = shoal_identity(g, by), same = shoal_identity(g, words);
  shoal_op *init = shoal_initialize(g);
  if (shoal_graph_error(g)) return shoal_report(g);
  shoal_session *s;
  check(shoal_session_open(g, NULL, &s));
  check(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  const shoal_export_value in[] = {{"words", words}}, out[] = {{"numbers", numbers}, {"rows", found}};
  const shoal_export_value two[] = {{"words", words}, {factor, by}}, times[] = {{"times", product}, {"Again!", again}};
  const shoal_export_value echo[] = {{"words", same}};
  const shoal_export_signature signatures[] = {{NULL, NULL, in, out, 1, 2},
                                               {"number", "own/method", in, out, 1, 1},
                                               {"times", NULL, two, times, 2, 2},
                                               {"echo", NULL, in, echo, 1, 1}};
  const shoal_export_asset asset = {vocabulary, file};
  check(shoal_saved_model_save(g, s, dir,
                               SHOAL_OPTIONS(shoal_export_options, .signatures = signatures, .n_signatures = 4,
                                             .assets = &asset, .n_assets = 1, .main_op = fill)));
  check(shoal_session_close(s));
  shoal_graph_free(g);
  return 0;
}

/* key: of all inputs. */
static int save_constant(const char *dir, const char *vocabulary, const char *key) {
  shoal_graph *g = shoal_graph_new();
  shoal_out words = shoal_placeholder(g, SHOAL_STRING, SHOAL_SHAPE(-1), "words");
  shoal_out file = shoal_constant_string(g, vocabulary);
  shoal_out table = shoal_hash_table_v2(g, SHOAL_STRING, SHOAL_INT64);
  shoal_op *fill = shoal_initialize_table_from_text_file_v2(g, table, file, -2, -1);
  shoal_out numbers = shoal_lookup_table_find_v2(g, table, words, shoal_constant_int64(g, 0));
  shoal_out pair = shoal_constant_floats(g, SHOAL_SHAPE(2), (const float[]){1, 2});
  if (shoal_graph_error(g)) return shoal_report(g);
  shoal_session *s;
  check(shoal_session_open(g, NULL, &s));
  const shoal_export_value in[] = {{key, words}}, out[] = {{"numbers", numbers}, {"same", words}};
  const shoal_export_value same[] = {{"same", words}}, constant[] = {{"pair", pair}};
  const shoal_export_signature signatures[] = {
      {NULL, NULL, in, out, 1, 2}, {"same", NULL, in, same, 1, 1}, {"constant", NULL, NULL, constant, 0, 1}};
  const shoal_export_asset asset = {vocabulary, file};
  check(shoal_saved_model_save(g, s, dir,
                               SHOAL_OPTIONS(shoal_export_options, .signatures = signatures, .n_signatures = 3,
                                             .assets = &asset, .n_assets = 1, .main_op = fill)));
  check(shoal_session_close(s));
  shoal_graph_free(g);
  return 0;
}

static int ask(const char *dir, char **words, int n) {
  shoal_saved_model *m;
  check(shoal_saved_model_load(dir, NULL, NULL, &m));
  shoal_tensor *in, *out[2];
  check(shoal_tensor_new(SHOAL_STRING, 1, (const int64_t[]){n}, &in));
  for (int i = 0; i < n; i++) check(shoal_tensor_set_string(in, i, words[i], strlen(words[i])));
  check(shoal_saved_model_run(m, NULL, (const char *[]){"words"}, &in, 1, (const char *[]){"rows", "numbers"}, out, 2));
  const float *row = shoal_tensor_const_data(out[0]);
  const int64_t *number = shoal_tensor_const_data(out[1]);
  for (int i = 0; i < n; i++)
    printf("%s %lld %g %g\n", words[i], (long long)number[i], (double)row[2 * i], (double)row[2 * i + 1]);
  for (int i = 0; i < 2; i++) shoal_tensor_unref(out[i]);
  shoal_tensor_unref(in);
  shoal_saved_model_free(m);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "save")) return save(argv[2], argv[3], false, "by");
  if (argc == 4 && !strcmp(argv[1], "save_ref")) return save(argv[2], argv[3], true, "by");
  if (argc == 5 && !strcmp(argv[1], "save_as")) return save(argv[2], argv[3], false, argv[4]);
  if (argc == 5 && !strcmp(argv[1], "save_constant")) return save_constant(argv[2], argv[3], argv[4]);
  if (argc > 3 && !strcmp(argv[1], "ask")) return ask(argv[2], argv + 3, argc - 3);
  fprintf(stderr, "usage: exporter save DIR VOCABULARY | exporter ask DIR WORD...\n");
  return 2;
}

/* `shoal saved_model run|freeze`: what saved_model_cli and freeze_graph do, in the words of the former; `show` is in
 * saved_model_show.c. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/literal.h"
#include "cli/saved_model.h"
#include "data/npy.h"
#include "saved_model/meta.h"
#include "serving/json_examples.h"
#include "serving/json_tensor.h"
#include "tensor/numpy_text.h"

int saved_model_usage(const char *what, const char *usage) {
  fprintf(stderr, "shoal: saved_model: %s; usage: %s\n", what, usage);
  return EXIT_USAGE;
}

/* ---- run ---- */

struct model_inputs {
  VEC(char *) keys;
  VEC(shoal_tensor *) values;
};

static void inputs_release(struct model_inputs *in) {
  for (size_t i = 0; i < in->keys.n; i++) free(in->keys.at[i]);
  for (size_t i = 0; i < in->values.n; i++) shoal_tensor_unref(in->values.at[i]);
  vec_release(&in->keys);
  vec_release(&in->values);
}

/* FILE.npy, FILE.npz[NAME], or FILE.npz of one array; path is changed. */
static shoal_status read_array(char *path, struct tensor *out) {
  char *bracket = strchr(path, '['), *name = NULL;
  if (bracket && path[strlen(path) - 1] == ']') {
    path[strlen(path) - 1] = 0;
    *bracket = 0;
    name = bracket + 1;
  }
  return name || str_ends(path, ".npz") ? npz_read(path, name, out) : npy_read(path, out);
}

/* The newest of a key counts, as in saved_model_cli: files, then expressions, then Examples. */
static void give_input(struct model_inputs *in, char *key, struct tensor *t) {
  shoal_tensor *value = tensor_handle_take(t);
  for (size_t i = 0; i < in->keys.n; i++)
    if (!strcmp(in->keys.at[i], key)) {
      fprintf(stderr, "input '%s' is given more than once: the last one counts\n", key);
      shoal_tensor_unref(in->values.at[i]);
      in->values.at[i] = value;
      free(key);
      return;
    }
  vec_push(&in->keys, key);
  vec_push(&in->values, value);
}

/* "key=FILE.npy" */
static shoal_status add_input(struct model_inputs *in, const char *at, size_t n) {
  const char *equals = memchr(at, '=', n);
  if (!equals || equals == at || equals + 1 == at + n)
    return INVALID("--inputs: \"%.*s\" makes no sense; KEY=FILE.npy or KEY=FILE.npz[NAME] is expected", (int)n, at);
  char *path = mem_strndup(equals + 1, (size_t)(at + n - equals - 1));
  struct tensor t;
  shoal_status s = read_array(path, &t);
  free(path);
  if (s) return s;
  give_input(in, mem_strndup(at, (size_t)(equals - at)), &t);
  return NULL;
}

static shoal_status read_inputs(struct model_inputs *in, const char *list) {
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, ";");
    if (n) TRY(add_input(in, at, n));
    at += n + (at[n] == ';');
  }
  return NULL;
}

static shoal_status find_input(const shoal_signature *s, const char *key, shoal_dtype *dtype) {
  struct text there = {0};
  for (int i = 0; i < s->n_inputs; i++) {
    if (!strcmp(s->inputs[i]->key, key)) {
      *dtype = s->inputs[i]->dtype;
      text_release(&there);
      return NULL;
    }
    text_addf(&there, "%s'%s'", i ? ", " : "", s->inputs[i]->key);
  }
  shoal_status e = INVALID("signature '%s' has no input '%s'; it has: %s", s->key, key, text_cstr(&there));
  text_release(&there);
  return e;
}

static shoal_status read_expression(const struct text *json, shoal_dtype dtype, struct tensor *out) {
  const struct unpack_room room = {0};
  TRY(json_check(json->at, json->n));
  return json_read_tensor(json_first(json->at), json->n, dtype, &room, out);
}

/* A list of dictionaries, each an Example of features that are lists. */
static shoal_status read_examples(const struct text *json, struct tensor *out) {
  const struct unpack_room room = {0};
  struct text document = {0};
  shoal_tensor *examples;
  text_addf(&document, "{\"examples\": %s}", text_cstr(json));
  shoal_status s = json_check(document.at, document.n);
  if (!s) s = json_read_examples(json_first(document.at), &room, &examples);
  if (!s) {
    tensor_ref(out, &examples->t);
    shoal_tensor_unref(examples);
  }
  text_release(&document);
  return s;
}

/* "key=[[1, 2]];key=np.ones((2, 3))", as saved_model_cli has them. */
static shoal_status add_literals(struct model_inputs *in, const shoal_signature *s, const char *flag, const char *list,
                                 bool examples) {
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, "=");
    if (!n || !at[n]) return INVALID("--%s: \"%s\" makes no sense; KEY=VALUE is expected", flag, at);
    char *key = mem_strndup(at, n);
    struct text json = {0};
    struct tensor t;
    shoal_dtype dtype = SHOAL_DT_INVALID;
    at += n + 1;
    shoal_status e = find_input(s, key, &dtype);
    if (!e) e = literal_to_json(&at, &json);
    if (!e && *at && *at != ';') e = INVALID("what is \"%.40s\" behind the value?", at);
    if (!e) e = examples ? read_examples(&json, &t) : read_expression(&json, dtype, &t);
    text_release(&json);
    if (e) {
      e = status_prefix(e, "--%s: %s: ", flag, key);
      free(key);
      return e;
    }
    give_input(in, key, &t);
    at += *at == ';';
  }
  return NULL;
}

struct model_outputs {
  const char *dir; /* NULL: they are printed alone */
  bool overwrite;
};

static shoal_status keep(const struct model_outputs *o, const char *key, const shoal_tensor *t) {
  if (!o->dir) return NULL;
  if (strchr(key, '/')) return INVALID("output '%s' cannot be the name of a file", key);
  TRY(directory_make(o->dir));
  char *path = mem_printf("%s/%s.npy", o->dir, key);
  shoal_status s = !o->overwrite && file_exists(path)
                       ? STATUS(SHOAL_ALREADY_EXISTS, "%s is there already; --overwrite writes over it", path)
                       : npy_write(path, &t->t);
  if (!s) printf("Output %s is saved to %s\n", key, path);
  free(path);
  return s;
}

static shoal_status print_output(const struct model_outputs *o, const char *key, const shoal_tensor *t) {
  struct text text = {0};
  numpy_print(&t->t, &text);
  printf("Result for output key %s:\n%s\n", key, text_cstr(&text));
  text_release(&text);
  return keep(o, key, t);
}

static shoal_status ask(const shoal_saved_model *m, const shoal_signature *s, const struct model_inputs *in,
                        const struct model_outputs *o) {
  const char **keys = mem_zalloc((size_t)s->n_outputs + 1, sizeof *keys);
  shoal_tensor **out = mem_zalloc((size_t)s->n_outputs + 1, sizeof *out);
  for (int i = 0; i < s->n_outputs; i++) keys[i] = s->outputs[i]->key;
  shoal_status e = shoal_saved_model_run(m, s->key, (const char *const *)in->keys.at, in->values.at, (int)in->keys.n,
                                         keys, out, s->n_outputs);
  for (int i = 0; i < s->n_outputs && !e; i++) e = print_output(o, keys[i], out[i]);
  for (int i = 0; i < s->n_outputs; i++) shoal_tensor_unref(out[i]);
  free((void *)keys);
  free(out);
  return e;
}

/* What is given on the command line: files, values, Examples. */
struct given_inputs {
  const char *files, *expressions, *examples;
};

static shoal_status run(const char *dir, const char *tags, const char *key, const char *worker,
                        const struct given_inputs *given, struct model_inputs *in, const struct model_outputs *o) {
  shoal_saved_model *m;
  TRY(read_inputs(in, given->files));
  TRY(shoal_saved_model_load(dir, tags, SHOAL_OPTIONS(shoal_session_options, .target = worker), &m));
  const shoal_signature *s = shoal_saved_model_signature(m, key);
  shoal_status e = s ? NULL : NOT_FOUND("the SavedModel '%s' has no signature \"%s\"", dir, key);
  if (!e) e = add_literals(in, s, "input_exprs", given->expressions, false);
  if (!e) e = add_literals(in, s, "input_examples", given->examples, true);
  if (!e) e = ask(m, s, in, o);
  shoal_saved_model_free(m);
  return e;
}

static int run_main(int argc, char **argv) {
  const char *dir = NULL, *tags = NULL, *key = NULL, *worker = NULL;
  struct given_inputs given = {"", "", ""};
  struct model_outputs o = {0};
  const struct flag flags[] = {
      {"dir", "DIR", "the model's folder", .text = &dir},
      {"tag_set", "TAGS", "the graph with these tags (default serve)", .text = &tags},
      {"signature_def", "KEY", "what is asked (default serving_default)", .text = &key},
      {"inputs", "KEY=FILE.npy;...", "values for all of its inputs; of an archive: KEY=FILE.npz[NAME]",
       .text = &given.files, .may_be_empty = true},
      {"input_exprs", "KEY=VALUE;...", "values as Python writes them: x=[[1, 2.5]];y=np.ones((2, 3))",
       .text = &given.expressions, .may_be_empty = true},
      {"input_examples", "KEY=[{...}];...", "serialized Examples: inputs=[{'age': [39.0], 'job': ['cook']}]",
       .text = &given.examples, .may_be_empty = true},
      {"outdir", "DIR", "outputs are written there too, as KEY.npy", .text = &o.dir},
      {"overwrite", NULL, "over files that are there", .on = &o.overwrite},
      {"worker", "grpc://HOST:PORT", "the server to run it on (default: here)", .text = &worker},
  };
  static const char usage[] = "shoal saved_model run --dir=DIR [--signature_def=KEY] --inputs='KEY=FILE.npy;...'";
  int code;
  if (!flags_parse(usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (!dir || argc > 1) return saved_model_usage(dir ? "what is that without a flag?" : "--dir is missing", usage);
  struct model_inputs in = {0};
  shoal_status s = run(dir, tags, key ? key : "serving_default", worker, &given, &in, &o);
  inputs_release(&in);
  return s ? report(s) : EXIT_OK;
}

/* ---- freeze ---- */

static bool is_text(const char *path) {
  size_t n = strlen(path);
  return n > 6 && !strcmp(path + n - 6, ".pbtxt");
}

static shoal_status write_graph(const shoal_graph *g, const char *path) {
  shoal_bytes b = {0};
  TRY(is_text(path) ? shoal_graph_export_text(g, &b) : shoal_graph_export(g, &b));
  shoal_status s = file_write(path, b.data, b.size);
  shoal_bytes_free(&b);
  return s;
}

static void print_names(const char *what, const shoal_signature_value *const *at, int n) {
  printf("%s:", what);
  for (int i = 0; i < n; i++) printf(" %s", at[i]->tensor);
  putchar('\n');
}

static shoal_status freeze(const char *dir, const char *tags, const char *key, const char *path) {
  shoal_saved_model *m;
  shoal_graph *g;
  TRY(shoal_saved_model_load(dir, tags, NULL, &m));
  shoal_status s = shoal_saved_model_freeze(m, key, &g);
  if (!s) {
    s = write_graph(g, path);
    shoal_graph_free(g);
  }
  const shoal_signature *signature = shoal_saved_model_signature(m, key);
  if (!s && signature) {
    printf("%s: the graph of signature %s\n", path, key);
    print_names("inputs", signature->inputs, signature->n_inputs);
    print_names("outputs", signature->outputs, signature->n_outputs);
  }
  shoal_saved_model_free(m);
  return s;
}

static int freeze_main(int argc, char **argv) {
  const char *dir = NULL, *tags = NULL, *key = "serving_default", *path = NULL;
  const struct flag flags[] = {
      {"dir", "DIR", "the model's folder", .text = &dir},
      {"tag_set", "TAGS", "the graph with these tags (default serve)", .text = &tags},
      {"signature_def", "KEY", "what the graph is to compute (default serving_default)", .text = &key},
      {"output_graph", "FILE", "the GraphDef to write; as text where FILE ends in .pbtxt", .text = &path},
  };
  static const char usage[] = "shoal saved_model freeze --dir=DIR [--signature_def=KEY] --output_graph=FILE";
  int code;
  if (!flags_parse(usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (argc > 1) return saved_model_usage("what is that without a flag?", usage);
  if (!dir || !path) return saved_model_usage(dir ? "--output_graph is missing" : "--dir is missing", usage);
  shoal_status s = freeze(dir, tags, key, path);
  return s ? report(s) : EXIT_OK;
}

/* ---- which ---- */

static const struct subcommand actions[] = {
    {"show", "list its graphs, their signatures, and what these take and give", saved_model_show_main},
    {"run", "ask a signature, with arrays of NumPy's files", run_main},
    {"freeze", "write what a signature needs as one graph, its variables as constants", freeze_main},
};

int saved_model_main(int argc, char **argv) {
  return actions_main(actions, COUNT_OF(actions), "--dir=DIR [--flag=value ...]", argc, argv);
}

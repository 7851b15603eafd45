/* `shoal saved_model show`: what saved_model_cli shows, line by line. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "cli/cli.h"
#include "cli/saved_model.h"
#include "saved_model/meta.h"
#include "saved_model/outline.h"
#include "saved_model/structured.h"
#include "serving/data_type.h"

static void print_dtype(int indent, shoal_dtype t) {
  struct text name = {0};
  data_type_print((int)t, &name);
  printf("%*sdtype: %s\n", indent, "", text_cstr(&name));
  text_release(&name);
}

static void print_value(int indent, const char *what, const shoal_signature_value *v) {
  printf("%*s%s['%s'] tensor_info:\n", indent, "", what, v->key);
  print_dtype(indent + 4, v->dtype);
  bool unknown = v->rank < 0 && v->tensor; /* what is made of several tensors has no shape */
  printf("%*sshape: %s", indent + 4, "", unknown ? "unknown_rank" : "(");
  for (int i = 0; i < v->rank; i++) printf("%s%lld", i ? ", " : "", (long long)v->dims[i]);
  printf("%s\n%*sname: %s\n", unknown ? "" : ")", indent + 4, "", v->tensor ? v->tensor : "");
}

static void print_signature(int indent, const shoal_signature *s) {
  printf("%*sThe given SavedModel SignatureDef contains the following input(s):\n", indent, "");
  for (int i = 0; i < s->n_inputs; i++) print_value(indent + 2, "inputs", s->inputs[i]);
  printf("%*sThe given SavedModel SignatureDef contains the following output(s):\n", indent, "");
  for (int i = 0; i < s->n_outputs; i++) print_value(indent + 2, "outputs", s->outputs[i]);
  printf("%*sMethod name is: %s\n", indent, "", s->method);
}

static void print_tags(const struct meta_model *m) {
  struct text t = {0};
  meta_tags_print(m, &t);
  printf("'%s'", text_cstr(&t));
  text_release(&t);
}

static void show_tags(const struct meta_file *f) {
  printf("The given SavedModel contains the following tag-sets:\n");
  for (size_t i = 0; i < f->models.n; i++) {
    print_tags(&f->models.at[i]);
    putchar('\n');
  }
}

static void show_keys(const struct meta_model *m) {
  printf("The given SavedModel MetaGraphDef contains SignatureDefs with the following keys:\n");
  for (size_t i = 0; i < m->signatures.n; i++) printf("SignatureDef key: \"%s\"\n", m->signatures.at[i].key);
}

/* "{'Add', 'Const'}", as Python prints a set; in the order of names, which there is none of in Python. */
static void print_ops(const struct meta_model *m, const struct outline *o) {
  struct text t = {0};
  for (size_t i = 0; i < m->tags.n; i++) text_addf(&t, "%s'%s'", i ? ", " : "", m->tags.at[i]);
  text_adds(&t, "] contains the following ops: ");
  if (!o->ops.n) text_adds(&t, "set()");
  for (size_t i = 0; i < o->ops.n; i++) text_addf(&t, "%s'%s'", i ? ", " : "{", o->ops.at[i]);
  if (o->ops.n) text_adds(&t, "}");
  struct text shown = {0};
  text_add_shown(&shown, text_cstr(&t), t.n, false);
  printf("The MetaGraph with tag set [%s\n", text_cstr(&shown));
  text_release(&t);
  text_release(&shown);
}

static shoal_status show_ops(const struct meta_model *m) {
  struct outline o;
  shoal_status s = outline_read(&o, m);
  if (!s) print_ops(m, &o);
  outline_release(&o);
  return s;
}

/* What one form of a function takes: ((...), {...}). */
static void print_form(struct wire takes, int number) {
  structured_list both = structured_items(takes), args = {0}, named = {0};
  if (both.n > 0) args = structured_items(both.at[0].value);
  if (both.n > 1) named = structured_items(both.at[1].value);
  if (args.n) printf("    Option #%d\n      Callable with:\n", number);
  for (size_t i = 0; i < args.n; i++) {
    struct text lines = {0};
    structured_add(&lines, args.at[i].value, 10);
    printf("        Argument #%zu\n%s", i + 1, text_cstr(&lines));
    text_release(&lines);
  }
  for (size_t i = 0; i < named.n; i++) {
    struct text name = {0};
    text_add_shown(&name, (const char *)named.at[i].key.at, wire_left(&named.at[i].key), false);
    printf("        Named Argument #%zu\n          %s\n", i + 1, text_cstr(&name));
    text_release(&name);
  }
  vec_release(&both);
  vec_release(&args);
  vec_release(&named);
}

static void print_functions(const struct outline *o) {
  printf("\nConcrete Functions:");
  for (size_t i = 0; i < o->functions.n; i++) {
    struct text name = {0};
    text_add_shown(&name, o->functions.at[i].name, strlen(o->functions.at[i].name), false);
    printf("\n  Function Name: '%s'\n", text_cstr(&name));
    text_release(&name);
    for (size_t k = 0; k < o->functions.at[i].forms.n; k++) print_form(o->functions.at[i].forms.at[k], (int)k + 1);
  }
}

static void show_model(const struct meta_model *m, const struct outline *o) {
  printf("\nMetaGraphDef with tag-set: '");
  for (size_t i = 0; i < m->tags.n; i++) printf("%s%s", i ? ", " : "", m->tags.at[i]);
  printf("' contains the following SignatureDefs:\n");
  for (size_t k = 0; k < m->signatures.n; k++) {
    printf("\nsignature_def['%s']:\n", m->signatures.at[k].key);
    print_signature(2, &m->signatures.at[k]);
  }
  print_ops(m, o);
}

static int by_tags(const void *a, const void *b) {
  const struct meta_model *x = *(const struct meta_model *const *)a, *y = *(const struct meta_model *const *)b;
  for (size_t i = 0; i < x->tags.n && i < y->tags.n; i++) {
    int order = strcmp(x->tags.at[i], y->tags.at[i]);
    if (order) return order;
  }
  return (x->tags.n > y->tags.n) - (x->tags.n < y->tags.n);
}

/* Graphs in the order of their tags, then the functions of the one that is loaded for them. */
static shoal_status show_all(const struct meta_file *f) {
  VEC(const struct meta_model *) sorted = {0};
  struct outline o = {0}, functions = {0};
  const struct meta_model *with_objects = NULL;
  shoal_status s = NULL;
  for (size_t i = 0; i < f->models.n; i++) {
    vec_push(&sorted, &f->models.at[i]);
    if (f->models.at[i].has_objects) with_objects = &f->models.at[i];
  }
  if (sorted.n) qsort((void *)sorted.at, sorted.n, sizeof *sorted.at, by_tags);
  for (size_t i = 0; i < sorted.n && !s; i++) {
    s = outline_read(&o, sorted.at[i]);
    if (!s) show_model(sorted.at[i], &o);
    outline_release(&o);
  }
  if (!s && with_objects) {
    s = outline_read(&functions, with_objects);
    if (!s) print_functions(&functions);
    outline_release(&functions);
  }
  vec_release(&sorted);
  return s;
}

static shoal_status find_signature(const struct meta_model *m, const char *key, const shoal_signature **out) {
  *out = meta_signature(m, key);
  if (*out) return NULL;
  struct text there = {0};
  for (size_t i = 0; i < m->signatures.n; i++) text_addf(&there, "%s%s", i ? ", " : "", m->signatures.at[i].key);
  shoal_status s = NOT_FOUND("there is no signature \"%s\"; there are: %s", key, text_cstr(&there));
  text_release(&there);
  return s;
}

static shoal_status show(const struct meta_file *f, const char *dir, const char *tags, const char *key, bool ops) {
  const struct meta_model *m;
  const shoal_signature *s;
  if (!tags) {
    show_tags(f);
    return NULL;
  }
  TRY(meta_file_find(f, dir, tags, &m));
  if (ops) TRY(show_ops(m));
  if (!key) {
    show_keys(m);
    return NULL;
  }
  TRY(find_signature(m, key, &s));
  print_signature(0, s);
  return NULL;
}

int saved_model_show_main(int argc, char **argv) {
  const char *dir = NULL, *tags = NULL, *key = NULL;
  bool all = false, ops = false;
  const struct flag flags[] = {
      {"dir", "DIR", "the model's folder", .text = &dir},
      {"tag_set", "TAGS", "the graph with these tags, as in serve,gpu: its signatures", .text = &tags},
      {"signature_def", "KEY", "of that graph, one signature: inputs and outputs", .text = &key},
      {"list_ops", NULL, "the ops of that graph and of the functions it calls", .on = &ops},
      {"all", NULL, "all graphs with all signatures and ops, and the objects' functions", .on = &all},
  };
  static const char usage[] =
      "shoal saved_model show --dir=DIR [--tag_set=TAGS [--signature_def=KEY] [--list_ops]] [--all]";
  int code;
  if (!flags_parse(usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (!dir || argc > 1) return saved_model_usage(dir ? "what is that without a flag?" : "--dir is missing", usage);
  if (ops && !tags && !all) return saved_model_usage("--list_ops wants --tag_set or --all", usage);
  if (key && !tags) return saved_model_usage("--signature_def wants --tag_set", usage);
  struct meta_file f;
  shoal_status s = meta_file_read(&f, dir);
  if (!s) s = all ? show_all(&f) : show(&f, dir, tags, key, ops);
  meta_file_release(&f);
  return s ? report(s) : EXIT_OK;
}

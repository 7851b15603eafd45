/* Flags of subcommands, from a table that is also their help. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stop.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/cli.h"
#include "shoal/cluster.h"

static void help(const char *usage, const struct flag *flags, int n) {
  printf("usage: %s\n\n", usage);
  for (int i = 0; i < n; i++) {
    char left[64];
    const char *open = flags[i].absent ? "[=" : flags[i].value ? "=" : "", *close = flags[i].absent ? "]" : "";
    snprintf(left, sizeof left, "--%s%s%s%s", flags[i].name, open, flags[i].value ? flags[i].value : "", close);
    printf("  %-34s %s\n", left, flags[i].help);
  }
  printf("  %-34s %s\n", "--help", "this text");
}

static const struct flag *find(const struct flag *flags, int n, const char *name, size_t len) {
  for (int i = 0; i < n; i++)
    if (strlen(flags[i].name) == len && !strncmp(flags[i].name, name, len)) return &flags[i];
  return NULL;
}

static void unknown(const char *arg, const char *name, const struct flag *flags, int n) {
  const char *meant = suggest_name(name, strcspn(name, "="), &flags->name, (size_t)n, sizeof *flags);
  if (meant) fprintf(stderr, "shoal: unknown flag %s; did you mean --%s?\n", arg, meant);
  else fprintf(stderr, "shoal: unknown flag %s; `--help` lists those there are\n", arg);
}

static bool truth(const char *value, bool *out) {
  *out = !strcmp(value, "true") || !strcmp(value, "1");
  return *out || !strcmp(value, "false") || !strcmp(value, "0");
}

static bool in_range(const struct flag *f, int64_t value) {
  return value >= f->min && (value <= f->max || (!f->min && !f->max));
}

static bool set(const struct flag *f, const char *value) {
  if ((f->text || f->values) && !*value && !f->may_be_empty) { /* "--log_dir=$DIR" would be the root folder */
    fprintf(stderr, "shoal: --%s=: expected %s%s", f->name, f->value, " (is a variable of the shell not set?)\n");
    return false;
  }
  if (f->text) *f->text = value;
  if (f->values && f->values->n == (int)COUNT_OF(f->values->at)) {
    fprintf(stderr, "shoal: --%s: at most %d of them\n", f->name, f->values->n);
    return false;
  }
  if (f->values) f->values->at[f->values->n++] = value;
  if (f->number && (!str_to_int64(value, f->number) || !in_range(f, *f->number))) {
    fprintf(stderr, "shoal: --%s=%s: expected a number", f->name, value);
    if (f->max) fprintf(stderr, " from %" PRId64 " to %" PRId64 "\n", f->min, f->max);
    else fprintf(stderr, ", 0 or more\n");
    return false;
  }
  if (f->on && !truth(value, f->on)) {
    fprintf(stderr, "shoal: --%s=%s: expected true or false\n", f->name, value);
    return false;
  }
  return true;
}

/* Is it no value, but the next flag, or what parts flags from a program? */
static bool parts(const char *arg, const struct flag *flags, int n) {
  return !strncmp(arg, "--", 2) || (*arg == '-' && find(flags, n, arg + 1, strcspn(arg + 1, "=")));
}

bool flags_parse(const char *usage, const struct flag *flags, int n_flags, int *argc, char **argv, int *code) {
  int kept = 1;
  *code = EXIT_USAGE;
  for (int i = 1; i < *argc; i++) {
    const char *arg = argv[i];
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
      help(usage, flags, n_flags);
      *code = EXIT_OK;
      return false;
    }
    if (arg[0] != '-' || !arg[1]) {
      argv[kept++] = argv[i];
      continue;
    }
    const char *name = arg + (arg[1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    const struct flag *f = find(flags, n_flags, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!f) {
      unknown(arg, name, flags, n_flags);
      return false;
    }
    const char *value = equals ? equals + 1 : f->absent ? f->absent : f->value ? argv[++i] : "true";
    if (!value || (!equals && parts(value, flags, n_flags))) {
      fprintf(stderr, "shoal: --%s needs a value: --%s=%s\n", f->name, f->name, f->value);
      return false;
    }
    if (!set(f, value)) return false;
  }
  *argc = kept;
  argv[kept] = NULL;
  return true;
}

void tls_flags_use(const struct tls_flags *f) {
  if (f->cert) setenv("SHOAL_TLS_CERT", f->cert, 1);
  if (f->key) setenv("SHOAL_TLS_KEY", f->key, 1);
  if (f->ca) setenv("SHOAL_TLS_CA", f->ca, 1);
}

int report(shoal_status s) {
  fflush(stdout);          /* what was printed before comes before */
  struct text words = {0}; /* parts of a message may be a stranger's */
  text_add_shown(&words, shoal_status_message(s), strlen(shoal_status_message(s)), true);
  fprintf(stderr, "shoal: %s: %s\n", shoal_code_name(shoal_status_code(s)), text_cstr(&words));
  text_release(&words);
  bool stopped = shoal_status_code(s) == SHOAL_CANCELLED && stop_told();
  int code = stopped ? SHOAL_EXIT_RETRY : shoal_status_code(s) == SHOAL_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
  shoal_status_free(s);
  return code;
}

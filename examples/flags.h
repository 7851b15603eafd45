/* Flags of the examples: --name=value, --name value, or --name for those that are true or false. A value that makes no
 * sense is refused by the flag's name before anything else happens; a flag that is nearly one is suggested. */
#ifndef EXAMPLES_FLAGS_H
#define EXAMPLES_FLAGS_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By what name the program was called, for its messages. */
static const char *program_name = "";

/* The end, when the program was given something that makes no sense. */
static inline void refuse(const char *what) {
  fprintf(stderr, "%s: %s\n", program_name, what);
  exit(2);
}

struct flag {
  const char *name, *help;
  const char **text; /* where the value goes: one of these */
  int64_t *number;
  double *real;
  bool *on;
  int64_t least, most; /* of a number; of a text, how many characters it has at least */
};

/* The rows of a table of flags, which ends with flags_end(). */
static inline struct flag flag_text(const char *name, const char *help, const char **to) {
  struct flag f = {name, help, to, NULL, NULL, NULL, 0, 0};
  return f;
}
/* A file or folder: not "", which a variable of a script gives that is not set. */
static inline struct flag flag_path(const char *name, const char *help, const char **to) {
  struct flag f = {name, help, to, NULL, NULL, NULL, 1, 0};
  return f;
}
static inline struct flag flag_between(const char *name, const char *help, int64_t *to, int64_t least, int64_t most) {
  struct flag f = {name, help, NULL, to, NULL, NULL, least, most};
  return f;
}
static inline struct flag flag_number(const char *name, const char *help, int64_t *to, int64_t least) {
  return flag_between(name, help, to, least, INT64_MAX);
}
static inline struct flag flag_real(const char *name, const char *help, double *to) { /* at least 0 */
  struct flag f = {name, help, NULL, NULL, to, NULL, 0, 0};
  return f;
}
static inline struct flag flag_on(const char *name, const char *help, bool *to) {
  struct flag f = {name, help, NULL, NULL, NULL, to, 0, 0};
  return f;
}
static inline struct flag flags_end(void) { return flag_text(NULL, NULL, NULL); }

static inline void show_help(const char *about, const struct flag *flags) {
  printf("%s\n\n", about);
  for (const struct flag *f = flags; f->name; f++) {
    printf("  --%-22s %s", f->name, f->help);
    if (f->text && *f->text && **f->text) printf(" (%s)", *f->text);
    if (f->number) printf(" (%lld)", (long long)*f->number);
    if (f->real) printf(" (%g)", *f->real);
    if (f->on) printf(" (%s)", *f->on ? "true" : "false");
    printf("\n");
  }
}

/* How many letters must change for one name to become the other (n letters of a); names are short. */
static inline int distance(const char *a, size_t n, const char *b) {
  enum { MOST = 64 };
  int row[MOST + 1];
  size_t m = strlen(b);
  if (m > MOST) return MOST;
  for (size_t k = 0; k <= m; k++) row[k] = (int)k;
  for (size_t i = 1; i <= n; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t k = 1; k <= m; k++) {
      int change = diagonal + (a[i - 1] != b[k - 1]), add = (row[k] < row[k - 1] ? row[k] : row[k - 1]) + 1;
      diagonal = row[k];
      row[k] = change < add ? change : add;
    }
  }
  return row[m];
}

/* The end, with what was meant if that can be told. */
static inline void refuse_flag(const char *arg, const char *name, size_t n, const struct flag *flags) {
  const struct flag *best = NULL;
  for (const struct flag *f = flags; f->name; f++)
    if (!best || distance(name, n, f->name) < distance(name, n, best->name)) best = f;
  fprintf(stderr, "%s: %s is no flag", program_name, arg);
  if (*arg == '-' && best && distance(name, n, best->name) <= 2 + (int)n / 6)
    fprintf(stderr, ": did you mean --%s?", best->name);
  fprintf(stderr, " (--help lists the flags)\n");
  exit(2);
}

/* What is wrong with a value, or NULL; takes it over if nothing is. */
static inline const char *set_flag(const struct flag *f, const char *value) {
  static char expected[96];
  char *end = NULL;
  errno = 0;
  if (f->text) {
    if ((int64_t)strlen(value) < f->least) return "a path";
    if (f->least && *value == '~') return "a path; shells do not put a folder for ~ behind =: write $HOME";
    *f->text = value;
  }
  if (f->number) {
    long long v = strtoll(value, &end, 10);
    if (f->most == INT64_MAX)
      snprintf(expected, sizeof expected, "a whole number of at least %lld", (long long)f->least);
    else
      snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)f->least, (long long)f->most);
    if (*end || end == value || errno || v < f->least || v > f->most) return expected;
    *f->number = v;
  }
  if (f->real) {
    double v = strtod(value, &end);
    if (*end || end == value || errno || !isfinite(v) || v < 0) return "a number of at least 0";
    *f->real = v;
  }
  if (f->on) {
    *f->on = !strcmp(value, "true") || !strcmp(value, "1");
    if (!*f->on && strcmp(value, "false") && strcmp(value, "0")) return "true or false";
  }
  return NULL;
}

/* Fills in what the flags point to. `--help` prints them, with the defaults in brackets. */
static inline void read_flags(int argc, char **argv, const char *about, const struct flag *flags) {
  program_name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  setvbuf(stdout, NULL, _IOLBF, 0); /* whoever reads our output wants lines as they come */
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i], *name = arg + strspn(arg, "-"), *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    if (!strcmp(name, "help") || !strcmp(arg, "-h")) {
      show_help(about, flags);
      exit(0);
    }
    const struct flag *f = flags;
    while (f->name && (strlen(f->name) != n || strncmp(f->name, name, n) != 0)) f++;
    if (*arg != '-' || !f->name) refuse_flag(arg, name, n, flags);
    const char *value = equals ? equals + 1 : f->on ? "true" : argv[++i];
    if (value && !equals && !strncmp(value, "--", 2)) value = NULL; /* the next flag */
    const char *expected = value ? set_flag(f, value) : "a value";
    if (!expected) continue;
    fprintf(stderr, "%s: --%s%s%s: expected %s\n", program_name, f->name, value ? "=" : "", value ? value : "",
            expected);
    exit(2);
  }
}

#endif

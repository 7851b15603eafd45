/* Paths that match a pattern; see file.h.
 *
 * Patterns come from strangers. glob() of the C library was rejected: it calls itself for each '/', so that a pattern
 * of some hundred kilobytes ends the stack, and what it finds it keeps, while five times "*" with "/.." between them
 * name every directory to the fifth power. Here a pattern is no longer than a path can be, what is looked at is bounded
 * by an effort, and what is kept by a budget for the process.
 *
 * Directories are read through directory_list(), and so only where ops may look (file_root.h); what may not be looked
 * at looks empty. One is read to its end before what is below it, so that no descriptor is held on the way down. */
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/budget.h"
#include "base/effort.h"
#include "base/file.h"
#include "base/file_root.h"
#include "base/machine.h"
#include "base/text.h"

/* What a pattern may cost: a unit for a name, and some for each directory that is opened on the way to one. It is a few
 * seconds, or a few hundred thousand directories of the usual depth. */
enum { MOST_LOOKED_AT = 32000000, TO_OPEN = 16 };

/* ---- what was found ---- */

static struct budget kept;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;

static void make_budget(void) { budget_init(&kept, machine_memory() / 8, NULL); }

void path_list_release(struct path_list *l) {
  for (size_t i = 0; i < l->paths.n; i++) free(l->paths.at[i]);
  vec_release(&l->paths);
  if (l->held) budget_give(&kept, l->held);
  l->held = 0;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void sort_from(struct path_list *l, size_t first) {
  if (l->paths.n > first) qsort(l->paths.at + first, l->paths.n - first, sizeof *l->paths.at, by_bytes);
}

void path_list_sort(struct path_list *l) { sort_from(l, 0); }

/* ---- the search ---- */

struct search {
  struct path_list *out;
  struct effort effort;
  size_t n; /* of path: what has been walked, with its '/' at the end */
  char path[2 * PATH_MAX];
};

static shoal_status keep(struct search *s) {
  size_t bytes = s->n + 1 + 4 * sizeof(char *); /* its places in the list, and malloc's own */
  if (!budget_take(&kept, bytes)) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM: too many files match a pattern");
  s->out->held += bytes;
  vec_push(&s->out->paths, mem_strndup(s->path, s->n));
  return NULL;
}

/* False: the path would be longer than one can be. */
static bool append(struct search *s, const char *text, size_t n) {
  if (n >= PATH_MAX - MIN(s->n, (size_t)PATH_MAX)) return false;
  memcpy(s->path + s->n, text, n);
  s->n += n;
  s->path[s->n] = 0;
  return true;
}

/* A part without wildcards, in which '\' makes the next character an ordinary one. */
static bool append_plain(struct search *s, const char *part, size_t n) {
  bool fits = true;
  for (size_t i = 0; i < n && fits; i++) {
    if (part[i] == '\\' && i + 1 < n) i++;
    fits = append(s, part + i, 1);
  }
  return fits;
}

/* To look at the path that was come to. */
static shoal_status pay(struct search *s) {
  int64_t directories = 1;
  for (size_t i = 0; i < s->n; i++) directories += s->path[i] == '/';
  return effort_spend(&s->effort, TO_OPEN * directories);
}

static shoal_status walk(struct search *s, const char *rest);

/* The names of the directory that was come to which match a part, and what is below each. */
static shoal_status walk_matching(struct search *s, const char *part, size_t n, const char *rest) {
  struct path_list names = {0};
  TRY(pay(s));
  shoal_status_free(directory_list(s->n ? s->path : ".", &names));
  char *pattern = mem_strndup(part, n);
  size_t before = s->n;
  shoal_status e = effort_spend(&s->effort, (int64_t)(names.paths.n * (1 + n / 16)));
  for (size_t i = 0; i < names.paths.n && !e; i++) {
    const char *name = names.paths.at[i];
    if (fnmatch(pattern, name, 0) == 0 && append(s, name, strlen(name))) e = *rest ? walk(s, rest) : keep(s);
    s->path[s->n = before] = 0;
  }
  free(pattern);
  path_list_release(&names);
  return e;
}

/* rest: of the pattern. Goes deeper at each part that has wildcards: at most PATH_MAX / 2 times. */
static shoal_status walk(struct search *s, const char *rest) {
  for (;;) {
    size_t slashes = strspn(rest, "/");
    if (!append(s, rest, slashes)) return NULL;
    rest += slashes;
    size_t n = strcspn(rest, "/");
    if (n && strcspn(rest, "*?[") < n) return walk_matching(s, rest, n, rest + n);
    if (!append_plain(s, rest, n)) return NULL;
    rest += n;
    if (*rest) continue;
    TRY(pay(s));
    bool there = n ? file_exists(s->path) : file_is_directory(s->path);
    return there ? keep(s) : NULL;
  }
}

/* The directory that all matches are below must be one that may be looked at. */
static shoal_status check_pattern(const char *pattern) {
  if (!file_roots_current()) return NULL;
  char *fixed = mem_strndup(pattern, strcspn(pattern, "*?[\\")), *dir = path_directory(fixed);
  struct file_place at;
  shoal_status s = file_place_find(*dir ? dir : ".", true, &at);
  if (!s) file_place_release(&at);
  bool absent = s && shoal_status_code(s) != SHOAL_PERMISSION_DENIED;
  if (absent) {
    shoal_status_free(s);
    s = NULL;
  }
  free(dir);
  free(fixed);
  return s;
}

shoal_status file_glob(const char *pattern, struct path_list *out) {
  const char *p;
  TRY(file_local_path(pattern, &p));
  if (strlen(p) >= PATH_MAX) return INVALID("a pattern of %zu bytes is longer than any path", strlen(p));
  TRY(check_pattern(p));
  if (!*p) return NULL;
  pthread_once(&kept_once, make_budget);
  struct search *s = mem_zalloc(1, sizeof *s);
  s->out = out;
  s->effort = (struct effort){.left = MOST_LOOKED_AT, .what = "Looking for the files of a pattern"};
  size_t first = out->paths.n;
  shoal_status e = walk(s, p);
  free(s);
  sort_from(out, first);
  return e;
}

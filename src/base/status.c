/* Errors: a code, a message, where in the program, and the places passed through.
 *
 * An error object is made on the slow path only; OK is NULL and costs nothing. Running out of memory while
 * making one falls back to a static object, so that an error is never lost for lack of memory.
 *
 * Where in the program: calls of the public API are macros there (shoal/places.h), which hand on file and line after
 * the call. An error that is returned gets them at once; one that is kept, by a graph or a training session, stands on
 * a list until the first such macro returns in its thread: the innermost call in the program, be it in a function of
 * its own. (Handing the place over before the call would not do: when the call runs, those among its arguments have
 * left theirs.) */
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status_marks.h"

enum { MAX_PLACES = 16, PLACE_LEN = 96, WHERE_LEN = 256 };

struct shoal_status_rep {
  shoal_code code;
  bool derived;
  bool restarted;
  bool coordination;
  bool not_begun;
  bool is_static;
  int n_places;
  char *message;
  char where[WHERE_LEN]; /* "train.c:30"; "": not known */
  bool listed;           /* among the kept ones; these two are guarded by their lock */
  struct shoal_status_rep *next;
  pthread_t thread;
  char places[MAX_PLACES * PLACE_LEN];
};

static struct shoal_status_rep out_of_memory = {
    .code = SHOAL_RESOURCE_EXHAUSTED, .is_static = true, .message = (char *)"out of memory"};

static char *format(const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, again);
  va_end(again);
  char *text = n < 0 ? NULL : malloc((size_t)n + 1);
  if (text) vsnprintf(text, (size_t)n + 1, fmt, ap);
  return text;
}

static shoal_status make(shoal_code code, char *message, const char *file, int line, const char *func) {
  shoal_status s = message ? calloc(1, sizeof *s) : NULL;
  if (!s) {
    free(message);
    return &out_of_memory;
  }
  s->code = code;
  s->message = message;
  return status_passed(s, file, line, func);
}

shoal_status status_new_at(shoal_code code, const char *file, int line, const char *func, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *text = format(fmt, ap);
  va_end(ap);
  return make(code, text, file, line, func);
}

shoal_status status_passed(shoal_status s, const char *file, int line, const char *func) {
  if (!s || s->is_static || s->n_places == MAX_PLACES) return s;
  const char *src = strstr(file, "src/");
  size_t used = strlen(s->places);
  snprintf(s->places + used, PLACE_LEN, "%s%s:%d %s", used ? "\n" : "", src ? src : file, line, func);
  s->n_places++;
  return s;
}

/* Text before or behind the message; without memory for it the message stays as it was. */
static shoal_status add_text(shoal_status s, bool before, const char *fmt, va_list ap) {
  if (!s || s->is_static) return s;
  char *more = format(fmt, ap);
  if (!more) return s;
  size_t n = strlen(more) + strlen(s->message) + 1;
  char *text = malloc(n);
  if (text) {
    snprintf(text, n, "%s%s", before ? more : s->message, before ? s->message : more);
    free(s->message);
    s->message = text;
  }
  free(more);
  return s;
}

shoal_status status_prefix(shoal_status s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  s = add_text(s, true, fmt, ap);
  va_end(ap);
  return s;
}

shoal_status status_suffix(shoal_status s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  s = add_text(s, false, fmt, ap);
  va_end(ap);
  return s;
}

shoal_status status_copy(shoal_status s) {
  if (!s || s->is_static) return s;
  shoal_status c = malloc(sizeof *c);
  char *message = strdup(s->message);
  if (!c || !message) {
    free(c);
    free(message);
    return &out_of_memory;
  }
  *c = *s;
  c->message = message;
  c->listed = false;
  return c;
}

shoal_status status_mark_derived(shoal_status s) {
  if (s && !s->is_static) s->derived = true;
  return s;
}

bool status_is_derived(shoal_status s) { return s && s->derived; }

shoal_status status_mark_restarted(shoal_status s) {
  if (s && !s->is_static) s->restarted = true;
  return s;
}

bool status_is_restarted(shoal_status s) { return s && s->restarted; }

shoal_status status_mark_coordination(shoal_status s) {
  if (s && !s->is_static) s->coordination = true;
  return s;
}

bool status_is_coordination(shoal_status s) { return s && s->coordination; }

shoal_status status_mark_not_begun(shoal_status s) {
  if (s && !s->is_static) s->not_begun = true;
  return s;
}

bool status_is_not_begun(shoal_status s) { return s && s->not_begun; }

void status_merge(shoal_status *into, shoal_status s) {
  if (!s) return;
  bool weaker = s->derived || s->code == SHOAL_CANCELLED;
  if (*into && (weaker || !((*into)->derived || (*into)->code == SHOAL_CANCELLED))) {
    shoal_status_free(s);
    return;
  }
  shoal_status_free(*into);
  *into = s;
}

static shoal_code errno_code(int err) {
  switch (err) {
    case ENOENT: return SHOAL_NOT_FOUND;
    case EEXIST: return SHOAL_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS: return SHOAL_PERMISSION_DENIED;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE: return SHOAL_RESOURCE_EXHAUSTED;
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
    case EBUSY: return SHOAL_FAILED_PRECONDITION;
    case EINVAL:
    case ENAMETOOLONG: return SHOAL_INVALID_ARGUMENT;
    case ETIMEDOUT: return SHOAL_DEADLINE_EXCEEDED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return SHOAL_UNAVAILABLE;
    default: return SHOAL_UNKNOWN;
  }
}

shoal_status status_errno_at(int err, const char *file, int line, const char *func, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *text = format(fmt, ap);
  va_end(ap);
  return status_suffix(make(errno_code(err), text, file, line, func), "; %s", strerror(err));
}

void must_failed(const char *cond, const char *file, int line, const char *func) {
  fprintf(stderr, "shoal: broken invariant: %s (%s:%d %s)\n", cond, file, line, func);
  abort();
}

/* ---- where in the program ---- */

static struct {
  pthread_mutex_t lock;
  struct shoal_status_rep *first; /* errors that are kept and have no place yet */
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool kept_here; /* there may be one of this thread */

static void set_where(shoal_status s, const char *file, int line) {
  if (s && !s->is_static && !*s->where) snprintf(s->where, sizeof s->where, "%s:%d", file, line);
}

shoal_status status_kept(shoal_status s) {
  if (!s || s->is_static || *s->where || s->listed) return s;
  pthread_mutex_lock(&kept.lock);
  s->listed = kept_here = true;
  s->thread = pthread_self();
  s->next = kept.first;
  kept.first = s;
  pthread_mutex_unlock(&kept.lock);
  return s;
}

/* Takes one, or all of this thread, off the list and gives them their place; file NULL: none. */
static void unlist(shoal_status one, const char *file, int line) {
  pthread_mutex_lock(&kept.lock);
  for (struct shoal_status_rep **at = &kept.first; *at;) {
    struct shoal_status_rep *s = *at;
    if (one ? s != one : !pthread_equal(s->thread, pthread_self())) {
      at = &s->next;
      continue;
    }
    *at = s->next;
    s->listed = false;
    if (file) set_where(s, file, line);
  }
  pthread_mutex_unlock(&kept.lock);
}

void shoal_place_(const char *file, int line) {
  if (__builtin_expect(!kept_here, 1)) return;
  kept_here = false;
  unlist(NULL, file, line);
}

shoal_status shoal_placed_status_(shoal_status s, const char *file, int line) {
  set_where(s, file, line);
  shoal_place_(file, line);
  return s;
}

const char *shoal_status_where(shoal_status s) { return s ? s->where : ""; }

/* ---- for people ---- */

/* Messages may quote what came from elsewhere: a terminal is not to obey it. */
static void print_escaped(const char *text, FILE *to) {
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if ((*c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f) fprintf(to, "\\x%02x", *c);
    else fputc(*c, to);
  }
}

void shoal_status_print(shoal_status s) {
  if (!s) return;
  flockfile(stderr);
  if (*s->where) fprintf(stderr, "%s: ", s->where);
  fprintf(stderr, "%s: ", shoal_code_name(s->code));
  print_escaped(s->message, stderr);
  fputc('\n', stderr);
  if (*s->places && log_get_level() == LOG_DEBUG) fprintf(stderr, "%s\n", s->places);
  funlockfile(stderr);
}

shoal_code shoal_status_code(shoal_status s) { return s ? s->code : SHOAL_OK; }

const char *shoal_status_message(shoal_status s) { return s ? s->message : ""; }

const char *shoal_status_places(shoal_status s) { return s ? s->places : ""; }

void shoal_status_free(shoal_status s) {
  if (!s || s->is_static) return;
  if (s->listed) unlist(s, NULL, 0);
  free(s->message);
  free(s);
}

const char *shoal_code_name(shoal_code code) {
  static const char *const names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return (unsigned)code < sizeof names / sizeof *names ? names[code] : "UNKNOWN";
}

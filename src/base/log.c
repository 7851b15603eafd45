/* Log lines: one write() a line, so that lines of several processes do not mix.
 *
 * Much of what is logged others have said: it is shown so that it can neither steer a terminal nor pass for a line of
 * our own. Where a message has several lines, those after the first are indented. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "shoal/log.h"

static atomic_int current = -1;

static const char *const names[] = {"debug", "info", "warning", "error", "none"};

bool log_level_from_name(const char *name, enum log_level *out) {
  for (int i = LOG_DEBUG; i <= LOG_NONE; i++) {
    if (strcasecmp(name, names[i]) != 0) continue;
    *out = (enum log_level)i;
    return true;
  }
  return false;
}

void log_set_level(enum log_level level) { atomic_store(&current, (int)level); }

enum log_level log_get_level(void) {
  int level = atomic_load_explicit(&current, memory_order_relaxed);
  if (level >= 0) return (enum log_level)level;
  enum log_level from_env = LOG_WARNING;
  const char *name = getenv("SHOAL_LOG");
  if (name) log_level_from_name(name, &from_env);
  log_set_level(from_env);
  return from_env;
}

/* The program's own way with lines, if it has one. The lock is held while it runs: once shoal_set_log has returned,
 * the function before is not called any more. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool has_sink;
static shoal_log_fn *sink;
static void *sink_arg;

void shoal_set_log(shoal_log_fn *fn, void *arg) {
  pthread_mutex_lock(&sink_lock);
  sink = fn;
  sink_arg = arg;
  atomic_store(&has_sink, fn != NULL);
  pthread_mutex_unlock(&sink_lock);
}

void shoal_set_log_level(shoal_log_level level) { log_set_level((enum log_level)level); }

static bool give_to_sink(const struct shoal_log_line *line) {
  pthread_mutex_lock(&sink_lock);
  bool given = sink != NULL;
  if (given) sink(sink_arg, line);
  pthread_mutex_unlock(&sink_lock);
  return given;
}

static void add_lines(struct text *out, const char *message) {
  for (size_t n; *message; message += n) {
    n = strcspn(message, "\n");
    text_add_shown(out, message, n, true);
    for (; message[n] == '\n'; n++) continue;
    if (message[n]) text_adds(out, "\n    ");
  }
}

void log_write(enum log_level level, const char *file, int line, const char *fmt, ...) {
  struct timespec ts;
  struct tm tm;
  clock_gettime(CLOCK_REALTIME, &ts);
  localtime_r(&ts.tv_sec, &tm);
  const char *src = strstr(file, "src/");
  src = src ? src + 4 : file;
  char text[2048];
  va_list ap;
  if (atomic_load_explicit(&has_sink, memory_order_relaxed)) {
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    shoal_log_line given = {(shoal_log_level)level, ts.tv_sec * 1000000000LL + ts.tv_nsec, src, line, text};
    if (give_to_sink(&given)) return;
  }
  struct text out = {0};
  text_addf(&out, "%c %02d:%02d:%02d.%03ld", "DIWE"[level], tm.tm_hour, tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000);
  if (log_get_level() == LOG_DEBUG) text_addf(&out, " %s:%d", src, line);
  text_adds(&out, "] ");
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  add_lines(&out, text);
  text_addc(&out, '\n');
  ssize_t ignored = write(STDERR_FILENO, out.at, out.n);
  (void)ignored;
  text_release(&out);
}

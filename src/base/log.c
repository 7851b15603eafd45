/* Log lines: one write() a line, so that lines of several processes do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

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

void log_write(enum log_level level, const char *file, int line, const char *fmt, ...) {
  struct timespec ts;
  struct tm tm;
  clock_gettime(CLOCK_REALTIME, &ts);
  localtime_r(&ts.tv_sec, &tm);
  const char *src = strstr(file, "src/");
  char text[2048];
  int n = snprintf(text, sizeof text, "%c %02d:%02d:%02d.%03ld", "DIWE"[level], tm.tm_hour, tm.tm_min, tm.tm_sec,
                   ts.tv_nsec / 1000000);
  if (log_get_level() == LOG_DEBUG)
    n += snprintf(text + n, sizeof text - (size_t)n, " %s:%d", src ? src + 4 : file, line);
  n += snprintf(text + n, sizeof text - (size_t)n, "] ");
  va_list ap;
  va_start(ap, fmt);
  int m = vsnprintf(text + n, sizeof text - (size_t)n - 1, fmt, ap);
  va_end(ap);
  n += m < 0 ? 0 : m;
  if (n > (int)sizeof text - 2) n = (int)sizeof text - 2;
  text[n++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, text, (size_t)n);
  (void)ignored;
}

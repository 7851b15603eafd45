/* Log lines on standard error: "W 12:34:56.789] text", with our own place before the bracket at the level debug. The
 * level comes from SHOAL_LOG (debug, info, warning, error, none) or log_set_level(); the default shows warnings and
 * errors. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR, LOG_NONE };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
/* "info" and so on; false for any other word. */
bool log_level_from_name(const char *name, enum log_level *out);
void log_write(enum log_level level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#define LOG_AT(level, ...)                                                               \
  do {                                                                                   \
    const enum log_level log_at_ = (level);                                              \
    if (log_at_ >= log_get_level()) log_write(log_at_, __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
#define LOGD(...) LOG_AT(LOG_DEBUG, __VA_ARGS__)
#define LOGI(...) LOG_AT(LOG_INFO, __VA_ARGS__)
#define LOGW(...) LOG_AT(LOG_WARNING, __VA_ARGS__)
#define LOGE(...) LOG_AT(LOG_ERROR, __VA_ARGS__)

#endif

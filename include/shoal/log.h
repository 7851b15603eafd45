/* What the library has to say besides errors: lines of a log. Without a function of the program's own they go to
 * standard error, "W 12:34:56.789] text". */
#ifndef SHOAL_LOG_H
#define SHOAL_LOG_H

#include <stdint.h>

#include <shoal/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_log_level {
  SHOAL_LOG_DEBUG = 0,
  SHOAL_LOG_INFO = 1,
  SHOAL_LOG_WARNING = 2,
  SHOAL_LOG_ERROR = 3,
  SHOAL_LOG_NONE = 4,
} shoal_log_level;

/* One line; the strings live as long as the call. Fields may come after these. */
typedef struct shoal_log_line {
  shoal_log_level level;
  int64_t time_ns;  /* since 1970 */
  const char *file; /* of the library: "rpc/server.c" */
  int line;
  const char *text; /* without an end of line; it may hold what others sent: print it with care */
} shoal_log_line;

/* Called for each line, by any thread but by one at a time, perhaps with locks of the library held: it does not call
 * the library. */
typedef void shoal_log_fn(void *arg, const shoal_log_line *line);
/* Lines go to fn from now on; NULL: to standard error. Once this has returned, the function before is not called any
 * more. */
SHOAL_API void shoal_set_log(shoal_log_fn *fn, void *arg);
/* Lines below it are not made. Before the first call: what SHOAL_LOG says in the environment, or warnings. */
SHOAL_API void shoal_set_log_level(shoal_log_level level);

#ifdef __cplusplus
}
#endif
#endif

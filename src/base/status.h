/* Making and passing on errors inside Shoal; the public half is shoal/status.h.
 *
 *   TRY(f(x));                          return f's error, with this place added to its chain
 *   TRY_GOTO(s, f(x), fail);            the same for functions with one clean-up label
 *   return INVALID("axis %d is out of range", axis);
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include <shoal/status.h>

shoal_status status_new_at(shoal_code code, const char *file, int line, const char *func, const char *fmt, ...)
    SHOAL_PRINTF(5, 6) __attribute__((returns_nonnull));
/* Adds a place to the chain (bounded; the innermost 16 are kept) and returns s. */
shoal_status status_passed(shoal_status s, const char *file, int line, const char *func)
    __attribute__((returns_nonnull));
/* Puts text before, or after, the message; returns s. NULL stays NULL. */
shoal_status status_prefix(shoal_status s, const char *fmt, ...) SHOAL_PRINTF(2, 3);
shoal_status status_suffix(shoal_status s, const char *fmt, ...) SHOAL_PRINTF(2, 3);
shoal_status status_copy(shoal_status s);
/* Marks an error that only follows from another one (a cancelled neighbour, a cleaned-up step): where
 * several errors are merged, those that are not derived win. */
shoal_status status_mark_derived(shoal_status s);
bool status_is_derived(shoal_status s);
/* Marks "the peer has probably restarted" (travels as a payload on the wire). */
shoal_status status_mark_restarted(shoal_status s);
bool status_is_restarted(shoal_status s);
/* Keeps the more telling of two errors in *into and frees the other; s is consumed. */
void status_merge(shoal_status *into, shoal_status s);

/* An error that its maker keeps instead of returning it (a graph, a training session): the call of the public API that
 * it arose in gives it its place in the program, once it is back there. Returns s. */
shoal_status status_kept(shoal_status s);

/* errno's value as a status: "WHAT: No such file or directory" with the code that fits. */
shoal_status status_errno_at(int err, const char *file, int line, const char *func, const char *fmt, ...)
    SHOAL_PRINTF(5, 6) __attribute__((returns_nonnull));

#define STATUS(code, ...) status_new_at(code, __FILE__, __LINE__, __func__, __VA_ARGS__)
#define INVALID(...) STATUS(SHOAL_INVALID_ARGUMENT, __VA_ARGS__)
#define UNIMPLEMENTED(...) STATUS(SHOAL_UNIMPLEMENTED, __VA_ARGS__)
#define INTERNAL(...) STATUS(SHOAL_INTERNAL, __VA_ARGS__)
#define NOT_FOUND(...) STATUS(SHOAL_NOT_FOUND, __VA_ARGS__)
/* No memory for something whose size came from outside. */
#define NO_MEMORY(bytes, what) \
  STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM: no memory for %zu bytes of %s", (size_t)(bytes), what)
#define ERRNO_STATUS(err, ...) status_errno_at(err, __FILE__, __LINE__, __func__, __VA_ARGS__)

#define TRY(expr)                                                                                        \
  do {                                                                                                   \
    shoal_status try_s_ = (expr);                                                                        \
    if (__builtin_expect(try_s_ != NULL, 0)) return status_passed(try_s_, __FILE__, __LINE__, __func__); \
  } while (0)

#define TRY_GOTO(s, expr, label)                         \
  do {                                                   \
    shoal_status try_ = (s) = (expr);                    \
    if (__builtin_expect(try_ != NULL, 0)) {             \
      status_passed(try_, __FILE__, __LINE__, __func__); \
      goto label;                                        \
    }                                                    \
  } while (0)

/* A broken invariant of our own: never the answer to bad input. */
#define MUST(cond)                                                                      \
  do {                                                                                  \
    if (__builtin_expect(!(cond), 0)) must_failed(#cond, __FILE__, __LINE__, __func__); \
  } while (0)
/* One that docs/design.md states under a number. */
#define INVARIANT(number, cond)                                                                      \
  do {                                                                                               \
    if (__builtin_expect(!(cond), 0)) must_failed(#number ", " #cond, __FILE__, __LINE__, __func__); \
  } while (0)
_Noreturn void must_failed(const char *cond, const char *file, int line, const char *func);

#endif

/* Status: how every fallible call of Shoal reports what went wrong.
 *
 * A shoal_status is NULL when all is well. Otherwise it owns a code (TensorFlow's canonical codes, which are gRPC's
 * too), a message for people, the place in the program where it was made, and the chain of places that it passed
 * through inside Shoal.
 * Whoever receives one frees it, or hands it on. docs/errors.md states the policy. */
#ifndef SHOAL_STATUS_H
#define SHOAL_STATUS_H

#include <stdbool.h>

#include <shoal/options.h>

#if defined(__GNUC__)
#define SHOAL_API __attribute__((visibility("default")))
#define SHOAL_MUST_CHECK __attribute__((warn_unused_result))
#define SHOAL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SHOAL_API
#define SHOAL_MUST_CHECK
#define SHOAL_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_code {
  SHOAL_OK = 0,
  SHOAL_CANCELLED = 1,
  SHOAL_UNKNOWN = 2,
  SHOAL_INVALID_ARGUMENT = 3,
  SHOAL_DEADLINE_EXCEEDED = 4,
  SHOAL_NOT_FOUND = 5,
  SHOAL_ALREADY_EXISTS = 6,
  SHOAL_PERMISSION_DENIED = 7,
  SHOAL_RESOURCE_EXHAUSTED = 8,
  SHOAL_FAILED_PRECONDITION = 9,
  SHOAL_ABORTED = 10,
  SHOAL_OUT_OF_RANGE = 11,
  SHOAL_UNIMPLEMENTED = 12,
  SHOAL_INTERNAL = 13,
  SHOAL_UNAVAILABLE = 14,
  SHOAL_DATA_LOSS = 15,
  SHOAL_UNAUTHENTICATED = 16,
} shoal_code;

typedef struct shoal_status_rep *shoal_status;

/* All accept NULL (OK). The strings live as long as the status. */
SHOAL_API shoal_code shoal_status_code(shoal_status s);
SHOAL_API const char *shoal_status_message(shoal_status s);
/* Where in the program the error was made: "train.c:30", the call of this API (in a program that includes
 * shoal/shoal.h); "" when that is not known. */
SHOAL_API const char *shoal_status_where(shoal_status s);
/* The places inside Shoal that it passed through, innermost first, one a line: "src/graph/import.c:120 import_node". */
SHOAL_API const char *shoal_status_places(shoal_status s);
/* Prints it on standard error: "train.c:30: INVALID_ARGUMENT: ...", control characters escaped. The places inside Shoal
 * follow when the environment says SHOAL_LOG=debug. */
SHOAL_API void shoal_status_print(shoal_status s);
SHOAL_API void shoal_status_free(shoal_status s);
/* "INVALID_ARGUMENT" and so on. */
SHOAL_API const char *shoal_code_name(shoal_code code);

/* What shoal/places.h calls after each call of this API: gives the place to an error that has none yet, the one that is
 * handed through or those that graphs and training sessions of this thread have just kept. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_placed_status_(shoal_status s, const char *file, int line);
SHOAL_API void shoal_place_(const char *file, int line);

#ifdef __cplusplus
}
#endif
#endif

/* Versions: of the headers a program is compiled with, and of the library it runs with.
 *
 * Programs compiled with 0.1 run with every later library of the same SONAME (libshoal.so.0): symbols stay, options
 * grow at their end (shoal/options.h), other structs keep their layout. */
#ifndef SHOAL_VERSION_H
#define SHOAL_VERSION_H

#include <shoal/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_VERSION "0.2.0"
#define SHOAL_VERSION_MAJOR 0
#define SHOAL_VERSION_MINOR 2
#define SHOAL_VERSION_PATCH 0
/* For comparisons: SHOAL_VERSION_NUMBER >= SHOAL_VERSION_OF(0, 3, 0). */
#define SHOAL_VERSION_OF(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
#define SHOAL_VERSION_NUMBER SHOAL_VERSION_OF(SHOAL_VERSION_MAJOR, SHOAL_VERSION_MINOR, SHOAL_VERSION_PATCH)

/* The library's: "0.2.0", and as SHOAL_VERSION_OF makes it. */
SHOAL_API const char *shoal_version(void);
SHOAL_API int shoal_version_number(void);

#ifdef __cplusplus
}
#endif
#endif

/* What somebody may have meant who typed a name that there is not. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

/* Of n names the one that word (len bytes) is nearest to, or NULL when it is near none. The first name is at *names,
 * the others stride bytes apart: a field of a table's rows. Dashes and underscores, and case, are one. */
const char *suggest_name(const char *word, size_t len, const char *const *names, size_t n, size_t stride);

#endif

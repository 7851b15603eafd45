/* Regular expressions in RE2's syntax, matched in time proportional to pattern and text, whatever the pattern: graphs
 * bring patterns along, and a backtracking matcher would let them stop a server.
 *
 * Understood: literals, ., [...] with ranges, negation, [:alpha:] and the like, \d \w \s \D \W \S, escapes
 * (\n \t \r \f \v \a \123 \x7f \x{10ffff} \Q...\E), ^ $ \A \z \b \B, (...), (?:...), (?P<name>...), flags (?imsU-imsU),
 * |, * + ? {n,m} and their lazy forms, \pL \p{Greek} \P{Lu} and the other categories and scripts. Text is UTF-8. Not
 * understood, and said so: \C. */
#ifndef BASE_REGEX_H
#define BASE_REGEX_H

#include <stdbool.h>
#include <stddef.h>

struct regex;

enum { REGEX_MAX_GROUPS = 10 }; /* \0 to \9: more groups than that match, but cannot be asked for */

/* One match: [begin, end) of the text for \0 and each group; begin -1: took no part. */
struct regex_span {
  ptrdiff_t begin, end;
};

/* NULL when the pattern is wrong; *error (free it) then says why, in RE2's words. */
struct regex *regex_new(const char *pattern, size_t n, char **error);
void regex_free(struct regex *r);
int regex_groups(const struct regex *r); /* without \0 */

/* Does all of the text match? */
bool regex_full_match(const struct regex *r, const char *text, size_t n);
/* The leftmost match at or after `from`, preferring as the pattern does. spans: [REGEX_MAX_GROUPS]. */
bool regex_search(const struct regex *r, const char *text, size_t n, size_t from, struct regex_span *spans);

#endif

/* Near-misses of names: the edit distance in which a letter more, less or other and two that changed places cost one
 * each. A third of the letters may be wrong: "--wrokers" is near "--workers", "--foo" near nothing. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 };

static char plain(char c) { return c == '-' ? '_' : (char)tolower((unsigned char)c); }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* n, m <= LONGEST. Three rows of the table are enough: two letters that changed places look back two. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
  size_t rows[3][LONGEST + 1];
  for (size_t k = 0; k <= m; k++) rows[0][k] = k;
  for (size_t i = 1; i <= n; i++) {
    size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t k = 1; k <= m; k++) {
      bool same = plain(a[i - 1]) == plain(b[k - 1]);
      row[k] = least(least(row[k - 1], above[k]) + 1, above[k - 1] + !same);
      if (i > 1 && k > 1 && plain(a[i - 1]) == plain(b[k - 2]) && plain(a[i - 2]) == plain(b[k - 1]))
        row[k] = least(row[k], higher[k - 2] + 1);
    }
  }
  return rows[n % 3][m];
}

const char *suggest_name(const char *word, size_t len, const char *const *names, size_t n, size_t stride) {
  const char *best = NULL;
  size_t best_distance = 0;
  if (!len || len > LONGEST) return NULL;
  for (size_t i = 0; i < n; i++) {
    const char *name = *(const char *const *)((const char *)names + i * stride);
    size_t m = strlen(name);
    if (m > LONGEST) continue;
    size_t d = distance(word, len, name, m);
    /* What was begun and not ended: "--train" for "--train_steps". */
    if (len >= 4 && m > len && !strncasecmp(word, name, len)) d = least(d, len / 3);
    if (d > (len + 2) / 3 || (best && d >= best_distance)) continue;
    best = name;
    best_distance = d;
  }
  return best;
}

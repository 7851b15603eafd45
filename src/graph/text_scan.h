/* Protocol buffers as text, token by token: a scanner that knows its line and column, and the values that tokens make.
 * text_format.c and what else reads that form are parsers over it. */
#ifndef GRAPH_TEXT_SCAN_H
#define GRAPH_TEXT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum token { T_END, T_WORD, T_NUMBER, T_STRING, T_MARK };

struct scan {
  const char *at, *end;
  int line, column; /* of `at` */
  enum token kind;
  const char *begin; /* the token's text; of strings with the quotes */
  size_t n;
  int token_line, token_column;
};

/* Reads the next token. A sign is a mark of its own. */
shoal_status scan_next(struct scan *s);
static inline bool scan_at(const struct scan *s, char c) { return s->kind == T_MARK && *s->begin == c; }
/* Goes past a mark, if it is there; must be there. */
shoal_status scan_eat(struct scan *s, char c, bool *found);
shoal_status scan_expect(struct scan *s, char c);

/* One or more string literals side by side. */
shoal_status scan_string(struct scan *s, struct text *out);
/* An integer between low and high (high up to UINT64_MAX). */
shoal_status scan_integer(struct scan *s, int64_t low, uint64_t high, uint64_t *out);
shoal_status scan_double(struct scan *s, double *out);
shoal_status scan_bool(struct scan *s, bool *out);

/* Errors with the token's place: "LINE:COLUMN: ...". */
shoal_status scan_wrong(const struct scan *s, const char *what);
shoal_status scan_placed(const struct scan *s, shoal_status wrong);
#define SCAN_WRONG(s, ...) scan_placed((s), INVALID(__VA_ARGS__))

#endif

/* The tokens of the text form, and the values that are made of them. */
#include "graph/text_scan.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

shoal_status scan_wrong(const struct scan *s, const char *what) {
  return INVALID("%d:%d: %s", s->token_line, s->token_column, what);
}

shoal_status scan_placed(const struct scan *s, shoal_status wrong) {
  return status_prefix(wrong, "%d:%d: ", s->token_line, s->token_column);
}

static void step(struct scan *s) {
  if (*s->at == '\n') {
    s->line++;
    s->column = 0;
  }
  s->column++;
  s->at++;
}

static void skip_blanks(struct scan *s) {
  while (s->at < s->end) {
    if (*s->at == '#')
      while (s->at < s->end && *s->at != '\n') step(s);
    else if (isspace((unsigned char)*s->at)) step(s);
    else return;
  }
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

shoal_status scan_next(struct scan *s) {
  skip_blanks(s);
  s->token_line = s->line;
  s->token_column = s->column;
  s->begin = s->at;
  s->kind = T_END;
  if (s->at < s->end) {
    char c = *s->at;
    if (isalpha((unsigned char)c) || c == '_') {
      s->kind = T_WORD;
      while (s->at < s->end && word_char(*s->at)) step(s);
    } else if (isdigit((unsigned char)c) || (c == '.' && s->at + 1 < s->end && isdigit((unsigned char)s->at[1]))) {
      s->kind = T_NUMBER;
      while (s->at < s->end && (word_char(*s->at) || *s->at == '.' ||
                                ((*s->at == '+' || *s->at == '-') && (s->at[-1] == 'e' || s->at[-1] == 'E'))))
        step(s);
    } else if (c == '"' || c == '\'') {
      s->kind = T_STRING;
      step(s);
      while (s->at < s->end && *s->at != c) {
        if (*s->at == '\n') return scan_wrong(s, "String literals cannot cross line boundaries.");
        if (*s->at == '\\' && s->at + 1 < s->end) step(s);
        step(s);
      }
      if (s->at == s->end) return scan_wrong(s, "Unexpected end of string.");
      step(s);
    } else {
      s->kind = T_MARK;
      step(s);
    }
  }
  s->n = (size_t)(s->at - s->begin);
  return NULL;
}

shoal_status scan_eat(struct scan *s, char c, bool *found) {
  *found = scan_at(s, c);
  return *found ? scan_next(s) : NULL;
}

shoal_status scan_expect(struct scan *s, char c) {
  if (scan_at(s, c)) return scan_next(s);
  return SCAN_WRONG(s, "Expected \"%c\", found \"%.*s\".", c, (int)MIN(s->n, 40), s->begin);
}

/* ---- values ---- */

static shoal_status add_escape(const struct scan *s, const char **p, const char *end, struct text *out) {
  char c = *(*p)++;
  static const char from[] = "nrtabfv\\'\"?", to[] = "\n\r\t\a\b\f\v\\'\"?";
  const char *simple = strchr(from, c);
  if (c && simple) {
    text_addc(out, to[simple - from]);
    return NULL;
  }
  if (c >= '0' && c <= '7') {
    int v = c - '0';
    for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++) v = v * 8 + (*(*p)++ - '0');
    text_addc(out, (char)v);
    return NULL;
  }
  int digits = c == 'x' || c == 'X' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (!digits) return scan_wrong(s, "Invalid escape sequence in string literal.");
  uint32_t v = 0;
  int got = 0;
  for (; got < digits && *p < end && isxdigit((unsigned char)**p); got++) {
    char h = (char)tolower((unsigned char)*(*p)++);
    v = v * 16 + (uint32_t)(h <= '9' ? h - '0' : h - 'a' + 10);
  }
  if (!got || (digits > 2 && got < digits) || v > 0x10ffff)
    return scan_wrong(s, "Invalid escape sequence in string literal.");
  if (digits == 2 || v < 0x80) {
    text_addc(out, (char)v);
  } else {
    char utf[4];
    int n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, v >>= 6) utf[i] = (char)(0x80 | (v & 0x3f));
    utf[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | v);
    text_add(out, utf, (size_t)n);
  }
  return NULL;
}

shoal_status scan_string(struct scan *s, struct text *out) {
  if (s->kind != T_STRING) return scan_wrong(s, "Expected string.");
  while (s->kind == T_STRING) {
    const char *p = s->begin + 1, *end = s->begin + s->n - 1;
    while (p < end) {
      if (*p != '\\') {
        text_addc(out, *p++);
        continue;
      }
      p++;
      TRY(add_escape(s, &p, end, out));
    }
    TRY(scan_next(s));
  }
  return NULL;
}

/* In letters of either case. */
static bool word_is(const struct scan *s, const char *w) {
  return s->kind == T_WORD && s->n == strlen(w) && !strncasecmp(s->begin, w, s->n);
}

shoal_status scan_integer(struct scan *s, int64_t low, uint64_t high, uint64_t *out) {
  bool minus;
  TRY(scan_eat(s, '-', &minus));
  char text[72];
  if (s->kind != T_NUMBER || s->n >= sizeof text)
    return SCAN_WRONG(s, "Expected integer, got: %.*s", (int)MIN(s->n, 40), s->begin);
  memcpy(text, s->begin, s->n);
  text[s->n] = 0;
  char *end;
  errno = 0;
  uint64_t v = strtoull(text, &end, 0);
  if (*end || errno) return SCAN_WRONG(s, "Expected integer, got: %s", text);
  if (minus ? v > (uint64_t)INT64_MAX + 1 || (v && (int64_t)(0 - v) < low) : v > high)
    return SCAN_WRONG(s, "Integer out of range (%s%s)", minus ? "-" : "", text);
  *out = minus ? 0 - v : v;
  return scan_next(s);
}

shoal_status scan_double(struct scan *s, double *out) {
  bool minus;
  TRY(scan_eat(s, '-', &minus));
  double v;
  if (word_is(s, "inf") || word_is(s, "infinity")) v = INFINITY;
  else if (word_is(s, "nan")) v = NAN;
  else {
    char text[128], *end;
    if (s->kind != T_NUMBER || s->n >= sizeof text)
      return SCAN_WRONG(s, "Expected double, got: %.*s", (int)MIN(s->n, 40), s->begin);
    memcpy(text, s->begin, s->n);
    text[s->n] = 0;
    v = strtod(text, &end);
    if (*end && !((*end == 'f' || *end == 'F') && !end[1])) return SCAN_WRONG(s, "Expected double, got: %s", text);
  }
  *out = minus ? -v : v;
  return scan_next(s);
}

shoal_status scan_bool(struct scan *s, bool *out) {
  if (word_is(s, "true") || word_is(s, "t")) *out = 1;
  else if (word_is(s, "false") || word_is(s, "f")) *out = 0;
  else {
    uint64_t v;
    TRY(scan_integer(s, 0, 1, &v));
    *out = v != 0;
    return NULL;
  }
  return scan_next(s);
}

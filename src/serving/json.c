/* See json.h. */
#include "serving/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 200 };

/* ---- checking ---- */

struct check {
  const char *begin, *at, *end;
};

static shoal_status wrong(const struct check *c, const char *why) {
  return INVALID("JSON Parse error: %s at offset: %zu", why, (size_t)(c->at - c->begin));
}

static void skip_space(struct check *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

static bool check_hex(const struct check *c, const char *at) {
  for (int i = 0; i < 4; i++)
    if (at + i >= c->end || !is_hex(at[i])) return false;
  return true;
}

static unsigned hex4(const char *at) {
  char digits[5] = {at[0], at[1], at[2], at[3], 0};
  return (unsigned)strtoul(digits, NULL, 16);
}

static bool is_high(unsigned c) { return c >= 0xd800 && c < 0xdc00; }
static bool is_low(unsigned c) { return c >= 0xdc00 && c < 0xe000; }

/* Behind \u: a character, or the first half of one, behind which the second half is to be. */
static shoal_status check_escaped(struct check *c) {
  if (!check_hex(c, c->at + 1)) return wrong(c, "Incorrect hex digit after \\u escape in string.");
  unsigned first = hex4(c->at + 1);
  if (is_low(first)) return wrong(c, "The surrogate pair in string is invalid.");
  c->at += 4;
  if (!is_high(first)) return NULL;
  bool pair = c->end - c->at > 6 && c->at[1] == '\\' && c->at[2] == 'u' && check_hex(c, c->at + 3);
  if (!pair || !is_low(hex4(c->at + 3))) return wrong(c, "The surrogate pair in string is invalid.");
  c->at += 6;
  return NULL;
}

static shoal_status check_string(struct check *c) {
  const char *begin = c->at;
  for (c->at++; c->at < c->end && *c->at != '"'; c->at++) {
    if ((unsigned char)*c->at < 0x20) return wrong(c, "Invalid encoding in string.");
    if (*c->at != '\\') continue;
    c->at++;
    if (c->at >= c->end) break;
    if (*c->at == 'u') {
      TRY(check_escaped(c));
    } else if (!*c->at || !strchr("\"\\/bfnrt", *c->at)) {
      return wrong(c, "Invalid escape character in string.");
    }
  }
  if (c->at >= c->end) {
    c->at = begin;
    return wrong(c, "Missing a closing quotation mark in string.");
  }
  if (!str_is_utf8(begin, (size_t)(c->at - begin))) {
    c->at = begin;
    return wrong(c, "Invalid encoding in string.");
  }
  c->at++;
  return NULL;
}

static bool take_word(struct check *c, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
  c->at += n;
  return true;
}

static bool take_digits(struct check *c) {
  const char *from = c->at;
  while (c->at < c->end && is_digit(*c->at)) c->at++;
  return c->at > from;
}

static shoal_status check_number(struct check *c) {
  enum { LONG = 300 }; /* digits: with fewer and without an exponent no number is too big */
  if (*c->at == '-') c->at++;
  if (take_word(c, "Infinity") || take_word(c, "Inf") || take_word(c, "NaN")) return NULL;
  bool zero = c->at < c->end && *c->at == '0';
  const char *from = c->at;
  if (!take_digits(c)) return wrong(c, "Invalid value.");
  if (zero && c->at - from > 1) {
    c->at = from + 1;
    return wrong(c, "Missing a comma or } after an object member.");
  }
  if (c->at < c->end && *c->at == '.') {
    c->at++;
    if (!take_digits(c)) return wrong(c, "Miss fraction part in number.");
  }
  bool power = c->at < c->end && (*c->at == 'e' || *c->at == 'E');
  if (power) {
    c->at++;
    if (c->at < c->end && (*c->at == '+' || *c->at == '-')) c->at++;
    if (!take_digits(c)) return wrong(c, "Miss exponent in number.");
  }
  if ((power || c->at - from > LONG) && isinf(strtod(from, NULL))) {
    c->at = from;
    return wrong(c, "Number too big to be stored in double.");
  }
  return NULL;
}

static shoal_status check_plain(struct check *c) {
  if (c->at >= c->end) return wrong(c, "Invalid value.");
  if (*c->at == '"') return check_string(c);
  if (take_word(c, "null") || take_word(c, "true") || take_word(c, "false")) return NULL;
  return check_number(c);
}

/* A member's name and its colon. */
static shoal_status check_name(struct check *c) {
  skip_space(c);
  if (c->at >= c->end || *c->at != '"') return wrong(c, "Missing a name for object member.");
  TRY(check_string(c));
  skip_space(c);
  if (c->at >= c->end || *c->at != ':') return wrong(c, "Missing a colon after a name of object member.");
  c->at++;
  return NULL;
}

/* After a value: what closes, as often as it does. *again: another value is to come. */
static shoal_status check_close(struct check *c, char *stack, int *depth, bool *again) {
  for (*again = false; *depth;) {
    skip_space(c);
    char close = stack[*depth - 1];
    if (c->at < c->end && *c->at == ',') {
      c->at++;
      *again = true;
      return close == '}' ? check_name(c) : NULL;
    }
    if (c->at >= c->end || *c->at != close)
      return wrong(c, close == '}' ? "Missing a comma or } after an object member."
                                   : "Missing a comma or ] after an array element.");
    c->at++;
    --*depth;
  }
  return NULL;
}

/* Opens what begins here; *empty: it closes at once. */
static shoal_status check_open(struct check *c, char *stack, int *depth, bool *empty) {
  if (*depth == JSON_MAX_DEPTH) return wrong(c, "Nested too deeply.");
  char close = *c->at == '[' ? ']' : '}';
  c->at++;
  skip_space(c);
  *empty = c->at < c->end && *c->at == close;
  if (*empty) {
    c->at++;
    return NULL;
  }
  stack[(*depth)++] = close;
  return close == '}' ? check_name(c) : NULL;
}

shoal_status json_check(const char *text, size_t n) {
  struct check c = {text, text, text + n};
  char stack[JSON_MAX_DEPTH];
  int depth = 0;
  skip_space(&c);
  if (c.at == c.end) return INVALID("JSON Parse error: The document is empty");
  for (bool again = true; again;) {
    bool closed = true;
    skip_space(&c);
    if (c.at < c.end && (*c.at == '[' || *c.at == '{')) TRY(check_open(&c, stack, &depth, &closed));
    else TRY(check_plain(&c));
    if (!closed) continue;
    TRY(check_close(&c, stack, &depth, &again));
  }
  skip_space(&c);
  return c.at == c.end ? NULL : wrong(&c, "The document root must not be followed by other values.");
}

/* ---- walking ---- */

static const char *space_end(const char *at) {
  while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') at++;
  return at;
}

json_value json_first(const char *text) { return space_end(text); }

enum json_type json_type_of(json_value v) {
  switch (*v) {
    case 'n': return JSON_NULL;
    case 'f': return JSON_FALSE;
    case 't': return JSON_TRUE;
    case '"': return JSON_STRING;
    case '[': return JSON_ARRAY;
    case '{': return JSON_OBJECT;
    default: return JSON_NUMBER;
  }
}

const char *json_type_name(enum json_type t) {
  static const char *const names[] = {"Null", "False", "True", "Number", "String", "Array", "Object"};
  return names[t];
}

static const char *string_end(const char *at) {
  for (at++; *at != '"'; at++)
    if (*at == '\\') at++;
  return at + 1;
}

const char *json_end(json_value v) {
  int depth = 0;
  for (;;) {
    switch (*v) {
      case '"': v = string_end(v); break;
      case '[':
      case '{':
        depth++;
        v++;
        break;
      case ']':
      case '}':
        depth--;
        v++;
        break;
      case ',':
      case ':':
      case ' ':
      case '\t':
      case '\n':
      case '\r': v++; break;
      default: v += strcspn(v, ",]} \t\n\r");
    }
    if (!depth) return v;
  }
}

struct json_walk json_inside(json_value v) {
  return (struct json_walk){v + 1, *v == '[' ? ']' : '}'};
}

bool json_next(struct json_walk *w, json_value *key, json_value *value) {
  w->at = space_end(w->at);
  if (*w->at == ',') w->at = space_end(w->at + 1);
  if (*w->at == w->close) return false;
  *key = NULL;
  if (w->close == '}') {
    *key = w->at;
    w->at = space_end(string_end(w->at));
    w->at = space_end(w->at + 1);
  }
  *value = w->at;
  w->at = json_end(w->at);
  return true;
}

int64_t json_count(json_value v) {
  json_value key, value;
  int64_t n = 0;
  for (struct json_walk w = json_inside(v); json_next(&w, &key, &value);) n++;
  return n;
}

json_value json_member(json_value object, const char *name) {
  json_value key, value, found = NULL;
  for (struct json_walk w = json_inside(object); json_next(&w, &key, &value);)
    if (json_string_is(key, name)) found = value;
  return found;
}

/* ---- strings ---- */

static void add_utf8(struct text *out, unsigned c) {
  if (c < 0x80) {
    text_addc(out, (char)c);
  } else if (c < 0x800) {
    text_addc(out, (char)(0xc0 | c >> 6));
    text_addc(out, (char)(0x80 | (c & 63)));
  } else if (c < 0x10000) {
    text_addc(out, (char)(0xe0 | c >> 12));
    text_addc(out, (char)(0x80 | (c >> 6 & 63)));
    text_addc(out, (char)(0x80 | (c & 63)));
  } else {
    text_addc(out, (char)(0xf0 | c >> 18));
    text_addc(out, (char)(0x80 | (c >> 12 & 63)));
    text_addc(out, (char)(0x80 | (c >> 6 & 63)));
    text_addc(out, (char)(0x80 | (c & 63)));
  }
}

/* A character by number, of two halves where it is beyond 16 bits; a half is never alone (check_escaped). */
static const char *add_escaped(const char *at, struct text *out) {
  unsigned c = hex4(at);
  at += 4;
  if (is_high(c)) {
    c = 0x10000 + ((c - 0xd800) << 10) + (hex4(at + 2) - 0xdc00);
    at += 6;
  }
  add_utf8(out, c);
  return at;
}

void json_string(json_value v, struct text *out) {
  for (const char *at = v + 1; *at != '"';) {
    size_t n = strcspn(at, "\"\\");
    text_add(out, at, n);
    at += n;
    if (*at != '\\') continue;
    char c = at[1];
    at += 2;
    if (c == 'u') at = add_escaped(at, out);
    else text_addc(out, c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c);
  }
}

bool json_string_is(json_value v, const char *s) {
  size_t n = strlen(s), plain = strcspn(v + 1, "\"\\");
  if (v[1 + plain] == '"') return plain == n && !memcmp(v + 1, s, n);
  struct text t = {0};
  json_string(v, &t);
  bool is = t.n == n && !memcmp(text_cstr(&t), s, n);
  text_release(&t);
  return is;
}

/* ---- numbers ---- */

/* Few digits and a small exponent: exact in one multiplication or division. */
static bool easy_decimal(const char *at, double *out) {
  static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  bool negative = *at == '-', fraction = false;
  uint64_t m = 0;
  int exponent = 0, e = 0, digits = 0;
  at += negative;
  for (; is_digit(*at) || (*at == '.' && !fraction); at++) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    if (m && ++digits > 17) return false;
    m = m * 10 + (uint64_t)(*at - '0');
    exponent -= fraction;
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    bool minus = *at == '-';
    at += *at == '-' || *at == '+';
    for (; is_digit(*at); at++)
      if ((e = e * 10 + (*at - '0')) > 400) return false;
    exponent += minus ? -e : e;
  }
  if (m > (UINT64_C(1) << 53) || exponent < -22 || exponent > 22) return false;
  double d = exponent < 0 ? (double)m / tens[-exponent] : (double)m * tens[exponent];
  *out = negative ? -d : d;
  return true;
}

static double decimal_of(const char *at) {
  double d;
  bool negative = *at == '-';
  if (at[negative] == 'N') return NAN;
  if (at[negative] == 'I') return negative ? -INFINITY : INFINITY;
  return easy_decimal(at, &d) ? d : strtod(at, NULL);
}

struct json_number json_number_of(json_value v) {
  struct json_number n = {.kind = JSON_DECIMAL};
  const char *at = v + (*v == '-');
  uint64_t u = 0;
  bool fits = is_digit(*at);
  for (; is_digit(*at); at++)
    fits =
        fits && !__builtin_mul_overflow(u, UINT64_C(10), &u) && !__builtin_add_overflow(u, (uint64_t)(*at - '0'), &u);
  bool whole = fits && *at != '.' && *at != 'e' && *at != 'E';
  if (whole && *v == '-' && u <= (uint64_t)INT64_MAX + 1) {
    n.kind = JSON_SIGNED;
    n.i = (int64_t)(0 - u);
    n.d = u || *v != '-' ? (double)n.i : -0.0;
  } else if (whole && *v != '-') {
    n.kind = u <= INT64_MAX ? JSON_SIGNED : JSON_UNSIGNED;
    n.i = u <= INT64_MAX ? (int64_t)u : 0;
    n.u = u;
    n.d = (double)u;
  } else {
    n.d = decimal_of(v);
  }
  return n;
}

void json_show(json_value v, struct text *out) {
  size_t n = (size_t)(json_end(v) - v);
  text_add_shown(out, v, n < SHOWN ? n : SHOWN, false);
  if (n > SHOWN) text_adds(out, "...");
}

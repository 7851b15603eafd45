/* Patterns to programs. The parser makes a tree, from which code is made; both are bounded (nesting, repetition,
 * size of the program), since {n} multiplies what stands before it. */
#include <stdlib.h>
#include <string.h>

#include "base/regex_internal.h"
#include "base/text.h"
#include "base/vec.h"

enum { MAX_DEPTH = 500, MAX_REPEAT = 1000, MAX_PROGRAM = 200000, MAX_RANGES = 1 << 18 };

enum regex_node_kind { EMPTY, CHAR, CLASS, ANY, CAT, ALT, REPEAT, GROUP, ASSERT };

struct regex_node {
  enum regex_node_kind kind;
  uint32_t value; /* code point, class, assertion, group (0: does not remember) */
  int min, max;   /* REPEAT; max -1: no end */
  bool lazy;
  VEC(struct regex_node *) kids;
};

struct parser {
  const char *at, *end, *begin;
  bool fold, multi_line, dot_all, swap_greed;
  int depth;
  VEC(struct regex_node *) nodes; /* all, for freeing */
  VEC(struct regex_class) classes;
  size_t n_ranges; /* of all of them: a property of three bytes has hundreds */
  VEC(struct regex_inst) prog;
  int groups;
  char *error;
};

typedef VEC(uint32_t) ranges; /* pairs */

static void fail(struct parser *p, const char *what, const char *at, size_t n) {
  if (!p->error) p->error = mem_printf("%s: %.*s", what, (int)n, at);
}
static void fail_rest(struct parser *p, const char *what, const char *at) { fail(p, what, at, (size_t)(p->end - at)); }

static struct regex_node *make(struct parser *p, enum regex_node_kind kind, uint32_t value) {
  struct regex_node *n = mem_zalloc(1, sizeof *n);
  n->kind = kind;
  n->value = value;
  vec_push(&p->nodes, n);
  return n;
}

int regex_decode(const char *s, const char *end, uint32_t *rune) {
  const unsigned char *p = (const unsigned char *)s;
  ptrdiff_t left = end - s;
  if (left <= 0) return 0;
  *rune = p[0];
  if (p[0] < 0x80) return 1;
  int n = p[0] >= 0xf0 && p[0] < 0xf8 ? 4 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : 0;
  uint32_t v = n == 4 ? p[0] & 7u : n == 3 ? p[0] & 15u : p[0] & 31u;
  bool ok = n && n <= left;
  for (int i = 1; ok && i < n; i++) {
    ok = (p[i] & 0xc0) == 0x80;
    v = v << 6 | (p[i] & 0x3fu);
  }
  if (ok && ((n == 3 && v < 0x800) || (n == 4 && (v < 0x10000 || v > RX_MAX_RUNE)) || (v >= 0xd800 && v < 0xe000)))
    ok = false;
  *rune = ok ? v : RX_BAD_RUNE;
  return ok ? n : 1;
}

static bool take_rune(struct parser *p, uint32_t *rune) {
  int n = regex_decode(p->at, p->end, rune);
  if (n == 0) return false;
  if (*rune == RX_BAD_RUNE) fail(p, "invalid UTF-8", "", 0);
  p->at += n;
  return !p->error;
}

static bool eat(struct parser *p, const char *text) {
  size_t n = strlen(text);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0) return false;
  p->at += n;
  return true;
}

/* ---- classes ---- */

static void add_range(ranges *r, uint32_t lo, uint32_t hi) {
  vec_push(r, lo);
  vec_push(r, hi);
}

static void add_to(void *arg, uint32_t lo, uint32_t hi) { add_range(arg, lo, hi); }

static void add_folded(ranges *r, uint32_t lo, uint32_t hi, bool fold) {
  add_range(r, lo, hi);
  if (fold) regex_other_cases(lo, hi, add_to, r);
}

static int by_lo(const void *a, const void *b) {
  const uint32_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Sorts, joins what touches, and inverts when asked to. */
static void normalize(ranges *r, bool negate) {
  if (r->n) qsort(r->at, r->n / 2, 2 * sizeof *r->at, by_lo);
  size_t n = 0;
  for (size_t i = 0; i < r->n; i += 2) {
    if (n && r->at[i] <= r->at[n - 1] + 1) {
      if (r->at[i + 1] > r->at[n - 1]) r->at[n - 1] = r->at[i + 1];
    } else {
      r->at[n] = r->at[i];
      r->at[n + 1] = r->at[i + 1];
      n += 2;
    }
  }
  r->n = n;
  if (!negate) return;
  ranges out = {0};
  uint32_t next = 0;
  for (size_t i = 0; i < n; i += 2) {
    if (r->at[i] > next) add_range(&out, next, r->at[i] - 1);
    next = r->at[i + 1] + 1;
  }
  if (next <= RX_MAX_RUNE) add_range(&out, next, RX_MAX_RUNE);
  vec_release(r);
  *r = out;
}

static struct regex_node *class_node(struct parser *p, ranges *r, bool negate) {
  normalize(r, negate);
  p->n_ranges += r->n / 2;
  if (p->n_ranges > MAX_RANGES) fail(p, "pattern too large - compile failed", "", 0);
  vec_push(&p->classes, (struct regex_class){r->at, (int)(r->n / 2)});
  return make(p, CLASS, (uint32_t)p->classes.n - 1);
}

/* The ranges of \d and so on, by pairs of characters; upper case means the others. */
static bool add_perl(ranges *r, char c) {
  const char *pairs;
  switch (c | 32) {
    case 'd': pairs = "09"; break;
    case 'w': pairs = "09AZ__az"; break;
    case 's': pairs = "\t\n\f\r  "; break;
    default: return false;
  }
  ranges own = {0};
  for (; *pairs; pairs += 2) add_range(&own, (unsigned char)pairs[0], (unsigned char)pairs[1]);
  normalize(&own, c < 'a');
  for (size_t i = 0; i < own.n; i++) vec_push(r, own.at[i]);
  vec_release(&own);
  return true;
}

static bool add_posix(struct parser *p, ranges *r) {
  static const struct {
    const char *name, *pairs;
  } table[] = {
      {"alnum", "09AZaz"}, {"alpha", "AZaz"}, {"ascii", "\x01\x7f"}, {"blank", "\t\t  "}, {"cntrl", "\x01\x1f\x7f\x7f"},
      {"digit", "09"},     {"graph", "!~"},   {"lower", "az"},       {"print", " ~"},     {"punct", "!/:@[`{~"},
      {"space", "\t\r  "}, {"upper", "AZ"},   {"word", "09AZ__az"},  {"xdigit", "09AFaf"}};
  const char *start = p->at - 2, *stop = p->at;
  while (stop + 1 < p->end && !(stop[0] == ':' && stop[1] == ']')) stop++;
  if (stop + 1 >= p->end) return false;
  bool negate = *p->at == '^';
  const char *name = p->at + negate;
  for (size_t i = 0; i < COUNT_OF(table); i++) {
    if (strlen(table[i].name) != (size_t)(stop - name) || memcmp(table[i].name, name, (size_t)(stop - name))) continue;
    ranges own = {0};
    for (const char *q = table[i].pairs; *q; q += 2) add_range(&own, (unsigned char)q[0], (unsigned char)q[1]);
    if (!strcmp(table[i].name, "ascii") || !strcmp(table[i].name, "cntrl")) add_range(&own, 0, 0);
    normalize(&own, negate);
    for (size_t k = 0; k < own.n; k++) vec_push(r, own.at[k]);
    vec_release(&own);
    p->at = stop + 2;
    return true;
  }
  fail(p, "invalid character class range", start, (size_t)(stop + 2 - start));
  return true;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

/* After a backslash: one code point. */
static bool parse_escape(struct parser *p, uint32_t *rune) {
  static const char from[] = "nrtfva", to[] = "\n\r\t\f\v\a";
  const char *start = p->at - 1, *found;
  if (p->at == p->end) {
    fail(p, "trailing \\ at end of pattern", "", 0);
    return false;
  }
  char c = *p->at;
  if (c >= '0' && c <= '7' && (c == '0' || (p->at + 1 < p->end && p->at[1] >= '0' && p->at[1] <= '7'))) {
    *rune = 0;
    for (int i = 0; i < 3 && p->at < p->end && *p->at >= '0' && *p->at <= '7'; i++)
      *rune = *rune * 8 + (uint32_t)(*p->at++ - '0');
    return true;
  }
  if (c == 'x') {
    uint32_t v = 0;
    p->at++;
    if (eat(p, "{")) {
      const char *digits = p->at;
      while (p->at < p->end && hex_digit(*p->at) >= 0 && v <= RX_MAX_RUNE) v = v * 16 + (uint32_t)hex_digit(*p->at++);
      if (p->at > digits && v <= RX_MAX_RUNE && eat(p, "}")) {
        *rune = v;
        return true;
      }
    } else if (p->end - p->at >= 2 && hex_digit(p->at[0]) >= 0 && hex_digit(p->at[1]) >= 0) {
      *rune = (uint32_t)(hex_digit(p->at[0]) * 16 + hex_digit(p->at[1]));
      p->at += 2;
      return true;
    }
    fail(p, "invalid escape sequence", start, (size_t)(p->at - start));
    return false;
  }
  if ((found = c ? strchr(from, c) : NULL)) {
    *rune = (unsigned char)to[found - from];
    p->at++;
    return true;
  }
  bool word = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  if (word) {
    fail(p, "invalid escape sequence", start, 2);
    return false;
  }
  return take_rune(p, rune);
}

/* After a backslash: \pL, \p{Lu}, \p{^Lu}, \P{Lu}. False: it is none of these. */
static bool add_property(struct parser *p, ranges *r) {
  if (p->at == p->end || (*p->at != 'p' && *p->at != 'P')) return false;
  const char *start = p->at - 1, *name = p->at + 1, *stop = name + (name < p->end);
  bool braces = name < p->end && *name == '{', negate = *p->at == 'P';
  name += braces;
  if (braces) stop = memchr(name, '}', (size_t)(p->end - name));
  if (braces && stop && name < stop && *name == '^') {
    negate = !negate;
    name++;
  }
  ranges own = {0};
  if (stop && regex_property(name, (size_t)(stop - name), add_to, &own)) {
    normalize(&own, negate);
    for (size_t i = 0; i < own.n; i += 2) add_folded(r, own.at[i], own.at[i + 1], p->fold);
    p->at = stop + braces;
  } else {
    fail(p, "invalid character class range", start, (size_t)((stop ? stop + braces : p->end) - start));
  }
  vec_release(&own);
  return true;
}

static struct regex_node *parse_class(struct parser *p) {
  const char *start = p->at - 1;
  ranges r = {0};
  bool negate = eat(p, "^"), first = true;
  while (!p->error) {
    if (r.n / 2 > MAX_RANGES) fail(p, "pattern too large - compile failed", "", 0);
    if (p->at == p->end) {
      fail_rest(p, "missing ]", start);
      break;
    }
    if (*p->at == ']' && !first) break;
    first = false;
    uint32_t lo, hi;
    if (eat(p, "[:")) {
      if (add_posix(p, &r)) continue;
      p->at -= 2; /* no class is named: a plain [ */
    }
    const char *item = p->at;
    if (eat(p, "\\")) {
      if (add_property(p, &r)) continue;
      if (p->at < p->end && add_perl(&r, *p->at)) {
        p->at++;
        continue;
      }
      if (!parse_escape(p, &lo)) break;
    } else if (!take_rune(p, &lo)) {
      break;
    }
    hi = lo;
    if (p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']') {
      p->at++;
      if (eat(p, "\\") ? !parse_escape(p, &hi) : !take_rune(p, &hi)) break;
      if (hi < lo) fail(p, "invalid character class range", item, (size_t)(p->at - item));
    }
    add_folded(&r, lo, hi, p->fold);
  }
  if (p->error) {
    vec_release(&r);
    return NULL;
  }
  p->at++;
  return class_node(p, &r, negate);
}

/* ---- expressions ---- */

static struct regex_node *parse_alternatives(struct parser *p);

static struct regex_node *literal(struct parser *p, uint32_t rune) {
  ranges r = {0};
  if (p->fold) add_folded(&r, rune, rune, true);
  if (r.n > 2) return class_node(p, &r, false);
  vec_release(&r);
  return make(p, CHAR, rune);
}

static bool name_char(char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_'; }

/* (?flags) opens nothing; (?flags: and (?P<name> begin a group. False on an error. */
static bool parse_flags(struct parser *p, bool *opens, bool *captures) {
  const char *start = p->at - 2;
  *opens = *captures = false;
  if (p->at < p->end && (*p->at == 'P' || *p->at == '<')) {
    bool named = eat(p, "P<") || eat(p, "<");
    const char *name = p->at;
    while (named && p->at < p->end && name_char(*p->at)) p->at++;
    if (!named || p->at == name || !eat(p, ">")) {
      fail_rest(p, "invalid named capture group", start);
      return false;
    }
    *opens = *captures = true;
    return true;
  }
  bool on = true;
  for (; p->at < p->end; p->at++) switch (*p->at) {
      case 'i': p->fold = on; break;
      case 'm': p->multi_line = on; break;
      case 's': p->dot_all = on; break;
      case 'U': p->swap_greed = on; break;
      case '-':
        if (!on) goto bad;
        on = false;
        break;
      case ':': *opens = true; /* fall through */
      case ')': p->at++; return true;
      default: goto bad;
    }
bad:
  fail(p, "invalid perl operator", start, (size_t)(p->at - start) + (p->at < p->end));
  return false;
}

static struct regex_node *parse_group(struct parser *p) {
  bool fold = p->fold, multi = p->multi_line, dot = p->dot_all, swap = p->swap_greed;
  bool opens = true, captures = true;
  if (eat(p, "?")) {
    if (!parse_flags(p, &opens, &captures)) return NULL;
    if (!opens) return make(p, EMPTY, 0); /* (?i): for the rest of the group it stands in */
  }
  uint32_t index = captures ? (uint32_t)++p->groups : 0;
  if (++p->depth > MAX_DEPTH) {
    fail(p, "expression nests too deeply", "", 0);
    return NULL;
  }
  struct regex_node *inner = parse_alternatives(p);
  p->depth--;
  if (p->error) return NULL;
  if (!eat(p, ")")) {
    fail(p, "missing )", p->begin, (size_t)(p->end - p->begin));
    return NULL;
  }
  p->fold = fold;
  p->multi_line = multi;
  p->dot_all = dot;
  p->swap_greed = swap;
  struct regex_node *g = make(p, GROUP, index);
  vec_push(&g->kids, inner);
  return g;
}

static struct regex_node *any_but_newline(struct parser *p) {
  ranges r = {0};
  add_range(&r, '\n', '\n');
  return class_node(p, &r, true);
}

static struct regex_node *parse_backslash(struct parser *p, struct regex_node *cat) {
  char c = p->at < p->end ? *p->at : 0;
  if (c == 'A' || c == 'z' || c == 'b' || c == 'B') {
    p->at++;
    return make(p, ASSERT, c == 'A' ? RX_TEXT_BEGIN : c == 'z' ? RX_TEXT_END : c == 'b' ? RX_WORD : RX_NOT_WORD);
  }
  if (c == 'Q') {
    p->at++;
    struct regex_node *last = NULL;
    while (p->at < p->end && !eat(p, "\\E")) {
      uint32_t rune;
      if (!take_rune(p, &rune)) return NULL;
      if (last) vec_push(&cat->kids, last);
      last = literal(p, rune);
    }
    return last ? last : make(p, EMPTY, 0);
  }
  ranges r = {0};
  if (add_property(p, &r)) return class_node(p, &r, false);
  if (add_perl(&r, c)) {
    p->at++;
    return class_node(p, &r, false);
  }
  uint32_t rune;
  return parse_escape(p, &rune) ? literal(p, rune) : NULL;
}

static struct regex_node *parse_atom(struct parser *p, struct regex_node *cat) {
  const char *start = p->at;
  char c = *p->at;
  switch (c) {
    case '(': p->at++; return parse_group(p);
    case '[': p->at++; return parse_class(p);
    case '\\': p->at++; return parse_backslash(p, cat);
    case '.': p->at++; return p->dot_all ? make(p, ANY, 0) : any_but_newline(p);
    case '^': p->at++; return make(p, ASSERT, p->multi_line ? RX_LINE_BEGIN : RX_TEXT_BEGIN);
    case '$': p->at++; return make(p, ASSERT, p->multi_line ? RX_LINE_END : RX_TEXT_END);
    case '*':
    case '+':
    case '?': fail(p, "no argument for repetition operator", start, 1); return NULL;
    default: break;
  }
  uint32_t rune;
  return take_rune(p, &rune) ? literal(p, rune) : NULL;
}

static bool parse_number(struct parser *p, int *out) {
  const char *start = p->at;
  int v = 0;
  for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) v = MIN(v * 10 + (*p->at - '0'), 100000);
  *out = v;
  return p->at > start;
}

/* {n}, {n,} or {n,m}; false (and nothing eaten) when it is not of that form, which makes { a literal. */
static bool parse_counts(struct parser *p, int *min, int *max) {
  const char *start = p->at;
  p->at++;
  bool ok = parse_number(p, min);
  *max = *min;
  if (ok && eat(p, ",") && !parse_number(p, max)) *max = -1;
  if (ok && eat(p, "}")) return true;
  p->at = start;
  return false;
}

static struct regex_node *parse_repeats(struct parser *p, struct regex_node *atom) {
  const char *op_before = NULL;
  while (p->at < p->end && !p->error) {
    const char *start = p->at;
    int min, max;
    if (*p->at == '*' || *p->at == '+' || *p->at == '?') {
      min = *p->at == '+';
      max = *p->at == '?' ? 1 : -1;
      p->at++;
    } else if (*p->at != '{' || !parse_counts(p, &min, &max)) {
      break;
    }
    bool lazy = eat(p, "?");
    if (op_before) {
      fail(p, "bad repetition operator", op_before, (size_t)(p->at - op_before));
      break;
    }
    if (min > MAX_REPEAT || max > MAX_REPEAT || (max >= 0 && max < min)) {
      fail(p, "invalid repetition size", start, (size_t)(p->at - start));
      break;
    }
    op_before = start;
    struct regex_node *r = make(p, REPEAT, 0);
    r->min = min;
    r->max = max;
    r->lazy = lazy != p->swap_greed;
    vec_push(&r->kids, atom);
    atom = r;
  }
  return atom;
}

static struct regex_node *parse_alternatives(struct parser *p) {
  struct regex_node *alt = make(p, ALT, 0), *cat = make(p, CAT, 0);
  vec_push(&alt->kids, cat);
  while (p->at < p->end && *p->at != ')' && !p->error) {
    if (eat(p, "|")) {
      cat = make(p, CAT, 0);
      vec_push(&alt->kids, cat);
      continue;
    }
    struct regex_node *atom = parse_atom(p, cat);
    if (atom) vec_push(&cat->kids, parse_repeats(p, atom));
  }
  return alt;
}

/* ---- code ---- */

static uint32_t emit(struct parser *p, enum regex_op op, uint32_t x, uint32_t y) {
  if (p->prog.n >= MAX_PROGRAM) fail(p, "pattern too large - compile failed", "", 0);
  else vec_push(&p->prog, (struct regex_inst){op, x, y});
  return (uint32_t)p->prog.n - 1;
}

static void compile(struct parser *p, const struct regex_node *n);

/* A choice whose first branch follows; returns it, to be given its other branch. */
static uint32_t split(struct parser *p) { return emit(p, RX_SPLIT, (uint32_t)p->prog.n + 1, 0); }

static void set_other(struct parser *p, uint32_t at, bool lazy) {
  struct regex_inst *i = &p->prog.at[at];
  i->y = (uint32_t)p->prog.n;
  if (lazy) {
    uint32_t t = i->x;
    i->x = i->y;
    i->y = t;
  }
}

static void compile_repeat(struct parser *p, const struct regex_node *n) {
  const struct regex_node *kid = n->kids.at[0];
  for (int i = 0; i < n->min && !p->error; i++) compile(p, kid);
  if (n->max < 0) {
    uint32_t loop = split(p);
    compile(p, kid);
    emit(p, RX_JUMP, loop, 0);
    if (!p->error) set_other(p, loop, n->lazy);
    return;
  }
  VEC(uint32_t) exits = {0};
  for (int i = n->min; i < n->max && !p->error; i++) {
    vec_push(&exits, split(p));
    compile(p, kid);
  }
  for (size_t i = 0; i < exits.n && !p->error; i++) set_other(p, exits.at[i], n->lazy);
  vec_release(&exits);
}

static void compile_alternatives(struct parser *p, const struct regex_node *n) {
  VEC(uint32_t) ends = {0};
  for (size_t i = 0; i < n->kids.n && !p->error; i++) {
    bool last = i + 1 == n->kids.n;
    uint32_t choice = last ? 0 : split(p);
    compile(p, n->kids.at[i]);
    if (last) break;
    vec_push(&ends, emit(p, RX_JUMP, 0, 0));
    if (!p->error) set_other(p, choice, false);
  }
  for (size_t i = 0; i < ends.n && !p->error; i++) p->prog.at[ends.at[i]].x = (uint32_t)p->prog.n;
  vec_release(&ends);
}

static void compile(struct parser *p, const struct regex_node *n) {
  if (p->error) return;
  switch (n->kind) {
    case EMPTY: break;
    case CHAR: emit(p, RX_CHAR, n->value, 0); break;
    case CLASS: emit(p, RX_CLASS, n->value, 0); break;
    case ANY: emit(p, RX_ANY, 0, 0); break;
    case ASSERT: emit(p, RX_ASSERT, n->value, 0); break;
    case CAT:
      for (size_t i = 0; i < n->kids.n; i++) compile(p, n->kids.at[i]);
      break;
    case ALT: compile_alternatives(p, n); break;
    case REPEAT: compile_repeat(p, n); break;
    case GROUP: {
      bool saves = n->value > 0 && n->value < REGEX_MAX_GROUPS;
      if (saves) emit(p, RX_SAVE, 2 * n->value, 0);
      compile(p, n->kids.at[0]);
      if (saves) emit(p, RX_SAVE, 2 * n->value + 1, 0);
      break;
    }
  }
}

/* ---- the bytes a match can begin with ---- */

static void add_starts(struct regex *r, uint32_t lo, uint32_t hi) {
  for (uint32_t c = lo; c <= MIN(hi, 127u); c++) r->starts[c] = true;
  if (hi >= 128)
    for (int c = 128; c < 256; c++) r->starts[c] = true;
}

/* Follows the program from its start without reading, assertions taken as holding. */
static void find_starts(struct regex *r) {
  bool *seen = mem_zalloc((size_t)r->n_prog, sizeof *seen);
  VEC(uint32_t) todo = {0};
  vec_push(&todo, 0);
  r->starts_known = true;
  while (todo.n) {
    uint32_t pc = vec_pop(&todo);
    if (seen[pc]) continue;
    seen[pc] = true;
    const struct regex_inst *i = &r->prog[pc];
    switch (i->op) {
      case RX_MATCH: r->starts_known = false; break;
      case RX_ANY: add_starts(r, 0, RX_MAX_RUNE); break;
      case RX_CHAR: add_starts(r, i->x, i->x); break;
      case RX_CLASS:
        for (int k = 0; k < r->classes[i->x].n; k++)
          add_starts(r, r->classes[i->x].ranges[2 * k], r->classes[i->x].ranges[2 * k + 1]);
        break;
      case RX_SPLIT: vec_push(&todo, i->y); /* fall through */
      case RX_JUMP: vec_push(&todo, i->x); break;
      default: vec_push(&todo, pc + 1);
    }
  }
  vec_release(&todo);
  free(seen);
}

struct regex *regex_new(const char *pattern, size_t n, char **error) {
  struct parser p = {.at = pattern, .begin = pattern, .end = pattern + n};
  struct regex_node *root = parse_alternatives(&p);
  if (!p.error && p.at < p.end) fail(&p, "unexpected )", pattern, n);
  emit(&p, RX_SAVE, 0, 0);
  compile(&p, root);
  emit(&p, RX_SAVE, 1, 0);
  emit(&p, RX_MATCH, 0, 0);
  for (size_t i = 0; i < p.nodes.n; i++) {
    vec_release(&p.nodes.at[i]->kids);
    free(p.nodes.at[i]);
  }
  vec_release(&p.nodes);
  struct regex *r = mem_zalloc(1, sizeof *r);
  r->prog = p.prog.at;
  r->n_prog = (int)p.prog.n;
  r->classes = p.classes.at;
  r->n_classes = (int)p.classes.n;
  r->groups = p.groups;
  if (!p.error) {
    find_starts(r);
    return r;
  }
  regex_free(r);
  *error = p.error;
  return NULL;
}

void regex_free(struct regex *r) {
  if (!r) return;
  regex_machine_free(atomic_load(&r->spare));
  for (int i = 0; i < r->n_classes; i++) free(r->classes[i].ranges);
  free(r->classes);
  free(r->prog);
  free(r);
}

int regex_groups(const struct regex *r) { return r->groups; }

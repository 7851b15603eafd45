/* Python's literals become JSON; see literal.h. */
#include "cli/literal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serving/json_tensor.h"
#include "tensor/tensor.h"

enum { MAX_DEPTH = 32, MAX_ELEMENTS = 1 << 24 };

struct literal {
  const char *at;
  struct text *out;
  int depth;
};

static shoal_status value(struct literal *l);

static void space(struct literal *l) {
  while (isspace((unsigned char)*l->at)) l->at++;
}

static shoal_status wrong(const struct literal *l, const char *what) {
  return INVALID("%s at \"%.40s\": a Python literal is expected, as in [[1, 2.5]], ['a'] or np.zeros((2, 3))", what,
                 *l->at ? l->at : "the end");
}

static bool take(struct literal *l, char c) {
  space(l);
  if (*l->at != c) return false;
  l->at++;
  return true;
}

static bool take_word(struct literal *l, const char *word) {
  size_t n = strlen(word);
  if (strncmp(l->at, word, n) || isalnum((unsigned char)l->at[n]) || l->at[n] == '_') return false;
  l->at += n;
  return true;
}

/* ---- numbers ---- */

/* A whole one keeps its digits; any other has a point or an exponent, by which it is told apart. */
static shoal_status number(struct literal *l) {
  struct text t = {0};
  const char *begin = l->at;
  bool whole = true;
  for (; *l->at == '+' || *l->at == '-'; l->at++) text_addc(&t, *l->at);
  for (; isalnum((unsigned char)*l->at) || *l->at == '.' || *l->at == '_' ||
         ((*l->at == '+' || *l->at == '-') && tolower((unsigned char)l->at[-1]) == 'e');
       l->at++) {
    if (*l->at != '_') text_addc(&t, *l->at);
    whole = whole && isdigit((unsigned char)*l->at);
  }
  char *end;
  const char *digits = text_cstr(&t);
  bool hex = strstr(digits, "0x") || strstr(digits, "0X");
  double d = strtod(digits, &end);
  bool sound = t.n && !*end && (isdigit((unsigned char)end[-1]) || end[-1] == '.' || hex);
  if (sound && hex) { /* as an integer: a double has not all of its bits */
    errno = 0;
    unsigned long long v = strtoull(digits + (*digits == '+' || *digits == '-'), &end, 16);
    sound = !*end && !errno;
    if (sound) text_addf(l->out, "%s%llu", *digits == '-' ? "-" : "", v);
  } else if (sound && whole) text_adds(l->out, *digits == '+' ? digits + 1 : digits);
  else if (sound) text_addf(l->out, "%.17e", d);
  text_release(&t);
  if (sound) return NULL;
  l->at = begin;
  return wrong(l, "no number");
}

/* ---- strings ---- */

static void put_utf8(struct text *t, unsigned long c) {
  if (c < 0x80) text_addc(t, (char)c);
  else if (c < 0x800) {
    text_addc(t, (char)(0xc0 | c >> 6));
    text_addc(t, (char)(0x80 | (c & 0x3f)));
  } else {
    if (c < 0x10000) text_addc(t, (char)(0xe0 | c >> 12));
    else {
      text_addc(t, (char)(0xf0 | (c >> 18 & 7)));
      text_addc(t, (char)(0x80 | (c >> 12 & 0x3f)));
    }
    text_addc(t, (char)(0x80 | (c >> 6 & 0x3f)));
    text_addc(t, (char)(0x80 | (c & 0x3f)));
  }
}

/* At most so many digits of a character's number. */
static unsigned long character(struct literal *l, int base, size_t most) {
  char digits[9] = {0};
  for (size_t n = 0; n < most && (base == 16 ? isxdigit((unsigned char)*l->at) : *l->at >= '0' && *l->at <= '7'); n++)
    digits[n] = *l->at++;
  return strtoul(digits, NULL, base);
}

/* What stands behind a backslash; bytes: \xff is a byte, not a character. */
static void escape(struct literal *l, struct text *t, bool bytes) {
  static const char names[] = "ntrabfv", values[] = "\n\t\r\a\b\f\v";
  char c = *l->at++;
  const char *name = c ? strchr(names, c) : NULL;
  if (name) text_addc(t, values[name - names]);
  else if (c == 'x' || (c >= '0' && c <= '7') || ((c == 'u' || c == 'U') && !bytes)) {
    if (isdigit((unsigned char)c)) l->at--;
    unsigned long v = isdigit((unsigned char)c) ? character(l, 8, 3)
                                                : character(l, 16,
                                                            c == 'x'   ? 2
                                                            : c == 'u' ? 4
                                                                       : 8);
    if (bytes) text_addc(t, (char)v);
    else put_utf8(t, v);
  } else if (strchr("\\'\"", c)) {
    text_addc(t, c);
  } else {
    text_addc(t, '\\');
    text_addc(t, c);
  }
}

static shoal_status string(struct literal *l, bool bytes, bool raw, struct text *t) {
  char quote = *l->at++;
  while (*l->at && *l->at != quote) {
    if (*l->at == '\\' && !raw && l->at[1]) {
      l->at++;
      escape(l, t, bytes);
    } else {
      text_addc(t, *l->at++);
    }
  }
  if (*l->at != quote) return wrong(l, "a string has no end");
  l->at++;
  return NULL;
}

static bool string_begins(const struct literal *l, bool *bytes, bool *raw, int *prefix) {
  *bytes = *raw = false;
  for (*prefix = 0; *prefix < 2; ++*prefix) {
    char c = (char)tolower((unsigned char)l->at[*prefix]);
    if (c == 'b') *bytes = true;
    else if (c == 'r') *raw = true;
    else if (c != 'u') break;
  }
  return l->at[*prefix] == '\'' || l->at[*prefix] == '"';
}

static shoal_status put_string(struct literal *l, bool bytes, bool raw, bool key) {
  struct text t = {0};
  shoal_status s = string(l, bytes, raw, &t);
  bool utf8 = str_is_utf8(text_cstr(&t), t.n);
  if (!s && !utf8 && key) s = wrong(l, "a key that is no UTF-8");
  if (!s && utf8) json_write_string(l->out, text_cstr(&t), t.n);
  else if (!s) json_write_base64(l->out, text_cstr(&t), t.n);
  text_release(&t);
  return s;
}

/* ---- lists ---- */

/* A list, or a tuple, behind its bracket; (x) is x alone. */
static shoal_status list(struct literal *l, char close) {
  size_t begin = l->out->n, n = 0;
  bool comma = false;
  text_addc(l->out, '[');
  while (!take(l, close)) {
    if (n && !comma) return wrong(l, "no comma");
    if (n) text_adds(l->out, ", ");
    TRY(value(l));
    n++;
    comma = take(l, ',');
  }
  if (close == ')' && n == 1 && !comma) l->out->at[begin] = ' ';
  else text_addc(l->out, ']');
  return NULL;
}

static shoal_status dictionary(struct literal *l) {
  bool first = true, comma = true, bytes, raw;
  int prefix;
  text_addc(l->out, '{');
  while (!take(l, '}')) {
    if (!comma) return wrong(l, "no comma");
    if (!first) text_adds(l->out, ", ");
    space(l);
    if (!string_begins(l, &bytes, &raw, &prefix)) return wrong(l, "no key");
    l->at += prefix;
    TRY(put_string(l, bytes, raw, true));
    if (!take(l, ':')) return wrong(l, "no colon behind a key");
    text_adds(l->out, ": ");
    TRY(value(l));
    comma = take(l, ',');
    first = false;
  }
  text_addc(l->out, '}');
  return NULL;
}

/* ---- arrays of NumPy's ---- */

struct call {
  struct text args[4]; /* as JSON */
  int n;
};

static void call_release(struct call *c) {
  for (int i = 0; i < c->n; i++) text_release(&c->args[i]);
}

/* Arguments by place, up to the parenthesis; those by name must be dtype=..., and are passed over. */
static shoal_status arguments(struct literal *l, struct call *c) {
  struct text *out = l->out;
  if (!take(l, '(')) return wrong(l, "no parenthesis");
  while (!take(l, ')')) {
    if (c->n && !take(l, ',')) return wrong(l, "no comma");
    space(l);
    if (take_word(l, "dtype")) {
      if (!take(l, '=')) return wrong(l, "dtype without a value");
      space(l);
      while (isalnum((unsigned char)*l->at) || (*l->at && strchr("._'\"", *l->at))) l->at++;
      continue;
    }
    if (c->n == (int)COUNT_OF(c->args)) return wrong(l, "too many arguments");
    l->out = &c->args[c->n++];
    shoal_status s = value(l);
    l->out = out;
    TRY(s);
  }
  return NULL;
}

static void nested(struct text *out, const char *element, const int64_t *dims, int rank) {
  if (!rank) {
    text_adds(out, element);
    return;
  }
  text_addc(out, '[');
  for (int64_t i = 0; i < dims[0]; i++) {
    if (i) text_addc(out, ',');
    nested(out, element, dims + 1, rank - 1);
  }
  text_addc(out, ']');
}

/* 3, or a list of such. */
static shoal_status filled(struct literal *l, const char *shape, const char *element) {
  int64_t dims[SHOAL_MAX_RANK], all = 1;
  int rank = 0;
  for (const char *at = shape; *at && rank < SHOAL_MAX_RANK;) {
    char *end;
    long long n = strtoll(at, &end, 10);
    if (end == at) {
      at++; /* brackets and commas */
      continue;
    }
    dims[rank++] = n;
    all = n < 0 || n > MAX_ELEMENTS ? -1 : all * n;
    if (all < 0 || all > MAX_ELEMENTS) return wrong(l, "an array of too many elements");
    at = end;
  }
  nested(l->out, element, dims, rank);
  return NULL;
}

/* As many as NumPy makes, which goes by a quotient, at its distance, which is that of the first two. */
static shoal_status range(struct literal *l, const struct call *c) {
  double v[3];
  for (int i = 0; i < c->n; i++) {
    char *end;
    v[i] = strtod(text_cstr(&c->args[i]), &end);
    if (*end) return wrong(l, "no number in arange");
  }
  double from = c->n > 1 ? v[0] : 0, to = c->n > 1 ? v[1] : v[0], by = c->n > 2 ? v[2] : 1;
  double n = (to - from) / by, apart = from + by - from;
  if (by == 0 || !(n <= MAX_ELEMENTS)) return wrong(l, "an array of too many elements");
  text_addc(l->out, '[');
  for (int64_t i = 0; (double)i < n; i++) text_addf(l->out, "%s%.17g", i ? "," : "", from + (double)i * apart);
  text_addc(l->out, ']');
  return NULL;
}

static shoal_status array(struct literal *l) {
  static const struct {
    const char *name;
    int least, most;
  } functions[] = {{"array", 1, 1}, {"zeros", 1, 1}, {"ones", 1, 1}, {"full", 2, 2}, {"arange", 1, 3}};
  enum { ARRAY, ZEROS, ONES, FULL };
  for (int i = 0; i < (int)COUNT_OF(functions); i++) {
    if (!take_word(l, functions[i].name)) continue;
    struct call c = {0};
    shoal_status s = arguments(l, &c);
    if (!s && (c.n < functions[i].least || c.n > functions[i].most)) s = wrong(l, "not so many arguments");
    if (s) {
      call_release(&c);
      return s;
    }
    if (i == ARRAY) text_add(l->out, c.args[0].at, c.args[0].n);
    else if (i <= FULL)
      s = filled(l, text_cstr(&c.args[0]), i == ZEROS ? "0" : i == ONES ? "1" : text_cstr(&c.args[1]));
    else s = range(l, &c);
    call_release(&c);
    return s;
  }
  return wrong(l, "a function of NumPy's that is none of array, zeros, ones, full, arange");
}

/* ---- any ---- */

static shoal_status value(struct literal *l) {
  bool bytes, raw;
  int prefix;
  shoal_status s;
  if (++l->depth > MAX_DEPTH) return wrong(l, "nested too deep");
  space(l);
  if (string_begins(l, &bytes, &raw, &prefix)) {
    l->at += prefix;
    s = put_string(l, bytes, raw, false);
  } else if (take(l, '[')) s = list(l, ']');
  else if (take(l, '(')) s = list(l, ')');
  else if (take(l, '{')) s = dictionary(l);
  else if (!strncmp(l->at, "np.", 3) || !strncmp(l->at, "numpy.", 6)) {
    l->at = strchr(l->at, '.') + 1;
    s = array(l);
  } else if (take_word(l, "True") || take_word(l, "False")) {
    text_adds(l->out, l->at[-1] == 'e' && l->at[-2] == 'u' ? "true" : "false");
    s = NULL;
  } else if (*l->at && strchr("+-.0123456789", *l->at)) s = number(l);
  else s = wrong(l, "no value");
  l->depth--;
  space(l);
  return s;
}

shoal_status literal_to_json(const char **at, struct text *out) {
  struct literal l = {*at, out, 0};
  shoal_status s = value(&l);
  *at = l.at;
  return s;
}

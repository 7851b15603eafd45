/* Unicode: transcoding, decoding to code points and encoding them, and case of letters. UTF-8, UTF-16, UTF-32, ASCII
 * and Latin-1 are read here; any other encoding goes through the C library's iconv, character by character, so that
 * a bad one can be replaced or left out as the op says. Ops that need tables of character properties (UnicodeScript)
 * are not here. */
#include <iconv.h>
#include <inttypes.h>
#include <locale.h>
#include <string.h>
#include <strings.h>
#include <wctype.h>

#include "base/regex_internal.h"
#include "base/text.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"

enum encoding { UTF8, UTF16_BE, UTF16_LE, UTF32_BE, UTF32_LE, ASCII, LATIN1, OTHER };
enum { REPLACEMENT = 0xfffd, LAST_CONTROL = 0x1f };

struct unicode_state {
  enum encoding in, out;
  char *in_name;
  bool strict, ignore, replace_control;
  bool marked; /* "UTF-16" or "UTF-32" alone: a mark at the beginning tells the order of bytes */
  uint32_t replacement;
};

static enum encoding encoding_of(const char *name) {
  static const struct {
    const char *name;
    enum encoding encoding;
  } known[] = {{"UTF-8", UTF8},         {"UTF8", UTF8},         {"UTF-16", UTF16_BE},    {"UTF-16-BE", UTF16_BE},
               {"UTF-16BE", UTF16_BE},  {"UTF-16LE", UTF16_LE}, {"UTF-16-LE", UTF16_LE}, {"UTF-32", UTF32_BE},
               {"UTF-32-BE", UTF32_BE}, {"UTF-32BE", UTF32_BE}, {"UTF-32LE", UTF32_LE},  {"UTF-32-LE", UTF32_LE},
               {"US-ASCII", ASCII},     {"ASCII", ASCII},       {"ISO-8859-1", LATIN1},  {"LATIN1", LATIN1}};
  for (size_t i = 0; i < COUNT_OF(known); i++)
    if (strcasecmp(name, known[i].name) == 0) return known[i].encoding;
  return OTHER;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct unicode_state *s = state;
  const char *errors, *name;
  int64_t replacement;
  TRY(node_get_string(ki->node, "errors", &errors));
  s->strict = strcmp(errors, "strict") == 0;
  s->ignore = strcmp(errors, "ignore") == 0;
  TRY(node_get_int(ki->node, "replacement_char", &replacement));
  if (replacement < 0 || replacement > RX_MAX_RUNE) return INVALID("replacement_char out of unicode codepoint range");
  s->replacement = (uint32_t)replacement;
  if (node_attr(ki->node, "replace_control_characters"))
    TRY(node_get_bool(ki->node, "replace_control_characters", &s->replace_control));
  if (node_attr(ki->node, "output_encoding")) {
    TRY(node_get_string(ki->node, "output_encoding", &name));
    s->out = encoding_of(name);
  }
  if (!node_attr(ki->node, "input_encoding")) return NULL;
  TRY(node_get_string(ki->node, "input_encoding", &name));
  s->in = encoding_of(name);
  s->marked = !strcasecmp(name, "UTF-16") || !strcasecmp(name, "UTF-32");
  if (s->in != OTHER) return NULL;
  s->in_name = mem_strdup(name);
  for (char *c = s->in_name; *c; c++) /* "euc_kr" is "EUC-KR" here */
    if (*c == '_') *c = '-';
  if (!strcasecmp(s->in_name, "shift-jis") || !strcasecmp(s->in_name, "sjis")) { /* as ICU has it: \x5c is ASCII's */
    free(s->in_name);
    s->in_name = mem_strdup("CP932");
  }
  iconv_t cd = iconv_open("UTF-32LE", s->in_name);
  if (cd == (iconv_t)-1) return INVALID("Could not create converter for input encoding: %s", name);
  iconv_close(cd);
  return NULL;
}

static void release(void *state) { free(((struct unicode_state *)state)->in_name); }

/* ---- reading characters ---- */

struct text_reader {
  enum encoding encoding;
  iconv_t cd;
};

/* Length of what cannot be a character: the bytes that could still have begun one. */
static int bad_utf8(const unsigned char *p, ptrdiff_t left) {
  int want = p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : 1;
  unsigned char lo = p[0] == 0xe0   ? 0xa0
                     : p[0] == 0xf0 ? 0x90
                                    : 0x80,
                hi = p[0] == 0xed   ? 0x9f
                     : p[0] == 0xf4 ? 0x8f
                                    : 0xbf;
  int n = 1;
  while (n < want && n < left && p[n] >= lo && p[n] <= hi) {
    n++;
    lo = 0x80;
    hi = 0xbf;
  }
  return n;
}

static uint32_t unit(const unsigned char *p, int bytes, bool little) {
  uint32_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i] << (8 * (little ? i : bytes - 1 - i));
  return v;
}

static size_t next_other(struct text_reader *r, const char *at, size_t left, uint32_t *rune, bool *bad) {
  for (size_t n = 1; n <= MIN(left, (size_t)8); n++) {
    unsigned char out[8];
    char *in = (char *)(uintptr_t)at, *to = (char *)out;
    size_t in_n = n, out_n = 4;
    iconv(r->cd, NULL, NULL, NULL, NULL);
    if (iconv(r->cd, &in, &in_n, &to, &out_n) != (size_t)-1 && out_n == 0) {
      *rune = unit(out, 4, true);
      return n;
    }
  }
  *bad = true;
  return 1;
}

/* The character at `at`: how many bytes it takes; *bad when it is none. */
static size_t next(struct text_reader *r, const char *at, const char *end, uint32_t *rune, bool *bad) {
  const unsigned char *p = (const unsigned char *)at;
  size_t left = (size_t)(end - at);
  bool little = r->encoding == UTF16_LE || r->encoding == UTF32_LE;
  *bad = false;
  switch (r->encoding) {
    case UTF8: {
      int n = regex_decode(at, end, rune);
      if (*rune != RX_BAD_RUNE) return (size_t)n;
      *bad = true;
      return (size_t)bad_utf8(p, end - at);
    }
    case UTF16_BE:
    case UTF16_LE: {
      if (left < 2) break;
      uint32_t a = unit(p, 2, little), b = left >= 4 ? unit(p + 2, 2, little) : 0;
      *rune = a;
      if (a < 0xd800 || a > 0xdfff) return 2;
      if (a < 0xdc00 && b >= 0xdc00 && b <= 0xdfff) {
        *rune = 0x10000 + ((a - 0xd800) << 10) + (b - 0xdc00);
        return 4;
      }
      *bad = true;
      return a < 0xdc00 && left < 4 ? left : 2;
    }
    case UTF32_BE:
    case UTF32_LE:
      if (left < 4) break;
      *rune = unit(p, 4, little);
      *bad = *rune > RX_MAX_RUNE || (*rune >= 0xd800 && *rune <= 0xdfff);
      return 4;
    case ASCII:
      *rune = p[0];
      *bad = p[0] > 0x7f;
      return 1;
    case LATIN1: *rune = p[0]; return 1;
    case OTHER: return next_other(r, at, left, rune, bad);
  }
  *bad = true; /* cut short */
  return left;
}

static void put_rune(struct text *t, enum encoding e, uint32_t r) {
  char b[4];
  if (e == UTF8) {
    size_t n = r < 0x80 ? 1 : r < 0x800 ? 2 : r < 0x10000 ? 3 : 4;
    static const unsigned char head[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, r >>= 6) b[i] = (char)(0x80 | (r & 0x3f));
    b[0] = (char)(head[n] | r);
    text_add(t, b, n);
  } else if (e == UTF16_BE) {
    if (r >= 0x10000) {
      r -= 0x10000;
      put_rune(t, e, 0xd800 + (r >> 10));
      r = 0xdc00 + (r & 0x3ff);
    }
    text_addc(t, (char)(r >> 8));
    text_addc(t, (char)r);
  } else {
    for (int i = 3; i >= 0; i--) text_addc(t, (char)(r >> (8 * i)));
  }
}

/* The order of bytes of one string: big end first unless a mark says otherwise. Returns the mark's size; a mark alone
 * is a character. */
static size_t read_mark(struct text_reader *r, const char *at, size_t n) {
  bool wide = r->encoding == UTF32_BE || r->encoding == UTF32_LE;
  size_t size = wide ? 4 : 2;
  r->encoding = wide ? UTF32_BE : UTF16_BE;
  if (n < size) return 0;
  bool little = unit((const unsigned char *)at, (int)size, true) == 0xfeff;
  if (little) r->encoding = wide ? UTF32_LE : UTF16_LE;
  return n > size && (little || unit((const unsigned char *)at, (int)size, false) == 0xfeff) ? size : 0;
}

/* Calls fn with every character of the string that is kept. */
typedef void visit(void *arg, uint32_t rune, size_t offset);
static bool each_char(const struct unicode_state *st, struct text_reader *r, const struct str *s, visit *fn,
                      void *arg) {
  const char *begin = str_data(s), *end = begin + s->size;
  bool any_bad = false;
  size_t mark = st->marked ? read_mark(r, begin, s->size) : 0; /* counts to the first character */
  for (const char *at = begin; at < end - mark;) {
    uint32_t rune = REPLACEMENT;
    bool bad;
    size_t n = mark + next(r, at + mark, end, &rune, &bad);
    mark = 0;
    if (bad || (st->replace_control && rune <= LAST_CONTROL)) {
      any_bad = true;
      if (!st->ignore) fn(arg, st->replacement, (size_t)(at - begin));
    } else {
      fn(arg, rune, (size_t)(at - begin));
    }
    at += n;
  }
  return any_bad;
}

static struct text_reader reader_begin(const struct unicode_state *st) {
  return (struct text_reader){st->in, st->in == OTHER ? iconv_open("UTF-32LE", st->in_name) : NULL};
}
static void reader_end(struct text_reader *r) {
  if (r->encoding == OTHER) iconv_close(r->cd);
}

/* ---- UnicodeTranscode ---- */

struct transcoding {
  struct text text;
  enum encoding out;
};

static void put_transcoded(void *arg, uint32_t rune, size_t offset) {
  struct transcoding *t = arg;
  put_rune(&t->text, t->out, rune);
}

static shoal_status run_transcode(struct kernel_ctx *ctx) {
  const struct unicode_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct text_reader r = reader_begin(st);
  struct transcoding t = {.out = st->out};
  bool bad = false;
  for (int64_t i = 0; i < x->n; i++) {
    t.text.n = 0;
    bad |= each_char(st, &r, string_at(x, i), put_transcoded, &t);
    str_set(&T_DATA(out, struct str)[i], t.text.at, t.text.n);
  }
  text_release(&t.text);
  reader_end(&r);
  return bad && st->strict ? INVALID("Invalid formatting on input string") : NULL;
}

/* ---- UnicodeDecode, UnicodeDecodeWithOffsets ---- */

struct decoded_text {
  VEC(int32_t) chars;
  VEC(int64_t) offsets;
};

static void put_decoded(void *arg, uint32_t rune, size_t offset) {
  struct decoded_text *d = arg;
  vec_push(&d->chars, (int32_t)rune);
  vec_push(&d->offsets, (int64_t)offset);
}

static shoal_status put_all(struct kernel_ctx *ctx, const struct decoded_text *d) {
  int64_t n = (int64_t)d->chars.n;
  struct tensor *chars, *offsets;
  TRY(ctx_out_dims(ctx, 1, 1, &n, &chars));
  if (n) memcpy(chars->data, d->chars.at, (size_t)n * 4);
  if (ctx->kernel->n_out < 3) return NULL;
  TRY(ctx_out_dims(ctx, 2, 1, &n, &offsets));
  if (n) memcpy(offsets->data, d->offsets.at, (size_t)n * 8);
  return NULL;
}

static shoal_status run_decode(struct kernel_ctx *ctx) {
  const struct unicode_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t n = x->n + 1;
  struct tensor *splits;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &splits));
  struct text_reader r = reader_begin(st);
  struct decoded_text d = {0};
  bool bad = false;
  for (int64_t i = 0; i <= x->n; i++) {
    if (splits->dtype == SHOAL_INT32) T_DATA(splits, int32_t)[i] = (int32_t)d.chars.n;
    else T_DATA(splits, int64_t)[i] = (int64_t)d.chars.n;
    if (i < x->n) bad |= each_char(st, &r, string_at(x, i), put_decoded, &d);
  }
  reader_end(&r);
  shoal_status s = bad && st->strict ? INVALID("Invalid formatting on input string") : put_all(ctx, &d);
  vec_release(&d.chars);
  vec_release(&d.offsets);
  return s;
}

static shoal_status shape_decode(struct shape_ctx *c) {
  int64_t n;
  shoal_status s = shape_elements(&c->in[0], &n);
  if (s) return s;
  c->out[0] = shape_vector(n < 0 ? -1 : n + 1);
  for (int i = 1; i < c->node->n_out; i++) c->out[i] = shape_vector(-1);
  return NULL;
}

/* ---- UnicodeEncode ---- */

static int64_t split_at(const struct tensor *t, int64_t i) {
  return t->dtype == SHOAL_INT32 ? T_DATA(t, int32_t)[i] : T_DATA(t, int64_t)[i];
}

static shoal_status run_encode(struct kernel_ctx *ctx) {
  const struct unicode_state *st = ctx->state;
  const struct tensor *values = ctx_in(ctx, 0), *splits = ctx_in(ctx, 1);
  if (splits->n == 0) return INVALID("Input_splits should contain elements, but given input_values has 0 elements");
  int64_t rows = splits->n - 1;
  if (split_at(splits, 0) != 0) return INVALID("First value in input_splits must be zero.");
  for (int64_t i = 0; i < rows; i++)
    if (split_at(splits, i) > split_at(splits, i + 1))
      return INVALID("Values in input_splits must be equal or in ascending order.");
  if (split_at(splits, rows) > values->n)
    return INVALID("Values in input_splits must be less than or equal to input_tensor length.");
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, &rows, &out));
  struct text t = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < rows; i++) {
    t.n = 0;
    for (int64_t k = split_at(splits, i); !s && k < split_at(splits, i + 1); k++) {
      uint32_t r = T_DATA(values, uint32_t)[k];
      bool surrogate = r >= 0xd800 && r <= 0xdfff, in_range = r <= RX_MAX_RUNE;
      bool character = in_range && !surrogate && (r & 0xfffe) != 0xfffe && !(r >= 0xfdd0 && r <= 0xfdef);
      if (!character) {
        if (st->strict) s = INVALID("Code point is out of range for Unicode, or a noncharacter.");
        if (st->strict || (st->ignore && !in_range)) continue;
        if (!st->ignore) r = st->replacement;
        else if (surrogate && st->out == UTF8) r = REPLACEMENT; /* "ignore" lets through what can be written at all */
      }
      put_rune(&t, st->out, r);
    }
    if (!s) str_set(&T_DATA(out, struct str)[i], t.at, t.n);
  }
  text_release(&t);
  return s;
}

static shoal_status shape_encode(struct shape_ctx *c) {
  c->out[0] = shape_vector(c->in[1].rank == 1 && c->in[1].dims[0] > 0 ? c->in[1].dims[0] - 1 : -1);
  return NULL;
}

/* ---- StringLower, StringUpper ---- */

struct case_state {
  bool utf8;
  locale_t locale;
};

static shoal_status init_case(struct kernel_init *ki, void *state) {
  struct case_state *s = state;
  const char *encoding;
  TRY(node_get_string(ki->node, "encoding", &encoding));
  if (*encoding && strcmp(encoding, "utf-8") != 0)
    return INVALID("only utf-8 or '' (no encoding) is supported, received %s", encoding);
  s->utf8 = *encoding != 0;
  if (s->utf8) s->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
  return NULL;
}

static void release_case(void *state) {
  struct case_state *s = state;
  if (s->locale) freelocale(s->locale);
}

static bool is_letter(uint32_t r, locale_t l) {
  return r < 0x80 ? (r | 32) >= 'a' && (r | 32) <= 'z' : l && iswalpha_l((wint_t)r, l);
}

/* Sharp s has no upper case of one character, and sigma's lower case depends on what follows. */
static void put_cased(struct text *t, const struct case_state *st, bool upper, uint32_t r, bool after, bool before) {
  enum { SHARP_S = 0xdf, SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
  if (upper && r == SHARP_S) text_adds(t, "SS");
  else if (!upper && r == SIGMA && after && !before) put_rune(t, UTF8, FINAL_SIGMA);
  else if (!st->locale) put_rune(t, UTF8, r);
  else put_rune(t, UTF8, (uint32_t)(upper ? towupper_l((wint_t)r, st->locale) : towlower_l((wint_t)r, st->locale)));
}

static void change_case(const struct case_state *st, bool upper, const struct str *s, struct text *t) {
  const char *at = str_data(s), *end = at + s->size;
  if (!st->utf8) {
    for (; at < end; at++) {
      char c = *at, first = upper ? 'a' : 'A';
      text_addc(t, c >= first && c < first + 26 ? (char)(c ^ 32) : c);
    }
    return;
  }
  struct text_reader r = {.encoding = UTF8};
  bool after = false, bad, next_bad;
  while (at < end) {
    uint32_t rune = REPLACEMENT, following = REPLACEMENT;
    at += next(&r, at, end, &rune, &bad);
    if (at < end) next(&r, at, end, &following, &next_bad);
    if (bad) rune = REPLACEMENT;
    put_cased(t, st, upper, rune, after, at < end && is_letter(following, st->locale));
    after = is_letter(rune, st->locale);
  }
}

static shoal_status run_case(struct kernel_ctx *ctx, bool upper) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct text t = {0};
  for (int64_t i = 0; i < x->n; i++) {
    t.n = 0;
    change_case(ctx->state, upper, string_at(x, i), &t);
    str_set(&T_DATA(out, struct str)[i], t.at, t.n);
  }
  text_release(&t);
  return NULL;
}
static shoal_status run_lower(struct kernel_ctx *ctx) { return run_case(ctx, false); }
static shoal_status run_upper(struct kernel_ctx *ctx) { return run_case(ctx, true); }

/* ---- rows ---- */

#define KERNEL(fn)                                                                                                    \
  (const struct kernel_def[]) {                                                                                       \
    {.device = "CPU", .state_size = sizeof(struct unicode_state), .init = init, .release = release, .run = fn}, { 0 } \
  }
#define CASE(fn)                                                                                                       \
  (const struct kernel_def[]) {                                                                                        \
    {.device = "CPU", .state_size = sizeof(struct case_state), .init = init_case, .release = release_case, .run = fn}, \
    {                                                                                                                  \
      0                                                                                                                \
    }                                                                                                                  \
  }
#define INPUT "input_encoding: string; "
#define ERRORS                                                                           \
  "errors: {'strict', 'replace', 'ignore'} = 'replace'; replacement_char: int = 65533; " \
  "replace_control_characters: bool = false"

static const struct op_row rows[] = {
    {.name = "UnicodeTranscode",
     .in = "input: string",
     .out = "output: string",
     .attrs = INPUT "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}; " ERRORS,
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = KERNEL(run_transcode)},
    {.name = "UnicodeDecode",
     .in = "input: string",
     .out = "row_splits: Tsplits, char_values: int32",
     .attrs = INPUT ERRORS "; Tsplits: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = KERNEL(run_decode)},
    {.name = "UnicodeDecodeWithOffsets",
     .in = "input: string",
     .out = "row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64",
     .attrs = INPUT ERRORS "; Tsplits: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = KERNEL(run_decode)},
    {.name = "UnicodeEncode",
     .in = "input_values: int32, input_splits: Tsplits",
     .out = "output: string",
     .attrs = "errors: {'ignore', 'replace', 'strict'} = 'replace'; output_encoding: {'UTF-8', 'UTF-16-BE', "
              "'UTF-32-BE'}; replacement_char: int = 65533; Tsplits: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_encode,
     .kernels = KERNEL(run_encode)},
    {.name = "StringLower",
     .in = "input: string",
     .out = "output: string",
     .attrs = "encoding: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = CASE(run_lower)},
    {.name = "StringUpper",
     .in = "input: string",
     .out = "output: string",
     .attrs = "encoding: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = CASE(run_upper)},
};
OP_FAMILY(strings_unicode, rows);

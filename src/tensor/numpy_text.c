/* NumPy's way to print arrays; see numpy_text.h.
 *
 * All numbers of an array have one form, which is found by looking at those that will be shown: columns line up at the
 * decimal point, and where the largest is 1e8 or more, or the smallest below 1e-4, or they are more than 1,000 times
 * apart, all have exponents. A number has the fewest digits that tell it from its neighbours of the same type, of them
 * at most 8 behind the point. Of more than 1,000 elements the first and the last three of each dimension are shown.
 * Lines have 75 characters.
 *
 *   [[ 1.   2.5]      [1.0e-05 2.5e+00]      [b'a' b"it's"]      [[0 1 2 ... 7 8 9]
 *    [10.   0. ]]                                                 ...
 */
#include "tensor/numpy_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"

enum { LINE = 75, THRESHOLD = 1000, EDGE = 3, PRECISION = 8, MOST_DIGITS = 17 };

/* ---- one number ---- */

/* 0.d1d2d3... times 10 to the power of `point`. */
struct digits {
  char d[MOST_DIGITS + 1];
  int n, point;
};

static bool reads_back(const char *s, double v, shoal_dtype type) {
  switch (type) {
    case SHOAL_FLOAT32: return (double)strtof(s, NULL) == v;
    case SHOAL_FLOAT16: return (double)f16_to_float(f16_from_float((float)strtod(s, NULL))) == v;
    default: return strtod(s, NULL) == v;
  }
}

/* The fewest digits of a finite number, without its sign. */
static void find_digits(double v, shoal_dtype type, struct digits *out) {
  char s[40];
  v = fabs(v);
  for (int n = 1; n <= MOST_DIGITS; n++) {
    snprintf(s, sizeof s, "%.*e", n - 1, v);
    if (n == MOST_DIGITS || reads_back(s, v, type)) break;
  }
  char *e = strchr(s, 'e');
  out->point = v == 0 ? 1 : atoi(e + 1) + 1;
  out->n = 0;
  for (const char *c = s; c < e; c++)
    if (*c != '.') out->d[out->n++] = *c;
  while (out->n > 1 && out->d[out->n - 1] == '0') out->n--;
}

static void add_sign(double v, bool plus, struct text *out) {
  if (signbit(v)) text_addc(out, '-');
  else if (plus) text_addc(out, '+');
}

static void trim_zeros(struct text *out) {
  while (out->n && out->at[out->n - 1] == '0') out->at[--out->n] = 0;
}

/* "12.5", "3.", without a sign. In an array there are at most PRECISION digits behind the point, and all before it. */
static void add_positional(double v, shoal_dtype type, bool alone, struct text *out) {
  struct digits d;
  find_digits(v, type, &d);
  if (!alone && (d.n - d.point > PRECISION || d.n < d.point)) {
    text_addf(out, "%.*f", PRECISION, fabs(v));
    trim_zeros(out);
    return;
  }
  if (d.point <= 0) text_addc(out, '0');
  for (int i = 0; i < d.point; i++) text_addc(out, i < d.n ? d.d[i] : '0');
  text_addc(out, '.');
  if (d.n == 1 && d.d[0] == '0') return;
  for (int i = d.point; i < 0; i++) text_addc(out, '0');
  for (int i = MAX(d.point, 0); i < d.n; i++) text_addc(out, d.d[i]);
}

/* How many digits are behind the point of a number with an exponent: at most PRECISION. */
static int digits_behind(double v, shoal_dtype type) {
  struct digits d;
  find_digits(v, type, &d);
  if (d.n - 1 <= PRECISION) return d.n - 1;
  struct text t = {0};
  text_addf(&t, "%.*e", PRECISION, fabs(v));
  *strchr(t.at, 'e') = 0;
  t.n = strlen(t.at);
  trim_zeros(&t);
  int n = (int)t.n - 2; /* "1." */
  text_release(&t);
  return n;
}

static int exponent_size(double v) {
  char s[40];
  snprintf(s, sizeof s, "%.*e", PRECISION, v);
  return (int)strlen(strchr(s, 'e')) - 2; /* without e and sign */
}

/* ---- the form of all numbers of an array ---- */

struct number_form {
  shoal_dtype type;
  bool plus, exponents;
  int left, right; /* characters before and behind the point */
  int precision, exponent;
};

typedef VEC(int64_t) index_list;

/* part: 1 for what is imaginary. */
static double number(const struct tensor *t, int64_t i, int part) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: return (double)((const float *)t->data)[i];
    case SHOAL_FLOAT64: return ((const double *)t->data)[i];
    case SHOAL_FLOAT16: return (double)f16_to_float(((const f16 *)t->data)[i]);
    case SHOAL_COMPLEX64: return (double)((const float *)t->data)[2 * i + part];
    default: return ((const double *)t->data)[2 * i + part];
  }
}

static shoal_dtype part_type(const struct tensor *t) {
  if (t->dtype == SHOAL_COMPLEX64) return SHOAL_FLOAT32;
  return t->dtype == SHOAL_COMPLEX128 ? SHOAL_FLOAT64 : (shoal_dtype)t->dtype;
}

/* The quotient in the type's own precision, as NumPy takes it. */
static bool far_apart(double largest, double least, shoal_dtype type) {
  if (type == SHOAL_FLOAT32) return (float)largest / (float)least > 1000.0F;
  if (type == SHOAL_FLOAT16) return f16_to_float(f16_from_float((float)(largest / least))) > 1000.0F;
  return largest / least > 1000.0;
}

static bool wants_exponents(const struct tensor *t, const index_list *shown, int part, shoal_dtype type) {
  double largest = 0, least = INFINITY;
  for (size_t k = 0; k < shown->n; k++) {
    double v = fabs(number(t, shown->at[k], part));
    if (!isfinite(v) || v == 0) continue;
    largest = MAX(largest, v);
    least = MIN(least, v);
  }
  return largest > 0 && (largest >= 1e8 || least < 0.0001 || far_apart(largest, least, type));
}

static void widen(struct number_form *f, double v) {
  int sign = signbit(v) || f->plus;
  if (f->exponents) {
    f->left = MAX(f->left, 1 + sign);
    f->precision = MAX(f->precision, digits_behind(v, f->type));
    f->exponent = MAX(f->exponent, exponent_size(v));
    return;
  }
  struct text s = {0};
  add_positional(v, f->type, false, &s);
  int before = (int)strcspn(text_cstr(&s), ".");
  f->left = MAX(f->left, before + sign);
  f->right = MAX(f->right, (int)s.n - before - 1);
  text_release(&s);
}

static struct number_form find_form(const struct tensor *t, const index_list *shown, int part, bool plus) {
  struct number_form f = {.type = part_type(t), .plus = plus};
  int longest = 0; /* of what is no number */
  f.exponents = wants_exponents(t, shown, part, f.type);
  bool finite = false, odd = false, below = plus;
  for (size_t k = 0; k < shown->n; k++) {
    double v = number(t, shown->at[k], part);
    if (isfinite(v)) widen(&f, v);
    else below = below || v < 0;
    finite = finite || isfinite(v);
    odd = odd || !isfinite(v);
  }
  if (f.exponents && finite) f.right = f.exponent + 2 + f.precision;
  if (odd) longest = 3 + below;
  f.left = MAX(f.left, longest - f.right - 1);
  return f;
}

static void add_spaces(struct text *out, int n) {
  for (; n > 0; n--) text_addc(out, ' ');
}

static void add_odd(const struct number_form *f, double v, struct text *out) {
  const char *sign = v < 0 ? "-" : f->plus ? "+" : "", *word = isnan(v) ? "nan" : "inf";
  add_spaces(out, f->left + f->right + 1 - (int)(strlen(sign) + strlen(word)));
  text_adds(out, sign);
  text_adds(out, word);
}

static void add_with_exponent(const struct number_form *f, double v, struct text *out) {
  char s[48];
  snprintf(s, sizeof s, "%#.*e", f->precision, fabs(v));
  char *e = strchr(s, 'e');
  add_spaces(out, f->left - 1 - (signbit(v) || f->plus));
  add_sign(v, f->plus, out);
  text_add(out, s, (size_t)(e - s) + 2);
  for (int i = (int)strlen(e + 2); i < f->exponent; i++) text_addc(out, '0');
  text_adds(out, e + 2);
}

static void add_number(const struct number_form *f, double v, struct text *out) {
  if (!isfinite(v)) {
    add_odd(f, v, out);
    return;
  }
  if (f->exponents) {
    add_with_exponent(f, v, out);
    return;
  }
  struct text s = {0};
  add_positional(v, f->type, false, &s);
  int before = (int)strcspn(text_cstr(&s), ".");
  add_spaces(out, f->left - before - (signbit(v) || f->plus));
  add_sign(v, f->plus, out);
  text_add(out, s.at, s.n);
  add_spaces(out, f->right - ((int)s.n - before - 1));
  text_release(&s);
}

/* ---- elements of other types ---- */

static bool add_whole(const struct tensor *t, int64_t i, struct text *out) {
  switch (t->dtype) {
    case SHOAL_INT8:
    case SHOAL_QINT8: text_addf(out, "%d", ((const int8_t *)t->data)[i]); break;
    case SHOAL_UINT8:
    case SHOAL_QUINT8: text_addf(out, "%d", ((const uint8_t *)t->data)[i]); break;
    case SHOAL_INT16:
    case SHOAL_QINT16: text_addf(out, "%d", ((const int16_t *)t->data)[i]); break;
    case SHOAL_UINT16:
    case SHOAL_QUINT16: text_addf(out, "%d", ((const uint16_t *)t->data)[i]); break;
    case SHOAL_INT32:
    case SHOAL_QINT32: text_addf(out, "%" PRId32, ((const int32_t *)t->data)[i]); break;
    case SHOAL_UINT32: text_addf(out, "%" PRIu32, ((const uint32_t *)t->data)[i]); break;
    case SHOAL_INT64: text_addf(out, "%" PRId64, ((const int64_t *)t->data)[i]); break;
    case SHOAL_UINT64: text_addf(out, "%" PRIu64, ((const uint64_t *)t->data)[i]); break;
    default: return false;
  }
  return true;
}

static bool is_quantized(shoal_dtype t) {
  return t == SHOAL_QINT8 || t == SHOAL_QUINT8 || t == SHOAL_QINT16 || t == SHOAL_QUINT16 || t == SHOAL_QINT32;
}

/* As Python writes bytes. */
static void add_bytes(const char *s, size_t n, struct text *out) {
  char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
  text_addf(out, "b%c", quote);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == (unsigned char)quote || c == '\\') text_addf(out, "\\%c", c);
    else if (c == '\t' || c == '\n' || c == '\r') text_addf(out, "\\%c", c == '\t' ? 't' : c == '\n' ? 'n' : 'r');
    else if (c < 32 || c >= 127) text_addf(out, "\\x%02x", c);
    else text_addc(out, (char)c);
  }
  text_addc(out, quote);
}

/* How all elements of an array are written. */
struct form {
  struct number_form real, imaginary;
  int width; /* of integers */
};

static bool is_float(shoal_dtype t) { return t == SHOAL_FLOAT32 || t == SHOAL_FLOAT64 || t == SHOAL_FLOAT16; }

static struct form form_of(const struct tensor *t, const index_list *shown) {
  struct form f = {0};
  if (is_float((shoal_dtype)t->dtype) || dtype_complex((shoal_dtype)t->dtype)) f.real = find_form(t, shown, 0, false);
  if (dtype_complex((shoal_dtype)t->dtype)) f.imaginary = find_form(t, shown, 1, true);
  for (size_t k = 0; k < shown->n; k++) {
    struct text s = {0};
    if (add_whole(t, shown->at[k], &s)) f.width = MAX(f.width, (int)s.n);
    text_release(&s);
  }
  return f;
}

static void add_complex(const struct tensor *t, int64_t i, const struct form *f, struct text *out) {
  add_number(&f->real, number(t, i, 0), out);
  size_t from = out->n;
  add_number(&f->imaginary, number(t, i, 1), out);
  size_t end = out->n;
  while (end > from && out->at[end - 1] == ' ') end--;
  int spaces = (int)(out->n - end);
  out->n = end; /* the j is behind the number, before what fills up */
  text_addc(out, 'j');
  add_spaces(out, spaces);
}

static void add_integer(const struct tensor *t, int64_t i, int width, struct text *out) {
  struct text s = {0};
  bool quantized = is_quantized((shoal_dtype)t->dtype);
  if (!add_whole(t, i, &s)) text_addc(&s, '?');
  if (quantized) text_addc(out, '(');
  add_spaces(out, width - (int)s.n);
  text_add(out, s.at, s.n);
  if (quantized) text_adds(out, ",)");
  text_release(&s);
}

static void add_element(const struct tensor *t, int64_t i, const struct form *f, struct text *out) {
  const struct str *s;
  switch (t->dtype) {
    case SHOAL_FLOAT16:
    case SHOAL_FLOAT32:
    case SHOAL_FLOAT64: add_number(&f->real, number(t, i, 0), out); break;
    case SHOAL_COMPLEX64:
    case SHOAL_COMPLEX128: add_complex(t, i, f, out); break;
    case SHOAL_BFLOAT16: text_addf(out, "%g", (double)bf16_to_float(((const bf16 *)t->data)[i])); break;
    case SHOAL_BOOL: text_adds(out, ((const bool *)t->data)[i] ? t->rank ? " True" : "True" : "False"); break;
    case SHOAL_STRING:
      s = (const struct str *)t->data + i;
      add_bytes(str_data(s), s->size, out);
      break;
    default: add_integer(t, i, f->width, out);
  }
}

/* ---- one alone ---- */

/* "12.5", "3.0", "1e-05"; whole: "3", as in a complex number. */
static void add_alone(double v, shoal_dtype type, bool whole, struct text *out) {
  struct digits d;
  if (!isfinite(v)) {
    text_adds(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    return;
  }
  add_sign(v, false, out);
  if (v == 0 || (fabs(v) < 1e16 && fabs(v) >= 1e-4)) {
    add_positional(v, type, true, out);
    if (out->at[out->n - 1] != '.') return;
    if (whole) out->at[--out->n] = 0;
    else text_addc(out, '0');
    return;
  }
  find_digits(v, type, &d);
  text_addf(out, "%c%s%.*se%+03d", d.d[0], d.n > 1 ? "." : "", d.n - 1, d.d + 1, d.point - 1);
}

/* "(1+2j)", "2j" */
static void add_complex_alone(const struct tensor *t, struct text *out) {
  double real = number(t, 0, 0), imaginary = number(t, 0, 1);
  bool both = real != 0 || signbit(real);
  if (both) {
    text_addc(out, '(');
    add_alone(real, part_type(t), true, out);
    if (isnan(imaginary) || !signbit(imaginary)) text_addc(out, '+');
  }
  add_alone(imaginary, part_type(t), true, out);
  text_adds(out, both ? "j)" : "j");
}

static void print_alone(const struct tensor *t, struct text *out) {
  struct form f = {0};
  if (is_float((shoal_dtype)t->dtype)) add_alone(number(t, 0, 0), (shoal_dtype)t->dtype, false, out);
  else if (dtype_complex((shoal_dtype)t->dtype)) add_complex_alone(t, out);
  else add_element(t, 0, &f, out);
}

/* ---- the layout ---- */

struct numpy_layout {
  const struct tensor *t;
  const struct form *form;
  bool summary; /* the middle of long dimensions is left out */
  struct text *out;
  int column;
};

static void wrap(struct numpy_layout *l, size_t word, int width, int indent) {
  if (l->column + (int)word <= width || l->column <= indent) return;
  while (l->out->n && l->out->at[l->out->n - 1] == ' ') l->out->n--;
  text_addc(l->out, '\n');
  add_spaces(l->out, indent);
  l->column = indent;
}

static void add_word(struct numpy_layout *l, const struct text *word, int dim, bool last) {
  wrap(l, word->n, LINE - dim - 1, dim + 1);
  text_add(l->out, word->at, word->n);
  l->column += (int)word->n;
  if (last) return;
  text_addc(l->out, ' ');
  l->column++;
}

static void print_dimension(struct numpy_layout *l, int dim, int64_t from);

/* Element, or what is below, i of a dimension; i < 0: what stands for those left out. */
static void print_item(struct numpy_layout *l, int dim, int64_t from, int64_t i, bool last) {
  const struct tensor *t = l->t;
  struct text word = {0};
  if (i < 0) text_adds(&word, "...");
  if (dim == t->rank - 1) {
    if (i >= 0) add_element(t, from + i, l->form, &word);
    add_word(l, &word, dim, last);
  } else {
    int64_t inner = 1;
    for (int k = dim + 1; k < t->rank; k++) inner *= t->dims[k];
    if (i >= 0) print_dimension(l, dim + 1, from + i * inner);
    else text_adds(l->out, "...");
    for (int k = dim; k < t->rank - 1 && !last; k++) text_addc(l->out, '\n');
    if (!last) add_spaces(l->out, dim + 1);
  }
  text_release(&word);
}

static void print_dimension(struct numpy_layout *l, int dim, int64_t from) {
  int64_t n = l->t->dims[dim];
  bool cut = l->summary && n > 2 * EDGE;
  text_addc(l->out, '[');
  l->column = dim + 1;
  for (int64_t i = 0; i < (cut ? EDGE : n); i++) print_item(l, dim, from, i, i == n - 1);
  if (cut) print_item(l, dim, from, -1, false);
  for (int64_t i = cut ? n - EDGE : n; i < n; i++) print_item(l, dim, from, i, i == n - 1);
  text_addc(l->out, ']');
}

static void find_shown(const struct tensor *t, bool summary, int dim, int64_t from, index_list *out) {
  if (dim == t->rank) {
    vec_push(out, from);
    return;
  }
  int64_t n = t->dims[dim], inner = 1;
  for (int k = dim + 1; k < t->rank; k++) inner *= t->dims[k];
  for (int64_t i = 0; i < n; i++) {
    if (summary && n > 2 * EDGE && i == EDGE) i = n - EDGE;
    find_shown(t, summary, dim + 1, from + i * inner, out);
  }
}

void numpy_print(const struct tensor *t, struct text *out) {
  if (t->rank == 0) {
    print_alone(t, out);
    return;
  }
  if (!t->n) {
    text_adds(out, "[]");
    return;
  }
  bool summary = t->n > THRESHOLD;
  index_list shown = {0};
  find_shown(t, summary, 0, 0, &shown);
  struct form form = form_of(t, &shown);
  struct numpy_layout l = {.t = t, .form = &form, .summary = summary, .out = out};
  print_dimension(&l, 0, 0);
  vec_release(&shown);
}

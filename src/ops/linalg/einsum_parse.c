/* Einsum equations: parsing, and binding to shapes. */
#include "ops/linalg/einsum_parse.h"

#include <ctype.h>
#include <string.h>

static shoal_status parse_one(const char *text, size_t n, bool output, struct subscripts *s) {
  *s = (struct subscripts){.ellipsis = -1};
  size_t periods = 0;
  for (size_t i = 0; i < n; i++) periods += text[i] == '.';
  const char *dots = periods ? memchr(text, '.', n) : NULL;
  bool whole = dots && periods == 3 && (size_t)(text + n - dots) >= 3 && !memcmp(dots, "...", 3);
  if (periods && !whole)
    return INVALID("Expected at most one ellipsis (...), but found %zu periods (.) in the input subscript: %.*s",
                   periods, (int)n, text);
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '.') {
      s->ellipsis = s->n;
      i += 2;
      continue;
    }
    if (s->n == SHOAL_MAX_RANK)
      return INVALID("Einsum with more than %d labels in '%.*s'", SHOAL_MAX_RANK, (int)n, text);
    s->label[s->n++] = text[i];
  }
  return NULL;
}

static bool has_label(const struct subscripts *s, char label) { return memchr(s->label, label, (size_t)s->n) != NULL; }

shoal_status equation_parse(const char *text, int n_in, struct equation *out) {
  const char *arrow = strstr(text, "->");
  if (!arrow || strstr(arrow + 2, "->")) return INVALID("Expecting exactly one '->' in einsum equation: %s", text);
  int commas = 0;
  for (const char *p = text; p < arrow; p++) commas += *p == ',';
  if (commas > 1) return INVALID("Expecting 1 or 2 input subscripts in equation '%s' but got: %d", text, commas + 1);
  if (commas + 1 != n_in) return INVALID("Expected %d inputs for equation %s but got: %d", commas + 1, text, n_in);
  const char *comma = commas ? memchr(text, ',', (size_t)(arrow - text)) : NULL;
  out->n_in = n_in;
  TRY(parse_one(text, (size_t)((comma ? comma : arrow) - text), false, &out->in[0]));
  out->in[1] = (struct subscripts){.ellipsis = -1};
  if (comma) TRY(parse_one(comma + 1, (size_t)(arrow - comma - 1), false, &out->in[1]));
  TRY(parse_one(arrow + 2, strlen(arrow + 2), true, &out->out));
  for (int i = 0; i < out->out.n; i++)
    if (!has_label(&out->in[0], out->out.label[i]) && !has_label(&out->in[1], out->out.label[i]))
      return INVALID(
          "Einsum output subscripts for equation '%s' has label '%c' which is not present in the input "
          "subscripts",
          text, out->out.label[i]);
  return NULL;
}

void subscripts_print(const struct subscripts *s, bool forced, struct text *out) {
  int at = s->ellipsis < 0 && forced ? 0 : s->ellipsis;
  for (int i = 0; i <= s->n; i++) {
    if (i == at) text_adds(out, "...");
    if (i < s->n) text_addc(out, s->label[i]);
  }
}

static struct axis *find_axis(struct bound *b, int label) {
  for (int i = 0; i < b->n; i++)
    if (b->axis[i].label == label) return &b->axis[i];
  b->axis[b->n] = (struct axis){.label = label, .dim = -1};
  return &b->axis[b->n++];
}

static shoal_status bind_input(const struct subscripts *s, int which, const struct shape *shape, struct bound *b) {
  int extra = shape->rank - s->n;
  if (s->ellipsis < 0 && extra)
    return INVALID("Expected input %d to have rank %d but got: %d", which, s->n, shape->rank);
  if (extra < 0) return INVALID("Expected input %d to have rank at least %d but got: %d", which, s->n, shape->rank);
  int64_t strides[SHOAL_MAX_RANK], step = 1;
  bool seen[MAX_AXES] = {false};
  for (int i = shape->rank - 1; i >= 0; i--) {
    strides[i] = step;
    step *= MAX(shape->dims[i], 1);
  }
  for (int i = 0; i < shape->rank; i++) {
    bool wide = s->ellipsis >= 0 && i >= s->ellipsis && i < s->ellipsis + extra;
    int at = s->ellipsis < 0 || i < s->ellipsis ? i : i - extra;
    int label = wide ? BROADCAST + (s->ellipsis + extra - 1 - i) : (unsigned char)s->label[at];
    struct axis *a = find_axis(b, label);
    int64_t d = shape->dims[i];
    bool first = !seen[a - b->axis];
    seen[a - b->axis] = true;
    if (a->dim < 0) {
      a->dim = d;
    } else if (wide) {
      if (d > 1 && a->dim > 1 && d != a->dim)
        return INVALID("Broadcasting dimensions %" PRId64 " and %" PRId64 " of einsum are not compatible", a->dim, d);
      if (a->dim == 1) a->dim = d;
    } else if (d >= 0 && d != a->dim) {
      return INVALID("Expected dimension %" PRId64 " at axis %d of the input shaped %s but got dimension %" PRId64,
                     a->dim, i, shape_str(shape), d);
    }
    a->stride[which] = first ? strides[i] : a->stride[which] + strides[i];
    a->in[which] = true;
    if (wide && d == 1) a->stride[which] = -1; /* settled below, when the dimension is known */
  }
  return NULL;
}

shoal_status equation_bind(const struct equation *e, const struct shape *in, struct bound *b) {
  *b = (struct bound){.out = {.rank = 0}};
  int wide = 0;
  for (int i = 0; i < e->n_in; i++) {
    TRY(bind_input(&e->in[i], i, &in[i], b));
    wide = MAX(wide, in[i].rank - e->in[i].n);
  }
  for (int i = 0; i < b->n; i++)
    for (int k = 0; k < 2; k++)
      if (b->axis[i].stride[k] == -1) { /* of one element: the input does not step along it */
        b->axis[i].stride[k] = 0;
        b->axis[i].in[k] = false;
      }
  if (wide && e->out.ellipsis < 0)
    return INVALID(
        "Output contains %d broadcasting dimension(s) but no ellipsis (...) was found in the output "
        "subscripts.",
        wide);
  int labels[SHOAL_MAX_RANK + 1], rank = 0;
  if (e->out.n + wide > SHOAL_MAX_RANK) return INVALID("Einsum output has more than %d dimensions", SHOAL_MAX_RANK);
  for (int i = 0; i <= e->out.n; i++) {
    if (i == e->out.ellipsis)
      for (int w = wide - 1; w >= 0; w--) labels[rank++] = BROADCAST + w;
    if (i < e->out.n) labels[rank++] = (unsigned char)e->out.label[i];
  }
  int64_t step = 1;
  b->out.rank = rank;
  for (int i = rank - 1; i >= 0; i--) {
    struct axis *a = find_axis(b, labels[i]);
    b->repeats |= a->in_out;
    a->in_out = true;
    a->out_stride += step;
    b->out.dims[i] = a->dim;
    step *= MAX(a->dim, 1);
  }
  return NULL;
}

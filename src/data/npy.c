/* NumPy's arrays in files. The format:
 *
 *   bytes
 *   6      \x93NUMPY
 *   2      version: 1.0, 2.0, 3.0
 *   2 or 4 length of the header, little-endian; 4 from version 2 on
 *   ...    the header, a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   ...    elements
 *
 * The header is text from a stranger: the three keys are looked for, and nothing else is understood. */
#include "data/npy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/byte_order.h"
#include "data/npy_objects.h"

static const char MAGIC[] = "\x93NUMPY";
enum { MAGIC_SIZE = 6, MAX_HEADER = 1 << 20, ALIGNED = 64 };

/* ---- the header ---- */

struct npy_header {
  char kind; /* of NumPy's: b i u f c S U V O */
  bool swapped, fortran;
  int64_t width; /* bytes of an element; of kind U: characters */
  struct shape shape;
};

/* What follows 'key': in the header. */
static const char *value_of(const char *header, const char *key) {
  char quoted[32];
  snprintf(quoted, sizeof quoted, "'%s'", key);
  const char *at = strstr(header, quoted);
  if (!at) return NULL;
  at += strlen(quoted);
  while (*at == ' ' || *at == ':') at++;
  return at;
}

static shoal_status parse_type(const char *at, struct npy_header *h) {
  if (!at) return INVALID("its header has no type of elements");
  if (*at != '\'') return UNIMPLEMENTED("arrays of structures");
  char order = at[1];
  char *end = NULL;
  h->kind = order ? at[2] : 0;
  h->width = h->kind ? strtoll(at + 3, &end, 10) : 0;
  if (!end || *end != '\'' || h->width < 0) return INVALID("its type of elements makes no sense: %.12s", at);
  h->swapped = order == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '>' : '<');
  return NULL;
}

static shoal_status parse_shape(const char *at, struct shape *out) {
  *out = shape_scalar();
  if (!at || *at != '(') return INVALID("its header has no shape");
  for (at++; *at != ')';) {
    char *end;
    if (!isdigit((unsigned char)*at)) return INVALID("its shape makes no sense");
    if (out->rank == SHOAL_MAX_RANK) return INVALID("more than %d dimensions", SHOAL_MAX_RANK);
    out->dims[out->rank++] = strtoll(at, &end, 10);
    for (at = end; *at == ',' || *at == ' ' || *at == 'L';) at++;
  }
  return NULL;
}

static shoal_status parse_header(const char *text, struct npy_header *h) {
  const char *fortran = value_of(text, "fortran_order");
  TRY(parse_type(value_of(text, "descr"), h));
  TRY(parse_shape(value_of(text, "shape"), &h->shape));
  h->fortran = fortran && !strncmp(fortran, "True", 4);
  return NULL;
}

static shoal_dtype dtype_of(const struct npy_header *h) {
  static const struct {
    char kind;
    int width;
    shoal_dtype dtype;
  } types[] = {{'b', 1, SHOAL_BOOL},      {'i', 1, SHOAL_INT8},        {'i', 2, SHOAL_INT16},   {'i', 4, SHOAL_INT32},
               {'i', 8, SHOAL_INT64},     {'u', 1, SHOAL_UINT8},       {'u', 2, SHOAL_UINT16},  {'u', 4, SHOAL_UINT32},
               {'u', 8, SHOAL_UINT64},    {'f', 2, SHOAL_FLOAT16},     {'f', 4, SHOAL_FLOAT32}, {'f', 8, SHOAL_FLOAT64},
               {'c', 8, SHOAL_COMPLEX64}, {'c', 16, SHOAL_COMPLEX128}, {'V', 2, SHOAL_BFLOAT16}};
  if (h->kind == 'S' || h->kind == 'U') return SHOAL_STRING;
  for (size_t i = 0; i < COUNT_OF(types); i++)
    if (types[i].kind == h->kind && types[i].width == h->width) return types[i].dtype;
  return SHOAL_DT_INVALID;
}

/* ---- elements ---- */

/* Where element i of rows, the last index first, lies in columns, the first index first. */
static int64_t in_columns(int64_t i, const struct shape *s) {
  int64_t at = 0, stride = 1, index[SHOAL_MAX_RANK];
  for (int d = s->rank - 1; d >= 0; d--) {
    index[d] = i % s->dims[d];
    i /= s->dims[d];
  }
  for (int d = 0; d < s->rank; d++) {
    at += index[d] * stride;
    stride *= s->dims[d];
  }
  return at;
}

static void add_utf8(struct text *t, uint32_t c) {
  if (c < 0x80) {
    text_addc(t, (char)c);
  } else {
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    text_addc(t, (char)(first[more] | c >> (6 * more)));
    while (more--) text_addc(t, (char)(0x80 | (c >> (6 * more) & 0x3F)));
  }
}

/* A string of fixed size without the zeros at its end. */
static void read_string(const struct npy_header *h, const char *at, struct str *to) {
  int64_t n = h->width;
  if (h->kind == 'S') {
    while (n && !at[n - 1]) n--;
    str_set(to, at, (size_t)n);
    return;
  }
  struct text t = {0};
  for (int64_t i = 0; i < n; i++) {
    uint32_t c;
    memcpy(&c, at + 4 * i, 4);
    if (h->swapped) c = __builtin_bswap32(c);
    if (!c && i + 1 == n) break;
    add_utf8(&t, c < 0x110000 ? c : 0xFFFD);
  }
  while (t.n && !t.at[t.n - 1]) t.n--;
  str_set(to, text_cstr(&t), t.n);
  text_release(&t);
}

static void read_elements(const struct npy_header *h, const char *from, size_t width, struct tensor *out) {
  for (int64_t i = 0; i < out->n; i++) {
    const char *at = from + (size_t)(h->fortran ? in_columns(i, &h->shape) : i) * width;
    if (out->dtype == SHOAL_STRING) read_string(h, at, &T_DATA(out, struct str)[i]);
    else memcpy((char *)out->data + (size_t)i * width, at, width);
  }
}

static shoal_status read_array(const struct npy_header *h, const char *from, size_t left, struct tensor *out) {
  shoal_dtype dtype = dtype_of(h);
  if (!dtype) return UNIMPLEMENTED("elements of NumPy's type %c%lld", h->kind, (long long)h->width);
  int64_t n, bytes;
  TRY(shape_elements(&h->shape, &n));
  int64_t width = h->kind == 'U' ? 4 * MIN(h->width, INT32_MAX) : h->width;
  if (h->width > INT32_MAX || mul_overflows(n, width, &bytes) || (uint64_t)bytes > left ||
      (!width && n > MAX_HEADER)) /* empty strings take no room in the file */
    return STATUS(SHOAL_DATA_LOSS, "cut short: %zu bytes of elements are there", left);
  TRY(tensor_new(out, dtype, &h->shape));
  if (dtype != SHOAL_STRING && !h->fortran) memcpy(out->data, from, (size_t)bytes);
  else read_elements(h, from, (size_t)width, out);
  bool is_complex = h->kind == 'c';
  if (h->swapped && dtype != SHOAL_STRING)
    swap_bytes(out->data, n * (is_complex ? 2 : 1), (size_t)width / (is_complex ? 2 : 1));
  return NULL;
}

shoal_status npy_decode(const char *data, size_t size, struct tensor *out) {
  if (size < 12 || memcmp(data, MAGIC, MAGIC_SIZE)) return INVALID("it is no .npy file");
  const unsigned char *u = (const unsigned char *)data;
  size_t at = u[6] == 1 ? 10 : 12, n = u[8] | (size_t)u[9] << 8;
  if (u[6] > 1) n |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
  if (u[6] < 1 || u[6] > 3) return UNIMPLEMENTED("version %d of the format", u[6]);
  if (n > MAX_HEADER || n > size - at) return STATUS(SHOAL_DATA_LOSS, "its header is cut short");
  char *text = mem_strndup(data + at, n);
  struct npy_header h = {0};
  shoal_status s = parse_header(text, &h);
  free(text);
  if (s) return s;
  at += n;
  return h.kind == 'O' ? npy_objects_read(data + at, size - at, &h.shape, out)
                       : read_array(&h, data + at, size - at, out);
}

shoal_status npy_read(const char *path, struct tensor *out) {
  char *data;
  size_t n;
  TRY(file_read(path, 0, &data, &n));
  shoal_status s = status_prefix(npy_decode(data, n, out), "%s: ", path);
  free(data);
  return s;
}

/* ---- writing ---- */

/* What np.save makes of a string that stands alone, and NumPy's fixed ones can hold: they have no zeros at their end.
 * Arrays of strings are objects in Python. */
static bool is_fixed(const struct tensor *t) {
  if (t->rank) return false;
  const struct str *s = T_DATA(t, struct str);
  return !s->size || str_data(s)[s->size - 1];
}

static size_t fixed_width(const struct tensor *t) { return MAX(T_DATA(t, struct str)->size, (size_t)1); }

static shoal_status describe(const struct tensor *t, struct text *out) {
  char order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>';
  size_t size = dtype_size((shoal_dtype)t->dtype);
  switch ((int)t->dtype) {
    case SHOAL_BOOL: text_adds(out, "|b1"); return NULL;
    case SHOAL_INT8: text_adds(out, "|i1"); return NULL;
    case SHOAL_UINT8: text_adds(out, "|u1"); return NULL;
    case SHOAL_INT16:
    case SHOAL_INT32:
    case SHOAL_INT64: text_addf(out, "%ci%zu", order, size); return NULL;
    case SHOAL_UINT16:
    case SHOAL_UINT32:
    case SHOAL_UINT64: text_addf(out, "%cu%zu", order, size); return NULL;
    case SHOAL_FLOAT16:
    case SHOAL_FLOAT32:
    case SHOAL_FLOAT64: text_addf(out, "%cf%zu", order, size); return NULL;
    case SHOAL_COMPLEX64:
    case SHOAL_COMPLEX128: text_addf(out, "%cc%zu", order, size); return NULL;
    case SHOAL_BFLOAT16: text_adds(out, "<V2"); return NULL;
    case SHOAL_STRING:
      if (is_fixed(t)) text_addf(out, "|S%zu", fixed_width(t));
      else text_adds(out, "|O");
      return NULL;
    default: return UNIMPLEMENTED("NumPy has no type like %s", shoal_dtype_name((shoal_dtype)t->dtype));
  }
}

static shoal_status make_header(const struct tensor *t, struct text *out) {
  struct text type = {0}, text = {0};
  shoal_status s = describe(t, &type);
  text_addf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", text_cstr(&type));
  for (int i = 0; i < t->rank; i++) text_addf(&text, i ? ", %lld" : "%lld", (long long)t->dims[i]);
  text_adds(&text, t->rank == 1 ? ",), }" : "), }");
  while ((10 + text.n + 1) % ALIGNED) text_addc(&text, ' ');
  text_addc(&text, '\n');
  text_add(out, MAGIC, MAGIC_SIZE);
  text_add(out, "\x01\x00", 2);
  text_addc(out, (char)(text.n & 0xFF));
  text_addc(out, (char)(text.n >> 8));
  text_add(out, text.at, text.n);
  text_release(&text);
  text_release(&type);
  return s;
}

static shoal_status add_elements(struct file_writer *w, const struct tensor *t) {
  if (t->dtype != SHOAL_STRING) return file_writer_add(w, t->data, tensor_bytes(t));
  if (!is_fixed(t)) return npy_objects_write(w, t);
  const struct str *s = T_DATA(t, struct str);
  return s->size ? file_writer_add(w, str_data(s), s->size) : file_writer_add(w, "", 1);
}

shoal_status npy_write(const char *path, const struct tensor *t) {
  struct text header = {0};
  struct file_writer w;
  shoal_status s = make_header(t, &header);
  if (!s) s = file_writer_open(&w, path);
  if (!s) {
    s = file_writer_add(&w, header.at, header.n);
    if (!s) s = add_elements(&w, t);
    if (!s) s = file_writer_commit(&w);
    file_writer_abort(&w);
  }
  text_release(&header);
  return s;
}

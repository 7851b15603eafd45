/* Strings that NumPy has pickled: a program for Python's stack machine, of which the one form is read here that np.save
 * writes (protocols 3 to 5; in 2 bytes are a call of a function), and nothing is run.
 *
 *   numpy.core.multiarray _reconstruct, numpy ndarray, (0,), b"b", REDUCE            an empty array, whose state is
 *   MARK 1, shape,                                                                   a tuple: a version, the shape,
 *     numpy dtype, ("O8", False, True) REDUCE MARK 3 "|" None*3 -1 -1 63 TUPLE BUILD the type of its elements,
 *     False, EMPTY_LIST, MARK bytes or str ... APPENDS, ...                          no order of columns, the elements
 *   TUPLE BUILD STOP
 *
 * Between these stand ops that keep a value by a number (a string that is there twice is read from there the second
 * time), and sizes of frames, which are not needed. Elements are in the order of rows, whatever the header says. */
#include "data/npy_objects.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/vec.h"

/* Of strings that are kept, copies of so many bytes: a file of a few MB could ask for any number. */
enum { MOST_REPEATED = 256 << 20 };

/* ---- words ---- */

/* kind: i a number or a truth, N None, B bytes, T characters, g a global's name, ( a mark, ) an empty tuple, 1 2 3 t a
 * tuple of so many or since the mark, ] an empty list, a e append one or those since the mark, G a global of the two
 * strings before, R call, b set the state, '.' the end. */
struct pickle_word {
  char kind;
  bool kept; /* read by its number */
  const char *at;
  size_t n;
  int64_t number;
};

struct pickle {
  const unsigned char *at;
  size_t left;
  VEC(struct pickle_word) memo;
  size_t repeated;
};

static shoal_status cut_short(void) { return STATUS(SHOAL_DATA_LOSS, "its objects are cut short"); }
static shoal_status no_strings(void) {
  return UNIMPLEMENTED("an array of Python's objects other than bytes and str: save numbers or strings");
}

static bool take(struct pickle *p, size_t n, const unsigned char **out) {
  if (n > p->left) return false;
  *out = p->at;
  p->at += n;
  p->left -= n;
  return true;
}

/* A little-endian number of so many bytes, at most 8. */
static bool take_number(struct pickle *p, size_t bytes, uint64_t *out) {
  const unsigned char *u;
  if (!take(p, bytes, &u)) return false;
  *out = 0;
  for (size_t i = 0; i < bytes; i++) *out |= (uint64_t)u[i] << (8 * i);
  return true;
}

static shoal_status take_string(struct pickle *p, char kind, size_t bytes, struct pickle_word *w) {
  uint64_t n;
  const unsigned char *u;
  if (!take_number(p, bytes, &n) || n > p->left || !take(p, (size_t)n, &u)) return cut_short();
  *w = (struct pickle_word){.kind = kind, .at = (const char *)u, .n = (size_t)n};
  return NULL;
}

static shoal_status take_int(struct pickle *p, size_t bytes, struct pickle_word *w) {
  uint64_t v;
  if (bytes > 8) return no_strings();
  if (!take_number(p, bytes, &v)) return cut_short();
  int unused = bytes ? 64 - 8 * (int)bytes : 0;
  *w = (struct pickle_word){.kind = 'i', .number = bytes < 4 ? (int64_t)v : (int64_t)(v << unused) >> unused};
  return NULL;
}

/* "module\nname\n" */
static shoal_status take_global(struct pickle *p, struct pickle_word *w) {
  const char *first = (const char *)p->at, *line = memchr(first, '\n', p->left);
  const char *end = line ? memchr(line + 1, '\n', p->left - (size_t)(line + 1 - first)) : NULL;
  if (!end) return cut_short();
  *w = (struct pickle_word){.kind = 'g', .at = first, .n = (size_t)(end - first)};
  p->left -= w->n + 1;
  p->at += w->n + 1;
  return NULL;
}

/* The value before gets the next number: there are no gaps in what Python writes. */
static shoal_status keep(struct pickle *p, uint64_t number, const struct pickle_word *w) {
  if (number != p->memo.n) return no_strings();
  vec_push(&p->memo, *w);
  vec_last(&p->memo).kept = true;
  return NULL;
}

static shoal_status take_kept(struct pickle *p, size_t bytes, struct pickle_word *w) {
  uint64_t number;
  if (!take_number(p, bytes, &number)) return cut_short();
  if (number >= p->memo.n) return no_strings();
  *w = p->memo.at[number];
  return NULL;
}

static shoal_status take_word(struct pickle *p, unsigned char op, struct pickle_word *w) {
  const unsigned char *length;
  switch (op) {
    case 'K': return take_int(p, 1, w);
    case 'M': return take_int(p, 2, w);
    case 'J': return take_int(p, 4, w);
    case 0x8A: return take(p, 1, &length) ? take_int(p, *length, w) : cut_short();
    case 0x88:
    case 0x89: *w = (struct pickle_word){.kind = 'i', .number = op == 0x88}; return NULL;
    case 'C': return take_string(p, 'B', 1, w);
    case 'B': return take_string(p, 'B', 4, w);
    case 0x8E: return take_string(p, 'B', 8, w);
    case 0x8C: return take_string(p, 'T', 1, w);
    case 'X': return take_string(p, 'T', 4, w);
    case 0x8D: return take_string(p, 'T', 8, w);
    case 'c': return take_global(p, w);
    case 'h': return take_kept(p, 1, w);
    case 'j': return take_kept(p, 4, w);
    case 0x85:
    case 0x86:
    case 0x87: *w = (struct pickle_word){.kind = (char)('1' + op - 0x85)}; return NULL;
    case 0x93: *w = (struct pickle_word){.kind = 'G'}; return NULL;
    default: break;
  }
  if (!op || !strchr("N()t]aeRb.", op)) return no_strings();
  *w = (struct pickle_word){.kind = (char)op};
  return NULL;
}

/* Sizes of frames, which may begin anywhere. */
static shoal_status skip_frames(struct pickle *p) {
  const unsigned char *size;
  while (p->left && *p->at == 0x95)
    if (!take(p, 9, &size)) return cut_short();
  return NULL;
}

/* What stands behind a word and says no more of it: that it is kept, by the next number or one that is said. */
static shoal_status take_keeping(struct pickle *p, const struct pickle_word *w) {
  const unsigned char *op;
  uint64_t number = p->memo.n;
  if (!p->left || (*p->at != 'q' && *p->at != 'r' && *p->at != 0x94) || !take(p, 1, &op)) return NULL;
  if (*op != 0x94 && !take_number(p, *op == 'q' ? 1 : 4, &number)) return cut_short();
  return keep(p, number, w);
}

static shoal_status next(struct pickle *p, struct pickle_word *w) {
  const unsigned char *op;
  TRY(skip_frames(p));
  if (!take(p, 1, &op)) return cut_short();
  TRY(take_word(p, *op, w));
  TRY(skip_frames(p));
  return take_keeping(p, w);
}

/* ---- the array ---- */

/* Words of these kinds, one after another. */
static shoal_status expect(struct pickle *p, const char *kinds) {
  for (; *kinds; kinds++) {
    struct pickle_word w;
    TRY(next(p, &w));
    if (w.kind != *kinds) return no_strings();
  }
  return NULL;
}

/* name: "module\nname", as one word or as three. */
static shoal_status expect_global(struct pickle *p, const char *name, const char *or_name) {
  struct pickle_word w;
  char both[64];
  TRY(next(p, &w));
  if (w.kind == 'T') {
    struct pickle_word second;
    TRY(next(p, &second));
    if (second.kind != 'T' || w.n + second.n + 1 >= sizeof both) return no_strings();
    snprintf(both, sizeof both, "%.*s\n%.*s", (int)w.n, w.at, (int)second.n, second.at);
    TRY(expect(p, "G"));
    w = (struct pickle_word){.kind = 'g', .at = both, .n = strlen(both)};
  }
  bool is = w.kind == 'g' && ((w.n == strlen(name) && !memcmp(w.at, name, w.n)) ||
                              (w.n == strlen(or_name) && !memcmp(w.at, or_name, w.n)));
  return is ? NULL : no_strings();
}

/* The shape once more: the header's. Up to three dimensions are a tuple of their own op, more are since a mark. */
static shoal_status expect_shape(struct pickle *p, const struct shape *shape) {
  struct pickle_word w;
  if (!shape->rank) return expect(p, ")");
  if (shape->rank > 3) TRY(expect(p, "("));
  for (int i = 0; i < shape->rank; i++) {
    TRY(next(p, &w));
    if (w.kind != 'i') return no_strings();
    if (w.number != shape->dims[i]) return STATUS(SHOAL_DATA_LOSS, "its objects have another shape than its header");
  }
  return expect(p, shape->rank > 3 ? "t" : (const char *[]){"1", "2", "3"}[shape->rank - 1]);
}

static shoal_status put(struct pickle *p, const struct pickle_word *w, int64_t i, struct tensor *out) {
  if (w->kind != 'B' && w->kind != 'T') return no_strings();
  if (i >= out->n) return STATUS(SHOAL_DATA_LOSS, "it has more objects than its shape");
  if (w->kind == 'T' && !str_is_utf8(w->at, w->n)) return INVALID("element %lld is no UTF-8", (long long)i);
  if (w->kept && (p->repeated += w->n) > MOST_REPEATED)
    return INVALID("strings that are there more than once take more than %d MB", MOST_REPEATED >> 20);
  return str_try_set(&T_DATA(out, struct str)[i], w->at, w->n) ? NULL : NO_MEMORY(w->n, "a string");
}

/* Elements, to the end of the state: in batches since a mark, or one by itself. */
static shoal_status read_elements(struct pickle *p, struct tensor *out) {
  int64_t n = 0;
  bool batch = false;
  for (;;) {
    struct pickle_word w;
    TRY(next(p, &w));
    if (w.kind == (batch ? 'e' : '(')) {
      batch = !batch;
    } else if (!batch && w.kind == 't') {
      return n == out->n ? NULL : STATUS(SHOAL_DATA_LOSS, "it has fewer objects than its shape");
    } else {
      TRY(put(p, &w, n++, out));
      if (!batch) TRY(expect(p, "a"));
    }
  }
}

static shoal_status read_array(struct pickle *p, const struct shape *shape, struct tensor *out) {
  const unsigned char *head;
  if (!take(p, 2, &head)) return cut_short();
  if (head[0] != 0x80 || head[1] < 3 || head[1] > 5) return no_strings();
  TRY(expect_global(p, "numpy.core.multiarray\n_reconstruct", "numpy._core.multiarray\n_reconstruct"));
  TRY(expect_global(p, "numpy\nndarray", "numpy\nndarray"));
  TRY(expect(p, "i1B3R(i"));
  TRY(expect_shape(p, shape));
  TRY(expect_global(p, "numpy\ndtype", "numpy\ndtype"));
  TRY(expect(p, "Tii3R(iTNNNiiitbi]"));
  TRY(read_elements(p, out));
  return expect(p, "b.");
}

shoal_status npy_objects_read(const char *data, size_t size, const struct shape *shape, struct tensor *out) {
  struct pickle p = {.at = (const unsigned char *)data, .left = size};
  int64_t n;
  TRY(shape_elements(shape, &n));
  if ((uint64_t)n > size) return cut_short(); /* each takes a byte and more */
  TRY(tensor_new(out, SHOAL_STRING, shape));
  shoal_status s = read_array(&p, shape, out);
  if (s) tensor_release(out);
  vec_release(&p.memo);
  return s;
}

/* ---- writing ---- */

static void add_number(struct text *t, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) text_addc(t, (char)(v >> (8 * i)));
}

static void add_dimension(struct text *t, int64_t n) {
  bool fits = n <= INT32_MAX;
  text_adds(t, fits ? "J" : "\x8a\x08");
  add_number(t, (uint64_t)n, fits ? 4 : 8);
}

static void add_shape(struct text *out, const struct tensor *t) {
  text_adds(out, t->rank > 3 ? "(" : "");
  for (int i = 0; i < t->rank; i++) add_dimension(out, t->dims[i]);
  text_adds(out, t->rank > 3 ? "t" : (const char *[]){")", "\x85", "\x86", "\x87"}[t->rank]);
}

static void add_state(struct text *out, const struct tensor *t) {
  static const char array[] =
      "\x80\x03"
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
      "C\1b\x87R(K\1",
                    type[] =
                        "cnumpy\ndtype\nX\2\0\0\0O8\x89\x88\x87R(K\3X\1\0\0\0|NNNJ\xff\xff\xff\xff"
                        "J\xff\xff\xff\xffK?tb\x89](";
  text_add(out, array, sizeof array - 1);
  add_shape(out, t);
  text_add(out, type, sizeof type - 1);
}

static shoal_status add_bytes(struct file_writer *w, const struct str *s) {
  struct text head = {0};
  int bytes = s->size <= UINT8_MAX ? 1 : s->size <= UINT32_MAX ? 4 : 8;
  text_addc(&head, bytes == 1 ? 'C' : bytes == 4 ? 'B' : (char)0x8E);
  add_number(&head, s->size, bytes);
  shoal_status e = file_writer_add(w, head.at, head.n);
  text_release(&head);
  return e ? e : file_writer_add(w, str_data(s), s->size);
}

shoal_status npy_objects_write(struct file_writer *w, const struct tensor *t) {
  struct text state = {0};
  add_state(&state, t);
  shoal_status s = file_writer_add(w, state.at, state.n);
  text_release(&state);
  for (int64_t i = 0; i < t->n && !s; i++) s = add_bytes(w, &T_DATA(t, struct str)[i]);
  return s ? s : file_writer_add(w, "etb.", 4);
}

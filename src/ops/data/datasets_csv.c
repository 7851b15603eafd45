/* CSVDataset: records of comma-separated files as elements, one scalar for each column that is wanted.
 *
 * A record ends with "\n", "\r", "\r\n" or the file; a quoted field may hold any of these, and two quotes for one. A
 * record that cannot be read is still read to its end, so that whoever goes on after the error gets the next one: of
 * several mistakes the first is told. DecodeCSV (parsing_text.c) has other rules for what it is given, so the two share
 * no more than the conversion of a field. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/record.h"
#include "ops/data/dataset_state.h"
#include "ops/text/string_in.h"

typedef VEC(int64_t) column_list;

struct csv_dataset {
  struct dataset head;
  enum record_compression compression;
  char **files;
  int64_t n_files;
  bool header, quotes;
  char delim;
  struct text na;
  column_list select, exclude;
  struct tensor *defaults; /* [head.n] a scalar, or no element: the field is required */
};

struct csv_iter {
  struct data_iterator head;
  int64_t file; /* the next to open */
  int64_t line; /* that is read, from 1 */
  bool open;
  struct byte_stream in;
  struct text field; /* reused */
};

/* A record while it is read. */
struct row {
  struct tensor *out; /* NULL: the fields are not wanted (a header) */
  int n;
  bool over;
  shoal_status bad; /* the first mistake */
};

static const struct csv_dataset *csv_of(const struct csv_iter *it) { return (const struct csv_dataset *)it->head.of; }

static void mistake(struct row *r, shoal_status s) {
  if (r->bad) shoal_status_free(s);
  else r->bad = s;
}

/* The next character, which stays; -1 at the end of the file. */
static shoal_status peek(struct csv_iter *it, int *c) {
  TRY(byte_stream_fill(&it->in));
  *c = it->in.at < it->in.have ? (unsigned char)it->in.out[it->in.at] : -1;
  return NULL;
}

static shoal_status put_field(struct csv_iter *it, struct row *r) {
  const struct csv_dataset *d = csv_of(it);
  const struct text *f = &it->field;
  if (r->n >= d->head.n) return INVALID("Expect %d fields but have more in record", d->head.n);
  int i = r->n++;
  shoal_dtype type = d->head.types[i];
  const struct tensor *dflt = &d->defaults[i];
  bool missing = !f->n || (f->n == d->na.n && !memcmp(f->at, d->na.at, f->n));
  TRY(tensor_new_scalar(&r->out[i], type));
  if (missing) {
    if (dflt->n != 1) return INVALID("Field %d is required but missing in record!", i);
    elements_copy(type, r->out[i].data, dflt->data, 1);
  } else if (type == SHOAL_STRING) {
    if (!str_try_set(r->out[i].data, f->at, f->n)) return NO_MEMORY(f->n, "a string");
  } else if (!string_to_number(f->at, f->n, type, r->out[i].data, 0)) {
    return INVALID("Field %d in record is not a valid %s: %.*s", i, dtype_tf_name(type), (int)MIN(f->n, (size_t)1024),
                   f->at);
  }
  return NULL;
}

/* Adds a character to a field that is wanted, until there is no memory for it. */
static void keep(struct csv_iter *it, struct row *r, int c, bool *wanted) {
  if (!*wanted || text_try_add(&it->field, &(char){(char)c}, 1)) return;
  *wanted = false;
  mistake(r, NO_MEMORY(it->field.n, "a field"));
}

/* c ended a field: is it the record's last? */
static shoal_status end_field(struct csv_iter *it, struct row *r, int c) {
  r->over = c != (unsigned char)csv_of(it)->delim;
  it->line += c == '\n' || c == '\r';
  if (c >= 0) it->in.at++;
  if (c != '\r') return NULL;
  TRY(peek(it, &c));
  if (c == '\n') it->in.at++;
  return NULL;
}

static bool ends_field(const struct csv_dataset *d, int c) {
  return c < 0 || c == (unsigned char)d->delim || c == '\n' || c == '\r';
}

static shoal_status plain_field(struct csv_iter *it, struct row *r, bool wanted) {
  const struct csv_dataset *d = csv_of(it);
  for (int c;;) {
    TRY(peek(it, &c));
    if (ends_field(d, c)) {
      if (wanted) mistake(r, put_field(it, r));
      return end_field(it, r, c);
    }
    if (d->quotes && c == '"') mistake(r, INVALID("Unquoted fields cannot have quotes inside"));
    keep(it, r, c, &wanted);
    it->in.at++;
  }
}

static shoal_status quoted_field(struct csv_iter *it, struct row *r, bool wanted) {
  const struct csv_dataset *d = csv_of(it);
  it->in.at++;
  for (int c;;) {
    TRY(peek(it, &c));
    if (c < 0) {
      r->over = true;
      mistake(r, INVALID("Reached end of file without closing quoted field in record"));
      return NULL;
    }
    it->in.at++;
    if (c == '"') {
      TRY(peek(it, &c));
      if (ends_field(d, c)) {
        if (wanted) mistake(r, put_field(it, r));
        return end_field(it, r, c);
      }
      it->in.at++;
      if (c != '"') {
        wanted = false;
        mistake(r, INVALID("Quote inside a string has to be escaped by another quote"));
      }
    }
    it->line += c == '\n';
    keep(it, r, c, &wanted);
  }
}

static bool is_next(const column_list *l, size_t at, int64_t column) { return at < l->n && l->at[at] == column; }

/* One record; *end when the file has no more. */
static shoal_status read_record(struct csv_iter *it, struct row *r, bool *end) {
  const struct csv_dataset *d = csv_of(it);
  size_t selected = 0, excluded = 0;
  int c;
  TRY(peek(it, &c));
  *end = c < 0;
  for (int64_t column = 0; !*end && !r->over; column++) {
    bool left_out = is_next(&d->exclude, excluded, column);
    bool wanted = d->select.n ? is_next(&d->select, selected, column) : !left_out;
    selected += wanted;
    excluded += left_out;
    vec_clear(&it->field);
    TRY(peek(it, &c));
    TRY(d->quotes && c == '"' ? quoted_field(it, r, wanted && r->out) : plain_field(it, r, wanted && r->out));
  }
  return NULL;
}

static void close_file(struct csv_iter *it) {
  if (it->open) byte_stream_close(&it->in);
  it->open = false;
}

static shoal_status open_file(struct csv_iter *it) {
  const struct csv_dataset *d = csv_of(it);
  TRY(byte_stream_open(&it->in, d->files[it->file], d->compression));
  it->file++;
  it->open = true;
  it->line = 1;
  if (!d->header) return NULL;
  struct row r = {0};
  bool end = false;
  shoal_status s = read_record(it, &r, &end);
  if (!s && !r.bad && !end) return NULL;
  shoal_status_free(s);
  shoal_status_free(r.bad);
  return INVALID("Can't read header of file %s", d->files[it->file - 1]);
}

static shoal_status csv_next(struct data_iterator *self, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct csv_iter *it = (struct csv_iter *)self;
  const struct csv_dataset *d = csv_of(it);
  for (;;) {
    if (!it->open) {
      *end = it->file >= d->n_files;
      if (*end) return NULL;
      TRY(open_file(it));
    }
    struct row r = {.out = out};
    bool over = false;
    int64_t line = it->line;
    shoal_status s = read_record(it, &r, &over);
    if (s) shoal_status_free(r.bad);
    else if (!r.bad && !over && r.n != d->head.n)
      r.bad = INVALID("Expect %d fields but have %d in record", d->head.n, r.n);
    if (!s && r.bad) s = status_prefix(r.bad, "%s, line %" PRId64 ": ", d->files[it->file - 1], line);
    if (s) tensors_release(out, d->head.n);
    if (s) return s;
    if (!over) return NULL;
    close_file(it);
  }
}

static void csv_iter_free(struct data_iterator *self) {
  struct csv_iter *it = (struct csv_iter *)self;
  close_file(it);
  text_release(&it->field);
}

static const struct data_iterator_type csv_iter_type = {sizeof(struct csv_iter), csv_next, csv_iter_free};

static shoal_status csv_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&csv_iter_type, d);
  return NULL;
}

static int64_t csv_size(const struct dataset *d) { return SIZE_UNKNOWN; }

static void csv_free(struct dataset *head) {
  struct csv_dataset *d = (struct csv_dataset *)head;
  for (int64_t i = 0; i < d->n_files; i++) free(d->files[i]);
  free(d->files);
  text_release(&d->na);
  vec_release(&d->select);
  vec_release(&d->exclude);
  tensors_release(d->defaults, head->n);
  free(d->defaults);
}

static const struct dataset_type csv_type = {"CSV", csv_iterate, csv_size, csv_free};

/* ---- the op ---- */

/* Columns by number, rising. */
static shoal_status read_columns(const struct tensor *t, const char *name, column_list *out) {
  if (t->rank != 1) return INVALID("`%s` must be a vector.", name);
  for (int64_t i = 0; i < t->n; i++) {
    int64_t c = T_DATA(t, const int64_t)[i];
    if (i && c <= vec_last(out)) return INVALID("%s should be strictly increasing indices", name);
    if (c < 0) return INVALID("%s should be non-negative indices", name);
    vec_push(out, c);
  }
  return NULL;
}

static shoal_status read_defaults(const struct kernel_ctx *ctx, int n, struct tensor *out) {
  for (int i = 0; i < n; i++) {
    const struct tensor *t = ctx_in(ctx, 8 + i);
    if (t->rank > 1) return INVALID("Each record default should be at most rank 1");
    if (t->n > 1) return INVALID("There should only be 1 default per field but field %d has %" PRId64, i, t->n);
    tensor_ref(&out[i], t);
  }
  return NULL;
}

static shoal_status read_options(const struct kernel_ctx *ctx, struct csv_dataset *d) {
  const struct tensor *files = ctx_in(ctx, 0), *delim = ctx_in(ctx, 4), *na = ctx_in(ctx, 6);
  char *compression;
  int64_t buffer;
  if (files->rank > 1) return INVALID("`filenames` must be a scalar or a vector.");
  TRY(dataset_in_string(ctx, 1, "compression_type", &compression));
  shoal_status s = record_compression_parse(compression, &d->compression);
  free(compression);
  TRY(s);
  TRY(read_defaults(ctx, d->head.n, d->defaults));
  TRY(dataset_in_int(ctx, 2, "buffer_size", &buffer));
  if (buffer <= 0) return INVALID("buffer_size should be positive");
  TRY(dataset_in_bool(ctx, 3, "header", &d->header));
  if (delim->rank || string_at(delim, 0)->size != 1) return INVALID("field_delim should be only 1 char");
  d->delim = str_data(string_at(delim, 0))[0];
  TRY(dataset_in_bool(ctx, 5, "use_quote_delim", &d->quotes));
  if (na->rank) return INVALID("na_value must be a scalar");
  text_add(&d->na, str_data(string_at(na, 0)), string_at(na, 0)->size);
  TRY(read_columns(ctx_in(ctx, 7), "select_cols", &d->select));
  if (d->select.n && d->select.n != (size_t)d->head.n) return INVALID("select_cols should match output size");
  if (ctx->kernel->n_in > 8 + d->head.n) TRY(read_columns(ctx_in(ctx, 8 + d->head.n), "exclude_cols", &d->exclude));
  if (d->select.n && d->exclude.n) return INVALID("Either select_cols or exclude_cols should be empty");
  d->files = mem_zalloc((size_t)files->n, sizeof *d->files);
  for (; d->n_files < files->n; d->n_files++) d->files[d->n_files] = string_dup(files, d->n_files);
  return NULL;
}

static shoal_status csv_run(struct kernel_ctx *ctx) {
  const struct dataset_state *s = ctx->state;
  if (ctx->kernel->n_in < 8 + s->spec.n) return INVALID("Expected %d record defaults", s->spec.n);
  struct csv_dataset *d =
      (struct csv_dataset *)dataset_new(sizeof *d, &csv_type, s->spec.n, s->spec.types, s->spec.shapes, NULL, 0);
  d->defaults = mem_zalloc((size_t)s->spec.n, sizeof *d->defaults);
  shoal_status bad = read_options(ctx, d);
  if (bad) dataset_unref(&d->head);
  TRY(bad);
  return dataset_give(ctx, &d->head);
}

#define IN                                                                                               \
  "filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: string, " \
  "use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types"
#define ATTRS "output_types: list({float, double, int32, int64, string}) >= 1; output_shapes: list(shape) >= 1"

static const struct op_row rows[] = {
    DATASET_ROW("CSVDataset", IN, ATTRS, OP_STATEFUL, DATASET_KERNELS(.run = csv_run)),
    DATASET_ROW("ExperimentalCSVDataset", IN, ATTRS, OP_STATEFUL, DATASET_KERNELS(.run = csv_run)),
    DATASET_ROW("CSVDatasetV2", IN ", exclude_cols: int64", ATTRS, OP_STATEFUL, DATASET_KERNELS(.run = csv_run)),
};
OP_FAMILY(datasets_csv, rows);

/* Comma-separated text from anyone: as one record of DecodeCSV, and as the file of a CSVDataset that is read to its
 * end, errors and all. The first byte says whether quotes count, and how a file is packed. */
#include <shoal/shoal.h>
#include <string.h>

#include "fuzz_file.h"

enum { COLUMNS = 4, MOST_ROWS = 200 };

struct reader {
  shoal_graph *graph;
  shoal_session *session;
  shoal_out record, fields[COLUMNS], begin, next[COLUMNS];
};

static const shoal_dtype types[COLUMNS] = {SHOAL_INT32, SHOAL_FLOAT32, SHOAL_STRING, SHOAL_INT64};

/* The last column is required: its default is empty. */
static void put_defaults(shoal_graph *g, shoal_out *d) {
  d[0] = shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){7});
  d[1] = shoal_constant_floats(g, SHOAL_SHAPE(1), (float[]){0.5f});
  d[2] = shoal_constant_strings(g, (const char *const[]){"none"}, 1);
  shoal_tensor *empty;
  if (shoal_tensor_new(SHOAL_INT64, 1, (int64_t[]){0}, &empty)) abort();
  d[3] = shoal_constant(g, empty);
  shoal_tensor_unref(empty);
}

static void add_decoder(shoal_graph *g, const shoal_out *defaults, bool quotes, struct reader *r) {
  r->record = shoal_placeholder(g, SHOAL_STRING, SHOAL_SHAPE(1), "record");
  shoal_builder *b = shoal_build(g, "DecodeCSV", NULL);
  shoal_build_input(b, r->record);
  shoal_build_inputs(b, defaults, COLUMNS);
  shoal_build_bool(b, "use_quote_delim", quotes);
  shoal_op *n = shoal_build_end(b);
  for (int i = 0; i < COLUMNS; i++) r->fields[i] = (shoal_out){n, i};
}

static void add_dataset(shoal_graph *g, const shoal_out *defaults, bool quotes, const char *packing, struct reader *r) {
  const shoal_dims shapes[COLUMNS] = {SHOAL_SCALAR, SHOAL_SCALAR, SHOAL_SCALAR, SHOAL_SCALAR};
  int64_t none = 0;
  shoal_tensor *empty;
  if (shoal_tensor_new(SHOAL_INT64, 1, &none, &empty)) abort();
  shoal_out all_columns = shoal_constant(g, empty);
  shoal_tensor_unref(empty);
  shoal_out dataset = shoal_csv_dataset(
      g, shoal_constant_strings(g, (const char *const[]){fuzz_path("csv_fuzz")}, 1), shoal_constant_string(g, packing),
      shoal_constant_int64(g, 4096), shoal_constant_bool(g, false), shoal_constant_string(g, ","),
      shoal_constant_bool(g, quotes), shoal_constant_string(g, "NA"), all_columns, defaults, COLUMNS, shapes, COLUMNS);
  shoal_out iterator = shoal_iterator_v2(g, "", "", types, COLUMNS, shapes, COLUMNS);
  r->begin.node = shoal_make_iterator(g, dataset, iterator);
  shoal_op *next = shoal_iterator_get_next(g, iterator, types, COLUMNS, shapes, COLUMNS);
  for (int i = 0; i < COLUMNS; i++) r->next[i] = (shoal_out){next, i};
}

static void open_reader(struct reader *r, bool quotes, const char *packing) {
  shoal_graph *g = r->graph = shoal_graph_new();
  shoal_out defaults[COLUMNS];
  put_defaults(g, defaults);
  add_decoder(g, defaults, quotes, r);
  add_dataset(g, defaults, quotes, packing, r);
  if (shoal_report(g) ||
      shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .inter_op_threads = 1), &r->session))
    abort();
}

static shoal_status step(const struct reader *r, shoal_feeds feeds, const shoal_out *from) {
  shoal_tensor *out[COLUMNS] = {0};
  shoal_status s = shoal_session_step(
      r->session, feeds, SHOAL_FETCH(from[0], &out[0], from[1], &out[1], from[2], &out[2], from[3], &out[3]), NULL);
  for (int i = 0; i < COLUMNS; i++) shoal_tensor_unref(out[i]);
  return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct reader readers[4];
  if (!size) return 0;
  struct reader *r = &readers[data[0] & 3];
  if (!r->session) open_reader(r, data[0] & 1, data[0] & 2 ? "GZIP" : "");
  shoal_tensor *record;
  if (shoal_tensor_new(SHOAL_STRING, 1, (int64_t[]){1}, &record)) abort();
  shoal_status s = shoal_tensor_set_string(record, 0, (const char *)data + 1, size - 1);
  if (!s) s = step(r, SHOAL_FEED(r->record, record), r->fields);
  shoal_status_free(s);
  shoal_tensor_unref(record);

  fuzz_put(fuzz_path("csv_fuzz"), data + 1, size - 1);
  s = shoal_session_step(r->session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, r->begin.node);
  for (int i = 0; !s && i < MOST_ROWS; i++) {
    s = step(r, SHOAL_NO_FEEDS, r->next);
    if (shoal_status_code(s) != SHOAL_INVALID_ARGUMENT) continue;
    shoal_status_free(s); /* the next record can still be read */
    s = NULL;
  }
  shoal_status_free(s);
  unlink(fuzz_path("csv_fuzz"));
  return 0;
}

/* IDX files as datasets: records of fixed length behind a header, decoded row by row. The header is read while the
 * graph is built, since shapes and types are in it; the rows never are in memory as a whole, and TensorFlow's servers
 * read them as well. */
#include "data/idx.h"

#include "feed/element.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

/* Strings of one row each. */
static shoal_out rows_of(shoal_graph *g, const char *path, const struct idx_header *h, int64_t bytes) {
  struct build b = dataset_begin(g, "FixedLengthRecordDatasetV2", shoal_constant_string(g, path));
  build_in(&b, build_const_int(g, SHOAL_INT64, 4 + 4 * h->shape.rank));
  build_in(&b, build_const_int(g, SHOAL_INT64, bytes));
  build_in(&b, build_const_int(g, SHOAL_INT64, 0));         /* footer */
  build_in(&b, build_const_int(g, SHOAL_INT64, 256 << 10)); /* TensorFlow's buffer */
  build_in(&b, shoal_constant_string(g, h->gzipped ? "GZIP" : ""));
  struct build all = dataset_begin(g, "AssertCardinalityDataset", build_end_out(&b));
  build_in(&all, build_const_int(g, SHOAL_INT64, h->shape.dims[0])); /* a file that is cut short is a mistake */
  return dataset_end(&all, &(struct feed_element){.n = 1, .types = {SHOAL_STRING}});
}

static shoal_out decoded(shoal_graph *g, shoal_out d, const struct idx_header *h) {
  shoal_out bytes;
  struct shape row = shape_row(&h->shape);
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &bytes, 1);
  struct build raw = build_begin(f, "DecodeRaw", NULL);
  build_in(&raw, bytes);
  build_attr_type(&raw, "out_type", h->dtype);
  build_attr_bool(&raw, "little_endian", false);
  shoal_out shape = build_const_ints(f, SHOAL_INT32, row.dims, row.rank);
  shoal_function_output(f, build_op2(f, "Reshape", build_end_out(&raw), shape), "row");
  return shoal_dataset_map(g, d, shoal_function_end(f), NULL);
}

static shoal_status read_header(const char *caller, const char *path, struct idx_header *h, int64_t *bytes) {
  shoal_status s = idx_read_header(path, h);
  if (s) return status_prefix(s, "an IDX file cannot be read: ");
  struct shape row = shape_row(&h->shape);
  int64_t n;
  size_t size;
  TRY(tensor_bytes_for(h->dtype, &row, &n, &size));
  *bytes = (int64_t)size;
  return size ? NULL : INVALID("%s: rows of %s are empty", caller, path);
}

shoal_out shoal_dataset_idx(shoal_graph *g, const char *const *paths, int n) {
  shoal_out parts[SHOAL_MAX_COMPONENTS];
  GRAPH_GIVEN_NAMES(g, paths, n, none);
  if (n < 1 || n > SHOAL_MAX_COMPONENTS) GRAPH_TRY(g, INVALID("%s: %d files", __func__, n), none);
  int64_t rows = 0;
  for (int i = 0; i < n; i++) {
    struct idx_header h;
    int64_t bytes = 0;
    GRAPH_TRY(g, read_header(__func__, paths[i], &h, &bytes), none);
    if (i && h.shape.dims[0] != rows)
      GRAPH_TRY(g,
                INVALID("%s: %s has %lld rows, and %s %lld", __func__, paths[0], (long long)rows, paths[i],
                        (long long)h.shape.dims[0]),
                none);
    rows = h.shape.dims[0];
    parts[i] = decoded(g, rows_of(g, paths[i], &h, bytes), &h);
  }
  return n == 1 ? parts[0] : shoal_dataset_zip(g, parts, n);
}

/* A checkpoint of TensorFlow's first format from anyone: what is listed can be read, whole and by its slices, or there
 * is an error by name. */
#include "checkpoint/slices_v1.h"
#include "fuzz_file.h"

enum { MOST = 1 << 22 }; /* elements of a tensor that is read here */

static void read_slice(const struct v1_reader *r, const struct v1_tensor *v, const struct slice *want) {
  struct tensor t;
  shoal_status s = v1_read(r, v, want, &t);
  if (!s) tensor_release(&t);
  shoal_status_free(s);
}

static void read_tensor(const struct v1_reader *r, const struct v1_tensor *v) {
  int64_t n = 0;
  shoal_status s = shape_elements(&v->shape, &n);
  shoal_status_free(s);
  if (s || n > MOST) return;
  struct slice whole = slice_whole(v->shape.rank);
  read_slice(r, v, &whole);
  for (size_t i = 0; i < v->slices.n && i < 4; i++) read_slice(r, v, &v->slices.at[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_path("slices_v1_fuzz");
  fuzz_put(path, data, size);
  struct v1_reader r;
  shoal_status s = v1_open(&r, path);
  void *v;
  for (size_t i = 0; !s && strmap_next(&r.by_name, &i, NULL, &v);) read_tensor(&r, v);
  if (!s) v1_close(&r);
  shoal_status_free(s);
  unlink(path);
  return 0;
}

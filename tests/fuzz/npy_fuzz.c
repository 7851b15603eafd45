/* NumPy's arrays and archives of them from anyone: a tensor, or an error by name. The first byte: 0 for an array, else
 * an archive. */
#include "data/npy.h"

#include <stdint.h>

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  const char *path = fuzz_path("npy_fuzz");
  struct tensor t;
  shoal_status s;
  if (*data) {
    fuzz_put(path, data + 1, size - 1);
    s = npz_read(path, NULL, &t);
    unlink(path);
  } else {
    s = npy_decode((const char *)data + 1, size - 1, &t);
  }
  if (!s) tensor_release(&t);
  shoal_status_free(s);
  return 0;
}

/* IDX files from anyone, plain or gzipped: a tensor, or an error by name. */
#include "data/idx.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_path("idx_fuzz");
  fuzz_put(path, data, size);
  struct tensor t;
  shoal_status s = idx_read(path, &t);
  if (!s) tensor_release(&t);
  shoal_status_free(s);
  unlink(path);
  return 0;
}

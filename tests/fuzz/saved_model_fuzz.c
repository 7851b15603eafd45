/* A SavedModel's file from anyone, binary or text: it is read or refused, and a graph of it is found by its tags. */
#include <stdlib.h>
#include <sys/stat.h>

#include "fuzz_file.h"
#include "saved_model/meta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char dir[80], binary[96], text[96];
  if (!dir[0]) {
    snprintf(dir, sizeof dir, "%s", fuzz_path("saved_model_fuzz"));
    snprintf(binary, sizeof binary, "%s/saved_model.pb", dir);
    snprintf(text, sizeof text, "%s/saved_model.pbtxt", dir);
    mkdir(dir, 0700);
  }
  bool as_text = size && data[0] == 't';
  unlink(as_text ? binary : text);
  fuzz_put(as_text ? text : binary, data + as_text, size - as_text);
  struct meta_file f;
  const struct meta_model *m;
  shoal_status s = meta_file_read(&f, dir);
  if (!s) s = meta_file_find(&f, dir, "serve", &m);
  if (!s) meta_signature(m, "serving_default");
  shoal_status_free(s);
  meta_file_release(&f);
  return 0;
}

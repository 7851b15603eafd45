/* Examples and sequence examples from anyone: what the scan finds can be counted and copied. */
#include <stdlib.h>

#include "data/example.h"

enum { COLUMNS = 4, MOST = 1 << 20 };

static void read_feature(const struct feature_slot *slot) {
  struct feature f;
  if (!slot->data || !feature_open(slot, &f) || !f.dtype) return;
  int64_t n = feature_count(&f);
  if (n <= 0 || n > MOST) return;
  struct tensor t;
  shoal_status s = tensor_new_dims(&t, f.dtype, 1, &n);
  if (!s) {
    feature_copy(&f, t.data);
    tensor_release(&t);
  }
  shoal_status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct feature_index want;
  if (!want.columns.n) {
    static const char *const keys[COLUMNS] = {"a", "b", "c", ""};
    for (size_t i = 0; i < COLUMNS; i++) feature_index_add(&want, keys[i], i);
  }
  struct feature_slot slots[COLUMNS] = {0}, context[COLUMNS] = {0}, lists[COLUMNS] = {0}, step;
  if (example_scan(data, size, &want, slots))
    for (int i = 0; i < COLUMNS; i++) read_feature(&slots[i]);
  if (!sequence_example_scan(data, size, &want, context, &want, lists)) return 0;
  for (int i = 0; i < COLUMNS; i++) {
    read_feature(&context[i]);
    if (!lists[i].data) continue;
    struct feature_walk w = feature_list_walk(&lists[i]);
    while (feature_list_next(&w, &step) == WIRE_FIELD) read_feature(&step);
  }
  return 0;
}

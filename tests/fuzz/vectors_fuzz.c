/* Files of word vectors from anyone, as text and binary, and files of words and counts: vectors, or an error by name. */
#include <string.h>

#include "fuzz_file.h"
#include "word2vec/vectors.h"
#include "word2vec/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const char *data, size_t size) {
  for (int format = VECTORS_GUESS; format <= VECTORS_BINARY; format++) {
    struct vectors v;
    shoal_status s = vectors_parse(&v, data, size, (enum vectors_format)format, "input");
    if (!s) {
      struct word_neighbor found[4];
      size_t first = 0;
      vectors_normalize(&v);
      vectors_near(&v, &first, (float[]){1}, 1, found, 4);
      vectors_release(&v);
    }
    shoal_status_free(s);
  }
}

static void read_words(const uint8_t *data, size_t size) {
  const char *path = fuzz_path("vectors_fuzz");
  struct word_vocabulary v;
  fuzz_put(path, data, size);
  shoal_status s = vocabulary_read(&v, path, 1);
  if (!s) vocabulary_release(&v);
  shoal_status_free(s);
  unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *copy = malloc(size + 1);
  if (!copy) return 0;
  if (size) memcpy(copy, data, size);
  copy[size] = 0;
  parse(copy, size);
  read_words(data, size);
  free(copy);
  return 0;
}

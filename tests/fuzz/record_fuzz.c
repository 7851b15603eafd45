/* Files of records from anyone: the first byte says how they are packed. Reading goes on behind damaged records, always
 * forwards, and ends. */
#include "data/record.h"
#include "fuzz_file.h"
#include "tensor/strings.h"

enum { MOST = 1 << 22 }; /* bytes that a short file may unpack to here */

static void read_all(struct record_reader *r) {
  struct text record = {0};
  uint64_t before = 0, skipped;
  while (r->offset < MOST) {
    shoal_status s = record_read(r, &record);
    bool more = !s || (shoal_status_code(s) == SHOAL_DATA_LOSS && record_skip(r, &skipped));
    shoal_status_free(s);
    if (!more) break;
    if (r->offset <= before && before) abort();
    before = r->offset;
  }
  counted_text_release(&record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  const char *path = fuzz_path("record_fuzz");
  fuzz_put(path, data + 1, size - 1);
  enum record_compression c;
  struct record_reader r;
  shoal_status s = data[0] & 4 ? record_compression_guess(path, &c) : NULL;
  if (!(data[0] & 4)) c = (enum record_compression)(data[0] & 3);
  if (!s) s = record_reader_open(&r, path, c);
  if (!s) {
    read_all(&r);
    record_reader_close(&r);
  }
  shoal_status_free(s);
  unlink(path);
  return 0;
}

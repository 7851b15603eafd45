/* IDX files. The format, all numbers big-endian:
 *
 *   offset  bytes
 *   0       2      zero
 *   2       1      element type: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float, 0E double
 *   3       1      rank, here 1 to SHOAL_MAX_RANK
 *   4       4 each dimensions, unsigned
 *   ...            elements, row by row, and nothing after them
 *
 * zlib reads plain files through the same calls, so a name with or without .gz is all the same. The sizes a header
 * claims are believed only as far as the file could hold them: deflate packs at best 1032 bytes into one. */
#include "data/idx.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "data/byte_order.h"
#include "shoal/data.h"

enum { DEFLATE_MAX_RATIO = 1032 };

static shoal_status read_exactly(gzFile f, const char *path, void *to, size_t n, const char *what) {
  char *at = to;
  for (size_t done = 0; done < n;) {
    unsigned piece = n - done > (1u << 30) ? 1u << 30 : (unsigned)(n - done);
    int got = gzread(f, at + done, piece);
    if (got < 0) {
      int code;
      return STATUS(SHOAL_DATA_LOSS, "%s: %s", path, gzerror(f, &code));
    }
    if (got == 0)
      return STATUS(SHOAL_DATA_LOSS, "%s: cut short: %zu of %zu bytes of the %s are there", path, done, n, what);
    done += (size_t)got;
  }
  return NULL;
}

static shoal_dtype dtype_of(unsigned char code) {
  switch (code) {
    case 0x08: return SHOAL_UINT8;
    case 0x09: return SHOAL_INT8;
    case 0x0B: return SHOAL_INT16;
    case 0x0C: return SHOAL_INT32;
    case 0x0D: return SHOAL_FLOAT32;
    case 0x0E: return SHOAL_FLOAT64;
    default: return SHOAL_DT_INVALID;
  }
}

static shoal_status read_header(gzFile f, const char *path, shoal_dtype *dtype, struct shape *shape) {
  unsigned char head[4], dim[4];
  TRY(read_exactly(f, path, head, sizeof head, "header"));
  *dtype = dtype_of(head[2]);
  if (head[0] || head[1] || !*dtype)
    return INVALID("%s: not an IDX file: it starts with %02x %02x %02x %02x", path, head[0], head[1], head[2], head[3]);
  if (head[3] < 1 || head[3] > SHOAL_MAX_RANK)
    return INVALID("%s: rank %d; 1 to %d are possible", path, head[3], SHOAL_MAX_RANK);
  shape->rank = head[3];
  for (int i = 0; i < shape->rank; i++) {
    TRY(read_exactly(f, path, dim, sizeof dim, "header"));
    shape->dims[i] = (int64_t)dim[0] << 24 | dim[1] << 16 | dim[2] << 8 | dim[3];
  }
  return NULL;
}

static shoal_status read_body(gzFile f, const char *path, int64_t file_bytes, struct tensor *out) {
  shoal_dtype dtype;
  struct shape shape;
  TRY(read_header(f, path, &dtype, &shape));
  int64_t n;
  size_t bytes;
  TRY(tensor_bytes_for(dtype, &shape, &n, &bytes));
  if (bytes > (size_t)file_bytes * DEFLATE_MAX_RATIO)
    return STATUS(SHOAL_DATA_LOSS,
                  "%s: the header announces %zu bytes of elements, more than a file of %lld bytes holds", path, bytes,
                  (long long)file_bytes);
  TRY(tensor_new(out, dtype, &shape));
  shoal_status s = read_exactly(f, path, out->data, bytes, "elements");
  char more;
  if (!s && gzread(f, &more, 1) == 1)
    s = STATUS(SHOAL_DATA_LOSS, "%s: there is more than the %zu bytes of elements that the header announces", path,
               bytes);
  int code;
  if (!s && (gzerror(f, &code), code < 0)) s = STATUS(SHOAL_DATA_LOSS, "%s: %s", path, gzerror(f, &code));
  if (s) {
    tensor_release(out);
    return s;
  }
  if (dtype_size(dtype) > 1 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) swap_bytes(out->data, n, dtype_size(dtype));
  return NULL;
}

static shoal_status open_file(const char *path, int64_t *size, gzFile *f) {
  TRY(file_size(path, size));
  if (file_is_directory(path)) return INVALID("%s: not a file", path);
  *f = gzopen(path, "rb");
  if (!*f) return ERRNO_STATUS(errno ? errno : ENOMEM, "%s", path);
  gzbuffer(*f, 1 << 17);
  return NULL;
}

shoal_status idx_read_header(const char *path, struct idx_header *out) {
  int64_t size;
  gzFile f;
  TRY(open_file(path, &size, &f));
  shoal_status s = read_header(f, path, &out->dtype, &out->shape);
  out->gzipped = !gzdirect(f);
  gzclose(f);
  return s;
}

shoal_status idx_read(const char *path, struct tensor *out) {
  int64_t size;
  gzFile f;
  TRY(open_file(path, &size, &f));
  shoal_status s = read_body(f, path, size, out);
  gzclose(f);
  return s;
}

shoal_status shoal_read_idx(const char *path, shoal_tensor **out) {
  if (!path) return INVALID("an IDX file cannot be read: its path is NULL");
  struct tensor t;
  shoal_status s = idx_read(path, &t);
  if (s) return status_prefix(s, "an IDX file cannot be read: ");
  *out = tensor_handle_take(&t);
  return NULL;
}

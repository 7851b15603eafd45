/* NumPy's archives (.npz): a ZIP file with an array in each entry; see npy.h.
 *
 *   end      u32 "PK\5\6", 6 bytes, u16 entries, u32 size, u32 offset of the directory, u16 comment's length
 *   entry    u32 "PK\1\2", u16 method at 10, u32 CRC at 16, packed size at 20, size at 24,
 *            u16 lengths of name, extra and comment at 28, 30 and 32,
 *            u32 offset of the entry's own header at 42, name from 46 on
 *   header   u32 "PK\3\4", u16 lengths of name and extra at 26 and 28, both from 30 on, then the packed bytes
 *
 * The directory at the end is believed within the file's bounds; ZIP64's numbers and encryption are refused. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/machine.h"
#include "data/npy.h"

enum { END = 22, ENTRY = 46, HEADER = 30, STORED = 0, DEFLATED = 8, MOST_COMMENT = 65535 };
enum { MOST_DEFLATED = 1032 }; /* bytes that one packed byte can stand for: 258 of two bits each */

struct zip_entry {
  const char *name;
  size_t name_n;
  unsigned method;
  uint32_t crc, packed, size, offset;
};

struct zip_file {
  const uint8_t *at;
  size_t n;
};

static unsigned u16(const uint8_t *p) { return (unsigned)p[0] | (unsigned)p[1] << 8; }
static uint32_t u32(const uint8_t *p) { return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16; }
static bool is_mark(const uint8_t *p, char a, char b) { return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b; }

static shoal_status damaged(void) { return STATUS(SHOAL_DATA_LOSS, "the archive is damaged, or is none"); }

/* Where the directory begins, and how many entries it has. */
static shoal_status find_directory(const struct zip_file *z, size_t *at, unsigned *n) {
  if (z->n < END) return damaged();
  for (size_t back = END; back <= z->n && back <= END + MOST_COMMENT; back++) {
    const uint8_t *p = z->at + z->n - back;
    if (!is_mark(p, 5, 6)) continue;
    *n = u16(p + 10);
    *at = u32(p + 16);
    return *at <= z->n ? NULL : damaged();
  }
  return damaged();
}

static shoal_status read_entry(const struct zip_file *z, size_t *at, struct zip_entry *out) {
  const uint8_t *p = z->at + *at;
  if (z->n - *at < ENTRY || !is_mark(p, 1, 2)) return damaged();
  size_t name = u16(p + 28), more = (size_t)u16(p + 30) + u16(p + 32);
  if (z->n - *at - ENTRY < name + more) return damaged();
  if (u16(p + 8) & 1) return UNIMPLEMENTED("an archive that is encrypted");
  *out = (struct zip_entry){
      (const char *)p + ENTRY, name, u16(p + 10), u32(p + 16), u32(p + 20), u32(p + 24), u32(p + 42)};
  if (out->packed == UINT32_MAX || out->size == UINT32_MAX || out->offset == UINT32_MAX)
    return UNIMPLEMENTED("an array of 4 GB and more in an archive: save it as .npy");
  *at += ENTRY + name + more;
  return NULL;
}

static bool is_array(const struct zip_entry *e, const char *name) {
  size_t n = strlen(name);
  return e->name_n == n + 4 && !memcmp(e->name, name, n) && !memcmp(e->name + n, ".npy", 4);
}

/* The entry of that name; without one, the only one there is. */
static shoal_status find_entry(const struct zip_file *z, const char *name, struct zip_entry *out) {
  size_t at = 0;
  unsigned n = 0;
  bool found = false;
  struct text there = {0};
  shoal_status s = find_directory(z, &at, &n);
  for (unsigned i = 0; i < n && !s && !found; i++) {
    s = read_entry(z, &at, out);
    if (s) break;
    found = name ? is_array(out, name) : n == 1;
    text_adds(&there, there.n ? ", " : "");
    text_add_shown(&there, out->name, MIN(out->name_n, (size_t)100), false);
  }
  if (!s && !found && name) s = NOT_FOUND("there is no array '%s'; there are: %s", name, text_cstr(&there));
  if (!s && !found) s = INVALID("there are %u arrays: which one? FILE.npz[NAME]", n);
  text_release(&there);
  return s;
}

static bool inflate_entry(const uint8_t *from, const struct zip_entry *e, uint8_t *to) {
  z_stream z = {.next_in = (uint8_t *)(uintptr_t)from, .avail_in = e->packed, .next_out = to, .avail_out = e->size};
  if (inflateInit2(&z, -15) != Z_OK) return false;
  int code = inflate(&z, Z_FINISH);
  inflateEnd(&z);
  return code == Z_STREAM_END && z.total_out == e->size;
}

static shoal_status decode_entry(const struct zip_file *z, const struct zip_entry *e, struct tensor *out) {
  const uint8_t *p = z->at + e->offset;
  if (e->offset > z->n || z->n - e->offset < HEADER || !is_mark(p, 3, 4)) return damaged();
  size_t head = HEADER + (size_t)u16(p + 26) + u16(p + 28);
  if (z->n - e->offset < head || z->n - e->offset - head < e->packed) return damaged();
  p += head;
  if (e->method == STORED) {
    if (e->packed != e->size || crc32(0, p, e->size) != e->crc) return damaged();
    return npy_decode((const char *)p, e->size, out);
  }
  if (e->method != DEFLATED) return UNIMPLEMENTED("an archive packed by method %u", e->method);
  if (e->size / MOST_DEFLATED > e->packed) return damaged();
  uint8_t *plain = e->size <= machine_memory() / 2 ? mem_try_alloc((size_t)e->size + 1) : NULL;
  if (!plain) return NO_MEMORY(e->size, "an array of an archive");
  shoal_status s = inflate_entry(p, e, plain) && crc32(0, plain, e->size) == e->crc
                       ? npy_decode((const char *)plain, e->size, out)
                       : damaged();
  free(plain);
  return s;
}

shoal_status npz_read(const char *path, const char *name, struct tensor *out) {
  char *data;
  struct zip_entry e = {0};
  struct zip_file z;
  TRY(file_read(path, 0, &data, &z.n));
  z.at = (const uint8_t *)data;
  shoal_status s = find_entry(&z, name, &e);
  if (!s) s = decode_entry(&z, &e, out);
  free(data);
  return status_prefix(s, "%s: ", path);
}

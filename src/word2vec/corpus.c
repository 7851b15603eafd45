#include "word2vec/corpus.h"

#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

/* Small texts are cut, too, so that threads, and hosts between two meetings, have something to share; by size alone,
 * not by their number. */
enum { LEAST_CHUNK = 16 << 10, MOST_CHUNK = 128 << 10, PARTS = 64, BEYOND = CORPUS_WORD + 29 };

static bool blank(char ch) { return ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r' || !ch; }

/* Before it is opened, since to open a pipe is to wait for who writes to it. */
static shoal_status check_kind(const char *path) {
  struct stat st;
  if (stat(path, &st) || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return NULL; /* opening tells the rest */
  return INVALID("%s is a pipe or a device: a text is read several times, and in parts, so it must be a file", path);
}

/* A packed file has words, too: none that anybody wants. No text begins with these bytes. */
static shoal_status check_unpacked(const struct file_reader *r) {
  static const struct {
    const char *name, *bytes, *unpacks;
  } packings[] = {{"gzip", "\x1f\x8b", "zcat"}, {"xz", "\3757zXZ", "xzcat"}, {"zstd", "\x28\xb5\x2f\xfd", "zstdcat"}};
  char head[8] = {0};
  TRY(file_reader_get(r, 0, head, (size_t)MIN(r->size, (int64_t)sizeof head)));
  for (size_t i = 0; i < COUNT_OF(packings); i++)
    if (!memcmp(head, packings[i].bytes, strlen(packings[i].bytes)))
      return INVALID("%s is packed by %s, no text: unpack it first (%s)", r->path, packings[i].name,
                     packings[i].unpacks);
  return NULL;
}

static shoal_status add_file(struct corpus *c, const char *path) {
  struct corpus_file f = {0};
  TRY(check_kind(path));
  TRY(file_reader_open(&f.reader, path));
  vec_push(&c->files, f);
  c->bytes += f.reader.size;
  return check_unpacked(&f.reader);
}

shoal_status corpus_open(struct corpus *c, char *const *paths, int n) {
  *c = (struct corpus){0};
  shoal_status s = NULL;
  for (int i = 0; i < n && !s; i++) s = add_file(c, paths[i]);
  if (!s && !c->bytes)
    s = INVALID("%s%s: there is no text in it", n ? paths[0] : "no file", n > 1 ? " and others" : "");
  if (s) {
    corpus_close(c);
    return s;
  }
  c->chunk_bytes = MIN(MAX(c->bytes / PARTS, (int64_t)LEAST_CHUNK), (int64_t)MOST_CHUNK);
  for (size_t i = 0; i < c->files.n; i++) {
    c->files.at[i].first = c->chunks;
    c->chunks += (c->files.at[i].reader.size + c->chunk_bytes - 1) / c->chunk_bytes;
  }
  return NULL;
}

void corpus_close(struct corpus *c) {
  for (size_t i = 0; i < c->files.n; i++) file_reader_close(&c->files.at[i].reader);
  vec_release(&c->files);
}

static const struct corpus_file *file_of(const struct corpus *c, int64_t chunk) {
  size_t i = c->files.n - 1;
  while (c->files.at[i].first > chunk) i--;
  return &c->files.at[i];
}

/* Passes over the end of a word that began in the chunk before. */
static void skip_begun(struct corpus_chunk *c) {
  while (c->at < c->end && !blank(c->bytes[c->at])) c->at++;
}

shoal_status corpus_read(const struct corpus *from, int64_t chunk, struct corpus_chunk *c) {
  const struct corpus_file *f = file_of(from, chunk);
  int64_t begin = (chunk - f->first) * from->chunk_bytes, end = MIN(begin + from->chunk_bytes, f->reader.size);
  int64_t before = begin > 0, beyond = MIN(end + BEYOND, f->reader.size);
  if (!c->bytes) {
    c->room = (size_t)from->chunk_bytes + BEYOND + 1;
    c->bytes = mem_alloc(c->room);
  }
  c->n = (size_t)(beyond - begin + before);
  TRY(file_reader_get(&f->reader, begin - before, c->bytes, c->n));
  c->at = (size_t)before;
  c->end = (size_t)(end - begin + before);
  if (before && !blank(c->bytes[0])) skip_begun(c);
  return NULL;
}

static size_t cut(const char *word, size_t n) {
  size_t at = CORPUS_WORD;
  if (n <= at) return n;
  while (at > CORPUS_WORD - 3 && (word[at] & 0xc0) == 0x80) at--;
  return at;
}

bool corpus_next(struct corpus_chunk *c, const char **word, size_t *n) {
  size_t at = c->at;
  while (at < c->end && blank(c->bytes[at]) && c->bytes[at] != '\n') at++;
  c->at = at;
  if (at >= c->end) return false;
  if (c->bytes[at] == '\n') {
    c->at++;
    *word = CORPUS_LINE_END;
    *n = strlen(CORPUS_LINE_END);
    return true;
  }
  while (at < c->n && !blank(c->bytes[at])) at++;
  *word = c->bytes + c->at;
  *n = cut(*word, at - c->at);
  c->at = at;
  return true;
}

void corpus_chunk_release(struct corpus_chunk *c) {
  free(c->bytes);
  *c = (struct corpus_chunk){0};
}

/* Files. A file that others may read under its name is written to a temporary next to it, synced, and renamed:
 * rename is what makes the change one step, the sync before it is what makes that hold over a power cut, and the
 * sync of the directory after it keeps the name. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum { BUFFER = 1 << 18, MAX_IO = 1 << 30 };

shoal_status file_local_path(const char *path, const char **out) {
  const char *sep = strstr(path, "://");
  *out = path;
  if (!sep) return NULL;
  size_t n = (size_t)(sep - path);
  for (size_t i = 0; i < n; i++) {
    char c = path[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(i > 0 && ((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) return NULL;
  }
  if (n == 0) return NULL;
  if (n == 4 && memcmp(path, "file", 4) == 0) {
    *out = sep + 3;
    return NULL;
  }
  return UNIMPLEMENTED("File system scheme '%.*s' not implemented (file: '%s')", (int)n, path, path);
}

static shoal_status open_for_reading(const char *path, int *fd, struct stat *st) {
  const char *p;
  TRY(file_local_path(path, &p));
  *fd = open(p, O_RDONLY | O_CLOEXEC);
  if (*fd < 0) return ERRNO_STATUS(errno, "%s", path);
  int err = 0;
  if (fstat(*fd, st) != 0) err = errno;
  else if (S_ISDIR(st->st_mode)) err = EISDIR;
  if (!err) return NULL;
  close(*fd);
  return ERRNO_STATUS(err, "%s", path);
}

shoal_status file_read(const char *path, size_t limit, char **data, size_t *size) {
  int fd = -1;
  struct stat st;
  TRY(open_for_reading(path, &fd, &st));
  shoal_status s = NULL;
  size_t n = 0, cap = st.st_size > 0 ? (size_t)st.st_size + 1 : 4096;
  if (limit && cap > limit + 1) cap = limit + 1;
  char *at = malloc(cap + 1);
  while (at) {
    ssize_t got = read(fd, at + n, MIN(cap - n, (size_t)MAX_IO));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) s = ERRNO_STATUS(errno, "%s", path);
    if (got <= 0) break;
    n += (size_t)got;
    if (limit && n > limit) {
      s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s is larger than the %zu bytes allowed", path, limit);
      break;
    }
    if (n == cap) {
      char *grown = realloc(at, cap * 2 + 1);
      if (!grown) free(at);
      at = grown;
      cap *= 2;
    }
  }
  close(fd);
  if (!at) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s does not fit in memory", path);
  if (s) {
    free(at);
    return s;
  }
  at[n] = 0;
  *data = at;
  *size = n;
  return NULL;
}

shoal_status file_write(const char *path, const void *data, size_t size) {
  struct file_writer w;
  TRY(file_writer_open(&w, path));
  shoal_status s = file_writer_add(&w, data, size);
  if (!s) return file_writer_commit(&w);
  file_writer_abort(&w);
  return s;
}

static bool stat_path(const char *path, struct stat *st) {
  const char *p;
  shoal_status s = file_local_path(path, &p);
  if (s) {
    shoal_status_free(s);
    return false;
  }
  return stat(p, st) == 0;
}

bool file_exists(const char *path) {
  struct stat st;
  return stat_path(path, &st);
}

bool file_is_directory(const char *path) {
  struct stat st;
  return stat_path(path, &st) && S_ISDIR(st.st_mode);
}

shoal_status file_size(const char *path, int64_t *size) {
  const char *p;
  TRY(file_local_path(path, &p));
  struct stat st;
  if (stat(p, &st) != 0) return ERRNO_STATUS(errno, "%s", path);
  *size = st.st_size;
  return NULL;
}

shoal_status file_rename(const char *from, const char *to) {
  const char *a, *b;
  TRY(file_local_path(from, &a));
  TRY(file_local_path(to, &b));
  return rename(a, b) == 0 ? NULL : ERRNO_STATUS(errno, "%s", from);
}

shoal_status file_remove(const char *path) {
  const char *p;
  TRY(file_local_path(path, &p));
  return unlink(p) == 0 ? NULL : ERRNO_STATUS(errno, "%s", path);
}

shoal_status directory_remove(const char *path) {
  const char *p;
  TRY(file_local_path(path, &p));
  return rmdir(p) == 0 ? NULL : ERRNO_STATUS(errno, "%s", path);
}

shoal_status directory_make(const char *path) {
  const char *p;
  TRY(file_local_path(path, &p));
  if (!*p) return NULL;
  char *copy = mem_strdup(p);
  shoal_status s = NULL;
  for (char *at = copy + 1; !s; at++) {
    if (*at && *at != '/') continue;
    char was = *at;
    *at = 0;
    struct stat st;
    if (mkdir(copy, 0777) != 0 && !(errno == EEXIST && stat(copy, &st) == 0 && S_ISDIR(st.st_mode)))
      s = ERRNO_STATUS(errno == EEXIST ? ENOTDIR : errno, "%s", copy);
    *at = was;
    if (!was) break;
  }
  free(copy);
  return s;
}

shoal_status directory_make_one(const char *path) {
  const char *p;
  TRY(file_local_path(path, &p));
  if (!*p || mkdir(p, 0777) == 0 || errno == EEXIST) return NULL;
  return ERRNO_STATUS(errno, "%s", path);
}

char *path_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return mem_strdup("");
  return mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* ---- lists and patterns ---- */

void path_list_release(struct path_list *l) {
  for (size_t i = 0; i < l->paths.n; i++) free(l->paths.at[i]);
  vec_release(&l->paths);
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void sort(struct path_list *l) {
  if (l->paths.n) qsort(l->paths.at, l->paths.n, sizeof *l->paths.at, by_bytes);
}

/* A pattern's * also finds hidden names, but never "." and "..". */
static bool names_dots(const char *path, const char *pattern) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) return false;
  const char *p = strrchr(pattern, '/');
  return strcmp(p ? p + 1 : pattern, name) != 0;
}

shoal_status file_glob(const char *pattern, struct path_list *out) {
  const char *p;
  TRY(file_local_path(pattern, &p));
  glob_t g;
  int rc = glob(p, GLOB_NOSORT | GLOB_PERIOD, NULL, &g);
  if (rc == GLOB_NOMATCH) return NULL;
  if (rc == GLOB_NOSPACE) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "too many files match %s", pattern);
  if (rc != 0) return STATUS(SHOAL_UNKNOWN, "cannot read the directories of %s", pattern);
  for (size_t i = 0; i < g.gl_pathc; i++)
    if (!names_dots(g.gl_pathv[i], p)) vec_push(&out->paths, mem_strdup(g.gl_pathv[i]));
  globfree(&g);
  sort(out);
  return NULL;
}

shoal_status directory_list(const char *path, struct path_list *out) {
  const char *p;
  TRY(file_local_path(path, &p));
  DIR *d = opendir(p);
  if (!d) return ERRNO_STATUS(errno, "%s", path);
  for (struct dirent *e; (e = readdir(d));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) vec_push(&out->paths, mem_strdup(e->d_name));
  closedir(d);
  sort(out);
  return NULL;
}

/* ---- reading at offsets ---- */

shoal_status file_reader_open(struct file_reader *r, const char *path) {
  struct stat st;
  TRY(open_for_reading(path, &r->fd, &st));
  r->size = st.st_size;
  r->path = mem_strdup(path);
  return NULL;
}

shoal_status file_reader_get(const struct file_reader *r, int64_t offset, void *to, size_t n) {
  if (offset < 0 || (uint64_t)offset + n < n) return STATUS(SHOAL_OUT_OF_RANGE, "%s: read at a wrong offset", r->path);
  char *at = to;
  while (n) {
    ssize_t got = pread(r->fd, at, MIN(n, (size_t)MAX_IO), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ERRNO_STATUS(errno, "%s", r->path);
    if (got == 0) return STATUS(SHOAL_OUT_OF_RANGE, "%s: Read less bytes than requested", r->path);
    at += got;
    offset += got;
    n -= (size_t)got;
  }
  return NULL;
}

void file_reader_close(struct file_reader *r) {
  if (!r->path) return;
  close(r->fd);
  free(r->path);
  r->path = NULL;
}

/* ---- writing ---- */

/* Different for each file of each process, so that two writers of one name never share a temporary. */
static uint64_t draw(void) {
  static atomic_uint_fast64_t count;
  uint64_t v[3] = {(uint64_t)wall_nanos(), (uint64_t)getpid(), atomic_fetch_add(&count, 1)};
  return hash_bytes(v, sizeof v, 0);
}

static shoal_status writer_begin(struct file_writer *w, const char *path, const char *name, int flags) {
  w->fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (w->fd < 0) {
    shoal_status s = ERRNO_STATUS(errno, "%s", name);
    free(w->temporary);
    *w = (struct file_writer){.fd = -1};
    return s;
  }
  w->path = mem_strdup(path);
  w->buffer = mem_alloc(BUFFER);
  return NULL;
}

shoal_status file_writer_open(struct file_writer *w, const char *path) {
  *w = (struct file_writer){.fd = -1};
  const char *p;
  TRY(file_local_path(path, &p));
  w->temporary = mem_printf("%s.tempstate%llu", p, (unsigned long long)draw());
  return writer_begin(w, p, w->temporary, O_EXCL);
}

shoal_status file_writer_open_direct(struct file_writer *w, const char *path, bool append) {
  *w = (struct file_writer){.fd = -1};
  const char *p;
  TRY(file_local_path(path, &p));
  return writer_begin(w, p, p, append ? O_APPEND : O_TRUNC);
}

static shoal_status write_all(struct file_writer *w, const char *at, size_t n) {
  while (n) {
    ssize_t put = write(w->fd, at, MIN(n, (size_t)MAX_IO));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ERRNO_STATUS(errno, "%s", w->path);
    at += put;
    n -= (size_t)put;
  }
  return NULL;
}

shoal_status file_writer_flush(struct file_writer *w) {
  size_t n = w->used;
  w->used = 0;
  return write_all(w, w->buffer, n);
}

shoal_status file_writer_add(struct file_writer *w, const void *data, size_t n) {
  w->offset += (int64_t)n;
  if (n > BUFFER - w->used) {
    TRY(file_writer_flush(w));
    if (n >= BUFFER) return write_all(w, data, n);
  }
  if (n) memcpy(w->buffer + w->used, data, n);
  w->used += n;
  return NULL;
}

static void sync_directory(const char *path) {
  char *dir = path_directory(path);
  int fd = open(*dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(dir);
  if (fd < 0) return; /* the rename stands; only its hardening against a power cut is missing */
  fsync(fd);
  close(fd);
}

shoal_status file_writer_commit(struct file_writer *w) {
  shoal_status s = file_writer_flush(w);
  if (!s && w->temporary && fsync(w->fd) != 0) s = ERRNO_STATUS(errno, "%s", w->path);
  if (close(w->fd) != 0 && !s) s = ERRNO_STATUS(errno, "%s", w->path);
  w->fd = -1;
  if (!s && w->temporary) {
    if (rename(w->temporary, w->path) != 0) s = ERRNO_STATUS(errno, "%s", w->path);
    else {
      sync_directory(w->path);
      free(w->temporary);
      w->temporary = NULL;
    }
  }
  file_writer_abort(w);
  return s;
}

void file_writer_abort(struct file_writer *w) {
  if (w->fd >= 0) close(w->fd);
  if (w->temporary) unlink(w->temporary);
  free(w->temporary);
  free(w->path);
  free(w->buffer);
  *w = (struct file_writer){.fd = -1};
}

/* Files. A file that others may read under its name is written to a temporary next to it, synced, and renamed:
 * rename is what makes the change one step, the sync before it is what makes that hold over a power cut, and the
 * sync of the directory after it keeps the name. A link at the end of a path stays: what it leads to is what is
 * replaced, or made.
 *
 * Every path passes locate(), which is where a server's file ops are confined (file_root.h): what is opened, made,
 * renamed or removed is always a name in the directory that locate() holds open. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_behind.h"
#include "base/file_root.h"
#include "base/machine.h"
#include "base/text.h"

enum { BUFFER = 1 << 18, PIECE = 1 << 20, MAX_IO = 1 << 30 };

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

static shoal_status locate(const char *path, bool follow, struct file_place *at) {
  const char *p;
  TRY(file_local_path(path, &p));
  return file_place_find(p, follow, at);
}

static atomic_bool ordinary_only;

void file_ordinary_only(bool only) { atomic_store(&ordinary_only, only); }

static bool must_be_ordinary(const struct file_place *at) { return at->confined || atomic_load(&ordinary_only); }

static int stat_in(const struct file_place *at, struct stat *st) {
  return fstatat(at->dir, at->name, st, at->confined ? AT_SYMLINK_NOFOLLOW : 0) ? errno : 0;
}

/* In a confined place a link is never opened; nor, where a file must be ordinary, a pipe or a device, since to open one
 * may wait or set something going. One that is put there after the look is seen by those who open. */
static int open_in(const struct file_place *at, int flags) {
  bool ordinary = must_be_ordinary(at);
  struct stat st;
  bool looks = ordinary && !(flags & O_DIRECTORY) && stat_in(at, &st) == 0;
  if (looks && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) {
    errno = EACCES;
    return -1;
  }
  flags |= O_CLOEXEC | (at->confined ? O_NOFOLLOW : 0) | (ordinary ? O_NONBLOCK : 0);
  return openat(at->dir, at->name, flags, 0666);
}

static shoal_status open_for_reading(const char *path, int *fd, struct stat *st) {
  struct file_place at;
  TRY(locate(path, true, &at));
  *fd = open_in(&at, O_RDONLY);
  int err = *fd < 0 ? errno : 0;
  bool ordinary = must_be_ordinary(&at);
  file_place_release(&at);
  if (err) return ERRNO_STATUS(err, "%s", path);
  if (fstat(*fd, st) != 0) err = errno;
  else if (S_ISDIR(st->st_mode)) err = EISDIR;
  else if (ordinary && !S_ISREG(st->st_mode)) err = EACCES;
  if (!err) return NULL;
  close(*fd);
  return ERRNO_STATUS(err, "%s", path);
}

static shoal_status too_large(const char *path, size_t limit) {
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s is larger than the %zu bytes allowed", path, limit);
}

shoal_status file_read(const char *path, size_t limit, char **data, size_t *size) {
  int fd = -1;
  struct stat st;
  TRY(open_for_reading(path, &fd, &st));
  shoal_status s = NULL;
  if (!limit) limit = machine_memory() / 2; /* and room for a copy */
  if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit) {
    close(fd);
    return too_large(path, limit);
  }
  size_t n = 0, cap = st.st_size > 0 ? (size_t)st.st_size + 1 : 4096;
  if (cap > limit + 1) cap = limit + 1;
  char *at = mem_try_alloc(cap + 1);
  while (at) {
    ssize_t got = read(fd, at + n, MIN(cap - n, (size_t)MAX_IO));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) s = ERRNO_STATUS(errno, "%s", path);
    if (got <= 0) break;
    n += (size_t)got;
    if (n > limit) {
      s = too_large(path, limit);
      break;
    }
    if (n == cap) {
      char *grown = mem_try_realloc(at, cap * 2 + 1, 1);
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
  struct file_place at;
  shoal_status s = locate(path, true, &at);
  shoal_status_free(s);
  if (s) return false;
  int err = stat_in(&at, st);
  file_place_release(&at);
  return !err;
}

bool file_exists(const char *path) {
  struct stat st;
  return stat_path(path, &st);
}

bool file_is_directory(const char *path) {
  struct stat st;
  return stat_path(path, &st) && S_ISDIR(st.st_mode);
}

bool file_is_regular(const char *path) {
  struct stat st;
  return stat_path(path, &st) && S_ISREG(st.st_mode);
}

bool file_same(const char *a, const char *b) {
  struct stat x, y;
  if (!stat_path(a, &x) || !stat_path(b, &y)) return !strcmp(a, b);
  return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

shoal_status file_follow_links(const char *path, char **out) {
  enum { MOST = 40 /* as Linux has it */ };
  char *at = mem_strdup(path), to[PATH_MAX];
  ssize_t n = 0;
  for (int links = 0; (n = readlink(at, to, sizeof to)) >= 0; links++) {
    int err = links == MOST ? ELOOP : n == sizeof to ? ENAMETOOLONG : 0;
    const char *slash = strrchr(at, '/');
    int before = *to != '/' && slash ? (int)(slash + 1 - at) : 0;
    char *next = err ? NULL : mem_printf("%.*s%.*s", before, at, (int)n, to);
    free(at);
    if (err) return ERRNO_STATUS(err, "%s", path);
    at = next;
  }
  *out = at;
  return NULL;
}

void (*file_fault)(const char *what, const char *path);

/* Before every change to the file system. */
static void changing(const char *what, const char *path) {
  if (UNLIKELY(file_fault != NULL)) file_fault(what, path);
}

/* Ends a call on a place: its error, if any. */
static shoal_status leave(struct file_place *at, int err, const char *path) {
  file_place_release(at);
  return err ? ERRNO_STATUS(err, "%s", path) : NULL;
}

shoal_status file_size(const char *path, int64_t *size) {
  struct file_place at;
  struct stat st = {0};
  TRY(locate(path, true, &at));
  TRY(leave(&at, stat_in(&at, &st), path));
  *size = st.st_size;
  return NULL;
}

shoal_status file_rename(const char *from, const char *to) {
  struct file_place a, b;
  TRY(locate(from, false, &a));
  shoal_status s = locate(to, false, &b);
  if (s) {
    file_place_release(&a);
    return s;
  }
  changing("rename", to);
  int err = renameat(a.dir, a.name, b.dir, b.name) ? errno : 0;
  file_place_release(&b);
  return leave(&a, err, from);
}

shoal_status file_remove(const char *path) {
  struct file_place at;
  TRY(locate(path, false, &at));
  changing("remove", path);
  return leave(&at, unlinkat(at.dir, at.name, 0) ? errno : 0, path);
}

shoal_status directory_remove(const char *path) {
  struct file_place at;
  TRY(locate(path, false, &at));
  changing("remove", path);
  return leave(&at, unlinkat(at.dir, at.name, AT_REMOVEDIR) ? errno : 0, path);
}

static shoal_status make_or_find(const char *path) {
  struct file_place at;
  struct stat st;
  TRY(file_place_find(path, true, &at));
  int err = mkdirat(at.dir, at.name, 0777) ? errno : 0;
  if (err == EEXIST) err = stat_in(&at, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
  return leave(&at, err, path);
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
    if (!file_roots_below(copy)) s = make_or_find(copy);
    if (shoal_status_code(s) == SHOAL_PERMISSION_DENIED && was) s = status_suffix(s, " (while making %s)", path);
    *at = was;
    if (!was) break;
  }
  free(copy);
  return s;
}

shoal_status directory_make_one(const char *path) {
  const char *p;
  TRY(file_local_path(path, &p));
  if (!*p) return NULL;
  struct file_place at;
  TRY(file_place_find(p, true, &at));
  int err = mkdirat(at.dir, at.name, 0777) ? errno : 0;
  return leave(&at, err == EEXIST ? 0 : err, path);
}

char *path_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return mem_strdup("");
  return mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* ---- lists ---- */

shoal_status directory_list(const char *path, struct path_list *out) {
  struct file_place at;
  TRY(locate(path, true, &at));
  int fd = open_in(&at, O_RDONLY | O_DIRECTORY);
  DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
  int err = d ? 0 : errno;
  if (!d && fd >= 0) close(fd);
  TRY(leave(&at, err, path));
  for (struct dirent *e; (e = readdir(d));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) vec_push(&out->paths, mem_strdup(e->d_name));
  closedir(d);
  path_list_sort(out);
  return NULL;
}

/* ---- reading at offsets ---- */

/* What has no size: a pipe, which to open would wait, or a device that gives something. (/dev/null is empty.) */
static shoal_status no_size(const char *path) {
  return INVALID("%s is not an ordinary file: what comes out of a pipe or a device is not read here; put it in a file",
                 path);
}

shoal_status file_reader_open(struct file_reader *r, const char *path) {
  struct stat st;
  char first;
  if (stat_path(path, &st) && S_ISFIFO(st.st_mode)) return no_size(path);
  TRY(open_for_reading(path, &r->fd, &st));
  if (!S_ISREG(st.st_mode) && pread(r->fd, &first, 1, 0) != 0) {
    close(r->fd);
    return no_size(path);
  }
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

void file_reader_ahead(const struct file_reader *r, int64_t offset, size_t n) {
  if (n) (void)posix_fadvise(r->fd, offset, (off_t)n, POSIX_FADV_WILLNEED); /* a hint: who ignores it reads later */
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

/* Opens the file, or its temporary beside it. */
static shoal_status writer_begin(struct file_writer *w, const char *path, bool whole, int flags) {
  *w = (struct file_writer){.fd = -1};
  const char *p;
  TRY(file_local_path(path, &p));
  w->at = mem_alloc(sizeof *w->at);
  shoal_status s = file_place_find(p, true, w->at);
  if (!s && !w->at->confined && whole) s = file_follow_links(p, &w->path);
  if (s) {
    free(w->at);
    w->at = NULL;
    return s;
  }
  if (!w->path) w->path = mem_strdup(p);
  if (!w->at->confined) w->at->name = w->path; /* it pointed to the caller's */
  if (whole) w->temporary = mem_printf("%s.tempstate%llu", w->at->name, (unsigned long long)draw());
  changing("create", w->path);
  struct file_place opened = *w->at;
  opened.name = whole ? w->temporary : w->at->name;
  w->fd = open_in(&opened, O_WRONLY | O_CREAT | flags);
  struct stat st;
  if (w->fd >= 0 && must_be_ordinary(&opened) && (fstat(w->fd, &st) || !S_ISREG(st.st_mode))) {
    close(w->fd);
    w->fd = -1;
    errno = EACCES;
  }
  if (w->fd < 0) {
    s = ERRNO_STATUS(errno, "%s", w->path);
    free(w->temporary);
    w->temporary = NULL; /* there is none to remove */
    file_writer_abort(w);
    return s;
  }
  w->buffer = mem_alloc(BUFFER);
  return NULL;
}

/* A device or a pipe is written as it is: a file that took its place would be the end of it. */
shoal_status file_writer_open(struct file_writer *w, const char *path) {
  struct stat st;
  bool special = stat_path(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
  return writer_begin(w, path, !special, special ? 0 : O_EXCL);
}

shoal_status file_writer_open_direct(struct file_writer *w, const char *path, bool append) {
  return writer_begin(w, path, false, append ? O_APPEND : O_TRUNC);
}

shoal_status file_create(const char *path, const void *data, size_t size) {
  struct file_writer w;
  TRY(writer_begin(&w, path, false, O_EXCL));
  shoal_status s = file_writer_add(&w, data, size);
  if (!s) return file_writer_commit(&w);
  file_writer_abort(&w);
  return s;
}

static shoal_status write_all(struct file_writer *w, const char *at, size_t n) {
  while (n) {
    changing("write", w->path);
    ssize_t put = write(w->fd, at, MIN(n, (size_t)PIECE)); /* large writes are slower, by a third */
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ERRNO_STATUS(errno, "%s", w->path);
    at += put;
    n -= (size_t)put;
  }
  return NULL;
}

shoal_status file_writer_flush(struct file_writer *w) {
  if (w->behind) return NULL;
  size_t n = w->used;
  w->used = 0;
  return write_all(w, w->buffer, n);
}

shoal_status file_writer_add(struct file_writer *w, const void *data, size_t n) {
  bool first = w->offset == (int64_t)w->used;
  w->offset += (int64_t)n;
  if (w->behind) return file_behind_add(w->behind, data, n);
  if (n > BUFFER - w->used && first && w->temporary && (w->behind = file_behind_new(w->fd, w->path))) {
    TRY(file_behind_add(w->behind, w->buffer, w->used));
    return file_behind_add(w->behind, data, n);
  }
  if (n > BUFFER - w->used) {
    TRY(file_writer_flush(w));
    if (n >= BUFFER) return write_all(w, data, n);
  }
  if (n) memcpy(w->buffer + w->used, data, n);
  w->used += n;
  return NULL;
}

static void sync_directory(const struct file_place *at) {
  char *dir = path_directory(at->name);
  int fd = openat(at->dir, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(dir);
  if (fd < 0) return; /* the rename stands; only its hardening against a power cut is missing */
  fsync(fd);
  close(fd);
}

shoal_status file_writer_commit(struct file_writer *w) {
  shoal_status s = w->behind ? file_behind_finish(w->behind) : file_writer_flush(w);
  w->behind = NULL;
  changing("sync", w->path);
  if (!s && w->temporary && fsync(w->fd) != 0) s = ERRNO_STATUS(errno, "%s", w->path);
  if (close(w->fd) != 0 && !s) s = ERRNO_STATUS(errno, "%s", w->path);
  w->fd = -1;
  if (!s && w->temporary) {
    changing("rename", w->path);
    if (renameat(w->at->dir, w->temporary, w->at->dir, w->at->name) != 0) s = ERRNO_STATUS(errno, "%s", w->path);
    else {
      sync_directory(w->at);
      free(w->temporary);
      w->temporary = NULL;
    }
  }
  file_writer_abort(w);
  return s;
}

void file_writer_abort(struct file_writer *w) {
  file_behind_abort(w->behind);
  if (w->fd >= 0) close(w->fd);
  if (w->temporary) unlinkat(w->at->dir, w->temporary, 0);
  if (w->at) file_place_release(w->at);
  free(w->at);
  free(w->temporary);
  free(w->path);
  free(w->buffer);
  *w = (struct file_writer){.fd = -1};
}

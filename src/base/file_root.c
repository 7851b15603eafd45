/* Confinement; see file_root.h.
 *
 * A path is walked by hand, one component at a time, each opened relative to the directory before it and never through
 * a link: what was checked is what is held open, so nobody can swap a directory for a link between the check and the
 * use. Links are read and their text walked in turn; ".." goes back along the directories held open, never above the
 * root. Comparing realpath() with the root was rejected for the gap between check and use, openat2(RESOLVE_BENEATH)
 * because older kernels and container filters lack it and absolute links inside a root would be refused.
 *
 * A walk of a path that is deep holds many descriptors, and many such walks at once would take all there are: beyond
 * the first SHALLOW of each, all walks share DEEP.
 *
 * The stack (invariant 14): its first entry is a root; every other was opened, as a directory and through no link, in
 * the one before it. */
#include "base/file_root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/text.h"
#include "base/vec.h"

enum { MAX_LINKS = 40 /* as Linux has it */, SHALLOW = 32, DEEP = 1024 };

static struct budget deep = {.most = DEEP}; /* directories that walks hold open, beyond SHALLOW of each */

struct root {
  char *given, *real; /* absolute, without '/' at the end: as the user wrote it, and without links */
  int fd;
};

struct file_roots {
  char *text; /* for errors */
  VEC(struct root) at;
};

static struct file_roots unknown; /* of threads that have not been told: everything, or nothing */
static atomic_bool unknown_is_closed;
static _Thread_local const struct file_roots *current = &unknown;

void file_roots_close_unknown(bool closed) { atomic_store(&unknown_is_closed, closed); }

static bool is_open(void) { return !current || (current == &unknown && !atomic_load(&unknown_is_closed)); }

const struct file_roots *file_roots_use(const struct file_roots *r) {
  const struct file_roots *before = current;
  current = r;
  return before;
}

const struct file_roots *file_roots_current(void) { return current; }

/* ---- the roots ---- */

static void drop_slashes(char *path) {
  for (size_t n = strlen(path); n > 0 && path[n - 1] == '/';) path[--n] = 0;
}

static char *make_absolute(const char *path) {
  if (*path == '/') return mem_strdup(path);
  char *cwd = getcwd(NULL, 0);
  char *out = mem_printf("%s/%s", cwd ? cwd : "", path);
  free(cwd);
  return out;
}

static shoal_status add_root(struct file_roots *r, const char *path) {
  struct root e = {.real = realpath(path, NULL)};
  if (e.real) e.fd = open(e.real, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (!e.real || e.fd < 0) {
    shoal_status s =
        INVALID("--file_root: %s; %s: give directories that exist, separated by ':'", path, strerror(errno));
    free(e.real);
    return s;
  }
  e.given = make_absolute(path);
  drop_slashes(e.given);
  drop_slashes(e.real);
  vec_push(&r->at, e);
  return NULL;
}

shoal_status file_roots_new(const char *directories, struct file_roots **out) {
  struct file_roots *r = mem_zalloc(1, sizeof *r);
  r->text = mem_strdup(directories);
  shoal_status s = NULL;
  for (const char *at = directories; !s && at;) {
    const char *colon = strchr(at, ':');
    char *one = colon ? mem_strndup(at, (size_t)(colon - at)) : mem_strdup(at);
    if (!*one) s = INVALID("--file_root=%s: an empty directory name", directories);
    else s = add_root(r, one);
    free(one);
    at = colon ? colon + 1 : NULL;
  }
  if (s) file_roots_free(r);
  else *out = r;
  return s;
}

void file_roots_free(struct file_roots *r) {
  if (!r) return;
  for (size_t i = 0; i < r->at.n; i++) {
    close(r->at.at[i].fd);
    free(r->at.at[i].given);
    free(r->at.at[i].real);
  }
  vec_release(&r->at);
  free(r->text);
  free(r);
}

/* What follows the root in path, or NULL when it does not begin with it. */
static const char *after(const char *root, const char *path) {
  size_t n = strlen(root);
  return !strncmp(path, root, n) && (path[n] == '/' || !path[n]) ? path + n : NULL;
}

/* The longest root that path begins with. */
static const struct root *find_root(const struct file_roots *r, const char *path, const char **rest) {
  const struct root *best = NULL;
  for (size_t i = 0; i < r->at.n; i++) {
    const struct root *e = &r->at.at[i];
    const char *tail = after(e->given, path);
    if (!tail) tail = after(e->real, path);
    if (!tail || (best && tail >= *rest)) continue;
    best = e;
    *rest = tail;
  }
  return best;
}

bool file_roots_below(const char *path) {
  if (is_open()) return false;
  char *all = make_absolute(path);
  drop_slashes(all);
  bool found = false;
  for (size_t i = 0; i < current->at.n && !found; i++)
    found = after(all, current->at.at[i].given) || after(all, current->at.at[i].real);
  free(all);
  return found;
}

/* ---- the walk ---- */

struct path_walk {
  const struct file_roots *roots;
  const char *path; /* as asked for, for errors */
  VEC(int) stack;
  char *rest; /* what is still to be walked; ours */
  int links;
};

/* The last directory is no longer the walk's. */
static int take_last(struct path_walk *w) {
  INVARIANT(14, w->stack.n > 0);
  int fd = vec_pop(&w->stack);
  if (w->stack.n >= SHALLOW) budget_give(&deep, 1);
  return fd;
}

static void pop(struct path_walk *w) { close(take_last(w)); }

/* As far as can be told: a file system that has gone says nothing, and whoever opens something there is told so. */
static bool may_be_directory(int fd) {
  struct stat st;
  return fstat(fd, &st) != 0 || S_ISDIR(st.st_mode);
}

/* fd is the walk's; where there are too many it is closed. What was opened as a link itself is no directory. */
static shoal_status push(struct path_walk *w, int fd) {
  INVARIANT(14, may_be_directory(fd));
  if (w->stack.n >= SHALLOW && !budget_take(&deep, 1)) {
    close(fd);
    return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                  "%s; of directories more than %d deep, those of all paths that are being looked up with --file_root, "
                  "at most %d are open at a time",
                  w->path, SHALLOW, DEEP);
  }
  vec_push(&w->stack, fd);
  return NULL;
}

static shoal_status denied(const struct path_walk *w) {
  return STATUS(SHOAL_PERMISSION_DENIED, "%s; Permission denied: it is not inside --file_root=%s", w->path,
                w->roots->text);
}

static shoal_status failed(const struct path_walk *w, int err) { return ERRNO_STATUS(err, "%s", w->path); }

/* Begins at the root that an absolute path lies in; consumes path. */
static shoal_status enter_root(struct path_walk *w, char *path) {
  const char *rest = NULL;
  const struct root *r = find_root(w->roots, path, &rest);
  shoal_status s = NULL;
  if (!r) s = denied(w);
  while (w->stack.n) pop(w);
  int fd = r ? fcntl(r->fd, F_DUPFD_CLOEXEC, 0) : -1;
  if (r && fd < 0) s = failed(w, errno);
  if (!s) {
    s = push(w, fd);
    char *copy = mem_strdup(rest);
    free(w->rest);
    w->rest = copy;
  }
  free(path);
  return s;
}

/* Goes on with a link's text in place of the link. */
static shoal_status follow_link(struct path_walk *w, int dir, const char *name) {
  char target[PATH_MAX];
  ssize_t n = readlinkat(dir, name, target, sizeof target);
  if (n < 0) return failed(w, errno);
  if (n == sizeof target) return failed(w, ENAMETOOLONG);
  if (++w->links > MAX_LINKS) return failed(w, ELOOP);
  char *next = mem_printf("%.*s/%s", (int)n, target, w->rest);
  if (strlen(next) >= (size_t)2 * PATH_MAX) {
    free(next);
    return failed(w, ENAMETOOLONG);
  }
  if (*next == '/') return enter_root(w, next);
  free(w->rest);
  w->rest = next;
  return NULL;
}

/* A component that others follow: a directory, or a link to one. */
static shoal_status enter(struct path_walk *w, const char *name) {
  struct stat st;
  int fd = openat(vec_last(&w->stack), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return failed(w, errno);
  shoal_status s = NULL;
  if (fstat(fd, &st)) s = failed(w, errno);
  else if (S_ISDIR(st.st_mode)) return push(w, fd);
  else if (S_ISLNK(st.st_mode)) s = follow_link(w, fd, "");
  else s = failed(w, ENOTDIR);
  close(fd);
  return s;
}

static bool is_link(int dir, const char *name) {
  struct stat st;
  return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* Takes the next component off the rest; false at the end. */
static bool take(struct path_walk *w, char name[NAME_MAX + 1], bool *last, shoal_status *s) {
  char *at = w->rest + strspn(w->rest, "/");
  size_t n = strcspn(at, "/");
  if (!n) return false;
  if (n > NAME_MAX) {
    *s = failed(w, ENAMETOOLONG);
    return false;
  }
  memcpy(name, at, n);
  name[n] = 0;
  at += n;
  at += strspn(at, "/");
  *last = !*at;
  memmove(w->rest, at, strlen(at) + 1);
  return true;
}

static shoal_status walk(struct path_walk *w, bool follow, char name[NAME_MAX + 1]) {
  shoal_status s = NULL;
  bool last = false;
  while (!s && take(w, name, &last, &s)) {
    if (!strcmp(name, ".")) continue;
    if (!strcmp(name, "..")) {
      if (w->stack.n == 1) return denied(w);
      pop(w);
    } else if (!last) s = enter(w, name);
    else if (follow && is_link(vec_last(&w->stack), name)) s = follow_link(w, vec_last(&w->stack), name);
    else return NULL;
  }
  strcpy(name, "."); /* the directory that was come to itself */
  return s;
}

shoal_status file_place_find(const char *path, bool follow, struct file_place *out) {
  *out = (struct file_place){.dir = AT_FDCWD, .name = path};
  if (is_open()) return NULL;
  if (current == &unknown)
    return STATUS(SHOAL_PERMISSION_DENIED, "%s: with --file_root, this thread may open no files", path);
  struct path_walk w = {.roots = current, .path = path};
  if (strlen(path) >= PATH_MAX) return failed(&w, ENAMETOOLONG);
  if (!*path) return failed(&w, ENOENT);
  shoal_status s = enter_root(&w, make_absolute(path));
  if (!s) s = walk(&w, follow, out->last);
  if (!s) {
    out->dir = take_last(&w);
    out->name = out->last;
    out->confined = true;
  }
  while (w.stack.n) pop(&w);
  vec_release(&w.stack);
  free(w.rest);
  return s;
}

void file_place_release(struct file_place *p) {
  if (p->dir != AT_FDCWD) close(p->dir);
  p->dir = AT_FDCWD;
}

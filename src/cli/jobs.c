/* Files about running jobs: one a launcher, PROCESS.job, in $XDG_RUNTIME_DIR/shoal or, without it, /tmp/shoal-UID.
 *
 *   process N
 *   began SECONDS
 *   cluster {"ps": ["127.0.0.1:20001"], ...}
 *   program mnist_replica --train_steps=5000
 *
 * /tmp is everybody's: the folder is used only when it is a folder, ours, and closed to others. A launcher holds a lock
 * on its file while it lives, in whatever way it ends: a file that can be locked is left over, and removed. So numbers
 * of processes that were given away again do no harm. The file gets its name after it is locked and whole. */
#include "cli/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"

enum { MAX_FILE = 1 << 20, MAX_JOBS = 1000 };

struct job_file {
  int folder, fd;
  char name[32];
};

static int open_safe(const char *path) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077)) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

/* The folder, made if need be; -1: there is none that can be trusted. */
static int open_folder(bool make) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  int own = runtime && *runtime == '/' ? open_safe(runtime) : -1;
  char *path = own >= 0 ? mem_printf("%s/shoal", runtime) : mem_printf("/tmp/shoal-%ld", (long)geteuid());
  int fd = open_safe(path);
  if (fd < 0 && make && !mkdir(path, 0700)) fd = open_safe(path);
  if (own >= 0) close(own);
  free(path);
  return fd;
}

static bool write_all(int fd, const char *at, size_t n) {
  while (n) {
    ssize_t some = write(fd, at, n);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    at += some;
    n -= (size_t)some;
  }
  return true;
}

struct job_file *job_file_open(const char *cluster, const char *program) {
  struct job_file *f = mem_zalloc(1, sizeof *f);
  char other[32];
  snprintf(f->name, sizeof f->name, "%ld.job", (long)getpid());
  snprintf(other, sizeof other, "%ld.new", (long)getpid());
  struct text t = {0};
  text_addf(&t, "process %ld\nbegan %lld\ncluster %s\nprogram ", (long)getpid(), (long long)time(NULL), cluster);
  text_add_shown(&t, program, strlen(program), false);
  text_addc(&t, '\n');
  f->fd = -1;
  f->folder = open_folder(true);
  if (f->folder >= 0) {
    unlinkat(f->folder, other, 0);
    f->fd = openat(f->folder, other, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  bool done = f->fd >= 0 && !flock(f->fd, LOCK_EX | LOCK_NB) && write_all(f->fd, t.at, t.n) &&
              !renameat(f->folder, other, f->folder, f->name);
  text_release(&t);
  if (done) return f;
  if (f->fd >= 0) unlinkat(f->folder, other, 0);
  if (f->fd >= 0) close(f->fd);
  if (f->folder >= 0) close(f->folder);
  free(f);
  return NULL;
}

void job_file_let_go(struct job_file *f) {
  if (!f) return;
  close(f->fd);
  close(f->folder);
  free(f);
}

void job_file_close(struct job_file *f) {
  if (f) unlinkat(f->folder, f->name, 0);
  job_file_let_go(f);
}

static bool parse(char *text, struct job_entry *e) {
  *e = (struct job_entry){0};
  for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
    char *value = strchr(line, ' ');
    if (!value) continue;
    *value++ = 0;
    if (!strcmp(line, "process") && !str_to_int64(value, &e->process)) e->process = 0;
    if (!strcmp(line, "began") && !str_to_int64(value, &e->began)) e->began = 0;
    if (!strcmp(line, "cluster") && !e->cluster) e->cluster = mem_strdup(value);
    if (!strcmp(line, "program") && !e->program) e->program = mem_strdup(value);
  }
  if (e->process > 0 && e->cluster && e->program) return true;
  free(e->cluster);
  free(e->program);
  return false;
}

/* False: it is no job's, or left over. */
static bool read_job(int folder, const char *name, struct job_entry *e) {
  int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  bool left_over = !flock(fd, LOCK_EX | LOCK_NB);
  if (left_over) unlinkat(folder, name, 0);
  char *text = mem_alloc(MAX_FILE + 1);
  ssize_t n = left_over ? 0 : read(fd, text, MAX_FILE);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  bool good = n > 0 && parse(text, e);
  free(text);
  return good;
}

static int by_age(const void *a, const void *b) {
  int64_t x = ((const struct job_entry *)a)->began, y = ((const struct job_entry *)b)->began;
  return (x > y) - (x < y);
}

int jobs_find(struct job_entry **out) {
  VEC(struct job_entry) all = {0};
  int folder = open_folder(false), copy = folder >= 0 ? fcntl(folder, F_DUPFD_CLOEXEC, 0) : -1;
  DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
  for (struct dirent *e; d && all.n < MAX_JOBS && (e = readdir(d));) {
    struct job_entry job;
    if (str_ends(e->d_name, ".job") && read_job(folder, e->d_name, &job)) vec_push(&all, job);
  }
  if (d) closedir(d);
  if (folder >= 0) close(folder);
  if (all.n) qsort(all.at, all.n, sizeof *all.at, by_age);
  *out = all.at;
  return (int)all.n;
}

void jobs_free(struct job_entry *jobs, int n) {
  for (int i = 0; i < n; i++) {
    free(jobs[i].cluster);
    free(jobs[i].program);
  }
  free(jobs);
}

/* Processes and their descendants.
 *
 * A task's process leads a group of its own, so that a signal reaches what it has started, and the terminal's Ctrl-C
 * reaches the launcher alone. It dies with the launcher (PR_SET_PDEATHSIG). What it starts may flee: into another
 * group, another session, to another parent. So the launcher is a "subreaper": whoever loses his parent becomes its
 * child, and at the end it walks /proc for all its descendants and kills until there are none. A PID namespace would do
 * this in one stroke, but needs rights that users seldom have. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch.h"

struct pipes {
  int out[2], err[2], to[2], failed[2];
};

static void close_pair(int *p) {
  for (int i = 0; i < 2; i++)
    if (p[i] >= 0) close(p[i]);
  p[0] = p[1] = -1;
}

/* In the child: nothing here may take memory or locks. */
_Noreturn static void become(char *const *argv, char *const *variables, const struct pipes *p, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127); /* it died in between */
  for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  int in = p->to[0] >= 0 ? p->to[0] : open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (dup2(in, 0) >= 0 && dup2(p->out[1], 1) >= 0 && dup2(p->err[1], 2) >= 0) execvpe(argv[0], argv, variables);
  int err = errno;
  if (write(p->failed[1], &err, sizeof err) < 0) _exit(126);
  _exit(127);
}

shoal_status process_start(char *const *argv, char *const *variables, bool control, pid_t *pid, int *out, int *err,
                           int *to) {
  struct pipes p = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
  shoal_status s = NULL;
  if (pipe2(p.out, O_CLOEXEC) || pipe2(p.err, O_CLOEXEC) || pipe2(p.failed, O_CLOEXEC) ||
      (control && pipe2(p.to, O_CLOEXEC))) {
    s = ERRNO_STATUS(errno, "no pipe for %s", argv[0]);
    goto fail;
  }
  pid_t parent = getpid(), child = fork();
  if (child < 0) {
    s = ERRNO_STATUS(errno, "no process for %s", argv[0]);
    goto fail;
  }
  if (!child) become(argv, variables, &p, parent);
  setpgid(child, child); /* here as well: a signal to the group may be sent before the child runs */
  close(p.failed[1]);
  p.failed[1] = -1;
  int why;
  if (read(p.failed[0], &why, sizeof why) == sizeof why) {
    waitpid(child, NULL, 0);
    bool script = why == ENOENT && strchr(argv[0], '/') && !access(argv[0], F_OK);
    s = script ? NOT_FOUND("cannot run %s: it is there, but its interpreter is not (see its first line, #!)", argv[0])
               : ERRNO_STATUS(why, "cannot run %s", argv[0]);
    goto fail;
  }
  *pid = child;
  *out = p.out[0];
  *err = p.err[0];
  *to = p.to[1];
  fcntl(*out, F_SETFL, O_NONBLOCK);
  fcntl(*err, F_SETFL, O_NONBLOCK);
  p.out[0] = p.err[0] = p.to[1] = -1;
fail:
  close_pair(p.out);
  close_pair(p.err);
  close_pair(p.to);
  close_pair(p.failed);
  return s;
}

void process_adopt_orphans(void) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

struct process_pair {
  pid_t pid, parent;
};
typedef VEC(struct process_pair) pair_list;

static void list_processes(pair_list *all) {
  DIR *d = opendir("/proc");
  for (struct dirent *e; d && (e = readdir(d));) {
    char path[64], stat[512];
    if (e->d_name[0] < '1' || e->d_name[0] > '9' || strlen(e->d_name) > 12) continue;
    snprintf(path, sizeof path, "/proc/%.12s/stat", e->d_name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ssize_t n = read(fd, stat, sizeof stat - 1);
    close(fd);
    stat[n > 0 ? n : 0] = 0;
    /* "pid (name) state parent ...": the name may hold anything, also brackets. */
    const char *after = strrchr(stat, ')');
    struct process_pair p = {(pid_t)atoi(e->d_name), 0};
    if (after && sscanf(after + 1, " %*c %d", &p.parent) == 1) vec_push(all, p);
  }
  if (d) closedir(d);
}

void process_kill_descendants(void) {
  for (;;) {
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
    pair_list all = {0};
    VEC(pid_t) family = {0};
    list_processes(&all);
    vec_push(&family, getpid());
    for (size_t k = 0; k < family.n; k++)
      for (size_t i = 0; i < all.n; i++)
        if (all.at[i].parent == family.at[k]) vec_push(&family, all.at[i].pid);
    for (size_t k = 1; k < family.n; k++) kill(family.at[k], SIGKILL);
    vec_release(&all);
    vec_release(&family);
    /* One that is gone hands its children to us before it can be waited for: no child left means nobody is left. */
    if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD) return;
  }
}

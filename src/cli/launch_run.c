/* Runs the tasks of a job: starts them, watches them, starts failed ones again, stops what is left.
 *
 * The job is over when the chief and all workers have ended: parameter servers that have not ended by themselves
 * are stopped then, after an evaluator has had time for its last checkpoint. A task that fails more often than
 * --restarts allows ends the job. Stopping goes in the order in which tasks need each other: first those that train,
 * which may want to write a last checkpoint and need the parameter servers for it, then these. Each is asked (SIGTERM)
 * and, when its time is up, killed; a second signal to the launcher, when a second has passed, kills all at once.
 *
 * One thread and one poll(): there is nothing here that is worth a lock. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/launch.h"

#define SECOND 1000000000LL
enum { POLL_MS = 200, MAX_PAUSE = 30 };

static bool trains(const struct launch_task *t) { return t->role == ROLE_CHIEF || t->role == ROLE_WORKER; }

static void describe(int status, char *room, size_t size) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == SHOAL_EXIT_RETRY)
    snprintf(room, size, "exit code %d, \"run me again\"", WEXITSTATUS(status));
  else if (WIFEXITED(status)) snprintf(room, size, "exit code %d", WEXITSTATUS(status));
  else
    snprintf(room, size, "signal %d (%s%s)", WTERMSIG(status), strsignal(WTERMSIG(status)),
             WTERMSIG(status) == SIGKILL ? ": by a person, or by the system for want of memory" : "");
}

static void fail_job(struct launch_job *j, struct launch_task *t) {
  if (j->failed || j->stop_signal) return;
  j->failed = t;
  j->exit_code = WIFEXITED(t->status) ? WEXITSTATUS(t->status) : 128 + WTERMSIG(t->status);
}

static bool succeeded(const struct launch_task *t) {
  return t->state == TASK_ENDED && WIFEXITED(t->status) && !WEXITSTATUS(t->status);
}

/* A session needs its tasks: one that is made when another task has trained to its end and gone, or when the parameter
 * servers have ended with their job, waits for ever. TensorFlow's masters and ours say for whom while they wait. (Our
 * servers also say who of the cluster has not been seen; of a worker that need not mean that it is needed.) */
void launch_watch_line(struct launch_job *j, struct launch_task *t, const char *line) {
  if (str_starts(line, "listening on ")) t->listened = true;
  bool needs = strstr(line, "still waiting for response from worker") || strstr(line, "no answer within ");
  if (!trains(t) || (!needs && !strstr(line, "] waiting since "))) return;
  for (size_t i = 0; i < j->tasks.n; i++) {
    const struct launch_task *u = &j->tasks.at[i];
    char name[64];
    snprintf(name, sizeof name, "/job:%s/replica:0/task:%d", u->job, u->index);
    const char *at = strstr(line, name);
    if (u == t || !at || (at[strlen(name)] >= '0' && at[strlen(name)] <= '9')) continue;
    if (succeeded(u) && (needs ? u->role != ROLE_EVALUATOR : u->role == ROLE_PS)) t->waits_for = u;
  }
}

static bool is_chief(const struct launch_job *j, const struct launch_task *t) {
  return t->role == ROLE_CHIEF || (t->role == ROLE_WORKER && !t->index && !j->chief);
}

/* Since when there is nobody left to train with: the chief has ended with success, and all parameter servers have; 0:
 * there is. For workers that wait without a word. */
static int64_t deserted_since(const struct launch_job *j) {
  int64_t since = 0;
  bool servers = false;
  for (size_t i = 0; i < j->tasks.n; i++) {
    const struct launch_task *t = &j->tasks.at[i];
    bool needed = t->role == ROLE_PS || is_chief(j, t);
    if (needed && !succeeded(t)) return 0;
    if (needed) since = MAX(since, t->ended);
    servers = servers || t->role == ROLE_PS;
  }
  return servers ? since : 0;
}

/* A task that was not told by us to stop, and asks to be run again: all were told from outside. */
static bool told_from_outside(const struct launch_job *j) {
  const struct launch_task *t = j->failed;
  return t && !t->signal && WIFEXITED(t->status) && WEXITSTATUS(t->status) == SHOAL_EXIT_RETRY;
}

static void start(struct launch_job *j, struct launch_task *t) {
  t->started = clock_ns();
  t->ended = 0;
  shoal_status s =
      process_start(t->argv, t->environ, t->host != NULL, &t->pid, &t->streams[0].fd, &t->streams[1].fd, &t->control);
  if (!s) {
    t->state = TASK_RUNNING;
    return;
  }
  launch_view_say(j, "%s: %s%s%s", t->name, shoal_status_message(s), t->host ? ": here, to reach " : "",
                  t->host ? t->host : "");
  shoal_status_free(s);
  t->state = TASK_ENDED;
  t->status = EXIT_NOT_RUN << 8;
  t->not_started = true;
  fail_job(j, t);
}

static void send_signal(struct launch_task *t, int sig) {
  t->signal = sig;
  if (t->control >= 0 && sig == SIGTERM) {
    if (write(t->control, "TERM\n", 5) == 5) return;
  }
  if (t->control >= 0) close(t->control); /* over there, this kills */
  if (t->control < 0 || sig == SIGTERM) kill(-t->pid, sig);
  t->control = -1;
}

static void stop(struct launch_job *j, struct launch_task *t) {
  if (t->state == TASK_WAITING) t->state = TASK_ENDED;
  if (t->state != TASK_RUNNING) return;
  if (!t->signal) {
    send_signal(t, SIGTERM);
    t->stop_by = clock_ns() + j->grace * SECOND;
  } else if (clock_ns() >= t->stop_by) {
    send_signal(t, SIGKILL);
    t->stop_by = clock_ns() + 3 * SECOND; /* to another machine, it takes a moment, and may take a second one */
  }
}

static void ended(struct launch_job *j, struct launch_task *t, int status) {
  char how[128];
  kill(-t->pid, SIGKILL); /* what it left behind in its group */
  for (int k = 0; k < 2; k++) {
    if (t->streams[k].fd >= 0) launch_view_read(j, t, &t->streams[k]);
    if (t->streams[k].fd >= 0) close(t->streams[k].fd);
    t->streams[k].fd = -1;
  }
  if (t->control >= 0) close(t->control);
  t->control = -1;
  t->status = status;
  t->state = TASK_ENDED;
  t->ended = clock_ns();
  if (t->role == ROLE_PS && !t->signal && succeeded(t) && !t->listened) {
    bool early = true;
    for (size_t i = 0; i < j->tasks.n; i++) early = early && !(trains(&j->tasks.at[i]) && j->tasks.at[i].ended);
    if (early) launch_tell_early_ps(j, t);
  }
  if (succeeded(t)) return;
  /* A chief without the others has not done its part, and saved nothing of it. */
  if (t->signal && t->waits_for && is_chief(j, t)) fail_job(j, t);
  if (t->signal) return;
  describe(status, how, sizeof how);
  if (t->restarts < j->restarts && !j->failed && !j->stop_signal) {
    int64_t pause = MIN(1LL << MIN(t->restarts, 5), MAX_PAUSE);
    t->restarts++;
    t->state = TASK_WAITING;
    t->due = clock_ns() + pause * SECOND;
    launch_view_say(j, "%s failed: %s; it is started again in %ld s (%d of %ld)", t->name, how, (long)pause,
                    t->restarts, (long)j->restarts);
    return;
  }
  fail_job(j, t);
}

static void reap(struct launch_job *j) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (size_t i = 0; i < j->tasks.n; i++)
      if (j->tasks.at[i].state == TASK_RUNNING && j->tasks.at[i].pid == pid) ended(j, &j->tasks.at[i], status);
}

static bool all_ended(const struct launch_job *j, bool training_only) {
  for (size_t i = 0; i < j->tasks.n; i++)
    if (j->tasks.at[i].state != TASK_ENDED && (!training_only || trains(&j->tasks.at[i]))) return false;
  return true;
}

/* What has to be started or stopped now. */
static void advance(struct launch_job *j, int64_t *trained) {
  int64_t now = clock_ns();
  bool stopping = j->failed || j->stop_signal, over = all_ended(j, true);
  int64_t deserted = deserted_since(j);
  /* The others are saving. A second signal would kill them. */
  bool saving = told_from_outside(j) && !j->stop_signal && now < j->failed->ended + j->grace * SECOND;
  if (over && !*trained) *trained = now;
  bool evaluator_done = true;
  for (size_t i = 0; i < j->tasks.n; i++) {
    struct launch_task *t = &j->tasks.at[i];
    if (t->state == TASK_WAITING && !stopping && now >= t->due) start(j, t);
    if (t->role == ROLE_EVALUATOR && t->state != TASK_ENDED) evaluator_done = false;
  }
  for (size_t i = 0; i < j->tasks.n; i++) {
    struct launch_task *t = &j->tasks.at[i];
    bool alone = deserted && now >= deserted + j->grace * SECOND && trains(t);
    if ((t->waits_for || alone) && t->state == TASK_RUNNING && !t->signal) {
      if (t->waits_for)
        launch_view_say(j, "%s waits for %s, which has ended: it is ended, too", t->name, t->waits_for->name);
      else launch_view_say(j, "%s is left alone, the chief and all ps have ended: it is ended, too", t->name);
    }
    if (t->waits_for || alone) stop(j, t);
    if (t->role == ROLE_PS ? over && evaluator_done
                           : (stopping && !saving) ||
                                 (over && t->role == ROLE_EVALUATOR && now > *trained + j->evaluator_wait * SECOND))
      stop(j, t);
  }
}

/* timeout(1) and its like signal a process and its group, too: what comes within a second is one signal. */
static void take_signal(struct launch_job *j, int sig, int64_t now) {
  if (!j->stop_signal) {
    j->stop_signal = sig;
    j->stop_since = now;
    launch_view_say(j, "%s: stopping all tasks, those that train first; again to kill them", strsignal(sig));
  }
  if (now < j->stop_since + SECOND) return;
  launch_view_say(j, "%s again: killing all tasks", strsignal(sig));
  for (size_t i = 0; i < j->tasks.n; i++) j->tasks.at[i].stop_by = 0;
  for (size_t i = 0; i < j->tasks.n; i++)
    if (j->tasks.at[i].state == TASK_RUNNING && j->tasks.at[i].signal != SIGKILL) send_signal(&j->tasks.at[i], SIGKILL);
}

static void take_signals(struct launch_job *j, int fd) {
  int64_t now = clock_ns();
  for (struct signalfd_siginfo info; read(fd, &info, sizeof info) == sizeof info;)
    if (info.ssi_signo != SIGCHLD) take_signal(j, (int)info.ssi_signo, now);
}

static void report_end(struct launch_job *j) {
  double seconds = (double)(clock_ns() - j->began) * 1e-9;
  struct launch_task *t = j->failed;
  if (told_from_outside(j)) {
    launch_view_say(j, "stopped from outside, after %.1f s: %s ended with %d, \"run me again\"", seconds, t->name,
                    SHOAL_EXIT_RETRY);
    launch_tell_saved(j, true);
    return;
  }
  if (t) {
    char how[128];
    describe(t->status, how, sizeof how);
    launch_view_say(j, "%s%s%s failed: %s, after %.1f s%s", t->name, t->host ? " on " : "", t->host ? t->host : "", how,
                    (double)(clock_ns() - t->started) * 1e-9,
                    t->n_lines ? "; its last lines:" : "; it printed nothing");
    launch_view_tail(j, t);
    launch_tell_hint(j, t);
    launch_tell_saved(j, j->step > 0);
    return;
  }
  if (!j->stop_signal) {
    struct progress_line p;
    struct text how_far = {0};
    if (launch_progress_job(j, &p)) {
      p.staleness = p.eta_secs = -1;
      text_adds(&how_far, p.last > p.step ? "; the last that they told: " : ": "); /* not all tell each step */
      progress_put(&how_far, &p);
    }
    launch_view_say(j, "all tasks have ended, after %.1f s%s", seconds, text_cstr(&how_far));
    text_release(&how_far);
    return;
  }
  /* The tasks' own word counts: with their state saved they ask to be run again. */
  j->exit_code = 128 + j->stop_signal;
  for (size_t i = 0; i < j->tasks.n; i++)
    if (trains(&j->tasks.at[i]) && WIFEXITED(j->tasks.at[i].status) &&
        WEXITSTATUS(j->tasks.at[i].status) == SHOAL_EXIT_RETRY)
      j->exit_code = SHOAL_EXIT_RETRY;
  launch_view_say(j, "stopped, after %.1f s", seconds);
  launch_tell_saved(j, true);
}

/* Puts this job of Slurm's in the queue again. Slurm ends what is left of it, this process too. */
static void requeue(struct launch_job *j) {
  const char *id = getenv("SLURM_JOB_ID");
  char *argv[] = {"scontrol", "requeue", (char *)(uintptr_t)id, NULL};
  extern char **environ;
  pid_t pid;
  int out, err, to, status = 0;
  launch_view_say(j, "job %s is put in the queue again", id);
  shoal_status s = process_start(argv, environ, false, &pid, &out, &err, &to);
  if (!s) {
    struct pollfd end = {.fd = err, .events = POLLIN};
    char why[1024];
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    ssize_t n = status && poll(&end, 1, 0) > 0 ? read(err, why, sizeof why) : 0;
    if (status) launch_view_say(j, "scontrol requeue %s failed: %.*s", id, (int)(n > 0 ? n : 0), why);
    close(out);
    close(err);
  } else {
    launch_view_say(j, "%s", shoal_status_message(s));
    shoal_status_free(s);
  }
}

static void wait_for_news(struct launch_job *j, int life, int signals) {
  struct pollfd *fds = mem_zalloc(2 + 2 * j->tasks.n, sizeof *fds);
  nfds_t n = 2;
  fds[0] = (struct pollfd){.fd = life, .events = POLLIN};
  fds[1] = (struct pollfd){.fd = signals, .events = POLLIN};
  for (size_t i = 0; i < 2 * j->tasks.n; i++)
    fds[n++] = (struct pollfd){.fd = j->tasks.at[i / 2].streams[i % 2].fd, .events = POLLIN};
  if (poll(fds, n, POLL_MS) > 0) {
    if (fds[0].revents) { /* whoever waited for us is gone */
      process_kill_descendants();
      _exit(EXIT_FAILED);
    }
    if (fds[1].revents) take_signals(j, signals);
    for (size_t i = 0; i < 2 * j->tasks.n; i++)
      if (fds[2 + i].revents) launch_view_read(j, &j->tasks.at[i / 2], &j->tasks.at[i / 2].streams[i % 2]);
  }
  free(fds);
  reap(j);
}

int launch_run(struct launch_job *j, int life) {
  sigset_t mask;
  static const int caught[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  sigemptyset(&mask);
  for (size_t i = 0; i < COUNT_OF(caught); i++) sigaddset(&mask, caught[i]);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  signal(SIGPIPE, SIG_IGN);
  int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  process_adopt_orphans();
  j->began = clock_ns();
  launch_tell_begin(j);
  launch_tell_plan(j);
  for (int64_t trained = 0;;) {
    advance(j, &trained);
    if (all_ended(j, false)) break;
    launch_view_flush(j, false);
    wait_for_news(j, life, signals);
  }
  process_kill_descendants();
  launch_view_flush(j, true);
  report_end(j);
  if (j->requeue && j->exit_code == SHOAL_EXIT_RETRY) requeue(j);
  close(signals);
  return j->exit_code;
}

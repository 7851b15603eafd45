/* What the launcher says of a job: what it is going to start, what to do when the program does not understand it, and
 * what is left when it is stopped.
 *
 * Of checkpoints it says only what it has seen: the state file of the folder that the program was given, when it is not
 * the one that was there before the job began. A task's exit code alone is no proof, nor is what it printed, nor a
 * time: the clock of whoever keeps the files may be another one. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/launch.h"
#include "train/claim.h"
#include "train/saver.h"

enum { MOST_SHOWN = 32 };

/* The value of a flag among the program's arguments, "--name=value" or "--name value"; NULL: it has none. */
static const char *program_flag(const struct launch_job *j, const char *name) {
  const char *found = NULL;
  size_t n = strlen(name);
  for (char **a = j->program; *a; a++) {
    const char *arg = *a + strspn(*a, "-");
    if (arg == *a || strncmp(arg, name, n) != 0) continue;
    if (arg[n] == '=') found = arg + n + 1;
    if (!arg[n] && a[1]) found = a[1];
  }
  return found;
}

/* Flags by which programs are told their folders, and which of these hold checkpoints. */
static const struct {
  const char *flag;
  bool checkpoints;
} folders[] = {{"checkpoint_dir", true}, {"train_dir", true}, {"model_dir", true},
               {"logdir", true},         {"log_dir", true},   {"data_dir", false}};

static const char *checkpoint_folder(const struct launch_job *j) {
  for (size_t i = 0; i < COUNT_OF(folders); i++) {
    const char *value = folders[i].checkpoints ? program_flag(j, folders[i].flag) : NULL;
    if (value && *value) return value;
  }
  return NULL;
}

static bool serves(const struct launch_job *j, const struct launch_task *t) {
  return t->role == ROLE_PS && j->ps_server;
}

void launch_tell_plan(struct launch_job *j) {
  struct text words = {0};
  char here[4096];
  for (char **a = j->program; *a; a++) text_addf(&words, " %s", *a);
  launch_view_say(j, "%zu task%s of%s", j->tasks.n, j->tasks.n == 1 ? "" : "s", text_cstr(&words));
  for (size_t i = 0; i < j->tasks.n && i < MOST_SHOWN; i++) {
    const struct launch_task *t = &j->tasks.at[i];
    launch_view_say(j, "  %-11s %s%s%s%s", t->name, t->address ? t->address : "(outside of the cluster)",
                    t->host ? " on " : "", t->host ? t->host : "", serves(j, t) ? ", shoal server" : "");
  }
  if (j->tasks.n > MOST_SHOWN) launch_view_say(j, "  ... and %zu more", j->tasks.n - MOST_SHOWN);
  words.n = 0;
  text_addf(&words, "in %s", getcwd(here, sizeof here) ? here : "this folder");
  for (size_t i = 0; i < COUNT_OF(folders); i++) {
    const char *value = program_flag(j, folders[i].flag);
    if (value && *value) text_addf(&words, ", %s %s", folders[i].flag, value);
  }
  if (j->log_dir) text_addf(&words, ", output also in %s", j->log_dir);
  launch_view_say(j, "%s", text_cstr(&words));
  text_release(&words);
}

/* As a shell would have to be given it. */
static void put_quoted(const char *s) {
  if (*s && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@%") == strlen(s)) {
    fputs(s, stdout);
    return;
  }
  putchar('\'');
  for (; *s; s++) {
    if (*s == '\'') fputs("'\\''", stdout);
    else putchar(*s);
  }
  putchar('\'');
}

void launch_tell_commands(const struct launch_job *j) {
  for (size_t i = 0; i < j->tasks.n; i++) {
    const struct launch_task *t = &j->tasks.at[i];
    printf("# %s%s%s%s%s\n", t->name, t->address ? " at " : "", t->address ? t->address : "", t->host ? " on " : "",
           t->host ? t->host : "");
    if (t->cards && !t->host) printf("CUDA_VISIBLE_DEVICES=%s ", t->cards);
    for (char **e = t->host ? NULL : t->environ; e && *e; e++)
      if (str_starts(*e, "TF_CONFIG=")) {
        fputs("TF_CONFIG=", stdout);
        put_quoted(*e + strlen("TF_CONFIG="));
        putchar(' ');
      }
    for (char **a = t->argv; *a; a++) {
      put_quoted(*a);
      putchar(a[1] ? ' ' : '\n');
    }
  }
}

/* Has one of the flags that we appended been refused? Programs say so in many words, but all name it in the same line.
 * (A line of usage that names it says that it is taken.) */
static bool refuses_flags(const struct launch_job *j, const struct launch_task *t) {
  static const char *const flags[] = {"ps_hosts", "worker_hosts", "job_name", "task_index", "chief_hosts"};
  static const char *const words[] = {"unrecogni",      "unknown",    "invalid", "no flag",     "not defined",
                                      "no such option", "unexpected", "illegal", "unsupported", "did you mean"};
  if (!j->flags || serves(j, t)) return false;
  size_t first = t->n_lines > LAUNCH_TAIL ? t->n_lines - LAUNCH_TAIL : 0;
  for (size_t k = first; k < t->n_lines; k++) {
    const char *line = t->tail[k % LAUNCH_TAIL];
    bool flag = false, word = false;
    for (size_t i = 0; i < COUNT_OF(flags); i++) flag = flag || strstr(line, flags[i]);
    for (size_t i = 0; i < COUNT_OF(words); i++) word = word || strcasestr(line, words[i]);
    if (flag && word) return true;
  }
  return false;
}

static const char what_to_do[] =
    "a program that reads TF_CONFIG alone is started with --flags=false; one whose flags have other names is told "
    "where they go: -- PROGRAM --peers={worker_hosts} --me={task_index} (`shoal launch --help`); one that trains in "
    "one "
    "process needs no launcher";

/* Codes that are not the program's, but of what brings it to another host. */
static void hint_of_host(struct launch_job *j, const struct launch_task *t) {
  int code = t->host && WIFEXITED(t->status) && !t->not_started ? WEXITSTATUS(t->status) : 0;
  if (t->host && t->not_started)
    launch_view_say(j, "%s must be a command of this machine (--ssh)", j->slurm ? "srun" : j->ssh ? j->ssh : "ssh");
  if (code == 255 && !j->slurm)
    launch_view_say(j, "ssh did not get there: `ssh %s true` must work from here without a password (--ssh, --hosts)",
                    t->host);
  if (code == 125) launch_view_say(j, "%s has no such folder: tasks run in the folder this is started in", t->host);
  if (code == 126 || code == 127)
    launch_view_say(j, "%s does not have the program: it must be at the same place on every host", t->host);
}

void launch_tell_hint(struct launch_job *j, const struct launch_task *t) {
  hint_of_host(j, t);
  if (refuses_flags(j, t))
    launch_view_say(j,
                    "it seems that the program does not take --ps_hosts, --worker_hosts, --job_name, --task_index: %s",
                    what_to_do);
}

void launch_tell_early_ps(struct launch_job *j, const struct launch_task *t) {
  launch_view_say(j,
                  "%s has ended by itself before those that train, as no parameter server does: does the program know "
                  "which task it is? %s",
                  t->name, what_to_do);
}

static bool state_file(const struct launch_job *j, struct stat *st) {
  const char *folder = checkpoint_folder(j);
  char *path = folder ? mem_printf("%s/checkpoint", folder) : NULL;
  bool there = path && !stat(path, st);
  free(path);
  return there;
}

void launch_tell_begin(struct launch_job *j) {
  if (!state_file(j, &j->state_before)) j->state_before.st_nlink = 0;
}

void launch_tell_saved(struct launch_job *j, bool always) {
  const char *folder = checkpoint_folder(j);
  if (!folder || claim_is_held(folder)) return; /* all of ours have ended: what is there is another run's */
  /* With tasks on other hosts the folder may be shared or not: what is here counts, what is not here says nothing. */
  always = always && !(j->tasks.n && j->tasks.at[0].host);
  struct stat st;
  const struct stat *before = &j->state_before;
  bool there = state_file(j, &st), fresh = there && (!before->st_nlink || st.st_ino != before->st_ino ||
                                                     memcmp(&st.st_mtim, &before->st_mtim, sizeof st.st_mtim) != 0);
  char *newest = there ? shoal_latest_checkpoint(folder) : NULL;
  int64_t step = checkpoint_step(newest), lost = step >= 0 ? j->step - step : 0;
  if (fresh && newest && lost > 0)
    launch_view_say(j, "saved: %s; the same command goes on from there: at least %lld steps are lost", newest,
                    (long long)lost);
  else if (fresh && newest) launch_view_say(j, "saved: %s; the same command goes on from there", newest);
  else if (always && newest)
    launch_view_say(j, "nothing was saved in this run; the same command goes on from %s, which is older", newest);
  else if (always) launch_view_say(j, "nothing was saved in %s: the same command begins anew", folder);
  free(newest);
}

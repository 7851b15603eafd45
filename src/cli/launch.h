/* What the files of `shoal launch` share: the tasks of a job, from their description to their end.
 *
 *   launch.c          flags; the two processes that watch each other
 *   launch_cluster.c  which tasks, on which ports; what each is told: TF_CONFIG, flags, environment
 *   launch_cards.c    which of their machine's cards tasks see
 *   launch_hosts.c    tasks on other machines, by ssh or by srun
 *   launch_run.c      starting, watching, starting again, stopping
 *   launch_output.c   their output: prefixes, last lines
 *   launch_view.c     how far they are: the view on a terminal
 *   launch_tell.c     what is said of the job: the plan, hints, what was saved
 *   launch_process.c  processes and their descendants */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/status.h"
#include "base/text.h"
#include "base/vec.h"
#include "cli/cli.h"
#include "train/progress.h"

enum launch_role { ROLE_PS, ROLE_CHIEF, ROLE_WORKER, ROLE_EVALUATOR };
enum launch_state {
  TASK_WAITING, /* to be started at `due` */
  TASK_RUNNING,
  TASK_ENDED, /* for good */
};

enum { LAUNCH_TAIL = 20, LAUNCH_MAX_TASKS = 1000 /* of a job */ };

/* One pipe from a task: what has come since the last end of a line. */
struct launch_stream {
  int fd; /* -1: closed */
  bool is_error;
  struct text line;
};

struct launch_task {
  enum launch_role role;
  const char *job; /* the role's name in TensorFlow's words */
  int index;
  char name[48];          /* "worker/0" */
  const char *host;       /* NULL: this machine; else what ssh is given; owned by the job */
  char *address;          /* "host:port"; the evaluator has none */
  char *cards;            /* CUDA_VISIBLE_DEVICES; NULL: as it is */
  char **argv, **environ; /* what is executed here, be it ssh */

  enum launch_state state;
  pid_t pid;   /* of the process, and of its group */
  int control; /* to the other machine: signals by name; -1 for tasks of this one */
  int64_t started, ended, due, stop_by;
  int signal; /* the last one sent in order to stop it */
  int status; /* as waitpid gave it, when ended */
  int restarts;
  bool not_started;                    /* what is executed here could not be */
  bool listened;                       /* it said so: it is a server */
  const struct launch_task *waits_for; /* one that has ended: it would wait for ever */

  struct launch_stream streams[2];
  char *tail[LAUNCH_TAIL]; /* its last lines, a ring */
  size_t n_lines;
  bool tail_told;          /* the last of them was progress */
  char *progress;          /* what it said last of how far it is, in words of its own */
  struct progress_line at; /* or in ours */
  int64_t at_when;         /* when; 0: never */
};

struct launch_job {
  /* asked for */
  int64_t ps, workers, restarts, grace, evaluator_wait, port;
  int64_t gpus_per_task; /* -1: nothing was said, tasks see all of them */
  bool chief, evaluator, ps_server, flags, view, slurm, requeue, dry_run, insecure_bind_all;
  const char *hosts_file, *ssh, *log_dir, *forward; /* forward: names of variables for other machines */
  const char *remote_shoal;                         /* the command on other machines; NULL: where it is here */
  struct tls_flags tls;
  bool one_rank;  /* this process becomes one task; nobody watches over the others */
  char **program; /* ends with NULL */
  /* found out */
  VEC(struct launch_task) tasks; /* ps, chief, workers, evaluator */
  VEC(char *) hosts;
  int64_t began;
  struct stat state_before; /* the folder's state file as it was at the start; no st_nlink: there was none */
  int stop_signal;          /* the launcher was told to stop by it */
  int64_t stop_since;       /* when it came */
  int exit_code;
  struct launch_task *failed; /* the first that failed for good */
  struct launch_view *output;
  /* the whole job's progress: the furthest step, the last one, how fast it goes */
  int64_t step, last, step_when;
  struct progress_rate rate;
};

/* ---- launch_cluster.c ---- */
/* Lists the tasks, finds them ports and writes what each is told. */
shoal_status launch_job_plan(struct launch_job *j);
/* The four flags or the placeholders, and TF_CONFIG, for a task whose addresses are known. */
void launch_task_command(struct launch_job *j, struct launch_task *t, char ***argv, struct text *tf_config);
/* "host:port,host:port" of a job. */
void launch_addresses(const struct launch_job *j, enum launch_role role, struct text *out);
/* {"ps": ["host:port", ...], ...}. */
/* A port of this host that nobody has, and that no other launcher takes while this process lives. */
shoal_status launch_take_port(int *port);
void launch_cluster_json(const struct launch_job *j, struct text *out);
const char *launch_role_name(enum launch_role role);
void launch_job_release(struct launch_job *j);
void strings_free(char **list);
/* A copy of this environment with TF_CONFIG and the task's cards. */
char **launch_task_environ(const struct launch_task *t, const char *tf_config);

/* ---- launch_cards.c ---- */
/* Gives every task its cards, once it has its host. */
shoal_status launch_cards_deal(struct launch_job *j);

/* ---- launch_hosts.c ---- */
/* Reads the hosts file, or Slurm's environment, and gives every task its host and address. */
shoal_status launch_hosts_assign(struct launch_job *j);
/* Wraps the command of a task on another host. */
void launch_hosts_wrap(const struct launch_job *j, struct launch_task *t, char **argv, const char *tf_config);
/* Slurm's "node[1-3,07],login" as one name each. */
shoal_status launch_hosts_expand(struct launch_job *j, const char *list);
/* True inside `srun`: this process is one of the tasks; its number. */
bool launch_inside_step(int64_t *rank, int64_t *tasks);

/* ---- launch_process.c ---- */
/* A child in a process group of its own that dies with this process; its output comes through pipes. The error names
 * the program. */
shoal_status process_start(char *const *argv, char *const *variables, bool control, pid_t *pid, int *out, int *err,
                           int *to);
/* Makes orphans among the descendants children of this process. */
void process_adopt_orphans(void);
/* Kills every descendant, whatever group or session it has fled to, and waits for them. */
void process_kill_descendants(void);

/* ---- launch_output.c ---- */
struct launch_view;
shoal_status launch_view_open(struct launch_job *j, struct launch_view **out);
/* Reads what there is; closes the stream at its end. */
void launch_view_read(struct launch_job *j, struct launch_task *t, struct launch_stream *s);
/* A line of the launcher's own. */
void launch_view_say(struct launch_job *j, const char *fmt, ...) SHOAL_PRINTF(2, 3);
/* The task's last lines. */
void launch_view_tail(struct launch_job *j, const struct launch_task *t);
/* Hands on what was written, and draws the view when it is time. last: removes the view. */
void launch_view_flush(struct launch_job *j, bool last);
void launch_view_close(struct launch_view *v);

/* ---- launch_view.c ---- */
/* Is the line one of progress? Then it is taken in. */
bool launch_progress_take(struct launch_job *j, struct launch_task *t, const char *line);
/* The whole job as one line of progress; false: nobody has told of any. */
bool launch_progress_job(const struct launch_job *j, struct progress_line *out);
/* Draws; returns the number of lines. widest: of the tasks' names. */
int launch_view_draw(const struct launch_job *j, int widest);

/* ---- launch_tell.c ---- */
void launch_tell_plan(struct launch_job *j);
/* What would be run, as a shell would be given it. */
void launch_tell_commands(const struct launch_job *j);
/* After a failure: does the program not take the flags? */
void launch_tell_hint(struct launch_job *j, const struct launch_task *t);
/* A ps that ended with success before anybody who trains. */
void launch_tell_early_ps(struct launch_job *j, const struct launch_task *t);
/* Remembers what there is before the start. */
void launch_tell_begin(struct launch_job *j);
/* Which checkpoint there is to go on from, and whether this run wrote it. always: also that there is none. */
void launch_tell_saved(struct launch_job *j, bool always);

/* ---- launch_run.c ---- */
/* A line of a task that may say for whom it waits. */
void launch_watch_line(struct launch_job *j, struct launch_task *t, const char *line);
/* Runs the job to its end; returns its exit code. life: a pipe that ends when nobody waits for the job any more. */
int launch_run(struct launch_job *j, int life);

#endif

/* `shoal launch`: a whole cluster by one command, on this machine or on several.
 *
 * Two processes, so that nothing is ever left behind: the one the user started only waits; its child does the work. If
 * the first is killed, the second sees the end of a pipe and kills every descendant; if the second is killed, the first
 * inherits the orphans and kills them. (Who kills both at once leaves only what the tasks themselves have started, for
 * the tasks die with their parent.) */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/jobs.h"
#include "cli/launch.h"

static volatile pid_t keeper;
static volatile int signals_seen;

/* Hands signals on. A keeper that does not react to three (its output may be stuck) is killed. */
static void hand_on(int sig) {
  int saved = errno;
  if (keeper > 0) kill(keeper, ++signals_seen > 3 ? SIGKILL : sig);
  errno = saved;
}

static int wait_for_keeper(void) {
  int status;
  while (waitpid(keeper, &status, 0) < 0 && errno == EINTR) continue;
  process_kill_descendants();
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  fprintf(stderr, "launch: killed by signal %d; all tasks were killed too\n", WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

static int run_watched(struct launch_job *j, struct job_file *told) {
  static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  int life[2];
  if (pipe2(life, O_CLOEXEC)) return report(ERRNO_STATUS(errno, "no pipe"));
  process_adopt_orphans();
  fflush(NULL);
  /* Until the keeper is known, and in the keeper until it is ready for them, signals wait. */
  sigset_t mask, before;
  sigemptyset(&mask);
  for (size_t i = 0; i < COUNT_OF(handed_on); i++) sigaddset(&mask, handed_on[i]);
  sigprocmask(SIG_BLOCK, &mask, &before);
  pid_t pid = fork();
  if (pid < 0) return report(ERRNO_STATUS(errno, "no process"));
  if (!pid) {
    setpgid(0, 0); /* Ctrl-C comes to the other process alone, which hands it on once */
    close(life[1]);
    signal(SIGTTOU, SIG_IGN);
    int code = launch_run(j, life[0]);
    launch_job_release(j);
    job_file_let_go(told);
    exit(code);
  }
  keeper = pid;
  close(life[0]);
  struct sigaction a = {.sa_handler = hand_on, .sa_flags = SA_RESTART};
  sigemptyset(&a.sa_mask);
  for (size_t i = 0; i < COUNT_OF(handed_on); i++) sigaction(handed_on[i], &a, NULL);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return wait_for_keeper();
}

/* One rank of an srun: becomes its task. Slurm does the rest. */
static int run_rank(struct launch_job *j, int64_t rank) {
  if (rank < 0 || rank >= (int64_t)j->tasks.n) return report(INVALID("SLURM_PROCID=%ld is no rank", (long)rank));
  struct launch_task *t = &j->tasks.at[rank];
  struct text tf_config = {0};
  char **argv;
  launch_task_command(j, t, &argv, &tf_config);
  setenv("TF_CONFIG", text_cstr(&tf_config), 1);
  if (t->cards) setenv("CUDA_VISIBLE_DEVICES", t->cards, 1);
  text_release(&tf_config);
  execvp(argv[0], argv);
  report(ERRNO_STATUS(errno, "cannot run %s", argv[0]));
  return EXIT_NOT_RUN;
}

/* Would the program be found? Better said once, before anything is started. */
static shoal_status check_program(const struct launch_job *j) {
  const char *name = j->program[0], *path = getenv("PATH");
  struct stat st;
  if (strchr(name, '/') && !stat(name, &st) && S_ISDIR(st.st_mode))
    return INVALID("cannot run %s: it is a folder; name the program in it", name);
  if (strchr(name, '/') && access(name, X_OK))
    return errno == EACCES && !access(name, R_OK)
               ? NOT_FOUND("cannot run %s: it is not executable: chmod +x, or name what runs it, as in -- python3 %s",
                           name, name)
               : ERRNO_STATUS(errno, "cannot run %s", name);
  if (strchr(name, '/')) return NULL;
  char *list = mem_strdup(path ? path : "/usr/bin:/bin"), *rest = list;
  bool found = false;
  for (char *folder; !found && (folder = strsep(&rest, ":"));) {
    char *file = mem_printf("%s/%s", *folder ? folder : ".", name);
    found = access(file, X_OK) == 0;
    free(file);
  }
  free(list);
  if (!found && strchr(name, ' '))
    return NOT_FOUND("cannot run \"%s\": the program and its arguments are words of their own: -- PROGRAM ARG ...",
                     name);
  return found ? NULL : NOT_FOUND("cannot run %s: it is not in PATH (a program in this folder is ./%s)", name, name);
}

/* For `shoal status`. */
static struct job_file *tell_of_job(const struct launch_job *j) {
  struct text cluster = {0}, program = {0};
  launch_cluster_json(j, &cluster);
  for (char **a = j->program; *a; a++) text_addf(&program, "%s%s", a > j->program ? " " : "", *a);
  struct job_file *f = job_file_open(text_cstr(&cluster), text_cstr(&program));
  text_release(&cluster);
  text_release(&program);
  return f;
}

static const char usage[] =
    "shoal launch [--ps=N] [--workers=N] [--chief] [--evaluator] [flags] -- PROGRAM [ARG...]\n\n"
    "Starts PROGRAM once for every task of a cluster, on free ports of this machine, and waits for the chief and the\n"
    "workers. Each task finds TF_CONFIG in its environment and --ps_hosts, --worker_hosts, --job_name, --task_index\n"
    "behind its arguments; where an argument holds {ps_hosts}, {worker_hosts}, {chief_hosts}, {job_name}, "
    "{task_index}\n"
    "or {cluster_spec}, these are filled in there instead. The exit code is that of the first task that failed.";

/* A flag that would do nothing is a mistake; NULL: there is none. */
static const char *misplaced(const struct launch_job *j) {
  if (j->hosts_file && j->slurm) return "--hosts or --slurm, not both";
  if (j->requeue && !j->slurm) return "--requeue is for --slurm";
  if (j->evaluator_wait >= 0 && !j->evaluator) return "--evaluator_wait is for --evaluator";
  if (j->ssh && !j->hosts_file) return "--ssh is for --hosts";
  if (j->remote_shoal && !j->hosts_file && !j->slurm) return "--remote_shoal is for --hosts and --slurm";
  if (j->forward && !j->hosts_file && !j->slurm)
    return "--env is for --hosts and --slurm: on this machine tasks have the launcher's environment";
  if ((j->log_dir && *j->log_dir == '~') || (j->hosts_file && *j->hosts_file == '~'))
    return "shells do not put a folder for ~ behind =: write $HOME";
  if (!j->tls.cert != !j->tls.key) return "--tls_cert and --tls_key go together: one of them is missing";
  if (j->insecure_bind_all && !j->ps_server)
    return "--insecure_bind_all is for --ps_server; the program's own flag of that name stands behind --";
  return NULL;
}

int launch_main(int argc, char **argv) {
  struct launch_job j = {
      .ps = 1, .workers = 2, .grace = 30, .evaluator_wait = -1, .gpus_per_task = -1, .flags = true, .view = true};
  const struct flag flags[] = {
      {"ps", "N", "parameter servers (default 1)", .number = &j.ps, .max = LAUNCH_MAX_TASKS},
      {"workers", "N", "workers (default 2)", .number = &j.workers, .max = LAUNCH_MAX_TASKS},
      {"chief", NULL, "a task of the job \"chief\" besides, as Estimators want it", .on = &j.chief},
      {"evaluator", NULL, "a task \"evaluator\", outside of the cluster", .on = &j.evaluator},
      {"restarts", "N", "start a failed task again, each at most N times (default 0)", .number = &j.restarts,
       .max = 1000000},
      {"gpus_per_task", "N", "cards that each task but a ps sees; a ps sees none (default: all see all)",
       .number = &j.gpus_per_task, .max = 64},
      {"ps_server", NULL, "ps tasks run `shoal server` instead of PROGRAM", .on = &j.ps_server},
      {"flags", NULL, "the four flags (default true; --flags=false: TF_CONFIG alone)", .on = &j.flags},
      {"grace", "SECONDS", "from asking a task to end to killing it (default 30)", .number = &j.grace, .max = 1000000},
      {"evaluator_wait", "SECONDS", "what an evaluator has after the workers' end (default 60)",
       .number = &j.evaluator_wait, .max = 1000000},
      {"log_dir", "DIR", "write each task's output to DIR/JOB-N.log too", .text = &j.log_dir},
      {"view", NULL, "on a terminal, a line for each task below (default true)", .on = &j.view},
      {"port", "N", "ports from N on (default: free ones; on other hosts from 2222 on)", .number = &j.port, .min = 1,
       .max = 65535 - 3 * LAUNCH_MAX_TASKS},
      {"hosts", "FILE", "run on these hosts, by ssh: HOST [ps|chief|worker|evaluator ...] a line",
       .text = &j.hosts_file},
      {"ssh", "COMMAND", "in place of `ssh -o BatchMode=yes`", .text = &j.ssh},
      {"env", "NAME,...", "variables to hand on to other hosts", .text = &j.forward},
      {"remote_shoal", "PATH", "this command on other hosts (default: where it is here)", .text = &j.remote_shoal},
      {"insecure_bind_all", NULL, "with --ps_server on other hosts: listen there without TLS",
       .on = &j.insecure_bind_all},
      TLS_FLAGS(j.tls),
      {"dry_run", NULL, "only show what would be run", .on = &j.dry_run},
      {"slurm", NULL, "run on Slurm's allocation: in sbatch or salloc as it is, or under srun", .on = &j.slurm},
      {"requeue", NULL, "with --slurm in sbatch: back into the queue when the tasks say \"run me again\" (75)",
       .on = &j.requeue},
  };
  int split = 1, code;
  while (split < argc && strcmp(argv[split], "--") != 0) split++;
  bool have_program = split + 1 < argc;
  j.program = have_program ? &argv[split + 1] : NULL;
  argc = split;
  argv[split] = NULL;
  if (!flags_parse(usage, flags, (int)COUNT_OF(flags), &argc, argv, &code)) {
    if (code == EXIT_USAGE && !have_program)
      fprintf(stderr,
              "shoal: launch: flags of the program stand behind --: shoal launch --workers=2 -- PROGRAM --x=1\n");
    return code;
  }
  if (argc > 1 || !have_program) {
    fprintf(stderr, "shoal: launch: %s%s%s\n",
            argc > 1 ? "put -- before the program: shoal launch --workers=2 -- " : "",
            argc > 1 ? argv[1] : "which program? shoal launch --workers=2 -- PROGRAM [ARG...]", argc > 1 ? " ..." : "");
    return EXIT_USAGE;
  }
  const char *other = misplaced(&j);
  if (other) {
    fprintf(stderr, "shoal: launch: %s\n", other);
    return EXIT_USAGE;
  }
  if (j.evaluator_wait < 0) j.evaluator_wait = 60;
  tls_flags_use(&j.tls);
  int64_t rank, ranks;
  bool one_rank = j.one_rank = j.slurm && launch_inside_step(&rank, &ranks);
  shoal_status s = one_rank || j.hosts_file ? NULL : check_program(&j);
  if (s) {
    report(s);
    return EXIT_NOT_RUN;
  }
  s = launch_job_plan(&j);
  if (!s && j.dry_run) {
    launch_tell_commands(&j);
    launch_job_release(&j);
    return EXIT_OK;
  }
  if (!s && one_rank) return run_rank(&j, rank);
  if (!s) s = launch_view_open(&j, &j.output);
  struct job_file *told = s ? NULL : tell_of_job(&j);
  if (s) { /* nothing was begun */
    report(s);
    code = EXIT_USAGE;
  } else code = run_watched(&j, told);
  job_file_close(told);
  launch_job_release(&j);
  return code;
}

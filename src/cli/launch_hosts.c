/* Tasks on other machines, by ssh or, in an allocation of Slurm, by srun.
 *
 * A hosts file names one host a line, as ssh would be given it, with the tasks it shall run or without:
 *
 *   # ps on the first, workers on the others            # or only names: tasks are dealt to them in turn
 *   cpu1      ps                                         node1
 *   me@gpu1   worker worker                              node2
 *   gpu2      worker
 *
 * The command runs in the same folder as the launcher. Killing ssh does not kill what it started; so on the other
 * machine a few lines of shell start the task in a session of its own and then read signals from standard input: "TERM"
 * is passed on to the task's group, and the end of the input, be it that the launcher or the connection died, kills it.
 * Signals that come to these lines themselves (Slurm sends them to all processes of a step, the task too) do not end
 * them: the task's own exit code is what counts.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/launch.h"

enum { DEFAULT_PORT = 2222, MAX_HOSTS = 4096 };

/* $1: the folder; then NAME=VALUE ... PROGRAM ARG ... as env takes them. */
static const char remote_script[] =
    "cd \"$1\" || exit 125; shift; exec 3<&0 </dev/null; setsid env \"$@\" 3<&- & p=$!; "
    "s() { kill -s \"$1\" -- \"-$p\" || kill -s \"$1\" \"$p\"; }; "
    "{ trap '' TERM INT HUP; while read -r x; do s \"$x\"; done; s KILL; } <&3 >/dev/null 2>&1 & w=$!; exec 3<&-; "
    "trap : TERM INT HUP; while wait \"$p\"; c=$?; kill -0 \"$p\" 2>/dev/null; do :; done; "
    "kill -s KILL -- \"-$p\" 2>/dev/null; kill -s KILL \"$w\" 2>/dev/null; exit $c";

/* For a shell: in single quotes, in which nothing but the quote itself is special. */
static void quote(struct text *out, const char *s) {
  text_addc(out, '\'');
  for (; *s; s++) {
    if (*s == '\'') text_adds(out, "'\\''");
    else text_addc(out, *s);
  }
  text_addc(out, '\'');
}

static void add_variable(char ***at, const char *name) {
  const char *value = getenv(name);
  if (value) *(*at)++ = mem_printf("%s=%s", name, value);
}

/* "sh -c SCRIPT sh FOLDER NAME=VALUE... PROGRAM ARG..."; takes argv over. */
static char **remote_command(const struct launch_job *j, const struct launch_task *t, char **argv,
                             const char *tf_config) {
  size_t n = 0, names = 0;
  while (argv[n]) n++;
  for (const char *c = j->forward; c && *c; c++) names += *c == ',';
  char **out = mem_zalloc(n + names + 16, sizeof *out), **at = out;
  char folder[4096];
  *at++ = mem_strdup("sh");
  *at++ = mem_strdup("-c");
  *at++ = mem_strdup(remote_script);
  *at++ = mem_strdup("sh");
  *at++ = mem_strdup(getcwd(folder, sizeof folder) ? folder : ".");
  *at++ = mem_printf("TF_CONFIG=%s", tf_config);
  *at++ = mem_strdup("PYTHONUNBUFFERED=1");
  if (t->cards) *at++ = mem_printf("CUDA_VISIBLE_DEVICES=%s", t->cards);
  char *list = mem_strdup(j->forward ? j->forward : ""), *rest = list;
  for (char *name; (name = strsep(&rest, ","));)
    if (*name) add_variable(&at, name);
  free(list);
  static const char *const tls[] = {"SHOAL_TLS_CERT", "SHOAL_TLS_KEY", "SHOAL_TLS_CA"};
  for (size_t i = 0; i < COUNT_OF(tls); i++) add_variable(&at, tls[i]);
  for (size_t i = 0; i < n; i++) *at++ = argv[i];
  free(argv);
  return out;
}

void launch_hosts_wrap(const struct launch_job *j, struct launch_task *t, char **argv, const char *tf_config) {
  char **command = remote_command(j, t, argv, tf_config);
  VEC(char *) out = {0};
  if (j->slurm) {
    static const char *const srun[] = {"srun", "--nodes=1", "--ntasks=1", "--overlap", "--unbuffered"};
    for (size_t i = 0; i < COUNT_OF(srun); i++) vec_push(&out, mem_strdup(srun[i]));
    vec_push(&out, mem_printf("--nodelist=%s", t->host));
    for (char **c = command; *c; c++) vec_push(&out, mem_strdup(*c));
  } else {
    /* One argument, which the login shell over there takes apart again. */
    struct text line = {0};
    text_adds(&line, "exec");
    for (char **c = command; *c; c++) {
      text_addc(&line, ' ');
      quote(&line, *c);
    }
    char *words = mem_strdup(j->ssh ? j->ssh : "ssh -o BatchMode=yes"), *rest = words;
    for (char *word; (word = strsep(&rest, " "));)
      if (*word) vec_push(&out, mem_strdup(word));
    free(words);
    vec_push(&out, mem_strdup(t->host));
    vec_push(&out, text_take(&line));
  }
  strings_free(command);
  vec_push(&out, NULL);
  t->argv = out.at;
  t->environ = launch_task_environ(t, tf_config);
}

/* ---- Slurm ---- */

bool launch_inside_step(int64_t *rank, int64_t *tasks) {
  const char *r = getenv("SLURM_PROCID"), *n = getenv("SLURM_STEP_NUM_TASKS");
  return r && n && str_to_int64(r, rank) && str_to_int64(n, tasks);
}

static shoal_status add_host(struct launch_job *j, char *name) {
  vec_push(&j->hosts, name);
  if (j->hosts.n > MAX_HOSTS) return INVALID("more than %d hosts", MAX_HOSTS);
  return NULL;
}

/* prefix[1-3,07]suffix: one name for each number, with as many digits as the first of its range has. */
static shoal_status expand_one(struct launch_job *j, const char *item, size_t n) {
  char *text = mem_strndup(item, n), *open = strchr(text, '['), *end = open ? strchr(open, ']') : NULL;
  shoal_status s = NULL;
  if (!open) return add_host(j, text);
  if (!end || strchr(end, '[')) {
    s = UNIMPLEMENTED("the node list \"%s\": one pair of brackets a name is understood", text);
    free(text);
    return s;
  }
  *open = *end = 0;
  for (char *rest = open + 1, *range; !s && (range = strsep(&rest, ","));) {
    char *dash = strchr(range, '-');
    int64_t first, last;
    if (dash) *dash = 0;
    int digits = (int)strlen(range);
    if (!str_to_int64(range, &first) || !str_to_int64(dash ? dash + 1 : range, &last) || first < 0 || last < first ||
        last - first > MAX_HOSTS) {
      s = INVALID("the node list \"%.*s\" is none", (int)n, item);
      break;
    }
    for (int64_t i = first; i <= last && !s; i++)
      s = add_host(j, mem_printf("%s%0*ld%s", text, digits, (long)i, end + 1));
  }
  free(text);
  return s;
}

shoal_status launch_hosts_expand(struct launch_job *j, const char *list) {
  int depth = 0;
  const char *from = list;
  for (const char *c = list;; c++) {
    if (*c == '[') depth++;
    if (*c == ']') depth--;
    if (*c && (*c != ',' || depth > 0)) continue;
    if (c > from) TRY(expand_one(j, from, (size_t)(c - from)));
    if (!*c) return NULL;
    from = c + 1;
  }
}

/* ---- who runs where ---- */

/* A task at the next port of its host. The address is the host's name without "user@", an IPv6 host's in brackets. */
static void place(struct launch_job *j, struct launch_task *t, size_t host, int *used) {
  const char *name = j->hosts.at[host], *at = strrchr(name, '@'), *bare = at ? at + 1 : name;
  bool v6 = strchr(bare, ':') != NULL;
  t->host = name;
  if (t->role == ROLE_EVALUATOR) return;
  /* Two lines may name one host. */
  size_t same = 0;
  while (strcmp(j->hosts.at[same], name) != 0) same++;
  t->address = mem_printf("%s%s%s:%d", v6 ? "[" : "", bare, v6 ? "]" : "",
                          (int)(j->port ? j->port : DEFAULT_PORT) + used[same]++);
}

static struct launch_task *unplaced(struct launch_job *j, const char *job) {
  for (size_t i = 0; i < j->tasks.n; i++)
    if (!j->tasks.at[i].host && !strcmp(j->tasks.at[i].job, job)) return &j->tasks.at[i];
  return NULL;
}

/* The first word of a line, as ssh shall be given it: that knows no brackets around IPv6 hosts. */
static shoal_status add_named_host(struct launch_job *j, const char *word, int number) {
  const char *at = strrchr(word, '@'), *bare = at ? at + 1 : word, *colon = strchr(bare, ':');
  size_t n = strlen(bare);
  bool bracketed = *bare == '[' && bare[n - 1] == ']';
  if (*word == '-' || !n) return INVALID("%s:%d: \"%s\" is no host", j->hosts_file, number, word);
  if (!bracketed && colon && (colon == strrchr(bare, ':') || strchr(bare, '[')))
    return INVALID("%s:%d: \"%s\" has a port: servers' ports are given by --port, ssh's by --ssh='ssh -p N'",
                   j->hosts_file, number, word);
  return add_host(
      j, bracketed ? mem_printf("%.*s%.*s", (int)(bare - word), word, (int)n - 2, bare + 1) : mem_strdup(word));
}

static shoal_status read_line(struct launch_job *j, char *line, int number, int *used, bool *named) {
  char *words = line, *word;
  line[strcspn(line, "#\r")] = 0;
  bool have_host = false;
  while ((word = strsep(&words, " \t"))) {
    if (!*word) continue;
    if (!have_host) {
      TRY(add_named_host(j, word, number));
      have_host = true;
      continue;
    }
    struct launch_task *t = unplaced(j, word);
    if (!t)
      return INVALID(
          "%s:%d: there is no (further) task \"%s\" in this job of %ld ps and %ld workers; expected ps, "
          "chief, worker or evaluator, each as often as the flags say",
          j->hosts_file, number, word, (long)j->ps, (long)j->workers);
    place(j, t, j->hosts.n - 1, used);
    *named = true;
  }
  return NULL;
}

static shoal_status read_hosts(struct launch_job *j, int *used, bool *named) {
  char *text;
  size_t size;
  shoal_status s = file_read(j->hosts_file, 1 << 20, &text, &size);
  if (s) return status_prefix(s, "--hosts, a file with one host a line, cannot be read: ");
  int number = 1;
  for (char *rest = text, *line; !s && (line = strsep(&rest, "\n")); number++)
    s = read_line(j, line, number, used, named);
  free(text);
  return s;
}

/* Inside `srun`: task i is rank i, which runs where Slurm has put it: "2(x3),1" tasks on the step's nodes, in order. */
static shoal_status place_ranks(struct launch_job *j, int64_t ranks, int *used) {
  if (ranks != (int64_t)j->tasks.n)
    return INVALID(
        "srun started %ld tasks, but this job has %zu: %ld ps, %d chief, %ld workers, %d evaluator; say srun "
        "--ntasks=%zu",
        (long)ranks, j->tasks.n, (long)j->ps, j->chief, (long)j->workers, j->evaluator, j->tasks.n);
  const char *nodes = getenv("SLURM_STEP_NODELIST"), *counts = getenv("SLURM_STEP_TASKS_PER_NODE");
  if (!nodes || !counts) return INVALID("--slurm: SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE are not set");
  TRY(launch_hosts_expand(j, nodes));
  size_t node = 0, task = 0;
  for (const char *c = counts; *c && task < j->tasks.n;) {
    int n = 0, times = 1, length = 0;
    if (sscanf(c, "%d%n", &n, &length) != 1 || n < 0) break;
    c += length;
    if (sscanf(c, "(x%d)%n", &times, &length) == 1 && c[0] == '(') c += length;
    for (; times > 0 && node < j->hosts.n; times--, node++)
      for (int k = 0; k < n && task < j->tasks.n; k++) place(j, &j->tasks.at[task++], node, used);
    if (*c != ',') break;
    c++;
  }
  if (task == j->tasks.n) return NULL;
  return INVALID("--slurm: SLURM_STEP_TASKS_PER_NODE=%s has fewer than the %zu tasks of this job", counts, j->tasks.n);
}

shoal_status launch_hosts_assign(struct launch_job *j) {
  int64_t rank, tasks;
  int *used = mem_zalloc(MAX_HOSTS + 1, sizeof *used);
  bool named = false;
  shoal_status s = NULL;
  vec_reserve(&j->hosts, MAX_HOSTS + 1); /* tasks point to names, not to the list; the list is searched while growing */
  if (j->hosts_file) {
    s = read_hosts(j, used, &named);
  } else if (launch_inside_step(&rank, &tasks)) {
    s = place_ranks(j, tasks, used);
  } else {
    const char *list = getenv("SLURM_JOB_NODELIST");
    if (j->requeue && !getenv("SLURM_JOB_ID")) list = NULL;
    s = list ? launch_hosts_expand(j, list)
             : INVALID("--slurm: no allocation here (SLURM_JOB_NODELIST is not set): run it in sbatch, salloc or srun");
  }
  if (!s && !j->hosts.n) s = INVALID("%s names no host", j->hosts_file ? j->hosts_file : "SLURM_JOB_NODELIST");
  for (size_t i = 0, turn = 0; i < j->tasks.n && !s; i++) {
    if (j->tasks.at[i].host) continue;
    if (named)
      s = INVALID("%s: no host runs %s; name it beside one, or name no tasks at all", j->hosts_file,
                  j->tasks.at[i].name);
    else place(j, &j->tasks.at[i], turn++ % j->hosts.n, used);
  }
  free(used);
  return s;
}

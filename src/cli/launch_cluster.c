/* Which tasks a job has, where they listen, and what each of them is told.
 *
 * Every task is told twice, for the two habits there are: by TF_CONFIG in its environment, and by the flags --ps_hosts,
 * --worker_hosts, --job_name and --task_index after its own arguments. A program that reads TF_CONFIG alone and refuses
 * flags it does not know is launched with --flags=false; one that calls them otherwise says how: where an argument
 * holds {ps_hosts}, {worker_hosts}, {job_name} or {task_index}, these are filled in and nothing is appended.
 *
 * Ports. Between finding a free port and the task's binding it lies a moment in which another program could take it. A
 * socket that holds it meanwhile was rejected: TensorFlow's servers bind without SO_REUSEPORT and would be refused. So
 * ports are taken from below the range out of which the system gives ports by itself, after a trial bind; and of other
 * launchers each port is guarded by a local socket in the abstract name space, which lives as long as the job and
 * vanishes with it, also when it is killed. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/launch.h"
#include "cluster/cluster_spec.h"

extern char **environ;

enum { FIRST_PORT = 20000 };

static const char *const role_names[] = {"ps", "chief", "worker", "evaluator"};

const char *launch_role_name(enum launch_role role) { return role_names[role]; }

void strings_free(char **list) {
  for (char **p = list; p && *p; p++) free(*p);
  free(list);
}

/* The first port that the system would give away by itself. */
static int last_port(void) {
  char *text = NULL;
  size_t size;
  int first = 0;
  shoal_status s = file_read("/proc/sys/net/ipv4/ip_local_port_range", 256, &text, &size);
  if (!s) first = atoi(text);
  shoal_status_free(s);
  free(text);
  return first > FIRST_PORT + 2 * LAUNCH_MAX_TASKS ? first : 32768;
}

static bool can_bind(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  a.sin_addr.s_addr = htonl(INADDR_ANY);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  bool can = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1);
  if (fd >= 0) close(fd);
  return can;
}

/* Tells other launchers that the port is ours, for as long as this process lives. Told before the port is tried: trying
 * one that another launcher has chosen would take it from its task for a moment. */
static bool claim(int port) {
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "shoal-launch-port-%d", port);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
  if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, size) && can_bind(port)) return true;
  if (fd >= 0) close(fd);
  return false;
}

shoal_status launch_take_port(int *port) {
  static int at;
  int range = last_port() - FIRST_PORT;
  if (!at) at = (int)((clock_ns() / 1000 + getpid()) % range);
  for (int tried = 0; tried < range; tried++) {
    at = (at + 1) % range;
    if (!claim(FIRST_PORT + at)) continue;
    *port = FIRST_PORT + at;
    return NULL;
  }
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "no free port between %d and %d", FIRST_PORT, FIRST_PORT + range - 1);
}

void launch_addresses(const struct launch_job *j, enum launch_role role, struct text *out) {
  size_t before = out->n;
  for (size_t i = 0; i < j->tasks.n; i++)
    if (j->tasks.at[i].role == role && j->tasks.at[i].address)
      text_addf(out, "%s%s", out->n > before ? "," : "", j->tasks.at[i].address);
}

void launch_cluster_json(const struct launch_job *j, struct text *out) {
  text_adds(out, "{");
  bool first = true;
  for (int role = ROLE_PS; role <= ROLE_WORKER; role++) {
    struct text list = {0};
    for (size_t i = 0; i < j->tasks.n; i++)
      if ((int)j->tasks.at[i].role == role) text_addf(&list, "%s\"%s\"", list.n ? ", " : "", j->tasks.at[i].address);
    if (list.n) text_addf(out, "%s\"%s\": [%s]", first ? "" : ", ", role_names[role], list.at);
    first = first && !list.n;
    text_release(&list);
  }
  text_adds(out, "}");
}

enum { N_VALUES = 6 };
struct value {
  const char *name;
  struct text text;
};

static void collect_values(const struct launch_job *j, const struct launch_task *t, struct value v[N_VALUES]) {
  static const char *const names[N_VALUES] = {"ps_hosts",   "worker_hosts", "job_name",
                                              "task_index", "chief_hosts",  "cluster_spec"};
  for (int i = 0; i < N_VALUES; i++) v[i] = (struct value){names[i], {0}};
  launch_addresses(j, ROLE_PS, &v[0].text);
  launch_addresses(j, ROLE_WORKER, &v[1].text);
  text_adds(&v[2].text, t->job);
  text_addf(&v[3].text, "%d", t->index);
  launch_addresses(j, ROLE_CHIEF, &v[4].text);
  launch_cluster_json(j, &v[5].text);
}

/* arg with {name} replaced; true if there was one. */
static bool fill_in(const char *arg, const struct value *v, struct text *out) {
  bool found = false;
  while (*arg) {
    int i = 0;
    for (; i < N_VALUES; i++) {
      size_t n = strlen(v[i].name);
      if (arg[0] == '{' && !strncmp(arg + 1, v[i].name, n) && arg[1 + n] == '}') break;
    }
    if (i == N_VALUES) {
      text_addc(out, *arg++);
      continue;
    }
    text_adds(out, text_cstr(&v[i].text));
    arg += strlen(v[i].name) + 2;
    found = true;
  }
  return found;
}

/* This very file; on other hosts it is taken to be at the same place, unless told. */
static char *shoal_command(const struct launch_job *j, const struct launch_task *t) {
  char path[4096];
  if (t->host && j->remote_shoal) return mem_strdup(j->remote_shoal);
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  return n > 0 ? mem_strndup(path, (size_t)n) : mem_strdup("shoal");
}

void launch_task_command(struct launch_job *j, struct launch_task *t, char ***argv, struct text *tf_config) {
  VEC(char *) out = {0};
  struct value v[N_VALUES];
  collect_values(j, t, v);
  bool filled = false;
  if (t->role == ROLE_PS && j->ps_server) {
    vec_push(&out, shoal_command(j, t));
    vec_push(&out, mem_strdup("server"));
    if (j->insecure_bind_all) vec_push(&out, mem_strdup("--insecure_bind_all"));
    if (j->one_rank) vec_push(&out, mem_strdup("--exit_with_job")); /* nobody else would end it */
    if (j->tls.cert) vec_push(&out, mem_printf("--tls_cert=%s", j->tls.cert));
    if (j->tls.key) vec_push(&out, mem_printf("--tls_key=%s", j->tls.key));
    if (j->tls.ca) vec_push(&out, mem_printf("--tls_ca=%s", j->tls.ca));
  } else {
    for (char **a = j->program; *a; a++) {
      struct text arg = {0};
      if (fill_in(*a, v, &arg)) filled = true;
      vec_push(&out, arg.n ? text_take(&arg) : mem_strdup(""));
    }
  }
  if ((j->flags && !filled) || (t->role == ROLE_PS && j->ps_server))
    for (int i = 0; i < (j->chief ? 5 : 4); i++)
      vec_push(&out, mem_printf("--%s=%s", v[i].name, text_cstr(&v[i].text)));
  vec_push(&out, NULL);
  *argv = out.at;
  text_addf(tf_config, "{\"cluster\": %s, \"task\": {\"type\": \"%s\", \"index\": %d}}", text_cstr(&v[5].text), t->job,
            t->index);
  for (int i = 0; i < N_VALUES; i++) text_release(&v[i].text);
}

char **launch_task_environ(const struct launch_task *t, const char *tf_config) {
  VEC(char *) out = {0};
  bool unbuffered = false;
  for (char **e = environ; *e; e++) {
    if (str_starts(*e, "PYTHONUNBUFFERED=")) unbuffered = true;
    if (str_starts(*e, "TF_CONFIG=") || (t->cards && str_starts(*e, "CUDA_VISIBLE_DEVICES="))) continue;
    vec_push(&out, mem_strdup(*e));
  }
  vec_push(&out, mem_printf("TF_CONFIG=%s", tf_config));
  if (t->cards) vec_push(&out, mem_printf("CUDA_VISIBLE_DEVICES=%s", t->cards));
  /* Python's lines shall come when they are printed, although standard output is a pipe. */
  if (!unbuffered) vec_push(&out, mem_strdup("PYTHONUNBUFFERED=1"));
  vec_push(&out, NULL);
  return out.at;
}

static void add_tasks(struct launch_job *j, enum launch_role role, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    struct launch_task t = {.role = role, .job = role_names[role], .index = (int)i, .control = -1};
    snprintf(t.name, sizeof t.name, "%s/%d", t.job, t.index);
    t.streams[0] = (struct launch_stream){.fd = -1};
    t.streams[1] = (struct launch_stream){.fd = -1, .is_error = true};
    vec_push(&j->tasks, t);
  }
}

/* A plain-text server that others can reach must have been asked for. */
static shoal_status check_protection(const struct launch_job *j) {
  if (!j->ps_server || j->insecure_bind_all || j->tls.cert) return NULL;
  for (size_t i = 0; i < j->tasks.n; i++) {
    const struct launch_task *t = &j->tasks.at[i];
    char host[256];
    int port;
    if (t->role != ROLE_PS) continue;
    TRY(address_parse("address", t->address, host, &port));
    if (!address_is_loopback(host))
      return INVALID(
          "--ps_server: %s at %s would be open to the network, and nothing protects the connection: give --tls_cert, "
          "--tls_key and --tls_ca, or --insecure_bind_all if the network is trusted",
          t->name, t->address);
  }
  return NULL;
}

static shoal_status assign_ports(struct launch_job *j) {
  for (size_t i = 0; i < j->tasks.n; i++) {
    struct launch_task *t = &j->tasks.at[i];
    if (t->role == ROLE_EVALUATOR) continue; /* watches checkpoints, serves nobody */
    int port = (int)j->port + (int)i;
    if (!j->port) TRY(launch_take_port(&port));
    t->address = mem_printf("127.0.0.1:%d", port);
  }
  return NULL;
}

shoal_status launch_job_plan(struct launch_job *j) {
  if (!j->workers && !j->chief) return INVALID("nobody would train: give --workers=N, or --chief");
  add_tasks(j, ROLE_PS, j->ps);
  add_tasks(j, ROLE_CHIEF, j->chief);
  add_tasks(j, ROLE_WORKER, j->workers);
  add_tasks(j, ROLE_EVALUATOR, j->evaluator);
  if (j->hosts_file || j->slurm) TRY(launch_hosts_assign(j));
  else TRY(assign_ports(j));
  TRY(check_protection(j));
  TRY(launch_cards_deal(j));
  for (size_t i = 0; i < j->tasks.n; i++) {
    struct launch_task *t = &j->tasks.at[i];
    struct text tf_config = {0};
    char **argv;
    launch_task_command(j, t, &argv, &tf_config);
    if (t->host) launch_hosts_wrap(j, t, argv, text_cstr(&tf_config));
    else {
      t->argv = argv;
      t->environ = launch_task_environ(t, text_cstr(&tf_config));
    }
    text_release(&tf_config);
  }
  return NULL;
}

void launch_job_release(struct launch_job *j) {
  for (size_t i = 0; i < j->tasks.n; i++) {
    struct launch_task *t = &j->tasks.at[i];
    free(t->address);
    free(t->cards);
    strings_free(t->argv);
    strings_free(t->environ);
    free(t->progress);
    for (int k = 0; k < LAUNCH_TAIL; k++) free(t->tail[k]);
    for (int k = 0; k < 2; k++) text_release(&t->streams[k].line);
  }
  vec_release(&j->tasks);
  for (size_t i = 0; i < j->hosts.n; i++) free(j->hosts.at[i]);
  vec_release(&j->hosts);
  launch_view_close(j->output);
}

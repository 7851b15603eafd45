/* `shoal server`: one task of a cluster, until it is told to stop.
 *
 * SIGTERM and SIGINT end the server (after a training run that has its variables here has saved), SIGUSR1 prints what
 * every pending step waits for. A handler hands the signal through a pipe to a thread; blocking signals and waiting for
 * them was rejected, since libraries start threads before main.
 *
 * Steps are cancelled then, and waited for; but a kernel that computes heeds nothing, and clients choose what it
 * computes: after LAST_S seconds the process goes all the same. */
#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_root.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/config_flags.h"
#include "cluster/cluster_spec.h"
#include "cluster/limits.h"
#include "cluster/server.h"
#include "rpc/limits.h"

#include <shoal/cluster.h>
#include <shoal/op.h>

enum { MAX_TASK = 999999, MAX_SECONDS = 1000000, LAST_S = 10 };

struct hosts {
  const char *job, *text;
};

/* The host lists as the JSON that --cluster_spec would have. */
static shoal_status hosts_to_json(const struct hosts *hosts, int n, struct text *out) {
  struct cluster_spec c = {0};
  shoal_status s = NULL;
  for (int i = 0; i < n && !s; i++) {
    if (!hosts[i].text) continue;
    char field[64];
    snprintf(field, sizeof field, "--%s_hosts", hosts[i].job);
    s = cluster_spec_add_hosts(&c, field, hosts[i].job, hosts[i].text);
  }
  if (!s) s = cluster_spec_check(&c);
  text_adds(out, "{");
  for (size_t i = 0; i < c.jobs.n && !s; i++) {
    text_addf(out, "%s\"%s\": [", i ? ", " : "", c.jobs.at[i].name);
    for (size_t k = 0; k < c.jobs.at[i].tasks.n; k++)
      text_addf(out, "%s\"%s\"", k ? ", " : "", c.jobs.at[i].tasks.at[k].address);
    text_adds(out, "]");
  }
  text_adds(out, "}");
  cluster_spec_release(&c);
  return s;
}

static int signal_pipe[2];
static atomic_bool drained; /* a training run was asked to stop, and to be started again */
static atomic_bool stopped; /* nothing runs here any more */

static void on_signal(int sig) {
  int saved = errno;
  unsigned char byte = (unsigned char)sig;
  if (write(signal_pipe[1], &byte, 1) < 0) errno = saved; /* full: enough signals are waiting */
  errno = saved;
}

static void *take_signals(void *arg) {
  shoal_server *server = arg;
  for (unsigned char sig;;) {
    ssize_t n = read(signal_pipe[0], &sig, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n != 1) return NULL;
    if (sig != SIGUSR1) {
      LOGI("signal %d: stopping", sig);
      drained = shoal_server_drain(server, 0);
      shoal_server_quit(server);
      return NULL;
    }
    char *text = shoal_server_status(server);
    fputs(text, stderr);
    fflush(stderr);
    free(text);
  }
}

/* Ends the process when it has had its time. */
static void *leave(void *unused) {
  struct timespec left = {.tv_sec = LAST_S};
  while (nanosleep(&left, &left)) continue;
  if (atomic_load(&stopped)) return NULL;
  fprintf(stderr, "shoal: server: a kernel still computes after %d s: leaving it\n", LAST_S);
  _exit(drained ? SHOAL_EXIT_RETRY : EXIT_OK);
}

static void leave_in_time(void) {
  pthread_t t;
  if (pthread_create(&t, NULL, leave, NULL) == 0) pthread_detach(t);
}

static void catch_signals(void) {
  static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&a.sa_mask);
  for (size_t i = 0; i < COUNT_OF(signals); i++) sigaction(signals[i], &a, NULL);
  signal(SIGPIPE, SIG_IGN);
}

/* Shells give a process a thousand descriptors, for the sake of programs that count on so few; it may have more. */
static void raise_descriptors(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &files)) LOGI("no more than %llu descriptors: %m", (unsigned long long)files.rlim_cur);
}

int server_main(int argc, char **argv) {
#ifdef __GLIBC__
  /* Messages of many megabytes come and go: memory is kept from one to the next, until the task is idle (tidy() in
   * cluster/server.c). Otherwise a third of the receiver's time goes into pages. */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  struct hosts hosts[] = {{"ps", NULL}, {"worker", NULL}, {"chief", NULL}, {"evaluator", NULL}, {"master", NULL}};
  shoal_server_options o = {.size = sizeof o};
  const char *level = NULL;
  struct flag_values op_libraries = {0};
  struct config_flags config = {0};
  bool fast = true, coordination = false;
  int64_t task = 0, cpus = 0, inter = 0, intra = 0, silence = 10, startup = -1, with_job = 0, http_port = -1;
  int64_t collective = 0;
  int64_t counts[LIMITS][2] = {0};
  const struct flag own[] = {
      {"ps_hosts", "HOST:PORT,...", "addresses of the job \"ps\"", .text = &hosts[0].text, .may_be_empty = true},
      {"worker_hosts", "HOST:PORT,...", "addresses of the job \"worker\"", .text = &hosts[1].text,
       .may_be_empty = true},
      {"chief_hosts", "HOST:PORT,...", "addresses of the job \"chief\"", .text = &hosts[2].text, .may_be_empty = true},
      {"evaluator_hosts", "HOST:PORT,...", "addresses of the job \"evaluator\"", .text = &hosts[3].text,
       .may_be_empty = true},
      {"master_hosts", "HOST:PORT,...", "addresses of the job \"master\"", .text = &hosts[4].text,
       .may_be_empty = true},
      {"cluster_spec", "JSON|FILE", "instead: {\"job\": [\"host:port\", ...], ...}", .text = &o.cluster},
      {"tf_config", "JSON|FILE", "instead: TF_CONFIG's contents (default: the environment's)", .text = &o.tf_config},
      {"job_name", "NAME", "the job of this task", .text = &o.job},
      {"task_index", "N", "the number of this task in its job (default 0)", .number = &task, .max = MAX_TASK},
      {"cpu_devices", "N", "logical CPU devices (default 1)", .number = &cpus, .min = 1, .max = 1024},
      {"devices", "TYPE=N[,...]", "so many devices of each type (default: all there are; `shoal devices` lists them)",
       .text = &o.devices},
      CONFIG_FLAGS(config),
      {"inter_op_threads", "N", "threads for nodes that run side by side (default 0: one a core)", .number = &inter,
       .max = 4096},
      {"intra_op_threads", "N", "threads inside one op (default 0: one a core)", .number = &intra, .max = 4096},
      {"insecure_bind_all", NULL, "listen beyond loopback without TLS", .on = &o.insecure_bind_all},
      {"tls_cert", "FILE", "this task's certificate (PEM)", .text = &o.tls_cert},
      {"tls_key", "FILE", "its private key (PEM)", .text = &o.tls_key},
      {"tls_ca", "FILE", "the authority that signs all tasks' certificates (PEM)", .text = &o.tls_ca},
      {"file_root", "DIR[:DIR...]", "confine file ops to these directories", .text = &o.file_root},
      {"op_library", "FILE", "load the ops of this library (shoal/op.h); may be given several times: it is code",
       .values = &op_libraries},
      {"peer_timeout", "SECONDS", "a silent task fails what waits for it after this (default 10)", .number = &silence,
       .min = 1, .max = MAX_SECONDS},
      {"startup_timeout", "SECONDS",
       "end, listing who is missing, if the cluster is not whole by then (0: never; default: sessions alone give up, "
       "after 300)",
       .number = &startup, .max = MAX_SECONDS},
      {"exit_with_job", "SECONDS",
       "end with 0 when sessions were here and all who opened them have been gone for so long (default 5; 10 more "
       "where "
       "workers have not come yet)",
       .number = &with_job, .min = 1, .max = MAX_SECONDS, .absent = "5"},
      {"http_port", "N", "pages /healthz and /metrics (Prometheus) at this port (0: a free one; default: none)",
       .number = &http_port, .max = 65535},
      {"http_host", "HOST", "the address at which the pages are (default 127.0.0.1)", .text = &o.http_host},
      {"max_request_bytes", "N", "largest request taken (default 2 GiB)", .number = &o.max_request_bytes, .min = 1,
       .max = 1ll << 40},
      {"max_graph_nodes", "N", "largest graph taken (default 2000000)", .number = &o.max_graph_nodes, .min = 1,
       .max = INT32_MAX},
      {"max_tensor_bytes", "N", "largest tensor made (default: the machine's memory)", .number = &o.max_tensor_bytes,
       .min = 1, .max = 1ll << 50},
      {"allow_client_clusters", NULL, "clients may name clusters of their own: the server connects where they say",
       .on = &o.allow_client_clusters},
      {"collective_group_leader", "TASK", "agrees upon collectives between tasks (default: the chief, or first worker)",
       .text = &o.collective_group_leader},
      {"collective_timeout", "SECONDS", "for the other members of a collective (default 600)", .number = &collective,
       .min = 1, .max = 1 << 30},
      {"coordination_service", NULL,
       "with workers of TensorFlow 2's MultiWorkerMirroredStrategy: serve their coordination, or register where it is",
       .on = &coordination},
      {"fast_path", NULL, "between Shoal's tasks, other than gRPC (default true; --fast_path=false)", .on = &fast},
      {"log_level", "LEVEL", "debug, info, warning (default), error or none", .text = &level},
  };
  struct flag flags[COUNT_OF(own) + RPC_LIMITS + 2 * LIMITS], *next = flags + COUNT_OF(own);
  int64_t limits[RPC_LIMITS] = {0};
  memcpy(flags, own, sizeof own);
  for (int i = 0; i < RPC_LIMITS; i++)
    *next++ =
        (struct flag){rpc_limit_rows[i].flag, rpc_limit_rows[i].unit, rpc_limit_rows[i].meaning, .number = &limits[i]};
  for (int i = 0; i < LIMITS; i++) {
    const struct limit_row *r = &limit_rows[i];
    *next++ = (struct flag){r->name, "N", r->help, .number = &counts[i][0], .min = 1, .max = INT32_MAX};
    *next++ =
        (struct flag){r->connection_name, "N", r->connection_help, .number = &counts[i][1], .min = 1, .max = INT32_MAX};
  }
  int code;
  if (!flags_parse("shoal server --job_name=NAME --task_index=N --worker_hosts=... [--ps_hosts=...] [flags]", flags,
                   (int)COUNT_OF(flags), &argc, argv, &code))
    return code;
  for (int i = 0; i < RPC_LIMITS; i++) rpc_limit_set((enum rpc_limit)i, limits[i]);
  if (argc > 1) {
    fprintf(stderr, "shoal: server: \"%s\" is no flag; `shoal server --help` lists them\n", argv[1]);
    return EXIT_USAGE;
  }
  enum log_level parsed;
  if (level && !log_level_from_name(level, &parsed)) {
    fprintf(stderr, "shoal: --log_level=%s: expected debug, info, warning, error or none\n", level);
    return EXIT_USAGE;
  }
  if (level) log_set_level(parsed);
  for (int i = 0; i < LIMITS; i++) limit_set((enum limit)i, counts[i][0], counts[i][1]);
  o.no_fast_path = !fast;
  o.coordination_service = coordination;
  o.collective_timeout_ms = collective * 1000;
  o.peer_timeout_ms = silence * 1000;
  o.startup_timeout_ms = startup < 0 ? 0 : startup ? startup * 1000 : -1;
  o.exit_with_job_ms = with_job * 1000;
  o.http_port = http_port < 0 ? 0 : http_port ? (int)http_port : -1;
  o.task = (int)task;
  o.cpu_devices = (int)cpus;
  o.inter_op_threads = (int)inter;
  o.intra_op_threads = (int)intra;

  struct text json = {0}, config_bytes = {0};
  bool listed = false;
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) listed = listed || (hosts[i].text && *hosts[i].text);
  if (listed && o.cluster) {
    fprintf(stderr, "shoal: server: --cluster_spec and host lists both describe the cluster: give one of them\n");
    return EXIT_USAGE;
  }
  if (listed) {
    shoal_status s = hosts_to_json(hosts, (int)(sizeof hosts / sizeof *hosts), &json);
    if (s) {
      text_release(&json);
      return report(s);
    }
    o.cluster = text_cstr(&json);
  }

  for (int i = 0; i < op_libraries.n; i++) {
    shoal_status s = shoal_load_ops(op_libraries.at[i]);
    if (!s) continue;
    fprintf(stderr, "shoal: server: --op_library=%s: %s\n", op_libraries.at[i], shoal_status_message(s));
    shoal_status_free(s);
    text_release(&json);
    return EXIT_USAGE;
  }
  shoal_status unread = config_flags_write(&config, &config_bytes);
  if (unread) {
    text_release(&json);
    text_release(&config_bytes);
    return report(unread);
  }
  o.config = text_cstr(&config_bytes);
  o.config_size = config_bytes.n;
  if (pipe2(signal_pipe, O_CLOEXEC)) return report(ERRNO_STATUS(errno, "no pipe for signals"));
  fcntl(signal_pipe[1], F_SETFL, O_NONBLOCK); /* a handler must not wait */
  catch_signals();
  raise_descriptors();
  shoal_server *server;
  file_roots_use(NULL); /* this thread is ours; those that run others' graphs are told, and nobody else opens files */
  file_roots_close_unknown(o.file_root != NULL);
  file_ordinary_only(true);
  shoal_status s = shoal_server_start(&o, &server);
  text_release(&json);
  text_release(&config_bytes);
  if (s) return report(s);
  pthread_t t;
  if (pthread_create(&t, NULL, take_signals, server) == 0) pthread_detach(t);
  printf("listening on %s\n", shoal_server_target(server));
  if (server->pages)
    printf("pages at http://%s:%d/healthz and /metrics\n", o.http_host ? o.http_host : "127.0.0.1",
           pages_port(server->pages));
  fflush(stdout);
  shoal_server_join(server);
  if (server->job_over) printf("the job has ended: all who had sessions here are gone\n");
  s = shoal_server_failure(server);
  if (!s) leave_in_time();
  shoal_server_stop(server);
  atomic_store(&stopped, true);
  if (s) return report(s);
  return drained ? SHOAL_EXIT_RETRY : EXIT_OK;
}

/* Servers: putting worker, master and port together; see shoal/cluster.h. */
#include "cluster/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/file_root.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status_marks.h"
#include "cluster/coordination_agent.h"
#include "cluster/server_part.h"
#include "cluster/coordination_service.h"
#include "cluster/identity.h"
#include "cluster/in_process.h"
#include "cluster/master_service.h"
#include "cluster/metrics.h"
#include "cluster/worker_partial.h"
#include "cluster/worker_service.h"
#include "device/named.h"
#include "proto/shoal.wire.h"
#include "rpc/channel.h"
#include "rpc/message.h"
#include "tensor/buffer.h"

/* ---- methods ---- */

/* opens: does the caller open a session by it (1), close one (-1), or neither? See job_end.c. */
#define MASTER(name, fn, opens)                     \
  static void name(struct rpc_call *c, void *arg) { \
    struct shoal_server *s = arg;                   \
    server_used(s, c, opens);                       \
    fn(&s->master, c);                              \
  }
#define WORKER(name, fn, opens)                     \
  static void name(struct rpc_call *c, void *arg) { \
    struct shoal_server *s = arg;                   \
    if (!admit(s, c)) return;                       \
    server_used(s, c, opens);                       \
    fn(s->worker, c);                               \
  }

/* With certificates, a worker works for tasks of its cluster alone. */
static bool admit(struct shoal_server *s, struct rpc_call *c) {
  shoal_status err = s->tls ? identity_check_member(c, &s->spec) : NULL;
  if (!err) return true;
  rpc_call_fail(c, err);
  return false;
}

static void create_worker_session(struct rpc_call *c, void *arg) {
  struct shoal_server *s = arg;
  if (!admit(s, c)) return;
  server_used(s, c, 1);
  startup_used(s->startup);
  worker_service_create_session(s->worker, c);
}

static void get_status(struct rpc_call *c, void *arg) {
  worker_service_get_status(((struct shoal_server *)arg)->worker, c);
}

MASTER(create_session, master_service_create_session, 1)
MASTER(extend_session, master_service_extend_session, 0)
MASTER(partial_run_setup, master_service_partial_run_setup, 0)
MASTER(run_step, master_service_run_step, 0)
MASTER(close_session, master_service_close_session, -1)
MASTER(list_devices, master_service_list_devices, 0)
MASTER(reset, master_service_reset, 0)
MASTER(make_callable, master_service_make_callable, 0)
MASTER(run_callable, master_service_run_callable, 0)
MASTER(release_callable, master_service_release_callable, 0)
WORKER(delete_worker_session, worker_service_delete_session, -1)
WORKER(register_graph, worker_service_register_graph, 0)
WORKER(deregister_graph, worker_service_deregister_graph, 0)
WORKER(run_graph, worker_service_run_graph, 0)
WORKER(cleanup_graph, worker_service_cleanup_graph, 0)
WORKER(cleanup_all, worker_service_cleanup_all, 0)
WORKER(recv_tensor, worker_service_recv_tensor, 0)
WORKER(recv_buf, worker_service_recv_buf, 0)
WORKER(complete_group, worker_service_complete_group, 0)
WORKER(complete_instance, worker_service_complete_instance, 0)
WORKER(get_step_sequence, worker_service_step_sequence, 0)
WORKER(step_failed, worker_service_step_failed, 0)
WORKER(session_given_up, worker_service_session_given_up, 0)
WORKER(step_stands, worker_service_step_stands, 0)
WORKER(mark_recv_finished, worker_service_mark_recv_finished, 0)
WORKER(logging, worker_service_logging, 0)

/* TensorFlow's agents ask again, by this code, for as long as they wait for their leader. */
static shoal_status not_enabled(void) { return coordination_error(INTERNAL("Coordination service is not enabled.")); }

#define COORDINATION(name)                                                      \
  static void coordination_##name##_call(struct rpc_call *c, void *arg) {       \
    struct shoal_server *s = arg;                                               \
    struct coordination *service = coordination_agent_service(s->coordination); \
    if (!admit(s, c)) return;                                                   \
    server_used(s, c, 0);                                                       \
    if (service) coordination_service_##name(service, s->worker->limits, c);    \
    else rpc_call_fail(c, not_enabled());                                       \
  }
COORDINATION(register)
COORDINATION(heartbeat)
COORDINATION(wait_for_all)
COORDINATION(shutdown)
COORDINATION(reset)
COORDINATION(report_error)
COORDINATION(task_state)
COORDINATION(insert)
COORDINATION(get)
COORDINATION(try_get)
COORDINATION(get_directory)
COORDINATION(delete)
COORDINATION(barrier)
COORDINATION(cancel_barrier)

static void report_error_to_task(struct rpc_call *c, void *arg) {
  struct shoal_server *s = arg;
  if (!admit(s, c)) return;
  if (s->coordination) coordination_agent_told(s->coordination, c);
  else rpc_call_fail(c, not_enabled());
}

/* As TensorFlow's servers answer. */
static void tracing(struct rpc_call *c, void *arg) {
  if (admit(arg, c)) rpc_call_fail(c, UNIMPLEMENTED("Tracing"));
}

static void describe(struct rpc_call *c, void *arg) {
  struct text t = {0};
  char *status = shoal_server_status(arg);
  put_StatusResponse_text(&t, status);
  server_status_numbers(arg, &t);
  free(status);
  rpc_call_reply(c, message_from_text(&t));
}

static void stop(struct rpc_call *c, void *arg) {
  char *peer = rpc_call_peer(c);
  LOGI("asked to stop by %s", peer);
  free(peer);
  rpc_call_reply(c, NULL);
  shoal_server_quit(arg);
}

#define M "/tensorflow.MasterService/"
#define W "/tensorflow.WorkerService/"
#define C "/tensorflow.CoordinationService/"
static const struct rpc_method methods[] = {
    {M "CreateSession", create_session},
    {M "ExtendSession", extend_session},
    {M "PartialRunSetup", partial_run_setup},
    {M "RunStep", run_step},
    {M "CloseSession", close_session},
    {M "ListDevices", list_devices},
    {M "Reset", reset},
    {M "MakeCallable", make_callable},
    {M "RunCallable", run_callable},
    {M "ReleaseCallable", release_callable},
    {W "GetStatus", get_status},
    {W "CreateWorkerSession", create_worker_session},
    {W "DeleteWorkerSession", delete_worker_session},
    {W "RegisterGraph", register_graph},
    {W "DeregisterGraph", deregister_graph},
    {W "RunGraph", run_graph},
    {W "CleanupGraph", cleanup_graph},
    {W "CleanupAll", cleanup_all},
    {W "RecvTensor", recv_tensor},
    {W "MarkRecvFinished", mark_recv_finished},
    {W "Logging", logging},
    {W "Tracing", tracing},
    {W "RecvBuf", recv_buf},
    {W "CompleteGroup", complete_group},
    {W "CompleteInstance", complete_instance},
    {W "GetStepSequence", get_step_sequence},
    {C "RegisterTask", coordination_register_call},
    {C "Heartbeat", coordination_heartbeat_call},
    {C "WaitForAllTasks", coordination_wait_for_all_call},
    {C "ShutdownTask", coordination_shutdown_call},
    {C "ResetTask", coordination_reset_call},
    {C "ReportErrorToTask", report_error_to_task},
    {C "ReportErrorToService", coordination_report_error_call},
    {C "GetTaskState", coordination_task_state_call},
    {C "InsertKeyValue", coordination_insert_call},
    {C "GetKeyValue", coordination_get_call},
    {C "TryGetKeyValue", coordination_try_get_call},
    {C "GetKeyValueDir", coordination_get_directory_call},
    {C "DeleteKeyValue", coordination_delete_call},
    {C "Barrier", coordination_barrier_call},
    {C "CancelBarrier", coordination_cancel_barrier_call},
    {"/shoal.Server/Status", describe},
    {"/shoal.Server/Stop", stop},
    {"/shoal.Server/StepFailed", step_failed},
    {"/shoal.Server/StepStands", step_stands},
    {"/shoal.Server/SessionGivenUp", session_given_up},
};

const struct rpc_method *server_methods(int *n) {
  *n = (int)COUNT_OF(methods);
  return methods;
}

static const struct fast_handlers fast_handlers = {worker_service_fast_recv, worker_service_fast_run};

/* ---- starting ---- */

/* Which cluster, and which of its tasks are we? */
static shoal_status resolve(const shoal_server_options *o, struct cluster_spec *spec, char **job, int *task) {
  const char *env = getenv("TF_CONFIG");
  *task = o->task;
  if (o->cluster && o->tf_config)
    return INVALID("--cluster_spec (or host lists) and --tf_config both describe the cluster: give one of them");
  if (o->cluster) TRY(cluster_spec_from_json(spec, "--cluster_spec", o->cluster));
  else if (o->tf_config) TRY(cluster_spec_from_tf_config(spec, "--tf_config", o->tf_config, job, task));
  else if (env && *env) TRY(cluster_spec_from_tf_config(spec, "TF_CONFIG", env, job, task));
  if (o->job) {
    free(*job);
    *job = mem_strdup(o->job);
    *task = o->task;
  }
  TRY(cluster_spec_check(spec));
  if (!*job && spec->jobs.n == 1 && spec->jobs.at[0].tasks.n == 1) *job = mem_strdup(spec->jobs.at[0].name);
  if (!*job) return INVALID("job_name: not given: say which task this is with --job_name and --task_index");
  return NULL;
}

/* Where to listen: loopback, unless something protects the connection or the user insists. */
static shoal_status choose_host(const shoal_server_options *o, const char *host, const char **out) {
  bool loopback = address_is_loopback(host);
  if (loopback && !o->insecure_bind_all) {
    *out = strcmp(host, "localhost") ? host : "127.0.0.1";
    return NULL;
  }
  if (!loopback && !o->insecure_bind_all && !o->tls_cert)
    return INVALID(
        "this task's address %s is not on loopback, and nothing protects the connection: give --tls_cert, "
        "--tls_key and --tls_ca, or --insecure_bind_all if the network is trusted",
        host);
  *out = "[::]";
  return NULL;
}

static shoal_status check_limits(const shoal_server_options *o) {
  const struct {
    const char *name;
    int64_t value;
  } all[] = {{"max_request_bytes", o->max_request_bytes},
             {"max_graph_nodes", o->max_graph_nodes},
             {"max_sessions", o->max_sessions},
             {"max_steps", o->max_steps},
             {"max_callables", o->max_callables},
             {"max_partial_runs", o->max_partial_runs},
             {"max_tensor_bytes", o->max_tensor_bytes},
             {"cpu_devices", o->cpu_devices},
             {"inter_op_threads", o->inter_op_threads},
             {"intra_op_threads", o->intra_op_threads},
             {"peer_timeout", o->peer_timeout_ms},
             {"exit_with_job", o->exit_with_job_ms},
             {"collective_timeout", o->collective_timeout_ms}};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    if (all[i].value < 0) return INVALID("--%s=%" PRId64 ": expected a positive number", all[i].name, all[i].value);
  return NULL;
}

/* Who leads, by the option or by the server's own ConfigProto. */
static shoal_status find_leader(const char *option, const struct session_config *c, const struct cluster_spec *spec,
                                char **out) {
  if (option) return collectives_check_leader("--collective_group_leader", option, spec, out);
  return *c->leader
             ? collectives_check_leader("the server's ConfigProto: collective_group_leader", c->leader, spec, out)
             : NULL;
}

/* Devices by their counts ("GPU=2"), laid over what the ConfigProto says. */
static shoal_status ask_devices(const char *text, struct session_config *c) {
  struct device_count counts[MAX_DEVICE_TYPES];
  int n = 0;
  TRY(status_prefix(device_counts_parse(text, counts, MAX_DEVICE_TYPES, &n), "--devices=%s: ", text));
  for (int i = 0; i < n; i++) session_config_ask(c, device_type_named(counts[i].type), counts[i].n);
  return NULL;
}

/* The ConfigProto's settings of devices and threads, with the options laid over them. */
static shoal_status read_config(const shoal_server_options *o, struct session_config *c) {
  shoal_status s = session_config_read(c, wire_from(o->config_size ? o->config : "", o->config_size));
  session_config_release(c); /* what sessions make of it, the master reads */
  TRY(status_prefix(s, "the server's ConfigProto: "));
  if (o->cpu_devices) session_config_ask(c, device_type_host(), o->cpu_devices);
  if (o->devices) TRY(ask_devices(o->devices, c));
  if (o->inter_op_threads) c->inter_threads = o->inter_op_threads;
  if (o->intra_op_threads) c->intra_threads = o->intra_op_threads;
  return session_config_check(c);
}

enum { SESSION_STARTUP_MS = 300000 }; /* how long a session waits for tasks that are not there, unless told */

static void end_by_itself(void *arg, shoal_status why) {
  struct shoal_server *s = arg;
  pthread_mutex_lock(&s->lock);
  status_merge(&s->failure, why);
  pthread_mutex_unlock(&s->lock);
  shoal_server_quit(s);
}

/* Every task of the jobs that TensorFlow's strategies coordinate takes part; the group's leader has the service. */
static shoal_status coordinate(struct shoal_server *s) {
  struct device_spec own, of_leader;
  char *leader = collectives_leader(&s->worker->collectives, &s->spec);
  shoal_status err = device_spec_parse(s->task, &own);
  if (!err) err = device_spec_parse(leader, &of_leader);
  if (!err && (!coordination_has_job(own.job) || !coordination_has_job(of_leader.job)))
    err = INVALID("--coordination_service is for tasks of the jobs \"chief\" and \"worker\"; this is %s, and %s leads",
                  s->task, leader);
  if (!err) {
    collectives_coordinate(&s->worker->collectives);
    s->coordination = coordination_agent_new(s->worker, s->peers, leader);
  }
  free(leader);
  return err;
}

static shoal_status start(const shoal_server_options *o, struct shoal_server *s) {
  char *job = NULL, host[256];
  int task = 0, port = 0;
  const char *address = NULL, *bind_host = NULL;
  shoal_status err = resolve(o, &s->spec, &job, &task);
  if (!err) err = cluster_spec_task(&s->spec, job, task, &address);
  if (!err) s->task = mem_printf("/job:%s/replica:0/task:%d", job, task);
  free(job);
  TRY(err);
  TRY(address_parse("cluster", address, host, &port));
  if (o->tls_ca && !o->tls_cert && !o->tls_key)
    return INVALID(
        "--tls_ca=%s alone: a server shows a certificate of its own, or speaks plain text: give --tls_cert "
        "and --tls_key, too",
        o->tls_ca);
  TRY(rpc_tls_load(o->tls_cert, o->tls_key, o->tls_ca, &s->tls));
  TRY(choose_host(o, host, &bind_host));
  if (o->file_root) TRY(file_roots_new(o->file_root, &s->files));
  TRY(check_limits(o));
  if (o->http_host && !o->http_port) return INVALID("--http_host=%s without --http_port: which port?", o->http_host);
  if (o->max_tensor_bytes) buffer_set_limit((size_t)o->max_tensor_bytes);
  s->exit_with_job_ms = o->exit_with_job_ms;
  struct session_config config = {0};
  TRY(read_config(o, &config));
  TRY(find_leader(o->collective_group_leader, &config, &s->spec, &s->collective_leader));
  if (o->config_size) text_add(&s->config, o->config, o->config_size);
  TRY(peers_new(s->tls, o->peer_timeout_ms, !o->no_fast_path, &s->peers));
  s->worker = worker_new(&(struct worker_options){.task = s->task,
                                                  .spec = &s->spec,
                                                  .peers = s->peers,
                                                  .files = s->files,
                                                  .max_graph_nodes = o->max_graph_nodes,
                                                  .max_sessions = o->max_sessions,
                                                  .max_steps = o->max_steps,
                                                  .max_callables = o->max_callables,
                                                  .max_partial_runs = o->max_partial_runs,
                                                  .client_clusters = o->allow_client_clusters,
                                                  .collective_leader = s->collective_leader,
                                                  .collective_timeout_ms = o->collective_timeout_ms,
                                                  .shares_memory = !o->no_fast_path,
                                                  .devices = config.devices,
                                                  .n_devices = config.n_devices,
                                                  .device_options = &config.device_options,
                                                  .inter_threads = MAX(config.inter_threads, 0),
                                                  .intra_threads = MAX(config.intra_threads, 0)});
  /* With TLS, what leaves the host stays inside it: no TCP. */
  if (!o->no_fast_path) s->worker->fast = fast_server_new(&fast_handlers, s->worker, s->tls ? NULL : bind_host);
  struct worker_link own;
  worker_link_local(&own, s->worker, s->task);
  master_init(&s->master,
              &(struct master_options){.task = s->task,
                                       .home = s->worker,
                                       .spec = &s->spec,
                                       .peers = s->peers,
                                       .builders = s->worker->builders,
                                       .limits = s->worker->limits,
                                       .ids = s->worker->ids,
                                       .max_graph_nodes = s->worker->max_graph_nodes,
                                       .client_clusters = s->worker->client_clusters,
                                       .config = wire_from(text_cstr(&s->config), s->config.n)},
              &own);
  if (o->coordination_service) TRY(coordinate(s));
  s->master.startup_timeout_ms = o->startup_timeout_ms ? o->startup_timeout_ms : SESSION_STARTUP_MS;
  /* Before the first request can come: it may be the session that ends the roll call. */
  s->startup = s->master.startup =
      startup_new(&s->spec, s->task, s->tls, MAX(o->startup_timeout_ms, 0), end_by_itself, s);
  if (s->coordination) startup_goes_on(s->startup);
  struct rpc_server_options ro = {.host = bind_host,
                                  .port = port,
                                  .tls = s->tls,
                                  .methods = methods,
                                  .n_methods = (int)COUNT_OF(methods),
                                  .arg = s,
                                  .max_request_bytes = o->max_request_bytes};
  TRY(rpc_server_start(&ro, &s->rpc));
  s->master.port = rpc_server_port(s->rpc);
  s->target = mem_printf("grpc://%s:%d", host, s->master.port);
  in_process_add(s->target, &s->master);
  if (o->http_port) TRY(server_pages_start(s, o->http_host, o->http_port));
  rpc_server_accept(s->rpc); /* the last: handlers look at all of it */
  coordination_agent_start(s->coordination);
  return NULL;
}

static bool connected(void *arg, uint64_t connection) {
  return rpc_server_connected(((struct shoal_server *)arg)->rpc, connection);
}

/* Takes no more calls, and gives those that run GRACE_MS to end. Masters elsewhere may have more to say, which they
 * would wait for ever to be heard with: up to LINGER_MS for them, of which what runs has its grace. */
static void stop_serving(struct shoal_server *s) {
  enum { GRACE_MS = 200, LINGER_MS = 1000, LAST_GRACE_MS = 50 };
  bool lingered = owed_linger(&s->worker->owed, connected, s, GRACE_MS, LINGER_MS) > 0;
  rpc_server_stop(s->rpc, lingered ? LAST_GRACE_MS : GRACE_MS);
}

static void free_server(struct shoal_server *s) {
  pages_close(s->pages);
  /* Sessions first: their steps end with an error that says why. Then what other masters run here. */
  if (s->worker) {
    master_close(&s->master);
    in_process_remove(&s->master);
  }
  startup_over(s->startup);
  coordination_agent_stop(s->coordination);
  pages_stop(s->pages); /* which look at all of it */
  if (s->rpc) stop_serving(s);
  if (s->worker) {
    collective_missed_stop(s->worker);
    /* Where requests of the fast path go on, what they work on stays: the process ends, or has lost this much memory.
     */
    if (!fast_server_stop(s->worker->fast)) return;
    partial_runs_stop(s->worker);
    master_release(&s->master);
    startup_free(s->startup);
    coordination_agent_free(s->coordination);
    peers_free(s->peers);
    fast_server_unref(s->worker->fast);
    worker_free(s->worker);
  }
  text_release(&s->config);
  file_roots_free(s->files);
  rpc_tls_free(s->tls);
  cluster_spec_release(&s->spec);
  shoal_status_free(s->failure);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->quitting);
  free(s->task);
  free(s->target);
  free(s->collective_leader);
  free(s);
}

shoal_status shoal_server_start(const shoal_server_options *options, shoal_server **out) {
  shoal_server_options o = {0};
  TRY(OPTIONS_TAKE(shoal_server_options, no_fast_path, &o, options));
  struct shoal_server *s = mem_zalloc(1, sizeof *s);
  pthread_mutex_init(&s->lock, NULL);
  cond_init(&s->quitting);
  s->started = clock_ns();
  shoal_status err = start(&o, s);
  if (err) free_server(s);
  else *out = s;
  return shoal_status_code(err) == SHOAL_INVALID_ARGUMENT ? status_mark_not_begun(err) : err;
}

const char *shoal_server_target(const shoal_server *s) { return s->target; }

bool server_coordinates(const shoal_server *s) { return s->coordination != NULL; }

int server_devices(const shoal_server *s, const char *type) {
  int n = 0;
  for (int i = 0; i < s->worker->n_devices; i++) n += !strcmp(s->worker->devices[i]->type->name, type);
  return n;
}

shoal_status server_meets(const shoal_server *s, const char *group) {
  same_group_set(&s->worker->group, group);
  return same_group_check(&s->worker->group, s->task);
}

void server_takes_part(const shoal_server *s, int others, shoal_status why_not) {
  no_part_set(&s->worker->no_part, why_not);
  if (why_not && others) no_part_wait(&s->worker->no_part, (size_t)others, s->task);
}

const char *shoal_server_task(const shoal_server *s) { return s->task; }

/* A task that has run nothing for two seconds, and whose sessions have not changed, gives back the memory that it kept
 * for the next step. */
static void tidy(struct shoal_server *s, int64_t *tidied) {
  int64_t run = atomic_load(&s->worker->last_run), changed = atomic_load(&s->last_changed), last = MAX(run, changed);
  if (last == *tidied || clock_ns() - last < 2000000000) return;
  *tidied = last;
  buffer_trim();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/* Sessions that nobody will close make room. Clients that come back over another connection find theirs: they are
 * dropped only when something is scarce. */
static void server_sweep(struct shoal_server *s) {
  steps_sweep(s->worker->steps, STEP_STALE_MS, connected, s);
  if (!limits_are_near(s->worker->limits)) return;
  master_sweep(&s->master, connected, s);
  worker_sweep(s->worker, connected, s);
}

/* A device that is lost comes back with a new process: whoever started this one is to start another. Clients see a task
 * that is gone, and go on from their last checkpoint when it is there again. */
static void look_for_lost(struct shoal_server *s) {
  struct worker *w = s->worker;
  for (int i = 0; i < w->n_devices; i++) {
    if (!atomic_load(&w->devices[i]->lost)) continue;
    LOGE("%s is lost to this process, which ends", w->devices[i]->name);
    end_by_itself(s, INTERNAL("%s is lost to this process; started again it has it again", w->devices[i]->name));
    return;
  }
}

void shoal_server_join(shoal_server *s) {
  static const int64_t LOOK_NS = 1000000000;
  pthread_mutex_lock(&s->lock);
  int64_t tidied = 0;
  struct job_watch seen = {0};
  while (!s->quit) {
    if (cond_wait_until(&s->quitting, &s->lock, clock_ns() + LOOK_NS)) continue;
    pthread_mutex_unlock(&s->lock);
    tidy(s, &tidied);
    server_sweep(s);
    look_for_lost(s);
    bool over = server_job_over(s, &seen);
    pthread_mutex_lock(&s->lock);
    s->quit = s->quit || over;
    s->job_over = over;
  }
  pthread_mutex_unlock(&s->lock);
}

void shoal_server_quit(shoal_server *s) {
  pthread_mutex_lock(&s->lock);
  s->quit = true;
  pthread_cond_broadcast(&s->quitting);
  pthread_mutex_unlock(&s->lock);
}

shoal_status shoal_server_failure(shoal_server *s) {
  pthread_mutex_lock(&s->lock);
  shoal_status why = s->failure ? status_copy(s->failure) : NULL;
  pthread_mutex_unlock(&s->lock);
  return why;
}

void shoal_server_stop(shoal_server *s) {
  if (!s) return;
  server_last_words(s);
  shoal_server_quit(s);
  free_server(s);
}

char *shoal_server_status(shoal_server *s) {
  struct text t = {0};
  struct server_numbers n;
  server_numbers_get(s, &n);
  text_addf(&t, "%s at %s, process %d, up %.0f s, %.1f MB of memory, %.1f MB in tensors (%.1f MB kept for reuse)\n",
            s->task, s->target, (int)n.pid, (double)n.up_ms * 1e-3, (double)n.memory_bytes / 1e6,
            (double)n.tensor_bytes / 1e6, (double)buffer_bytes_cached() / 1e6);
  text_addf(&t, "%" PRId64 " graphs run so far, %" PRId64 " now", n.steps, n.running);
  if (n.global_step >= 0) text_addf(&t, ", global_step %" PRId64, n.global_step);
  text_addc(&t, '\n');
  master_describe(&s->master, &t);
  worker_describe(s->worker, &t);
  peers_describe(s->peers, &t);
  return text_take(&t);
}

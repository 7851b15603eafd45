/* The kinds of strategies. They differ in numbers and names alone: how many replicas there are, here and in all, and on
 * which devices. What follows from those is the same code for all of them. */
#include "strategy/tensorflow.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/given.h"
#include "base/options.h"
#include "base/status_marks.h"
#include "cluster/server_part.h"
#include "device/device.h"
#include "runtime/session_config.h"
#include "shoal/replicate.h"

enum { DEFAULT_BUCKET_KIB = 4096, MOST_REPLICAS = 4096 };

/* ---- devices ---- */

/* Is it a device of this process? The whole name is written to out. */
static shoal_status check_device(const char *name, char *out, size_t size) {
  struct device_spec d;
  if (!name) return INVALID("the name of a device is NULL");
  TRY(device_spec_parse(name, &d));
  if (d.has_job || d.has_task || d.has_replica)
    return INVALID("device '%s': devices of one process are named without job and task, as \"/cpu:1\"", name);
  if (!d.has_type || !d.has_id)
    return INVALID("device '%s': which one? Type and number are expected, as \"/cpu:1\"", name);
  const struct device_type *type = device_type_find(d.type);
  if (!type) return INVALID("device '%s': there are no devices of type %s here", name, d.type);
  int have = type->host ? d.id + 1 : session_config_count(type);
  if (d.id >= have) return INVALID("device '%s': there are %d devices of type %s here", name, have, d.type);
  device_spec_print(&d, out, size);
  return NULL;
}

static shoal_status add_devices(struct shoal_strategy *s, const char *const *devices, int n) {
  char name[192];
  s->devices = mem_zalloc((size_t)n + 1, sizeof *s->devices);
  for (s->local = 0; s->local < n; s->local++) {
    if (!devices) {
      snprintf(name, sizeof name, "/device:%s:%d", device_type_host()->name, s->local);
    } else TRY(check_device(devices[s->local], name, sizeof name));
    for (int i = 0; i < s->local; i++)
      if (!strcmp(s->devices[i], name))
        return INVALID("device '%s' is given twice: a replica has one of its own", name);
    struct device_spec d;
    TRY(device_spec_parse(name, &d));
    bool host = device_type_find(d.type)->host;
    if (host && d.id >= SESSION_MAX_DEVICES)
      return INVALID("device '%s': a session has at most %d devices of type %s", name, SESSION_MAX_DEVICES, d.type);
    s->devices[s->local] = mem_strdup(name);
    if (host) s->rules.cpu_devices = MAX(s->rules.cpu_devices, d.id + 1);
  }
  return NULL;
}

/* ---- making them ---- */

/* The option task_device: which type, and which of them; the first host where nothing is said. */
static shoal_status read_task_device(const char *name, struct device_spec *out) {
  snprintf(out->type, sizeof out->type, "%s", device_type_host()->name);
  if (!name) return NULL;
  TRY(device_spec_parse(name, out));
  if (out->has_job || out->has_task || out->has_replica || !out->has_type || !out->has_id)
    return INVALID("task_device '%s': type and number are expected, as \"/gpu:0\"", name);
  return NULL;
}

/* The kinds there are. One replica alone does all that is said of replicas together; only tasks do what is said of
 * tasks. */
enum kind { ONE_DEVICE = 1, MIRRORED = 2, MULTI_WORKER = 4, PARAMETER_SERVER = 8 };
enum { OF_REPLICAS = ONE_DEVICE | MIRRORED | MULTI_WORKER };

static const char *name_of(enum kind kind) {
  switch (kind) {
    case ONE_DEVICE: return "one_device";
    case MIRRORED: return "mirrored";
    case MULTI_WORKER: return "multi_worker";
    default: return "parameter_server";
  }
}

/* An option that a strategy would do nothing with is refused. */
static shoal_status check_kind(const shoal_strategy_options *o, enum kind kind) {
  const struct {
    const char *name;
    bool given;
    unsigned taken_by;
  } all[] = {{"gradients", o->gradients != SHOAL_REDUCE_MEAN, OF_REPLICAS},
             {"bucket_kib", o->bucket_kib != 0, OF_REPLICAS},
             {"task_devices", o->task_devices != 0, MULTI_WORKER},
             {"task_device", o->task_device != NULL, MULTI_WORKER | PARAMETER_SERVER},
             {"messages", o->messages != 0, MULTI_WORKER},
             {"shard_state", o->shard_state, OF_REPLICAS},
             {"tensorflow", o->tensorflow != SHOAL_TENSORFLOW_NONE, MULTI_WORKER},
             {"keras_slots", o->keras_slots != 0, MULTI_WORKER},
             {"keras_steps_per_epoch", o->keras_steps_per_epoch != 0, MULTI_WORKER}};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    if (all[i].given && !(all[i].taken_by & kind))
      return INVALID("%s: a %s strategy has no use for this option (shoal/strategy.h says which strategies have)",
                     all[i].name, name_of(kind));
  return NULL;
}

static shoal_status check_tensorflow(const shoal_strategy_options *o) {
  bool known = (int)o->tensorflow >= SHOAL_TENSORFLOW_NONE && o->tensorflow <= SHOAL_TENSORFLOW_KERAS;
  if (!known) return INVALID("tensorflow is %d", (int)o->tensorflow);
  bool of_keras = o->keras_slots != 0 || o->keras_steps_per_epoch != 0;
  if (of_keras && o->tensorflow != SHOAL_TENSORFLOW_KERAS)
    return INVALID("%s is for a strategy beside Keras' fit, .tensorflow = SHOAL_TENSORFLOW_KERAS",
                   o->keras_slots ? "keras_slots" : "keras_steps_per_epoch");
  if (!o->tensorflow) return NULL;
  if (o->tensorflow == SHOAL_TENSORFLOW_EACH && o->bucket_kib)
    return INVALID("bucket_kib: with SHOAL_TENSORFLOW_EACH gradients are reduced one by one, in no packs");
  if (o->tensorflow == SHOAL_TENSORFLOW_KERAS && (o->keras_slots < 0 || o->keras_steps_per_epoch < 1))
    return INVALID("beside Keras' fit: %d slots of each variable, %lld steps of an epoch", o->keras_slots,
                   (long long)o->keras_steps_per_epoch);
  if (o->shard_state) return INVALID("shard_state: TensorFlow's workers do not share out the optimizer's state");
  if (o->messages) return INVALID("messages of bfloat16: TensorFlow's workers do not know them");
  if (o->task_devices <= 1) return NULL;
  return INVALID("with TensorFlow's workers a task has one replica, not %lld", (long long)o->task_devices);
}

static shoal_status make(enum kind kind, const shoal_strategy_options *options, struct shoal_strategy **out) {
  struct device_spec task_device = {0};
  shoal_strategy_options o = {0};
  TRY(OPTIONS_TAKE(shoal_strategy_options, keras_steps_per_epoch, &o, options));
  if (o.gradients != SHOAL_REDUCE_MEAN && o.gradients != SHOAL_REDUCE_SUM)
    return INVALID("gradients are reduced by SHOAL_REDUCE_MEAN or SHOAL_REDUCE_SUM, not by %d", (int)o.gradients);
  TRY(check_kind(&o, kind));
  TRY(check_tensorflow(&o));
  if (o.bucket_kib < 0) return INVALID("bucket_kib is %d", o.bucket_kib);
  if (o.task_devices < 0 || o.task_devices > MOST_REPLICAS)
    return INVALID("%lld devices of each task", (long long)o.task_devices);
  if (o.messages && o.messages != SHOAL_BFLOAT16)
    return INVALID("messages of %s: there are those of bfloat16", dtype_tf_name((int)o.messages));
  if (o.messages && o.shard_state) return INVALID("messages of bfloat16 and shard_state: one or the other");
  TRY(read_task_device(o.task_device, &task_device));
  struct shoal_strategy *s = mem_zalloc(1, sizeof *s);
  s->gradients = o.gradients;
  s->messages = o.messages;
  s->shard_state = o.shard_state;
  s->tensorflow = o.tensorflow;
  s->keras_slots = o.keras_slots;
  s->keras_steps = o.keras_steps_per_epoch;
  s->bucket_bytes = (int64_t)(o.bucket_kib || o.tensorflow ? o.bucket_kib : DEFAULT_BUCKET_KIB) << 10;
  s->next_key = 1;
  s->next_initial = FIRST_INITIAL_KEY;
  s->tasks = 1;
  s->local = o.task_devices ? (int)o.task_devices : 1;
  s->task_device = task_device;
  *out = s;
  return NULL;
}

/* Tasks alone send messages to each other. */
static shoal_status check_messages(const struct shoal_strategy *s) {
  if (!s->messages || s->tasks > 1) return NULL;
  return INVALID("messages of bfloat16 in a strategy of one task: there gradients have none");
}

/* e is returned; without one *out becomes s. */
static shoal_status finish(struct shoal_strategy *s, shoal_status e, shoal_strategy **out) {
  if (!e) e = check_messages(s);
  if (e) shoal_strategy_free(s);
  else *out = s;
  return e;
}

shoal_status shoal_strategy_new_one_device(const char *device, const shoal_strategy_options *options,
                                           shoal_strategy **out) {
  GIVEN(out);
  struct shoal_strategy *s;
  TRY(make(ONE_DEVICE, options, &s));
  shoal_status e = add_devices(s, device ? &device : NULL, 1);
  s->replicas = s->local;
  return finish(s, e, out);
}

shoal_status shoal_strategy_new_mirrored(const char *const *devices, int n, const shoal_strategy_options *options,
                                         shoal_strategy **out) {
  GIVEN(out);
  if (n < 1 || n > MOST_REPLICAS) return INVALID("%s: a strategy of %d devices", __func__, n);
  struct shoal_strategy *s;
  TRY(make(MIRRORED, options, &s));
  shoal_status e = add_devices(s, devices, n);
  s->replicas = s->local;
  return finish(s, e, out);
}

/* ---- clusters ---- */

/* Not there in a build without the network's libraries, which has no clusters to ask. */
#pragma weak shoal_cluster_tasks
#pragma weak shoal_cluster_address
#pragma weak shoal_cluster_job
#pragma weak shoal_cluster_task
#pragma weak shoal_cluster_is_chief
#pragma weak server_coordinates
#pragma weak server_devices
#pragma weak server_meets
#pragma weak server_takes_part
#pragma weak shoal_server_task

/* Is this task one that has replicas, is there a chief, are there parameter servers or none, as is wanted? */
static shoal_status check_cluster(const shoal_cluster *c, bool with_servers) {
  const char *job = shoal_cluster_job(c);
  int chiefs = shoal_cluster_tasks(c, "chief"), workers = shoal_cluster_tasks(c, "worker");
  if (chiefs + workers == 0)
    return INVALID("the cluster has no job \"worker\" and none \"chief\": there is nobody to have a replica");
  if (chiefs > 1) return INVALID("the cluster has %d chiefs: there is one, or none and worker 0 is", chiefs);
  if (!chiefs && !shoal_cluster_address(c, "worker", 0))
    return INVALID("the cluster has no chief: neither a job \"chief\" nor a worker with the number 0");
  if (strcmp(job, "worker") != 0 && strcmp(job, "chief") != 0)
    return INVALID("this task is %s %d: replicas are in the jobs \"chief\" and \"worker\"", job, shoal_cluster_task(c));
  bool servers = shoal_cluster_tasks(c, "ps") > 0;
  if (servers && !with_servers)
    return INVALID(
        "the cluster has parameter servers, which replicas of several workers do without (shoal launch --ps=0)");
  if (!servers && with_servers) return INVALID("the cluster has no job \"ps\": nobody has the variables");
  return NULL;
}

/* Its place among those: the chief's, then the workers' by their numbers, which is the order of a group's ranks. */
static int place_of(const shoal_cluster *c) {
  if (!strcmp(shoal_cluster_job(c), "chief")) return 0;
  int place = shoal_cluster_tasks(c, "chief");
  for (int i = 0; i < shoal_cluster_task(c); i++) place += shoal_cluster_address(c, "worker", i) != NULL;
  return place;
}

/* n devices of this task's server. */
static shoal_status check_task_devices(const struct shoal_strategy *s, const shoal_server *server, int n) {
  const struct device_spec *d = &s->task_device;
  int have = server_devices(server, d->type);
  if (n <= have - d->id) return NULL;
  return INVALID("task_device '/device:%s:%d'%s: %s has %d devices of type %s", d->type, d->id,
                 n > 1 ? ", and those behind it" : "", shoal_server_task(server), have, d->type);
}

static void add_task_devices(struct shoal_strategy *s, const shoal_cluster *c, int n) {
  s->devices = mem_zalloc((size_t)n + 1, sizeof *s->devices);
  for (s->local = 0; s->local < n; s->local++)
    s->devices[s->local] = mem_printf("/job:%s/task:%d/device:%s:%d", shoal_cluster_job(c), shoal_cluster_task(c),
                                      s->task_device.type, s->task_device.id + s->local);
}

/* A leader of collectives remembers what a key is of, longer than graphs and strategies live: each strategy of a
 * program has keys of its own. All tasks make the same ones in the same order. */
static void take_keys(struct shoal_strategy *s) {
  static atomic_int made;
  int before = atomic_fetch_add(&made, 1) % (FIRST_INITIAL_KEY / KEYS_OF_ONE);
  s->next_key += before * KEYS_OF_ONE;
  s->next_initial += before * KEYS_OF_ONE;
}

/* A session waits until all tasks are there, and knows which of them was restarted. */
static void add_tasks(struct shoal_strategy *s, const shoal_cluster *c) {
  int n = 0;
  s->rules.tasks = mem_zalloc((size_t)s->tasks + 1, sizeof *s->rules.tasks);
  if (shoal_cluster_tasks(c, "chief")) s->rules.tasks[n++] = mem_strdup("/job:chief/task:0");
  for (int i = 0; n < s->tasks; i++)
    if (shoal_cluster_address(c, "worker", i)) s->rules.tasks[n++] = mem_printf("/job:worker/task:%d", i);
}

/* "chief 0, worker 0-2": who is in the group, by this task's list. */
static void add_job(const shoal_cluster *c, const char *job, struct text *out) {
  int left = shoal_cluster_tasks(c, job);
  if (left) text_addf(out, "%s%s", out->n ? ", " : "", job);
  for (int i = 0, first; left > 0; i++) {
    for (first = i; left > 0 && shoal_cluster_address(c, job, i); i++) left--;
    if (i > first) text_addf(out, i - 1 > first ? " %d-%d" : " %d", first, i - 1);
  }
}

static shoal_status check_group(const shoal_cluster *c, const shoal_server *server) {
  struct text group = {0};
  add_job(c, "chief", &group);
  add_job(c, "worker", &group);
  shoal_status e = server_meets(server, text_cstr(&group));
  text_release(&group);
  return e;
}

/* With TensorFlow's workers: what tasks do together is what those do. */
static shoal_status join_tensorflow(struct shoal_strategy *s, const shoal_server *server) {
  if (!server_coordinates(server))
    return INVALID("with TensorFlow's workers the server has a part in coordination: .coordination_service = 1");
  s->rules.meet = tensorflow_hook;
  s->rules.ends_with_tasks = true;
  s->next_key = 0;
  return NULL;
}

/* Whether this task has what it needs, or why not. (TensorFlow's tasks do not listen; theirs are told by the
 * coordination service, that it has gone.) */
static void tell_others(const struct shoal_strategy *s, const shoal_server *server, shoal_status why_not) {
  if (why_not)
    why_not = STATUS(shoal_status_code(why_not), "%s takes no part: %s", shoal_server_task(server),
                     shoal_status_message(why_not));
  server_takes_part(server, s->tasks - 1, why_not);
  shoal_status_free(why_not);
}

shoal_status shoal_strategy_new_multi_worker(const shoal_cluster *cluster, const shoal_server *server,
                                             const shoal_strategy_options *options, shoal_strategy **out) {
  GIVEN(out);
  GIVEN(cluster);
  GIVEN(server);
  TRY(status_mark_not_begun(check_cluster(cluster, false)));
  struct shoal_strategy *s;
  TRY(make(MULTI_WORKER, options, &s));
  int devices = s->local;
  shoal_status e = check_task_devices(s, server, devices);
  add_task_devices(s, cluster, devices);
  s->tasks = shoal_cluster_tasks(cluster, "chief") + shoal_cluster_tasks(cluster, "worker");
  s->replicas = s->tasks * s->local;
  take_keys(s);
  s->first = place_of(cluster) * s->local;
  s->rules.server = server;
  s->rules.is_chief = shoal_cluster_is_chief(cluster);
  if (s->tasks > 1) s->rules.meet = meet_hook;
  if (s->tasks > 1 && !strategy_with_tensorflow(s)) s->rules.stay = stay_hook;
  if (!strategy_with_tensorflow(s)) {
    s->rules.explain = agree_explain;
    add_tasks(s, cluster);
    if (!e) e = check_group(cluster, server);
    tell_others(s, server, e);
  } else if (!e) e = join_tensorflow(s, server);
  return finish(s, e, out);
}

shoal_status shoal_strategy_new_parameter_server(const shoal_cluster *cluster, const shoal_server *server,
                                                 const shoal_strategy_options *options, shoal_strategy **out) {
  GIVEN(out);
  GIVEN(cluster);
  GIVEN(server);
  TRY(status_mark_not_begun(check_cluster(cluster, true)));
  struct shoal_strategy *s;
  TRY(make(PARAMETER_SERVER, options, &s));
  shoal_status e = check_task_devices(s, server, 1);
  add_task_devices(s, cluster, 1);
  s->replicas = 1;
  s->ps_tasks = shoal_cluster_tasks(cluster, "ps");
  s->rules.server = server;
  s->rules.is_chief = shoal_cluster_is_chief(cluster);
  return finish(s, e, out);
}

void strategy_push_device(struct shoal_graph *g, const struct shoal_strategy *s, int index) {
  if (!s->ps_tasks) graph_push_device(g, s->devices[index]);
  else
    shoal_push_replica_setter(
        g, SHOAL_OPTIONS(shoal_replica_setter, .ps_tasks = s->ps_tasks, .worker_device = s->devices[index]));
}

void shoal_strategy_free(shoal_strategy *s) {
  if (!s) return;
  for (int i = 0; i < s->local; i++) free(s->devices[i]);
  free(s->devices);
  for (char **task = s->rules.tasks; task && *task; task++) free(*task);
  free(s->rules.tasks);
  vec_release(&s->unsent);
  vec_release(&s->emptied);
  vec_release(&s->weights);
  vec_release(&s->after_it);
  free(s);
}

int shoal_strategy_replicas(const shoal_strategy *s) { return s->replicas; }
int shoal_strategy_local_replicas(const shoal_strategy *s) { return s->local; }
int shoal_strategy_first_replica(const shoal_strategy *s) { return s->first; }

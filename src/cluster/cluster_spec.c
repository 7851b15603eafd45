/* Descriptions of a cluster, in every form TensorFlow programs use; see cluster_spec.h. */
#include "cluster/cluster_spec.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <ctype.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/strmap.h"
#include "base/wire.h"
#include "proto/cluster.wire.h"

enum { MAX_JOBS = 1000, MAX_TASKS = 100000, MAX_DESCRIPTION = 16 << 20 };

void cluster_spec_release(struct cluster_spec *c) {
  for (size_t i = 0; i < c->jobs.n; i++) {
    struct cluster_job *j = &c->jobs.at[i];
    for (size_t k = 0; k < j->tasks.n; k++) free(j->tasks.at[k].address);
    vec_release(&j->tasks);
    free(j->name);
  }
  vec_release(&c->jobs);
}

void cluster_spec_copy(struct cluster_spec *to, const struct cluster_spec *from) {
  *to = (struct cluster_spec){0};
  for (size_t i = 0; i < from->jobs.n; i++) {
    const struct cluster_job *j = &from->jobs.at[i];
    struct cluster_job copy = {.name = mem_strdup(j->name)};
    for (size_t k = 0; k < j->tasks.n; k++)
      vec_push(&copy.tasks, (struct cluster_task){j->tasks.at[k].index, mem_strdup(j->tasks.at[k].address)});
    vec_push(&to->jobs, copy);
  }
}

/* ---- the validator ---- */

shoal_status address_parse(const char *field, const char *address, char *host, int *port) {
  const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');
  int64_t p;
  if (address[0] == '[' && bracket && bracket[1] != ':')
    return INVALID("%s: \"%s\" has no port: a colon and a number follow the bracket, as in [::1]:2222", field, address);
  if (!colon || colon == address)
    return INVALID("%s: \"%s\" is no address: write host:port, such as 127.0.0.1:2222", field, address);
  if (!isdigit((unsigned char)colon[1]) || !str_to_int64(colon + 1, &p) || p > 65535)
    return INVALID("%s: \"%s\" has no valid port (\"%s\"): use a number from 1 to 65535", field, address, colon + 1);
  size_t n = (size_t)(colon - address);
  if (n > 255) return INVALID("%s: the host of an address has %zu characters: at most 255 are allowed", field, n);
  if (strchr(address, '/'))
    return INVALID("%s: \"%s\" contains a '/': leave out what stands before the host (such as grpc://)", field,
                   address);
  bool bracketed = address[0] == '[' && address[n - 1] == ']';
  for (size_t i = 0; i < n; i++) {
    unsigned char ch = (unsigned char)address[i];
    bool ok = isalnum(ch) || strchr("-._", ch) || (bracketed && strchr("[]:%", ch));
    if (!ok && ch == ':')
      return INVALID(
          "%s: \"%s\" has more than one ':': is a comma missing between two addresses? (An IPv6 host is put "
          "in brackets: [::1]:2222)",
          field, address);
    if (!ok) return INVALID("%s: \"%s\" contains '%c', which no host name has: write host:port", field, address, ch);
  }
  memcpy(host, address, n);
  host[n] = 0;
  *port = (int)p;
  return NULL;
}

static bool job_name_valid(const char *s) {
  if (!isalpha((unsigned char)*s)) return false;
  for (; *s; s++)
    if (!isalnum((unsigned char)*s) && *s != '_') return false;
  return true;
}

static struct cluster_job *find_job(const struct cluster_spec *c, const char *name) {
  for (size_t low = 0, high = c->jobs.n; low < high;) {
    size_t i = (low + high) / 2;
    int order = strcmp(c->jobs.at[i].name, name);
    if (!order) return &c->jobs.at[i];
    if (order < 0) low = i + 1;
    else high = i;
  }
  return NULL;
}

size_t cluster_spec_count(const struct cluster_spec *c) {
  size_t n = 0;
  for (size_t i = 0; i < c->jobs.n; i++) n += c->jobs.at[i].tasks.n;
  return n;
}

shoal_status cluster_spec_add(struct cluster_spec *c, const char *field, const char *job, int index,
                              const char *address) {
  char host[256];
  int port;
  if (!job_name_valid(job) || strlen(job) > 63)
    return INVALID("%s: \"%s\" is no job name: use up to 63 letters, digits and '_', a letter first", field, job);
  if (index < 0 || index >= MAX_TASKS)
    return INVALID("%s: task index %d of job \"%s\" is out of range: use 0 to %d", field, index, job, MAX_TASKS - 1);
  TRY(address_parse(field, address, host, &port));
  struct cluster_job *j = find_job(c, job);
  if (!j) {
    size_t at = c->jobs.n; /* in order: who names thousands in the reverse order has each move all others */
    if (at >= MAX_JOBS) return INVALID("%s: more than %d jobs: a cluster has no more", field, MAX_JOBS);
    vec_push(&c->jobs, (struct cluster_job){0});
    for (; at > 0 && strcmp(c->jobs.at[at - 1].name, job) > 0; at--) c->jobs.at[at] = c->jobs.at[at - 1];
    c->jobs.at[at] = (struct cluster_job){.name = mem_strdup(job)};
    j = &c->jobs.at[at];
  }
  size_t at = j->tasks.n;
  while (at > 0 && j->tasks.at[at - 1].index > index) at--;
  if (at > 0 && j->tasks.at[at - 1].index == index)
    return INVALID("%s: /job:%s/task:%d is given twice (%s and %s): give each task one address", field, job, index,
                   j->tasks.at[at - 1].address, address);
  vec_push(&j->tasks, (struct cluster_task){0});
  memmove(&j->tasks.at[at + 1], &j->tasks.at[at], (j->tasks.n - 1 - at) * sizeof *j->tasks.at);
  j->tasks.at[at] = (struct cluster_task){index, mem_strdup(address)};
  return NULL;
}

/* Addresses of all tasks, sorted, to find those given twice. */
static int compare_strings(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

shoal_status cluster_spec_check(const struct cluster_spec *c) {
  VEC(char *) all = {0};
  for (size_t i = 0; i < c->jobs.n; i++)
    for (size_t k = 0; k < c->jobs.at[i].tasks.n; k++) vec_push(&all, c->jobs.at[i].tasks.at[k].address);
  shoal_status s = NULL;
  if (!all.n)
    s = INVALID(
        "the cluster has no tasks: name some in --cluster_spec or TF_CONFIG, or by --ps_hosts, --worker_hosts, ...");
  else if (all.n > MAX_TASKS) s = INVALID("the cluster has %zu tasks: %d are the most", all.n, MAX_TASKS);
  else qsort(all.at, all.n, sizeof *all.at, compare_strings);
  for (size_t i = 1; i < all.n && !s; i++)
    if (!strcmp(all.at[i - 1], all.at[i]) && !str_ends(all.at[i], ":0"))
      s = INVALID("cluster: the address %s is given to two tasks: each task needs a port of its own", all.at[i]);
  vec_release(&all);
  return s;
}

const char *cluster_spec_find(const struct cluster_spec *c, const char *job, int index) {
  const struct cluster_job *j = find_job(c, job);
  for (size_t low = 0, high = j ? j->tasks.n : 0; low < high;) {
    size_t k = (low + high) / 2;
    if (j->tasks.at[k].index == index) return j->tasks.at[k].address;
    if (j->tasks.at[k].index < index) low = k + 1;
    else high = k;
  }
  return NULL;
}

shoal_status cluster_spec_admit(const struct cluster_spec *c, const struct cluster_spec *named, const char *self,
                                const char *task) {
  struct strmap known = {0};
  const char *stranger = NULL;
  for (size_t i = 0; i < c->jobs.n; i++)
    for (size_t k = 0; k < c->jobs.at[i].tasks.n; k++) strmap_put(&known, c->jobs.at[i].tasks.at[k].address, &known);
  if (self) strmap_put(&known, self, &known);
  for (size_t i = 0; i < named->jobs.n && !stranger; i++)
    for (size_t k = 0; k < named->jobs.at[i].tasks.n && !stranger; k++)
      if (!strmap_has(&known, named->jobs.at[i].tasks.at[k].address)) stranger = named->jobs.at[i].tasks.at[k].address;
  strmap_release(&known);
  if (!stranger) return NULL;
  return STATUS(SHOAL_PERMISSION_DENIED,
                "the session's cluster_def has a task at %s, which is not in the cluster of %s: start the server with "
                "--allow_client_clusters if its clients may have it connect to addresses of their own choice",
                stranger, task);
}

shoal_status cluster_spec_task(const struct cluster_spec *c, const char *job, int index, const char **address) {
  const struct cluster_job *j = find_job(c, job);
  if (!j) {
    struct text names = {0};
    for (size_t i = 0; i < c->jobs.n; i++) text_addf(&names, "%s\"%s\"", i ? ", " : "", c->jobs.at[i].name);
    shoal_status s = INVALID(
        "job_name: \"%s\" is not in the cluster, which has %s: choose one of these (by --job_name, "
        "or by task.type in TF_CONFIG) or add the job",
        job, names.n ? text_cstr(&names) : "no jobs");
    text_release(&names);
    return s;
  }
  *address = cluster_spec_find(c, job, index);
  if (*address) return NULL;
  int last = j->tasks.n ? vec_last(&j->tasks).index : -1;
  return INVALID("task_index: %d is out of range: job \"%s\" has %zu task%s, with indices %d to %d", index, job,
                 j->tasks.n, j->tasks.n == 1 ? "" : "s", j->tasks.n ? j->tasks.at[0].index : 0, last);
}

/* ---- forms ---- */

shoal_status cluster_spec_add_hosts(struct cluster_spec *c, const char *field, const char *job, const char *hosts) {
  int index = 0;
  for (const char *p = hosts; *p;) {
    size_t n = strcspn(p, ",");
    while (n && isspace((unsigned char)*p)) p++, n--;
    size_t kept = n;
    while (kept && isspace((unsigned char)p[kept - 1])) kept--;
    if (!kept) return INVALID("%s: entry %d of \"%s\" is empty: remove the extra comma", field, index, hosts);
    char *address = mem_strndup(p, kept);
    shoal_status s = cluster_spec_add(c, field, job, index++, address);
    free(address);
    TRY(s);
    p += n;
    if (*p == ',' && !*++p) return INVALID("%s: \"%s\" ends with a comma: remove it", field, hosts);
  }
  return NULL;
}

static shoal_status read_text(const char *field, const char *text, char **out) {
  const char *p = text;
  while (isspace((unsigned char)*p)) p++;
  if (*p == '{') {
    *out = mem_strdup(p);
    return NULL;
  }
  if (!*p)
    return INVALID("%s is empty: give JSON ({\"worker\": [\"host:port\"]}) or the name of a file with it", field);
  FILE *f = fopen(text, "re");
  if (!f)
    return INVALID("%s: \"%s\" is neither JSON (it does not start with '{') nor a file that can be read: %m", field,
                   text);
  struct text t = {0};
  char piece[4096];
  for (size_t n; t.n <= MAX_DESCRIPTION && (n = fread(piece, 1, sizeof piece, f)) > 0;) text_add(&t, piece, n);
  shoal_status s = ferror(f) ? INVALID("%s: the file %s cannot be read: %m", field, text) : NULL;
  if (!s && t.n > MAX_DESCRIPTION)
    s = INVALID("%s: the file %s has more than %d bytes: that is no cluster's description", field, text,
                MAX_DESCRIPTION);
  fclose(f);
  if (!s) *out = mem_strdup(text_cstr(&t));
  text_release(&t);
  return s;
}

/* What a person most likely did who wrote this, if that can be told; at: where the parser stopped, near the mistake. */
static const char *json_advice(const char *json, const char *at) {
  const char *before = at;
  if (*at == '\'' || (at > json && at[-1] == '\'')) return "JSON has double quotes (\"), not single ones";
  while (before > json && strchr(" \t\r\n]}", before[-1])) before--;
  if (before > json && before[-1] == ',' && (before < at || strchr("]}", *at))) return "is there a comma too many?";
  return NULL;
}

static shoal_status parse_json(const char *field, const char *text, cJSON **out) {
  char *json = NULL;
  TRY(read_text(field, text, &json));
  const char *end = NULL;
  *out = cJSON_ParseWithOpts(json, &end, 1);
  shoal_status s = NULL;
  const char *advice = *out || !end ? NULL : json_advice(json, end);
  if (!*out && end && !*end && !advice)
    s = INVALID("%s: not valid JSON, it ends too early (after %zu characters): is a bracket or a quote missing?", field,
                strlen(json));
  else if (!*out)
    s = INVALID("%s: not valid JSON at character %zu (near \"%.20s\"): %s", field, (size_t)(end ? end - json : 0),
                end && end > json ? end - 1 : json, advice ? advice : "correct it there");
  else if (!cJSON_IsObject(*out))
    s = INVALID("%s: found JSON that is no object: write {\"job\": [\"host:port\", ...]}", field);
  if (s) cJSON_Delete(*out);
  free(json);
  return s;
}

static shoal_status add_jobs(struct cluster_spec *c, const char *field, const cJSON *jobs) {
  const cJSON *job, *task;
  cJSON_ArrayForEach(job, jobs) {
    char *where = mem_printf("%s.%s", field, job->string);
    shoal_status s = NULL;
    int i = 0;
    if (!cJSON_IsArray(job) && !cJSON_IsObject(job))
      s = INVALID("%s: expected a list of addresses, or an object of index: address", where);
    cJSON_ArrayForEach(task, job) {
      int64_t index = i++;
      if (s) break;
      if (!cJSON_IsString(task)) s = INVALID("%s: entry %d is no string: write \"host:port\"", where, (int)index);
      else if (cJSON_IsObject(job) && (!str_to_int64(task->string, &index) || index < 0 || index >= MAX_TASKS))
        s = INVALID("%s: \"%s\" is no task index: use a number from 0", where, task->string);
      else s = cluster_spec_add(c, where, job->string, (int)index, task->valuestring);
    }
    free(where);
    TRY(s);
  }
  return NULL;
}

shoal_status cluster_spec_from_json(struct cluster_spec *c, const char *field, const char *text) {
  cJSON *json = NULL;
  TRY(parse_json(field, text, &json));
  shoal_status s = add_jobs(c, field, json);
  cJSON_Delete(json);
  return s;
}

shoal_status cluster_spec_from_tf_config(struct cluster_spec *c, const char *field, const char *text, char **job,
                                         int *task) {
  cJSON *json = NULL;
  TRY(parse_json(field, text, &json));
  char *where = mem_printf("%s.cluster", field);
  const cJSON *cluster = cJSON_GetObjectItemCaseSensitive(json, "cluster");
  const cJSON *me = cJSON_GetObjectItemCaseSensitive(json, "task");
  shoal_status s = NULL;
  if (!cluster)
    s = INVALID("%s has no \"cluster\": write {\"cluster\": {\"worker\": [\"host:port\"]}, \"task\": {...}}", field);
  else if (!cJSON_IsObject(cluster)) s = INVALID("%s: expected an object of jobs", where);
  else s = add_jobs(c, where, cluster);
  if (!s && me) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(me, "type");
    const cJSON *index = cJSON_GetObjectItemCaseSensitive(me, "index");
    int64_t i = 0;
    if (!cJSON_IsString(type)) s = INVALID("%s.task.type: expected the name of this task's job as a string", field);
    else if (cJSON_IsString(index) ? !str_to_int64(index->valuestring, &i)
                                   : index && !(cJSON_IsNumber(index) && index->valuedouble == (double)index->valueint))
      s = INVALID("%s.task.index: expected this task's number: 0, 1, ...", field);
    else {
      if (cJSON_IsNumber(index)) i = index->valueint;
      free(*job);
      *job = mem_strdup(type->valuestring);
      *task = (int)MAX(MIN(i, MAX_TASKS), -1);
    }
  }
  free(where);
  cJSON_Delete(json);
  return s;
}

static shoal_status add_proto_task(struct cluster_spec *c, const char *job, struct wire entry) {
  int64_t index = 0;
  char *address = NULL;
  for (struct wire_field f; wire_next(&entry, &f) == WIRE_FIELD;) {
    if (f.tag == JobDef_TasksEntry_key) index = (int64_t)f.value;
    if (f.tag == JobDef_TasksEntry_value) {
      free(address);
      address = mem_strndup((const char *)f.data, f.size);
    }
  }
  shoal_status s =
      cluster_spec_add(c, "cluster_def", job, index < 0 || index > MAX_TASKS ? -1 : (int)index, address ? address : "");
  free(address);
  return s;
}

shoal_status cluster_spec_from_proto(struct cluster_spec *c, const void *data, size_t size, int64_t most) {
  struct wire w = wire_from(data, size);
  int64_t left = most;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != ClusterDef_job) continue;
    char *name = NULL;
    shoal_status s = NULL;
    struct wire job = wire_inside(&f), again = job;
    for (struct wire_field k; wire_next(&job, &k) == WIRE_FIELD;)
      if (k.tag == JobDef_name) {
        free(name);
        name = mem_strndup((const char *)k.data, k.size);
      }
    for (struct wire_field k; !s && wire_next(&again, &k) == WIRE_FIELD;)
      if (k.tag == JobDef_tasks)
        s = left-- > 0 ? add_proto_task(c, name ? name : "", wire_inside(&k))
                       : STATUS(SHOAL_RESOURCE_EXHAUSTED,
                                "cluster_def: more than %" PRId64 " tasks, as many as --max_peers allows", most);
    free(name);
    TRY(s);
  }
  return NULL;
}

void cluster_spec_to_proto(const struct cluster_spec *c, struct text *out) {
  for (size_t i = 0; i < c->jobs.n; i++) {
    size_t job = begin_ClusterDef_job(out);
    put_JobDef_name(out, c->jobs.at[i].name);
    for (size_t k = 0; k < c->jobs.at[i].tasks.n; k++) {
      size_t task = begin_JobDef_tasks(out);
      put_JobDef_TasksEntry_key(out, c->jobs.at[i].tasks.at[k].index);
      put_JobDef_TasksEntry_value(out, c->jobs.at[i].tasks.at[k].address);
      wire_end(out, task);
    }
    wire_end(out, job);
  }
}

bool address_is_loopback(const char *host) {
  char bare[256];
  snprintf(bare, sizeof bare, "%s", host[0] == '[' ? host + 1 : host);
  bare[strcspn(bare, "]")] = 0;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(bare, NULL, &hints, &found)) return false;
  bool all = true;
  for (struct addrinfo *a = found; a; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      uint32_t ip = ntohl(((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr.s_addr);
      all = all && ip >> 24 == 127;
    } else if (a->ai_family == AF_INET6) {
      all = all && IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)a->ai_addr)->sin6_addr);
    }
  }
  freeaddrinfo(found);
  return all;
}

/* Descriptions of clusters for programs; see shoal/cluster.h. */
#include <stdlib.h>
#include <string.h>

#include "base/status_marks.h"
#include "cluster/cluster_spec.h"

#include <shoal/cluster.h>

struct shoal_cluster {
  struct cluster_spec spec;
  char *job;
  int task;
  struct text json;
};

void shoal_cluster_free(shoal_cluster *c) {
  if (!c) return;
  cluster_spec_release(&c->spec);
  free(c->job);
  text_release(&c->json);
  free(c);
}

static void write_json(struct shoal_cluster *c) {
  text_adds(&c->json, "{");
  for (size_t i = 0; i < c->spec.jobs.n; i++) {
    const struct cluster_job *job = &c->spec.jobs.at[i];
    text_addf(&c->json, "%s\"%s\": {", i ? ", " : "", job->name);
    for (size_t k = 0; k < job->tasks.n; k++)
      text_addf(&c->json, "%s\"%d\": \"%s\"", k ? ", " : "", job->tasks.at[k].index, job->tasks.at[k].address);
    text_adds(&c->json, "}");
  }
  text_adds(&c->json, "}");
}

/* Is it whole, and is this task in it? An evaluator stands outside. */
static shoal_status finish(struct shoal_cluster *c, shoal_cluster **out) {
  const char *address;
  TRY(cluster_spec_check(&c->spec));
  if (!str_equal(c->job, "evaluator")) TRY(cluster_spec_task(&c->spec, c->job, c->task, &address));
  write_json(c);
  *out = c;
  return NULL;
}

shoal_status shoal_cluster_from_hosts(const char *ps, const char *workers, const char *job, int task,
                                      shoal_cluster **out) {
  return shoal_cluster_from_hosts_with_chief(NULL, ps, workers, job, task, out);
}

shoal_status shoal_cluster_from_hosts_with_chief(const char *chief, const char *ps, const char *workers,
                                                 const char *job, int task, shoal_cluster **out) {
  struct shoal_cluster *c = mem_zalloc(1, sizeof *c);
  c->job = mem_strdup(job ? job : "");
  c->task = task;
  shoal_status s = !job || !*job ? INVALID("--job_name: which job is this task of? ps or worker") : NULL;
  if (!s) s = cluster_spec_add_hosts(&c->spec, "--ps_hosts", "ps", ps ? ps : "");
  if (!s) s = cluster_spec_add_hosts(&c->spec, "--worker_hosts", "worker", workers ? workers : "");
  if (!s) s = cluster_spec_add_hosts(&c->spec, "--chief_hosts", "chief", chief ? chief : "");
  if (!s) s = finish(c, out);
  if (s) shoal_cluster_free(c);
  return status_mark_not_begun(s);
}

shoal_status shoal_cluster_from_config(const char *tf_config, shoal_cluster **out) {
  const char *text = tf_config ? tf_config : getenv("TF_CONFIG");
  if (!text || !*text)
    return status_mark_not_begun(
        NOT_FOUND("TF_CONFIG is not set: it says what the cluster is and which task this one; `shoal launch -- "
                  "PROGRAM` sets it"));
  struct shoal_cluster *c = mem_zalloc(1, sizeof *c);
  shoal_status s = cluster_spec_from_tf_config(&c->spec, "TF_CONFIG", text, &c->job, &c->task);
  if (!s && !c->job)
    s = INVALID(
        "TF_CONFIG: \"task\" is missing; expected {\"cluster\": ..., \"task\": {\"type\": \"worker\", \"index\": 0}}");
  if (!s) s = finish(c, out);
  if (s) shoal_cluster_free(c);
  return status_mark_not_begun(s);
}

int shoal_cluster_tasks(const shoal_cluster *c, const char *job) {
  for (size_t i = 0; i < c->spec.jobs.n; i++)
    if (job && !strcmp(c->spec.jobs.at[i].name, job)) return (int)c->spec.jobs.at[i].tasks.n;
  return 0;
}

const char *shoal_cluster_address(const shoal_cluster *c, const char *job, int task) {
  return job ? cluster_spec_find(&c->spec, job, task) : NULL;
}

const char *shoal_cluster_job(const shoal_cluster *c) { return c->job; }

int shoal_cluster_task(const shoal_cluster *c) { return c->task; }

bool shoal_cluster_is_chief(const shoal_cluster *c) {
  if (shoal_cluster_tasks(c, "chief") || shoal_cluster_tasks(c, "master"))
    return !strcmp(c->job, "chief") || !strcmp(c->job, "master");
  return !strcmp(c->job, "worker") && c->task == 0;
}

const char *shoal_cluster_json(const shoal_cluster *c) { return text_cstr(&c->json); }

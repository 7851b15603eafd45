/* Tasks that train, and have not come here yet: what keeps a parameter server for a while when all others have ended.
 *
 * A task has come when its master opened a session here, or when a graph was registered that sends it something, or
 * receives from it: TensorFlow's masters make no sessions and give no name. Counting connections was rejected: a task
 * may have several, and lose one. Parameter servers and evaluators are not waited for: they open no sessions here, or
 * need none of the model's. */
#include <string.h>

#include "base/text.h"
#include "cluster/worker.h"
#include "graph/graph.h"

static bool trains(const char *job) { return strcmp(job, "ps") != 0 && strcmp(job, "evaluator") != 0; }

void worker_expect(struct worker *w, const struct cluster_spec *c) {
  for (size_t i = 0; i < c->jobs.n; i++)
    for (size_t k = 0; trains(c->jobs.at[i].name) && k < c->jobs.at[i].tasks.n; k++) {
      char *task = mem_printf("/job:%s/replica:0/task:%d", c->jobs.at[i].name, c->jobs.at[i].tasks.at[k].index);
      if (strcmp(task, w->task) != 0) strmap_put(&w->absent, task, w);
      free(task);
    }
}

/* Call with the worker's lock held. */
void worker_came(struct worker *w, const char *task) {
  if (w->absent.n) strmap_remove(&w->absent, task);
}

/* "/job:a/replica:0/task:1/device:CPU:0" is on a task. */
static void device_came(struct worker *w, const struct shoal_node *n, const char *attr) {
  const char *device = "";
  shoal_status_free(node_get_string(n, attr, &device));
  const char *end = strstr(device, "/device:");
  char task[256];
  if (!end || (size_t)(end - device) >= sizeof task) return;
  memcpy(task, device, (size_t)(end - device));
  task[end - device] = 0;
  worker_came(w, task);
}

void worker_graph_came(struct worker *w, const struct shoal_graph *g) {
  pthread_mutex_lock(&w->lock);
  for (size_t i = 0; w->absent.n && i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    if (op_is(n->op, "_Send") || op_is(n->op, "_HostSend")) device_came(w, n, "recv_device");
    if (op_is(n->op, "_Recv") || op_is(n->op, "_HostRecv")) device_came(w, n, "send_device");
  }
  pthread_mutex_unlock(&w->lock);
}

bool worker_absent(struct worker *w, struct text *who) {
  enum { NAMED = 8 };
  const char *task;
  void *unused;
  size_t told = 0;
  pthread_mutex_lock(&w->lock);
  size_t n = w->absent.n;
  for (size_t i = 0; who && told < NAMED && strmap_next(&w->absent, &i, &task, &unused); told++)
    text_addf(who, "%s%s", told ? ", " : "", task);
  pthread_mutex_unlock(&w->lock);
  if (who && n > told) text_addf(who, " and %zu more", n - told);
  return n > 0;
}

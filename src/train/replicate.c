/* The device setter: which ops go to parameter servers, and to which.
 *
 * The rules are TensorFlow's, in the same order, since every worker builds its own graph and all must find each
 * variable in the same place: a TensorFlow worker in the same job counts variables in the same way. What an inner scope
 * asked for wins part by part, and only an op that may still go to the parameter servers' job moves the counter on.
 *
 * Greedy placement puts each variable, as it is made, on the task with the fewest bytes. (A second pass over all
 * variables sorted by size would pack better; but then no variable would have a place until the model is complete.) */
#include "base/options.h"
#include "shoal/replicate.h"

#include <stdlib.h>
#include <string.h>

#include "train/variables.h"

static const char *const variable_ops[] = {"Variable",
                                           "VariableV2",
                                           "AutoReloadVariable",
                                           "MutableHashTable",
                                           "MutableHashTableV2",
                                           "MutableHashTableOfTensors",
                                           "MutableHashTableOfTensorsV2",
                                           "MutableDenseHashTable",
                                           "MutableDenseHashTableV2",
                                           "VarHandleOp",
                                           "BoostedTreesEnsembleResourceHandleOp",
                                           "BoostedTreesQuantileStreamResourceHandleOp",
                                           "ResourceConditionalAccumulator",
                                           "DecisionTreeResource",
                                           NULL};

struct setter {
  int tasks, next;
  int64_t *bytes; /* [tasks] by_bytes: what each has; NULL: in turn */
  char **ops;     /* NULL at the end */
  bool no_merge;
  struct device_spec ps, worker;
  bool has_ps;
  char answer[192];
};

static void setter_free(void *arg) {
  struct setter *s = arg;
  for (char **op = s->ops; *op; op++) free(*op);
  free(s->ops);
  free(s->bytes);
  free(s);
}

static bool goes_to_ps(const struct setter *s, const struct shoal_node *n) {
  for (char **op = s->ops; *op; op++)
    if (op_is(n->op, *op)) return true;
  return false;
}

/* What a variable takes. One of unknown size (tables) counts as nothing, as an entry of one byte in a balance. */
static int64_t node_bytes(const struct shoal_node *n) {
  struct shape shape;
  shoal_dtype dtype = SHOAL_DT_INVALID;
  shoal_status s =
      node_attr(n, "shape") && node_attr(n, "dtype") ? node_get_shape(n, "shape", &shape) : UNIMPLEMENTED("no shape");
  if (!s) s = node_get_type(n, "dtype", &dtype);
  int64_t bytes = 1;
  if (!s && shape_known(&shape)) s = shape_elements(&shape, &bytes);
  int64_t size = s ? 1 : (int64_t)dtype_size(dtype_base(dtype));
  if (s || __builtin_mul_overflow(bytes, size, &bytes)) bytes = 1;
  shoal_status_free(s);
  return bytes > 0 ? bytes : 1;
}

static int next_task(struct setter *s, const struct shoal_node *n) {
  int task = s->next;
  if (!s->bytes) {
    s->next = (s->next + 1) % s->tasks;
    return task;
  }
  task = 0;
  for (int i = 1; i < s->tasks; i++)
    if (s->bytes[i] < s->bytes[task]) task = i;
  s->bytes[task] += node_bytes(n);
  return task;
}

static const char *choose(void *arg, const struct shoal_node *n, const struct device_spec *inner) {
  struct setter *s = arg;
  bool asked = inner->has_job || inner->has_replica || inner->has_task || inner->has_type || inner->has_id;
  if (s->no_merge && asked) return NULL;
  struct device_spec d = s->worker;
  if (s->has_ps && goes_to_ps(s, n)) {
    d = s->ps;
    if (d.has_job && (!inner->has_job || !strcmp(inner->job, d.job))) {
      d.has_task = true;
      d.task = next_task(s, n);
    }
  }
  device_spec_print(&d, s->answer, sizeof s->answer);
  return s->answer;
}

static const char *no_device(void *arg, const struct shoal_node *n, const struct device_spec *inner) { return NULL; }

void shoal_push_replica_setter(shoal_graph *g, const shoal_replica_setter *options) {
  shoal_replica_setter o = {0};
  shoal_status e = OPTIONS_TAKE(shoal_replica_setter, no_merge, &o, options);
  if (e) graph_fail(g, e);
  if (o.ps_tasks <= 0) {
    if (o.ps_tasks < 0) graph_fail(g, INVALID("shoal_push_replica_setter: %d ps tasks", o.ps_tasks));
    graph_push_device_fn(g, no_device, NULL, NULL);
    return;
  }
  struct setter *s = mem_zalloc(1, sizeof *s);
  s->tasks = o.ps_tasks;
  s->no_merge = o.no_merge;
  if (o.by_bytes) s->bytes = mem_zalloc((size_t)s->tasks, sizeof *s->bytes);
  const char *const *ops = o.ps_ops ? o.ps_ops : variable_ops;
  size_t n = 0;
  while (ops[n]) n++;
  s->ops = mem_zalloc(n + 1, sizeof *s->ops);
  for (size_t i = 0; i < n; i++) s->ops[i] = mem_strdup(ops[i]);
  const char *ps = o.ps_device ? o.ps_device : "/job:ps";
  s->has_ps = *ps != 0;
  e = device_spec_parse(ps, &s->ps);
  if (e) graph_fail(g, e);
  e = device_spec_parse(o.worker_device ? o.worker_device : "/job:worker", &s->worker);
  if (e) graph_fail(g, e);
  graph_push_device_fn(g, choose, s, setter_free);
}

/* Copies between host memory and a device's own.
 *
 * What a node reads and makes is in the memory that its kernel says (host_in, host_out), else in the device's. Where an
 * edge leads from one to the other, a node is put on it, _ToHost or _ToDevice, one for all that read the value there.
 * So everything that goes in and out of a device passes here and nowhere else: arguments and results, sends and
 * receives and constants are in host memory by their kernels' word, and sizes and axes are read there. A constant is
 * copied once. Sends and receives between devices of one type in this task are made to take the device's memory first,
 * if the type can copy between its devices; those to and from a device of the type in another task, where the value is
 * made, or read, in the device's memory: whoever carries it between the tasks knows whether it can stay in such memory
 * (rpc/fast/fast_window.h), and each end takes it either way. What only the end of a step reads, its fetches, is copied
 * by _ToHostAtEnd: nobody waits for it but that end. A variant is in host memory always; where it leaves the device it
 * passes _ToHost for the sake of the tensors in it.
 *
 * It is done to the graph of one device just before it is compiled, when kernels are known; the graph a master made, or
 * a client sees, has no such nodes. A reference is no edge of its own: whoever reads through it has the variable's
 * value, which is in the device's memory. */
#include "runtime/memory_edges.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/frames.h"
#include "runtime/kernel.h"

struct walk {
  struct shoal_graph *g;
  const struct device *d;
  struct shoal_node **copies; /* by output, counted over all nodes: the copy of it in the other memory */
  int *first_out;             /* [nodes] */
  uint8_t *host_out;          /* by output */
  uint8_t *read_in_host;      /* by output: somebody reads it there */
};

static shoal_status add_copy(struct walk *w, shoal_out from, bool to_host, struct shoal_node **out) {
  char *base = mem_printf("%s/%s", from.node->name, to_host ? "_to_host" : "_to_device");
  char *name = graph_unique_name(w->g, base);
  free(base);
  shoal_status s = graph_add(w->g, name, op_find(to_host ? "_ToHost" : "_ToDevice"), &from, 1, NULL, 0, out);
  free(name);
  TRY(s);
  if (!to_host && op_is(from.node->op, "Const")) node_set_attr(*out, "constant", attr_bool(true));
  graph_set_device(*out, w->d->name);
  (*out)->assigned = mem_strdup(w->d->name);
  return NULL;
}

/* Does a variant leave the device here? It is in host memory, but what is in it need not be. Lists are added up by the
 * CPU. */
static bool leaves(const struct shoal_node *n, int i) {
  if (n->in_types[i] != SHOAL_VARIANT) return false;
  return op_is(n->op, "_Send") || op_is(n->op, "_HostSend") || op_is(n->op, "_Retval") || op_is(n->op, "AddN");
}

static bool is_reference(shoal_out o) { return dtype_is_ref(o.node->out_types[o.index]); }

/* The variable's value is that of when n may run: its copy waits for what n waits for, and is nobody else's. */
static shoal_status copy_read(struct walk *w, struct shoal_node *n, int k, bool to_host, struct shoal_node **copy) {
  TRY(add_copy(w, n->in[k], to_host, copy));
  for (int i = 0; i < n->n_in && !node_is_merge(n); i++) /* which waits for one of them only */
    if (n->in[i].node && !is_reference(n->in[i])) graph_add_control(*copy, n->in[i].node);
  for (size_t i = 0; i < n->control.n; i++) graph_add_control(*copy, n->control.at[i]);
  return NULL;
}

static shoal_status join(struct walk *w, struct shoal_node *n, const uint8_t *host_in) {
  for (int i = 0; i < n->n_in; i++) {
    shoal_out from = n->in[i];
    if (!from.node || dtype_is_ref(n->in_types[i])) continue;
    int at = w->first_out[from.node->id] + from.index;
    if (w->host_out[at] == host_in[i] && !leaves(n, i)) continue;
    if (is_reference(from)) TRY(copy_read(w, n, i, host_in[i], &w->copies[at]));
    else if (!w->copies[at]) TRY(add_copy(w, from, host_in[i], &w->copies[at]));
    n->in[i] = (shoal_out){w->copies[at], 0};
  }
  return NULL;
}

/* ---- sends and receives ---- */

enum ends { OTHERS, ONE_TASK, TWO_TASKS }; /* where the ends of a transfer are, if both are devices of the type */

/* They have the same attributes. */
static enum ends ends_of(const struct shoal_node *n, const struct device *d) {
  const struct attr *client = node_attr(n, "client_terminated");
  const char *names[2];
  struct device_spec ends[2];
  if (client && client->kind == ATTR_BOOL && client->b) return OTHERS;
  for (int i = 0; i < 2; i++) {
    shoal_status s = node_get_string(n, i ? "recv_device" : "send_device", &names[i]);
    if (!s) s = device_spec_parse(names[i], &ends[i]);
    bool good = !s && ends[i].has_type && !strcmp(ends[i].type, d->type->name);
    shoal_status_free(s);
    if (!good) return OTHERS;
    ends[i].has_id = false;
  }
  return device_spec_matches(&ends[0], &ends[1]) && device_spec_matches(&ends[1], &ends[0]) ? ONE_TASK : TWO_TASKS;
}

bool memory_edges_stay(const struct shoal_node *n, const struct device *d) {
  const struct device_ops *ops = d->type->ops;
  enum ends ends = ends_of(n, d);
  return (ends == ONE_TASK && ops->from_peer) || (ends == TWO_TASKS && ops->window_new);
}

static void join_peers(struct shoal_graph *g, const struct device *d) {
  for (size_t i = 0; d->type->ops->from_peer && i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    bool send = n && op_is(n->op, "_Send"), recv = n && op_is(n->op, "_Recv");
    if ((!send && !recv) || !dtype_plain(dtype_base(send ? n->in_types[0] : n->out_types[0]))) continue;
    if (ends_of(n, d) == ONE_TASK) n->op = op_find(send ? "_DeviceSend" : "_DeviceRecv");
  }
}

/* A transfer from or to another task: of a value that is made in the device's memory, or that nobody reads in the
 * host's. */
static void join_tasks(struct walk *w, struct shoal_node *n, uint8_t *host_in) {
  bool send = op_is(n->op, "_Send"), recv = op_is(n->op, "_Recv");
  int type = send ? n->in_types[0] : recv ? n->out_types[0] : 0;
  if (!type || dtype_is_ref(type) || !dtype_plain((shoal_dtype)type)) return;
  uint8_t *made = w->host_out + w->first_out[send ? n->in[0].node->id : n->id] + (send ? n->in[0].index : 0);
  if (send ? *made : w->read_in_host[w->first_out[n->id]]) return;
  if (ends_of(n, w->d) != TWO_TASKS) return;
  n->op = op_find(send ? "_DeviceSend" : "_DeviceRecv");
  *(send ? host_in : made) = 0;
}

static shoal_status walk_all(struct walk *w, size_t n_nodes, uint8_t *host_in) {
  int in = 0;
  for (size_t i = 0; i < n_nodes; i++) {
    const struct shoal_node *n = w->g->nodes.at[i];
    const struct kernel_def *def;
    if (!n) continue;
    TRY(kernel_find(n, w->d->type->name, &def));
    kernel_memory(n, def, host_in + in, w->host_out + w->first_out[i]);
    for (int k = 0; k < n->n_in; k++)
      if (n->in[k].node) w->read_in_host[w->first_out[n->in[k].node->id] + n->in[k].index] |= host_in[in + k];
    in += n->n_in;
  }
  in = 0;
  for (size_t i = 0; w->d->type->ops->window_new && i < n_nodes; i++) {
    struct shoal_node *n = w->g->nodes.at[i];
    if (!n) continue;
    join_tasks(w, n, host_in + in);
    in += n->n_in;
  }
  in = 0;
  for (size_t i = 0; i < n_nodes; i++) {
    struct shoal_node *n = w->g->nodes.at[i];
    if (!n) continue;
    TRY(join(w, n, host_in + in));
    in += n->n_in;
  }
  return NULL;
}

/* ---- what only the end of a step reads ---- */

static void count_other_readers(const struct shoal_graph *g, int *others) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    for (int k = 0; n && k < n->n_in; k++)
      if (n->in[k].node) others[n->in[k].node->id] += !op_is(n->op, "_Retval");
    for (size_t k = 0; n && k < n->control.n; k++) others[n->control.at[k]->id]++;
  }
}

/* A value that is fetched and not looked at before is copied without anyone waiting: the step's end does. */
static void fetch_at_end(struct shoal_graph *g, const struct device *d) {
  int *others = mem_zalloc(g->nodes.n, sizeof *others);
  if (d->type->ops->to_host_at_end) count_other_readers(g, others);
  for (size_t i = 0; d->type->ops->to_host_at_end && i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (n && op_is(n->op, "_ToHost") && !others[n->id] && dtype_plain(dtype_base(n->in_types[0])))
      n->op = op_find("_ToHostAtEnd");
  }
  free(others);
}

shoal_status memory_edges_add(struct shoal_graph *g, const struct device *d, bool step) {
  join_peers(g, d);
  size_t n_nodes = g->nodes.n, n_in = 0, n_out = 0;
  struct walk w = {.g = g, .d = d, .first_out = mem_zalloc(n_nodes, sizeof *w.first_out)};
  for (size_t i = 0; i < n_nodes; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    w.first_out[i] = (int)n_out;
    n_in += n ? (size_t)n->n_in : 0;
    n_out += n ? (size_t)n->n_out : 0;
  }
  w.copies = mem_zalloc(n_out, sizeof *w.copies);
  w.host_out = mem_zalloc(n_out, 1);
  w.read_in_host = mem_zalloc(n_out, 1);
  uint8_t *host_in = mem_zalloc(n_in, 1);
  shoal_status s = walk_all(&w, n_nodes, host_in);
  if (!s && step) fetch_at_end(g, d);
  free(host_in);
  free(w.read_in_host);
  free(w.host_out);
  free(w.copies);
  free(w.first_out);
  return s;
}

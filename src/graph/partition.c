/* Partitioning a placed graph.
 *
 * Data edges: one _Send for each (output, destination device), one _Recv there, shared by all consumers. Control
 * edges: a constant of shape [0] that runs after the source is sent, and an Identity of what arrives stands in for
 * the source.
 *
 * Loops: where a frame's nodes are in several places, each of these must iterate as long as the loop does, also a
 * place that has none of the loop's variables. So each of its devices gets a control loop of its own,
 *
 *     Enter(dummy) -> Merge -> Switch(LoopCond) -> NextIteration -> Merge
 *
 * whose condition is the loop's, sent every iteration; the frame's receives run after its Merge. Inner loops hang
 * on the Merge of the outer one. Enter and NextIteration are first moved to where their Merge is: their values
 * exist in some iterations only, which a receive could not know.
 *
 * References: a variable is read when its reader runs, after all that the reader waits for, which may be an update. So
 * where the reader is elsewhere the read is made a node of its own beside the variable, and waits for the same.
 * TensorFlow makes the receive wait instead, and sends the memory itself, whatever is in it by then.
 *
 * A part may be cut again, by the task that has it, for its devices. TensorFlow's tasks leave the edges from control
 * loops to receives uncut then: those are of one device. Where the loop's condition is in another part, that part's
 * control loop has it: the one who cut before, TensorFlow's master or ours, named its nodes "_cloop...". */
#include "graph/partition.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/frames.h"
#include "graph/prune.h"

struct edge_cutter {
  const struct shoal_graph *g;
  const struct partition_options *o;
  struct shoal_graph **parts;
  struct shoal_node **map; /* by node id of g: the copy in its part */
  char **device;           /* by node id: where it is (moved nodes differ from assigned) */
  int *place;              /* by node id */
  struct frames frames;
  struct strmap recvs;  /* "id:index>device" -> struct shoal_node *: the receive (or Identity) standing for it */
  struct strmap loops;  /* "frame@device" -> struct shoal_node *: the control loop's Merge */
  shoal_out *loop_cond; /* by frame: its condition; node NULL: unknown */
};

static void attr_put(struct named_attr *attrs, int *n, const char *name, struct attr value) {
  attrs[(*n)++] = (struct named_attr){mem_strdup(name), value};
}

/* Adds a node to a part under a new name. attrs: an array on the heap, taken over. */
static shoal_status add(struct edge_cutter *c, struct shoal_graph *g, const char *base, const char *op,
                        const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs, const char *device,
                        struct shoal_node **out) {
  char *wanted = mem_printf("%s_S%lld", base, (long long)(*c->o->next_name)++);
  char *name = graph_unique_name(g, wanted);
  free(wanted);
  shoal_status s = graph_add(g, name, op_find(op), in, n_in, attrs, n_attrs, out);
  free(name);
  TRY(s);
  graph_set_device(*out, device);
  (*out)->assigned = mem_strdup(device);
  return NULL;
}

static shoal_status add_dummy(struct edge_cutter *c, struct shoal_graph *g, const char *base, const char *device,
                              struct shoal_node **out) {
  struct tensor empty;
  TRY(tensor_new_dims(&empty, SHOAL_FLOAT32, 1, (int64_t[]){0}));
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  int n = 0;
  attr_put(attrs, &n, "value", attr_tensor(&empty));
  attr_put(attrs, &n, "dtype", attr_type(SHOAL_FLOAT32));
  tensor_release(&empty);
  return add(c, g, base, "Const", NULL, 0, attrs, n, device, out);
}

/* A send in one part and the receive in another. */
static shoal_status add_transfer(struct edge_cutter *c, shoal_out from, const char *from_device, struct shoal_graph *to,
                                 const char *to_device, const char *label, struct shoal_graph *from_part,
                                 struct shoal_node **recv) {
  shoal_dtype type = dtype_base(from.node->out_types[from.index]);
  char *edge = mem_printf("edge_%lld_%s", (long long)*c->o->next_name, label);
  uint64_t incarnation = c->o->incarnation(c->o->arg, from_device);
  struct shoal_node *send = NULL;
  shoal_status s = NULL;
  for (int side = 0; side < 2 && !s; side++) {
    struct named_attr *attrs = mem_zalloc(5, sizeof *attrs);
    int n = 0;
    attr_put(attrs, &n, side ? "tensor_type" : "T", attr_type(type));
    attr_put(attrs, &n, "tensor_name", attr_string(edge, strlen(edge)));
    attr_put(attrs, &n, "send_device", attr_string(from_device, strlen(from_device)));
    attr_put(attrs, &n, "recv_device", attr_string(to_device, strlen(to_device)));
    attr_put(attrs, &n, "send_device_incarnation", attr_int((int64_t)incarnation));
    s = side ? add(c, to, label, "_Recv", NULL, 0, attrs, n, to_device, recv)
             : add(c, from_part, label, "_Send", &from, 1, attrs, n, from_device, &send);
  }
  free(edge);
  return s;
}

static shoal_status loop_merge(struct edge_cutter *c, int frame, int place, const char *device,
                               struct shoal_node **out);

/* A value, sent to `device` and received there in the frame where the consumer runs. */
static shoal_status transfer(struct edge_cutter *c, shoal_out value, const char *label, int from_place,
                             const char *device, int place, int frame, struct shoal_node **recv) {
  struct shoal_node *merge;
  TRY(add_transfer(c, value, value.node->assigned, c->parts[place], device, label, c->parts[from_place], recv));
  if (frame <= 0) return NULL;
  TRY(loop_merge(c, frame, place, device, &merge));
  graph_add_control(*recv, merge);
  return NULL;
}

/* What stands for output `from` at `device` (control: from.index -1). frame: where the consumer runs. */
static shoal_status bring(struct edge_cutter *c, shoal_out from, const char *device, int place, int frame,
                          struct shoal_node **out) {
  char *key = mem_printf("%d:%d>%s", from.node->id, from.index, device);
  *out = strmap_get(&c->recvs, key);
  shoal_status s = NULL;
  if (!*out) {
    struct shoal_node *src = c->map[from.node->id];
    int src_place = c->place[from.node->id];
    shoal_out value = {src, from.index};
    if (from.index < 0) {
      char *base = mem_printf("%s/ctrl", src->name);
      s = add_dummy(c, c->parts[src_place], base, src->assigned, &value.node);
      free(base);
      if (!s) graph_add_control(value.node, src);
      value.index = 0;
    }
    if (!s) s = transfer(c, value, src->name, src_place, device, place, frame, out);
    if (!s && from.index < 0) {
      shoal_out recv = {*out, 0};
      s = add(c, c->parts[place], src->name, "Identity", &recv, 1, NULL, 0, device, out);
    }
    if (!s) strmap_put(&c->recvs, key, *out);
  }
  free(key);
  return s;
}

static shoal_status add_control_loop(struct edge_cutter *c, int frame, int place, const char *device,
                                     struct shoal_node **merge) {
  struct shoal_graph *g = c->parts[place];
  const struct frame_def *def = &c->frames.at.at[frame];
  struct shoal_node *dummy, *enter, *next, *sw, *outer;
  char *base = mem_printf("_cloop%d", frame);
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  int n = 0;
  shoal_status s;
  TRY_GOTO(s, add_dummy(c, g, base, device, &dummy), done);
  if (def->parent > 0) {
    TRY_GOTO(s, loop_merge(c, def->parent, place, device, &outer), done);
    graph_add_control(dummy, outer);
  }
  attr_put(attrs, &n, "frame_name", attr_string(def->name, strlen(def->name)));
  attr_put(attrs, &n, "parallel_iterations", attr_int(def->parallel_iterations));
  shoal_out in = {dummy, 0};
  struct named_attr *enter_attrs = attrs;
  attrs = NULL;
  TRY_GOTO(s, add(c, g, base, "Enter", &in, 1, enter_attrs, n, device, &enter), done);
  struct named_attr *merge_attrs = mem_zalloc(2, sizeof *merge_attrs);
  n = 0;
  attr_put(merge_attrs, &n, "T", attr_type(SHOAL_FLOAT32));
  attr_put(merge_attrs, &n, "N", attr_int(2));
  shoal_out merge_in[2] = {{enter, 0}, {NULL, 0}};
  TRY_GOTO(s, add(c, g, base, "Merge", merge_in, 2, merge_attrs, n, device, merge), done);
  char *key = mem_printf("%d@%s", frame, device);
  strmap_put(&c->loops, key, *merge);
  free(key);
  shoal_out cond = c->loop_cond[frame];
  if (!cond.node) {
    s = INVALID("Invalid graph: the loop '%s' spans several places but has no LoopCond", def->name);
    goto done;
  }
  shoal_out pred = {c->map[cond.node->id], cond.index};
  if (c->place[cond.node->id] != place) {
    pred.index = 0;
    TRY_GOTO(s, bring(c, cond, device, place, frame, &pred.node), done);
  }
  shoal_out switch_in[2] = {{*merge, 0}, pred};
  TRY_GOTO(s, add(c, g, base, "Switch", switch_in, 2, NULL, 0, device, &sw), done);
  shoal_out next_in = {sw, 1};
  TRY_GOTO(s, add(c, g, base, "NextIteration", &next_in, 1, NULL, 0, device, &next), done);
  s = graph_set_input(g, *merge, 1, (shoal_out){next, 0});
done:
  free(attrs);
  free(base);
  return s;
}

/* The Merge of the control loop of a frame on a device, made when first asked for. */
static shoal_status loop_merge(struct edge_cutter *c, int frame, int place, const char *device,
                               struct shoal_node **out) {
  char *key = mem_printf("%d@%s", frame, device);
  *out = strmap_get(&c->loops, key);
  free(key);
  return *out ? NULL : add_control_loop(c, frame, place, device, out);
}

static void move_to(struct edge_cutter *c, const struct shoal_node *n, const char *device) {
  free(c->device[n->id]);
  c->device[n->id] = mem_strdup(device);
  c->place[n->id] = c->o->place_of(c->o->arg, device);
}

/* Enter and NextIteration go to their Merge (or, without one, to their one consumer). */
static void move_to_merges(struct edge_cutter *c) {
  struct consumers users;
  consumers_init(&users, c->g);
  for (size_t i = 0; i < c->g->nodes.n; i++) {
    struct shoal_node *n = c->g->nodes.at[i];
    if (!n || !(node_is_enter(n) || node_is_next_iteration(n)) || dtype_is_ref(n->out_types[0]) ||
        n->out_types[0] == SHOAL_RESOURCE)
      continue;
    FOR_CONSUMERS (u, &users, n) {
      if (u->input < 0) continue;
      move_to(c, n, c->device[u->node->id]);
      if (node_is_merge(u->node)) break;
    }
  }
  consumers_release(&users);
}

/* Every place that has nodes of a frame iterates, if the frame is in more than one. */
static shoal_status add_control_loops(struct edge_cutter *c) {
  int n_frames = (int)c->frames.at.n;
  for (int f = 1; f < n_frames; f++) {
    int first = -1;
    bool spans = false;
    for (size_t i = 0; i < c->g->nodes.n; i++) {
      if (!c->g->nodes.at[i] || (c->frames.runs_in[i] != f && c->frames.output_in[i] != f)) continue;
      if (first >= 0 && c->place[i] != first) spans = true;
      first = c->place[i];
    }
    for (size_t i = 0; spans && i < c->g->nodes.n; i++) {
      struct shoal_node *merge;
      if (c->g->nodes.at[i] && c->frames.runs_in[i] == f) TRY(loop_merge(c, f, c->place[i], c->device[i], &merge));
    }
  }
  return NULL;
}

/* A node added at a place waits there for another. */
static shoal_status wait_for(struct edge_cutter *c, struct shoal_node *n, struct shoal_node *other, int place,
                             int frame) {
  struct shoal_node *here = c->map[other->id];
  if (c->place[other->id] != place) TRY(bring(c, (shoal_out){other, -1}, n->assigned, place, frame, &here));
  graph_add_control(n, here);
  return NULL;
}

static bool is_reference(shoal_out o) { return dtype_is_ref(o.node->out_types[o.index]); }

/* The value behind the reference that n takes as input k, read when n may run. That makes no cycle: n waits for the
 * same. A Merge waits for one of its inputs only. */
static shoal_status bring_read(struct edge_cutter *c, const struct shoal_node *n, int k, struct shoal_node **out) {
  struct shoal_node *variable = c->map[n->in[k].node->id], *read;
  int place = c->place[n->in[k].node->id], frame = c->frames.runs_in[n->id];
  shoal_out from = {variable, n->in[k].index};
  TRY(add(c, c->parts[place], variable->name, "Identity", &from, 1, NULL, 0, variable->assigned, &read));
  for (int i = 0; i < n->n_in && !node_is_merge(n); i++)
    if (!is_reference(n->in[i])) TRY(wait_for(c, read, n->in[i].node, place, frame));
  for (size_t i = 0; i < n->control.n; i++) TRY(wait_for(c, read, n->control.at[i], place, frame));
  return transfer(c, (shoal_out){read, 0}, variable->name, place, c->device[n->id], c->place[n->id], frame, out);
}

static shoal_status connect(struct edge_cutter *c, struct shoal_node *n) {
  struct shoal_node *copy = c->map[n->id];
  int place = c->place[n->id], frame = c->frames.runs_in[n->id];
  for (int k = 0; k < n->n_in; k++) {
    struct shoal_node *from = n->in[k].node, *here;
    if (c->place[from->id] == place) continue;
    if (dtype_is_ref(n->in_types[k]))
      return INVALID("Bad ref data edge: {{node %s}} takes a reference from {{node %s}} on another device", n->name,
                     from->name);
    if (is_reference(n->in[k])) TRY(bring_read(c, n, k, &here));
    else TRY(bring(c, n->in[k], c->device[n->id], place, frame, &here));
    copy->in[k] = (shoal_out){here, 0};
  }
  for (size_t k = 0; k < n->control.n; k++) {
    struct shoal_node *from = n->control.at[k], *here;
    if (c->place[from->id] == place) continue;
    TRY(bring(c, (shoal_out){from, -1}, c->device[n->id], place, frame, &here));
    graph_add_control(copy, here);
  }
  return NULL;
}

static shoal_status locate(struct edge_cutter *c) {
  for (size_t i = 0; i < c->g->nodes.n; i++) {
    struct shoal_node *n = c->g->nodes.at[i];
    if (!n) continue;
    if (!n->assigned) return INTERNAL("{{node %s}} has not been placed", n->name);
    c->device[i] = mem_strdup(n->assigned);
    c->place[i] = c->o->place_of(c->o->arg, n->assigned);
    if (c->place[i] < 0) return INVALID("{{node %s}} is on unknown device %s", n->name, n->assigned);
  }
  return NULL;
}

static shoal_status cut(struct edge_cutter *c, struct shoal_node **order) {
  const struct shoal_graph *g = c->g;
  TRY(graph_topological_order(g, order));
  TRY(frames_init(&c->frames, g, order));
  c->loop_cond = mem_zalloc(c->frames.at.n, sizeof *c->loop_cond);
  for (int i = 0; i < g->n_nodes; i++) {
    shoal_out *cond = &c->loop_cond[c->frames.runs_in[order[i]->id]];
    if (op_is(order[i]->op, "LoopCond")) *cond = (shoal_out){order[i], 0};
    else if (!cond->node && node_is_switch(order[i]) && str_starts(order[i]->name, "_cloop")) *cond = order[i]->in[1];
  }
  if (c->frames.at.n > 1) move_to_merges(c);
  bool *keep = mem_zalloc(g->nodes.n, sizeof *keep);
  struct shoal_node **map = mem_zalloc(g->nodes.n, sizeof *map);
  for (int p = 0; p < c->o->n_places; p++) {
    bool any = false;
    memset(map, 0, g->nodes.n * sizeof *map);
    for (size_t i = 0; i < g->nodes.n; i++) {
      keep[i] = g->nodes.at[i] && c->place[i] == p;
      any |= keep[i];
    }
    c->parts[p] = any ? graph_subset(g, keep, map) : NULL;
    for (size_t i = 0; any && i < g->nodes.n; i++) {
      if (!keep[i]) continue;
      c->map[i] = map[i];
      free(map[i]->assigned);
      map[i]->assigned = mem_strdup(c->device[i]);
      graph_set_device(map[i], c->device[i]);
    }
  }
  free(keep);
  free(map);
  if (c->frames.at.n > 1) TRY(add_control_loops(c));
  for (int i = 0; i < g->n_nodes; i++) TRY(connect(c, order[i]));
  return NULL;
}

static bool is_join(const struct shoal_node *n) { return op_is(n->op, "NoOp") && n->control.n > 0; }

void graph_drop_joins(struct shoal_graph *g) {
  int *uses = mem_zalloc(g->nodes.n, sizeof *uses);
  VEC(struct shoal_node *) last = {0};
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    for (int k = 0; n && k < n->n_in; k++) uses[n->in[k].node->id]++;
    for (size_t k = 0; n && k < n->control.n; k++) uses[n->control.at[k]->id]++;
  }
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && !uses[i] && is_join(g->nodes.at[i])) vec_push(&last, g->nodes.at[i]);
  while (last.n) {
    struct shoal_node *n = vec_pop(&last);
    for (size_t k = 0; k < n->control.n; k++) {
      struct shoal_node *from = n->control.at[k];
      if (--uses[from->id] == 0 && is_join(from)) vec_push(&last, from);
    }
    graph_remove(g, n);
  }
  vec_release(&last);
  free(uses);
}

shoal_status graph_partition(const struct shoal_graph *g, const struct partition_options *o,
                             struct shoal_graph **parts) {
  struct edge_cutter c = {.g = g, .o = o, .parts = parts};
  for (int p = 0; p < o->n_places; p++) parts[p] = NULL;
  c.map = mem_zalloc(g->nodes.n, sizeof *c.map);
  c.device = mem_zalloc(g->nodes.n, sizeof *c.device);
  c.place = mem_zalloc(g->nodes.n, sizeof *c.place);
  struct shoal_node **order = mem_zalloc((size_t)g->n_nodes, sizeof *order);
  shoal_status s = locate(&c);
  if (!s) s = cut(&c, order);
  for (size_t i = 0; i < g->nodes.n; i++) free(c.device[i]);
  for (int p = 0; s && p < o->n_places; p++) {
    graph_free(parts[p]);
    parts[p] = NULL;
  }
  strmap_release(&c.recvs);
  strmap_release(&c.loops);
  frames_release(&c.frames);
  free(c.loop_cond);
  free(c.map);
  free(c.device);
  free(c.place);
  free(order);
  return s;
}

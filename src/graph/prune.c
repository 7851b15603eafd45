/* Pruning: marks backwards from fetches and targets, stopping at feeds, and copies what is marked.
 *
 * A fed tensor cuts its edge only: the node that makes it stays if another of its outputs, or it itself by a
 * control edge, is needed. */
#include "graph/prune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"

bool tensor_name_parse(const char *text, char *name, size_t size, int *index) {
  const char *colon = strrchr(text, ':');
  size_t n = colon ? (size_t)(colon - text) : strlen(text);
  int64_t i = 0;
  if (colon && (colon[1] == '-' || colon[1] == '+' || !str_to_int64(colon + 1, &i))) return false;
  if (!n || n >= size) return false;
  memcpy(name, text, n);
  name[n] = 0;
  *index = i > INT32_MAX ? INT32_MAX : (int)i;
  return true;
}

/* TensorFlow tells a name that is not there from an output that its node does not have. */
static shoal_status find_out(const struct shoal_graph *g, const char *text, bool feed, shoal_out *out) {
  char name[4096];
  bool control = text[0] == '^', parsed = tensor_name_parse(text + control, name, sizeof name, &out->index);
  out->node = parsed ? graph_find(g, name) : NULL;
  if (!out->node && feed) return NOT_FOUND("FeedInputs: unable to find feed output %s", text);
  if (!out->node) return NOT_FOUND("FetchOutputs node %s: not found", text);
  if (control)
    return INVALID("%s: a control edge of %s has no value that could be %s", text, name, feed ? "fed" : "fetched");
  if (out->index < out->node->n_out) return NULL;
  if (feed) return INVALID("FeedInputs: %s should have output index < %d", text, out->node->n_out);
  if (!out->node->n_out)
    return INVALID(
        "Tried to fetch data for '%s', which produces no output.  To run to a node but not fetch any data, pass '%s' "
        "as an argument to the 'target_node_names' argument of the Session::Run API.",
        text, text);
  return INVALID("FetchOutputs %s: output index too large, must be < %d", text, out->node->n_out);
}

struct pruning {
  const struct shoal_graph *g;
  const struct step_signature *sig;
  shoal_out *feeds, *fetches;
  struct strmap fed; /* "x:0" -> index + 1 */
  bool *keep;
  VEC(struct shoal_node *) todo;
};

static int fed_index(const struct pruning *p, shoal_out o) {
  if (!p->fed.n) return -1;
  char key[4096];
  snprintf(key, sizeof key, "%s:%d", o.node->name, o.index);
  return (int)(intptr_t)strmap_get(&p->fed, key) - 1;
}

/* What waits for a placeholder that is fed waits for the feed: the feed's index, else -1. */
static int fed_placeholder(const struct pruning *p, const struct shoal_node *n) {
  if (!op_is(n->op, "Placeholder") && !op_is(n->op, "PlaceholderV2")) return -1;
  return fed_index(p, (shoal_out){(struct shoal_node *)(uintptr_t)n, 0});
}

static void mark(struct pruning *p, struct shoal_node *n) {
  if (p->keep[n->id]) return;
  p->keep[n->id] = true;
  vec_push(&p->todo, n);
}

static shoal_status resolve(struct pruning *p) {
  const struct step_signature *sig = p->sig;
  if (!sig->n_fetches && !sig->n_targets) return INVALID("Must specify at least one target to fetch or execute.");
  for (int i = 0; i < sig->n_feeds; i++) {
    TRY(find_out(p->g, sig->feeds[i], true, &p->feeds[i]));
    char *key = mem_printf("%s:%d", p->feeds[i].node->name, p->feeds[i].index);
    bool twice = strmap_put(&p->fed, key, (void *)(intptr_t)(i + 1)) != NULL;
    free(key);
    if (twice) return INVALID("Endpoint \"%s\" fed more than once.", sig->feeds[i]);
  }
  for (int i = 0; i < sig->n_fetches; i++) {
    TRY(find_out(p->g, sig->fetches[i], false, &p->fetches[i]));
    if (fed_index(p, p->fetches[i]) >= 0) return INVALID("Endpoint \"%s\" is both fed and fetched.", sig->fetches[i]);
    mark(p, p->fetches[i].node);
  }
  struct text missing = {0};
  for (int i = 0; i < sig->n_targets; i++) {
    char name[4096];
    int index;
    struct shoal_node *n =
        tensor_name_parse(sig->targets[i], name, sizeof name, &index) ? graph_find(p->g, name) : NULL;
    if (n) mark(p, n);
    else text_addf(&missing, "%s ", sig->targets[i]);
  }
  shoal_status s =
      missing.n ? NOT_FOUND("PruneForTargets: Some target nodes not found: %s", text_cstr(&missing)) : NULL;
  text_release(&missing);
  return s;
}

static void mark_back(struct pruning *p) {
  while (p->todo.n) {
    struct shoal_node *n = vec_pop(&p->todo);
    for (int i = 0; i < n->n_in; i++)
      if (n->in[i].node && fed_index(p, n->in[i]) < 0) mark(p, n->in[i].node);
    for (size_t i = 0; i < n->control.n; i++)
      if (fed_placeholder(p, n->control.at[i]) < 0) mark(p, n->control.at[i]);
  }
}

static void put(struct named_attr *attrs, int *n, const char *name, struct attr value) {
  attrs[(*n)++] = (struct named_attr){mem_strdup(name), value};
}

/* _Arg, _Retval, or the client's end of a transfer. */
static shoal_status add_end(struct shoal_graph *g, const struct prune_options *o, bool feed, const char *tensor,
                            int index, shoal_out from, shoal_dtype type, struct shoal_node **out) {
  bool wires = o->style == FEED_WIRES;
  const char *op = wires ? (feed ? "_Recv" : "_Send") : (feed ? "_Arg" : "_Retval");
  char *base = mem_printf("_%s_%s_%d", feed ? (wires ? "recv" : "arg") : (wires ? "send" : "retval"), tensor, index);
  for (char *c = base; *c; c++)
    if (*c == ':') *c = '_';
  char *name = graph_unique_name(g, base);
  struct named_attr *attrs = mem_zalloc(8, sizeof *attrs);
  int n = 0;
  put(attrs, &n, wires && feed ? "tensor_type" : "T", attr_type(type));
  if (wires) {
    put(attrs, &n, "tensor_name", attr_string(tensor, strlen(tensor)));
    put(attrs, &n, "send_device", attr_string(o->device, strlen(o->device)));
    put(attrs, &n, "recv_device", attr_string(o->device, strlen(o->device)));
    put(attrs, &n, "send_device_incarnation", attr_int((int64_t)o->incarnation));
    put(attrs, &n, "client_terminated", attr_bool(true));
  } else {
    put(attrs, &n, "index", attr_int(index));
  }
  shoal_status s =
      op_find(op) ? graph_add(g, name, op_find(op), &from, feed ? 0 : 1, attrs, n, out) : INTERNAL("no op %s", op);
  if (!s) {
    (*out)->assigned = mem_strdup(o->device);
    graph_set_device(*out, o->device);
  }
  free(base);
  free(name);
  return s;
}

static shoal_status cut(struct pruning *p, const struct prune_options *o, struct shoal_graph **out) {
  struct shoal_node **map = mem_zalloc(p->g->nodes.n, sizeof *map);
  struct shoal_graph *g = graph_subset(p->g, p->keep, map);
  shoal_status s = NULL;
  struct shoal_node **args = mem_zalloc((size_t)p->sig->n_feeds, sizeof *args);
  for (int i = 0; i < p->sig->n_feeds && !s; i++) {
    shoal_out f = p->feeds[i];
    s = add_end(g, o, true, p->sig->feeds[i], i, (shoal_out){0}, dtype_base(f.node->out_types[f.index]), &args[i]);
  }
  for (size_t i = 0; i < p->g->nodes.n && !s && p->sig->n_feeds; i++) {
    struct shoal_node *n = p->g->nodes.at[i];
    for (int k = 0; map[i] && k < n->n_in; k++) {
      int feed = n->in[k].node ? fed_index(p, n->in[k]) : -1;
      if (feed < 0) continue;
      if (dtype_is_ref(n->in_types[k]))
        s = INVALID("Tensor %s is fed, but {{node %s}} needs the variable itself", p->sig->feeds[feed], n->name);
      map[i]->in[k] = (shoal_out){args[feed], 0};
    }
    for (size_t k = 0; map[i] && k < n->control.n; k++) {
      int feed = fed_placeholder(p, n->control.at[k]);
      if (feed >= 0) graph_add_control(map[i], args[feed]);
    }
  }
  for (int i = 0; i < p->sig->n_fetches && !s; i++) {
    shoal_out f = p->fetches[i];
    struct shoal_node *end;
    s = add_end(g, o, false, p->sig->fetches[i], i, (shoal_out){map[f.node->id], f.index},
                dtype_base(f.node->out_types[f.index]), &end);
  }
  free(map);
  free(args);
  if (s) graph_free(g);
  else *out = g;
  return s;
}

shoal_status graph_prune(const struct shoal_graph *g, const struct step_signature *sig, const struct prune_options *o,
                         struct shoal_graph **out) {
  struct pruning p = {.g = g, .sig = sig};
  p.feeds = mem_zalloc((size_t)sig->n_feeds, sizeof *p.feeds);
  p.fetches = mem_zalloc((size_t)sig->n_fetches, sizeof *p.fetches);
  p.keep = mem_zalloc(g->nodes.n, sizeof *p.keep);
  shoal_status s = resolve(&p);
  if (!s) {
    mark_back(&p);
    s = cut(&p, o, out);
  }
  strmap_release(&p.fed);
  vec_release(&p.todo);
  free(p.feeds);
  free(p.fetches);
  free(p.keep);
  return s;
}

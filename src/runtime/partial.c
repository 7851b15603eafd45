/* Partial runs; see partial.h. */
#include "runtime/partial.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"

/* ---- what has had its turn ---- */

void partial_marks_init(struct partial_marks *m, const struct shoal_graph *pruned, char *const *feeds, int n_feeds,
                        char *const *fetches, int n_fetches) {
  *m = (struct partial_marks){pruned, feeds, fetches, n_feeds, n_fetches, NULL, NULL};
  m->fed = mem_zalloc((size_t)n_feeds, sizeof *m->fed);
  m->fetched = mem_zalloc((size_t)n_fetches, sizeof *m->fetched);
}

void partial_marks_release(struct partial_marks *m) {
  free(m->fed);
  free(m->fetched);
}

static int name_index(char *const *names, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

/* The tensor that a client's end of a transfer stands for; NULL for other nodes. */
static const char *client_tensor(const struct shoal_node *n, const char *op) {
  if (!n || !op_is(n->op, op)) return NULL;
  const struct attr *mine = node_attr(n, "client_terminated"), *name = node_attr(n, "tensor_name");
  return mine && mine->b && name && name->kind == ATTR_STRING ? name->s.data : NULL;
}

/* Does a fetch depend on a feed that has not come? */
static bool needs_more(const struct partial_marks *m, const char *fetch) {
  const struct shoal_graph *g = m->pruned;
  bool *seen = mem_zalloc(g->nodes.n, sizeof *seen), missing = false;
  VEC(struct shoal_node *) todo = {0};
  for (size_t i = 0; i < g->nodes.n && !todo.n; i++) {
    const char *name = client_tensor(g->nodes.at[i], "_Send");
    if (name && !strcmp(name, fetch)) vec_push(&todo, g->nodes.at[i]);
  }
  while (todo.n && !missing) {
    struct shoal_node *n = vec_pop(&todo);
    if (seen[n->id]) continue;
    seen[n->id] = true;
    const char *name = client_tensor(n, "_Recv");
    int feed = name ? name_index(m->feeds, m->n_feeds, name) : -1;
    missing = feed >= 0 && !m->fed[feed];
    for (int i = 0; i < n->n_in; i++)
      if (n->in[i].node) vec_push(&todo, n->in[i].node);
    for (size_t i = 0; i < n->control.n; i++) vec_push(&todo, n->control.at[i]);
  }
  vec_release(&todo);
  free(seen);
  return missing;
}

static shoal_status mark_feed(struct partial_marks *m, const char *name) {
  int k = name_index(m->feeds, m->n_feeds, name);
  if (k < 0) return INVALID("The feed %s was not specified in partial_run_setup.", name);
  if (m->fed[k]) return INVALID("The feed %s has already been fed.", name);
  m->fed[k] = true;
  return NULL;
}

static shoal_status mark_fetch(struct partial_marks *m, const char *name) {
  int k = name_index(m->fetches, m->n_fetches, name);
  if (k < 0) return INVALID("The fetch %s was not specified in partial_run_setup.", name);
  if (m->fetched[k]) return INVALID("The fetch %s has already been fetched.", name);
  if (needs_more(m, name)) return INVALID("Fetch %s can't be computed from the feeds that have been fed so far.", name);
  m->fetched[k] = true;
  return NULL;
}

shoal_status partial_marks_take(struct partial_marks *m, const struct step_signature *sig, bool *all) {
  shoal_status s = NULL;
  int feeds = 0, fetches = 0;
  while (feeds < sig->n_feeds && !(s = mark_feed(m, sig->feeds[feeds]))) feeds++;
  while (!s && fetches < sig->n_fetches && !(s = mark_fetch(m, sig->fetches[fetches]))) fetches++;
  if (s) {
    while (feeds-- > 0) m->fed[name_index(m->feeds, m->n_feeds, sig->feeds[feeds])] = false;
    while (fetches-- > 0) m->fetched[name_index(m->fetches, m->n_fetches, sig->fetches[fetches])] = false;
    return s;
  }
  *all = true;
  for (int i = 0; i < m->n_feeds; i++) *all = *all && m->fed[i];
  for (int i = 0; i < m->n_fetches; i++) *all = *all && m->fetched[i];
  return NULL;
}

/* ---- one call ---- */

struct value_wait {
  struct partial_call *call;
  int index;
};

static void got_value(void *arg, shoal_status err, struct tensor *value, bool is_dead) {
  struct value_wait w = *(struct value_wait *)arg;
  free(arg);
  if (!err && is_dead) err = INVALID("The tensor returned was not valid.");
  if (err) tensor_release(value);
  else tensor_move(&w.call->values[w.index], value);
  join_part(&w.call->join, err);
}

static char *client_key(const struct partial_end *e, const char *tensor) {
  return rendezvous_key_make(e->device, e->incarnation, e->device, tensor, 0, 0);
}

void partial_call_begin(struct partial_call *c, const struct partial_end *e, const struct step_signature *sig,
                        struct tensor *feeds, void (*next)(void *arg, shoal_status s), void *arg) {
  c->n = sig->n_fetches;
  c->values = mem_zalloc((size_t)c->n, sizeof *c->values);
  join_init(&c->join, (size_t)sig->n_feeds + (size_t)c->n + 1, next, arg);
  for (int i = 0; i < sig->n_feeds; i++) {
    char *key = client_key(e, sig->feeds[i]);
    join_part(&c->join, rendezvous_send(e->rendezvous, key, rendezvous_hash(key), &feeds[i], false));
    free(key);
  }
  for (int i = 0; i < sig->n_fetches; i++) {
    struct value_wait *w = mem_alloc(sizeof *w);
    *w = (struct value_wait){c, i};
    char *key = client_key(e, sig->fetches[i]);
    e->recv(e->rendezvous, key, e->cancel, got_value, w);
    free(key);
  }
  join_part(&c->join, NULL);
}

void partial_call_release(struct partial_call *c) {
  for (int i = 0; i < c->n; i++) tensor_release(&c->values[i]);
  free(c->values);
}

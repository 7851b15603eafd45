/* Finding patterns: a search that goes back where it went wrong. Patterns are small, and rows are in an order in which
 * nearly every one has a single candidate. */
#include "graph/pattern.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

static int name_of(struct pattern *p, const char *word, size_t n) {
  for (int i = 0; i < p->n_names; i++)
    if (strlen(p->names[i]) == n && !memcmp(p->names[i], word, n)) return i;
  if (p->n_names == PATTERN_NAMES || n >= sizeof p->names[0]) return -1;
  memcpy(p->names[p->n_names], word, n);
  p->names[p->n_names][n] = 0;
  return p->n_names++;
}

/* The next word of a row; its length, 0 at the row's end. */
static size_t word(const char **at) {
  while (**at == ' ') ++*at;
  return strcspn(*at, " \n");
}

static void read_op(struct pattern_row *row, const char *at, size_t n) {
  char name[64];
  row->perhaps = at[n - 1] == '?';
  row->among = at[n - 1] == '&';
  snprintf(name, sizeof name, "%.*s", (int)(n - (row->perhaps || row->among)), at);
  const struct op *op = op_find(name);
  row->op = op ? op->name : NULL;
}

static void read_operand(struct pattern *p, struct pattern_row *row, const char *at, size_t n) {
  const char *colon = memchr(at, ':', n);
  int i = row->n++;
  row->in[i] = *at == '*' ? -1 : name_of(p, at, colon ? (size_t)(colon - at) : n);
  row->index[i] = colon ? colon[1] - '0' : -1;
}

void pattern_add(struct pattern *p, const char *text) {
  for (const char *at = text; *at && p->n < PATTERN_ROWS; at += *at == '\n') {
    struct pattern_row *row = &p->rows[p->n++];
    *row = (struct pattern_row){0};
    size_t n = word(&at);
    row->result = name_of(p, at, n);
    at += n;
    at += word(&at); /* = */
    n = word(&at);
    read_op(row, at, n);
    for (at += n; (n = word(&at)) && row->n < PATTERN_OPERANDS; at += n) read_operand(p, row, at, n);
  }
}

int pattern_name(const struct pattern *p, const char *name) {
  for (int i = 0; i < p->n_names; i++)
    if (!strcmp(p->names[i], name)) return i;
  return -1;
}

/* ---- finding ---- */

struct pattern_search {
  const struct pattern *p;
  const struct consumers *users;
  bool casts;
  int64_t *tries;
  const struct shoal_node *taken[PATTERN_ROWS]; /* by row */
};

static bool match_from(struct pattern_search *s, int i, struct match *m);

static bool same(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

static bool unify(const struct pattern_row *row, int k, shoal_out o, struct match *m) {
  if (row->in[k] < 0) return true;
  shoal_out *of = &m->of[row->in[k]];
  if (row->index[k] >= 0) return of->node == o.node && o.index == row->index[k];
  if (!of->node) *of = o;
  return same(*of, o);
}

static bool any_order(const char *op) { return !strcmp(op, "Mul") || !strcmp(op, "AddV2") || !strcmp(op, "AddN"); }

static bool has_term(const struct shoal_node *n, shoal_out o) {
  for (int i = 0; i < n->n_in; i++)
    if (same(n->in[i], o)) return true;
  return false;
}

static bool all_among(const struct pattern_row *row, const struct shoal_node *n, const struct match *m) {
  for (int k = 0; k < row->n; k++)
    if (row->in[k] < 0 || !m->of[row->in[k]].node || !has_term(n, m->of[row->in[k]])) return false;
  return true;
}

/* The node's operands are the row's, beginning with the one at `first` (the second of two may come first); then the
 * rows after it. */
static bool operands(struct pattern_search *s, int i, const struct shoal_node *n, int first, struct match *m) {
  const struct pattern_row *row = &s->p->rows[i];
  struct match next = *m;
  for (int k = 0; k < row->n; k++)
    if (!unify(row, k, n->in[(k + first) % row->n], &next)) return false;
  if (!match_from(s, i + 1, &next)) return false;
  *m = next;
  return true;
}

/* n is row i's node: with it all rows from there on. */
static bool try_node(struct pattern_search *s, int i, struct shoal_node *n, struct match *m) {
  const struct pattern_row *row = &s->p->rows[i];
  if (--*s->tries < 0) return false;
  if (!row->op || strcmp(n->op->name, row->op) != 0 || (!row->among && n->n_in != row->n)) return false;
  for (int k = 0; k < i; k++)
    if (s->taken[k] == n) return false;
  struct match with = *m;
  with.of[row->result] = (shoal_out){n, 0};
  s->taken[i] = n;
  bool found = row->among
                   ? all_among(row, n, &with) && match_from(s, i + 1, &with)
                   : operands(s, i, n, 0, &with) || (any_order(row->op) && row->n == 2 && operands(s, i, n, 1, &with));
  if (found) *m = with;
  else s->taken[i] = NULL;
  return found;
}

static bool among_readers(struct pattern_search *s, int i, shoal_out o, struct match *m) {
  FOR_CONSUMERS (c, s->users, o.node)
    if (c->input >= 0 && (c->index == o.index) && try_node(s, i, c->node, m)) return true;
  return false;
}

/* A row that is not there: its result and its operand are one. */
static bool pass_over(struct pattern_search *s, int i, struct match *m) {
  const struct pattern_row *row = &s->p->rows[i];
  struct match with = *m;
  shoal_out *a = &with.of[row->result], *b = &with.of[row->in[0]];
  if (a->node && b->node && !same(*a, *b)) return false;
  if (!a->node) *a = *b;
  else *b = *a;
  if (!a->node || !match_from(s, i + 1, &with)) return false;
  *m = with;
  return true;
}

static bool match_from(struct pattern_search *s, int i, struct match *m) {
  if (i == s->p->n) return true;
  const struct pattern_row *row = &s->p->rows[i];
  if (row->perhaps && !s->casts) return pass_over(s, i, m);
  shoal_out at = m->of[row->result];
  if (at.node) return at.index == 0 && try_node(s, i, at.node, m);
  for (int k = 0; k < row->n; k++) {
    if (row->in[k] < 0 || !m->of[row->in[k]].node) continue;
    shoal_out o = m->of[row->in[k]];
    if (row->index[k] >= 0) o.index = row->index[k];
    return among_readers(s, i, o, m);
  }
  return false;
}

bool pattern_match(const struct pattern *p, const struct consumers *users, struct shoal_node *root, bool casts,
                   int64_t *tries, struct match *m) {
  struct pattern_search s = {.p = p, .users = users, .casts = casts, .tries = tries};
  *m = (struct match){0};
  m->of[p->rows[0].result] = (shoal_out){root, 0};
  return match_from(&s, 0, m);
}

struct shoal_node *match_node(const struct pattern *p, const struct match *m, bool casts, int i) {
  if (p->rows[i].perhaps && !casts) return NULL;
  return m->of[p->rows[i].result].node;
}

/* Running patterns: all threads of the program step through the text side by side, in order of preference, at most one
 * for each instruction, so no text takes more than (instructions x characters) steps. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/regex_internal.h"

enum { SLOTS = 2 * REGEX_MAX_GROUPS };

struct threads {
  int *at; /* instructions, in order of preference */
  int n;
  ptrdiff_t *slots; /* [n][SLOTS] */
};

struct regex_machine {
  const struct regex *r;
  const char *text, *end;
  bool full; /* a match counts only at the end of the text */
  bool want_slots;
  int64_t *seen;    /* [n_prog]: the step in which the instruction was last added */
  int64_t step;     /* goes on from match to match, so that seen need not be cleared */
  int *stack;       /* instructions still to follow; -1 - slot restores a slot */
  ptrdiff_t *saved; /* the slot's old value, beside the stack */
  struct threads now, next;
};

static bool is_word(const char *p) {
  char c = *p;
  return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
}

static bool holds(const struct regex_machine *m, uint32_t assertion, const char *p) {
  bool before = p > m->text && is_word(p - 1), after = p < m->end && is_word(p);
  switch (assertion) {
    case RX_TEXT_BEGIN: return p == m->text;
    case RX_TEXT_END: return p == m->end;
    case RX_LINE_BEGIN: return p == m->text || p[-1] == '\n';
    case RX_LINE_END: return p == m->end || *p == '\n';
    case RX_WORD: return before != after;
    default: return before == after;
  }
}

/* Adds the thread at pc and all it reaches without reading, best first. */
static void follow(struct regex_machine *m, struct threads *to, int pc, const char *p, ptrdiff_t *slots) {
  int n = 0;
  m->stack[n++] = pc;
  while (n) {
    pc = m->stack[--n];
    if (pc < 0) {
      slots[-1 - pc] = m->saved[n];
      continue;
    }
    if (m->seen[pc] == m->step) continue;
    m->seen[pc] = m->step;
    const struct regex_inst *i = &m->r->prog[pc];
    switch (i->op) {
      case RX_JUMP: m->stack[n++] = (int)i->x; break;
      case RX_SPLIT:
        m->stack[n++] = (int)i->y;
        m->stack[n++] = (int)i->x;
        break;
      case RX_SAVE:
        m->saved[n] = slots[i->x];
        m->stack[n++] = -1 - (int)i->x;
        slots[i->x] = p - m->text;
        m->stack[n++] = pc + 1;
        break;
      case RX_ASSERT:
        if (holds(m, i->x, p)) m->stack[n++] = pc + 1;
        break;
      default:
        if (m->want_slots) memcpy(to->slots + (size_t)to->n * SLOTS, slots, SLOTS * sizeof *slots);
        to->at[to->n++] = pc;
    }
  }
}

static bool in_class(const struct regex_class *c, uint32_t rune) {
  int lo = 0, hi = c->n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (c->ranges[2 * mid + 1] < rune) lo = mid + 1;
    else hi = mid;
  }
  return lo < c->n && c->ranges[2 * lo] <= rune;
}

static bool accepts(const struct regex *r, const struct regex_inst *i, uint32_t rune) {
  if (rune == RX_BAD_RUNE) return false;
  return i->op == RX_CHAR ? i->x == rune : i->op == RX_CLASS ? in_class(&r->classes[i->x], rune) : i->op == RX_ANY;
}

/* Runs from `from`; anchored: the match must begin there. */
static bool run(struct regex_machine *m, const char *from, bool anchored, ptrdiff_t *best) {
  bool matched = false;
  m->now.n = 0;
  for (const char *p = from;;) {
    if (!m->now.n && !matched && !anchored && m->r->starts_known) { /* nothing has begun: on to where it can */
      while (p < m->end && !m->r->starts[(unsigned char)*p]) p++;
      if (p == m->end) break;
    }
    if (!matched && (p == from || !anchored)) { /* a new thread behind those that began earlier */
      ptrdiff_t slots[SLOTS];
      for (int k = 0; k < SLOTS; k++) slots[k] = -1;
      if (!m->now.n) m->step++;
      follow(m, &m->now, 0, p, slots);
    }
    if (!m->now.n && (matched || anchored)) break;
    uint32_t rune = 0;
    int length = regex_decode(p, m->end, &rune);
    m->step++;
    m->next.n = 0;
    for (int t = 0; t < m->now.n; t++) {
      const struct regex_inst *i = &m->r->prog[m->now.at[t]];
      ptrdiff_t *slots = m->now.slots + (m->want_slots ? (size_t)t * SLOTS : 0);
      if (i->op == RX_MATCH) {
        if (m->full && p != m->end) continue;
        matched = true;
        if (m->want_slots) memcpy(best, slots, SLOTS * sizeof *best);
        break; /* the threads behind are less preferred */
      }
      if (length && accepts(m->r, i, rune)) follow(m, &m->next, m->now.at[t] + 1, p + length, slots);
    }
    struct threads swap = m->now;
    m->now = m->next;
    m->next = swap;
    if (!length) break;
    p += length;
  }
  return matched;
}

void regex_machine_free(struct regex_machine *m) {
  if (!m) return;
  free(m->seen);
  free(m->stack);
  free(m->saved);
  free(m->now.at);
  free(m->next.at);
  free(m->now.slots);
  free(m->next.slots);
  free(m);
}

static struct regex_machine *machine_new(const struct regex *r) {
  size_t n = (size_t)r->n_prog;
  struct regex_machine *m = mem_zalloc(1, sizeof *m);
  m->r = r;
  m->seen = mem_zalloc(n, sizeof *m->seen);
  m->stack = mem_alloc((2 * n + 4) * sizeof *m->stack);
  m->saved = mem_alloc((2 * n + 4) * sizeof *m->saved);
  m->now.at = mem_alloc(n * sizeof(int));
  m->next.at = mem_alloc(n * sizeof(int));
  m->now.slots = mem_zalloc(n * SLOTS, sizeof(ptrdiff_t));
  m->next.slots = mem_zalloc(n * SLOTS, sizeof(ptrdiff_t));
  return m;
}

static bool match(const struct regex *r, const char *text, size_t n, size_t from, bool full, ptrdiff_t *best) {
  _Atomic(struct regex_machine *) *spare = &((struct regex *)(uintptr_t)r)->spare;
  struct regex_machine *m = atomic_exchange(spare, NULL);
  if (!m) m = machine_new(r);
  m->text = text;
  m->end = text + n;
  m->full = full;
  m->want_slots = best != NULL;
  bool ok = run(m, text + from, full, best);
  regex_machine_free(atomic_exchange(spare, m));
  return ok;
}

bool regex_full_match(const struct regex *r, const char *text, size_t n) { return match(r, text, n, 0, true, NULL); }

bool regex_search(const struct regex *r, const char *text, size_t n, size_t from, struct regex_span *spans) {
  ptrdiff_t best[SLOTS];
  if (!match(r, text, n, from, false, best)) return false;
  for (int i = 0; i < REGEX_MAX_GROUPS; i++) {
    spans[i] = (struct regex_span){best[2 * i], best[2 * i + 1]};
    if (spans[i].begin < 0 || spans[i].end < 0) spans[i] = (struct regex_span){-1, -1};
  }
  return true;
}

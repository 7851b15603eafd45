#include "word2vec/tree.h"

#include <stdlib.h>

#include "base/mem.h"

/* Leaves are 0 to n - 1, the nodes above them n to 2n - 2, each made after its children: the root is the last. */
struct tree_build {
  int64_t *count;
  uint32_t *parent;
  bool *second;
  size_t n;
  uint32_t *leaves; /* most frequent first */
};

static int by_count(const void *a, const void *b, void *arg) {
  const int64_t *count = arg;
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return count[x] != count[y] ? (count[x] < count[y] ? 1 : -1) : x < y ? -1 : x > y;
}

/* The rarer of the next leaf and the next node; leaves are taken from the end, nodes as they were made. */
static uint32_t take(struct tree_build *b, size_t *leaf, size_t *node, size_t made) {
  bool is_leaf = *leaf > 0 && (*node >= made || b->count[b->leaves[*leaf - 1]] <= b->count[*node]);
  return is_leaf ? b->leaves[--*leaf] : (uint32_t)(*node)++;
}

static void grow(struct tree_build *b) {
  size_t leaf = b->n, node = b->n;
  for (size_t made = b->n; made < 2 * b->n - 1; made++) {
    uint32_t x = take(b, &leaf, &node, made), y = take(b, &leaf, &node, made);
    b->count[made] = b->count[x] + b->count[y];
    b->parent[x] = b->parent[y] = (uint32_t)made;
    b->second[y] = true;
  }
}

static size_t depth(const struct tree_build *b, uint32_t leaf) {
  size_t d = 0;
  for (uint32_t at = leaf; at != 2 * b->n - 2; at = b->parent[at]) d++;
  return d;
}

static void write_ways(struct word_tree *t, const struct tree_build *b) {
  for (uint32_t w = 0; w < b->n; w++) t->first[w + 1] = t->first[w] + depth(b, w);
  t->steps = mem_zalloc(t->first[b->n] + 1, sizeof *t->steps);
  for (uint32_t w = 0; w < b->n; w++) {
    size_t i = t->first[w + 1];
    for (uint32_t at = w; at != 2 * b->n - 2; at = b->parent[at])
      t->steps[--i] = (struct tree_step){b->parent[at] - (uint32_t)b->n, b->second[at]};
  }
}

void tree_init(struct word_tree *t, const struct word_vocabulary *v) {
  struct tree_build b = {.n = v->words.n};
  b.count = mem_zalloc(2 * b.n, sizeof *b.count);
  b.parent = mem_zalloc(2 * b.n, sizeof *b.parent);
  b.second = mem_zalloc(2 * b.n, sizeof *b.second);
  b.leaves = mem_zalloc(b.n, sizeof *b.leaves);
  for (uint32_t i = 0; i < b.n; i++) {
    b.count[i] = v->words.at[i].count;
    b.leaves[i] = i;
  }
  qsort_r(b.leaves, b.n, sizeof *b.leaves, by_count, b.count);
  grow(&b);
  t->first = mem_zalloc(b.n + 1, sizeof *t->first);
  write_ways(t, &b);
  free(b.count);
  free(b.parent);
  free(b.second);
  free(b.leaves);
}

void tree_release(struct word_tree *t) {
  free(t->steps);
  free(t->first);
  *t = (struct word_tree){0};
}

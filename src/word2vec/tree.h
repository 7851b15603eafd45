/* A Huffman tree of the words, by their counts: for the hierarchical softmax, where a word is the way to it. */
#ifndef WORD2VEC_TREE_H
#define WORD2VEC_TREE_H

#include <stdint.h>

#include "word2vec/vocabulary.h"

/* One step of a way: a node, and whether the way goes to its second child. */
struct tree_step {
  uint32_t node : 31, second : 1;
};

struct word_tree {
  struct tree_step *steps; /* of all words, each from the root on */
  size_t *first;           /* [words + 1]: a word's first */
};

void tree_init(struct word_tree *t, const struct word_vocabulary *v);
void tree_release(struct word_tree *t);

#endif

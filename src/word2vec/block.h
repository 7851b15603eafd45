/* The arithmetic of word2vec: a few rows against a few others, which is all that each of its variants does.
 *
 * For rows x of one matrix and rows y of another, each y with a label of 0 or 1 (is it the word that was there, or one
 * drawn at random; or, of a Huffman tree, which way), a step of gradient descent on the logistic loss is
 *
 *     g(x, y) = rate * (label(y) - sigmoid(x . y))      x += sum over y of g(x, y) * y      y += sum over x of g(x, y)
 * * x
 *
 * The original program does so for one pair after the other. Here the words around one word are the x, that word and
 * those drawn for it the y: all products of such a block are taken at once, each row is read once for all pairs it is
 * in, and the words drawn are shared by the block, as has become usual (pWord2Vec, BlazingText). Rows are `stride`
 * floats apart and long, aligned to 64 bytes, and zero beyond the width, so that no loop has a remainder.
 *
 * Threads train one model without locks, as the original does: two may change a row at once, and some of what one adds
 * is lost. That is a data race by the letter of C; plain loads and stores of floats are what all machines we know make
 * of it, and ThreadSanitizer is told not to look. */
#ifndef WORD2VEC_BLOCK_H
#define WORD2VEC_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

enum {
  BLOCK_X = 32,
  BLOCK_Y = 32,
  BLOCK_STRIDE = 16, /* floats that strides are a multiple of */
  BLOCK_LANES = 16,  /* floats in the widest register */
  BLOCK_TILE = 6, /* rows y at a time: twice as many registers, and three more. Later ones meet x as changed by these */
};

struct pair_block {
  float *const *x, *const *y;
  const float *label; /* of each y */
  int n_x, n_y;       /* at most BLOCK_X, BLOCK_Y */
};

/* What a thread lends to a kernel. */
struct block_room {
  _Alignas(64) float partial[BLOCK_X * BLOCK_Y * BLOCK_LANES]; /* of sums, a register each */
  _Alignas(64) float g[BLOCK_X * BLOCK_Y + BLOCK_LANES];
};

struct block_kernel {
  const char *name;
  bool (*has)(void); /* this machine what it needs; NULL: always */
  /* One step. No y is there twice. */
  void (*step)(const struct pair_block *b, size_t stride, float rate, struct block_room *room);
  /* to = the mean of the rows x */
  void (*mean)(float *const *x, int n, size_t stride, float *to);
  /* every row of x += after - before */
  void (*spread)(float *const *x, int n, size_t stride, const float *before, const float *after);
};

/* Best first; the last one has no needs. */
extern const struct block_kernel block_kernels[];
extern const int n_block_kernels;
/* The best one for this machine. */
const struct block_kernel *block_kernel(void);

#endif

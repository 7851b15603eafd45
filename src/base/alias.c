#include "base/alias.h"

#include <stdlib.h>

#include "base/mem.h"

/* Weights as shares of the whole, times n: the mean is 1. */
static void normalize(double *weights, uint32_t n) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += weights[i];
  for (uint32_t i = 0; i < n; i++) weights[i] = sum > 0 ? weights[i] * (n / sum) : 1;
}

void alias_fill(struct alias *places, double *weights, uint32_t n) {
  uint32_t *few = mem_zalloc(n, 2 * sizeof *few), *many = few + n, n_few = 0, n_many = 0;
  normalize(weights, n);
  for (uint32_t i = 0; i < n; i++) {
    places[i] = (struct alias){UINT32_MAX, i};
    if (weights[i] < 1) few[n_few++] = i;
    else many[n_many++] = i;
  }
  while (n_few && n_many) { /* what has too little gets the rest of its place from what has too much */
    uint32_t a = few[--n_few], b = many[n_many - 1];
    places[a] = (struct alias){(uint32_t)(weights[a] * 4294967295.0), b};
    weights[b] -= 1 - weights[a];
    if (weights[b] < 1) {
      n_many--;
      few[n_few++] = b;
    }
  }
  free(few); /* what is left in it is near 1, and keeps its place */
}

/* Drawing one of many by weight, with one look: Walker's alias table. Every place has an equal chance, and is shared by
 * its own number and one other. */
#ifndef BASE_ALIAS_H
#define BASE_ALIAS_H

#include <stdint.h>

struct alias {
  uint32_t keep; /* out of 2^32; else it is the other */
  uint32_t other;
};

/* Fills n places; the weights are used up. None below 0; all 0: all are alike. */
void alias_fill(struct alias *places, double *weights, uint32_t n);

/* place: one of them by chance; chance: any number. */
static inline uint32_t alias_draw(const struct alias *places, uint32_t place, uint32_t chance) {
  return chance <= places[place].keep ? place : places[place].other;
}

#endif

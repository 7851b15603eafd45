/* Chance: which words are drawn against the one that was there, and which occurrences are passed over.
 *
 * Words are drawn as often as their count to the power of 3/4 says, by an alias table (base/alias.h): exact, 8 bytes a
 * word, one look. (The original's table has 10^8 places, 400 MB, of which each look misses every cache.) */
#ifndef WORD2VEC_SAMPLING_H
#define WORD2VEC_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alias.h"
#include "word2vec/vocabulary.h"

/* The original's generator; the upper half of the state is what is used. */
static inline uint32_t chance(uint64_t *state) {
  *state = *state * 25214903917u + 11;
  return (uint32_t)(*state >> 32);
}
static inline uint32_t chance_below(uint64_t *state, uint32_t n) {
  return (uint32_t)((uint64_t)chance(state) * n >> 32);
}

struct word_sampling {
  struct alias *places; /* [n] */
  uint32_t *pass;       /* [n]: an occurrence is used when chance is no more than this */
  uint32_t n;
};

/* sample: as the original's -sample; 0: every occurrence is used. */
void sampling_init(struct word_sampling *s, const struct word_vocabulary *v, double sample);
void sampling_release(struct word_sampling *s);

static inline uint32_t sampling_draw(const struct word_sampling *s, uint64_t *state) {
  uint32_t i = chance_below(state, s->n);
  return alias_draw(s->places, i, chance(state));
}

#endif

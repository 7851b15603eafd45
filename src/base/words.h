/* A table of words with their counts: bytes to a number, and back.
 *
 * Words are bytes without NUL; whether they are UTF-8 is nobody's concern here. Their text lies one after the other in
 * one piece of memory, the entries in another, and an index of hashes finds them: three pieces, whatever the number of
 * words, so what a table takes is known, and one that may not grow any further says so. Not locked. */
#ifndef BASE_WORDS_H
#define BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct word {
  size_t at; /* its text: words.bytes + at */
  int64_t count;
  uint32_t hash, n; /* n: bytes of text; a NUL follows */
};

struct words_slot {
  uint32_t hash, id; /* id: 1 + the word's number; 0: free */
};

struct words {
  struct word *at; /* [n] of [room] */
  size_t n, room;
  struct words_slot *index; /* [cap], a power of two, or 0 */
  size_t cap;
  char *bytes; /* [used] of [bytes_room] */
  size_t used, bytes_room;
};

void words_release(struct words *w);
/* The word's number; -1: it is not there. */
int64_t words_find(const struct words *w, const char *text, size_t n);
/* Counts a word `count` times more; one that is new is added at the end. False, and nothing is changed, when the table
 * would have to take more than `limit` bytes for it (0: no limit), or when there is no memory. */
bool words_count(struct words *w, const char *text, size_t n, int64_t count, size_t limit);
/* Drops the words that were counted less often; the others keep their order, and get new numbers. */
void words_drop_rare(struct words *w, int64_t least);
/* Most frequent first, words of one count in the order of their bytes; those before `fixed` stay where they are. */
void words_sort(struct words *w, size_t fixed);
/* Bytes of memory that the table takes. */
size_t words_memory(const struct words *w);

static inline const char *word_text(const struct words *w, size_t id) { return w->bytes + w->at[id].at; }

#endif

/* A growing, NUL-terminated text, and small helpers on strings. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
  char *at; /* NULL while empty */
  size_t n, cap;
  bool in_block; /* its memory is a block (base/block.h): for what every step writes */
};

void text_add(struct text *t, const char *data, size_t n);
/* For sizes from outside: false, and t is as before, when there is no memory. */
bool text_try_add(struct text *t, const char *data, size_t n);
bool text_try_reserve(struct text *t, size_t extra);
void text_adds(struct text *t, const char *s);
void text_addc(struct text *t, char c);
void text_addf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds what a stranger chose, for people's eyes: control characters, whatever else could move a terminal's cursor or
 * turn its text around, and bytes that are no UTF-8 become \xNN; lines: ends of lines, and tabs, stay as they are. */
void text_add_shown(struct text *t, const char *s, size_t n, bool lines);
/* Adds s as messages must have it: bytes that are no UTF-8 become \xNN. */
void text_add_utf8(struct text *t, const char *s, size_t n);
/* Adds s as a string of JSON, with its quotes. */
void text_add_json(struct text *t, const char *s);
/* The text as a C string ("" when empty); owned by t. */
const char *text_cstr(const struct text *t);
/* Takes the string out of t: the caller frees it. */
char *text_take(struct text *t);
void text_release(struct text *t);

bool str_is_utf8(const char *s, size_t n);
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
static inline bool str_equal(const char *a, const char *b) { return a == b || (a && b && __builtin_strcmp(a, b) == 0); }
/* Decimal text as a whole to an integer; false when it is none or does not fit. */
bool str_to_int64(const char *s, int64_t *out);
/* A 64-bit hash for tables in memory (not stable across versions). */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);
/* TensorFlow's Hash64 (MurmurHash64A) and how it combines two: on the wire, in files and in op results. */
uint64_t hash64_stable(const void *data, size_t n);
static inline uint64_t hash64_combine(uint64_t a, uint64_t b) {
  return a ^ (b + 0x9e3779b97f4a7800ull + (a << 10) + (a >> 4));
}

#endif

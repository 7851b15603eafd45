/* What regex_parse.c makes and regex_match.c runs: a program for a machine of many threads (Pike's). */
#ifndef BASE_REGEX_INTERNAL_H
#define BASE_REGEX_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/regex.h"

enum regex_op {
  RX_CHAR,   /* the code point x, then the next instruction */
  RX_CLASS,  /* one of class x */
  RX_ANY,    /* any code point */
  RX_SPLIT,  /* go on at x, or failing that at y */
  RX_JUMP,   /* go on at x */
  RX_SAVE,   /* remember the place in slot x */
  RX_ASSERT, /* enum regex_assert x */
  RX_MATCH,
};

enum regex_assert { RX_TEXT_BEGIN, RX_TEXT_END, RX_LINE_BEGIN, RX_LINE_END, RX_WORD, RX_NOT_WORD };

struct regex_inst {
  enum regex_op op;
  uint32_t x, y;
};

struct regex_class {
  uint32_t *ranges; /* pairs lo, hi in order */
  int n;            /* pairs */
};

struct regex_machine; /* regex_match.c: the memory of one match */

struct regex {
  struct regex_inst *prog;
  int n_prog;
  struct regex_class *classes;
  int n_classes;
  int groups;
  bool starts_known; /* a match takes at least one character, whose first byte is in starts */
  bool starts[256];
  _Atomic(struct regex_machine *) spare; /* of the last match, for the next one */
};

void regex_machine_free(struct regex_machine *m);

enum { RX_MAX_RUNE = 0x10ffff, RX_BAD_RUNE = 0x110000 };

/* The code points that have a property, by RE2's name for it ("L", "Lu", "Greek"): in order. False: there is none. */
typedef void (*regex_add_range)(void *arg, uint32_t lo, uint32_t hi);
bool regex_property(const char *name, size_t n, regex_add_range add, void *arg);
/* Those that are the same as one of lo to hi but for their case. */
void regex_other_cases(uint32_t lo, uint32_t hi, regex_add_range add, void *arg);

/* The code point at p (RX_BAD_RUNE for a byte that begins none) and its length; 0 at the end. */
int regex_decode(const char *p, const char *end, uint32_t *rune);

#endif

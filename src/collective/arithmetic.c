#include "collective/arithmetic.h"

#include <stdio.h>
#include <string.h>

enum { CODES = 9 };
static const char *const names[CODES] = {"",       "Add,Id",  "Add,Div", "Mul,Id", "Mul,Div",
                                         "Max,Id", "Max,Div", "Min,Id",  "Min,Div"};

int collective_arithmetic_code(const struct collective_arithmetic *a) {
  return a ? 1 + 2 * (int)a->op + (a->final != NULL) : 0;
}

const char *collective_arithmetic_name(int code) { return code > 0 && code < CODES ? names[code] : ""; }

int collective_arithmetic_read(const char *text, size_t n) {
  size_t begin = n;
  while (begin && text[begin - 1] != '(') begin--;
  for (int code = 1; code < CODES && begin; code++) {
    size_t size = strlen(names[code]);
    if (n - begin == size + 1 && text[n - 1] == ')' && !memcmp(text + begin, names[code], size)) return code;
  }
  return 0;
}

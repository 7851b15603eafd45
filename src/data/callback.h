/* Functions of the program that a graph calls: by a number, which a graph can carry. Numbers are drawn at random, so
 * that a graph of somebody else's finds none; they hold until the process ends. */
#ifndef DATA_CALLBACK_H
#define DATA_CALLBACK_H

#include "base/status.h"
#include "shoal/input.h"

struct callback {
  shoal_input_fill *fill;
  void *arg;
};

int64_t callback_add(struct callback c);
/* NOT_FOUND when the number is of another process, or of nobody. */
shoal_status callback_find(int64_t number, struct callback *out);

#endif

/* Loops that are written once and compiled for every type of a group.
 *
 * A whole function inside a macro cannot be stepped through, and its errors are all of one line. So such loops stand in
 * a file of their own, x_loops.inc, and whoever wants them for a group of types says
 *
 *   #define LOOPS "ops/ROOM/x_loops.inc"
 *   #include "tensor/each_floating.inc"
 *   #include "tensor/each_integer.inc"
 *   #undef LOOPS
 *
 * with these defined anew for each type:
 *
 *   NAME(x)    x_SHOAL_FLOAT32 and so on: x with the type's enumerator
 *   T          the type of an element
 *   WIDE       what it is compared and computed in: float for half and bfloat16, else T
 *   WRAP       what it is added and multiplied in: WIDE, for integers the unsigned type, which wraps
 *   LONG       what many are added up in: WIDE, for integers 64 bits
 *   LOAD(v)    an element as WIDE; STORE(v): the element of a WIDE, WRAP or LONG
 *   LEAST      of type WIDE, which no element is below; MOST: which none is above (none of both for complex numbers) */
#ifndef TENSOR_EACH_TYPE_H
#define TENSOR_EACH_TYPE_H

#include <math.h>

#include "tensor/dtype.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

#endif

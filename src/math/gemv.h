/* Products with a matrix of one to three rows or columns: bound by memory, so nothing is packed. */
#ifndef MATH_GEMV_H
#define MATH_GEMV_H

#include "math/gemm.h"

bool gemv_suits(const struct gemm *g);
shoal_status gemv_run(struct pool *pool, const struct gemm *g);

#endif

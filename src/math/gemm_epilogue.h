/* The last step of a product, between gemm.c and gemm_epilogue.c. */
#ifndef MATH_GEMM_EPILOGUE_H
#define MATH_GEMM_EPILOGUE_H

#include "math/gemm.h"

/* n finished sums of a row of C, columns from j0 on, at x (of the accumulator's type; it may be C itself): applies
 * the epilogue in place and stores them in C. */
void gemm_finish_row(const struct gemm *g, void *x, int64_t row, int64_t j0, int64_t n);

#endif

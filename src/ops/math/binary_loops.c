/* Loops of two inputs: arithmetic, division in all its kinds, powers, and the gradients of unary functions. */
#include "ops/math/binary_loops.h"

/* ---- arithmetic ---- */

#define U(e) (uint64_t)(e)
#define CMUL(r, i, c) c(r(x) * r(y) - i(x) * i(y), r(x) * i(y) + i(x) * r(y))

BINARY_REALS(Add, x + y, x + y)
BINARY_UNSIGNED(BINARY, Add, U(x) + U(y))
BINARY_COMPLEXES(Add, x + y, x + y)
BINARY_REALS(Sub, x - y, x - y)
BINARY_UNSIGNED(BINARY, Sub, U(x) - U(y))
BINARY_COMPLEXES(Sub, x - y, x - y)
BINARY_REALS(Mul, x *y, x *y)
BINARY_UNSIGNED(BINARY, Mul, U(x) * U(y))
BINARY_COMPLEXES(Mul, CMUL(crealf, cimagf, c64_of), CMUL(creal, cimag, c128_of))
BINARY_REALS(SquaredDifference, (x - y) * (x - y), (x - y) * (x - y))
BINARY(SquaredDifference, u32, uint32_t, uint32_t, (x - y) * (x - y))
BINARY(SquaredDifference, u64, uint64_t, uint64_t, (x - y) * (x - y))
BINARY_COMPLEXES(SquaredDifference, (x - y) * conjf(x - y), (x - y) * conj(x - y))
/* A NaN on either side is the result. */
BINARY_REALS(Maximum, x > y || x != x ? x : y, x > y || x != x ? x : y)
BINARY_SIGNED(BINARY, Maximum, x > y ? x : y)
BINARY_UNSIGNED(BINARY, Maximum, x > y ? x : y)
BINARY_REALS(Minimum, x < y || x != x ? x : y, x < y || x != x ? x : y)
BINARY_SIGNED(BINARY, Minimum, x < y ? x : y)
BINARY_UNSIGNED(BINARY, Minimum, x < y ? x : y)
BINARY_REALS(MulNoNan, y == 0 ? 0 : x * y, y == 0 ? 0 : x * y)
BINARY_COMPLEXES(MulNoNan, y == 0 ? 0 : CMUL(crealf, cimagf, c64_of), y == 0 ? 0 : CMUL(creal, cimag, c128_of))

#define ALL_NUMBERS(op) \
  { IN_REALS(op), IN_INTS_UNSIGNED(op), IN_COMPLEXES(op) }
#define ALL_REAL(op) \
  { IN_REALS(op), IN_SIGNED(op), IN_UNSIGNED(op) }
const struct binary_loops binary_arithmetic[] = {
    {"AddV2", COST_MOVE, .fn = ALL_NUMBERS(Add)},
    {"Add", COST_MOVE, .fn = ALL_NUMBERS(Add)},
    {"Sub", COST_MOVE, .fn = ALL_NUMBERS(Sub)},
    {"Mul", COST_MOVE, .fn = ALL_NUMBERS(Mul)},
    {"SquaredDifference", COST_MOVE,
     .fn = {IN_REALS(SquaredDifference), IN_COMPLEXES(SquaredDifference), [SHOAL_INT32] = SquaredDifference_u32,
            [SHOAL_INT64] = SquaredDifference_u64}},
    {"Maximum", COST_MOVE, .fn = ALL_REAL(Maximum)},
    {"Minimum", COST_MOVE, .fn = ALL_REAL(Minimum)},
    {"MulNoNan", COST_MOVE, .fn = {IN_REALS(MulNoNan), IN_COMPLEXES(MulNoNan)}},
    {0}};

/* ---- division ---- */

/* y of 0 marks the element bad; the smallest number by -1 wraps (x86 would trap). */
#define GUARD(compute) \
  if (y == 0) {        \
    bad = 1;           \
    z = 0;             \
  } else {             \
    compute;           \
  }
#define QUOTIENT z = (__typeof__(z))(y == (__typeof__(y))-1 ? 0 - U(x) : U(x / y))
#define REMAINDER z = (__typeof__(z))(y == (__typeof__(y))-1 ? 0 : x % y)
#define FLOOR_QUOTIENT \
  QUOTIENT;            \
  z = (__typeof__(z))(z - (y != (__typeof__(y))-1 && x % y != 0 && (x < 0) != (y < 0)))
#define FLOOR_REMAINDER \
  REMAINDER;            \
  z = (__typeof__(z))(z != 0 && (z < 0) != (y < 0) ? z + y : z)

BINARY_SIGNED(BINARY_SMALL, TruncateDiv, GUARD(QUOTIENT))
BINARY_UNSIGNED(BINARY_SMALL, TruncateDiv, GUARD(z = x / y))
BINARY_SIGNED(BINARY_SMALL, FloorDiv, GUARD(FLOOR_QUOTIENT))
BINARY_SIGNED(BINARY_SMALL, TruncateMod, GUARD(REMAINDER))
BINARY_SIGNED(BINARY_SMALL, FloorMod, GUARD(FLOOR_REMAINDER))
BINARY_UNSIGNED(BINARY_SMALL, FloorMod, GUARD(z = x % y))

BINARY_REALS(Div, x / y, x / y)
BINARY_COMPLEXES(Div, x / y, x / y)
BINARY_REALS(TruncateDiv, truncf(x / y), trunc(x / y))
BINARY_REALS(FloorDiv, floorf(x / y), floor(x / y))
BINARY_CALL(TruncateMod, f32, float, float, fmodf(x, y))
BINARY_CALL(TruncateMod, f64, double, double, fmod(x, y))
BINARY_SMALL(FloorMod, f32, float, float, z = fmodf(x, y); if (z != 0 && (z < 0) != (y < 0)) z += y)
BINARY_SMALL(FloorMod, f64, double, double, z = fmod(x, y); if (z != 0 && (z < 0) != (y < 0)) z += y)
BINARY_REALS(DivNoNan, y == 0 ? 0 : x / y, y == 0 ? 0 : x / y)
BINARY_COMPLEXES(DivNoNan, y == 0 ? 0 : x / y, y == 0 ? 0 : x / y)
BINARY_REALS(Xdivy, x == 0 ? 0 : x / y, x == 0 ? 0 : x / y)
BINARY_COMPLEXES(Xdivy, x == 0 ? 0 : x / y, x == 0 ? 0 : x / y)

#define DIV_ZERO "Integer division by zero"
/* TensorFlow has the text above for the others alone. */
#define UNEXPECTED "Unexpected error in binary operator (only integer div and mod should have errors)"
#define INTS(op) IN_SIGNED(op), IN_UNSIGNED(op)
const struct binary_loops binary_division[] = {
    {"RealDiv", COST_MOVE, .fn = {IN_REALS(Div), IN_COMPLEXES(Div)}},
    {"Div", COST_MOVE, DIV_ZERO, .fn = {IN_REALS(Div), IN_COMPLEXES(Div), INTS(TruncateDiv)}},
    {"TruncateDiv", COST_VECTOR, UNEXPECTED, .fn = {IN_REALS(TruncateDiv), INTS(TruncateDiv)}, .internal = true},
    {"FloorDiv", COST_VECTOR, DIV_ZERO, .fn = {IN_REALS(FloorDiv), IN_SIGNED(FloorDiv), IN_UNSIGNED(TruncateDiv)}},
    {"Mod", COST_VECTOR, DIV_ZERO, .fn = {IN_REALS(TruncateMod), IN_SIGNED(TruncateMod), IN_UNSIGNED(FloorMod)}},
    {"TruncateMod", COST_VECTOR, UNEXPECTED, .internal = true,
     .fn = {IN_REALS(TruncateMod), IN_SIGNED(TruncateMod), IN_UNSIGNED(FloorMod)}},
    {"FloorMod", COST_VECTOR, DIV_ZERO, .fn = {IN_REALS(FloorMod), INTS(FloorMod)}},
    {"DivNoNan", COST_MOVE, .fn = {IN_REALS(DivNoNan), IN_COMPLEXES(DivNoNan)}},
    {"Xdivy", COST_MOVE, .fn = {IN_REALS(Xdivy), IN_COMPLEXES(Xdivy)}},
    {0}};

/* ---- what backpropagation through unary functions needs: x is the function's result, y its gradient ---- */

/* No gradient stays none, whatever the result was (0 * infinity would be NaN). TanhGrad and SigmoidGrad take x as it
 * is: whoever differentiates complex functions passes its conjugate. */
BINARY_REALS(TanhGrad, y *(1 - x * x), y *(1 - x * x))
BINARY_COMPLEXES(TanhGrad, y *(1 - x * x), y *(1 - x * x))
BINARY_REALS(SigmoidGrad, y *(x *(1 - x)), y *(x *(1 - x)))
BINARY_COMPLEXES(SigmoidGrad, y *x *(1 - x), y *x *(1 - x))
BINARY_REALS(RsqrtGrad, y == 0 ? 0 : -0.5f * (y * x) * (x * x), y == 0 ? 0 : -0.5 * (y * x) * (x * x))
BINARY_COMPLEXES(RsqrtGrad, y == 0 ? 0 : -0.5f * y * (conjf(x) * conjf(x) * conjf(x)),
                 y == 0 ? 0 : -0.5 * y * (conj(x) * conj(x) * conj(x)))
BINARY_REALS(SqrtGrad, y == 0 ? 0 : 0.5f * y / x, y == 0 ? 0 : 0.5 * y / x)
BINARY_COMPLEXES(SqrtGrad, y == 0 ? 0 : 0.5f * y / conjf(x), y == 0 ? 0 : 0.5 * y / conj(x))
BINARY_REALS(ReciprocalGrad, y == 0 ? 0 : -y * (x * x), y == 0 ? 0 : -y * (x * x))
BINARY_COMPLEXES(ReciprocalGrad, y == 0 ? 0 : -y * (conjf(x) * conjf(x)), y == 0 ? 0 : -y * (conj(x) * conj(x)))

#define GRADIENT(op, loops)                                       \
  {                                                               \
    op, COST_MOVE, .fn = { IN_REALS(loops), IN_COMPLEXES(loops) } \
  }
const struct binary_loops binary_gradients[] = {GRADIENT("TanhGrad", TanhGrad),
                                                GRADIENT("SigmoidGrad", SigmoidGrad),
                                                GRADIENT("RsqrtGrad", RsqrtGrad),
                                                GRADIENT("SqrtGrad", SqrtGrad),
                                                GRADIENT("ReciprocalGrad", ReciprocalGrad),
                                                GRADIENT("InvGrad", ReciprocalGrad),
                                                {0}};

/* Loops of two inputs that compare, and those on bits and truth values.
 *
 * Equality of plain bytes does not care about sign: one loop a size serves signed, unsigned, quantized and bool. */
#include "ops/math/binary_loops.h"

#define EQUAL_SIZES(op, sign)               \
  BINARY(op, u8, uint8_t, bool, x sign y)   \
  BINARY(op, u16, uint16_t, bool, x sign y) \
  BINARY(op, u32, uint32_t, bool, x sign y) \
  BINARY(op, u64, uint64_t, bool, x sign y) \
  BINARY(op, f32, float, bool, x sign y)    \
  BINARY(op, f64, double, bool, x sign y)   \
  BINARY_CALL(op, c64, c64, bool, x sign y) \
  BINARY_CALL(op, c128, c128, bool, x sign y)
EQUAL_SIZES(Equal, ==)
EQUAL_SIZES(NotEqual, !=)

#define ORDERED(op, sign)                        \
  BINARY(op, f32, float, bool, x sign y)         \
  BINARY(op, f64, double, bool, x sign y)        \
  BINARY(op, i32, int32_t, bool, x sign y)       \
  BINARY(op, i64, int64_t, bool, x sign y)       \
  BINARY_CALL(op, i8, int8_t, bool, x sign y)    \
  BINARY_CALL(op, i16, int16_t, bool, x sign y)  \
  BINARY_CALL(op, u8, uint8_t, bool, x sign y)   \
  BINARY_CALL(op, u16, uint16_t, bool, x sign y) \
  BINARY_CALL(op, u32, uint32_t, bool, x sign y) \
  BINARY_CALL(op, u64, uint64_t, bool, x sign y)
ORDERED(Less, <)
ORDERED(LessEqual, <=)
ORDERED(Greater, >)
ORDERED(GreaterEqual, >=)

#define IN_EQUAL(op)                                                                                   \
  IN_REALS(op), IN_COMPLEXES(op),                                                                      \
      IN_INTS_UNSIGNED(op), [SHOAL_BOOL] = op##_u8, [SHOAL_QINT8] = op##_u8, [SHOAL_QUINT8] = op##_u8, \
                            [SHOAL_QINT16] = op##_u16, [SHOAL_QUINT16] = op##_u16, [SHOAL_QINT32] = op##_u32
#define IN_ORDERED(op) IN_REALS(op), IN_SIGNED(op), IN_UNSIGNED(op)

BINARY(And, b, bool, bool, x &y)
BINARY(Or, b, bool, bool, x | y)

const struct binary_loops binary_comparisons[] = {{"Equal", COST_MOVE, .fn = {IN_EQUAL(Equal)}},
                                                  {"NotEqual", COST_MOVE, .fn = {IN_EQUAL(NotEqual)}},
                                                  {"Less", COST_MOVE, .fn = {IN_ORDERED(Less)}},
                                                  {"LessEqual", COST_MOVE, .fn = {IN_ORDERED(LessEqual)}},
                                                  {"Greater", COST_MOVE, .fn = {IN_ORDERED(Greater)}},
                                                  {"GreaterEqual", COST_MOVE, .fn = {IN_ORDERED(GreaterEqual)}},
                                                  {"LogicalAnd", COST_MOVE, .fn = {[SHOAL_BOOL] = And_b}},
                                                  {"LogicalOr", COST_MOVE, .fn = {[SHOAL_BOOL] = Or_b}},
                                                  {0}};

BINARY_UNSIGNED(BINARY, BitAnd, x &y)
BINARY_UNSIGNED(BINARY, BitOr, x | y)
BINARY_UNSIGNED(BINARY, BitXor, x ^ y)

/* Amounts outside [0, bits) are clamped: C leaves them undefined. */
#define BITS_OF(v) ((int)sizeof(v) * 8 - 1)
#define AMOUNT_SIGNED (int)(y < 0 ? 0 : y > BITS_OF(x) ? BITS_OF(x) : y)
#define AMOUNT_UNSIGNED (int)(y > (unsigned)BITS_OF(x) ? (unsigned)BITS_OF(x) : (unsigned)y)
BINARY_SIGNED(BINARY_CALL, LeftShift, (uint64_t)x << AMOUNT_SIGNED)
BINARY_UNSIGNED(BINARY_CALL, LeftShift, (uint64_t)x << AMOUNT_UNSIGNED)
BINARY_SIGNED(BINARY_CALL, RightShift, x >> AMOUNT_SIGNED)
BINARY_UNSIGNED(BINARY_CALL, RightShift, x >> AMOUNT_UNSIGNED)

const struct binary_loops binary_bitwise[] = {
    {"BitwiseAnd", COST_MOVE, .fn = {IN_INTS_UNSIGNED(BitAnd)}},
    {"BitwiseOr", COST_MOVE, .fn = {IN_INTS_UNSIGNED(BitOr)}},
    {"BitwiseXor", COST_MOVE, .fn = {IN_INTS_UNSIGNED(BitXor)}},
    {"LeftShift", COST_MOVE, .fn = {IN_SIGNED(LeftShift), IN_UNSIGNED(LeftShift)}},
    {"RightShift", COST_MOVE, .fn = {IN_SIGNED(RightShift), IN_UNSIGNED(RightShift)}},
    {0}};

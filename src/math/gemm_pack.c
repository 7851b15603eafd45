/* Packing: a block of a matrix rearranged so that a micro-kernel reads it front to back. Converts on the way
 * (half to float, narrow integers to words), so that one kernel serves several element types. */
#include <string.h>

#include "base/mem.h"
#include "math/gemm_kernel.h"
#include "math/transpose.h"

#define NAME pack_float_any
#define FROM float
#define TO float
#define CONVERT(v) (v)
#include "math/gemm_pack_any.inc"
#define NAME pack_half
#define FROM f16
#define TO float
#define CONVERT(v) f16_to_float(v)
#include "math/gemm_pack_any.inc"
#define NAME pack_bf16
#define FROM bf16
#define TO float
#define CONVERT(v) bf16_to_float(v)
#include "math/gemm_pack_any.inc"
#define NAME pack_double
#define FROM double
#define TO double
#define CONVERT(v) (v)
#include "math/gemm_pack_any.inc"
#define NAME pack_i8
#define FROM int8_t
#define TO uint32_t
#define CONVERT(v) ((uint32_t)(v))
#include "math/gemm_pack_any.inc"
#define NAME pack_u8
#define FROM uint8_t
#define TO uint32_t
#define CONVERT(v) ((uint32_t)(v))
#include "math/gemm_pack_any.inc"
#define NAME pack_i16
#define FROM int16_t
#define TO uint32_t
#define CONVERT(v) ((uint32_t)(v))
#include "math/gemm_pack_any.inc"
#define NAME pack_u16
#define FROM uint16_t
#define TO uint32_t
#define CONVERT(v) ((uint32_t)(v))
#include "math/gemm_pack_any.inc"
#define NAME pack_i32
#define FROM uint32_t
#define TO uint32_t
#define CONVERT(v) (v)
#include "math/gemm_pack_any.inc"
#define NAME pack_i64
#define FROM uint64_t
#define TO uint64_t
#define CONVERT(v) (v)
#include "math/gemm_pack_any.inc"
#define NAME pack_c64
#define FROM c64
#define TO c64
#define CONVERT(v) (v)
#include "math/gemm_pack_any.inc"
#define NAME pack_c128
#define FROM c128
#define TO c128
#define CONVERT(v) (v)
#include "math/gemm_pack_any.inc"

/* Four lanes at a time. */
static void transpose_lanes(int width, const float *x, int64_t ls, int lanes, int64_t n, float *y) {
  int i = 0;
  for (; i + 4 <= lanes; i += 4) {
    const float *r = x + i * ls;
    interleave_4_rows(r, r + ls, r + 2 * ls, r + 3 * ls, n, y + i, width);
  }
  for (; i < width; i++)
    for (int64_t p = 0; p < n; p++) y[p * width + i] = i < lanes ? x[i * ls + p] : 0;
}

/* Rows copied by a constant length: the compiler makes a few vector moves of each. */
#define COPY_ROWS(W)                                                              \
  case W:                                                                         \
    for (int64_t p = 0; p < n; p++, x += ks, y += W) memcpy(y, x, W * sizeof *y); \
    return;

static void pack_float(int width, const void *data, int64_t ls, int64_t ks, int lanes, int64_t n, void *out) {
  const float *x = data;
  float *y = out;
  if (ls == 1 && lanes == width) {
    switch (width) {
      COPY_ROWS(4)
      COPY_ROWS(6)
      COPY_ROWS(8)
      COPY_ROWS(12)
      COPY_ROWS(14)
      COPY_ROWS(16)
      COPY_ROWS(20)
      COPY_ROWS(24)
      COPY_ROWS(32)
      COPY_ROWS(48)
    }
  }
  if (ks == 1 && ls != 1) {
    if (gemm_pack_turned(width, lanes, x, ls * (int64_t)sizeof *x, n, y)) return;
    transpose_lanes(width, x, ls, lanes, n, y);
    return;
  }
  pack_float_any(width, data, ls, ks, lanes, n, out);
}

bool gemm_rows_may_stay(int64_t ls) {
  enum { LINE = 16, FEW = 32 * LINE }; /* floats; 32 lines on: every second row falls on the same set */
  return ls < FEW || ls % FEW >= LINE;
}

static void pack_float_rows(const float *x, int64_t ls, int width, int lanes, int64_t n, struct gemm_rows *to) {
  bool stay = gemm_rows_may_stay(ls);
  for (int i = 0; i < lanes; i++) {
    to->at[i] = stay ? x + i * ls : to->own[i];
    if (!stay) memcpy(to->own[i], x + i * ls, (size_t)n * sizeof *x);
  }
  for (int i = lanes; i < width; i++) to->at[i] = to->at[0];
}

bool gemm_packs_quads(const struct gemm_panel *p, shoal_dtype type) {
  return p->width == 4 && p->type == SHOAL_FLOAT32 && type == SHOAL_FLOAT32;
}

void gemm_pack_quads(const float *x, int64_t ks, int64_t lanes, int64_t n, float *y, size_t step) {
  for (int64_t l = 0; l < lanes; l += 16, x += 16, y += 4 * step) {
    const float *from = x;
    float *y0 = y, *y1 = y0 + step, *y2 = y1 + step, *y3 = y2 + step;
    for (int64_t p = 0; p < n; p++, from += ks) {
      memcpy(y0 + 4 * p, from, 16);
      memcpy(y1 + 4 * p, from + 4, 16);
      memcpy(y2 + 4 * p, from + 8, 16);
      memcpy(y3 + 4 * p, from + 12, 16);
    }
  }
}

/* ---- bfloat16 in groups of k ---- */

enum { MAX_GROUP = 32, MAX_WIDTH = 64 };

/* k lies contiguous: a lane's group is one piece of memory. */
static void group_runs(int width, int group, const uint16_t *x, int64_t ls, int lanes, int64_t groups, uint16_t *y) {
  int64_t q = 0;
  if (group == 2 && gemm_pack_turned(width, lanes, x, ls * (int64_t)sizeof *x, groups, y)) return;
  if (group == 2) /* pairs are 32-bit elements: four lanes and four pairs are turned round in registers */
    for (; q + 4 <= groups; q += 4) {
      int i = 0;
      for (; i + 4 <= lanes; i += 4) {
        const uint16_t *r = x + i * ls + 2 * q;
        transpose_4x4(r, r + ls, r + 2 * ls, r + 3 * ls, y + (q * width + i) * 2, width);
      }
      for (; i < lanes; i++)
        for (int t = 0; t < 4; t++) memcpy(y + ((q + t) * width + i) * 2, x + i * ls + 2 * (q + t), 4);
    }
  for (; q < groups; q++) {
    uint16_t *to = y + q * width * group;
    const uint16_t *from = x + q * group;
    if (group == 4)
      for (int i = 0; i < lanes; i++) memcpy(to + i * 4, from + i * ls, 8);
    else if (group == 32)
      for (int i = 0; i < lanes; i++) memcpy(to + i * 32, from + i * ls, 64);
    else
      for (int i = 0; i < lanes; i++) memcpy(to + i * group, from + i * ls, (size_t)group * 2);
  }
}

/* Lanes lie contiguous: a group is `group` rows, interleaved. Returns how many lanes were done. */
static int group_rows(int group, const uint16_t *x, int64_t ks, int lanes, uint16_t *y) {
  int i = 0;
  if (group == 2) {
    const uint16_t *x1 = x + ks;
    for (; i + 8 <= lanes; i += 8) interleave_8(x + i, x1 + i, y + 2 * i);
    for (; i < lanes; i++) {
      y[2 * i] = x[i];
      y[2 * i + 1] = x1[i];
    }
  } else if (group == 32) {
    for (; i + 8 <= lanes; i += 8)
      for (int t = 0; t < 32; t += 8) transpose_8x8(x + i + t * ks, ks, y + i * 32 + t, 32);
  } else if (group == 4) {
#if defined(__aarch64__)
    for (; i + 8 <= lanes; i += 8) {
      uint16x8x4_t v = {
          {vld1q_u16(x + i), vld1q_u16(x + ks + i), vld1q_u16(x + 2 * ks + i), vld1q_u16(x + 3 * ks + i)}};
      vst4q_u16(y + i * 4, v);
    }
    for (; i + 4 <= lanes; i += 4) {
      uint16x4x4_t v = {{vld1_u16(x + i), vld1_u16(x + ks + i), vld1_u16(x + 2 * ks + i), vld1_u16(x + 3 * ks + i)}};
      vst4_u16(y + i * 4, v);
    }
#endif
  }
  return i;
}

static void pack_groups(const struct gemm_panel *p, const void *data, int64_t ls, int64_t ks, int lanes, int64_t n,
                        void *out) {
  const uint16_t *x = data;
  uint16_t *y = out;
  int width = p->width, group = p->group;
  int64_t whole = n / group, padded = (n + p->round - 1) / p->round * p->round;
  if (lanes < width) memset(y, 0, (size_t)padded * (size_t)width * 2);
  if (ks == 1) {
    group_runs(width, group, x, ls, lanes, whole, y);
  } else if (ls != 1 || !gemm_pack_lines(group, width, lanes, x, ks, whole, y)) {
    for (int64_t q = 0; q < whole; q++) {
      const uint16_t *from = x + q * group * ks;
      uint16_t *to = y + q * width * group;
      for (int i = ls == 1 ? group_rows(group, from, ks, lanes, to) : 0; i < lanes; i++)
        for (int t = 0; t < group; t++) to[i * group + t] = from[i * ls + t * ks];
    }
  }
  /* What is left of k, and zeros up to a multiple of round. */
  x += whole * group * ks;
  y += whole * group * width;
  n -= whole * group;
  memset(y, 0, (size_t)(padded - whole * group) * (size_t)width * 2);
  if (!n) return;
  if (ls == 1 && group <= MAX_GROUP && width <= MAX_WIDTH) { /* rows that are not there are rows of zeros */
    uint16_t rows[MAX_GROUP * MAX_WIDTH];
    memset(rows, 0, (size_t)(group * width) * 2);
    for (int64_t t = 0; t < n; t++) memcpy(rows + t * width, x + t * ks, (size_t)lanes * 2);
    for (int i = group_rows(group, rows, width, width, y); i < lanes; i++)
      for (int64_t t = 0; t < n; t++) y[i * group + t] = rows[t * width + i];
    return;
  }
  for (int i = 0; i < lanes; i++)
    for (int64_t t = 0; t < n; t++) y[i * group + t] = x[i * ls + t * ks];
}

void gemm_pack_block(const struct gemm_panel *panel, const void *data, shoal_dtype type, int64_t ls, int64_t ks,
                     bool conj, int lanes, int64_t n, void *dst) {
  int w = panel->width;
  if (panel->type == SHOAL_BFLOAT16) {
    pack_groups(panel, data, ls, ks, lanes, n, dst);
    return;
  }
  if (panel->lie == GEMM_A_ROWS) {
    pack_float_rows(data, ls, w, lanes, n, dst);
    return;
  }
  switch (type) {
    case SHOAL_FLOAT32: pack_float(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_FLOAT16: pack_half(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_BFLOAT16: pack_bf16(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_FLOAT64: pack_double(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_INT8: pack_i8(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_UINT8: pack_u8(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_INT16: pack_i16(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_UINT16: pack_u16(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_INT32:
    case SHOAL_UINT32: pack_i32(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_INT64:
    case SHOAL_UINT64: pack_i64(w, data, ls, ks, lanes, n, dst); break;
    case SHOAL_COMPLEX64:
      pack_c64(w, data, ls, ks, lanes, n, dst);
      if (conj)
        for (int64_t i = 0; i < n * w; i++) ((float *)dst)[2 * i + 1] = -((float *)dst)[2 * i + 1];
      break;
    case SHOAL_COMPLEX128:
      pack_c128(w, data, ls, ks, lanes, n, dst);
      if (conj)
        for (int64_t i = 0; i < n * w; i++) ((double *)dst)[2 * i + 1] = -((double *)dst)[2 * i + 1];
      break;
    default: MUST(!"a type that gemm_run accepts");
  }
}

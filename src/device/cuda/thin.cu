/* Convolutions over thin images, those of one to four channels: the result, with its bias and Relu, and the filter's
 * gradient.
 *
 * They come to a block by tiles: so many lines and columns of the result, and what of the image lies under them, which
 * the block stages in its own memory, float32 and with zeros around it. A result is a few multiplications for each
 * number that is read or written, so that a card's ordinary arithmetic keeps up with its memory, and nothing is padded
 * to the eight channels that tensor cores take. */
#include "types.cuh"

enum { BLOCK = 256, ROOM = 9504, CHANNELS = 4, AHEAD = 4 }; /* ROOM: numbers; AHEAD: pixels that a thread has */

struct thin_conv { /* as kernels_thin.c fills it */
  int64_t tiles;
  int32_t in[2], out[2], filter[2], stride[2], dilation[2], pad[2], ci, co;
  int32_t rows;                          /* of the filter: places times channels */
  int32_t lines, columns, down, across;  /* of a tile, and tiles of an image */
  int32_t high, wide;                    /* lines staged, and numbers of each */
  int32_t quads, groups, pixels, chunks; /* of a block: fours of channels, groups of rows, pixels at once; and how many
                                          * blocks have all channels */
  int32_t packed, relu;                  /* four channels are read and written at once */
};

struct thin_tile {
  int64_t image;
  int32_t line, column, lines, columns;
};

__device__ inline thin_tile tile_of(const thin_conv &c, int64_t i) {
  thin_tile t;
  t.column = (int32_t)(i % c.across) * c.columns;
  t.line = (int32_t)(i / c.across % c.down) * c.lines;
  t.image = i / c.across / c.down;
  t.lines = min(c.lines, c.out[0] - t.line);
  t.columns = min(c.columns, c.out[1] - t.column);
  return t;
}

template <class T> __device__ inline void stage(const T *x, float *room, const thin_conv &c, const thin_tile &t) {
  int32_t top = t.line * c.stride[0] - c.pad[0], left = (t.column * c.stride[1] - c.pad[1]) * c.ci;
  int32_t end = c.in[1] * c.ci;
  const T *image = x + t.image * c.in[0] * end;
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < c.high * c.wide; i += BLOCK) {
    int32_t a = top + i / c.wide, b = left + i % c.wide;
    room[i] = a >= 0 && a < c.in[0] && b >= 0 && b < end ? load(image[a * end + b]) : 0;
  }
}

/* Where row r of the filter lies over what is staged, from a pixel's first number on. */
__device__ inline int32_t place_of(const thin_conv &c, int32_t r) {
  int32_t across = c.filter[1] * c.ci, in = r % across;
  return r / across * c.dilation[0] * c.wide + in / c.ci * c.dilation[1] * c.ci + in % c.ci;
}

/* The first number under pixel k of a tile, and how many pixels of the result it is from the tile's first. */
__device__ inline int32_t pixel_of(const thin_conv &c, const thin_tile &t, int32_t k, int32_t &result) {
  int32_t line = k / t.columns, column = k - line * t.columns;
  result = line * c.out[1] + column;
  return line * c.stride[0] * c.wide + column * c.stride[1] * c.ci;
}

__device__ inline int64_t first_pixel(const thin_conv &c, const thin_tile &t) {
  return (t.image * c.out[0] + t.line) * c.out[1] + t.column;
}

/* Four channels from `channel` on, or those that there are. */
template <class T>
__device__ inline void load_four(const T *p, const thin_conv &c, int32_t channel, float (&v)[CHANNELS]) {
  if (c.packed) {
    pack_of<T, CHANNELS> four = *(const pack_of<T, CHANNELS> *)p;
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) v[i] = load(four.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) v[i] = channel + i < c.co ? load(p[i]) : 0;
  }
}

template <class T>
__device__ inline void store_four(T *p, const thin_conv &c, int32_t channel, const float (&v)[CHANNELS]) {
  if (c.packed) {
    pack_of<T, CHANNELS> four;
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) four.v[i] = stored<T>::of(v[i]);
    *(pack_of<T, CHANNELS> *)p = four;
  } else {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++)
      if (channel + i < c.co) p[i] = stored<T>::of(v[i]);
  }
}

/* ---- forward ---- */

enum { MOST_ROWS = 256, STAGED = 5400, WEIGHTS = ROOM - STAGED }; /* of the room: image, then filter */

/* Rows of the filter, those of a block's channels, as it reads them: [rows, quads * 4]. */
template <class T>
__device__ inline void stage_filter(const T *w, float *room, int32_t *places, const thin_conv &c, int32_t first) {
  int32_t wide = c.quads * CHANNELS;
  for (int32_t r = threadIdx.x; r < c.rows; r += BLOCK) places[r] = place_of(c, r);
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < c.rows * wide; i += BLOCK) {
    int32_t channel = first + i % wide;
    room[i] = channel < c.co ? load(w[(int64_t)(i / wide) * c.co + channel]) : 0;
  }
}

/* Pixels of a tile that a thread makes at once: sums, by four channels. */
template <class T>
__device__ inline void make_pixels(T *y, const float *image, const float *filter, const int32_t *places,
                                   const thin_conv &c, const thin_tile &t, int32_t k, int32_t channel,
                                   const float (&bias)[CHANNELS]) {
  float sum[AHEAD][CHANNELS];
  int32_t from[AHEAD], to[AHEAD], n = t.lines * t.columns;
#pragma unroll
  for (int u = 0; u < AHEAD; u++) {
    from[u] = pixel_of(c, t, min(k + u * c.pixels, n - 1), to[u]);
#pragma unroll
    for (int v = 0; v < CHANNELS; v++) sum[u][v] = bias[v];
  }
  for (int32_t r = 0; r < c.rows; r++) {
    float4 w = *(const float4 *)(filter + r * c.quads * CHANNELS);
    int32_t place = places[r];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      float x = image[from[u] + place];
      sum[u][0] += x * w.x;
      sum[u][1] += x * w.y;
      sum[u][2] += x * w.z;
      sum[u][3] += x * w.w;
    }
  }
#pragma unroll
  for (int u = 0; u < AHEAD; u++) {
    if (k + u * c.pixels >= n) continue;
#pragma unroll
    for (int v = 0; v < CHANNELS; v++)
      if (c.relu && sum[u][v] <= 0) sum[u][v] = 0;
    store_four(y + (first_pixel(c, t) + to[u]) * c.co + channel, c, channel, sum[u]);
  }
}

/* A block to a tile, and, in y, to so many fours of channels. bias NULL: none. */
template <class T> __device__ inline void forward(const T *x, const T *w, const T *bias, T *y, const thin_conv &c) {
  __shared__ __align__(16) float room[ROOM];
  __shared__ int32_t places[MOST_ROWS];
  float *filter = room + STAGED, begin[CHANNELS] = {};
  int32_t q = threadIdx.x % c.quads, p = threadIdx.x / c.quads, first = blockIdx.y * c.quads * CHANNELS;
  int32_t channel = first + q * CHANNELS;
  bool works = p < c.pixels && channel < c.co;
  if (works && bias)
    for (int v = 0; v < CHANNELS; v++) begin[v] = channel + v < c.co ? load(bias[channel + v]) : 0;
  stage_filter(w, filter, places, c, first);
  for (int64_t i = blockIdx.x; i < c.tiles; i += gridDim.x) {
    thin_tile t = tile_of(c, i);
    __syncthreads();
    stage(x, room, c, t);
    __syncthreads();
    if (!works) continue;
    for (int32_t k = p; k < t.lines * t.columns; k += AHEAD * c.pixels)
      make_pixels(y, room, filter + q * CHANNELS, places, c, t, k, channel, begin);
  }
}

/* ---- the filter's gradient ---- */

/* A thread sums four channels of so many rows of the filter, over every so many pixels; then a block's threads join
 * what they have through the room, and blocks theirs by a kernel of its own: in an order that the shape decides. */
enum { EACH = 9, APART = BLOCK + 8, SLICES = 32, OUTPUTS = BLOCK / SLICES };
static_assert(EACH * CHANNELS * APART <= ROOM, "what a block's threads have sums of");

template <class T>
__device__ inline void add_tile(const T *dy, const float *image, const thin_conv &c, const thin_tile &t, int32_t p,
                                int32_t channel, const int32_t (&places)[EACH], float (&sum)[EACH][CHANNELS]) {
  const T *from = dy + first_pixel(c, t) * c.co + channel;
  int32_t n = t.lines * t.columns;
  for (int32_t k = p; k < n; k += AHEAD * c.pixels) {
    float d[AHEAD][CHANNELS];
    int32_t under[AHEAD], pixel;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      under[u] = pixel_of(c, t, min(k + u * c.pixels, n - 1), pixel);
      load_four(from + (int64_t)pixel * c.co, c, channel, d[u]);
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (k + u * c.pixels >= n) continue;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        float x = image[under[u] + places[i]];
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) sum[i][v] += x * d[u][v];
      }
    }
  }
}

/* Sums of all threads of a block, those of a pixel beside each other, go to its part. */
__device__ inline void put_part(const float *room, float *part, const thin_conv &c) {
  int32_t wide = c.quads * CHANNELS, first_row = blockIdx.y / c.chunks * c.groups * EACH;
  int32_t first = blockIdx.y % c.chunks * wide;
  for (int32_t e = threadIdx.x; e < c.groups * EACH * wide; e += BLOCK) {
    int32_t in = e % wide, i = e / wide, row = first_row + i, channel = first + in;
    if (row >= c.rows || channel >= c.co) continue;
    const float *from =
        room + (i % EACH * CHANNELS + in % CHANNELS) * APART + i / EACH * c.quads * c.pixels + in / CHANNELS;
    float sum = 0;
#pragma unroll 8
    for (int32_t p = 0; p < c.pixels; p++) sum += from[p * c.quads];
    part[(int64_t)row * c.co + channel] = sum;
  }
}

template <class T> __device__ inline void back_filter(const T *x, const T *dy, float *parts, const thin_conv &c) {
  __shared__ float room[ROOM];
  float sum[EACH][CHANNELS] = {};
  int32_t q = threadIdx.x % c.quads, p = threadIdx.x / c.quads % c.pixels, g = threadIdx.x / (c.quads * c.pixels);
  int32_t channel = (blockIdx.y % c.chunks * c.quads + q) * CHANNELS, places[EACH];
  int32_t row = (blockIdx.y / c.chunks * c.groups + g) * EACH;
  bool works = g < c.groups && channel < c.co;
#pragma unroll
  for (int i = 0; i < EACH; i++) places[i] = place_of(c, min(row + i, c.rows - 1));
  for (int64_t i = blockIdx.x; i < c.tiles; i += gridDim.x) {
    thin_tile t = tile_of(c, i);
    __syncthreads();
    stage(x, room, c, t);
    __syncthreads();
    if (works) add_tile(dy, room, c, t, p, channel, places, sum);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int v = 0; v < CHANNELS; v++) room[(i * CHANNELS + v) * APART + threadIdx.x] = sum[i][v];
  __syncthreads();
  put_part(room, parts + (int64_t)blockIdx.x * c.rows * c.co, c);
}

/* parts [pieces, n] are added. */
template <class T> __device__ inline void join_parts(const float *parts, T *out, int32_t n, int32_t pieces) {
  __shared__ float sums[SLICES][OUTPUTS];
  int32_t at = threadIdx.x % OUTPUTS, slice = threadIdx.x / OUTPUTS, i = blockIdx.x * OUTPUTS + at;
  float sum = 0;
  if (i < n)
#pragma unroll 8
    for (int32_t k = slice; k < pieces; k += SLICES) sum += parts[(int64_t)k * n + i];
  sums[slice][at] = sum;
  __syncthreads();
  if (slice || i >= n) return;
#pragma unroll
  for (int k = 1; k < SLICES; k++) sum += sums[k][at];
  out[i] = stored<T>::of(sum);
}

#define THIN_OF(T)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(BLOCK)                                                                 \
      thin_forward_##T(const T *x, const T *w, const T *bias, T *y, thin_conv c) { forward(x, w, bias, y, c); }       \
  extern "C" __global__ void __launch_bounds__(BLOCK)                                                                 \
      thin_back_filter_##T(const T *x, const T *dy, float *parts, thin_conv c) { back_filter(x, dy, parts, c); }      \
  extern "C" __global__ void __launch_bounds__(BLOCK)                                                                 \
      thin_join_##T(const float *parts, T *out, int32_t n, int32_t pieces) { join_parts(parts, out, n, pieces); }
THIN_OF(f32)
THIN_OF(f16)
THIN_OF(bf16)

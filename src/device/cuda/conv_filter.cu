/* The gradient of a small filter: [rows, co], rows being places of the filter times channels of the image, as a product
 * of what lies under the filter's places with the gradient of the result, over all pixels. There is little to sum for
 * each number that comes of it, so libraries, which cut it up for its result, leave a card idle: here it is cut up by
 * pixels, each block has all of the filter or much of it, and parts are joined in an order that the shape decides.
 *
 * A block takes tiles of the result: it stages what of the image lies under one, with zeros around it, and the tile's
 * gradients; then each of its warps multiplies 16 rows by 32 channels, eight pixels at a time. Pixels lie so far apart
 * in the block's memory that the four that a warp reads at once are in other banks. */
#include "split.cuh"

enum { WARP = 32, TILE_ROWS = 16, TILE_K = 8, TILES = 4, CHANNELS = TILES * 8, BESIDE = CHANNELS + 8 };
enum { ROOM = 12000, MOST_PIXELS = 256, MOST_BLOCK = 384, PACK = 4 };

struct filter_conv { /* as kernels_conv_filter.c fills it */
  int64_t tiles;
  int32_t in[2], out[2], filter[2], stride[2], dilation[2], pad[2], ci, co;
  int32_t rows, chunks;                 /* of the filter; blocks that have all of co */
  int32_t lines, columns, down, across; /* of a tile, and tiles of an image */
  int32_t high, wide, apart;            /* staged: lines, pixels of each, numbers from one to the next */
  int32_t packed[2];                    /* image, result: four channels are read at once */
};

struct filter_tile {
  int64_t image;
  int32_t line, column, columns, pixels;
};

__device__ inline filter_tile tile_of(const filter_conv &c, int64_t i) {
  filter_tile t;
  t.column = (int32_t)(i % c.across) * c.columns;
  t.line = (int32_t)(i / c.across % c.down) * c.lines;
  t.image = i / c.across / c.down;
  t.columns = min(c.columns, c.out[1] - t.column);
  t.pixels = min(c.lines, c.out[0] - t.line) * t.columns;
  return t;
}

template <int N>
__device__ inline void stage_image(const float *x, float *room, const filter_conv &c, const filter_tile &t) {
  typedef pack_of<float, N> pack;
  int32_t top = t.line * c.stride[0] - c.pad[0], left = t.column * c.stride[1] - c.pad[1], line = c.wide * c.ci / N;
  const float *image = x + t.image * c.in[0] * c.in[1] * c.ci;
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < c.high * line; i += blockDim.x) {
    int32_t in = i % line * N, pixel = in / c.ci, channel = in % c.ci, a = top + i / line, b = left + pixel;
    pack v = {};
    if (a >= 0 && a < c.in[0] && b >= 0 && b < c.in[1])
      v = *(const pack *)(image + ((int64_t)a * c.in[1] + b) * c.ci + channel);
    *(pack *)(room + (i / line * c.wide + pixel) * c.apart + channel) = v;
  }
}

/* Gradients of a tile, with zeros behind the last pixel, so that there are eights of them. */
template <int N>
__device__ inline void stage_result(const float *dy, float *room, const filter_conv &c, const filter_tile &t,
                                    int32_t first) {
  typedef pack_of<float, N> pack;
  const float *from = dy + ((t.image * c.out[0] + t.line) * c.out[1] + t.column) * c.co + first;
  int32_t all = (t.pixels + TILE_K - 1) / TILE_K * TILE_K;
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < all * (CHANNELS / N); i += blockDim.x) {
    int32_t pixel = i / (CHANNELS / N), channel = i % (CHANNELS / N) * N;
    pack v = {};
    if (pixel < t.pixels && first + channel < c.co)
      v = *(const pack *)(from + ((int64_t)(pixel / t.columns) * c.out[1] + pixel % t.columns) * c.co + channel);
    *(pack *)(room + pixel * BESIDE + channel) = v;
  }
}

/* Where the first place of the filter lies over each pixel of a tile; behind the last one, as over that. */
__device__ inline void find_under(int32_t *under, const filter_conv &c, const filter_tile &t) {
  for (int32_t i = threadIdx.x; i < MOST_PIXELS; i += blockDim.x) {
    int32_t pixel = min(i, t.pixels - 1);
    under[i] = (pixel / t.columns * c.stride[0] * c.wide + pixel % t.columns * c.stride[1]) * c.apart;
  }
}

/* Where row r of the filter lies, from there. */
__device__ inline int32_t place_of(const filter_conv &c, int32_t r) {
  int32_t across = c.filter[1] * c.ci, in = r % across;
  return (r / across * c.dilation[0] * c.wide + in / c.ci * c.dilation[1]) * c.apart + in % c.ci;
}

/* A warp's 16 rows: the lane has what split.cuh says of each step. */
__device__ inline void add_tile(const float *image, const float *result, const int32_t *under, int32_t pixels,
                                const int32_t (&place)[2], float (&sum)[TILES][4]) {
  int32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll 2
  for (int32_t k = 0; k < pixels; k += TILE_K) {
    float a[4], b[TILES][2];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = image[under[k + t + i / 2 * 4] + place[i % 2]];
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) b[n][i] = result[(k + t + i * 4) * BESIDE + n * 8 + g];
    multiply_split<TILES>(sum, a, b);
  }
}

__device__ inline void put_part(const filter_conv &c, float *part, int32_t row, int32_t first,
                                const float (&sum)[TILES][4]) {
  int32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < TILES; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int32_t r = row + g + i / 2 * 8, channel = first + n * 8 + t * 2 + i % 2;
      if (r < c.rows && channel < c.co) part[(int64_t)r * c.co + channel] = sum[n][i];
    }
}

/* In y: 32 channels, and as many 16 rows as a block has warps. parts: [blocks in x, rows, co]. */
extern "C" __global__ void __launch_bounds__(MOST_BLOCK, 2)
    conv_filter_parts(const float *x, const float *dy, float *parts, filter_conv c) {
  __shared__ __align__(16) float room[ROOM];
  __shared__ int32_t under[MOST_PIXELS];
  float *result = room + c.high * c.wide * c.apart, sum[TILES][4] = {};
  int32_t first = blockIdx.y % c.chunks * CHANNELS, g = threadIdx.x % WARP / 4, place[2];
  int32_t row = (blockIdx.y / c.chunks * (blockDim.x / WARP) + threadIdx.x / WARP) * TILE_ROWS;
  for (int i = 0; i < 2; i++) place[i] = place_of(c, min(row + g + i * 8, c.rows - 1));
  for (int64_t i = blockIdx.x; i < c.tiles; i += gridDim.x) {
    filter_tile t = tile_of(c, i);
    __syncthreads();
    if (c.packed[0]) stage_image<PACK>(x, room, c, t);
    else stage_image<1>(x, room, c, t);
    if (c.packed[1]) stage_result<PACK>(dy, result, c, t, first);
    else stage_result<1>(dy, result, c, t, first);
    find_under(under, c, t);
    __syncthreads();
    if (row < c.rows) add_tile(room, result, under, (t.pixels + TILE_K - 1) / TILE_K * TILE_K, place, sum);
  }
  put_part(c, parts + (int64_t)blockIdx.x * c.rows * c.co, row, first, sum);
}

/* Convolutions written out: for types and shapes that cuDNN has no way for, and machines without it. Channels last; the
 * filter is [filter, ci / groups, co], as TensorFlow has it. Sums are taken in the order of the shape. */
#include "types.cuh"

enum { LANES = 32, SLICES = 8 };
struct direct_conv { /* as kernels_conv.c fills it */
  int64_t batch, in[3], out[3], filter[3], stride[3], dilation[3], pad[3], ci, co, groups;
};

/* What a flat index of [.., a, b, c] is made of; returns what is left. */
__device__ inline int64_t unfold(int64_t i, const int64_t *dims, int64_t *at) {
  for (int d = 2; d >= 0; d--) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return i;
}

/* The pixel of the image under place f of the filter; -1 where that is padding. */
__device__ inline int64_t image_pixel(const direct_conv &c, const int64_t *out, const int64_t *f) {
  int64_t pixel = 0;
  for (int d = 0; d < 3; d++) {
    int64_t at = out[d] * c.stride[d] - c.pad[d] + f[d] * c.dilation[d];
    if (at < 0 || at >= c.in[d]) return -1;
    pixel = pixel * c.in[d] + at;
  }
  return pixel;
}

/* The pixel of the result that place f of the filter took this one to; -1: none. */
__device__ inline int64_t result_pixel(const direct_conv &c, const int64_t *in, const int64_t *f) {
  int64_t pixel = 0;
  for (int d = 0; d < 3; d++) {
    int64_t at = in[d] + c.pad[d] - f[d] * c.dilation[d];
    if (at < 0 || at % c.stride[d] || at / c.stride[d] >= c.out[d]) return -1;
    pixel = pixel * c.out[d] + at / c.stride[d];
  }
  return pixel;
}

__device__ inline int64_t volume(const int64_t *dims) { return dims[0] * dims[1] * dims[2]; }

template <class T> __device__ inline void forward(const T *x, const T *w, T *y, const direct_conv &c) {
  typedef typename computed<T>::type C;
  int64_t depth = c.ci / c.groups, pixels = volume(c.in), places = volume(c.filter);
  EACH_ELEMENT(i, c.batch * volume(c.out) * c.co) {
    int64_t o[3], f[3], channel = i % c.co, image = unfold(i / c.co, c.out, o);
    int64_t first = channel / (c.co / c.groups) * depth;
    C sum = 0;
    for (int64_t p = 0; p < places; p++) {
      unfold(p, c.filter, f);
      int64_t pixel = image_pixel(c, o, f);
      if (pixel < 0) continue;
      const T *from = x + (image * pixels + pixel) * c.ci + first, *by = w + p * depth * c.co + channel;
      for (int64_t k = 0; k < depth; k++) sum += load(from[k]) * load(by[k * c.co]);
    }
    y[i] = stored<T>::of(sum);
  }
}

template <class T> __device__ inline void back_input(T *dx, const T *w, const T *dy, const direct_conv &c) {
  typedef typename computed<T>::type C;
  int64_t depth = c.ci / c.groups, each = c.co / c.groups, pixels = volume(c.out), places = volume(c.filter);
  EACH_ELEMENT(i, c.batch * volume(c.in) * c.ci) {
    int64_t at[3], f[3], channel = i % c.ci, image = unfold(i / c.ci, c.in, at), first = channel / depth * each;
    C sum = 0;
    for (int64_t p = 0; p < places; p++) {
      unfold(p, c.filter, f);
      int64_t pixel = result_pixel(c, at, f);
      if (pixel < 0) continue;
      const T *from = dy + (image * pixels + pixel) * c.co + first;
      const T *by = w + (p * depth + channel % depth) * c.co + first;
      for (int64_t k = 0; k < each; k++) sum += load(from[k]) * load(by[k]);
    }
    dx[i] = stored<T>::of(sum);
  }
}

/* A block to 32 output channels of one element of the filter: slices of the pixels, then their sum. */
template <class T> __device__ inline void back_filter(const T *x, T *dw, const T *dy, const direct_conv &c) {
  typedef typename computed<T>::type C;
  __shared__ C parts[SLICES][LANES];
  int lane = threadIdx.x % LANES, slice = threadIdx.x / LANES;
  int64_t depth = c.ci / c.groups, across = (c.co + LANES - 1) / LANES, row = blockIdx.x / across;
  int64_t channel = blockIdx.x % across * LANES + lane, f[3], o[3];
  unfold(row / depth, c.filter, f);
  C sum = 0;
  if (channel < c.co) {
    int64_t from = channel / (c.co / c.groups) * depth + row % depth;
    for (int64_t p = slice; p < c.batch * volume(c.out); p += SLICES) {
      int64_t image = unfold(p, c.out, o), pixel = image_pixel(c, o, f);
      if (pixel >= 0) sum += load(x[(image * volume(c.in) + pixel) * c.ci + from]) * load(dy[p * c.co + channel]);
    }
  }
  parts[slice][lane] = sum;
  __syncthreads();
  if (slice || channel >= c.co) return;
  for (int k = 1; k < SLICES; k++) sum += parts[k][lane];
  dw[row * c.co + channel] = stored<T>::of(sum);
}

/* Bias and Relu on what another way has made: V channels at once, places counted in I. */
template <int V, class I, class T> __device__ inline void finish(T *y, const T *bias, int64_t n, int64_t co, int relu) {
  EACH_ELEMENT(i, n / V) {
    pack_of<T, V> v = *(pack_of<T, V> *)(y + i * V);
    const T *with = bias + (I)i % (I)(co / V) * V;
    for (int k = 0; k < V; k++) {
      typename computed<T>::type sum = load(v.v[k]) + load(with[k]);
      v.v[k] = stored<T>::of(relu && sum <= 0 ? 0 : sum);
    }
    *(pack_of<T, V> *)(y + i * V) = v;
  }
}

#define DIRECT_OF(T, name)                                                                         \
  extern "C" __global__ void conv_forward_##T(const T *x, const T *w, T *y, direct_conv c) {       \
    forward(x, w, y, c);                                                                           \
  }                                                                                                \
  extern "C" __global__ void conv_back_input_##T(T *dx, const T *w, const T *dy, direct_conv c) {  \
    back_input(dx, w, dy, c);                                                                      \
  }                                                                                                \
  extern "C" __global__ void conv_back_filter_##T(const T *x, T *dw, const T *dy, direct_conv c) { \
    back_filter(x, dw, dy, c);                                                                     \
  }                                                                                                \
  extern "C" __global__ void conv_finish_##T(T *y, const T *bias, int64_t n, int64_t co, int relu) {     \
    finish<1, int64_t>(y, bias, n, co, relu);                                                      \
  }                                                                                                \
  extern "C" __global__ void conv_finish_wide_##T(T *y, const T *bias, int64_t n, int64_t co, int relu) { \
    finish<PACK_BYTES / sizeof(T), uint32_t>(y, bias, n, co, relu);                                \
  }
FLOATING(DIRECT_OF, conv)

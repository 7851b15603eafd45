/* Images of few channels folded: the pixels of a line that a filter has under it, and the lines that a stride takes
 * at once, become channels of one pixel, and so do those of the filter. A convolution of 7 x 7 with stride 2 over 3
 * colours is one of 4 x 1 with stride 1 over 48 channels, of which 6 are zeros: tensor cores take channels by eights,
 * and many of them at a time. */
#include "types.cuh"

enum { GROUP = 8, MOST_CHANNELS = 256, MOST_ELEMENTS = 8192 };
struct fold { /* as kernels_fold.c fills it */
  int64_t batch, co;
  int32_t in[2], out[2], filter[2], stride[2], pad[2], ci;
  int32_t lines, rows;   /* lines of the folded image, rows of the folded filter */
  int32_t used, channels; /* that are something, and with zeros */
};

/* A block to a line of the folded image: what it is made of comes to the block first, with the zeros around it. */
template <class T> __device__ inline void fold_image(const T *x, T *y, const fold &f) {
  __shared__ T pixels[MOST_ELEMENTS];
  __shared__ int32_t places[MOST_CHANNELS];
  int32_t across = f.filter[1] * f.ci, wide = (f.out[1] - 1) * f.stride[1] * f.ci + across, groups = f.channels / GROUP;
  int32_t first = (int32_t)(blockIdx.x % f.lines) * f.stride[0] - f.pad[0];
  const T *image = x + (int64_t)(blockIdx.x / f.lines) * f.in[0] * f.in[1] * f.ci;
  T *line = y + (int64_t)blockIdx.x * f.out[1] * f.channels;
  for (int32_t c = threadIdx.x; c < f.used; c += blockDim.x) places[c] = c / across * wide + c % across;
  for (int32_t i = threadIdx.x; i < wide * f.stride[0]; i += blockDim.x) {
    int32_t a = first + i / wide, b = i % wide - f.pad[1] * f.ci;
    bool there = a >= 0 && a < f.in[0] && b >= 0 && b < f.in[1] * f.ci;
    pixels[i] = there ? image[(int64_t)a * f.in[1] * f.ci + b] : stored<T>::of(0.f);
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < f.out[1] * groups; i += blockDim.x) {
    int32_t from = i / groups * f.stride[1] * f.ci, channel = i % groups * GROUP;
    pack_of<T, GROUP> out;
    for (int k = 0; k < GROUP; k++)
      out.v[k] = channel + k < f.used ? pixels[from + places[channel + k]] : stored<T>::of(0.f);
    *(pack_of<T, GROUP> *)(line + i * GROUP) = out;
  }
}

/* Where in [filter, ci, co] an element of the folded filter [co, rows, channels] is; -1: it is a zero. */
__device__ inline int64_t filter_place(const fold &f, int64_t i) {
  int32_t channel = (int32_t)(i % f.channels), across = f.filter[1] * f.ci;
  int64_t line = i / f.channels, a = line % f.rows * f.stride[0] + channel / across;
  if (channel >= f.used || a >= f.filter[0]) return -1;
  return (a * across + channel % across) * f.co + line / f.rows;
}

template <class T> __device__ inline void fold_filter(const T *w, T *to, const fold &f) {
  EACH_ELEMENT(i, f.co * f.rows * f.channels) {
    int64_t at = filter_place(f, i);
    to[i] = at < 0 ? stored<T>::of(0.f) : w[at];
  }
}

template <class T> __device__ inline void unfold_filter(const T *from, T *w, const fold &f) {
  EACH_ELEMENT(i, f.co * f.rows * f.channels) {
    int64_t at = filter_place(f, i);
    if (at >= 0) w[at] = from[i];
  }
}

#define FOLD_OF(T)                                                                                      \
  extern "C" __global__ void fold_image_##T(const T *x, T *y, fold f) { fold_image(x, y, f); }          \
  extern "C" __global__ void fold_filter_##T(const T *w, T *to, fold f) { fold_filter(w, to, f); }      \
  extern "C" __global__ void unfold_filter_##T(const T *from, T *w, fold f) { unfold_filter(from, w, f); }
FOLD_OF(f16)
FOLD_OF(bf16)

/* Images of few channels folded: the pixels that a stride takes at once become channels of one, and so do those of
 * the filter. A convolution of 7 x 7 with stride 2 over 3 colours is one of 4 x 4 with stride 1 over 16 channels, of
 * which 4 are zeros: tensor cores take channels by eights. */
#include "types.cuh"

enum { GROUP = 8, MOST_CHANNELS = 64 };
struct fold { /* as kernels_fold.c fills it */
  int64_t batch, co;
  int32_t in[2], wide[2], filter[2], folded[2], stride[2], pad[2], ci, channels;
};

/* Which row, column and channel of the image, or of the filter, channel c of a folded pixel is; false: none. */
struct fold_place {
  int32_t row, column, channel;
};
__device__ inline bool unfold(const fold &f, int32_t c, fold_place *p) {
  int32_t pixel = c / f.ci;
  p->row = pixel / f.stride[1];
  p->column = pixel % f.stride[1];
  p->channel = c % f.ci;
  return p->row < f.stride[0];
}

/* A block to a line of the folded image; what its channels are is found once. */
template <class T> __device__ inline void fold_image(const T *x, T *y, const fold &f) {
  __shared__ fold_place places[MOST_CHANNELS];
  int32_t groups = f.channels / GROUP, row = (int32_t)(blockIdx.x % f.wide[0]);
  const T *image = x + (int64_t)(blockIdx.x / f.wide[0]) * f.in[0] * f.in[1] * f.ci;
  T *line = y + (int64_t)blockIdx.x * f.wide[1] * f.channels;
  if (threadIdx.x < f.channels && !unfold(f, threadIdx.x, &places[threadIdx.x]))
    places[threadIdx.x].row = f.in[0] + f.pad[0]; /* outside, wherever the pixel is */
  __syncthreads();
  for (int32_t i = threadIdx.x; i < f.wide[1] * groups; i += blockDim.x) {
    int32_t column = i / groups, first = i % groups * GROUP;
    pack_of<T, GROUP> out;
    for (int k = 0; k < GROUP; k++) {
      fold_place p = places[first + k];
      int32_t a = row * f.stride[0] + p.row - f.pad[0], b = column * f.stride[1] + p.column - f.pad[1];
      bool there = a >= 0 && a < f.in[0] && b >= 0 && b < f.in[1];
      out.v[k] = there ? image[((int64_t)a * f.in[1] + b) * f.ci + p.channel] : stored<T>::of(0.f);
    }
    *(pack_of<T, GROUP> *)(line + i * GROUP) = out;
  }
}

/* Where in [filter, ci, co] an element of the folded filter [co, folded, channels] is; -1: it is a zero. */
__device__ inline int64_t filter_place(const fold &f, int64_t i) {
  fold_place p;
  bool there = unfold(f, (int32_t)(i % f.channels), &p);
  int64_t at = i / f.channels, column = at % f.folded[1], line = at / f.folded[1], row = line % f.folded[0];
  int64_t a = row * f.stride[0] + p.row, b = column * f.stride[1] + p.column;
  if (!there || a >= f.filter[0] || b >= f.filter[1]) return -1;
  return ((a * f.filter[1] + b) * f.ci + p.channel) * f.co + line / f.folded[0];
}

template <class T> __device__ inline void fold_filter(const T *w, T *to, const fold &f) {
  EACH_ELEMENT(i, f.co * f.folded[0] * f.folded[1] * f.channels) {
    int64_t at = filter_place(f, i);
    to[i] = at < 0 ? stored<T>::of(0.f) : w[at];
  }
}

template <class T> __device__ inline void unfold_filter(const T *from, T *w, const fold &f) {
  EACH_ELEMENT(i, f.co * f.folded[0] * f.folded[1] * f.channels) {
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

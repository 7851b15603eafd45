/* Copies between views (tensor/strided.h): a thread to an element, by the size of elements. */
#include "types.cuh"

enum { VIEW_RANK = 16 };
struct view_of { /* as cuda_views.c fills it */
  int64_t n;
  int32_t rank;
  uint32_t dims[VIEW_RANK];
  int64_t to[VIEW_RANK], from[VIEW_RANK];
};

template <class T> __device__ inline void copy_elements(T *to, const T *from, const view_of &v) {
  EACH_ELEMENT(i, v.n) {
    uint32_t left = (uint32_t)i;
    int64_t at = 0, of = 0;
    for (int d = v.rank - 1; d > 0; d--) {
      uint32_t rest = left / v.dims[d], here = left - rest * v.dims[d];
      at += here * v.to[d];
      of += here * v.from[d];
      left = rest;
    }
    to[at + left * v.to[0]] = from[of + left * v.from[0]];
  }
}

#define VIEW_OF(T, bytes) \
  extern "C" __global__ void view_##bytes(T *to, const T *from, view_of v) { copy_elements(to, from, v); }
VIEW_OF(uint8_t, 1)
VIEW_OF(uint16_t, 2)
VIEW_OF(uint32_t, 4)
VIEW_OF(uint64_t, 8)
VIEW_OF(ulonglong2, 16)

/* CUDA's driver, opened at run time: one binary runs with a card and without. What we use of it is declared here, as
 * its binary interface has it; nothing of NVIDIA's is needed to build. */
#ifndef DEVICE_CUDA_CUDA_API_H
#define DEVICE_CUDA_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef uint64_t CUdeviceptr;
typedef struct {
  char bytes[64];
} CUipcMemHandle;

enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_OUT_OF_MEMORY = 2, CU_UNKNOWN = 999 };
enum cu_attribute { CU_MULTIPROCESSORS = 16, CU_COMPUTE_MODE = 20, CU_CAPABILITY_MAJOR = 75, CU_CAPABILITY_MINOR = 76 };

/* Name, symbol, arguments: each returns CUDA's error, 0 for none. */
#define CUDA_FUNCTIONS(X)                                                                                         \
  X(init, "cuInit", (unsigned flags))                                                                             \
  X(error_name, "cuGetErrorName", (int error, const char **out))                                                  \
  X(error_text, "cuGetErrorString", (int error, const char **out))                                                \
  X(device_count, "cuDeviceGetCount", (int *out))                                                                 \
  X(device_name, "cuDeviceGetName", (char *out, int size, int card))                                              \
  X(device_attribute, "cuDeviceGetAttribute", (int *out, int attribute, int card))                                \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t * out, int card))                                               \
  X(device_bus, "cuDeviceGetPCIBusId", (char *out, int size, int card))                                           \
  X(context_retain, "cuDevicePrimaryCtxRetain", (CUcontext * out, int card))                                      \
  X(context_set, "cuCtxSetCurrent", (CUcontext c))                                                                \
  X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                              \
  X(memory_new, "cuMemAlloc_v2", (CUdeviceptr * out, size_t bytes))                                               \
  X(memory_free, "cuMemFree_v2", (CUdeviceptr p))                                                                 \
  X(memory_range, "cuMemGetAddressRange_v2", (CUdeviceptr * base, size_t * bytes, CUdeviceptr p))                 \
  X(share, "cuIpcGetMemHandle", (CUipcMemHandle * out, CUdeviceptr p))                                            \
  X(shared_open, "cuIpcOpenMemHandle_v2", (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags))             \
  X(shared_close, "cuIpcCloseMemHandle", (CUdeviceptr p))                                                         \
  X(pinned_new, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))                                     \
  X(pinned_free, "cuMemFreeHost", (void *p))                                                                      \
  X(copy_in, "cuMemcpyHtoDAsync_v2", (CUdeviceptr to, const void *from, size_t bytes, CUstream s))                \
  X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, CUdeviceptr from, size_t bytes, CUstream s))                     \
  X(copy_within, "cuMemcpyDtoDAsync_v2", (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s))            \
  X(fill, "cuMemsetD8Async", (CUdeviceptr to, unsigned char value, size_t bytes, CUstream s))                     \
  X(stream_new, "cuStreamCreate", (CUstream * out, unsigned flags))                                               \
  X(stream_free, "cuStreamDestroy_v2", (CUstream s))                                                              \
  X(stream_wait, "cuStreamWaitEvent", (CUstream s, CUevent e, unsigned flags))                                    \
  X(stream_finish, "cuStreamSynchronize", (CUstream s))                                                           \
  X(event_new, "cuEventCreate", (CUevent * out, unsigned flags))                                                  \
  X(event_free, "cuEventDestroy_v2", (CUevent e))                                                                 \
  X(event_record, "cuEventRecord", (CUevent e, CUstream s))                                                       \
  X(event_wait, "cuEventSynchronize", (CUevent e))                                                                \
  X(event_query, "cuEventQuery", (CUevent e))                                                                     \
  X(capture_begin, "cuStreamBeginCapture_v2", (CUstream s, int mode))                                             \
  X(capture_end, "cuStreamEndCapture", (CUstream s, CUgraph * out))                                               \
  X(graph_make, "cuGraphInstantiateWithFlags", (CUgraphExec * out, CUgraph g, unsigned long long flags))          \
  X(graph_free, "cuGraphDestroy", (CUgraph g))                                                                    \
  X(graph_launch, "cuGraphLaunch", (CUgraphExec g, CUstream s))                                                   \
  X(graph_drop, "cuGraphExecDestroy", (CUgraphExec g))                                                            \
  X(event_elapsed, "cuEventElapsedTime", (float *milliseconds, CUevent from, CUevent to))                         \
  X(module_load, "cuModuleLoadData", (CUmodule * out, const void *image))                                         \
  X(module_free, "cuModuleUnload", (CUmodule m))                                                                  \
  X(module_function, "cuModuleGetFunction", (CUfunction * out, CUmodule m, const char *name))                     \
  X(function_set, "cuFuncSetAttribute", (CUfunction f, int attribute, int value))                                 \
  X(launch, "cuLaunchKernel",                                                                                     \
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
     CUstream s, void **args, void **extra))

struct cuda_api {
#define FIELD(name, symbol, args) int(*name) args;
  CUDA_FUNCTIONS(FIELD)
#undef FIELD
};

/* NULL: there is no driver, or no card; *why (a constant, may be NULL) then says what is missing. */
const struct cuda_api *cuda_api(const char **why);
int cuda_card_count(void); /* that the driver shows: CUDA_VISIBLE_DEVICES is its own business */

/* The functions of a library that was opened, each put where it belongs; NULL, or the first that the library lacks. */
struct cuda_symbol {
  const char *name; /* NULL ends a list */
  void **to;
};
const char *cuda_symbols(void *library, const struct cuda_symbol *symbols);

/* The card becomes this thread's: one at a time. */
void cuda_enter(CUcontext context);
/* Another library has made it another's: who enters next does. */
void cuda_leave(void);
/* An error of the driver; 0 is none. An error of the card itself is INTERNAL, no memory RESOURCE_EXHAUSTED. */
shoal_status cuda_status(int error, const char *what);
/* One after which nothing of this process runs on the card any more. */
bool cuda_is_lost(int error);

#endif

/* NCCL, where it is there: see the head of cuda_nccl.c. */
#ifndef DEVICE_CUDA_CUDA_NCCL_H
#define DEVICE_CUDA_CUDA_NCCL_H

#include "device/cuda/cuda_api.h"
#include "device/device.h"

typedef struct ncclComm *ncclComm_t;

struct nccl_id {
  char bytes[128];
};
/* As its version 2.14 had it: later ones know by the version that there is no more. */
enum { NCCL_CONFIG_VERSION = 21400 };
#define NCCL_MAGIC 0xcafebeefu
struct nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

#define NCCL_FUNCTIONS(X)                                                     \
  X(init_all, "ncclCommInitAll", (ncclComm_t * out, int n, const int *cards)) \
  X(group_start, "ncclGroupStart", (void))                                    \
  X(group_end, "ncclGroupEnd", (void))                                        \
  X(all_reduce, "ncclAllReduce", (const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream s))
/* For groups of processes: what its version 2.14 brought. */
#define NCCL_MORE_FUNCTIONS(X)                                                                \
  X(unique_id, "ncclGetUniqueId", (struct nccl_id * out))                                     \
  X(init_rank, "ncclCommInitRankConfig",                                                      \
    (ncclComm_t * out, int n, struct nccl_id id, int rank, const struct nccl_config *config)) \
  X(async_error, "ncclCommGetAsyncError", (ncclComm_t comm, int *error))                      \
  X(abort, "ncclCommAbort", (ncclComm_t comm))

struct nccl_api {
#define FIELD(name, symbol, args) int(*name) args;
  NCCL_FUNCTIONS(FIELD)
  NCCL_MORE_FUNCTIONS(FIELD)
#undef FIELD
  const char *(*error_text)(int error);
  char why[256];       /* it is not there; "": it is */
  char why_alone[128]; /* it is not for groups of processes; "": it is */
};
extern struct nccl_api nccl; /* once cuda_nccl_missing() was asked */

/* Why it is not; NULL: it is. */
const char *cuda_nccl_missing(void);
shoal_status cuda_nccl_status(int error, const char *what);
/* ncclDataType_t and ncclRedOp_t; -1: it has no such. */
int cuda_nccl_type(shoal_dtype t);
int cuda_nccl_op(enum device_merge merge, bool mean, shoal_dtype t);
/* The type's. */
shoal_status cuda_merge_across(struct device *const *d, const struct device_merging *m);

#endif

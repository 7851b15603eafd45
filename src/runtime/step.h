/* A step: one run of a plan (or of the plans of several devices together). What kernels may want of it. */
#ifndef RUNTIME_STEP_H
#define RUNTIME_STEP_H

#include "base/cancel.h"
#include "base/clock.h"
#include "base/pool.h"
#include "runtime/rendezvous.h"
#include "runtime/resource.h"
#include "tensor/tensor.h"

struct step_stats; /* runtime/step_stats.h */

struct step {
  int64_t id;
  struct cancel *cancel;
  struct rendezvous *rendezvous;       /* NULL when the plan neither sends nor receives */
  struct resource_mgr *step_resources; /* TensorArrays, stacks, temporary variables: freed with the step */
  struct pool *inter;                  /* where nodes run */
  int64_t deadline;                    /* clock_ns(), or DEADLINE_NEVER */
  struct step_stats *stats;            /* NULL unless traced */
  const char *session;       /* the session's handle, "" locally */
  const struct tensor *args; /* _Arg's values ([n_args]); the caller's */
  int n_args;
  struct tensor *rets; /* _Retval's values go here ([n_rets]) */
  int n_rets;
  int depth; /* function calls that led here */
};

#endif

/* Ways to do one thing, timed on the card: which is best for a shape is tried once.
 *
 * What is best may differ from one process to the next, and with it the last bits of a result: where
 * TF_DETERMINISTIC_OPS=1 (as for TensorFlow) or SHOAL_TIMED_PRODUCTS=0 is in the environment, nothing is timed. */
#ifndef DEVICE_CUDA_CUDA_TIMED_H
#define DEVICE_CUDA_CUDA_TIMED_H

#include "device/cuda/cuda.h"

/* May ways be timed now? Not while a step is captured. */
bool cuda_may_time(const struct cuda_device *c);
/* Milliseconds that run(arg), which puts its work on the stream that computes, takes there: the median of a few rounds,
 * after one time that does not count. Below 0: it failed. With the device's lock held. */
float cuda_time(struct cuda_device *c, int (*run)(void *arg), void *arg);

#endif

/* Why a node has no kernel on a type of device. */
#ifndef RUNTIME_KERNEL_WHY_H
#define RUNTIME_KERNEL_WHY_H

#include "graph/graph.h"

/* In a few words, on the heap: the op has none there, or none for these types, or none for this case of it. Of a node
 * for which kernel_supports() says no. */
char *kernel_why_none(const struct shoal_node *n, const char *device_type);

#endif

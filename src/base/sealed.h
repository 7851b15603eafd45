/* Memory that one process makes and others of its host map: a memfd that can neither shrink nor grow.
 *
 * It is told by process, descriptor and inode, and opened by way of /proc, which the system allows a process of the
 * same user. It is sealed, and of the plain kind: whoever maps it cannot be made to touch pages that are gone, or huge
 * ones that never were there. */
#ifndef BASE_SEALED_H
#define BASE_SEALED_H

#include <stddef.h>
#include <stdint.h>

/* NULL where the system has no such memory. *fd is to be closed, the memory to be unmapped. */
void *sealed_new(const char *name, size_t size, int *fd, uint64_t *inode);
/* Another process's, to be unmapped; NULL when it cannot be had, or is not what it is said to be. */
void *sealed_open(uint64_t pid, uint64_t fd, uint64_t inode, size_t size);

#endif

/* What the machine has for this process. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include <stddef.h>

/* Bytes of memory: the machine's, or less where a control group of this process (a container, a job of Slurm) has a
 * limit. Found once. */
size_t machine_memory(void);
/* The least limit of the control groups that the text of /proc/self/cgroup names, below the folder where they are
 * mounted; SIZE_MAX: none. */
size_t machine_group_limit(const char *groups, const char *mounted);

#endif

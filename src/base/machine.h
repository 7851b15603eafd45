/* What the machine has for this process. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of memory: the machine's, or less where a control group of this process (a container, a job of Slurm) has a
 * limit. Found once. */
size_t machine_memory(void);
/* The least limit of the control groups that the text of /proc/self/cgroup names, below the folder where they are
 * mounted; SIZE_MAX: none. Of cores: microseconds in a tenth of a second. */
enum machine_limit { MACHINE_MEMORY, MACHINE_CORES };
size_t machine_group_limit(const char *groups, const char *mounted, enum machine_limit what);
/* Are there cores that nobody wants, so that a thread may look out for what comes next instead of sleeping? This
 * process may use several, and its threads have hardly ever been pushed off theirs of late. now: of clock_ns(). */
bool machine_has_idle_cores(int64_t now);

#endif

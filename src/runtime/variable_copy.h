/* Copy on write with many threads, or by a device: for updates of large variables, whose values a checkpoint may be
 * sharing. */
#ifndef RUNTIME_VARIABLE_COPY_H
#define RUNTIME_VARIABLE_COPY_H

#include "runtime/variable.h"

struct pool;
/* variable_make_writable; a large value is copied by the pool's threads. */
shoal_status variable_make_writable_on(struct variable *v, struct pool *pool);
/* The same of a value in a device's memory, which there is: the device's work copies it. */
struct device;
shoal_status variable_make_writable_in(struct variable *v, struct device *d);

#endif

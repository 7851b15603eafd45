/* Types of devices by name alone. */
#ifndef DEVICE_NAMED_H
#define DEVICE_NAMED_H

#include "device/device.h"

/* Whether there are devices of it here or not: nobody looks for any, which takes a card's driver a tenth of a second.
 * NULL: there is no such type. */
const struct device_type *device_type_named(const char *name);

#endif

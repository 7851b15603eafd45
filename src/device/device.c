/* What all devices share. */
#include "device/device.h"

#include <stdlib.h>

void device_free(struct device *d) {
  if (!d) return;
  if (d->ops->free) d->ops->free(d);
  free(d->name);
  free(d);
}

#include "device/bond.h"

extern DEVICE_TYPE(soft);
extern DEVICE_TYPE(cuda);

const struct device_bonds *device_bonds(const struct device *d) {
  if (d->type == &device_type_soft) return &soft_bonds;
  return d->type == &device_type_cuda ? &cuda_bonds : NULL;
}

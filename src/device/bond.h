/* Sums among processes of one host whose ranks are each on a card of its own, by a library of the device's type: NCCL
 * on NVIDIA's cards. It adds in an order of its own. */
#ifndef DEVICE_BOND_H
#define DEVICE_BOND_H

#include "device/device.h"

struct device_bond { /* a rank's part in a group: the head of a type's own */
  struct device *device;
};

/* What all ranks of a group join by. What a stranger says it is the library believes. */
enum { DEVICE_BOND_NAME = 128 };
struct device_bond_name {
  uint8_t bytes[DEVICE_BOND_NAME];
};

/* Asked now and then by who waits for other ranks: true ends the wait, with CANCELLED, and then nothing may be done
 * with the bond but free it. */
struct device_watch {
  bool (*is_over)(void *arg);
  void *arg;
};

struct device_bonds {
  /* One number for all devices on a card, in whichever process. */
  uint64_t (*card_of)(const struct device *d);
  /* One rank makes a name; on an error there is no such library here. */
  shoal_status (*name)(struct device *d, struct device_bond_name *out);
  shoal_status (*join)(struct device *d, const struct device_bond_name *name, int rank, int size,
                       const struct device_watch *watch, struct device_bond **out);
  /* Has it such a sum? */
  bool (*can)(enum device_merge merge, bool mean, shoal_dtype dtype);
  /* All ranks call it, in the same order, for n sums of one `in` and one `out` each, which may be it, and which the
   * caller holds; it returns when they are there. */
  shoal_status (*sum)(struct device_bond *b, const struct device_merging *sums, int n,
                      const struct device_watch *watch);
  void (*free)(struct device_bond *b); /* waits for nobody */
};

/* NULL: its type has none. */
const struct device_bonds *device_bonds(const struct device *d);

extern const struct device_bonds soft_bonds, cuda_bonds;

#endif

/* Sums of processes whose ranks are each on a card of its own, by a library of the device's type (device/bond.h), in
 * place of the turns of window_work.h.
 *
 * It is for groups of which every rank asks for it (collective_nccl) and none shares its card with another: what each
 * says of that stands in its area, so that all come to the same. Rank 0 makes the name that all join by; who has
 * joined, or cannot, says so, and sums are the library's when all have. Both are of one epoch (shared_group.h): whoever
 * gives up a sum ends its epoch, those who are in the library see that and leave it, and the next epoch has a bond of
 * its own. Else windows are as good, and the log says why, by name. */
#ifndef COLLECTIVE_BONDED_H
#define COLLECTIVE_BONDED_H

#include <stdatomic.h>

#include "device/bond.h"

enum bond_wish { BOND_UNTOLD, BOND_UNWANTED, BOND_WANTED };

struct bond_word {                 /* what a rank says, where all can read it; it alone writes */
  _Atomic uint32_t wish;           /* enum bond_wish */
  _Atomic uint64_t card;           /* which it is on: before the wish */
  _Atomic uint64_t joined, failed; /* the last epoch in which it has joined; in which it could not */
  _Atomic uint64_t named;          /* rank 0's: the epoch of the name */
  struct device_bond_name name;
};

void bond_word_clear(struct bond_word *w);
/* Says whether the device's session asks for it, and which card that is on. */
void bond_word_tell(struct bond_word *w, const struct device *d);

/* Can they? -1: yes. Else the rank that cannot; *with: the one whose card it shares, or -1 when it does not ask for it.
 * The first is told, whoever asks. */
int bond_refused(const struct bond_word *const *words, int n, int *with);

#endif

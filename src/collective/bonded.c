#include "collective/bonded.h"

void bond_word_clear(struct bond_word *w) {
  atomic_store(&w->wish, BOND_UNTOLD);
  atomic_store(&w->joined, 0);
  atomic_store(&w->failed, 0);
  atomic_store(&w->named, 0);
}

void bond_word_tell(struct bond_word *w, const struct device *d) {
  const struct device_bonds *bonds = device_bonds(d);
  bool wanted = d->across && bonds;
  if (wanted) atomic_store(&w->card, bonds->card_of(d));
  atomic_store(&w->wish, wanted ? BOND_WANTED : BOND_UNWANTED);
}

int bond_refused(const struct bond_word *const *words, int n, int *with) {
  *with = -1;
  for (int r = 0; r < n; r++)
    if (atomic_load(&words[r]->wish) != BOND_WANTED) return r;
  for (int r = 1; r < n; r++)
    for (int k = 0; k < r; k++)
      if (atomic_load(&words[k]->card) == atomic_load(&words[r]->card)) {
        *with = k;
        return r;
      }
  return -1;
}

/* tf.train.Example and SequenceExample, read straight from their bytes: one walk over a message notes where the
 * features that are wanted lie; their values are then counted and copied from there, each exactly once.
 *
 *   Example{features 1: Features}                          Features{feature 1: map<string, Feature>}
 *   SequenceExample{context 1: Features, feature_lists 2: FeatureLists{feature_list 1: map<string, FeatureList>}}
 *   FeatureList{feature 1: repeated Feature}               Feature{bytes_list 1 | float_list 2 | int64_list 3}
 *   each list{value 1: repeated}, numbers packed or not. */
#ifndef DATA_EXAMPLE_H
#define DATA_EXAMPLE_H

#include "base/strmap.h"
#include "base/wire.h"
#include "tensor/tensor.h"

/* Where one feature (or feature list) of one example lies; data NULL: it has none. */
struct feature_slot {
  const uint8_t *data;
  size_t size;
};

/* Which keys are wanted: key -> (column number + 1) as a pointer. */
struct feature_index {
  struct strmap columns;
};
void feature_index_add(struct feature_index *x, const char *key, size_t column);
void feature_index_release(struct feature_index *x);

/* Fills slots[column] for the Features in an Example (the last of equal keys counts; one without values does not
 * replace one with). False when the message is broken. slots must be zeroed before. */
bool example_scan(const void *data, size_t n, const struct feature_index *want, struct feature_slot *slots);
/* The same for a SequenceExample: context features and feature lists. */
bool sequence_example_scan(const void *data, size_t n, const struct feature_index *context,
                           struct feature_slot *context_slots, const struct feature_index *lists,
                           struct feature_slot *list_slots);

/* One feature's values. dtype 0: it has none. */
struct feature {
  shoal_dtype dtype; /* int64, float32, string, or 0 */
  struct wire list;
};
bool feature_open(const struct feature_slot *slot, struct feature *out);
/* The number of values; -1 when the list is broken. */
int64_t feature_count(const struct feature *f);
/* Copies the values (as many as feature_count said) to elements of the feature's type. */
void feature_copy(const struct feature *f, void *to);

/* The features of a feature list, one after another. */
struct feature_walk {
  struct wire rest;
};
static inline struct feature_walk feature_list_walk(const struct feature_slot *slot) {
  return (struct feature_walk){wire_from(slot->data, slot->size)};
}
enum wire_step feature_list_next(struct feature_walk *w, struct feature_slot *out);

#endif

/* Hashes for tables whose keys strangers choose: names, ids, values of constants. They depend on a key that each
 * process draws for itself, so that nobody can find keys that all fall into one place; hash_bytes() of base/text.h is
 * faster and does not promise that. */
#ifndef BASE_KEYED_HASH_H
#define BASE_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_keyed(const void *data, size_t n, uint64_t seed);
/* Of a number: its upper bits are the ones to use. */
uint64_t hash_keyed_number(uint64_t v);

#endif

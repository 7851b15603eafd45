/* The memory of strings, in the account of all buffers.
 *
 * A string that is too long for its place in the tensor has memory of its own, and many kernels make strings of sizes
 * that clients chose. They are not asked to look at each: a string for which there is no memory stays empty and is
 * counted as lost, and whoever runs kernels or walks datasets compares the count before and after, and reports
 * RESOURCE_EXHAUSTED. Others may fail beside the one that asked too much; nobody goes on with strings that are not
 * there. str_try_set is for those who look themselves, and counts nothing lost. */
#ifndef TENSOR_STRINGS_H
#define TENSOR_STRINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Is there room for a string of so many bytes, as for a buffer? */
bool strings_have_room(size_t bytes);
/* So many bytes more, or fewer, are held by strings. What a thread has changed is added to the account when it is more
 * than a little, or the thread ends. */
void strings_count(int64_t bytes);

/* Text that grows by what strangers packed into files and strings, before it becomes a string: in the account, too, as
 * many gigabytes may unfold from a few kilobytes. False when there is no room, and t is as before. Whoever grows
 * one by these grows it by no others, and ends it by counted_text_release(). */
bool counted_text_reserve(struct text *t, size_t extra);
bool counted_text_add(struct text *t, const char *data, size_t n);
void counted_text_release(struct text *t);

extern _Atomic uint64_t strings_lost_;
static inline uint64_t strings_lost(void) { return atomic_load_explicit(&strings_lost_, memory_order_relaxed); }
/* The error, if any were lost since there were so many. */
static inline shoal_status strings_kept(uint64_t before) {
  if (__builtin_expect(strings_lost() == before, 1)) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM when allocating strings");
}

#endif

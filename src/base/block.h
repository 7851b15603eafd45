/* Memory for what every step makes and drops: calls, requests, a rendezvous and its items, messages. It comes from a
 * store and goes back there, so that the steady state of a cluster's step takes none from the system (a test counts).
 *
 * It is not for what stays, nor for what is large: past BLOCK_LARGEST bytes these are malloc() and free(). */
#ifndef BASE_BLOCK_H
#define BASE_BLOCK_H

#include <stddef.h>

/* Bytes: of one; of all that the store keeps; and what a thread has of them for itself. */
enum { BLOCK_LARGEST = 16 << 10, BLOCKS_KEPT = 8 << 20, BLOCKS_SHELF = 256 << 10 };

/* As mem_alloc() and mem_zalloc(): never NULL. */
void *block_alloc(size_t n);
void *block_zalloc(size_t n);
/* n bytes and a NUL; s may be NULL where n is 0. */
char *block_strndup(const char *s, size_t n);
/* As mem_try_alloc() and mem_try_zalloc(): NULL when there is no memory. */
void *block_try_alloc(size_t n);
void *block_try_zalloc(size_t n);
/* As mem_realloc() and mem_try_realloc(), of blocks. Large ones grow without a copy: their pages move. */
void *block_realloc(void *p, size_t count, size_t size);
void *block_try_realloc(void *p, size_t count, size_t size);
/* NULL is fine. */
void block_free(void *p);

/* Growing arrays (vec.h) in blocks. */
#define block_vec_push(v, ...) vec_push_by(block_realloc, v, __VA_ARGS__)
#define block_vec_release(v) vec_release_by(block_free, v)

/* Bytes in the store now, and on this thread's shelf. */
size_t blocks_kept(void);

#endif

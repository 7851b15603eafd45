/* Working memory of a thread, freed when the thread ends. */
#include "math/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/status.h"

struct scratch_block {
  void *at;
  size_t size;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct scratch_block *blocks; /* [SCRATCH_SLOTS] */

static void release(void *arg) {
  struct scratch_block *b = arg;
  for (int i = 0; i < SCRATCH_SLOTS; i++) free(b[i].at);
  free(b);
  blocks = NULL;
}

static void make_key(void) { MUST(pthread_key_create(&key, release) == 0); }

void *scratch_get(enum scratch_slot slot, size_t size) {
  if (!blocks) {
    pthread_once(&once, make_key);
    blocks = mem_zalloc(SCRATCH_SLOTS, sizeof *blocks);
    pthread_setspecific(key, blocks);
  }
  struct scratch_block *b = &blocks[slot];
  if (b->size < size) {
    free(b->at);
    b->size = (size + 4095) & ~(size_t)4095;
    b->at = aligned_alloc(64, b->size);
    MUST(b->at);
  }
  return b->at;
}

/* What of a device's memory is taken, and by whom.
 *
 * A type of device whose memory is its own keeps an account of it: a piece is entered when somebody gets it, under the
 * name of the node that asked, and struck out when the last reference goes. What finds no room is RESOURCE_EXHAUSTED,
 * and the error says how much there is and who has the most of it: that is what one must know to make a batch smaller
 * or a model fit. Entries are linked through the pieces, and names are added up when there is an error to be told, so
 * that an allocation costs a lock and a copy of a short name. */
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "device/memory_plan.h"

enum { PIECE_NAME = 64 };

struct device_piece {               /* the type's, with the memory it stands for */
  struct device_piece *prev, *next; /* the account's lock */
  int64_t bytes;
  struct memory_note note;
  char who[PIECE_NAME]; /* the end of the name, where it is longer */
};

struct device_memory {
  pthread_mutex_t lock;
  int64_t limit;
  int64_t used;                /* lock */
  struct device_piece *pieces; /* lock */
};

void device_memory_init(struct device_memory *m, int64_t limit);
void device_memory_release(struct device_memory *m);
/* RESOURCE_EXHAUSTED names the device and those who have most. */
shoal_status device_memory_take(struct device_memory *m, const char *device, const char *who, int64_t bytes,
                                struct device_piece *piece);
/* Is there room now? */
bool device_memory_fits(struct device_memory *m, int64_t bytes);
/* The same error where the device itself refuses so many bytes, though there is room in the account; why: in a few
 * words. */
shoal_status device_memory_none(struct device_memory *m, const char *device, int64_t bytes, const char *why);
/* Enters it though there may be no room: of a value that was there before, and must not be lost. */
void device_memory_enter(struct device_memory *m, const char *who, int64_t bytes, struct device_piece *piece);
void device_memory_give(struct device_memory *m, struct device_piece *piece);

#endif

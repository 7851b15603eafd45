/* Values that stay in the memory of cards: from a task to another of the same host, by windows.
 *
 * A window is memory of a device that other processes open (device_ops.window_new: CUDA's IPC, sealed memory for the
 * soft device). The sender has some for each connection: a value is copied into a part of one, by the card, and the
 * receiver's card copies it out of there; neither touches the host's memory. A part is used again when the receiver has
 * said DONE. Windows are made as they are needed, those of all connections up to a share of the device's memory, and
 * go with the connection; so do the receiver's views of them. What finds no room, what is small, and what the receiver
 * cannot open (another host, another card without a way between them) goes by way of the host, as all else does.
 *
 * To lend the value's own memory would save a copy of some microseconds; but then a variable could not change before
 * the receiver had it, and all that lies in the same region of the card would be open to another process. */
#ifndef RPC_FAST_FAST_WINDOW_H
#define RPC_FAST_FAST_WINDOW_H

#include <pthread.h>

#include "device/device.h"

enum { WINDOW_FROM = 64 << 10, MOST_WINDOWS = 16 };

/* Where a window is, and a part of it; as a WINDOW frame has it behind the dimensions. */
struct fast_window_place {
  struct device_handle handle;
  uint64_t size, offset; /* of the window; of the part */
};
_Static_assert(sizeof(struct fast_window_place) == DEVICE_HANDLE + 16, "it is sent as it is, see fast.h");

/* ---- the sender's; with its lock held ---- */

struct fast_window {
  struct device *device;
  struct tensor memory;
  struct device_handle handle;
  size_t size, top; /* top: where the next part begins */
  int parts;        /* in use; with the last of them all of it is free again */
};
struct fast_windows {
  struct fast_window at[MOST_WINDOWS];
  int n;
};
/* A part of so many bytes; -1: none has room. */
int fast_windows_take(struct fast_windows *w, const struct device *d, size_t bytes, uint64_t *offset);
void fast_windows_give(struct fast_windows *w, int i);
/* May there be one more, of which size? 0: no. It is taken from what the device has for all windows. */
size_t fast_windows_more(const struct fast_windows *w, struct device *d, size_t bytes);
/* Gives that back, with its memory, if there is any. */
void fast_window_release(struct fast_window *w);
void fast_windows_release(struct fast_windows *w);

/* ---- the receiver's ---- */

struct fast_views {
  pthread_mutex_t lock; /* nothing is opened or let go under it: the device has locks of its own */
  struct {
    const struct device *device;
    struct device_handle handle;
    struct tensor memory;
  } at[MOST_WINDOWS]; /* lock */
  int n;              /* lock */
  bool closed;        /* lock: no more are opened */
  atomic_bool any;    /* some were */
};
void fast_views_init(struct fast_views *v);
/* Once nothing is opened any more. */
void fast_views_release(struct fast_views *v);
/* Should a value for that device be asked for by a window? SHOAL_WINDOWS=0 in the environment: never. */
bool fast_views_wanted(const struct device *d);
/* The window that a place says, opened at the first time: a reference. False: it cannot be. */
bool fast_views_find(struct fast_views *v, struct device *d, const struct fast_window_place *p, struct tensor *out);
void fast_views_close(struct fast_views *v);

/* ---- both ---- */

/* n bytes of a window, seen as a value like another; its reference is the window's. */
struct tensor fast_window_part(const struct tensor *memory, uint64_t offset, const struct tensor *like);

#endif

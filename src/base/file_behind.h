/* Writing a large file from its beginning, past the page cache, by a thread of its own.
 *
 * What is given is copied into one of two aligned buffers; while one is filled the other is on its way to the disk. The
 * system then neither copies the bytes nor keeps them, which is most of what writing a large checkpoint costs a machine
 * whose processors are busy training. Where the file system knows no direct writes, the same thread writes plainly. */
#ifndef BASE_FILE_BEHIND_H
#define BASE_FILE_BEHIND_H

#include <stddef.h>

#include "base/status.h"

struct file_behind;
/* fd is at offset 0, and stays the caller's; path is for errors, and must stay. NULL: no memory for it. */
struct file_behind *file_behind_new(int fd, const char *path);
/* An error may be of bytes given before. */
shoal_status file_behind_add(struct file_behind *b, const void *data, size_t n);
/* Everything is handed to the system (not synced) when it returns; frees b, also on an error. */
shoal_status file_behind_finish(struct file_behind *b);
/* Waits for what is on its way; frees b. NULL: does nothing. */
void file_behind_abort(struct file_behind *b);

#endif

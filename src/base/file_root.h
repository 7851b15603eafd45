/* Confinement of files: the directories a server's ops may touch, and the way from a path to the directory it is in.
 *
 * All of base/file.h goes through file_place_find(). Whoever runs ops for a confined server says so for its thread with
 * file_roots_use(); the executor does it around kernels, pools hand it on to what is submitted. Passing the roots
 * through every call that opens a file was rejected: one forgotten argument, in an op not yet written, would be a way
 * out. */
#ifndef BASE_FILE_ROOT_H
#define BASE_FILE_ROOT_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"

struct file_roots;

/* directories: separated by ':', each must exist. INVALID_ARGUMENT says which does not. */
shoal_status file_roots_new(const char *directories, struct file_roots **out);
void file_roots_free(struct file_roots *r);

/* Confines this thread's file access (NULL: not at all); returns what was there before, to be put back. The roots must
 * outlive their use. */
const struct file_roots *file_roots_use(const struct file_roots *r);
const struct file_roots *file_roots_current(void);
/* For a process whose ops are confined: threads that have not been told (by file_roots_use, or by what a pool runs) may
 * open nothing at all. A thread that somebody forgot is then no way out. */
void file_roots_close_unknown(bool closed);

/* Where a path leads: a name in an open directory. Unconfined, the path itself, from the working directory. */
struct file_place {
  int dir; /* AT_FDCWD, or ours to close */
  const char *name;
  bool confined; /* the name is not a symbolic link, or is not to be followed: open with O_NOFOLLOW */
  char last[NAME_MAX + 1];
};
/* path: local. follow: should a symbolic link at its end be followed? PERMISSION_DENIED, naming path and flag, when it
 * leads out of the roots, whether by its text, by "..", or by a link on the way. */
shoal_status file_place_find(const char *path, bool follow, struct file_place *out);
void file_place_release(struct file_place *p);
/* Is path a directory above a root? Such directories exist, but are none of the ops' business. */
bool file_roots_below(const char *path);

#endif

/* Files: whole reads with a limit, buffered writes that appear under their name only when complete, directories
 * and patterns.
 *
 * Paths are the local file system's; "file://" before one is understood, any other scheme is UNIMPLEMENTED by
 * name. Errors read as TensorFlow's do: "PATH; No such file or directory". Ops open files here and nowhere else: this
 * is where a server's --file_root holds them (base/file_root.h). */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"

/* The path without "file://"; an error for other schemes. Points into path. */
shoal_status file_local_path(const char *path, const char **out);

/* For a process that runs what strangers ask for: pipes, devices and sockets are not opened (PERMISSION_DENIED), since
 * a thread could wait for them, or read, for ever. In a place that a --file_root confines they never are. */
void file_ordinary_only(bool only);

/* The whole file in memory from malloc, with a NUL after its bytes. More than limit bytes (0: half of the machine's
 * memory) is RESOURCE_EXHAUSTED. */
shoal_status file_read(const char *path, size_t limit, char **data, size_t *size);
/* Replaces the file at once: readers see the old or the new one, also after a crash. */
shoal_status file_write(const char *path, const void *data, size_t size);

/* Makes a file that was not there; ALREADY_EXISTS when it was. Of two who try, one succeeds. */
shoal_status file_create(const char *path, const void *data, size_t size);

bool file_exists(const char *path);
bool file_is_directory(const char *path);
bool file_is_regular(const char *path);
/* Do two paths name one file, whether it is there or not yet? */
bool file_same(const char *a, const char *b);
/* Where the links at the end of a path lead, to what need not be there; the caller frees it. (In a place that a
 * --file_root confines file_place_find follows them.) */
shoal_status file_follow_links(const char *path, char **out);
shoal_status file_size(const char *path, int64_t *size);
shoal_status file_rename(const char *from, const char *to);
shoal_status file_remove(const char *path);
/* An empty directory only. */
shoal_status directory_remove(const char *path);
/* The directory and those above it. */
shoal_status directory_make(const char *path);
/* The directory alone; that it exists, or that the path is empty, is fine. */
shoal_status directory_make_one(const char *path);
/* Everything before the last '/', "" when there is none; the caller frees it. */
char *path_directory(const char *path);

/* A list of strings that owns them. */
struct path_list {
  VEC(char *) paths;
  size_t held; /* bytes of those that patterns found: all lists together have a bound */
};
void path_list_release(struct path_list *l);
void path_list_sort(struct path_list *l);
/* Adds the paths that match a pattern of *, ?, [..] and \, in order; none is not an error. RESOURCE_EXHAUSTED when they
 * take more memory, or finding them more work, than is allowed: a short pattern can match without end. */
shoal_status file_glob(const char *pattern, struct path_list *out);
/* Names in a directory, without "." and "..", in order. */
shoal_status directory_list(const char *path, struct path_list *out);

/* ---- reading at offsets ---- */
struct file_reader {
  int fd;
  int64_t size;
  char *path; /* for errors */
};
shoal_status file_reader_open(struct file_reader *r, const char *path);
/* Exactly n bytes; fewer is OUT_OF_RANGE. */
shoal_status file_reader_get(const struct file_reader *r, int64_t offset, void *to, size_t n);
/* These bytes will be asked for: the disk may begin. */
void file_reader_ahead(const struct file_reader *r, int64_t offset, size_t n);
void file_reader_close(struct file_reader *r);

/* For tests, NULL otherwise: called before every change to the file system ("create", "write", "sync", "rename",
 * "remove"), in the thread that makes it. */
extern void (*file_fault)(const char *what, const char *path);

/* ---- writing ---- */
struct file_place;
struct file_writer {
  int fd;
  struct file_place *at;  /* base/file_root.h: the directory, held open, and the name */
  char *path, *temporary; /* temporary: NULL when written in place */
  char *buffer;
  size_t used;
  struct file_behind *behind; /* base/file_behind.h: a temporary that outgrew the buffer */
  int64_t offset;             /* bytes given so far */
};
/* Writes to PATH.tempstate<random>, which file_writer_commit syncs and renames; to a device or a pipe as it is. Where
 * PATH is a link it stays, and what it leads to is PATH. */
shoal_status file_writer_open(struct file_writer *w, const char *path);
/* Writes in place (append: after what is there), for logs that are read while they grow. */
shoal_status file_writer_open_direct(struct file_writer *w, const char *path, bool append);
shoal_status file_writer_add(struct file_writer *w, const void *data, size_t n);
/* Hands what is buffered to the system (a file written in place; a temporary goes with its commit). */
shoal_status file_writer_flush(struct file_writer *w);
/* Flushes, syncs, closes, and gives the file its name. On an error nothing is left behind. */
shoal_status file_writer_commit(struct file_writer *w);
/* Closes and removes the temporary file. Harmless after commit. */
void file_writer_abort(struct file_writer *w);

#endif

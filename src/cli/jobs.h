/* The jobs that `shoal launch` runs on this machine for this user, in files: how `shoal status` finds them. */
#ifndef CLI_JOBS_H
#define CLI_JOBS_H

#include <stdint.h>

struct job_entry {
  int64_t process, began; /* the launcher's; seconds since 1970 */
  char *cluster;          /* JSON */
  char *program;          /* its command line, for people */
};

struct job_file;
/* Tells of a job for as long as this process, or one that it forked, lives and until closed; NULL when that cannot be
 * done, which is no reason not to run it. */
struct job_file *job_file_open(const char *cluster, const char *program);
void job_file_close(struct job_file *f);
/* Of a process that was forked from the one that closes it. */
void job_file_let_go(struct job_file *f);

/* The jobs that run, oldest first; returns how many. The caller frees the list and its strings by jobs_free(). */
int jobs_find(struct job_entry **out);
void jobs_free(struct job_entry *jobs, int n);

#endif

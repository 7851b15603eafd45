/* What the files of `shoal word2vec` share.
 *
 *   word2vec.c        train, phrases
 *   word2vec_hosts.c  train as several tasks
 *   word2vec_counts.c what their counts of words become
 *   word2vec_ask.c    neighbors, analogy */
#ifndef CLI_WORD2VEC_H
#define CLI_WORD2VEC_H

#include <shoal/shoal.h>

#include "cli/cli.h"
#include "word2vec/train.h"

int word2vec_neighbors_main(int argc, char **argv);
int word2vec_analogy_main(int argc, char **argv);

/* Which task this is: flags as `shoal launch` gives them, else TF_CONFIG. */
struct word2vec_task {
  const char *ps_hosts, *worker_hosts, *job_name;
  int64_t task_index;
  bool insecure_bind_all;
  struct tls_flags tls;
};
/* The other tasks of this job; NULL in *out: there are none. Waits until all are there. width: of vectors. */
struct word2vec_hosts;
shoal_status word2vec_hosts_open(const struct word2vec_task *t, size_t width, struct word2vec_hosts **out);
void word2vec_hosts_close(struct word2vec_hosts *h);
/* Does this task save? */
bool word2vec_hosts_chief(const struct word2vec_hosts *h);
/* How many tasks there are, and which of them this is. */
int word2vec_hosts_tasks(const struct word2vec_hosts *h, int *task);
/* Every task must come to these as often, in the same order: did all do well so far? (mine is taken over, and is the
 * answer where it is an error; where another's is, the answer is ABORTED. h may be NULL.) Were all told the same, in
 * lines? Then the largest of all tasks' numbers, which takes the place of each; as many numbers of each task, one
 * behind the other. */
shoal_status word2vec_hosts_agree(struct word2vec_hosts *h, shoal_status mine);
shoal_status word2vec_hosts_same(struct word2vec_hosts *h, const char *lines);
enum { WORD2VEC_GATHERED = 1 << 18, WORD2VEC_PIECE = 4 * WORD2VEC_GATHERED /* bytes */ };
shoal_status word2vec_hosts_most(struct word2vec_hosts *h, int64_t *number);
shoal_status word2vec_hosts_gather(struct word2vec_hosts *h, const shoal_tensor *numbers, shoal_tensor **all);
/* count_share's join: the words of all tasks, by lines "WORD COUNT". arg: the hosts. */
struct counter;
shoal_status word2vec_counts_join(void *arg, struct counter *own, size_t limit, shoal_status mine);
/* Seconds in meetings, waiting for the others included. */
double word2vec_hosts_met(const struct word2vec_hosts *h);
/* Sets this task's part, and how often all meet where nothing was said. */
void word2vec_hosts_share(struct word2vec_hosts *h, const struct word_vocabulary *v, struct training_options *o);
/* All tasks' models become one; the first call takes note of what they begin with. Every task must come here as often.
 */
shoal_status word2vec_hosts_meet(void *arg, struct word_model *m, size_t words, shoal_status mine);

#endif

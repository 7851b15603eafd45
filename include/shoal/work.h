/* Work that workers share: the files or ranges of an epoch, each handed out once, to whoever asks next. Who has which
 * item, and how much of it was trained on, is kept in variables on the parameter servers, and in checkpoints. So
 * workers may come and go: one that was killed and starts again goes on in its item, and one that stays away is taken
 * for dead after a while: the chief, which waits for the last item, finishes what it left. No example is lost or used
 * twice.
 *
 *   static shoal_out records(shoal_graph *g, shoal_out item, void *files) {     // the dataset of one item
 *     shoal_out file = shoal_gather_v2(g, *(shoal_out *)files, item, shoal_constant_int(g, 0));
 *     return shoal_dataset_batch(g, shoal_dataset_tfrecord(g, file, NULL), 64, false);
 *   }
 *
 *   shoal_out in;
 *   shoal_work *work = shoal_work_new(g, SHOAL_OPTIONS(shoal_work_options, .items = n, .worker = task,
 *                                                      .dataset = records, .arg = &files), &in, 1);
 *   ... the model, of in; train ...
 *   shoal_hook hooks[] = {shoal_work_hook(work, train)};
 *
 * A run may go on with more items than it had: the chief lengthens what is kept of them. With fewer it is refused.
 *
 * Several epochs are so many times the items; the dataset of an item knows by its number which epoch it is of. */
#ifndef SHOAL_WORK_H
#define SHOAL_WORK_H

#include <shoal/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the dataset of an item: an int64 scalar. Every walk of the same item must give the same elements. */
typedef shoal_out shoal_work_dataset(shoal_graph *g, shoal_out item, void *arg);

typedef struct shoal_work_options {
  size_t size;                 /* shoal/options.h */
  int64_t items;               /* numbers from 0 on */
  int worker;                  /* this one's number, from 0: of all that train together each has another */
  shoal_work_dataset *dataset; /* called once, now */
  void *arg;
  double lease_secs; /* a worker that trained on nothing for so long is taken for dead: more than any step takes, and
                      * than a worker takes to start again. 0: 60 */
} shoal_work_options;

typedef struct shoal_work shoal_work;
/* in[n]: places that are fed with an element of the worker's item in every step. */
SHOAL_API shoal_work *shoal_work_new(shoal_graph *g, const shoal_work_options *options, shoal_out *in, int n);
/* For the training session, which takes it over, and w with it. How far an item is trained on is noted after train. */
SHOAL_API shoal_hook shoal_work_hook(shoal_work *w, shoal_op *train);
/* For one that no hook was made of. */
SHOAL_API void shoal_work_free(shoal_work *w);

#ifdef __cplusplus
}
#endif
#endif

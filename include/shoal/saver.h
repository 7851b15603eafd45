/* Savers: checkpoints of a graph's variables over time. Files are TensorFlow's V2 format, the directory's `checkpoint`
 * file is what tf.train.latest_checkpoint reads; PREFIX.meta beside a checkpoint has the graph for
 * tf.train.import_meta_graph.
 *
 * A save first takes a snapshot (references to the values: no copying, the next update of a variable makes the copy),
 * then writes it, while training goes on if the caller likes. Files appear whole or not at all, the `checkpoint` file
 * last; older checkpoints are removed after that, never before. */
#ifndef SHOAL_SAVER_H
#define SHOAL_SAVER_H

#include <shoal/layers.h>
#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_saver shoal_saver;

typedef enum shoal_save_from {
  SHOAL_SAVE_AUTO,     /* sharded if every task sees the directory, else gathered: found out at the first use */
  SHOAL_SAVE_SHARDED,  /* each task that holds variables writes its own: the directory must be on a shared disk */
  SHOAL_SAVE_GATHERED, /* the session's master writes all */
} shoal_save_from;

/* Zero-filled is the default. */
typedef struct shoal_saver_options {
  size_t size; /* shoal/options.h */
  const shoal_var *vars; /* NULL: all variables of the graph but local ones */
  int n_vars;
  int max_to_keep;         /* 0: 5; below 0: all */
  double keep_every_hours; /* a checkpoint every so often is kept for good; 0: 10,000 */
  shoal_save_from from;
  bool no_meta_graph; /* no PREFIX.meta beside checkpoints */
} shoal_saver_options;

/* Adds to the graph what saving and restoring takes. The first mistake is the graph's. options may be NULL. */
SHOAL_API shoal_saver *shoal_saver_new(shoal_graph *g, const shoal_saver_options *options);
/* Waits for writes behind. */
SHOAL_API void shoal_saver_free(shoal_saver *s);

/* Writes PREFIX-STEP (PREFIX alone when step is below 0). *path (optional) is for the caller to free. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saver_save(shoal_saver *s, shoal_session *session, const char *prefix,
                                                         int64_t step, char **path);
/* Takes the snapshot and returns; a thread writes it through the same session, which must stay open until
 * shoal_saver_wait. If the write before is not done yet, it is waited for. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saver_save_behind(shoal_saver *s, shoal_session *session,
                                                                const char *prefix, int64_t step);
/* Waits for the write behind, and returns its error (once). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saver_wait(shoal_saver *s);

/* Gives all variables their values from a checkpoint. Of another model: an error that lists names and shapes, before
 * anything is changed. Variables that were partitioned otherwise, or were on other tasks, are put together. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saver_restore(shoal_saver *s, shoal_session *session, const char *prefix);
/* Goes on with the list of DIR's checkpoints where the run before left it, so that old ones are removed in turn. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_saver_recover(shoal_saver *s, const char *dir);

/* The prefix of the newest checkpoint in dir, for the caller to free; NULL: none. */
SHOAL_API char *shoal_latest_checkpoint(const char *dir);
/* The value of an int64 or int32 scalar in a checkpoint ("global_step"). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_checkpoint_int(const char *prefix, const char *name, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif

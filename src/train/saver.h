/* The parts of a saver: what it added to the graph (saver_graph.c), the list of a directory's checkpoints
 * (saver_files.c), and the saving itself (saver.c). */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include <pthread.h>

#include "base/text.h"
#include "checkpoint/state.h"
#include "graph/graph.h"
#include "shoal/saver.h"
#include "train/pieces.h"

/* Values that live on one task; those in pieces, with their first piece. */
struct saver_group {
  char device[192];     /* "/job:ps/task:0"; "" for the session's master */
  VEC(int) values;      /* which of the saver's */
  shoal_out sees_files; /* the files there that match the pattern fed to saver_nodes.pattern */
};

struct saver_nodes {
  shoal_var *vars;
  int n;
  struct saved_value *values; /* what they make up */
  int n_values;
  int64_t bytes; /* of all values, strings not counted */
  VEC(struct saver_group) groups;
  shoal_out prefix, parts; /* fed: the checkpoint, and where parts of it are written before they are merged */
  shoal_out pattern;       /* fed */
  shoal_op *take, *drop;   /* the snapshot */
  shoal_op *write_gathered, *write_sharded;
  shoal_op *read_gathered, *read_sharded;
  shoal_op *read_gathered_before,
      *read_sharded_before; /* with stand-ins, from older checkpoints; NULL: there is none */
  shoal_out saved; /* gives the prefix when the variables as they are have been written to it: for PREFIX.meta */
};
/* vars NULL: all of the graph's. */
void saver_nodes_build(struct saver_nodes *s, shoal_graph *g, const shoal_var *vars, int n);
void saver_nodes_release(struct saver_nodes *s);

/* The N of "model.ckpt-N"; -1: it has none. */
int64_t checkpoint_step(const char *prefix);
/* Compares a checkpoint (as far as this process can read it) with the variables; an error lists what does not fit. */
shoal_status saver_check_model(const struct saver_nodes *s, const char *prefix);

/* The error of a write behind that has ended; NULL while it goes on. */
shoal_status saver_poll(shoal_saver *s);
/* From now on it says on standard error what it saved, as this task (or ""). */
void saver_talk(shoal_saver *s, const char *task);
/* The MetaGraphDef of the saver's graph, kept until the graph grows; it stays the saver's. */
shoal_status saver_meta_graph(shoal_saver *s, const struct text **out);
/* Appends the same of a copy of that graph, to which something was added. */
shoal_status saver_meta_graph_of(const shoal_saver *s, struct shoal_graph *copy, struct text *out);
/* What it saves. */
const struct saver_nodes *saver_nodes_of(const shoal_saver *s);
/* The variables as they are now, written to path: no list of checkpoints, nothing beside. */
shoal_status saver_write(shoal_saver *s, shoal_session *session, const char *path);
/* Is there room in the directory (for two checkpoints in one that has none), and may we write there? */
shoal_status saver_check_room(const shoal_saver *s, const char *dir);

/* The checkpoints of a directory, oldest first. */
struct saver_files {
  VEC(char *) paths;
  VEC(double) times;
  int max_to_keep;
  double keep_every_secs, next_kept; /* a checkpoint made after next_kept is kept for good */
  double last_preserved;
};
/* A checkpoint is complete: names it the newest in the directory's `checkpoint` file, then removes those too many. */
shoal_status saver_files_add(struct saver_files *f, const char *path);
shoal_status saver_files_recover(struct saver_files *f, const char *dir);
void saver_files_release(struct saver_files *f);
/* "" would be the root of the file system: a variable of a script that was not set. */
shoal_status saver_files_check_name(const char *option, const char *dir);
/* In words, why there is nothing to restore in a directory: what lies there without being named. */
char *saver_files_why_none(const char *dir);
/* Can so many files of so many bytes be written into the directory of path? Makes the directory. */
shoal_status saver_files_check_room(const char *path, int64_t bytes, int times);

#endif

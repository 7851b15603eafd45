/* The `checkpoint` file of a directory: a text message (CheckpointState) that says which checkpoints there are and
 * which is the newest. */
#ifndef CHECKPOINT_STATE_H
#define CHECKPOINT_STATE_H

#include "base/file.h"

struct checkpoint_state {
  char *latest;           /* model_checkpoint_path; NULL: none */
  VEC(char *) all;        /* all_model_checkpoint_paths, oldest first */
  VEC(double) timestamps; /* all_model_checkpoint_timestamps; none, or one for each */
  double last_preserved;  /* 0: none */
};
void checkpoint_state_release(struct checkpoint_state *s);
/* DIR/checkpoint (name NULL) or DIR/name. NOT_FOUND when there is none. Relative paths are made to begin with DIR. */
shoal_status checkpoint_state_read(const char *dir, const char *name, struct checkpoint_state *out);
/* Replaces the file at once. Paths are written as they are. */
shoal_status checkpoint_state_write(const char *dir, const char *name, const struct checkpoint_state *s);
/* The newest checkpoint's prefix, for the caller to free; NULL when there is none that has its files. */
char *checkpoint_latest(const char *dir);

#endif

/* Names of the variables that a training run keeps on its tasks beside the model (train/run_marks.c); a server that is
 * told to go looks for the second, one that serves a program for the third (cluster/drain.c). */
#ifndef RUNTIME_MARK_NAMES_H
#define RUNTIME_MARK_NAMES_H

#define RUN_MARK "shoal/run"
#define STOP_MARK "shoal/stop"
#define DONE_MARK "shoal/done"

#endif

/* Threads that walk datasets. All of a process come out of one budget, so that a graph of ten thousand iterators, or
 * nested parallel interleaves, ends in RESOURCE_EXHAUSTED instead of taking every thread the machine has. */
#ifndef DATA_DATA_THREAD_H
#define DATA_DATA_THREAD_H

#include "base/status.h"

enum { DATA_THREADS = 2048 };

/* n threads out of the budget, for who makes them by other means; given back when they have ended. */
shoal_status data_threads_take(int n);
void data_threads_give(int n);
/* How many are taken. */
int data_threads_taken(void);

/* Runs fn once on a thread of its own, which nobody waits for. Files are confined as for the caller. */
shoal_status data_thread_start(void (*fn)(void *arg), void *arg);

/* A line of tasks that run one after another: what asks one iterator. Its thread is made when there is something to do
 * and goes, back into the budget, after some seconds with nothing; a thread for each task would cost a training step
 * more than the element does. */
struct task_line;
struct task_line *task_line_new(void);
/* Never waits; may be called from a task. Tasks that were added still run. */
void task_line_free(struct task_line *l);
shoal_status task_line_add(struct task_line *l, void (*fn)(void *arg), void *arg);

#endif

/* The parts of a training session: making a model ready (scaffold.c, session_manager.c), steps with hooks
 * (train_session.c). Supervisors use the first two. */
#ifndef TRAIN_TRAIN_SESSION_H
#define TRAIN_TRAIN_SESSION_H

#include "shoal/train_session.h"
#include "train/step_request.h"

/* The step counter's value, in a graph that has one (resource variable or the old kind); else node NULL. */
shoal_out global_step_value(const shoal_graph *g);
bool node_is_summary(const struct shoal_node *n);
/* All summaries of the graph in one string; node NULL when there are none. */
shoal_out summaries_merged(shoal_graph *g);

/* A scaffold with nothing left out; adds to the graph what was. */
/* An attribute of ops that every session runs before training, in every task; TensorFlow passes it by. */
#define LOCAL_INIT_MARK "_local_init"

struct scaffold {
  shoal_scaffold use;
  shoal_saver *own_saver; /* when the caller gave none */
  shoal_out global_step;
};
SHOAL_MUST_CHECK shoal_status scaffold_complete(struct scaffold *s, shoal_graph *g, const shoal_scaffold *given,
                                                bool needs_saver);
void scaffold_release(struct scaffold *s);

/* What every strategy (struct shoal_strategy, which is defined above us) begins with: what a training session is to do
 * under it. */
struct session_rules {
  const shoal_server *server; /* this task's own; NULL: what the session's options say */
  bool is_chief;              /* where there is a server */
  int cpu_devices;            /* of a session in this process; 0: no matter */
  char **tasks; /* "/job:worker/task:1", ...: those that sessions are made with, beside the graph's; NULL at the end */
  /* Tasks that have a model each, and meet in every step: none of them finds a model of another's, or ends by itself
   * when it was told to stop. The hook, which the session takes over, makes them end together; NULL: there are none. */
  shoal_hook (*meet)(struct shoal_strategy *strategy);
  /* (optional) One whose end comes after that of all others, the checkpoint's too. */
  shoal_hook (*stay)(struct shoal_strategy *strategy);
  /* (optional) Says an error of making the model ready in other words; takes it over. */
  shoal_status (*explain)(shoal_status e);
  int64_t steps_each, stop_at_step; /* of the session that is being made, which sets them */
  bool ends_with_tasks; /* a task that is lost ends the run, which is to be run again: others cannot go on in the middle
                         */
};

/* How sessions on a model are made, again and again. */
struct session_manager {
  shoal_graph *graph;
  const struct scaffold *scaffold;
  shoal_session_options session; /* target and all */
  char *target, *config;
  bool is_chief;
  char *checkpoint_dir; /* NULL: none */
  struct claim *claim;  /* on that folder, of a chief that saves */
  char *restored;       /* the checkpoint of the last session, when it was made of one */
  double max_wait_secs;
  bool met; /* the servers were all there once */
  struct run_marks *marks;
  bool (*give_up)(void); /* asked while waiting: the process was told to stop */
};
/* A session on a model that is ready: initialised, restored or found so by the chief, waited for by others. Goes on
 * trying while tasks are away, and says on standard error every few seconds what it waits for. */
shoal_status session_manager_create(struct session_manager *m, shoal_session **out, shoal_made *made);
void session_manager_release(struct session_manager *m);
double session_manager_max_wait(const struct session_manager *m);
/* The error of a task that was lost: a new session may help. */
bool status_is_lost_task(shoal_status s);

/* Marks that a run leaves on its servers, beside the model: which run it is, and whether it shall stop. */
struct run_marks;
struct run_marks *run_marks_build(shoal_graph *g);
void run_marks_free(struct run_marks *m);
/* Is the run on these servers the one that this process, or the file in dir (or NULL), knows? */
bool run_marks_same_run(struct run_marks *m, shoal_session *session, const char *dir);
/* A new run begins: marks the servers, and the directory. */
shoal_status run_marks_begin(struct run_marks *m, shoal_session *session, const char *dir);

typedef VEC(shoal_feed) feed_list;
typedef VEC(shoal_tensor *) tensor_list;

/* What a hook feeds in one of a run's steps. */
struct feed_at {
  int64_t at;
  shoal_feed feed; /* the value is owned */
};

/* Steps with hooks: the context of one run. */
struct shoal_run_context {
  struct step_request step; /* the last one of the run */
  shoal_session *session;
  bool stop;
  shoal_status error; /* of a feed */
  tensor_list fed;    /* by hooks; owned */

  int64_t steps;              /* of this run */
  int64_t first, whole;       /* of the program's batches: which is the first step's, how many there are */
  int own_feeds, own_fetches; /* the program's, which come first in `step` */
  VEC(struct feed_at) each;   /* by hooks, for single steps */
};

/* ---- execution.c ---- */

/* All steps of a run; *done grows with each that has ended. */
shoal_status execution_run(shoal_run_context *c, int64_t *done);
/* Forgets what hooks fed in single steps. */
void execution_clear(shoal_run_context *c);

#endif

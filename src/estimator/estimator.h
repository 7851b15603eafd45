/* What an estimator is made of. One of them is used by one thread. */
#ifndef ESTIMATOR_ESTIMATOR_H
#define ESTIMATOR_ESTIMATOR_H

#include "base/vec.h"
#include "graph/builder.h"
#include "shoal/estimator.h"
#include "train/train_session.h"

struct shoal_inputs {
  VEC(shoal_named_feature) features;
  VEC(shoal_export_value) receivers;
  shoal_out labels;
  struct shoal_graph *g;
  int worker, workers;
};

struct spec_signature {
  char *key, *method;
  shoal_export_value *outputs; /* [n], keys are its own */
  int n;
};

struct shoal_estimator_spec {
  struct shoal_graph *g;
  shoal_out loss;
  shoal_op *train;
  VEC(struct spec_metric {
    char *name;
    shoal_metric metric;
  })
  metrics;
  VEC(shoal_export_value) predictions; /* keys are its own */
  VEC(struct spec_signature) signatures;
  VEC(shoal_hook) hooks;
};

struct shoal_estimator {
  shoal_model_fn *model;
  void *arg;
  void (*release)(void *arg); /* of a canned model's own; NULL: none */
  shoal_run_config config;    /* texts are in the fields below */
  char *model_dir, *warm_start, *warm_start_vars, *device;
  shoal_cluster *cluster; /* NULL: this process alone */
  shoal_server *server;   /* started at the first need */
};

/* A graph with the input and the model in it. */
struct built {
  struct shoal_graph *g;
  struct shoal_inputs in;
  struct shoal_estimator_spec spec;
};

/* x; the step fails with these words, and x, where the condition, a scalar, does not hold. (metrics.c) */
shoal_out only_where(struct shoal_graph *g, shoal_out condition, const char *words, shoal_out x);

/* Is this task one that trains, and how many are there; which one it is. */
const char *estimator_job(const struct shoal_estimator *e); /* "": no cluster */
int estimator_workers(const struct shoal_estimator *e);
int estimator_worker(const struct shoal_estimator *e);

/* Calls both functions, and checks what the mode needs. */
shoal_status built_make(struct built *b, struct shoal_estimator *e, shoal_mode mode, shoal_input_fn *input, void *arg);
/* The two halves of it, for training: inputs first. */
void built_begin(struct built *b, struct shoal_estimator *e);
shoal_status built_input(struct built *b, shoal_mode mode, shoal_input_fn *input, void *arg);
shoal_status built_check(struct built *b, shoal_mode mode);
void built_release(struct built *b);
void inputs_release(struct shoal_inputs *in);
void spec_release(struct shoal_estimator_spec *s);

/* A session in this process with the variables of a checkpoint (NULL: the latest), ready to run. *prefix is for the
 * caller to free. */
shoal_status built_restore(struct built *b, struct shoal_estimator *e, const char *checkpoint, shoal_session **session,
                           struct scaffold *scaffold, char **prefix);

/* model_dir/eval or model_dir/eval_NAME; for the caller to free. */
char *estimator_eval_dir(const struct shoal_estimator *e, const char *name);

/* Under a strategy of several tasks: makes places of the input's values, which the hook feeds, so that all tasks end
 * with the input of any. */
shoal_hook input_common_end(struct shoal_graph *g, shoal_strategy *s, shoal_out *values, int n);

/* ---- results ---- */

struct shoal_results {
  VEC(struct result_row {
    char *name;
    double value;
  })
  all;
};
void results_put(struct shoal_results *r, const char *name, double value);
bool results_has(const struct shoal_results *r, const char *name);
/* Sorts them, and writes them into the event files of a folder. */
shoal_status results_write(struct shoal_results *r, const char *dir, int64_t step);
/* Calls fn with each value of a tag in the event files of a folder, in the order of files and of values. A folder that
 * is not there has none. */
shoal_status results_read(const char *dir, const char *tag, void (*fn)(void *arg, int64_t step, double value),
                          void *arg);

/* ---- early stopping ---- */

/* By which all workers learn of the end. */
shoal_var early_stopping_variable(struct shoal_graph *g);
/* The hook, which is the session's: stops when `told`, read with each step, is not 0; a chief's sets the variable. */
shoal_status early_stopping_add(struct shoal_graph *g, struct shoal_estimator *e, const shoal_early_stopping *given,
                                bool is_chief, shoal_var stop, shoal_out told, shoal_hook *hook);
/* Was the run of this checkpoint stopped early? */
bool early_stopped(const char *prefix);

/* ---- training, evaluation, exports by others ---- */

/* func: the call that the spec was given to. */
shoal_status eval_spec_check_steps(const shoal_eval_spec *spec, const char *func);
shoal_status estimator_evaluate(struct shoal_estimator *e, const shoal_eval_spec *spec, const char *checkpoint,
                                struct shoal_results **results, char **evaluated);
/* extra: a hook more, taken over; NULL: none. */
shoal_status estimator_train(struct shoal_estimator *e, const shoal_train_spec *spec, const shoal_hook *extra);
/* After an evaluation; last: there will be no other. */
shoal_status exporters_run(struct shoal_estimator *e, const shoal_exporter *exporters, int n, const char *checkpoint,
                           const struct shoal_results *results, const char *eval_name, bool last);
shoal_status estimator_export(struct shoal_estimator *e, const char *base, shoal_input_fn *receiver, void *arg,
                              const char *checkpoint, char **path);

#endif

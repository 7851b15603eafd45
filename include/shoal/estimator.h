/* Estimators: a model as two functions, one for its input and one for itself, which is trained, evaluated, asked and
 * exported by name, in one process or as any task of a cluster. What tf.estimator is in TensorFlow: checkpoints, event
 * files and the roles of tasks are the same.
 *
 *   void input(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg);      // features and labels
 *   void model(shoal_graph *g, shoal_mode mode, const shoal_inputs *in, shoal_estimator_spec *spec, void *arg);
 *
 *   shoal_estimator *e;
 *   check(shoal_estimator_new(model, NULL, SHOAL_OPTIONS(shoal_run_config, .model_dir = "m"), &e));
 *   check(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 1000)));
 *   check(shoal_estimator_evaluate(e, SHOAL_OPTIONS(shoal_eval_spec, .input = input), &results));
 *
 * shoal_canned_new makes one with a model of its own: linear, a network, both, or none. docs/estimators.md tells the
 * rest. */
#ifndef SHOAL_ESTIMATOR_H
#define SHOAL_ESTIMATOR_H

#include <shoal/columns.h>
#include <shoal/metrics.h>
#include <shoal/saved_model.h>
#include <shoal/strategy.h>
#include <shoal/train_session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_estimator shoal_estimator;

typedef enum shoal_mode { SHOAL_MODE_TRAIN, SHOAL_MODE_EVAL, SHOAL_MODE_PREDICT } shoal_mode;

/* ---- input ---- */

/* What a step gets: features by name, and labels. */
typedef struct shoal_inputs shoal_inputs;
/* Makes them in the graph, of a dataset in most cases (shoal_dataset_next); the end of the dataset is the end of the
 * training, of the evaluation or of the answers. (Of tasks that train in step: that of the first which ends.) */
typedef void shoal_input_fn(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg);
SHOAL_API void shoal_inputs_feature(shoal_inputs *in, const char *name, shoal_out values);
SHOAL_API void shoal_inputs_sparse_feature(shoal_inputs *in, const char *name, shoal_out indices, shoal_out values,
                                           shoal_out dense_shape);
SHOAL_API void shoal_inputs_labels(shoal_inputs *in, shoal_out labels);
/* This task's number among those that train, and how many those are: for shoal_dataset_shard. */
SHOAL_API int shoal_inputs_worker(const shoal_inputs *in);
SHOAL_API int shoal_inputs_workers(const shoal_inputs *in);
/* What was given. The array lives as long as the inputs; labels' node NULL: there are none. */
SHOAL_API const shoal_named_feature *shoal_inputs_features(const shoal_inputs *in, int *n);
SHOAL_API shoal_out shoal_inputs_feature_named(const shoal_inputs *in, const char *name);
SHOAL_API shoal_out shoal_inputs_get_labels(const shoal_inputs *in);

/* ---- model ---- */

/* What a model says of itself: a loss and an op in training, a loss and metrics in evaluation, predictions. */
typedef struct shoal_estimator_spec shoal_estimator_spec;
typedef void shoal_model_fn(shoal_graph *g, shoal_mode mode, const shoal_inputs *in, shoal_estimator_spec *spec,
                            void *arg);
SHOAL_API void shoal_spec_loss(shoal_estimator_spec *spec, shoal_out loss);
SHOAL_API void shoal_spec_train(shoal_estimator_spec *spec, shoal_op *op);
SHOAL_API void shoal_spec_metric(shoal_estimator_spec *spec, const char *name, shoal_metric metric);
SHOAL_API void shoal_spec_prediction(shoal_estimator_spec *spec, const char *name, shoal_out value);
/* A signature of exported models; its inputs are those of the export. Without any: "serving_default" gives all
 * predictions. */
SHOAL_API void shoal_spec_signature(shoal_estimator_spec *spec, const char *key, const char *method,
                                    const shoal_export_value *outputs, int n);
/* Of training; the spec takes it over. */
SHOAL_API void shoal_spec_hook(shoal_estimator_spec *spec, shoal_hook hook);

/* ---- where and how it runs ---- */

typedef enum shoal_estimator_strategy {
  SHOAL_ESTIMATOR_DEFAULT,      /* in a cluster parameter servers where there are some, else all reduce; else one CPU */
  SHOAL_ESTIMATOR_MIRRORED,     /* replicas on the devices of this process */
  SHOAL_ESTIMATOR_MULTI_WORKER, /* a replica in each task */
} shoal_estimator_strategy;

/* Zero-filled is the default. */
typedef struct shoal_run_config {
  size_t size;           /* shoal/options.h */
  const char *model_dir; /* checkpoints and event files; NULL: TF_CONFIG's "model_dir", which must be the same where
                          * both are given */
  int64_t save_steps;    /* a checkpoint every so many steps, or seconds; both 0: 600 s; below 0: at the end alone */
  double save_secs;
  int keep_checkpoints;    /* 0: 5; below 0: all */
  double keep_every_hours; /* 0: 10,000 */
  int64_t summary_steps;   /* 0: 100; below 0: none */
  int64_t log_steps;       /* global_step/sec; 0: 100; below 0: none */
  int64_t seed;            /* 0: another one in every run */
  const char *tf_config;   /* NULL: the environment's; "": none, whatever that says */
  shoal_estimator_strategy strategy;
  int devices;                 /* SHOAL_ESTIMATOR_MIRRORED: so many CPUs; 0: 2 */
  const char *warm_start;      /* a checkpoint, or a folder of them: variables begin with its values */
  const char *warm_start_vars; /* a regular expression that their names begin with; NULL: all that are trained */
  const shoal_session_options *session;
  double max_wait_secs;           /* for other tasks, and of an evaluator for a new checkpoint; 0: 7200 */
  const shoal_progress *progress; /* the loss and last step are filled in; NULL: no progress line */
  const char *device;             /* where the model's ops are to be, "/gpu:0"; NULL: where kernels are */
} shoal_run_config;

/* What is found in cluster and folder is looked at now: a TF_CONFIG that makes no sense is an error here. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_estimator_new(shoal_model_fn *model, void *arg,
                                                            const shoal_run_config *config, shoal_estimator **out);
SHOAL_API void shoal_estimator_free(shoal_estimator *e);
SHOAL_API const char *shoal_estimator_model_dir(const shoal_estimator *e);

/* ---- training ---- */

typedef enum shoal_stop_rule {
  SHOAL_STOP_NO_DECREASE, /* the metric has not fallen below its least for so many steps */
  SHOAL_STOP_NO_INCREASE,
  SHOAL_STOP_BELOW, /* the metric is beyond a target */
  SHOAL_STOP_ABOVE,
} shoal_stop_rule;
/* By what evaluations have written: shoal_train_and_evaluate's, or any others' into model_dir/eval. All workers stop.
 */
typedef struct shoal_early_stopping {
  size_t size; /* shoal/options.h */
  shoal_stop_rule rule;
  const char *metric;    /* NULL: "loss" */
  double target;         /* of BELOW and ABOVE */
  int64_t patience;      /* steps without a better one; 0: 1 */
  int64_t min_steps;     /* evaluations before that count for nothing */
  const char *eval_name; /* of the evaluation; NULL: the one without a name */
  double every_secs;     /* how often it is looked; 0: 60; below 0: at every step */
} shoal_early_stopping;

typedef struct shoal_train_spec {
  size_t size; /* shoal/options.h */
  shoal_input_fn *input;
  void *arg;
  int64_t max_steps;       /* the global step to end at; */
  int64_t steps;           /* or so many more. Both 0: to the end of the input */
  const shoal_hook *hooks; /* taken over, also when there is an error */
  int n_hooks;
  const shoal_early_stopping *early_stopping; /* NULL: none */
} shoal_train_spec;
/* As this task of the cluster, or in this process alone; a model that was trained to max_steps is left as it is. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_estimator_train(shoal_estimator *e, const shoal_train_spec *spec);

/* ---- evaluation ---- */

/* Numbers by name: metrics, "loss" (the mean over batches), "global_step". */
typedef struct shoal_results shoal_results;
SHOAL_API void shoal_results_free(shoal_results *r);
SHOAL_API int shoal_results_count(const shoal_results *r);
/* In the order of their names. */
SHOAL_API const char *shoal_results_name(const shoal_results *r, int i);
/* NaN: there is none of that name. */
SHOAL_API double shoal_results_value(const shoal_results *r, const char *name);

/* Writes a model for serving after evaluations. */
typedef enum shoal_exporter_kind {
  SHOAL_EXPORT_FINAL,  /* after the last one */
  SHOAL_EXPORT_LATEST, /* after each, and keeps the newest */
  SHOAL_EXPORT_BEST,   /* after each that is better than all before, and keeps the newest */
} shoal_exporter_kind;
typedef struct shoal_exporter {
  shoal_exporter_kind kind;
  const char *name;         /* models are model_dir/export/NAME/NUMBER */
  shoal_input_fn *receiver; /* as shoal_estimator_export has it */
  void *arg;
  int keep;           /* 0: 5; below 0: all */
  const char *metric; /* BEST: NULL: "loss" */
  bool larger;        /* BEST: more is better; else less. What is no number is never */
} shoal_exporter;

typedef struct shoal_eval_spec {
  size_t size; /* shoal/options.h */
  shoal_input_fn *input;
  void *arg;
  int64_t steps;           /* batches; 0: to the end of the input */
  const char *name;        /* event files are in model_dir/eval_NAME; NULL: model_dir/eval */
  const char *checkpoint;  /* shoal_estimator_evaluate: NULL: the latest */
  double start_delay_secs; /* shoal_train_and_evaluate: before the first; 0: none */
  double throttle_secs;    /* from one to the next, at least; 0: each checkpoint is evaluated */
  const shoal_exporter *exporters;
  int n_exporters;
  size_t exporter_size; /* of each element; 0: as version 0.2 has them */
} shoal_eval_spec;
/* *results may be NULL. Of a model without a checkpoint: NOT_FOUND. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_estimator_evaluate(shoal_estimator *e, const shoal_eval_spec *spec,
                                                                 shoal_results **results);

/* Trains and evaluates by turns. In a cluster this task does what is its own: chief and workers train, parameter
 * servers serve, the evaluator evaluates each checkpoint as it appears until that of max_steps, or of an early stop.
 * Without a cluster every checkpoint is evaluated between two steps. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_train_and_evaluate(shoal_estimator *e, const shoal_train_spec *train,
                                                                 const shoal_eval_spec *eval);

/* ---- answers, exports ---- */

/* Gets the predictions of a batch, in the order of names; they stay the caller's. An error of its own ends it. */
typedef shoal_status shoal_predicted_fn(const char *const *names, shoal_tensor *const *values, int n, void *arg);
typedef struct shoal_predict_spec {
  size_t size; /* shoal/options.h */
  shoal_input_fn *input;
  void *arg;
  shoal_predicted_fn *predicted;
  void *predicted_arg;
  const char *checkpoint; /* NULL: the latest */
} shoal_predict_spec;
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_estimator_predict(shoal_estimator *e, const shoal_predict_spec *spec);

/* Writes the model of the latest checkpoint as a SavedModel BASE/NUMBER, where the number is the time in seconds, or
 * one more than the largest there; *path, if it is not NULL, is for the caller to free. receiver makes the features
 * that the model is asked with: placeholders, or Examples parsed (shoal_example_receiver). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_estimator_export(shoal_estimator *e, const char *base,
                                                               shoal_input_fn *receiver, void *arg, char **path);
/* A receiver of serialized Examples, "inputs", for these columns. arg: a shoal_column_list. */
typedef struct shoal_column_list {
  const shoal_column *const *at;
  int n;
} shoal_column_list;
SHOAL_API void shoal_example_receiver(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg);
/* In a receiver: a signature's input of this name. Without any, all dense features are under their names. */
SHOAL_API void shoal_inputs_receiver(shoal_inputs *in, const char *name, shoal_out tensor);

/* ---- canned ---- */

typedef enum shoal_canned {
  SHOAL_CANNED_LINEAR,
  SHOAL_CANNED_DNN,
  SHOAL_CANNED_DNN_LINEAR,
  SHOAL_CANNED_BASELINE
} shoal_canned;
/* Columns must outlive the estimator. */
typedef struct shoal_canned_options {
  size_t size;     /* shoal/options.h */
  int64_t classes; /* 0: a regressor; 2 or more: a classifier */
  const shoal_column *const *linear_columns;
  int n_linear_columns;
  const shoal_column *const *dnn_columns;
  int n_dnn_columns;
  const int64_t *hidden_units; /* [n_hidden_units] */
  int n_hidden_units;
  const shoal_optimizer *linear_optimizer; /* NULL: Ftrl, as TensorFlow's; of BASELINE too */
  const shoal_optimizer *dnn_optimizer;    /* NULL: Adagrad */
  double dropout;                          /* of hidden layers, in training */
  int64_t label_dimension;                 /* of a regressor; 0: 1 */
  const char *weight_feature;              /* each example's weight; NULL: all count the same */
  const char *linear_combiner;             /* NULL: "sum" */
  bool mean_loss;                          /* the loss is the mean over a batch; else its sum, as TensorFlow 1's */
  bool keras; /* as TensorFlow 2's tf.estimator: Keras' optimizers where none are given, and the mean loss */
} shoal_canned_options;
/* Variables, their slots, metrics and predictions have the names of tf.compat.v1.estimator's LinearClassifier and kin;
 * with Keras' optimizers (`keras`, or given: shoal/train.h), those of tf.estimator's. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_canned_new(shoal_canned kind, const shoal_canned_options *options,
                                                         const shoal_run_config *config, shoal_estimator **out);

#ifdef __cplusplus
}
#endif
#endif

/* The loop of programs that train large models, in one process or under a strategy: a line every so many steps with
 * loss, speed and memory, a checkpoint at the end and when the program is told to stop (Ctrl-C), and on from there. */
#ifndef EXAMPLES_STEPS_H
#define EXAMPLES_STEPS_H

#include <sys/resource.h>

#include "common.h"

struct steps {
  const char *device, *checkpoint_dir, *trace_dir, *unit; /* unit: of what a step consumes, "tokens" */
  struct save_flags save;
  int64_t last, log, consumed; /* steps to end at; steps between lines; units of a step */
  shoal_strategy *strategy;    /* or NULL */
  const shoal_server *server;  /* without a strategy: whose session it is; NULL: this process alone */
  const char *label;           /* before each line: "worker 1: "; NULL: nothing */
};
#define STEPS_FLAGS(s)                                                                                            \
  flag_number("steps", "steps to end at; 0: no training", &(s).last, 0),                                          \
      flag_number("log_steps", "a line every so many steps", &(s).log, 1),                                        \
      flag_path("checkpoint_dir", "where to save, and to go on from", &(s).checkpoint_dir), SAVE_FLAGS((s).save), \
      flag_path("trace_dir", "for a trace of every fifth step, which chrome://tracing shows", &(s).trace_dir),    \
      DEVICE_FLAG((s).device)

/* float32 or bfloat16, by the flag --dtype. */
static inline shoal_dtype read_dtype(const char *given) {
  if (!strcmp(given, "float32")) return SHOAL_FLOAT32;
  if (strcmp(given, "bfloat16") != 0) {
    fprintf(stderr, "%s: --dtype=%s: expected float32 or bfloat16\n", program_name, given);
    exit(2);
  }
  return SHOAL_BFLOAT16;
}

/* The most memory this process has had, in MB. */
static inline double peak_memory(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_maxrss / 1024;
}

/* A rate that rises from 0 in a straight line for `warmup` steps, then falls to `least` times its height at the last
 * one, along half a cosine. Steps are counted from 1. */
static inline shoal_out rising_rate(shoal_graph *g, double rate, shoal_var step, double warmup, double last,
                                    double least) {
  shoal_out at = shoal_cast(g, shoal_add_v2(g, step.value, shoal_constant_int64(g, 1)), SHOAL_FLOAT32);
  shoal_out behind = shoal_sub(g, at, shoal_constant_float(g, (float)warmup));
  behind = shoal_maximum(g, behind, shoal_constant_float(g, 0));
  shoal_out falling = shoal_cosine_decay(g, rate, behind, last - warmup > 1 ? last - warmup : 1, least);
  return warmup > 0 ? shoal_warmup(g, falling, at, warmup) : falling;
}

/* For programs that feed nothing. */
static inline shoal_hook no_feed(void) {
  shoal_hook none;
  memset(&none, 0, sizeof none);
  return none;
}

/* What a step computes that is printed. */
struct watched {
  shoal_out loss, norm, rate; /* norm: of the gradients, before they are clipped */
};

static inline void print_step(const struct steps *s, int64_t step, const float *value, double took, int64_t steps) {
  printf("%sstep %lld/%lld  loss %.6f  norm %.4f  rate %.3g  %.1f ms  %.0f %s/s  memory %.0f MB\n",
         s->label ? s->label : "", (long long)step, (long long)s->last, (double)value[0], (double)value[1],
         (double)value[2], took / (double)steps * 1e3, (double)(s->consumed * steps) / took, s->unit, peak_memory());
}

/* Who asks a trained model (--steps=0) of a folder where there is none has mistyped it: an untrained one would answer.
 */
static inline void check_trained(const struct steps *s, const shoal_scaffold *scaffold) {
  if (s->last || !s->checkpoint_dir || (scaffold && scaffold->init_fn)) return;
  char *checkpoint = shoal_latest_checkpoint(s->checkpoint_dir);
  if (!checkpoint) {
    fprintf(stderr, "%s: there is no checkpoint in %s, and --steps=0 trains nothing\n", program_name,
            s->checkpoint_dir);
    exit(1);
  }
  free(checkpoint);
}

/* What a session that was made anew, after a task was lost, goes on from. */
static inline shoal_status note_step(void *step, const shoal_created *created) {
  *(int64_t *)step = created->global_step;
  return NULL;
}

/* Runs the training of graph g: `train`, fed by the hook, until the last step. `at_end` (or NULL) is called with the
 * trained model's session. On parameter servers a worker's lines count its own steps. */
static inline shoal_status run_steps(shoal_graph *g, const struct steps *s, const struct watched *w, shoal_op *train,
                                     shoal_hook feed, const shoal_scaffold *scaffold,
                                     void (*at_end)(shoal_session *session, void *arg), void *arg) {
  check_trained(s, scaffold);
  int64_t step = 0;
  shoal_hook hooks[] = {feed, shoal_nan_tensor_hook(w->loss, true), no_feed(), no_feed()};
  hooks[2].state = &step;
  hooks[2].after_create = note_step;
  if (s->trace_dir) hooks[3] = shoal_profiler_hook(5, 0, s->trace_dir);
  shoal_progress progress = {.every_secs = 1e8}; /* says what was restored and saved; lines are our own */
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(t, g, .server = s->server, .is_chief = s->server != NULL, .checkpoint_dir = s->checkpoint_dir,
                      .save_steps = s->save.steps, .save_secs = save_secs(&s->save), .stop_at_step = s->last,
                      .hooks = hooks, .n_hooks = 4, .scaffold = scaffold, .progress = &progress,
                      .session = device_session(s->device), .status = &error, .strategy = s->strategy) {
    int64_t since = 0;
    const bool any = step < s->last;
    double start = seconds();
    while (any && !shoal_should_stop(t)) {
      float value[3] = {0};
      if (!shoal_run(t, SHOAL_NO_FEEDS, SHOAL_FETCH(w->loss, &value[0], w->norm, &value[1], w->rate, &value[2]), train))
        continue;
      step++;
      since++;
      if (step % s->log && step != s->last) continue;
      print_step(s, step, value, seconds() - start, since);
      start = seconds();
      since = 0;
    }
    if (at_end && !shoal_preempted() && !shoal_train_session_error(t)) at_end(shoal_train_session_raw(t), arg);
  }
  return error;
}

#endif

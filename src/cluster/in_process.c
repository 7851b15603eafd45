/* Steps by a call; see in_process.h. */
#include "cluster/in_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/inside.h"
#include "base/latch.h"
#include "rpc/loop.h"
#include "runtime/run_cancel.h"

struct server_place {
  char *target;
  struct master *master;
  struct inside calls;
};

static struct {
  pthread_mutex_t lock;
  VEC(struct server_place *) places; /* lock */
} here = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* NULL: it has none. */
static struct server_place *place_of(const struct master *m) {
  struct server_place *found = NULL;
  pthread_mutex_lock(&here.lock);
  for (size_t i = 0; i < here.places.n && !found; i++)
    if (here.places.at[i]->master == m) found = here.places.at[i];
  pthread_mutex_unlock(&here.lock);
  return found;
}

void in_process_add(const char *target, struct master *m) {
  struct server_place *p = mem_zalloc(1, sizeof *p);
  p->target = mem_strdup(target);
  p->master = m;
  inside_init(&p->calls);
  pthread_mutex_lock(&here.lock);
  vec_push(&here.places, p);
  pthread_mutex_unlock(&here.lock);
}

void in_process_remove(struct master *m) {
  struct server_place *p = place_of(m);
  if (!p) return;
  pthread_mutex_lock(&here.lock);
  p->target[0] = 0; /* nobody comes in any more */
  pthread_mutex_unlock(&here.lock);
  inside_wait(&p->calls);
  pthread_mutex_lock(&here.lock);
  size_t i = 0;
  while (here.places.at[i] != p) i++;
  here.places.at[i] = vec_last(&here.places);
  here.places.n--;
  if (!here.places.n) vec_release(&here.places);
  pthread_mutex_unlock(&here.lock);
  free(p->target);
  free(p);
}

struct master *in_process_enter(const char *target) {
  pthread_mutex_lock(&here.lock);
  struct master *m = NULL;
  for (size_t i = 0; i < here.places.n && !m; i++) {
    struct server_place *p = here.places.at[i];
    if (!strcmp(p->target, target) && inside_enter(&p->calls)) m = p->master;
  }
  pthread_mutex_unlock(&here.lock);
  return m;
}

void in_process_leave(struct master *m) { inside_leave(&place_of(m)->calls); }

/* ---- steps ---- */

struct in_process_step {
  struct latch latch;
  struct compiled *compiled;
  const struct step_signature *sig;
  shoal_tensor **fetches;
  shoal_bytes *metadata;
};

/* A name without an output is that of output 0. */
static bool same_tensor(const char *asked, const char *name) {
  size_t n = strlen(asked);
  return !strncmp(asked, name, n) && (!name[n] || (!strcmp(name + n, ":0") && !strchr(asked, ':')));
}

static void step_ended(void *arg, shoal_status s, const struct tensor *values, const struct text *metadata) {
  struct in_process_step *step = arg;
  for (size_t k = 0; !s && k < step->compiled->fetches.n; k++) {
    struct tensor t;
    tensor_ref(&t, &values[k]);
    shoal_tensor *handle = tensor_handle_take(&t);
    for (int i = 0; i < step->sig->n_fetches; i++)
      if (!step->fetches[i] && same_tensor(step->sig->fetches[i], step->compiled->fetches.at[k]))
        step->fetches[i] = shoal_tensor_ref(handle);
    shoal_tensor_unref(handle);
  }
  if (!s && step->metadata && metadata->n) {
    *step->metadata = (shoal_bytes){mem_alloc(metadata->n), metadata->n};
    memcpy(step->metadata->data, metadata->at, metadata->n);
  }
  latch_done(&step->latch, s);
}

static size_t lengths(const char *const *names, int n) {
  size_t sum = 0;
  for (int i = 0; i < n; i++) sum += strlen(names[i]);
  return sum;
}

/* Names of tensors as they would come over the wire: those that lack ":0" are written at *text, which moves on. */
static const char **put_whole(const char **to, const char *const *names, int n, char **text) {
  for (int i = 0; i < n; i++) {
    *to++ = strchr(names[i], ':') ? names[i] : *text;
    if (to[-1] != *text) continue;
    size_t n_name = strlen(names[i]);
    memcpy(*text, names[i], n_name);
    memcpy(*text + n_name, ":0", sizeof ":0");
    *text += n_name + sizeof ":0";
  }
  return to;
}

/* The signature with every name whole. Its lists, and names that were made longer, are one block that begins with the
 * feeds. */
static struct step_signature whole_names(const struct step_signature *sig) {
  size_t n = (size_t)sig->n_feeds + (size_t)sig->n_fetches;
  size_t bytes = lengths(sig->feeds, sig->n_feeds) + lengths(sig->fetches, sig->n_fetches) + n * sizeof ":0";
  const char **all = block_alloc(n * sizeof *all + bytes);
  char *text = (char *)(all + n);
  struct step_signature out = *sig;
  out.feeds = all;
  out.fetches = put_whole(all, sig->feeds, sig->n_feeds, &text);
  put_whole(all + sig->n_feeds, sig->fetches, sig->n_fetches, &text);
  return out;
}

static void cancel_run(void *run) { step_run_cancel(run, run_cancel_status()); }

/* The step runs in part on this thread. One that is late is cancelled, and then waited for: it uses our memory. */
static shoal_status run_compiled(struct master_session *s, struct in_process_step *step, const struct run_options *o,
                                 int64_t deadline, shoal_tensor *const *feeds) {
  struct tensor *args = block_zalloc(((size_t)step->sig->n_feeds + 1) * sizeof *args);
  for (int i = 0; i < step->sig->n_feeds; i++) tensor_ref(&args[i], &feeds[i]->t);
  latch_init(&step->latch, 1);
  struct step_run *run = step_run_new(s, step->compiled, o, deadline, args, step_ended, step);
  struct run_cancel_link link;
  run_cancel_link(&link, cancel_run, run);
  step_run_begin(run);
  rpc_loop_hand_over();
  if (!latch_wait_until(&step->latch, deadline))
    step_run_cancel(run, STATUS(SHOAL_DEADLINE_EXCEEDED, "Timed out: the step did not end in time"));
  shoal_status err = latch_finish(&step->latch);
  run_cancel_unlink(&link);
  step_run_unref(run);
  return err;
}

static void compiled(void *arg, shoal_status s, struct compiled *c) {
  struct in_process_step *step = arg;
  step->compiled = c;
  latch_done(&step->latch, s);
}

/* The client's thread may wait. */
static shoal_status compile(struct master_session *s, struct in_process_step *step, const struct step_signature *sig,
                            unsigned flags) {
  latch_init(&step->latch, 1);
  master_compile(s, sig, flags, NULL, compiled, step);
  rpc_loop_hand_over();
  return latch_finish(&step->latch);
}

shoal_status in_process_run(struct master *m, const char *handle, const shoal_run_options *o, int64_t deadline,
                            const struct step_signature *sig, shoal_tensor *const *feeds, shoal_tensor **fetches,
                            shoal_bytes *metadata) {
  for (int i = 0; i < sig->n_fetches; i++) fetches[i] = NULL;
  for (int i = 0; i < sig->n_feeds; i++)
    if (!feeds[i]) return INVALID("the value fed to %s is NULL", sig->feeds[i]);
  struct master_session *s;
  TRY(master_find_session(m, handle, &s));
  struct run_options options = {.timeout_ms = o ? o->timeout_ms : 0,
                                .trace = o && o->trace_level,
                                .partition_graphs = o && o->output_partition_graphs};
  struct step_signature whole = whole_names(sig);
  struct in_process_step step = {.sig = sig, .fetches = fetches, .metadata = metadata};
  shoal_status err = compile(s, &step, &whole, options.partition_graphs ? COMPILE_GRAPHS : 0);
  if (!err) err = run_compiled(s, &step, &options, deadline, feeds);
  for (int i = 0; i < sig->n_fetches; i++) {
    if (!err && !fetches[i]) err = INTERNAL("the step has no value for %s", sig->fetches[i]);
    if (!err) continue;
    shoal_tensor_unref(fetches[i]);
    fetches[i] = NULL;
  }
  compiled_unref(step.compiled);
  block_free((void *)(uintptr_t)whole.feeds);
  master_session_unref(s);
  return err;
}

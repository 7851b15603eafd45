/* What an iterator walks: the dataset that it is given, or the same made anew.
 *
 * TensorFlow writes the pipeline of an iterator as a graph, rewrites that to run faster and makes the datasets anew.
 * What it writes is a tree: a dataset that two others have for input is made twice. Mostly nobody can tell; but the
 * generator of a ShuffleDataset's seeds goes with the dataset, so that both are in the same order, where the two would
 * have drawn seeds by turns had the pipeline not been rewritten (its options may say so). Later versions of the op have
 * their generator named in the graph, and share it either way.
 *
 * Here nothing is rewritten, and a pipeline is made anew only where that shows: when a shuffle with seeds of its own is
 * used twice in it, or by the pipeline of another iterator too. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/wire.h"
#include "data/dataset_graph.h"
#include "ops/data/dataset_state.h"
#include "proto/dataset.wire.h"

enum {
  MOST = 32,          /* fields of OptimizationOptions, their numbers */
  MOST_REMADE = 1024, /* datasets of a pipeline that is made anew: more take as long as a step should not wait */
};

/* Would TensorFlow rewrite it? Unless the default optimizations are switched off, and none is switched on. */
static bool is_rewritten(const struct dataset *d) {
  struct text options = {0};
  struct wire_field f, o;
  uint32_t on = 1u << wire_tag_number(OptimizationOptions_apply_default_optimizations); /* fields that are true */
  dataset_get_options(d, &options);
  for (struct wire w = wire_from(text_cstr(&options), options.n); wire_next(&w, &f) == WIRE_FIELD;) {
    struct wire in = wire_inside(&f);
    while (f.tag == Options_optimization_options && wire_next(&in, &o) == WIRE_FIELD) {
      if (o.number >= MOST) continue;
      on = o.value ? on | 1u << o.number : on & ~(1u << o.number);
    }
  }
  text_release(&options);
  return on;
}

struct remaking {
  struct dataset *d; /* a reference */
  void (*done)(void *arg, struct dataset *d);
  void *arg;
};

/* The first answer stays: iterators over one dataset share what they walk. */
static struct dataset *settle(struct dataset *d, struct dataset *as) {
  struct dataset *first = NULL;
  if (atomic_compare_exchange_strong(&d->final, &first, as)) return as;
  if (as != d) dataset_unref(as);
  return first;
}

/* What cannot be made anew is walked as it is, as in TensorFlow. */
static void remade(void *arg, shoal_status s, struct dataset *fresh) {
  struct remaking m = *(struct remaking *)arg;
  free(arg);
  shoal_status_free(s);
  if (fresh == m.d) dataset_unref(fresh);
  struct dataset *final = dataset_ref(settle(m.d, fresh ? fresh : m.d));
  dataset_unref(m.d);
  m.done(m.arg, final);
}

static void remake(struct kernel_ctx *ctx, struct remaking *m) {
  struct shoal_graph *g = graph_new();
  struct shoal_node *end;
  shoal_status s = dataset_graph(m->d, GRAPH_IN_PROCESS | GRAPH_OWN_SEEDS, g, &end);
  if (!s) {
    char *fetch = mem_printf("%s:0", end->name);
    s = dataset_run_graph(ctx, g, fetch, remade, m);
    free(fetch);
  }
  graph_free(g);
  if (s) remade(m, s, NULL);
}

void dataset_final(struct kernel_ctx *ctx, struct dataset *d, void (*done)(void *arg, struct dataset *d), void *arg) {
  struct dataset *final = atomic_load(&d->final);
  bool is_large = d->parts > MOST_REMADE;
  if (!final && (is_large || !(dataset_seeds_used(d) && is_rewritten(d)))) final = settle(d, d);
  if (final) {
    done(arg, dataset_ref(final));
    return;
  }
  struct remaking *m = mem_zalloc(1, sizeof *m);
  *m = (struct remaking){dataset_ref(d), done, arg};
  remake(ctx, m);
}

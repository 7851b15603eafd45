/* Rewrites by who runs a graph; see plan_rewrite.h. */
#include "runtime/plan_rewrite.h"

#include "graph/late_reads.h"
#include "runtime/kernel.h"

static shoal_status fold(void *host, const struct shoal_node *n, const struct tensor *const *in, struct tensor *out) {
  return plan_evaluate(host, n, in, NULL, out);
}

shoal_status plan_rewrite_body(struct shoal_graph *g, const char *off, const struct plan_options *host) {
  struct rewrite_options o = {.off = off,
                              .evaluate = host && host->device->type->host ? fold : NULL,
                              .arg = (void *)(uintptr_t)host,
                              .elementwise = kernel_is_elementwise,
                              .has_kernel = kernel_is_here,
                              .own_ops = true,
                              .of_host = kernel_is_of_host};
  return graph_rewrite(g, &o);
}

shoal_status plan_rewrite_step(struct shoal_graph *g, const char *off, const struct plan_options *host) {
  TRY(plan_rewrite_body(g, off, host));
  graph_late_reads(g);
  return NULL;
}

shoal_status plan_rewrite_abroad(struct shoal_graph *g, const char *off, plan_fold fold_there, void *arg) {
  struct rewrite_options o = {.off = off, .evaluate = fold_there, .arg = arg, .has_kernel = kernel_is_of_host};
  return graph_rewrite(g, &o);
}

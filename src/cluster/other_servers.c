/* What is asked of servers from outside: their state, their end; see shoal/cluster.h. */
#include "base/given.h"
#include "base/text.h"
#include "cluster/cluster_spec.h"
#include "cluster/server.h"
#include "rpc/channel.h"
#include "rpc/loop.h"

shoal_status server_ask(const char *target, const char *method, int64_t timeout_ms, struct rpc_body *body) {
  char host[256];
  int port;
  struct rpc_tls *tls;
  const char *address = str_starts(target, "grpc://") ? target + 7 : target;
  TRY(address_parse("target", address, host, &port));
  TRY(rpc_loop_acquire());
  shoal_status s = rpc_tls_from_environment(&tls);
  if (timeout_ms <= 0) timeout_ms = 5000;
  if (!s) {
    struct rpc_channel *channel = rpc_channel_new(address, tls, NULL);
    rpc_tls_free(tls);
    s = rpc_call_wait(channel, method, NULL, deadline_after_ms(timeout_ms), 0, body);
    rpc_channel_unref(channel);
  }
  rpc_loop_release();
  /* What gRPC says of these two tells nobody what to do. */
  shoal_code code = shoal_status_code(s);
  if (code == SHOAL_DEADLINE_EXCEEDED || code == SHOAL_UNIMPLEMENTED) shoal_status_free(s);
  if (code == SHOAL_DEADLINE_EXCEEDED)
    return STATUS(code, "%s: silent for %.1f s: the server there hangs or is stopped, or the port is another service's",
                  target, (double)timeout_ms * 1e-3);
  if (code == SHOAL_UNIMPLEMENTED) return STATUS(code, "%s: a server answers, but it is not Shoal's", target);
  return status_prefix(s, "%s: ", target);
}

shoal_status shoal_server_remote_stop(const char *target, int64_t timeout_ms) {
  GIVEN(target);
  return server_ask(target, "/shoal.Server/Stop", timeout_ms, NULL);
}

/* All of them, whoever does not answer; the error names each that may still be there. */
static shoal_status stop_each(const struct cluster_spec *spec, int64_t timeout_ms) {
  struct text why = {0};
  shoal_code code = SHOAL_OK;
  int tasks = 0, left = 0;
  for (size_t i = 0; i < spec->jobs.n; i++)
    for (size_t k = 0; k < spec->jobs.at[i].tasks.n; k++, tasks++) {
      shoal_status s = shoal_server_remote_stop(spec->jobs.at[i].tasks.at[k].address, timeout_ms);
      if (!s) continue;
      if (!left++) code = shoal_status_code(s);
      text_addf(&why, "\n  %s", shoal_status_message(s));
      shoal_status_free(s);
    }
  shoal_status err = left ? STATUS(code, "%d of %d tasks were not stopped:%s", left, tasks, text_cstr(&why)) : NULL;
  text_release(&why);
  return err;
}

shoal_status shoal_cluster_stop(const char *cluster, int64_t timeout_ms) {
  GIVEN(cluster);
  struct cluster_spec spec = {0};
  shoal_status err = cluster_spec_from_json(&spec, "cluster_spec", cluster);
  if (!err) err = cluster_spec_check(&spec);
  if (!err) err = stop_each(&spec, timeout_ms);
  cluster_spec_release(&spec);
  return err;
}

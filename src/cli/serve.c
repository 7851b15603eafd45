/* `shoal serve`: a model server with TensorFlow Serving's flags, until it is told to stop.
 *
 * SIGTERM and SIGINT end it: requests that are under way are answered first, for as long as --grace_seconds says. */
#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "rpc/limits.h"
#include "runtime/session_config.h"
#include "serving/batch.h"
#include "serving/serve.h"

enum { MAX_SECONDS = 1000000 };

struct serve_flags {
  const char *name, *base_path, *config_file, *level;
  struct tls_flags tls;
  int64_t port, poll_s, retries, retry_us, grace_s, max_request, inter, intra;
  int64_t config_poll_s;
  int64_t rest_port, rest_threads, rest_timeout_ms, rest_max_bytes;
  bool bind_all, batching, rest_tls;
  const char *batching_file, *devices;
};

static int signal_pipe[2];

static void on_signal(int sig) {
  int saved = errno;
  unsigned char byte = (unsigned char)sig;
  if (write(signal_pipe[1], &byte, 1) < 0) errno = saved; /* full: enough signals are waiting */
  errno = saved;
}

static shoal_status catch_signals(void) {
  if (pipe2(signal_pipe, O_CLOEXEC)) return ERRNO_STATUS(errno, "no pipe for signals");
  fcntl(signal_pipe[1], F_SETFL, O_NONBLOCK); /* a handler must not wait */
  struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&a.sa_mask);
  sigaction(SIGTERM, &a, NULL);
  sigaction(SIGINT, &a, NULL);
  signal(SIGPIPE, SIG_IGN);
  return NULL;
}

/* By poll(), which a signal ends: ThreadSanitizer runs handlers only after the call that they came in. */
static void wait_for_signal(void) {
  struct pollfd news = {.fd = signal_pipe[0], .events = POLLIN};
  while (poll(&news, 1, -1) < 0 && errno == EINTR) continue;
}

static shoal_status read_batching(const struct serve_flags *f, struct batch_parameters *out) {
  batch_parameters_default(out);
  if (f->batching_file && !f->batching) return INVALID("--batching_parameters_file is set without --enable_batching");
  return f->batching_file ? batch_parameters_read_file(out, f->batching_file) : NULL;
}

/* Models are on the CPU, and nobody looks for a card, which takes longer than a small model takes to load: unless
 * devices were asked for. */
static shoal_status read_devices(const char *text, struct text *config) {
  struct device_count counts[MAX_DEVICE_TYPES];
  int n = 0;
  if (text) TRY(status_prefix(device_counts_parse(text, counts, MAX_DEVICE_TYPES, &n), "--devices=%s: ", text));
  for (const struct device_type *const *t = device_types; *t && n < MAX_DEVICE_TYPES; t++)
    if (!(*t)->host && device_asked(*t, counts, n) < 0) counts[n++] = (struct device_count){(*t)->name, 0};
  session_config_write_counts(counts, n, config);
  return NULL;
}

/* The models: of a file, or one by its folder. */
static shoal_status read_models(const struct serve_flags *f, struct models_config *out) {
  if (f->config_file && f->base_path)
    return INVALID("--model_config_file and --model_base_path both say what is served: give one of them");
  if (f->config_file) return models_config_read_file(out, f->config_file);
  if (!f->base_path) return INVALID("--model_base_path is missing (or --model_config_file)");
  if (!file_is_directory(f->base_path)) return NOT_FOUND("--model_base_path=%s is no folder", f->base_path);
  models_config_one(out, f->name ? f->name : "default", f->base_path);
  return NULL;
}

static shoal_status serve(const struct serve_flags *f, const struct batch_parameters *batching,
                          const struct text *config) {
  struct models_config models = {0};
  struct rpc_tls *tls = NULL;
  struct model_server *server;
  if (f->tls.ca && !f->tls.cert && !f->tls.key)
    return INVALID("--tls_ca=%s alone: a server shows a certificate of its own: give --tls_cert and --tls_key, too",
                   f->tls.ca);
  if (f->rest_tls && !f->tls.cert) return INVALID("--rest_api_tls needs a certificate: --tls_cert and --tls_key");
  TRY(rpc_tls_load(f->tls.cert, f->tls.key, f->tls.ca, &tls));
  shoal_status s = read_models(f, &models);
  if (!s) s = catch_signals();
  file_ordinary_only(true); /* what a version's folder has: a pipe there would be waited for, for ever */
  if (!s)
    s = model_server_start(
        &(struct model_server_options){.models = &models,
                                       .catalog = {.poll_ms = f->poll_s * 1000,
                                                   .max_retries = (int)f->retries,
                                                   .retry_ms = f->retry_us / 1000,
                                                   .config_file = f->config_poll_s ? f->config_file : NULL,
                                                   .config_poll_ms = f->config_poll_s * 1000,
                                                   .batching = f->batching ? batching : NULL,
                                                   .session = {.size = sizeof(shoal_session_options),
                                                               .config = config->at,
                                                               .config_size = config->n,
                                                               .inter_op_threads = (int)f->inter,
                                                               .intra_op_threads = (int)f->intra,
                                                               .allow_soft_placement = true}},
                                       .host = tls || f->bind_all ? "[::]" : NULL,
                                       .port = (int)f->port,
                                       .tls = tls,
                                       .max_request_bytes = f->max_request,
                                       .rest_port = (int)f->rest_port,
                                       .rest_host = f->bind_all || f->rest_tls ? "[::]" : NULL,
                                       .rest_tls = f->rest_tls,
                                       .rest_timeout_ms = f->rest_timeout_ms,
                                       .rest_max_bytes = f->rest_max_bytes},
        &server);
  if (s) {
    models_config_release(&models);
    rpc_tls_free(tls);
    return s;
  }
  printf("listening on grpc://%s:%d\n", tls || f->bind_all ? "[::]" : "localhost", model_server_port(server));
  if (f->rest_port >= 0)
    printf("REST at http%s://%s:%d/v1/models\n", f->rest_tls ? "s" : "",
           f->bind_all || f->rest_tls ? "[::]" : "localhost", model_server_rest_port(server));
  fflush(stdout);
  wait_for_signal();
  LOGI("stopping");
  model_server_stop(server, f->grace_s * 1000);
  rpc_tls_free(tls);
  return NULL;
}

int serve_main(int argc, char **argv) {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 4); /* many threads answer: a heap for each would be most of a small server's memory */
#endif
  struct serve_flags f = {.port = 8500,
                          .poll_s = 1,
                          .retries = 5,
                          .retry_us = 60000000,
                          .grace_s = 30,
                          .rest_port = -1,
                          .rest_timeout_ms = 30000};
  const struct flag own[] = {
      {"port", "N", "the port of gRPC (default 8500; 0: a free one)", .number = &f.port, .max = 65535},
      {"rest_api_port", "N", "the port of REST (0: a free one; default: none)", .number = &f.rest_port, .max = 65535},
      {"rest_api_tls", NULL, "REST by TLS, with the certificates of gRPC (default: plain text)", .on = &f.rest_tls},
      {"rest_api_num_threads", "N", "the same as --max_http_handlers", .number = &f.rest_threads, .min = 1,
       .max = 4096},
      {"rest_api_timeout_in_ms", "N", "for a request of REST (default 30000; 0: none)", .number = &f.rest_timeout_ms,
       .max = INT32_MAX},
      {"rest_api_max_request_bytes", "N", "largest request of REST, inflated (default 256 MiB)",
       .number = &f.rest_max_bytes, .min = 1, .max = INT32_MAX},
      {"model_name", "NAME", "the name of the model (default \"default\")", .text = &f.name},
      {"model_base_path", "DIR", "its folder, in which each version is a folder whose name is a number",
       .text = &f.base_path},
      {"model_config_file", "FILE", "instead: several models, as a ModelServerConfig in text", .text = &f.config_file},
      {"model_config_file_poll_wait_seconds", "N", "between looks whether that file has changed (default 0: none)",
       .number = &f.config_poll_s, .max = MAX_SECONDS},
      {"file_system_poll_wait_seconds", "N", "between looks for new versions (default 1)", .number = &f.poll_s,
       .min = 1, .max = MAX_SECONDS},
      {"max_num_load_retries", "N", "of a version that cannot be loaded (default 5)", .number = &f.retries,
       .max = 1 << 30},
      {"load_retry_interval_micros", "N", "between these (default 60000000)", .number = &f.retry_us, .min = 1000,
       .max = (int64_t)MAX_SECONDS * 1000000},
      {"enable_batching", NULL, "requests that come at one time are run as one", .on = &f.batching},
      {"batching_parameters_file", "FILE", "how: a BatchingParameters in text", .text = &f.batching_file},
      {"tensorflow_inter_op_parallelism", "N", "threads for nodes that run side by side (default 0: one a core)",
       .number = &f.inter, .max = 4096},
      {"tensorflow_intra_op_parallelism", "N", "threads inside one op (default 0: one a core)", .number = &f.intra,
       .max = 4096},
      {"devices", "TYPE=N[,...]",
       "so many devices of each type for models, as `shoal server` has it (default: the CPU alone)",
       .text = &f.devices},
      {"insecure_bind_all", NULL, "listen beyond loopback without TLS", .on = &f.bind_all},
      {"tls_cert", "FILE", "this server's certificate (PEM)", .text = &f.tls.cert},
      {"tls_key", "FILE", "its private key (PEM)", .text = &f.tls.key},
      {"tls_ca", "FILE", "clients must show a certificate that this authority signed (PEM)", .text = &f.tls.ca},
      {"max_request_bytes", "N", "largest request taken (default 2 GiB)", .number = &f.max_request, .min = 1,
       .max = 1ll << 40},
      {"grace_seconds", "N", "for requests that are under way when it is told to stop (default 30)",
       .number = &f.grace_s, .max = MAX_SECONDS},
      {"log_level", "LEVEL", "debug, info, warning (default), error or none", .text = &f.level},
  };
  struct flag flags[COUNT_OF(own) + RPC_LIMITS];
  int64_t limits[RPC_LIMITS] = {0};
  memcpy(flags, own, sizeof own);
  for (int i = 0; i < RPC_LIMITS; i++)
    flags[COUNT_OF(own) + (size_t)i] =
        (struct flag){rpc_limit_rows[i].flag, rpc_limit_rows[i].unit, rpc_limit_rows[i].meaning, .number = &limits[i]};
  int code;
  if (!flags_parse("shoal serve --model_base_path=DIR [--model_name=NAME] [flags]", flags, (int)COUNT_OF(flags), &argc,
                   argv, &code))
    return code;
  if (argc > 1) {
    fprintf(stderr, "shoal: serve: \"%s\" is no flag; `shoal serve --help` lists them\n", argv[1]);
    return EXIT_USAGE;
  }
  enum log_level parsed;
  if (f.level && !log_level_from_name(f.level, &parsed)) {
    fprintf(stderr, "shoal: --log_level=%s: expected debug, info, warning, error or none\n", f.level);
    return EXIT_USAGE;
  }
  if (f.level) log_set_level(parsed);
  if (f.rest_threads && !limits[RPC_MAX_HTTP_HANDLERS]) limits[RPC_MAX_HTTP_HANDLERS] = f.rest_threads;
  for (int i = 0; i < RPC_LIMITS; i++) rpc_limit_set((enum rpc_limit)i, limits[i]);
  struct batch_parameters batching;
  struct text config = {0};
  shoal_status s = read_batching(&f, &batching);
  if (!s) s = read_devices(f.devices, &config);
  if (!s) s = serve(&f, &batching, &config);
  text_release(&config);
  batch_parameters_release(&batching);
  return s ? report(s) : EXIT_OK;
}

/* `shoal devices [TARGET...]`: the devices that a task would have here, or those that a server knows: its own and its
 * cluster's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "device/device.h"

/* A session waits for its server to come; whoever asks for devices wants to know at once that nobody is there. */
static shoal_status is_there(const char *target, int64_t timeout_ms) {
  char *text = NULL;
  shoal_status e = shoal_server_remote_status(target, timeout_ms, &text);
  free(text);
  if (shoal_status_code(e) == SHOAL_UNAVAILABLE) return e;
  shoal_status_free(e); /* TensorFlow's servers do not know this question */
  return NULL;
}

static shoal_status list(const char *target, int64_t timeout_ms) {
  shoal_status gone = target ? is_there(target, timeout_ms) : NULL;
  if (gone) return gone;
  shoal_graph *g = shoal_graph_new();
  shoal_session *s = NULL;
  shoal_device *devices = NULL;
  int n = 0;
  shoal_status e =
      shoal_session_open(g,
                         SHOAL_OPTIONS(shoal_session_options, .target = target, .operation_timeout_ms = timeout_ms,
                                       .create_timeout_ms = timeout_ms),
                         &s);
  if (!e) e = shoal_session_devices(s, &devices, &n);
  for (int i = 0; i < n; i++)
    printf("%s type=%s memory=%" PRId64 " incarnation=%016" PRIx64 "\n", devices[i].name, devices[i].type,
           devices[i].memory, devices[i].incarnation);
  free(devices);
  shoal_status closed = s ? shoal_session_close(s) : NULL;
  shoal_graph_free(g);
  if (!e) return closed;
  shoal_status_free(closed);
  return e;
}

/* Of types of which there is none here, where one of them says why. */
static void tell_why_none(void) {
  for (const struct device_type *const *t = device_types; *t; t++) {
    const char *why = (*t)->why_none ? (*t)->why_none() : NULL;
    if (why && !device_type_find((*t)->name)) fprintf(stderr, "there is no %s: %s\n", (*t)->name, why);
  }
}

int devices_main(int argc, char **argv) {
  int64_t timeout = 5000;
  struct tls_flags tls = {0};
  const struct flag flags[] = {
      {"timeout_ms", "N", "give up on a server after this (default 5000)", .number = &timeout, .min = 1,
       .max = 3600000},
      TLS_FLAGS(tls),
  };
  int code;
  if (!flags_parse("shoal devices [grpc://HOST:PORT ...]", flags, sizeof flags / sizeof *flags, &argc, argv, &code))
    return code;
  tls_flags_use(&tls);
  code = EXIT_OK;
  for (int i = 1; i < argc || i == 1; i++) {
    shoal_status e = list(i < argc ? argv[i] : NULL, timeout);
    if (e) code = report(e);
  }
  if (argc < 2) tell_why_none();
  return code;
}

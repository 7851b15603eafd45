/* `shoal status`: what servers are doing. With targets, what each says of itself; with --cluster_spec, all tasks of a
 * cluster in a table; with neither, the jobs that `shoal launch` runs here. --watch asks again and again, --json is for
 * programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/jobs.h"
#include "cluster/server.h"

#include <shoal/cluster.h>

struct asking {
  const char *cluster;
  const char *const *targets;
  size_t n_targets;
  int64_t timeout;
  bool json, watch;
};

static const char nobody[] =
    "no job of `shoal launch` runs on this machine for this user; name a server, `shoal status grpc://HOST:PORT`, or "
    "give --cluster_spec";

/* Of the terminal, in columns; 0: what is written goes elsewhere. */
static int room(void) {
  struct winsize w = {0};
  return isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) ? w.ws_col : 0;
}

/* Keeps the first error. */
static void keep(shoal_status *first, shoal_status s) {
  if (!*first) *first = s;
  else shoal_status_free(s);
}

static shoal_status show_jobs(const struct asking *a, struct text *out) {
  struct job_entry *jobs;
  int n = jobs_find(&jobs);
  shoal_status err = NULL;
  if (a->json) text_adds(out, "{\"jobs\": [");
  for (int i = 0; i < n; i++) {
    char *answer = NULL;
    long age = (long)(time(NULL) - jobs[i].began);
    shoal_status s = cluster_status(jobs[i].cluster, a->timeout, a->json ? STATUS_JSON : STATUS_TABLE, room(), &answer);
    if (a->json) {
      text_addf(out, "%s\n{\"process\": %lld, \"began\": %lld, \"program\": ", i ? "," : "", (long long)jobs[i].process,
                (long long)jobs[i].began);
      text_add_json(out, jobs[i].program);
      text_addf(out, ", \"cluster\": %s}", answer ? answer : "null");
    } else {
      text_addf(out, "%sjob of process %lld, for %ld s: ", i ? "\n" : "", (long long)jobs[i].process,
                age > 0 ? age : 0);
      text_add_shown(out, jobs[i].program, strlen(jobs[i].program), false);
      text_addf(out, "\n%s", answer ? answer : "");
    }
    free(answer);
    keep(&err, s);
  }
  if (a->json) text_adds(out, n ? "\n]}\n" : "]}\n");
  if (!n) keep(&err, NOT_FOUND("%s", nobody));
  jobs_free(jobs, n);
  return err;
}

static shoal_status show(const struct asking *a, struct text *out) {
  char *answer = NULL;
  shoal_status s;
  if (a->cluster) s = cluster_status(a->cluster, a->timeout, a->json ? STATUS_JSON : STATUS_TABLE, room(), &answer);
  else if (a->n_targets) {
    enum status_form form = a->json ? STATUS_JSON : a->watch && a->n_targets > 1 ? STATUS_TABLE : STATUS_TEXT;
    s = server_status(a->targets, a->n_targets, a->timeout, form, room(), &answer);
  } else return show_jobs(a, out);
  if (answer) text_adds(out, answer);
  free(answer);
  return s;
}

/* Until it is interrupted. The screen is drawn anew in one write, so that it does not flicker; errors are a part of it:
 * a job that is not there yet, or not any more, is said and waited for. */
static int watch(const struct asking *a, int64_t every) {
  bool terminal = isatty(STDOUT_FILENO) && !a->json;
  for (;;) {
    struct text out = {0};
    char now[32];
    time_t t = time(NULL);
    shoal_status s = show(a, &out);
    strftime(now, sizeof now, "%H:%M:%S", localtime(&t));
    if (terminal) fputs("\033[H\033[J", stdout);
    if (!a->json) printf("shoal status at %s, every %lld s\n", now, (long long)every);
    fputs(text_cstr(&out), stdout);
    if (s && !a->json) {
      struct text why = {0};
      const char *message = shoal_status_message(s);
      text_add_shown(&why, message, strlen(message), true);
      printf("%s\n", text_cstr(&why));
      text_release(&why);
    }
    shoal_status_free(s);
    text_release(&out);
    if (fflush(stdout)) return EXIT_FAILED; /* whoever read it is gone */
    nanosleep(&(struct timespec){.tv_sec = every}, NULL);
  }
}

int status_main(int argc, char **argv) {
  struct asking a = {.timeout = 5000};
  int64_t every = 0;
  struct tls_flags tls = {0};
  const struct flag flags[] = {
      {"cluster_spec", "JSON|FILE", "all tasks of this cluster", .text = &a.cluster},
      {"timeout_ms", "N", "give up after this (default 5000)", .number = &a.timeout, .min = 1, .max = 3600000},
      {"watch", "SECONDS", "again and again, every so many seconds (2)", .number = &every, .min = 1, .max = 3600,
       .absent = "2"},
      {"json", NULL, "for programs", .on = &a.json},
      TLS_FLAGS(tls)};
  int code;
  if (!flags_parse("shoal status [grpc://HOST:PORT ... | --cluster_spec=JSON|FILE]\n\n"
                   "Without either: the jobs that `shoal launch` runs on this machine.",
                   flags, sizeof flags / sizeof *flags, &argc, argv, &code))
    return code;
  if (argc > 1 && a.cluster) {
    fprintf(stderr, "shoal: status: servers by name (%s) or --cluster_spec, not both\n", argv[1]);
    return EXIT_USAGE;
  }
  tls_flags_use(&tls);
  a.targets = (const char *const *)(argv + 1);
  a.n_targets = (size_t)(argc - 1);
  a.watch = every > 0;
  if (every) return watch(&a, every);
  struct text out = {0};
  shoal_status s = show(&a, &out);
  fputs(text_cstr(&out), stdout);
  text_release(&out);
  return s ? report(s) : EXIT_OK;
}

/* The command `shoal`: one file a subcommand, one row here. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shoal/shoal.h>

struct subcommand {
  const char *name, *summary;
  int (*run)(int argc, char **argv); /* argv[0] is the subcommand's name; the result is the exit code */
  bool prints;                       /* is what it prints all that it is for? */
};

/* The whole command: what start.c calls. */
SHOAL_API int shoal_main(int argc, char **argv);

int server_main(int argc, char **argv);
int status_main(int argc, char **argv);
int stop_main(int argc, char **argv);
int devices_main(int argc, char **argv);
int launch_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int tfrecord_main(int argc, char **argv);
int saved_model_main(int argc, char **argv);
int serve_main(int argc, char **argv);
int word2vec_main(int argc, char **argv);

/* Runs the action that argv[1] names, with what stands behind it; help on --help, or when there is none such.
 * takes: what the help shows behind ACTION. */
int actions_main(const struct subcommand *actions, size_t n, const char *takes, int argc, char **argv);

enum exit_code { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_RUN = 127 /* as a shell has it */ };

struct flag_values {
  const char *at[64];
  int n;
};

/* One flag of a subcommand: "--name=value", "--name value", or "--name" for switches. */
struct flag {
  const char *name;  /* without the dashes */
  const char *value; /* what stands for the value in the help; NULL: a switch */
  const char *help;
  const char **text; /* where the value goes: one of these */
  int64_t *number;
  bool *on;
  int64_t min, max;           /* of a number: what is outside is refused; both 0: what is negative */
  const char *absent;         /* the value of "--name" alone, where one may leave it out */
  struct flag_values *values; /* instead of text: all values of a flag that may be given several times */
  bool may_be_empty;          /* "--ps_hosts=": there are none */
};
/* Reads the flags; what is no flag stays in argv, from 1 on, *argc counting it. False after printing the help (code
 * EXIT_OK) or an error (EXIT_USAGE). */
bool flags_parse(const char *usage, const struct flag *flags, int n_flags, int *argc, char **argv, int *code);
/* Three rows for a subcommand that connects to servers, and what to do with their values: a struct tls_flags. */
struct tls_flags {
  const char *cert, *key, *ca;
};
#define TLS_FLAGS(f)                                                                                              \
  {"tls_cert", "FILE", "this side's certificate (PEM; default: $SHOAL_TLS_CERT)", .text = &(f).cert},             \
      {"tls_key", "FILE", "its private key (PEM; default: $SHOAL_TLS_KEY)", .text = &(f).key}, {                  \
    "tls_ca", "FILE", "the authority of the servers' certificates (PEM; default: $SHOAL_TLS_CA)", .text = &(f).ca \
  }
void tls_flags_use(const struct tls_flags *f);
/* Prints an error to standard error and frees it; returns EXIT_USAGE for what makes no sense, SHOAL_EXIT_RETRY for
 * what a signal has ended, else EXIT_FAILED. */
int report(shoal_status s);

#endif

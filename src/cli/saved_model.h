/* What the actions of `shoal saved_model` share. */
#ifndef CLI_SAVED_MODEL_H
#define CLI_SAVED_MODEL_H

int saved_model_show_main(int argc, char **argv);
/* Says what was wrong; the exit code. */
int saved_model_usage(const char *what, const char *usage);

#endif

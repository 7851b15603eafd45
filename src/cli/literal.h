/* Values as Python writes them, on a command line: what saved_model_cli's --input_exprs and --input_examples are. */
#ifndef CLI_LITERAL_H
#define CLI_LITERAL_H

#include "base/status.h"
#include "base/text.h"

/* Appends the value at *at as JSON, and goes behind it and what space follows. Numbers, strings, bytes, True, False,
 * lists, tuples, dictionaries; np.array, np.zeros, np.ones, np.full and np.arange of such, whose dtype is passed over:
 * what a tensor's is its signature says. Nothing is computed beyond that. */
shoal_status literal_to_json(const char **at, struct text *out);

#endif

/* Elements in rows: what datasets share that put several into one. */
#ifndef DATA_DATASET_ROWS_H
#define DATA_DATASET_ROWS_H

#include "data/dataset.h"

/* Up to count elements of the first input: component c of element r is (*rows)[r * n + c], n the input's components. */
shoal_status rows_gather(struct data_iterator *it, struct data_ctx *ctx, int64_t count, struct tensor **rows,
                         int64_t *n_rows);
void rows_drop(struct tensor *rows, int64_t n_rows, int n);
/* Component c of all rows as one tensor. */
shoal_status rows_stack(const struct tensor *rows, int64_t n_rows, int n, int c, struct tensor *out);
/* The shape of a batch of rows (-1: any number) of that shape. */
struct shape batch_shape(const struct shape *s, int64_t rows);

/* A dataset of given elements, which grows until it is handed out: components are added one after another, each taken
 * over. */
struct dataset *elements_new(int n, const shoal_dtype *types, const struct shape *shapes);
void elements_add(struct dataset *d, struct tensor *component);
int64_t elements_count(const struct dataset *d);

#endif

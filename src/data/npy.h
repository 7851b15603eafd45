/* NumPy's files of one array (.npy), and its archives of several (.npz). */
#ifndef DATA_NPY_H
#define DATA_NPY_H

#include "tensor/tensor.h"

/* Numbers, booleans and strings of bytes or characters (which become UTF-8), the latter also as Python's objects;
 * arrays in Fortran's order are turned. Of what Python would have to unpickle, all but strings is refused. */
shoal_status npy_read(const char *path, struct tensor *out);
shoal_status npy_decode(const char *data, size_t size, struct tensor *out);
/* An array of an archive by its name; NULL: the only one there is. */
shoal_status npz_read(const char *path, const char *name, struct tensor *out);
/* As saved_model_cli writes it: arrays of strings become Python's objects, which np.load reads with allow_pickle=True,
 * and bfloat16 two opaque bytes. */
shoal_status npy_write(const char *path, const struct tensor *t);

#endif

/* NumPy's files of one array (.npy), and its archives of several (.npz). */
#ifndef DATA_NPY_H
#define DATA_NPY_H

#include "tensor/tensor.h"

/* Numbers, booleans and strings of bytes or characters (which become UTF-8); arrays in Fortran's order are turned. What
 * Python would have to unpickle is refused. */
shoal_status npy_read(const char *path, struct tensor *out);
shoal_status npy_decode(const char *data, size_t size, struct tensor *out);
/* An array of an archive by its name; NULL: the only one there is. */
shoal_status npz_read(const char *path, const char *name, struct tensor *out);
/* Strings become fixed ones, of the longest one's size; bfloat16 is written as two opaque bytes, as NumPy does. */
shoal_status npy_write(const char *path, const struct tensor *t);

#endif

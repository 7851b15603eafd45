/* Arrays of Python's objects in NumPy's files: strings alone (npy.h). */
#ifndef DATA_NPY_OBJECTS_H
#define DATA_NPY_OBJECTS_H

#include "base/file.h"
#include "tensor/tensor.h"

/* What follows the header of an array of this shape: bytes, and characters as UTF-8. INVALID_ARGUMENT or UNIMPLEMENTED
 * for anything else that Python would make of it; DATA_LOSS where it is cut short. */
shoal_status npy_objects_read(const char *data, size_t size, const struct shape *shape, struct tensor *out);
/* The same of a tensor of strings, each as bytes. */
shoal_status npy_objects_write(struct file_writer *w, const struct tensor *t);

#endif

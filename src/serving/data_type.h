/* Element types by the names that TensorFlow's DataType has in JSON and in what saved_model_cli shows. */
#ifndef SERVING_DATA_TYPE_H
#define SERVING_DATA_TYPE_H

#include "base/text.h"

/* "DT_FLOAT"; "DT_INVALID" for 0, what a signature's value has that is no tensor. A number that is no type of ours
 * stays one: readers of protocol buffers take it. */
void data_type_print(int t, struct text *out);

#endif

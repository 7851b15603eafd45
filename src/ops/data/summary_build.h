/* Summary messages, written field by field in the order TensorFlow's serializer has, so that equal values give equal
 * bytes. Each call appends one or more Summary.Value to a Summary. */
#ifndef OPS_DATA_SUMMARY_BUILD_H
#define OPS_DATA_SUMMARY_BUILD_H

#include "base/text.h"
#include "tensor/tensor.h"

void summary_add_scalar(struct text *out, const struct str *tag, float value);
/* values of any real type or bool; where names the op in errors. */
shoal_status summary_add_histogram(struct text *out, const struct str *tag, const struct tensor *values,
                                   const char *where);
/* bad_color stands where a pixel is not finite. */
shoal_status summary_add_images(struct text *out, const struct str *tag, const struct tensor *images,
                                int64_t max_images, const struct tensor *bad_color);
shoal_status summary_add_audio(struct text *out, const struct str *tag, const struct tensor *audio, int64_t max_outputs,
                               float sample_rate);
/* tag and metadata (a serialized SummaryMetadata) may be NULL; so may node_name. */
shoal_status summary_add_tensor(struct text *out, const struct str *tag, const struct tensor *t, const char *node_name,
                                const struct str *metadata);

#endif

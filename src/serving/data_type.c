/* See data_type.h. */
#include "serving/data_type.h"

#include "graph/attr.h"
#include "tensor/dtype.h"

void data_type_print(int t, struct text *out) {
  struct attr type = {.kind = ATTR_TYPE, .type = (shoal_dtype)t};
  if (!t) text_adds(out, "DT_INVALID");
  else if (dtype_valid((int)dtype_base(t))) attr_print(&type, out);
  else text_addf(out, "%d", t);
}

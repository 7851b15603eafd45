/* The cards' kernels: fatbins that the build embedded (cuda_fatbins[], one for each .cu file), and their functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_fatbins.h"

static int count(void) {
  int n = 0;
  while (cuda_fatbins[n].name) n++;
  return n;
}

bool cuda_has_kernels(void) { return cuda_fatbins[0].name != NULL; }

shoal_status cuda_modules_load(struct cuda_device *c) {
  c->modules = mem_zalloc((size_t)count() + 1, sizeof(CUmodule));
  for (int i = 0; cuda_fatbins[i].name; i++)
    TRY(cuda_status(c->api->module_load(&c->modules[i], cuda_fatbins[i].image), "kernels for this card"));
  return NULL;
}

void cuda_modules_free(struct cuda_device *c) {
  for (CUmodule *m = c->modules; m && *m; m++) c->api->module_free(*m);
  free(c->modules);
}

static const char *type_name(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT32: return "f32";
    case SHOAL_FLOAT64: return "f64";
    case SHOAL_FLOAT16: return "f16";
    case SHOAL_BFLOAT16: return "bf16";
    case SHOAL_INT8: return "i8";
    case SHOAL_UINT8: return "u8";
    case SHOAL_INT32: return "i32";
    case SHOAL_INT64: return "i64";
    case SHOAL_BOOL: return "bool";
    default: return "other";
  }
}

shoal_status cuda_function(struct cuda_device *c, const char *file, const char *name, shoal_dtype a, shoal_dtype b,
                           CUfunction *out) {
  char full[128];
  int i = 0;
  snprintf(full, sizeof full, "%s%s%s%s%s", name, a ? "_" : "", a ? type_name(a) : "", b ? "_" : "",
           b ? type_name(b) : "");
  while (cuda_fatbins[i].name && strcmp(cuda_fatbins[i].name, file) != 0) i++;
  TRY(cuda_open(c));
  cuda_enter(c->context);
  if (cuda_fatbins[i].name && !c->api->module_function(out, c->modules[i], full)) return NULL;
  return NOT_FOUND("There is no kernel %s of %s for the card", full, file);
}

shoal_status cuda_functions_by_size(struct cuda_device *c, const char *file, const char *name, int n, CUfunction *out) {
  char full[32];
  for (int i = 0; i < n; i++) {
    snprintf(full, sizeof full, "%s_%d", name, 1 << i);
    TRY(cuda_function(c, file, full, 0, 0, &out[i]));
  }
  return NULL;
}

CUfunction cuda_for_size(const CUfunction *of, int n, size_t size) {
  int i = 0;
  while (i < n - 1 && size > (size_t)1 << i) i++;
  return of[i];
}

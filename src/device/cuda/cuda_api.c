/* Opening CUDA's driver. */
#include "device/cuda/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/log.h"

static struct {
  pthread_once_t once;
  struct cuda_api api;
  int cards;
  const char *why;
} driver = {.once = PTHREAD_ONCE_INIT};

const char *cuda_symbols(void *library, const struct cuda_symbol *symbols) {
  for (; symbols->name; symbols++)
    if (!(*symbols->to = dlsym(library, symbols->name))) return symbols->name;
  return NULL;
}

/* The library stays open: cards outlive whoever asked first. */
static void open_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    driver.why = "there is no NVIDIA driver (libcuda.so.1) on this machine";
    return;
  }
#define ROW(name, symbol, args) {symbol, (void **)(void *)&driver.api.name},
  const struct cuda_symbol symbols[] = {CUDA_FUNCTIONS(ROW){0}};
#undef ROW
  const char *missing = cuda_symbols(library, symbols);
  if (missing) {
    LOGW("the NVIDIA driver is too old: it has no %s", missing);
    driver.why = "the NVIDIA driver is too old";
  } else if (driver.api.init(0) || driver.api.device_count(&driver.cards)) {
    driver.why = "the NVIDIA driver finds no card";
  } else if (!driver.cards) {
    driver.why = "the NVIDIA driver shows no card; CUDA_VISIBLE_DEVICES may hide them";
  }
}

const struct cuda_api *cuda_api(const char **why) {
  pthread_once(&driver.once, open_driver);
  if (why) *why = driver.why;
  return driver.why ? NULL : &driver.api;
}

int cuda_card_count(void) { return cuda_api(NULL) ? driver.cards : 0; }

void cuda_enter(CUcontext context) {
  static _Thread_local CUcontext current;
  if (current != context) driver.api.context_set(context);
  current = context;
}

shoal_status cuda_status(int error, const char *what) {
  const char *name = "an unknown error", *text = "";
  if (!error) return NULL;
  driver.api.error_name(error, &name);
  driver.api.error_text(error, &text);
  return STATUS(error == CU_OUT_OF_MEMORY ? SHOAL_RESOURCE_EXHAUSTED : SHOAL_INTERNAL, "%s: %s: %s", what, name, text);
}

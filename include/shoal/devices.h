/* The devices of a session, as TensorFlow's list_devices has them. */
#ifndef SHOAL_DEVICES_H
#define SHOAL_DEVICES_H

#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_device {
  const char *name, *type; /* "/job:worker/replica:0/task:0/device:CPU:0", "CPU" */
  int64_t memory;          /* bytes that it may use */
  uint64_t incarnation;    /* another each time that its server starts */
} shoal_device;

/* All of them, in one block for the caller to free with free(). shoal_session_list_devices gives their names alone. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_devices(shoal_session *s, shoal_device **list, int *n);

#ifdef __cplusplus
}
#endif
#endif

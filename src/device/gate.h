/* The gate of a device: steps pass it, and one that is alone inside may shut it for a moment.
 *
 * What a step gives to a device is sometimes kept instead of done (device_ops.capture_begin); nobody else's work may
 * come between then. Steps are counted in and out; one that is alone shuts the gate, others wait in front of it,
 * holding nothing, until it is open again: for as long as a step takes to be queued. */
#ifndef DEVICE_GATE_H
#define DEVICE_GATE_H

#include <stdbool.h>

struct device_gate;

struct device_gate *device_gate_new(void);
void device_gate_free(struct device_gate *g);
/* NULL is a gate that is always open, and cannot be shut. */
void device_gate_enter(struct device_gate *g);
void device_gate_leave(struct device_gate *g);
/* For one who is inside. False: there are others. */
bool device_gate_shut(struct device_gate *g);
void device_gate_open(struct device_gate *g);

#endif

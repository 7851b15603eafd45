/* Collectives among devices of one process whose memory is their own. */
#ifndef COLLECTIVE_DEVICE_EXCHANGE_H
#define COLLECTIVE_DEVICE_EXCHANGE_H

#include "collective/meeting.h"

/* exchange_run's part (exchange.h) for members that are on_device: all are of one type. Results are there for whatever
 * each device does from now on; the host waits for nothing. */
shoal_status device_exchange_run(struct collective_member *const *members, int n, struct tensor *results);

#endif

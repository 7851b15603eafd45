/* All of Shoal's public API. */
#ifndef SHOAL_SHOAL_H
#define SHOAL_SHOAL_H

#include <shoal/accumulate.h>
#include <shoal/averages.h>
#include <shoal/cluster.h>
#include <shoal/control.h>
#include <shoal/coordinator.h>
#include <shoal/data.h>
#include <shoal/graph.h>
#include <shoal/hooks.h>
#include <shoal/input.h>
#include <shoal/layers.h>
#include <shoal/ops.h>
#include <shoal/pipeline.h>
#include <shoal/replicate.h>
#include <shoal/saver.h>
#include <shoal/schedules.h>
#include <shoal/session.h>
#include <shoal/status.h>
#include <shoal/step.h>
#include <shoal/supervisor.h>
#include <shoal/sync.h>
#include <shoal/tensor.h>
#include <shoal/train.h>
#include <shoal/train_session.h>

#include <shoal/places.h> /* after all others: it makes macros of what they declare */

#define SHOAL_VERSION "0.1.0"

#endif

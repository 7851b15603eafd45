/* All of Shoal's public API.
 *
 * Who frees what, in all of it:
 * - What a function makes (_new, _open, _start, _from) and gives in its result or an out-parameter is the caller's, who
 *   ends it with the function of the same noun in _free, _close, _stop or _unref. That accepts NULL, waits for what it
 *   has running, and frees also when it returns an error.
 * - A `char *` that is not const is the caller's, to be freed with free(); shoal_bytes with shoal_bytes_free; a
 *   shoal_status with shoal_status_free, or it is handed on; a shoal_tensor * that is stored through a pointer is a
 *   reference of the caller's, for shoal_tensor_unref. What is kept instead by what it was asked of says "keeps it".
 * - A const pointer that is returned, and what belongs to a graph (ops, outputs), stays the library's. It lives as
 *   long as what it was asked of unless a line says for how long.
 * - What is given to a function stays the caller's, and may be freed or changed once it returned: it copies, or takes a
 *   reference of its own. Where something is taken over instead, or must outlive the call, the header says so there.
 * - A callback's `arg` is the program's own; it must live as long as the callback may be called. */
#ifndef SHOAL_SHOAL_H
#define SHOAL_SHOAL_H

#include <shoal/accumulate.h>
#include <shoal/async.h>
#include <shoal/averages.h>
#include <shoal/cluster.h>
#include <shoal/columns.h>
#include <shoal/control.h>
#include <shoal/coordination.h>
#include <shoal/coordinator.h>
#include <shoal/data.h>
#include <shoal/dataset.h>
#include <shoal/devices.h>
#include <shoal/estimator.h>
#include <shoal/function.h>
#include <shoal/graph.h>
#include <shoal/hooks.h>
#include <shoal/input.h>
#include <shoal/layers.h>
#include <shoal/log.h>
#include <shoal/metrics.h>
#include <shoal/op.h>
#include <shoal/ops.h>
#include <shoal/pipeline.h>
#include <shoal/replicate.h>
#include <shoal/saved_model.h>
#include <shoal/saver.h>
#include <shoal/schedules.h>
#include <shoal/session.h>
#include <shoal/status.h>
#include <shoal/step.h>
#include <shoal/strategy.h>
#include <shoal/supervisor.h>
#include <shoal/sync.h>
#include <shoal/tensor.h>
#include <shoal/train.h>
#include <shoal/train_session.h>
#include <shoal/version.h>
#include <shoal/work.h>

#include <shoal/places.h> /* after all others: it makes macros of what they declare */

#endif

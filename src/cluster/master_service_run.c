/* MasterService's calls that run steps: RunStep, callables, partial runs.
 *
 * A request's names are made into C strings in one block (the message has no terminators); its tensors are decoded into
 * tensors of their own; the answer refers to the fetched tensors' buffers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/ref.h"
#include "cluster/master_service.h"
#include "cluster/request_parts.h"
#include "cluster/transfer.h"
#include "proto/config.wire.h"
#include "proto/master.wire.h"
#include "rpc/message.h"
#include "tensor/tensor_proto.h"

struct run_call {
  struct rpc_call *rpc;
  struct master *master;
  struct master_session *session;
  struct compiled *compiled;
  pthread_mutex_t lock;
  struct step_run *run; /* lock, until the call is answered */
  atomic_bool gone;     /* the client is; set with the lock held */
  struct compile_client client;
  struct partial *steps; /* partial runs: whose call it is; a reference */
  struct text names;     /* all strings, each with its NUL; offsets below are into it */
  VEC(size_t) feeds;
  VEC(size_t) fetches;
  VEC(size_t) targets;
  VEC(struct wire) values; /* the feeds' TensorProtos */
  size_t handle, partial;  /* offsets; SIZE_MAX: none */
  struct step_signature sig;
  struct run_options options;
  bool in_body;
  bool is_callable; /* the answer is a RunCallableResponse */
  bool counted;     /* one of the steps under way */
  int64_t request_id, callable;
  struct ref refs; /* the answer's, and the handler's */
};

static void call_unref(struct run_call *c) {
  if (!ref_drop(&c->refs)) return;
  step_run_unref(c->run);
  if (c->steps) partial_unref(c->steps);
  compiled_unref(c->compiled);
  master_session_unref(c->session);
  text_release(&c->names);
  block_vec_release(&c->feeds);
  block_vec_release(&c->fetches);
  block_vec_release(&c->targets);
  block_vec_release(&c->values);
  block_free((void *)(uintptr_t)c->sig.feeds);
  pthread_mutex_destroy(&c->lock);
  block_free(c);
}

static struct run_call *call_new(struct master *m, struct rpc_call *rpc) {
  struct run_call *c = block_zalloc(sizeof *c);
  c->names.in_block = true;
  pthread_mutex_init(&c->lock, NULL);
  c->rpc = rpc;
  c->client = (struct compile_client){&c->gone, rpc};
  c->master = m;
  c->handle = c->partial = SIZE_MAX;
  ref_init(&c->refs, 2);
  return c;
}

static size_t keep_name(struct run_call *c, const struct wire_field *f) {
  size_t at = c->names.n;
  text_add(&c->names, (const char *)f->data, f->size);
  text_add(&c->names, "", 1);
  return at;
}

static const char *name_at(const struct run_call *c, size_t offset) {
  return offset == SIZE_MAX ? "" : c->names.at + offset;
}

/* The signature's three lists in one array. */
static void make_signature(struct run_call *c) {
  size_t n = c->feeds.n + c->fetches.n + c->targets.n;
  const char **all = block_alloc((n + 1) * sizeof *all), **at = all;
  c->sig.feeds = at;
  for (size_t i = 0; i < c->feeds.n; i++) *at++ = name_at(c, c->feeds.at[i]);
  c->sig.fetches = at;
  for (size_t i = 0; i < c->fetches.n; i++) *at++ = name_at(c, c->fetches.at[i]);
  c->sig.targets = at;
  for (size_t i = 0; i < c->targets.n; i++) *at++ = name_at(c, c->targets.at[i]);
  c->sig.n_feeds = (int)c->feeds.n;
  c->sig.n_fetches = (int)c->fetches.n;
  c->sig.n_targets = (int)c->targets.n;
}

static shoal_status read_run_options(struct run_options *o, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == RunOptions_debug_options) TRY(debug_options_check(wire_inside(&f)));
    if (f.tag == RunOptions_trace_level) o->trace = f.value != 0;
    if (f.tag == RunOptions_timeout_in_ms) o->timeout_ms = (int64_t)f.value;
    if (f.tag == RunOptions_output_partition_graphs) o->partition_graphs = f.value != 0;
    struct wire more = wire_inside(&f);
    for (struct wire_field k; f.tag == RunOptions_experimental && wire_next(&more, &k) == WIRE_FIELD;)
      if (k.tag == RunOptions_Experimental_collective_graph_key) o->collective_key = (int64_t)k.value;
  }
  return NULL;
}

static void read_feed(struct run_call *c, struct wire w) {
  size_t name = SIZE_MAX;
  struct wire value = wire_from("", 0);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == NamedTensorProto_name) name = keep_name(c, &f);
    if (f.tag == NamedTensorProto_tensor) value = wire_inside(&f);
  }
  block_vec_push(&c->feeds, name);
  block_vec_push(&c->values, value);
}

static shoal_status read_step(struct run_call *c) {
  struct wire w;
  TRY(request_read(c->rpc, &w));
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.type == WIRE_BYTES) {
      if (f.tag == RunStepRequest_session_handle) c->handle = keep_name(c, &f);
      if (f.tag == RunStepRequest_feed) read_feed(c, wire_inside(&f));
      if (f.tag == RunStepRequest_fetch) block_vec_push(&c->fetches, keep_name(c, &f));
      if (f.tag == RunStepRequest_target) block_vec_push(&c->targets, keep_name(c, &f));
      if (f.tag == RunStepRequest_options) TRY(read_run_options(&c->options, wire_inside(&f)));
      if (f.tag == RunStepRequest_partial_run_handle)
        c->partial = f.size ? keep_name(c, &f) : SIZE_MAX; /* an empty one is none */
    } else if (f.type == WIRE_VARINT) {
      if (f.tag == RunStepRequest_store_errors_in_response_body) c->in_body = f.value != 0;
      if (f.tag == RunStepRequest_request_id) c->request_id = (int64_t)f.value;
    }
  }
  make_signature(c);
  return step == WIRE_BROKEN ? INVALID("RunStepRequest does not parse as a protocol buffer") : NULL;
}

static shoal_status read_callable_run(struct run_call *c) {
  struct wire w;
  TRY(request_read(c->rpc, &w));
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == RunCallableRequest_session_handle) c->handle = keep_name(c, &f);
    if (f.tag == RunCallableRequest_handle) c->callable = (int64_t)f.value;
    if (f.tag == RunCallableRequest_feed) block_vec_push(&c->values, wire_inside(&f));
    if (f.tag == RunCallableRequest_request_id) c->request_id = (int64_t)f.value;
  }
  return step == WIRE_BROKEN ? INVALID("RunCallableRequest does not parse as a protocol buffer") : NULL;
}

static shoal_status read_callable_options(struct run_call *c, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == CallableOptions_feed) block_vec_push(&c->feeds, keep_name(c, &f));
    if (f.tag == CallableOptions_fetch) block_vec_push(&c->fetches, keep_name(c, &f));
    if (f.tag == CallableOptions_target) block_vec_push(&c->targets, keep_name(c, &f));
    if (f.tag == CallableOptions_tensor_connection)
      return UNIMPLEMENTED("CallableOptions.tensor_connection: feeding a tensor with another is not implemented");
    if (f.tag == CallableOptions_feed_devices || f.tag == CallableOptions_fetch_devices)
      return UNIMPLEMENTED(
          "CallableOptions::feed_devices and CallableOptions::fetch_devices to configure feeding/fetching tensors "
          "to/from device memory is not yet supported when using a remote session.");
    if (f.tag == CallableOptions_run_options) TRY(read_run_options(&c->options, wire_inside(&f)));
  }
  return NULL;
}

static shoal_status read_make_callable(struct run_call *c) {
  struct wire w;
  TRY(request_read(c->rpc, &w));
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == MakeCallableRequest_session_handle) c->handle = keep_name(c, &f);
    if (f.tag == MakeCallableRequest_options) {
      TRY(request_parts(c->rpc, f.data, f.size));
      TRY(read_callable_options(c, wire_inside(&f)));
    }
    if (f.tag == MakeCallableRequest_request_id) c->request_id = (int64_t)f.value;
  }
  make_signature(c);
  return step == WIRE_BROKEN ? INVALID("the request does not parse as a protocol buffer") : NULL;
}

static shoal_status read_partial_setup(struct run_call *c) {
  struct wire w;
  TRY(request_read(c->rpc, &w));
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == PartialRunSetupRequest_session_handle) c->handle = keep_name(c, &f);
    if (f.tag == PartialRunSetupRequest_feed) block_vec_push(&c->feeds, keep_name(c, &f));
    if (f.tag == PartialRunSetupRequest_fetch) block_vec_push(&c->fetches, keep_name(c, &f));
    if (f.tag == PartialRunSetupRequest_target) block_vec_push(&c->targets, keep_name(c, &f));
    if (f.tag == PartialRunSetupRequest_request_id) c->request_id = (int64_t)f.value;
  }
  make_signature(c);
  return step == WIRE_BROKEN ? INVALID("the request does not parse as a protocol buffer") : NULL;
}

/* ---- answers ---- */

/* Before the answer: whoever has it may begin another, and is not to be refused for the sake of this one. */
static void uncount(struct run_call *c) {
  if (c->counted) account_give(c->session->account, LIMIT_STEPS, 1);
  c->counted = false;
}

static void fail(struct run_call *c, shoal_status s) {
  uncount(c);
  if (!c->in_body) {
    rpc_call_fail(c->rpc, s);
  } else {
    struct message m;
    message_init(&m);
    message_int(&m, RunStepResponse_status_code, (uint64_t)shoal_status_code(s));
    message_text(&m, RunStepResponse_status_error_message, shoal_status_message(s));
    shoal_status_free(s);
    rpc_call_reply(c->rpc, message_finish(&m));
  }
  call_unref(c);
}

static void reply(void *arg, shoal_status s, const struct tensor *values, const struct text *metadata) {
  struct run_call *c = arg;
  struct message m;
  message_init(&m);
  size_t n = c->partial != SIZE_MAX ? c->fetches.n : s ? 0 : c->compiled->fetches.n;
  for (size_t i = 0; i < n && !s; i++) {
    if (c->is_callable) s = transfer_put(&m, RunCallableResponse_fetch, &values[i]);
    else
      s = transfer_put_named(&m, RunStepResponse_tensor,
                             c->partial != SIZE_MAX ? c->sig.fetches[i] : c->compiled->fetches.at[i], &values[i]);
  }
  if (s) {
    message_release(&m);
    fail(c, s);
    return;
  }
  message_bytes(&m, c->is_callable ? (uint32_t)RunCallableResponse_metadata : RunStepResponse_metadata, metadata->at,
                metadata->n);
  uncount(c);
  rpc_call_reply(c->rpc, message_finish(&m));
  call_unref(c);
}

/* ---- running ---- */

/* Perhaps before the step has begun: its signature is being compiled. */
static void cancelled(void *arg) {
  struct run_call *c = arg;
  pthread_mutex_lock(&c->lock);
  atomic_store(&c->gone, true);
  struct step_run *run = c->run; /* the call has a reference, and is not answered before this returns */
  pthread_mutex_unlock(&c->lock);
  if (run) step_run_cancel(run, STATUS(SHOAL_CANCELLED, "the client has gone"));
}

/* A call of a partial run. */
static void call_given_up(void *arg) { master_partial_cancel(((struct run_call *)arg)->steps); }

static void args_free(struct run_call *c, struct tensor *args) {
  for (size_t i = 0; i < c->values.n; i++)
    if (tensor_valid(&args[i])) tensor_release(&args[i]);
  block_free(args);
}

static shoal_status decode_feeds(struct run_call *c, struct tensor **out) {
  struct tensor *args = block_zalloc((c->values.n + 1) * sizeof *args);
  size_t budget = TENSOR_PROTO_MAX_REPEAT; /* of all together */
  shoal_status s = NULL;
  for (size_t i = 0; i < c->values.n && !s; i++)
    s = tensor_proto_decode_within(c->values.at[i].at, wire_left(&c->values.at[i]), &budget, &args[i]);
  if (s) args_free(c, args);
  else *out = args;
  return s;
}

static shoal_status run(struct run_call *c) {
  struct tensor *args = NULL;
  TRY(account_take(c->session->account, LIMIT_STEPS, 1));
  c->counted = true;
  TRY(decode_feeds(c, &args));
  pthread_mutex_lock(&c->lock);
  if (!atomic_load(&c->gone))
    c->run = step_run_new(c->session, c->compiled, &c->options, rpc_call_deadline(c->rpc), args, reply, c);
  pthread_mutex_unlock(&c->lock);
  if (!c->run) {
    args_free(c, args);
    return STATUS(SHOAL_CANCELLED, "the client has gone");
  }
  step_run_begin(c->run);
  return NULL;
}

static shoal_status find(struct run_call *c, const char *method) {
  TRY(request_ids_track(c->master->server.ids, method, c->request_id, 0));
  TRY(master_find_session(c->master, name_at(c, c->handle), &c->session));
  atomic_store_explicit(&c->session->connection, rpc_call_connection(c->rpc), memory_order_relaxed);
  return NULL;
}

static shoal_status start_partial(struct run_call *c) {
  struct tensor *feeds = NULL;
  TRY(decode_feeds(c, &feeds));
  c->steps = master_partial_find(c->session, name_at(c, c->partial));
  if (!c->steps) {
    args_free(c, feeds);
    return INVALID("Must run PartialRunSetup before performing partial runs");
  }
  rpc_call_on_cancel(c->rpc, call_given_up, c);
  master_partial_run(c->steps, &c->sig, feeds, reply, c);
  block_free(feeds);
  return NULL;
}

/* On the request's own thread when the signature is known. */
static void compiled_to_run(void *arg, shoal_status s, struct compiled *compiled) {
  struct run_call *c = arg;
  c->compiled = compiled;
  if (!s) s = run(c);
  if (s) fail(c, s);
}

void master_service_run_step(struct master *m, struct rpc_call *rpc) {
  struct run_call *c = call_new(m, rpc);
  shoal_status s = read_step(c);
  if (!s) s = find(c, "RunStep (Master)");
  if (!s && c->partial != SIZE_MAX) {
    s = start_partial(c);
  } else if (!s) {
    rpc_call_on_cancel(rpc, cancelled, c); /* never before this handler returns */
    master_compile(c->session, &c->sig, c->options.partition_graphs ? COMPILE_GRAPHS : 0, &c->client, compiled_to_run,
                   c);
  }
  if (s) fail(c, s);
  call_unref(c);
}

void master_service_run_callable(struct master *m, struct rpc_call *rpc) {
  struct run_call *c = call_new(m, rpc);
  c->is_callable = true;
  shoal_status s = read_callable_run(c);
  if (!s) s = find(c, "RunCallable (Master)");
  if (!s) {
    c->compiled = (struct compiled *)signatures_held(&c->session->compiled, c->callable, &c->options);
    if (!c->compiled) s = INVALID("No such callable handle: %" PRId64, c->callable);
    else if (c->compiled->feeds.n != c->values.n)
      s = INVALID("Expected %zu feed tensors, but got %zu", c->compiled->feeds.n, c->values.n);
  }
  if (!s) rpc_call_on_cancel(rpc, cancelled, c);
  if (!s) s = run(c);
  if (s) fail(c, s);
  call_unref(c);
}

static void set_up(void *arg, shoal_status s, const char *handle) {
  struct run_call *c = arg;
  struct text t = {0};
  if (s) {
    fail(c, s);
    return;
  }
  put_PartialRunSetupResponse_partial_run_handle(&t, handle);
  rpc_call_reply(c->rpc, message_from_text(&t));
  call_unref(c);
}

void master_service_partial_run_setup(struct master *m, struct rpc_call *rpc) {
  struct run_call *c = call_new(m, rpc);
  shoal_status s = read_partial_setup(c);
  if (!s) s = find(c, "PartialRunSetup (Master)");
  if (s) {
    fail(c, s);
  } else {
    rpc_call_on_cancel(rpc, cancelled, c);
    master_partial_setup(c->session, &c->sig, &c->client, set_up, c);
  }
  call_unref(c);
}

static void callable_made(void *arg, shoal_status s, struct compiled *compiled) {
  struct run_call *c = arg;
  if (!s && atomic_load(&c->gone)) { /* nobody would know its handle */
    compiled_unref(compiled);
    s = STATUS(SHOAL_CANCELLED, "the client has gone");
  }
  if (s) {
    account_give(c->session->account, LIMIT_CALLABLES, 1);
    fail(c, s);
    return;
  }
  atomic_fetch_add(&c->session->n_callables, 1);
  uint64_t handle = (uint64_t)signatures_hold(&c->session->compiled, &compiled->head, &c->options, sizeof c->options);
  struct text t = {0};
  if (handle) put_MakeCallableResponse_handle(&t, handle);
  rpc_call_reply(c->rpc, message_from_text(&t));
  call_unref(c);
}

void master_service_make_callable(struct master *m, struct rpc_call *rpc) {
  struct run_call *c = call_new(m, rpc);
  shoal_status s = read_make_callable(c);
  if (!s) s = find(c, "MakeCallable (Master)");
  if (!s) s = account_take(c->session->account, LIMIT_CALLABLES, 1);
  if (s) {
    fail(c, s);
  } else {
    rpc_call_on_cancel(rpc, cancelled, c);
    master_compile(c->session, &c->sig, c->options.partition_graphs ? COMPILE_GRAPHS : 0, &c->client, callable_made, c);
  }
  call_unref(c);
}

void master_service_release_callable(struct master *m, struct rpc_call *rpc) {
  struct run_call *c = call_new(m, rpc);
  shoal_status s = read_callable_run(c);
  if (!s) s = find(c, "ReleaseCallable (Master)");
  struct signature *old = s ? NULL : signatures_let_go(&c->session->compiled, c->callable);
  if (old) {
    atomic_fetch_sub(&c->session->n_callables, 1);
    account_give(c->session->account, LIMIT_CALLABLES, 1);
    compiled_unref((struct compiled *)old);
  }
  rpc_call_fail(rpc, s);
  call_unref(c);
  call_unref(c);
}

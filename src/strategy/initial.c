/* Initial values in a cluster: all tasks begin with the chief's, initialised or restored.
 *
 * The chief's variables are as without a strategy. Those of the first replica in any other task are local variables,
 * whose initial value is received from the chief; and one of the chief's own local variables needs, for its initial
 * value, that all of them were sent. So local variables are initialised everywhere in one step that the tasks meet in,
 * and a training session does that in every session it makes, once its chief has a model: at the start, and when a task
 * was lost. Nothing but the chief's own checkpoint is read or written. */
#include <stdlib.h>
#include <string.h>

#include "strategy/tensorflow.h"

/* The type that values of a variable travel as: broadcasts know few. */
static shoal_dtype sent_as(shoal_dtype t) {
  switch (t) {
    case SHOAL_BOOL:
    case SHOAL_FLOAT32:
    case SHOAL_FLOAT16:
    case SHOAL_FLOAT64:
    case SHOAL_INT32:
    case SHOAL_INT64: return t;
    case SHOAL_BFLOAT16: return SHOAL_FLOAT32;
    case SHOAL_INT8:
    case SHOAL_INT16:
    case SHOAL_UINT8:
    case SHOAL_UINT16: return SHOAL_INT32;
    case SHOAL_UINT32: return SHOAL_INT64;
    default: return SHOAL_DT_INVALID;
  }
}

static void set_instance(struct build *b, const struct shoal_strategy *s, int key, const struct shape *shape) {
  build_attr_int(b, "group_size", s->tasks);
  build_attr_int(b, "group_key", GROUP_FIRSTS);
  build_attr_int(b, "instance_key", key);
  build_attr_shape(b, "shape", shape);
}

static shoal_out receive(struct shoal_graph *g, struct shoal_strategy *s, const char *name, shoal_out like) {
  shoal_dtype dtype = out_type(like), wire = sent_as(dtype);
  struct shape shape = out_shape(like);
  if (!graph_error(g) && wire == SHOAL_DT_INVALID)
    graph_fail(g, UNIMPLEMENTED("variable '%s' is of type %s, whose values are not sent between tasks", name,
                                dtype_tf_name(dtype)));
  struct build b = build_begin(g, "CollectiveBcastRecv", NULL);
  build_attr_type(&b, "T", wire);
  set_instance(&b, s, s->next_initial++, &shape);
  shoal_out received = build_end_out(&b);
  agree_on_initial(s, like, received.node);
  return build_cast(g, received, dtype);
}

static shoal_out tensorflow_weight(struct shoal_graph *g, struct shoal_strategy *s, shoal_out like) {
  bool keras = s->tensorflow == SHOAL_TENSORFLOW_KERAS;
  if (keras) keras_before_weights(g, s);
  if (keras) vec_push(&s->weights, ((shoal_var){.value = like}));
  return tensorflow_initial(g, s, like);
}

bool initial_take(struct shoal_graph *g, struct shoal_strategy *s, const char *name, shoal_out initial, int flags,
                  shoal_var *out) {
  if (!strategy_receives(s) || flags & (VARIABLE_LOCAL | VARIABLE_UNSAVED)) return false;
  struct shape shape = out_shape(initial);
  if (!shape_known(&shape)) return false; /* which is refused */
  shoal_out from_chief = initial;         /* what TensorFlow's workers do not send is each task's own */
  graph_push_control(g, NULL, -1);
  if (!strategy_with_tensorflow(s)) from_chief = receive(g, s, name, initial);
  else if (flags & VARIABLE_TRAINABLE) from_chief = tensorflow_weight(g, s, initial);
  graph_pop_control(g);
  *out = variable_make(g, name, from_chief, flags | VARIABLE_LOCAL);
  return true;
}

void initial_give(struct shoal_strategy *s, shoal_var v, int flags) {
  if (!strategy_meets(s) || !v.handle.node || flags & (VARIABLE_LOCAL | VARIABLE_UNSAVED)) return;
  if (!strategy_with_tensorflow(s) || flags & VARIABLE_TRAINABLE) vec_push(&s->unsent, v);
}

shoal_out initial_value(struct shoal_graph *g, const struct shoal_strategy *s, shoal_var v) {
  const struct shoal_node *assign = strategy_receives(s) ? variable_initializer(g, v) : NULL;
  return assign ? assign->in[1] : v.value;
}

static struct shoal_node *send(struct shoal_graph *g, struct shoal_strategy *s, shoal_var v) {
  if (strategy_with_tensorflow(s)) return tensorflow_weight(g, s, v.value).node;
  struct shape shape = out_shape(v.value);
  shoal_dtype wire = sent_as(out_type(v.value));
  if (!graph_error(g) && wire == SHOAL_DT_INVALID)
    graph_fail(g, UNIMPLEMENTED("variable '%s' is of type %s, whose values are not sent between tasks",
                                v.handle.node->name, dtype_tf_name(out_type(v.value))));
  shoal_out value = build_cast(g, v.value, wire);
  struct build b = build_begin(g, "CollectiveBcastSend", NULL);
  build_in(&b, value);
  set_instance(&b, s, s->next_initial++, &shape);
  struct shoal_node *sent = build_end(&b);
  agree_on_initial(s, v.value, sent);
  return sent;
}

void initial_send(struct shoal_graph *g, struct shoal_strategy *s) {
  if (!s->unsent.n) return;
  VEC(struct shoal_node *) sends = {0};
  graph_push_scope(g, "initial_values");
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  for (size_t i = 0; i < s->unsent.n && !graph_error(g); i++) vec_push(&sends, send(g, s, s->unsent.at[i]));
  if (!graph_error(g)) {
    graph_push_control(g, sends.at, (int)sends.n);
    shoal_out yes = build_op1(g, "Identity", build_const_int(g, SHOAL_BOOL, 1));
    graph_pop_control(g);
    variable_make(g, "sent", yes, VARIABLE_LOCAL);
  }
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  vec_clear(&s->unsent);
  vec_release(&sends);
}

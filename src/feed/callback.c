/* Elements that the program makes: numbers, each of which its function turns into an element. So elements that are
 * skipped cost nothing, and there is no state to keep in step with. (tf.data's from_generator has a state, and must
 * make again what it skips.) */
#include "data/callback.h"

#include "feed/element.h"
#include "feed/order.h"
#include "graph/given.h"

static const shoal_out none;

static shoal_status take_element(const char *caller, const shoal_dtype *types, const shoal_dims *shapes, int n,
                                 struct feed_element *e) {
  TRY(given_array(caller, "types", types, n));
  TRY(given_array(caller, "shapes", shapes, n));
  if (n < 1 || n > SHOAL_MAX_COMPONENTS)
    return INVALID("%s: %d components; there are 1 to %d", caller, n, SHOAL_MAX_COMPONENTS);
  for (int i = 0; i < n; i++) {
    struct shape s;
    TRY(element_shape(shapes[i], &s));
    element_add(e, types[i], &s);
  }
  return NULL;
}

shoal_out shoal_dataset_from_callback(shoal_graph *g, shoal_input_fill *fill, void *arg, const shoal_dtype *types,
                                      const shoal_dims *shapes, int n) {
  struct feed_element e = {0};
  shoal_out position;
  GRAPH_GIVEN(g, fill, none);
  GRAPH_TRY(g, take_element(__func__, types, shapes, n, &e), none);
  shoal_out d = shoal_dataset_range(g, 0, INT64_MAX, 1);
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &position, 1);
  struct build b = build_begin(f, "_Callback", NULL);
  build_in(&b, position);
  build_attr_int(&b, "number", callback_add((struct callback){fill, arg}));
  struct shoal_node *call = dataset_end(&b, &e).node;
  for (int i = 0; i < n; i++) shoal_function_output(f, node_out(call, i), NULL);
  const shoal_function *made = shoal_function_end(f);
  if (!made) return none;
  struct build map = dataset_begin(g, "MapDataset", d);
  build_captured(&map, "Targuments", made);
  build_attr(&map, "f", attr_func(shoal_function_name(made)));
  return dataset_end(&map, &e); /* OUT_OF_RANGE is its end: preserve_cardinality is false */
}

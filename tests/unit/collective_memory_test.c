/* A worker's part in groups that share memory: the same group is found again, another one is not taken for it. */
#include <unistd.h>

#include "unit.h"

#include "cluster/collective_memory.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"

/* Of so many devices of one process. */
static struct collective_group *group_of(struct shared_place place, int key, int size) {
  struct text t = {0};
  struct collective_group *g;
  put_CompleteGroupResponse_group_key(&t, key);
  put_CompleteGroupResponse_group_size(&t, size);
  for (int i = 0; i < size; i++) {
    char name[80];
    size_t at = begin_CompleteGroupResponse_device_attributes(&t);
    snprintf(name, sizeof name, "/job:worker/replica:0/task:0/device:CPU:%d", i);
    put_DeviceAttributes_name(&t, name);
    collective_put_claim(&t, -1, &place);
    wire_end(&t, at);
  }
  ASSERT_OK(collective_group_read(t.at, t.n, size, &g));
  text_release(&t);
  return g;
}

/* Whoever chooses what its devices say can make a group that has another's identity: it gets none of its memory. */
static void another_of_the_same_identity(void **state) {
  struct collective_memory *m = collective_memory_new(true);
  struct shared_place place = collective_memory_place(m);
  struct pool *pool = pool_new(1, "test");
  struct collective_group *own = group_of(place, 1, 2), *again = group_of(place, 1, 2), *other = group_of(place, 1, 3);
  assert_true(own->could_share && own->identity == again->identity && own->identity != other->identity);
  other->identity = own->identity;
  struct memory_member *e = collective_memory_join(m, own, 0, NULL, pool);
  assert_non_null(e);
  assert_ptr_equal(collective_memory_join(m, again, 0, NULL, pool), e);
  assert_null(collective_memory_join(m, other, 0, NULL, pool));
  collective_memory_leave(m, e);
  collective_memory_leave(m, e);
  collective_group_unref(own);
  collective_group_unref(again);
  collective_group_unref(other);
  collective_memory_free(m);
  pool_free(pool);
}

RUN_TESTS(cmocka_unit_test(another_of_the_same_identity))

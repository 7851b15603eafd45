/* Structs of options as programs give them, which may have been compiled against another version of the headers.
 *
 * The first field of each is its size (shoal/options.h). What a call works with is a copy, whole and of this version:
 *
 *   shoal_saver_options o = {0};
 *   TRY(OPTIONS_TAKE(shoal_saver_options, no_meta_graph, &o, options));
 *
 * no_meta_graph is the last field that version 0.1 has, and stays written there when others come after it: a struct of
 * size 0 is taken to end with it. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "base/status.h"

/* Lays what is given over *to, which holds defaults; from may be NULL. size: of *to. first: bytes that a struct without
 * a size has; 0: it must have one. After an error about what a newer version added, *to holds what is known. */
shoal_status options_take(void *to, size_t size, size_t first, const void *from, const char *type);

/* Arrays whose elements have no size of their own: the struct that has the array says how large they are (0: as
 * version 0.1 has them, `first` bytes). n of them become elements of this version, and what `to` points to a pointer to
 * them, for the caller to free, also after an error. */
shoal_status options_take_array(void *to, size_t size, size_t first, const void *from, int n, size_t given,
                                const char *type);

#define OPTIONS_TAKE_ARRAY(type, last, to, from, n, given) \
  options_take_array((to), sizeof(type), offsetof(type, last) + sizeof(((type *)0)->last), (from), (n), (given), #type)

#define OPTIONS_TAKE(type, last, to, from) \
  options_take((to), sizeof(type), offsetof(type, last) + sizeof(((type *)0)->last), (from), #type)

#endif

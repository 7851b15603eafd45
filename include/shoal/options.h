/* Options for one call, the rest of them zero: shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .task = 1), &s).
 *
 * The fields stand in the order of the struct, which C++20 wants. In C++ what this and the other macros make lives to
 * the end of the whole expression, in C to the end of the block.
 *
 * Structs of options grow at their end, and their first field, `size`, says how much of them the program was compiled
 * with. SHOAL_OPTIONS sets it. A program made for an older Shoal gives fewer fields: the others have their defaults.
 * One made for a newer Shoal gives more: those are INVALID_ARGUMENT unless zero. 0, as in a struct that was only
 * zero-filled: the fields that version 0.1 has and no later ones.
 *
 * Elements of arrays have no size in them: the struct that has the array says it, in `stage_size` and its like. 0: as
 * version 0.1 has them; a program that uses what came later says sizeof(shoal_pipeline_stage). */
#ifndef SHOAL_OPTIONS_H
#define SHOAL_OPTIONS_H

#include <stddef.h>

#ifdef __cplusplus
/* g++ takes a field that is not named for a mistake (-Wextra), which it is not here. */
#pragma GCC system_header
#define SHOAL_OPTIONS(type, ...) (shoal_cpp::address(type{.size = sizeof(type), __VA_ARGS__}))
namespace shoal_cpp {
template <class T>
inline const T *address(const T &t) {
  return &t;
}
}  // namespace shoal_cpp
#else
#define SHOAL_OPTIONS(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#endif

#endif

# The static library as others link it: one object, in which nothing is global but what the shared library shows. Its
# own names (pool_new, plan_compile, some 3,000 of them) would else meet those of the program. No list is kept: as in
# cmake/symbols.cmake, what begins with shoal_ and is not hidden (SHOAL_API) is shown. (Hidden alone would not do: gcc
# forgets it of functions that it compiles for several instruction sets.)
#
# Tests use the objects as they are, in shoal_inside. So does all of a build with sanitizers, whose sections must not be
# joined.
set(STATIC_OBJECTS $<TARGET_OBJECTS:shoal_objects> $<TARGET_OBJECTS:shoal_wrappers>)
add_library(shoal_inside STATIC ${STATIC_OBJECTS})
if(NOT SHOAL_SANITIZE)
  set(STATIC_OBJECTS ${GEN}/shoal.o)
  set(to_one -r -nostdlib -Wl,--build-id=none)
  set(objcopy ${CMAKE_OBJCOPY})
  if(CMAKE_C_COMPILER_TARGET AND CMAKE_C_COMPILER_ID STREQUAL "Clang") # one compiler for all machines; an objcopy is of one
    list(APPEND to_one --target=${CMAKE_C_COMPILER_TARGET})
    find_program(TARGET_OBJCOPY NAMES ${CMAKE_C_COMPILER_TARGET}-objcopy llvm-objcopy REQUIRED)
    set(objcopy ${TARGET_OBJCOPY})
  endif()
  # What is to be optimised when it is linked, is so here: its names are the compiler's affair until then.
  if("${CMAKE_C_FLAGS}" MATCHES "-flto" OR CMAKE_INTERPROCEDURAL_OPTIMIZATION)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
      message(FATAL_ERROR "-flto: of such objects gcc alone makes the static library")
    endif()
    list(APPEND to_one -O3 -flto=auto -flinker-output=nolto-rel)
  endif()
  add_custom_command(
    OUTPUT ${STATIC_OBJECTS}
    COMMAND ${CMAKE_C_COMPILER} ${to_one} -o ${STATIC_OBJECTS} -Wl,--whole-archive $<TARGET_FILE:shoal_inside>
    COMMAND ${objcopy} --localize-hidden --wildcard --keep-global-symbol=shoal_* ${STATIC_OBJECTS}
    DEPENDS shoal_inside
    VERBATIM)
endif()
add_library(shoal_static STATIC ${STATIC_OBJECTS})
set_target_properties(shoal_static PROPERTIES LINKER_LANGUAGE C)

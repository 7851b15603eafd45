# `make deb`: CPack makes a package of each component that CMakeLists.txt installs. What a package needs at run time is
# found by dpkg-shlibdeps. The names are as Debian's policy has them: the library's carries its SONAME's number.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The authors of Shoal <shoal@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training in C, compatible with TensorFlow")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL lib dev command)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(library libshoal${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_LIB_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIB_DESCRIPTION "The library, with the subcommands of shoal.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libshoal-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, the static library, files for pkg-config and CMake.")
# Those of the static library.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION}), libprotobuf-c-dev, libnghttp2-dev, libssl-dev, \
libopenblas-dev, zlib1g-dev, libpng-dev, libjpeg-dev, libcjson-dev")
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME shoal)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION})") # dlopen'ed: nobody else would find it
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "python3, openssh-client")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command: servers, jobs on several machines, their status; and shoal-in-place, \
which puts a shoal server under each tf.train.Server of a TensorFlow program.")
foreach(component lib dev command)
  string(TOUPPER ${component} upper)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE RENAME copyright DESTINATION share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
include(CPack)

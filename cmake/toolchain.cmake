# Language level, warnings and sanitizers: the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# For code that nobody waits for: half the time to compile.
set(unhurried "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>")
# For prefetch, and the rooms that plan: most of the time of a test's tiny run, where ThreadSanitizer looks at each access.
if(SLUICE_SANITIZE STREQUAL "thread")
  set(hurried -O2)
endif()

find_package(Threads REQUIRED)

add_library(sluice_flags INTERFACE)
# -ffp-contract=off, --fmad=false: the compiler may not fuse what the source does not fuse, so every
# ISA and every card computes the same bits. --compress-mode=size: kernels for four kinds of cards would be
# most of a program.
set(cxx_flags -Wall -Wextra -Wsign-conversion -Werror -ffp-contract=off -fno-fast-math)
# Places in the source are told as in the repository. An object of a cache may come from another folder.
list(APPEND cxx_flags "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=")
# GCC 12 sees overlaps in operator+ of strings that are not there (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND cxx_flags -Wno-restrict)
endif()
# It takes a file that is compiled with others for a header.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  list(APPEND cxx_flags -Wno-subobject-linkage)
endif()
# Of a room whose files are compiled together a program takes all of it, used or not.
if(CMAKE_UNITY_BUILD)
  list(APPEND cxx_flags $<$<CONFIG:Release>:-ffunction-sections> $<$<CONFIG:Release>:-fdata-sections>)
  target_link_options(sluice_flags INTERFACE "$<$<CONFIG:Release>:LINKER:--gc-sections>")
endif()
set(cuda_flags --fmad=false --compress-mode=size -Werror=all-warnings
  -Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off,-fno-fast-math)
target_compile_options(sluice_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
find_package(fmt REQUIRED)
target_compile_definitions(sluice_flags INTERFACE SPDLOG_FMT_EXTERNAL)
target_include_directories(sluice_flags INTERFACE "${CMAKE_SOURCE_DIR}")
target_link_libraries(sluice_flags INTERFACE fmt::fmt Threads::Threads)
if(SLUICE_SANITIZE)
  set(sanitize_flags
    -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(SLUICE_SANITIZE STREQUAL "address,undefined")  # mostly what address tells too; a fifth of the time to compile
    list(APPEND sanitize_flags -fno-sanitize=null,object-size,pointer-overflow)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC says so itself: instrumented code makes it warn where nothing is amiss
    list(APPEND sanitize_flags -Wno-maybe-uninitialized)
  endif()
  target_compile_options(sluice_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize_flags}>")
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

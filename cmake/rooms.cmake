# sluice_room(NAME [DEPS room...] [OPTIONS_OF room...] [LIBS target...] [PRIVATE_LIBS target...]
#             HEADERS file... SOURCES file...)
#
# Makes the library sluice_NAME (alias sluice::NAME) from the files of this folder. DEPS is the whole
# list of rooms that its files may include; tests/include_dag.cmake holds every #include to it.
# OPTIONS_OF lists rooms of which only options.h may be included, and which are not linked: such a
# header is plain structs, and its room may be declared later or not be built at all.
# `all_verify_interface_header_sets` compiles headers by themselves; not those that a source includes first
# because it is theirs (clang-format sees to that): the preset dev, which CI does not run, compiles each source
# by itself. With a sanitizer only rooms that a test needs are built.
# Rooms that link LibTorch, themselves or through others, are noted for sluice_test.
function(sluice_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "" "" "DEPS;OPTIONS_OF;LIBS;PRIVATE_LIBS;HEADERS;SOURCES")
  if(room_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "sluice_room(${name}): unknown arguments ${room_UNPARSED_ARGUMENTS}")
  endif()
  add_library(sluice_${name} STATIC ${room_SOURCES})
  add_library(sluice::${name} ALIAS sluice_${name})
  string(REGEX REPLACE "[.](cpp|cu)(;|$)" ".h\\2" own_headers "${room_SOURCES}")
  list(REMOVE_ITEM room_HEADERS ${own_headers})
  target_sources(sluice_${name} PUBLIC FILE_SET HEADERS BASE_DIRS "${CMAKE_SOURCE_DIR}"
    FILES ${room_HEADERS})
  set_target_properties(sluice_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  if(SLUICE_SANITIZE)
    set_property(DIRECTORY PROPERTY EXCLUDE_FROM_ALL ON)  # what no test needs is not compiled
  endif()
  target_link_libraries(sluice_${name} PUBLIC sluice_flags ${room_LIBS})
  target_link_libraries(sluice_${name} PRIVATE ${room_PRIVATE_LIBS})
  foreach(dep IN LISTS room_DEPS)
    target_link_libraries(sluice_${name} PUBLIC sluice::${dep})
  endforeach()
  sluice_uses_libtorch(through_deps ${room_DEPS})
  if(through_deps OR "libtorch" IN_LIST room_LIBS)
    set_property(GLOBAL APPEND PROPERTY SLUICE_LIBTORCH_ROOMS ${name})
  endif()
  file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE ";" "," deps "${room_DEPS}")
  string(REPLACE ";" "," options_of "${room_OPTIONS_OF}")
  set_property(GLOBAL APPEND PROPERTY SLUICE_ROOMS "${name}|${folder}|${deps}|${options_of}")
endfunction()

# The room list as data, one line each: name|folder|dep,dep|options_of,options_of. Read by
# tests/include_dag.cmake.
function(sluice_write_room_list)
  get_property(rooms GLOBAL PROPERTY SLUICE_ROOMS)
  list(JOIN rooms "\n" text)
  file(WRITE "${CMAKE_BINARY_DIR}/rooms.txt" "${text}\n")
endfunction()

# sluice_uses_libtorch(RESULT room...): whether one of the rooms links LibTorch.
function(sluice_uses_libtorch result)
  get_property(libtorch_rooms GLOBAL PROPERTY SLUICE_LIBTORCH_ROOMS)
  set(${result} OFF PARENT_SCOPE)
  foreach(room IN LISTS ARGN)
    if(room IN_LIST libtorch_rooms)
      set(${result} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# sluice_test(NAME ROOMS room... SOURCES file... [LIBS target...] [LABELS label...] [TIMEOUT seconds]
#             [SHARDS n])
#
# One GoogleTest program; one ctest entry, or n, NAME_1 and so on, each with its share of the tests.
# Default label: unit. A test of rooms that use LibTorch has the label libtorch too, and a main() that
# runs it in the environment of the program; what the user has set reaches it.
function(sluice_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "TIMEOUT;SHARDS" "ROOMS;SOURCES;LIBS;LABELS")
  sluice_uses_libtorch(libtorch ${test_ROOMS})
  set(main GTest::gtest_main)
  if(libtorch)
    set(main sluice_libtorch_main)
  endif()
  add_executable(${name} ${test_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags GTest::gtest GTest::gmock ${main} ${test_LIBS})
  foreach(room IN LISTS test_ROOMS)
    target_link_libraries(${name} PRIVATE sluice::${room})
  endforeach()
  if(NOT test_LABELS)
    set(test_LABELS unit)
  endif()
  if(libtorch)
    list(APPEND test_LABELS libtorch)
  endif()
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 300)
  endif()
  set(tsan "TSAN_OPTIONS=set:suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
  set(lsan "LSAN_OPTIONS=set:suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp")
  if(NOT test_SHARDS)
    set(test_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${test_SHARDS})
    set(entry ${name})
    set(share "")
    if(test_SHARDS GREATER 1)
      set(entry ${name}_${shard})
      math(EXPR index "${shard} - 1")
      set(share "GTEST_TOTAL_SHARDS=set:${test_SHARDS};GTEST_SHARD_INDEX=set:${index}")
    endif()
    add_test(NAME ${entry} COMMAND ${name})
    # What may take longest begins first.
    set_tests_properties(${entry} PROPERTIES LABELS "${test_LABELS}"
      TIMEOUT ${test_TIMEOUT} COST ${test_TIMEOUT}
      ENVIRONMENT_MODIFICATION "${tsan};${lsan};${share}")
  endforeach()
endfunction()

# sluice_ieee_ptx_test(NAME SOURCE file.cu ROOMS room... OPERATIONS add,... [FUNCTIONS regex]): reads what
# a device gets of the file's kernels, as text (tests/gpu/ieee_ptx.cmake).
function(sluice_ieee_ptx_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ptx "" "SOURCE;OPERATIONS;FUNCTIONS" "ROOMS")
  add_library(${name}_ptx OBJECT "${CMAKE_SOURCE_DIR}/${ptx_SOURCE}")
  set_target_properties(${name}_ptx PROPERTIES CUDA_PTX_COMPILATION ON CUDA_ARCHITECTURES 80-virtual)
  target_link_libraries(${name}_ptx PRIVATE sluice_flags cuda_runtime)
  foreach(room IN LISTS ptx_ROOMS)
    target_link_libraries(${name}_ptx PRIVATE sluice::${room})
  endforeach()
  add_test(NAME ${name}_ieee_ptx COMMAND ${CMAKE_COMMAND} "-DPTX=$<TARGET_OBJECTS:${name}_ptx>"
    "-DOPERATIONS=${ptx_OPERATIONS}" "-DFUNCTIONS=${ptx_FUNCTIONS}"
    -P "${CMAKE_SOURCE_DIR}/tests/gpu/ieee_ptx.cmake")
  set_tests_properties(${name}_ieee_ptx PROPERTIES LABELS unit)
endfunction()

# sluice_bench(NAME ROOMS room... SOURCES file...): a program that measures; scripts/bench runs it.
function(sluice_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 bench "" "" "ROOMS;SOURCES;LIBS")
  add_executable(${name} ${bench_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags benchmark::benchmark ${bench_LIBS})
  foreach(room IN LISTS bench_ROOMS)
    target_link_libraries(${name} PRIVATE sluice::${room})
  endforeach()
endfunction()

# cmake -DPTX=FILE -DOPERATIONS=add,mul,... [-DFUNCTIONS=REGEX] -P ieee_ptx.cmake
#
# Every operation on floats in the device's kernels is one of OPERATIONS, rounds to nearest (one without
# .rn could be fused with its neighbour), keeps subnormals and is exact: nothing that a compiler flag could
# have changed. All of OPERATIONS are there.
#
# Kernels whose names match FUNCTIONS call exp, tanh, cos or their like. CUDA makes these of fused steps,
# and of approximate powers and reciprocals within an error that it states; the rest holds there too.
cmake_minimum_required(VERSION 3.24)

string(REPLACE "," ";" wanted "${OPERATIONS}")
set(names "add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh")
set(operation "^[ \t]*(@!?%p[0-9]+[ \t]+)?((${names})[.]([a-z0-9.]*[.])?b?f(16|32|64)(x2)?)[ \t]")
file(STRINGS "${PTX}" lines REGEX "[.]entry |${operation}")
set(kernel "")
set(seen "")
foreach(line IN LISTS lines)
  if(line MATCHES "[.]entry ([^( ]+)")
    set(kernel "${CMAKE_MATCH_1}")
    continue()
  endif()
  string(REGEX MATCH "${operation}" matched "${line}")
  set(whole "${CMAKE_MATCH_2}")
  set(name "${CMAKE_MATCH_3}")
  if(FUNCTIONS AND kernel MATCHES "${FUNCTIONS}"
      AND whole MATCHES "^(fma[.]r[nm][.]f32|(ex2|rcp)[.]approx[.]ftz[.]f32)$")
    continue()
  endif()
  if(NOT name IN_LIST wanted OR NOT whole MATCHES "^[a-z]+[.]rn[.]f(32|64)$")
    message(SEND_ERROR "${PTX}: not as IEEE has it, or not to be there: ${whole} in ${kernel}")
  endif()
  list(APPEND seen ${name})
endforeach()
foreach(name IN LISTS wanted)
  if(NOT name IN_LIST seen)
    message(SEND_ERROR "${PTX}: no ${name} in it")
  endif()
endforeach()

# cmake -DPTX=arithmetic.ptx -P ieee_ptx.cmake
#
# Every operation on floats in the device's kernels rounds to nearest (one without .rn could be fused
# with its neighbour), keeps subnormals and is exact: nothing that a compiler flag could have changed.
cmake_minimum_required(VERSION 3.24)

file(STRINGS "${PTX}" lines REGEX "^[ \t]*(add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt)[.](.*[.])?f(32|64)[ \t]")
set(seen "")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^[ \t]*(add|sub|mul|fma|div|sqrt)[.]rn[.]f(32|64)[ \t]")
    message(SEND_ERROR "${PTX}: not as IEEE has it: ${line}")
  endif()
  list(APPEND seen ${CMAKE_MATCH_1})
endforeach()
foreach(operation add sub mul fma div sqrt)
  if(NOT operation IN_LIST seen)
    message(SEND_ERROR "${PTX}: no ${operation} in it")
  endif()
endforeach()

# cmake -DNM=nm -DOBJECTS="a.o;b.o" -DFILES=kernel -P weak_symbols.cmake
#
# Every weak function of a kernel object, FILES_ISA.cpp, has its instruction set in its name, and is in no other
# kernel object. Otherwise the linker could keep, for the whole program, the copy of an ordinary
# inline function that was compiled for AVX-512.
cmake_minimum_required(VERSION 3.24)

set(set_avx512 "[Aa]vx512")
set(set_avx2 "[34]avx|4Avx2")  # also xsimd::avx, the base class of xsimd::avx2
set(set_base "4Base")
set(set_sse2 "sse2")
set(set_neon "neon")
set(set_scalar "Scalar")

set(seen)
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "${FILES}_([a-z0-9]+)\\.cpp")
    continue()
  endif()
  set(isa ${CMAKE_MATCH_1})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE text
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${text}")
  set(weak 0)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES " [WuT] ([^ ]+)$")  # V is data: no instructions
      continue()
    endif()
    set(symbol ${CMAKE_MATCH_1})
    math(EXPR weak "${weak} + 1")
    if(NOT symbol MATCHES "${set_${isa}}")
      message(SEND_ERROR "${FILES}_${isa}: ${symbol} has no instruction set in its name; make it a "
        "member of a template on the architecture, or keep it out of kernel files")
    endif()
    if(symbol IN_LIST seen)
      message(SEND_ERROR "${FILES}_${isa}: ${symbol} is in another kernel object too")
    endif()
    list(APPEND seen ${symbol})
  endforeach()
  if(weak EQUAL 0)
    message(SEND_ERROR "${FILES}_${isa}: no functions found in ${object}")
  endif()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked LESS 2)
  message(SEND_ERROR "only ${checked} kernel objects in: ${OBJECTS}")
endif()

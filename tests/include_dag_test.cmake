# cmake -DROOT=REPOSITORY -DWORK=FOLDER -P tests/include_dag_test.cmake
#
# Plants includes in a small repository of its own and sees include_dag.cmake refuse each.
cmake_minimum_required(VERSION 3.24)

# run(FILE LINE EXPECTED [MORE_ROOMS]): FILE gets LINE; the check must say EXPECTED, or "" to pass.
function(run file line expected)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/rooms.txt" "base|engine/base||\nlow|low|base|\nmid|engine/mid|low|\n"
    "config|engine/config|base|mid,later\ncpu_adam|cpu_adam|base|\n${ARGN}")
  foreach(header engine/base/a.h low/a.h low/deep/a.h engine/mid/a.h engine/mid/options.h
      engine/config/a.h engine/later/options.h cpu_adam/options.h tests/a.h)
    file(WRITE "${WORK}/${header}" "#pragma once\n#include <set>\n#include \"engine/base/a.h\"\n")
  endforeach()
  file(APPEND "${WORK}/${file}" "${line}\n")
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DROOT=${WORK}" "-DROOMS=${WORK}/rooms.txt"
    -P "${ROOT}/tests/include_dag.cmake"
    RESULT_VARIABLE rc OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(expected STREQUAL "" AND NOT rc EQUAL 0)
    message(SEND_ERROR "${file}: ${line} was refused: ${said}")
  elseif(NOT expected STREQUAL "")
    string(FIND "${said}" "${expected}" at)
    if(rc EQUAL 0 OR at EQUAL -1)
      message(SEND_ERROR "${file}: ${line} should have been refused (${expected}): ${said}")
    endif()
  endif()
endfunction()

run(engine/mid/b.cpp "#include \"low/deep/a.h\"" "")
run(engine/mid/b.cpp "// #include <torch/torch.h> is for others" "")
run(low/b.cpp "#include \"engine/mid/a.h\"" "engine/mid/a.h is in room mid; DEPS of low are: base")
run(low/deep/b.cpp "  #  include \"engine/mid/a.h\"" "is in room mid")
run(low/b.cpp "#include \"engine/mid/options.h\"" "is in room mid")
run(engine/config/b.cpp "#include \"engine/mid/options.h\"" "")
run(engine/config/b.cpp "#include \"engine/later/options.h\"" "")
run(engine/config/b.cpp "#include \"engine/other/options.h\"" "is not a path from the root")
run(engine/config/b.cpp "#include \"cpu_adam/options.h\"" "is in room cpu_adam")
run(engine/config/b.cpp "#include \"engine/mid/a.h\"" "is in room mid")
run(engine/mid/options.h "#include \"low/a.h\"" "an options.h includes nothing but engine/base")
run(low/b.cpp "#include \"a.h\"" "is not a path from the root")
run(low/b.cpp "#include \"tests/a.h\"" "is in no room")
run(low/b.h "#include <torch/torch.h>" "belongs to the rooms: tensor")
run(low/b.h "#include \"ATen/ops/mm.h\"" "belongs to the rooms: tensor")
run(low/b.cpp "#include <liburing.h>" "belongs to the rooms: nvme")
run(low/b.cpp "#include <oneapi/tbb/task_arena.h>" "belongs to the rooms: cpu_adam")
run(cpu_adam/b.cpp "#include <xsimd/xsimd.hpp>" "")
run(engine/mid/b.cpp "#include <yaml-cpp/yaml.h>" "belongs to the rooms: config")
run(low/b.cpp "" "DEPS names early, which is not a room declared before it"
  "late|late|early|\nearly|early||\n")

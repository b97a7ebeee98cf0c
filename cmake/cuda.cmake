# SLUICE_GPU: which folder of gpu/ the product is built on. With `cuda`: the language CUDA, and the
# CUDA runtime as an imported target, `cuda_runtime`. With `host` nothing of CUDA is looked for.
set(SLUICE_GPU host CACHE STRING "The device that is computed on: host | cuda")
set_property(CACHE SLUICE_GPU PROPERTY STRINGS host cuda)
if(NOT SLUICE_GPU MATCHES "^(host|cuda)$")
  message(FATAL_ERROR "SLUICE_GPU is '${SLUICE_GPU}', and there are host and cuda")
endif()

if(SLUICE_GPU STREQUAL "cuda")
  # Our own toolkit first, then what CMake itself looks at: CUDACXX and PATH.
  set(own_nvcc "${CMAKE_SOURCE_DIR}/.deps/cuda/nvidia/cu13/bin/nvcc")
  if(EXISTS "${own_nvcc}")
    set(CMAKE_CUDA_COMPILER "${own_nvcc}" CACHE FILEPATH "nvcc")
  endif()
  # sm_80, sm_90 and sm_100 as they are, and PTX for what comes after them.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual
      CACHE STRING "The cards that kernels are compiled for")
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "What nvcc hands host code to")
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # the target below is linked instead
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "SLUICE_GPU=cuda and no nvcc: scripts/install.sh cuda installs one, "
      "or set CUDACXX to yours")
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know it yet
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
    message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, and LibTorch "
      "is of 13; scripts/install.sh cuda installs that")
  endif()

  # The shared runtime: LibTorch brings it into the process in any case, and a static one beside it would
  # be a second, with streams and errors of its own. It loads the driver by itself, when it is first
  # asked for something, so programs start without one.
  find_file(SLUICE_CUDART NAMES libcudart.so.13 libcudart.so NO_DEFAULT_PATH REQUIRED
    PATHS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES})
  mark_as_advanced(SLUICE_CUDART)
  add_library(cuda_runtime INTERFACE)
  target_include_directories(cuda_runtime SYSTEM INTERFACE
    ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_link_libraries(cuda_runtime INTERFACE "${SLUICE_CUDART}")
endif()

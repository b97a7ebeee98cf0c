# LibTorch as an imported target, `libtorch`. find_package(Torch) insists on CUDA; the CPU library
# alone is enough, and everything it needs lies beside it (scripts/install.sh).
if(SLUICE_TORCH)
  if(NOT EXISTS "${SLUICE_LIBTORCH}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "no LibTorch in ${SLUICE_LIBTORCH}: run ./sluice once (it installs it), "
      "or pass -DSLUICE_LIBTORCH=FOLDER, or -DSLUICE_TORCH=OFF for the torch-free rooms")
  endif()
  add_library(libtorch INTERFACE)
  target_include_directories(libtorch SYSTEM INTERFACE
    "${SLUICE_LIBTORCH}/include" "${SLUICE_LIBTORCH}/include/torch/csrc/api/include")
  # Its folder has fmt's headers, of a version of its own, and no library for them.
  target_compile_definitions(libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 FMT_HEADER_ONLY)
  target_link_directories(libtorch INTERFACE "${SLUICE_LIBTORCH}/lib")
  target_link_options(libtorch INTERFACE
    "LINKER:--no-as-needed" "LINKER:-rpath,${SLUICE_LIBTORCH}/lib"
    "LINKER:--allow-shlib-undefined")
  # LibTorch's own libgomp comes first, so that it is the only OpenMP runtime in the process.
  target_link_libraries(libtorch INTERFACE
    "${SLUICE_LIBTORCH}/lib/libtorch_cpu.so" "${SLUICE_LIBTORCH}/lib/libc10.so"
    "${SLUICE_LIBTORCH}/lib/libgomp.so.1")

  # Beside the CPU library where PyTorch is installed, apart where scripts/install.sh put them. Only
  # machines with a GPU have what they need themselves (cuBLAS, cuDNN, NCCL, ...): programs link here,
  # and start there. A room that includes c10/cuda names `cuda_runtime` for its headers; the others
  # compile as they do without a GPU.
  if(SLUICE_GPU STREQUAL "cuda")
    find_path(SLUICE_LIBTORCH_CUDA libtorch_cuda.so NO_DEFAULT_PATH
      PATHS "${SLUICE_LIBTORCH}/lib" "${CMAKE_SOURCE_DIR}/.deps/cuda/torch/lib"
      DOC "The folder of libtorch_cuda.so and libc10_cuda.so")
    if(NOT SLUICE_LIBTORCH_CUDA)
      message(FATAL_ERROR "no libtorch_cuda.so in ${SLUICE_LIBTORCH}/lib or .deps/cuda/torch/lib: "
        "scripts/install.sh cuda puts it there")
    endif()
    target_link_options(libtorch INTERFACE "LINKER:-rpath,${SLUICE_LIBTORCH_CUDA}")
    target_link_libraries(libtorch INTERFACE
      "${SLUICE_LIBTORCH_CUDA}/libtorch_cuda.so" "${SLUICE_LIBTORCH_CUDA}/libc10_cuda.so")
  endif()
endif()

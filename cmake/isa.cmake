# dn_add_isa(NAME FLAGS...): compile the kernels once more, for one instruction set.
# The objects export the tables dn_cpu_kernels_NAME, dn_cpu_conv_NAME, dn_cpu_activations_NAME
# and dn_cpu_nn_NAME.
# SPDX-License-Identifier: Apache-2.0
function(dn_add_isa name)
    add_library(dn_cpu_${name} OBJECT
        src/cpu/product/kernels/kernels.c src/cpu/conv/kernels.c src/cpu/nn/activate.c src/cpu/nn/kernels.c)
    separate_arguments(flags UNIX_COMMAND "${DANAUS_KERNEL_FLAGS}")
    target_compile_options(dn_cpu_${name} PRIVATE ${DANAUS_LIBRARY_FLAGS} ${flags} ${ARGN})
    target_compile_definitions(dn_cpu_${name} PRIVATE DANAUS_ISA=${name} DANAUS_ISA_${name})
    target_link_libraries(dn_cpu_${name} PRIVATE dn_options)
    foreach(library ${danaus_libraries})
        target_sources(${library} PRIVATE $<TARGET_OBJECTS:dn_cpu_${name}>)
    endforeach()
endfunction()

# Kernels are optimised in every build type: a debug build of unrolled vector code
# tests nothing that users run. Sanitizers, which make it slow to compile, ask for
# less, and leave those for AVX-512 out, whose texts are those for AVX2.
# Nobody asks for floating-point exceptions: GCC then makes vectors of conditions.
set_source_files_properties(src/cpu/nn/activate.c src/cpu/nn/kernels.c PROPERTIES
    COMPILE_OPTIONS -fno-trapping-math)
# What leads from tile to tile is scalar: in vectors its loads would wait for its stores.
# Products and sums are fused where the vocabulary of vectors says so, nowhere else.
set_source_files_properties(src/cpu/product/kernels/kernels.c PROPERTIES
    COMPILE_OPTIONS "-fno-tree-slp-vectorize;-ffp-contract=off")
set(DANAUS_KERNEL_FLAGS "-O3" CACHE STRING "Flags of the kernels")
set(DANAUS_SCALAR_FLAGS "" CACHE STRING "More flags of those without vectors")
option(DANAUS_AVX512 "Build kernels for AVX-512" ON)
# Where the compiler would fuse products and sums (Arm), it would do so in some loops only.
dn_add_isa(scalar -ffp-contract=off ${DANAUS_SCALAR_FLAGS})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    dn_add_isa(avx2 -mavx2 -mfma -mf16c -mprfchw)
    if(DANAUS_AVX512)
        dn_add_isa(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprfchw
            -mprefer-vector-width=512)
        set_property(SOURCE src/cpu/isa/isa.c APPEND PROPERTY COMPILE_DEFINITIONS DANAUS_AVX512)
    endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    dn_add_isa(neon)
endif()

"""Kernels compiled on the CPU they run on, by LLVM.

    llvm_kernels          a small language for kernels, and their compilation
    normal_kernel         N(0, 1) in single precision by Box & Muller
    convolution_kernel    per-example gradients of convolutions

They only save time: each has a slower equivalent in torch, and the tests compare the two.
"""

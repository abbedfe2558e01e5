"""Kernels that are compiled on the machine they run on: by LLVM for its CPU, by Triton for an NVIDIA device.

    llvm_kernels          a small language for kernels, and their compilation
    normal_kernel         N(0, 1) in single precision by Box & Muller
    grid_noise_kernel     exact Gaussian noise on a grid, added in one pass
    convolution_kernel    per-example gradients of convolutions
    half_products         norms and weighted sums from factors in half precision; `half_kernels` has the Triton kernels,
                          `window_kernels` the one for convolutions

They only save time: each has a slower equivalent in torch, and the tests compare the two.
"""

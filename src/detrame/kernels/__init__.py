"""What only CUDA runs: the training step's operations, fused, on channels-last tensors in half precision.

Each is a function with a hand-written backward, in Triton or through cuDNN, whichever was faster for the shape at hand
when it was first met (:mod:`detrame.kernels.choice`). They serve the training step alone: everything else takes the
plain path, which is their reference. Triton's interpreter runs them on the CPU, where the tests compare the two.
"""

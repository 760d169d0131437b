"""What only CUDA runs: the operations of a captured pass, fused, on channels-last tensors in half precision.

Each is in Triton or through cuDNN, whichever was faster for the shape at hand when it was first met
(:mod:`detrame.kernels.choice`): with a hand-written backward for the training step, without one for evaluation.
Everything else takes the plain path, which is their reference. Triton's interpreter runs them on the CPU, where the
tests compare the two.
"""

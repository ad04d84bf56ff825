"""ScaDL: compression, second-order optimization and gradient-free model parallelism for scientific
deep learning.
"""

__version__ = "0.1.0"

"""Differential execution: the same calls in eager PyTorch and in ExecuTorch's runtime, and what differs.

Open `execution.py` first: a `Call` is what one call gave, `run_eager` makes the right answers, `lower` the
`.pte`. `runtime.py` runs that file in a process of its own, `compare.py` puts the differences into sentences.
`ablation.py` runs what the placement rule gets wrong without one of its constraints.
"""

"""Differential execution: the same calls in every form of a program, from eager PyTorch to ExecuTorch's runtime, and
what differs. `programs/` makes programs, `campaign/` fuzzes with them.

Open `execution.py` first: a `Call` is what one call gave, `run_eager` makes the right answers, `lower` the
`.pte`. `runtime.py` runs that file in a process of its own, `compare.py` puts the differences into sentences.
`forms.py` runs the functional and the rewritten graph, `planned.py` the lowered one over its planned arenas.
`ablation.py` runs what the placement rule gets wrong without one of its constraints.
"""

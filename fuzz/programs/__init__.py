"""Stateful programs as plain data, and Hypothesis strategies for them.

Open `stateful.py` first: a `Stateful` is a module as data, its text is what runs. `operations.py` lists what a step of
one can do, `drawing.py` draws them; `graphs.py` draws graphs that torch.export never saw.
"""

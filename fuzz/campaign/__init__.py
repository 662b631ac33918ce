"""Fuzz campaigns.

Open `trial.py` first: one module in every form; `judging.py` says what differs, and at whose fault (`failure.py`);
`graph_trial.py` does both for a graph that torch.export never saw. `unit.py` is a piece of a campaign's work (a seed
and a number of programs), `campaign.py` hands units to an executor (`executors.py`) and keeps what they find
(`record.py`, `corpus.py`), `minimise.py` makes a failure small (`reduction.py`) and shows it (`script.py`), `known.py`
knows those that are known, `written.py` writes them down.
"""

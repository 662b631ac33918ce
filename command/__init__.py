"""The command line. `main.py` has the commands, `programs.py` reads and writes files, `show.py` prints;
`check.py` has those about all graphs, with `tiers.py` and `tier_report.py`, `surveys.py` and `rules.py`.

Nothing here imports torch until a command runs, so that `copyproof --help` answers at once.
"""

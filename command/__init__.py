"""The command line. `main.py` has the commands, `programs.py` reads and writes files, `show.py` prints.

Nothing here imports torch until a command runs, so that `copyproof --help` answers at once.
"""

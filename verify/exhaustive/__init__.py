"""Every small program, and what a pass makes of it.

Open `recipe.py` first: a program as plain data. `bounds.py` enumerates all of them, `build.py` makes real exported
programs of them, `screen.py` proves what a pass made of one without asking the solver, `survey.py` goes through all of
them in several processes (`processes.py`) and can be resumed (`ledger.py`), `script.py` writes a refuted one as a
script that runs by itself.
"""

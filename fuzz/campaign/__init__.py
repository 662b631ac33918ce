"""Fuzz campaigns.

Open `trial.py` first: one program in every form, and what differs. `unit.py` is a piece of a campaign's work (a seed
and a number of programs), `campaign.py` hands units to an executor and keeps what they find (`record.py`),
`reduction.py` makes a failure small, `known.py` knows those that are known, `report.py` writes them down.
"""

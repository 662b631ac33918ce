"""What is right: program model, meanings, effects, lowering profiles, obligations, the placement rule.

Read `README.md` here first: it states the two meanings of a program and the conflict triple.
"""

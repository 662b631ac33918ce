"""What is right: program model, meanings, effects, lowering profiles, obligations, the placement rule."""
